"""The exact scorer: vectors, the kernel, and the error bound of a computed score."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.kernels import Kernel
from mercore.stores.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class ExactScorer:
    """Vectors, the kernel that scores them, and the number of threads."""

    vectors: Vectors
    kernel: Kernel
    threads: int = 1
    window: int | None = None  # parts whose bounds are compared at a time, where memory is short

    def slack(self, scores: NDArray[np.floating]) -> Float64:
        """Return the sum of the errors of two computed scores, given the scores of one side."""
        return self.kernel.slack(self.vectors.dims, scores)
