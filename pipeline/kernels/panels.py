"""Columns of a block, packed once for many blocks of rows."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Panels(NamedTuple):
    """Columns of d dimensions in panels of 64: ``values`` float32[⌈m / 64⌉, d, 64], flat.

    ``gains``, of the same shape, are −y log2 y, for Jensen–Shannon only. ``terms`` is the number of
    the terms that the columns are packed for.
    """

    values: NDArray[np.float32]
    gains: NDArray[np.float32]
    d: int
    m: int
    terms: int


Columns = NDArray[np.float32] | Panels
