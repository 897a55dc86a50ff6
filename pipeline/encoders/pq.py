"""Product quantisation of kernel PCA's coordinates (Bourrier et al. 2015, §4.2) or of rows."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encoders.encoder import (
    MAX_BLOCK_ROWS,
    METRIC,
    METRICS,
    TRAINING_ROWS,
    CodeColumn,
    Default,
    Encoder,
    EncoderSpec,
    Memory,
    Model,
    Size,
    check_choice,
    check_random_state,
    check_range,
    draw_rows,
    option,
    read_rows,
)
from mercore.pipeline.encoders.kpca import Embedding, Landmarks, random_rotation
from mercore.pipeline.kernels import KINDS, Kernel
from mercore.pipeline.kernels.sums import Cosine
from mercore.stores.errors import InputError

if TYPE_CHECKING:
    from mercore.pipeline.scanners.pq import PqScanner
    from mercore.stores.vectors import Vectors

CENTROIDS = 256  # of a sub-quantizer: its code is a byte
MAX_SUBQUANTIZERS = 256
PREPROCESSING = ("permutation", "rotation", "none")
ITERATIONS = 25  # of k-means; faiss takes as many
Embed = Callable[..., Float32]


@dataclass(frozen=True, kw_only=True)
class Quantizer(EncoderSpec):
    """The parameters of product quantisers: D sub-quantizers of 256 centroids.

    The metric ``distance`` ranks by −‖x̃ − q(ỹ)‖² and ``product`` by ⟨x̃, q(ỹ)⟩; the codes are the
    same.
    """

    n_subquantizers: int = field(
        default=Default(8),
        metadata=option(
            "subquantizers",
            "Bytes of a code, D: each is one of 256 centroids of E / D coordinates.",
        ),
    )
    metric: str = field(default="distance", metadata=METRIC)
    n_training: int = field(default=1 << 16, metadata=TRAINING_ROWS)

    size = Size("n_subquantizers", "look-ups", MAX_SUBQUANTIZERS)

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return MAX_BLOCK_ROWS

    def divide(self, width: int) -> int:
        """Return the sub-quantizers of ``width`` coordinates: a default is made to divide them."""
        count = self.n_subquantizers
        if isinstance(count, Default) and width % count:
            return Default(greatest_divisor(width))
        return count

    def check_quantizer(self, width: int, *, fix: str) -> None:
        """Refuse a number of sub-quantizers that does not divide ``width``, and unknown metrics.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        works = f"--subquantizers {greatest_divisor(width)}"
        check_range(
            "subquantizers", self.n_subquantizers, (1, min(width, MAX_SUBQUANTIZERS)), works
        )
        if width % self.n_subquantizers:
            raise InputError(
                f"subquantizers share coordinates out evenly: found {self.n_subquantizers} for "
                f"{width} coordinates. "
                f"Fix: {fix}."
            )
        check_range("training rows", self.n_training, (1, 1 << 24), "leave --training-rows out.")
        check_choice("metric", self.metric, METRICS)
        check_random_state(self.random_state)

    def code_columns(self) -> list[CodeColumn]:
        """Return the code: one byte per sub-quantizer."""
        return [("code", "uint8", self.n_subquantizers)]

    def learn(self, vectors: "Vectors", embed: Embed, rng: np.random.Generator) -> Float32:
        """Return codebooks learned from a sample of the vectors."""
        drawn = draw_rows(rng, vectors.rows, min(self.n_training, vectors.rows))
        return learn_codebooks(
            embed(read_rows(vectors, drawn)), self.n_subquantizers, self.random_state
        )

    def learning_bytes(self, rows: int, dims: int, width: int) -> int:
        """Return the bytes that learning takes: the sample, its embedding, and k-means' copies."""
        return min(rows, self.n_training) * (32 * dims + 24 * width)

    def table_bytes(self) -> int:
        """Return the bytes of a query's tables: in float32, in float32 panels, and in bytes."""
        return self.n_subquantizers * CENTROIDS * 12


@dataclass(frozen=True, kw_only=True)
class PqSpec(Quantizer):
    """Product quantisation of prepared rows, as in faiss' ``IndexPQ``.

    Scores are estimates of K for cosine and hellinger. For rbf they are 1 − ‖x − q(y)‖² / 2 and
    only rank. For kernels of raw rows they are −‖x − q(y)‖² or ⟨x, q(y)⟩ themselves.
    """

    name: str = "pq"
    version: int = 1

    description = "A code holds D bytes: the row itself, product-quantised as by faiss."
    source = "Jégou, Douze & Schmid 2011"
    needs = "a kernel that ranks as distances or products of prepared rows do"

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether a metric of prepared rows ranks as the kernel does."""
        return bool(kernel.raw_metrics)

    def within(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        return replace(self, n_subquantizers=self.divide(dims))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range, and kernels that no metric of the rows ranks like."""
        if not kernel.raw_metrics:
            served = ", ".join(kind.name for kind in KINDS.values() if kind.raw_metrics)
            raise InputError(
                "encoder pq ranks rows by their Euclidean distance: found kernel "
                f"{kernel.name}, expected one of "
                f"{served}. Fix: --encoder kpca-pq"
            )
        if self.metric in METRICS and self.metric not in kernel.raw_metrics:
            ranked = kernel.raw_metrics[0]
            raise InputError(
                f"kernel {kernel.name} is a function of the {ranked}: found metric {self.metric}. "
                f"Fix: --metric {ranked}"
            )
        self.check_quantizer(vectors.dims, fix=f"--subquantizers {greatest_divisor(vectors.dims)}")

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the codebooks."""
        return {
            "codebooks": self.learn(
                vectors, prepared_rows(kernel), np.random.default_rng(self.random_state)
            )
        }

    def encoder(self, kernel: Kernel, model: Model) -> "Pq":
        """Return the encoder of a model."""
        return Pq(prepared_rows(kernel), model["codebooks"], self, raw=not kernel.normalised)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        return Memory(
            fit=self.learning_bytes(rows, dims, dims),
            shared=8 * CENTROIDS * dims,
            row=24 * dims,
            query=24 * dims + self.table_bytes(),
        )

    def size_fits(self, dims: int) -> bool:
        """Return whether the sub-quantizers divide the dimensions evenly."""
        return dims % self.n_subquantizers == 0


@dataclass(frozen=True, kw_only=True)
class KpcaPqSpec(Landmarks, Quantizer):
    """Product quantisation of KPCA's coordinates, plain, rotated or permuted."""

    name: str = "kpca-pq"
    version: int = 1
    preprocessing: str = field(
        default="permutation",
        metadata=option(
            "preprocessing",
            "Map of the coordinates before they are quantised.",
            choices=PREPROCESSING,
        ),
    )

    description = "A code holds D bytes: the coordinates of kernel PCA, product-quantised."
    source = "Bourrier et al. 2015, §4.2"
    size = Quantizer.size

    def within(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit: components are a multiple of sub-quantizers."""
        spec = super().within(rows, dims)
        components = spec.n_components
        whole = components - components % max(1, spec.n_subquantizers)
        if isinstance(components, Default) and whole:
            return replace(spec, n_components=Default(whole))
        return replace(spec, n_subquantizers=spec.divide(components))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_landmarks(vectors.rows)
        whole = self.n_components - self.n_components % max(1, self.n_subquantizers)
        self.check_quantizer(self.n_components, fix=f"--components {whole}")
        check_choice("preprocessing", self.preprocessing, PREPROCESSING)

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, the preprocessed projection, and the codebooks."""
        model, components, rng = self.learn_components(vectors, kernel)
        projection = self._preprocess(components, rng).astype(np.float32)
        embed = in_blocks(Embedding(kernel, model["landmarks"], projection))
        codebooks = self.learn(vectors, embed, rng)
        return {**model, "projection": projection, "codebooks": codebooks}

    def encoder(self, kernel: Kernel, model: Model) -> "Pq":
        """Return the encoder of a model."""
        embedding = Embedding(kernel, model["landmarks"], model["projection"])
        return Pq(embedding, model["codebooks"], self)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 8 * self.n_landmarks + 24 * dims + 8 * self.n_components
        sample = min(rows, self.n_training) * (
            8 * dims + 24 * self.n_components
        )  # prepared block by block
        return Memory(
            fit=self.gram_bytes(dims) + sample,
            shared=self.embedding_bytes(dims, self.n_components)
            + 8 * CENTROIDS * self.n_components,
            row=row,
            query=row + self.table_bytes(),
        )

    def size_fits(self, dims: int) -> bool:
        """Return whether landmarks are enough, and sub-quantizers divide the components."""
        return super().size_fits(dims) and self.n_components % self.n_subquantizers == 0

    @classmethod
    def of_size(cls, value: int, given: Mapping[str, Any]) -> Self:
        """Return the spec of a size, its components raised to a multiple unless they are given."""
        spec = cls(**{**given, "n_subquantizers": value})
        if "n_components" in given:
            return spec
        return replace(spec, n_components=Default(-(-spec.n_components // value) * value))

    def _preprocess(self, components: Float64, rng: np.random.Generator) -> Float64:
        """Return the components [M, E] as they are, permuted, or rotated."""
        e = self.n_components
        if self.preprocessing == "permutation":
            return components[:, rng.permutation(e)]
        if self.preprocessing == "rotation":
            return components @ random_rotation(rng, e)
        return components


class Pq(Encoder):
    """Encode rows as their coordinates' nearest centroids.

    Parameters
    ----------
    embed : the function from raw rows to coordinates, float32[b, E]
    codebooks : float32[D · 256, E / D]: the centroids of one sub-quantizer after another
    raw : whether a score by distance is −‖x̃ − q(ỹ)‖², not K of unit vectors
    """

    def __init__(
        self, embed: Embed, codebooks: Float32, spec: Quantizer, *, raw: bool = False
    ) -> None:
        self.embed = embed
        self.block_rows = spec.block_rows
        self.metric = spec.metric
        self.raw = raw
        self.codebooks = codebooks.reshape(spec.n_subquantizers, CENTROIDS, -1)

    def prepare_encoding(self) -> None:
        """Lay the codebooks out for encoding, float32[D, E / D + 1, 256], −‖c‖²/2 first."""
        from mercore.pipeline.encoders.pq_numba import lay_out_codebooks

        self._books = lay_out_codebooks(self.codebooks)

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of rows: the first centroid with the greatest ⟨y, c⟩ − ‖c‖²/2."""
        from mercore.pipeline.encoders.pq_numba import assign

        coordinates = self.embed(rows, first=first)
        code = np.empty((len(rows), len(self.codebooks)), np.uint8)
        assign(coordinates, self._books, code)
        return {"code": code}

    def scanner(self, queries: NDArray[Any]) -> "PqScanner":
        """Return the scanner of queries by table look-ups, one per sub-quantizer."""
        from mercore.pipeline.scanners.pq import PqScanner

        return PqScanner(self.tables(queries))

    def tables(self, queries: NDArray[Any]) -> Float32:
        """Return the term of each centroid in a query's score, float32[D, 256, nq].

        The sum is ⟨x̃, q(ỹ)⟩, or 1 − ‖x̃ − q(ỹ)‖²/2, which is K(x, y) of unit vectors in feature
        space (Eq. 6). Of raw rows it is −‖x̃ − q(ỹ)‖².
        """
        points = (
            self.embed(queries, label="query")
            .astype(np.float64)
            .reshape(len(queries), len(self.codebooks), -1)
        )
        books = self.codebooks.astype(np.float64)
        inner = Cosine().exact  # one order of addition, so that the batch does not matter
        tables = np.stack(
            [inner(book, np.ascontiguousarray(points[:, j].T)) for j, book in enumerate(books)]
        )
        if self.metric == "distance":
            tables -= np.square(books).sum(axis=2)[:, :, None] / 2
            tables -= np.square(points).sum(axis=2).T[:, None] / 2
            if self.raw:
                tables *= 2
            else:
                tables[0] += 1
        return tables.astype(np.float32)


def learn_codebooks(sample: Float32, count: int, random_state: int) -> Float32:
    """Return centroids by k-means (Jégou et al. 2011), float32[count · 256, E / count].

    If at most 256 points are distinct, they are the centroids, and the last is repeated: no row is
    ever assigned to a repeat.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    books = []
    for j, part in enumerate(np.split(sample, count, axis=1)):
        centers = np.unique(part, axis=0)
        if len(centers) > CENTROIDS:
            means = KMeans(CENTROIDS, n_init=1, max_iter=ITERATIONS, random_state=random_state + j)
            with (
                threadpool_limits(1),
                warnings.catch_warnings(),
            ):  # a limit from before the import would not hold
                warnings.simplefilter(
                    "ignore", ConvergenceWarning
                )  # centroids that fall together do no harm
                found = means.fit(part)
            centers = found.cluster_centers_.astype(np.float32)
        books.append(
            np.concatenate([centers, np.repeat(centers[-1:], CENTROIDS - len(centers), axis=0)])
        )
    return np.concatenate(books)


def prepared_rows(kernel: Kernel) -> Embed:
    """Return the function from raw rows to prepared rows in float32."""

    def embed(rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
        return kernel.prepare(rows, first=first, label=label).astype(np.float32)

    return embed


def in_blocks(embedding: Embedding, size: int = 4096) -> Embed:
    """Return the embedding of any number of rows, computed block by block."""

    def embed(rows: NDArray[Any]) -> Float32:
        return np.concatenate(
            [embedding(rows[at : at + size], first=at) for at in range(0, len(rows), size)]
        )

    return embed


def greatest_divisor(width: int) -> int:
    """Return the greatest number of sub-quantizers, at most 16, that divides ``width``."""
    return max(count for count in range(1, 17) if width % count == 0)
