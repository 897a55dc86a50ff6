"""Product quantisation of the principal components of an additive kernel's feature map."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.by_distance import FeatureSpace
from mercore.pipeline.encoders.bounds.pca_bound import principal_axes, projection_slack
from mercore.pipeline.encoders.bounds.points import MapEmbedding
from mercore.pipeline.encoders.bounds.proof import (
    BLOCK_ROWS,
    SimilarityOf,
    proof_columns,
)
from mercore.pipeline.encoders.encoder import (
    CodeColumn,
    Default,
    Memory,
    Model,
    check_range,
    declare_option,
    draw_rows,
    read_rows,
    shrunk,
)
from mercore.pipeline.encoders.feature_map import (
    MAPPED,
    MAX_HARMONICS,
    FeatureMap,
    choose_map,
)
from mercore.pipeline.encoders.kpca import COMPONENTS
from mercore.pipeline.encoders.pca_pq import PointQuantizer
from mercore.pipeline.encoders.pq import ComponentQuantizer, PqParams
from mercore.pipeline.kernels import Kernel
from mercore.stores.errors import InputError
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors

AXES_VALUES = 1 << 25  # of the mapped rows that the axes are learned from: 256 MiB
WIDE = 2048  # coordinates of a map, whose axes are found faster by a randomised method
ITERATIONS = 4  # of that
MAX_COMPONENTS = 1 << 12


@dataclass(frozen=True, kw_only=True)
class MapPqSpec(ComponentQuantizer, PointQuantizer):
    """Product quantisation of a feature map's principal components, made unit vectors.

    A score is 1 − ‖u − q(v)‖² / 2, the cosine of two rows' components, and only ranks.
    """

    name: str = "map-pq"
    version: int = 1
    n_components: int = field(default=Default(192), metadata=COMPONENTS)
    n_harmonics: int = field(
        default=1,
        metadata=declare_option(
            "harmonics", "Frequencies n of the feature map: a number becomes 2n + 1."
        ),
    )

    description = "A code holds D bytes: the components of a feature map, product-quantised."
    source = "Vedaldi & Zisserman 2012; Jégou, Douze & Schmid 2011"
    needs = f"a kernel with a feature map: {', '.join(MAPPED)}, or a transform"
    size = PqParams.size
    per_subquantizer: ClassVar[int] = 3

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether there is a map for the kernel, or for the one that ranks as it does."""
        return kernel.ranking.name in MAPPED

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        width = (2 * max(1, self.n_harmonics) + 1) * dims
        return replace(self, n_components=shrunk(self.n_components, width)).divided()

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range, and kernels without a map.

        Components beyond the coordinates of the map are zero.
        """
        if not self.serves(kernel):
            raise InputError(
                f"encoder {self.name} needs {self.needs}: found kernel {kernel.name}. "
                f"Fix: {setting(encoder='kpca-pq')}"
            )
        check_range("components", self.n_components, (1, MAX_COMPONENTS), setting(components=64))
        check_range("harmonics", self.n_harmonics, (1, MAX_HARMONICS), setting(harmonics=1))
        self.check_component_quantizer()

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the map, the preprocessed projection, the codebooks, and what proofs need."""
        rng = np.random.default_rng(self.random_state)
        drawn = draw_rows(rng, vectors.rows, min(self.n_training, vectors.rows))
        rows = read_rows(vectors, drawn)
        model = choose_map(kernel.ranking, self.n_harmonics)
        width = (2 * len(model["weights"]) - 1) * vectors.dims
        few = rng.permutation(rows)[: max(1, AXES_VALUES // width)]
        axes = leading_axes(FeatureMap(model)(kernel.ranking.prepare(few)), self.n_components)
        projection = self.preprocess(axes, rng)
        used = projection[:, projection.any(axis=0)]
        model |= {"projection": projection, "slack": np.array([projection_slack(used)])}
        return self.learn_codes(vectors, kernel, rows, model)

    def space(self, kernel: Kernel, model: Model) -> MapEmbedding:
        """Return the map of raw rows to unit vectors."""
        return MapEmbedding(kernel.ranking, model)

    def proof_columns(self) -> list[CodeColumn]:
        """Return the cell, e, and R / ‖a‖."""
        return proof_columns("float16", "ratio")

    def similarity(self, kernel: Kernel, model: Model) -> SimilarityOf:
        """Return the function from points of queries to their scores by distance."""
        excess = float(model["excess"][0])
        return lambda _: FeatureSpace(excess)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        width = (2 * self.n_harmonics + 1) * dims
        row = 8 * width + 40 * dims + 64 * self.n_components
        drawn = min(rows, self.n_training)
        few = min(drawn, max(1, AXES_VALUES // width))
        axes = few * (16 * width + 32 * self.n_components) + 40 * min(width, WIDE) ** 2
        return Memory(
            fit=drawn * (8 * dims + 24 * self.n_components)  # mapped block by block
            + axes
            + 32 * width * self.n_components
            + self.proof_bytes(rows, dims, self.n_components),
            shared=16 * width * (self.n_components + 32) + self.books_bytes(self.n_components),
            row=row,
            query=row + self.table_bytes(),
        )


def leading_axes(rows: Float64, count: int) -> Float64:
    """Return the axes of greatest second moment of rows [n, w], float64[w, count].

    Those beyond the rank of wide rows are zero, and so are those beyond w.
    """
    width = rows.shape[1]
    axes = np.zeros((width, count))
    if width <= WIDE:
        found = principal_axes(rows, min(count, width))
    else:
        found = _randomised_axes(rows, min(count, *rows.shape))
    axes[:, : found.shape[1]] = found
    return axes


def _randomised_axes(rows: Float64, count: int) -> Float64:
    """Return the axes by subspace iteration (Halko, Martinsson & Tropp 2011)."""
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        _, _, axes = randomized_svd(rows, count, n_iter=ITERATIONS, random_state=0)
    return np.asarray(axes.T, np.float64)
