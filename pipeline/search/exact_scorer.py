"""What decides: vectors, a kernel, and the most that its computed scores are off."""

from dataclasses import dataclass

from mercore.pipeline.kernels import Kernel
from mercore.stores.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class ExactScorer:
    """Vectors, the kernel that decides about them, and how many threads compute it."""

    vectors: Vectors
    kernel: Kernel
    threads: int = 1
    window: int | None = None  # parts whose bounds are compared at once, where memory is short

    @property
    def slack(self) -> float:
        """The most that two computed scores are off together."""
        return 2 * self.kernel.exact_error(self.vectors.dims)
