"""The exact scorer: vectors, the kernel, and the error bound of a computed score."""

from dataclasses import dataclass

from mercore.pipeline.kernels import Kernel
from mercore.stores.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class ExactScorer:
    """Vectors, the kernel that scores them, and the number of threads."""

    vectors: Vectors
    kernel: Kernel
    threads: int = 1
    window: int | None = None  # parts whose bounds are compared at a time, where memory is short

    @property
    def slack(self) -> float:
        """The errors of two computed scores together."""
        return 2 * self.kernel.exact_error(self.vectors.dims)
