"""Signs of random projections of kernel PCA's coordinates (Bourrier et al. 2015, §5.2.2)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import OPTION, Default
from mercore.pipeline.encoders.hashing.signs import Hyperplanes
from mercore.pipeline.encoders.kpca import COMPONENTS, KpcaParams
from mercore.pipeline.kernels import Kernel

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors

AS_BITS = -1  # components: as many as bits


@dataclass(frozen=True, kw_only=True)
class KpcaLshSpec(Hyperplanes, KpcaParams):
    """Rows as B bits, the signs of B Gaussian projections of E coordinates; E = B by default."""

    name: str = "kpca-lsh"
    version: int = 1
    n_components: int = field(
        default=AS_BITS, metadata={OPTION: COMPONENTS[OPTION]._replace(shown_default="bits")}
    )

    description = (
        "A code holds B bits: signs of Gaussian projections of the coordinates of kernel PCA."
    )
    source = "Bourrier et al. 2015, §5.2.2"

    def __post_init__(self) -> None:
        """Set components to the number of bits, or of landmarks if that is less."""
        if self.n_components == AS_BITS:
            bits = Default(self.n_bits)
            object.__setattr__(self, "n_components", bits.at_most(self.n_landmarks))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_bits()
        self.check_landmarks(vectors.rows)

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, and the components times the Gaussian directions."""
        model, components, rng = self.learn_components(vectors, kernel)
        projection = components @ rng.standard_normal((self.n_components, self.n_bits))
        return {**model, "projection": projection.astype(np.float32)}
