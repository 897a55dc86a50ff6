"""Kernelised locality-sensitive hashing (Kulis & Grauman 2012; Jiang, Que & Kulis 2014).

A hyperplane of the feature space is a sum of t of p landmarks, whitened by the landmarks'
covariance. By the central limit theorem it is about a Gaussian direction.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import Default, check_range, declare_option, shrunk
from mercore.pipeline.encoders.hashing.signs import BITS, Hyperplanes
from mercore.pipeline.encoders.kpca import LANDMARKS, gram_matrix, principal_components
from mercore.pipeline.kernels import Kernel
from mercore.stores.wording import option, setting

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors

ALL = Default(0)  # rank: as many components as there are; a rank that is given is at least 1


@dataclass(frozen=True, kw_only=True)
class WhitenedParams(Hyperplanes):
    """Hyperplanes w = K^{-1/2} e_S, where e_S marks t of p landmarks that are drawn per bit.

    With a rank r, K is replaced by its best approximation of that rank (Jiang et al., §4.2).
    """

    n_landmarks: int = field(default=Default(300), metadata=LANDMARKS)
    n_bits: int = field(default=300, metadata=BITS)
    n_subset: int = field(
        default=Default(30),
        metadata=declare_option("subset", "Landmarks t that a hyperplane is the sum of."),
    )
    rank: int = field(
        default=ALL,
        metadata=declare_option(
            "rank", "Components r of the landmarks that are kept.", shown_default="all"
        ),
    )

    centred: ClassVar[bool]
    """Whether the landmarks are centred in feature space."""

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit: a subset of all landmarks gives equal bits."""
        spec = super().with_defaults_for(rows, dims)
        p = spec.n_landmarks
        return replace(spec, n_subset=shrunk(spec.n_subset, p // 2 if spec.n_subset >= p else p))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_bits()
        self.check_landmark_count(vectors.rows)
        why = ", the landmarks"
        limits = (1, self.n_landmarks)
        check_range("subset", self.n_subset, limits, setting(subset=min(30, limits[1])), why=why)
        if not isinstance(self.rank, Default):
            limits = (1, self.n_landmarks)
            check_range("rank", self.rank, limits, f"leave {option('rank')} out.", why=why)

    def size_fits(self, dims: int) -> bool:
        """Return whether there are as many landmarks as the subset and the rank need."""
        return max(self.n_subset, self.rank) <= self.n_landmarks

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues [r], hyperplanes w [p, B] and thresholds [B].

        The centred sum is Σ w(i) [K(x, yᵢ) − mean_j K(yᵢ, yⱼ)], because Σ w(i) = 0: centring the
        row adds a number that does not depend on i (Kulis & Grauman 2012, §4).
        """
        landmarks, rows, rng = self.draw_landmarks(vectors)
        gram = gram_matrix(kernel, landmarks)
        means = gram.mean(axis=0) if self.centred else np.zeros(len(gram))
        gram += means.mean() - means[:, None] - means[None]
        eigenvalues, components = principal_components(gram, self.rank or self.n_landmarks)
        weights = components @ self._projected_subsets(components * np.sqrt(eigenvalues), rng)
        return {
            "landmarks": landmarks,
            "landmark_rows": rows,
            "eigenvalues": eigenvalues,
            "projection": weights.astype(np.float32),
            "thresholds": (means @ weights).astype(np.float32),
        }

    def _projected_subsets(self, vectors: Float64, rng: np.random.Generator) -> Float64:
        """Return U^T e_S [r, B] for eigenvectors U [p, r] and a set S per bit.

        K_r^{-1/2} e_S is (U / σ) U^T e_S (Eq. 8). Sums over S are not divided by √t, which
        changes no sign.
        """
        subsets = np.zeros((self.n_landmarks, self.n_bits))
        for bit in range(self.n_bits):
            subsets[rng.choice(self.n_landmarks, self.n_subset, replace=False), bit] = 1
        return np.asarray(vectors.T @ subsets)


@dataclass(frozen=True, kw_only=True)
class KlshSpec(WhitenedParams):
    """Hyperplanes through the mean of the landmarks: their Gram matrix is doubly centred."""

    name: str = "klsh"
    version: int = 1

    description = "A code holds B bits: signs of whitened sums of t of p centred landmarks (KLSH)."
    source = "Kulis & Grauman 2012; Jiang, Que & Kulis 2014"
    centred = True


@dataclass(frozen=True, kw_only=True)
class NystromLshSpec(WhitenedParams):
    """Hyperplanes of the Nyström approximation: the Gram matrix as it is (Jiang et al., §3)."""

    name: str = "nystrom-lsh"
    version: int = 1

    description = "A code holds B bits: as klsh, but the landmarks are not centred."
    source = "Jiang, Que & Kulis 2014, §3"
    centred = False
