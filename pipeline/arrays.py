"""The array types that signatures name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
