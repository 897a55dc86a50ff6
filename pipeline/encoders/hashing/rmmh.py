"""Random maximum margin hashing (Joly & Buisson 2011; Bourrier et al. 2015, Eq. 16 to 18)."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import Default, check_range, declare_option, shrunk
from mercore.pipeline.encoders.hashing.signs import Hyperplanes
from mercore.pipeline.encoders.kpca import gram_matrix
from mercore.pipeline.kernels import Kernel
from mercore.stores.errors import InputError
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class RmmhSpec(Hyperplanes):
    """Hyperplanes of support vector machines that separate M landmarks with random labels.

    Each bit has a machine of its own: M of the landmarks, half of them labelled +1.
    """

    name: str = "rmmh"
    version: int = 1
    n_samples: int = field(
        default=Default(32),
        metadata=declare_option("samples", "Landmarks per bit, half of either label; even."),
    )
    penalty: float = field(
        default=1.0, metadata=declare_option("penalty", "C of the support vector machines.")
    )

    description = (
        "A code holds B bits: sides of the widest margins between landmarks with random labels."
    )
    source = "Joly & Buisson 2011"

    def __post_init__(self) -> None:
        """Make the penalty a float: 2 and 2.0 are the same spec."""
        object.__setattr__(self, "penalty", float(self.penalty))

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        spec = super().with_defaults_for(rows, dims)
        return replace(spec, n_samples=shrunk(spec.n_samples, spec.n_landmarks // 2 * 2))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_bits()
        self.check_landmark_count(vectors.rows)
        if self.n_landmarks < 2:
            raise InputError(
                "rmmh separates landmarks from each other: found 1, expected at least 2. Fix: "
                f"{setting(encoder='klsh')}, or another store."
            )
        limits = (2, self.n_landmarks)
        check_range("samples", self.n_samples, limits, setting(samples=32), why=", the landmarks")
        if self.n_samples % 2:
            raise InputError(
                f"samples is {self.n_samples}: expected an even number, half of either label. "
                f"Fix: {setting(samples=self.n_samples - 1)}."
            )
        if not 1e-9 <= self.penalty <= 1e9:
            raise InputError(
                f"penalty is {self.penalty}: expected a number from 1e-9 to 1e9. Fix: "
                f"{setting(penalty=1)}."
            )

    def size_fits(self, dims: int) -> bool:
        """Return whether there are as many landmarks as samples."""
        return self.n_samples <= self.n_landmarks

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, hyperplanes α ε (Eq. 16) and thresholds −b."""
        landmarks, rows, rng = self.draw_landmarks(vectors)
        gram = gram_matrix(kernel, landmarks)
        weights = np.zeros((self.n_landmarks, self.n_bits))
        thresholds = np.zeros(self.n_bits)
        for bit in range(self.n_bits):
            chosen = rng.choice(self.n_landmarks, self.n_samples, replace=False)
            weights[chosen, bit], thresholds[bit] = self._margin(gram[np.ix_(chosen, chosen)])
        return {
            "landmarks": landmarks,
            "landmark_rows": rows,
            "projection": weights.astype(np.float32),
            "thresholds": thresholds.astype(np.float32),
        }

    def _margin(self, gram: Float64) -> tuple[Float64, float]:
        """Return α ε [M] and −b of the machine that separates the first half from the second."""
        from sklearn.svm import SVC

        labels = np.repeat([1, -1], self.n_samples // 2)
        machine = SVC(C=self.penalty, kernel="precomputed").fit(gram, labels)
        weights = np.zeros(self.n_samples)
        weights[machine.support_] = machine.dual_coef_[0]
        return weights, -float(machine.intercept_[0])
