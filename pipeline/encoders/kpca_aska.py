"""ASKA with the cosine kernel on kernel PCA's coordinates (Davis et al. 2014, Fig. 7)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.aska import Aska, AskaParams
from mercore.pipeline.encoders.encoder import Default, Memory, Model
from mercore.pipeline.encoders.kpca import COMPONENTS, EmbeddedCosine, Embedding, KpcaParams
from mercore.pipeline.kernels import Kernel

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class KpcaAskaSpec(AskaParams, KpcaParams):
    """Embedded rows as α of m embedded exemplars, under the cosine kernel."""

    name: str = "kpca-aska"
    version: int = 1
    n_components: int = field(default=Default(128), metadata=COMPONENTS)

    description = (
        "A code holds α weighted atoms of a dictionary of rows, in coordinates of kernel PCA."
    )
    source = "Davis, Balzer & Soatto 2014, Fig. 7"

    def size_fits(self, dims: int) -> bool:
        """Return whether atoms and landmarks are enough."""
        return AskaParams.size_fits(self, dims) and KpcaParams.size_fits(self, dims)

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_dictionary(vectors.rows)
        self.check_landmarks(vectors.rows)

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, projection and dictionary."""
        model, components, rng = self.learn_components(vectors, kernel)
        projection = components.astype(np.float32)
        return {**model, "projection": projection, **self.draw_dictionary(vectors, rng)}

    def encoder(self, kernel: Kernel, model: Model) -> Aska:
        """Return the encoder of a model."""
        embedding = Embedding(kernel, model["landmarks"], model["projection"])
        return Aska(self, EmbeddedCosine(embedding), model["dictionary"])

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        embedded = 8 * self.n_landmarks + 24 * dims
        return Memory(
            fit=self.gram_bytes(dims),
            shared=self.embedding_bytes(dims, self.n_components)
            + self.dictionary_bytes(dims, self.n_components),
            row=embedded + 8 * self.n_atoms + 24 * self.n_components,
            query=embedded + 16 * self.n_atoms,
        )
