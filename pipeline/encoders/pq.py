"""Product quantisation of coordinates: of kernel PCA's (Bourrier et al. 2015, §4.2), or of the rows themselves."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encoders.encoder import (
    MAX_BLOCK_ROWS,
    METRICS,
    Model,
    check_choice,
    check_random_state,
    check_range,
    draw_rows,
)
from mercore.pipeline.encoders.kpca import Embedding, Landmarks, random_rotation
from mercore.pipeline.encoders.pq_numba import assign, lay_out
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.sums import Cosine
from mercore.pipeline.scanners.pq import PqScanner
from mercore.stores.errors import InputError
from mercore.stores.part_store.header import column_fields
from mercore.stores.vectors import Vectors, gather

CENTROIDS = 256  # of a sub-quantizer: its code is a byte
MAX_SUBQUANTIZERS = 256
PREPROCESSING = ("none", "rotation", "permutation")
ITERATIONS = 25  # of k-means; faiss takes as many
RAW_KERNELS = ("cosine", "hellinger", "rbf")  # those that are a function of prepared rows' Euclidean distance
Embed = Callable[..., Float32]


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """What product quantisers have: D sub-quantizers of 256 centroids, learned from a sample.

    The metric ``distance`` ranks by −‖x̃ − q(ỹ)‖² and ``product`` by ⟨x̃, q(ỹ)⟩; the codes are the same.
    """

    n_subquantizers: int = 8
    n_training: int = 1 << 16
    metric: str = "distance"
    random_state: int = 0

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return MAX_BLOCK_ROWS

    def check_quantizer(self, width: int, *, fix: str) -> None:
        """Refuse sub-quantizers that do not share ``width`` coordinates out evenly, and unknown metrics.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        told = f"--subquantizers {greatest_divisor(width)}"
        check_range("subquantizers", self.n_subquantizers, (1, min(width, MAX_SUBQUANTIZERS)), told)
        if width % self.n_subquantizers:
            raise InputError(
                f"subquantizers share coordinates out evenly: found {self.n_subquantizers} for {width} coordinates. "
                f"Fix: {fix}."
            )
        check_range("training rows", self.n_training, (1, 1 << 24), "leave --training-rows out.")
        check_choice("metric", self.metric, METRICS)
        check_random_state(self.random_state)

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code: a byte a sub-quantizer."""
        return [column_fields("code", "uint8", self.n_subquantizers, compressor)]

    def learn(self, vectors: Vectors, embed: Embed, rng: np.random.Generator) -> Float32:
        """Return codebooks learned from a sample of the vectors."""
        drawn = draw_rows(rng, vectors.rows, min(self.n_training, vectors.rows))
        return learn_codebooks(embed(gather(vectors, drawn)), self.n_subquantizers, self.random_state)

    def learning_bytes(self, rows: int, dims: int, width: int) -> int:
        """Return the memory that learning takes: the sample, raw and embedded, and what k-means copies of it."""
        return min(rows, self.n_training) * (32 * dims + 24 * width)

    def table_bytes(self) -> int:
        """Return the memory of a query's tables: float32, once more in panels, and bytes."""
        return self.n_subquantizers * CENTROIDS * 12


@dataclass(frozen=True, kw_only=True)
class PqSpec(Quantizer):
    """Product quantisation of prepared rows, as faiss' ``IndexPQ``: for kernels that their distance decides.

    Scores are estimates of K for cosine and hellinger; for rbf, 1 − ‖x − q(y)‖² / 2, they only rank.
    """

    name: str = "pq"
    version: int = 1

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse parameters out of range, and kernels that no distance of the rows gives."""
        if kernel.name not in RAW_KERNELS:
            raise InputError(
                f"encoder pq ranks rows by their Euclidean distance: found kernel {kernel.name}, expected one of "
                f"{', '.join(RAW_KERNELS)}. Fix: --encoder kpca-pq"
            )
        if kernel.name == "rbf" and self.metric != "distance":
            raise InputError("kernel rbf is a distance's: found metric product. Fix: --metric distance")
        self.check_quantizer(vectors.dims, fix=f"--subquantizers {greatest_divisor(vectors.dims)}")

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the codebooks."""
        return {"codebooks": self.learn(vectors, raw(kernel), np.random.default_rng(self.random_state))}

    def encoder(self, kernel: Kernel, model: Model) -> "Pq":
        """Return the encoder of a model."""
        return Pq(raw(kernel), model["codebooks"], self)

    def fit_bytes(self, rows: int, dims: int) -> int:
        """Return the memory that fitting takes."""
        return self.learning_bytes(rows, dims, dims)

    def shared_bytes(self, dims: int) -> int:
        """Return the memory that all threads share while encoding."""
        return 8 * CENTROIDS * dims

    def row_bytes(self, dims: int) -> int:
        """Return the memory that a row of a block takes while it is encoded."""
        return 24 * dims

    def query_bytes(self, dims: int) -> int:
        """Return the memory that a query takes while codes are scanned."""
        return self.row_bytes(dims) + self.table_bytes()


@dataclass(frozen=True, kw_only=True)
class KpcaPqSpec(Landmarks, Quantizer):
    """Product quantisation of KPCA's coordinates, in their order, rotated, or permuted, which balances their energy."""

    name: str = "kpca-pq"
    version: int = 1
    preprocessing: str = "permutation"

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_landmarks(vectors.rows)
        whole = self.n_components - self.n_components % max(1, self.n_subquantizers)
        self.check_quantizer(self.n_components, fix=f"--components {whole}")
        check_choice("preprocessing", self.preprocessing, PREPROCESSING)

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, the projection with the preprocessing in it, and the codebooks."""
        model, components, rng = self.learn_components(vectors, kernel)
        projection = self._preprocess(components, rng).astype(np.float32)
        embed = in_blocks(Embedding(kernel, model["landmarks"], projection))
        codebooks = self.learn(vectors, embed, rng)
        return {**model, "projection": projection, "codebooks": codebooks}

    def encoder(self, kernel: Kernel, model: Model) -> "Pq":
        """Return the encoder of a model."""
        embedding = Embedding(kernel, model["landmarks"], model["projection"])
        return Pq(embedding, model["codebooks"], self)

    def fit_bytes(self, rows: int, dims: int) -> int:
        """Return the memory that fitting takes."""
        sample = min(rows, self.n_training) * (8 * dims + 24 * self.n_components)  # rows are prepared block by block
        return self.gram_bytes(dims) + sample

    def shared_bytes(self, dims: int) -> int:
        """Return the memory that all threads share while encoding."""
        return self.embedding_bytes(dims, self.n_components) + 8 * CENTROIDS * self.n_components

    def row_bytes(self, dims: int) -> int:
        """Return the memory that a row of a block takes while it is encoded."""
        return 8 * self.n_landmarks + 24 * dims + 8 * self.n_components

    def query_bytes(self, dims: int) -> int:
        """Return the memory that a query takes while codes are scanned."""
        return self.row_bytes(dims) + self.table_bytes()

    def _preprocess(self, components: Float64, rng: np.random.Generator) -> Float64:
        """Return the components [M, E] as they are, permuted, or rotated."""
        e = self.n_components
        if self.preprocessing == "permutation":
            return components[:, rng.permutation(e)]
        if self.preprocessing == "rotation":
            return components @ random_rotation(rng, e)
        return components


class Pq:
    """Encode rows as their coordinates' nearest centroids.

    Parameters
    ----------
    embed : what returns the coordinates of raw rows, float32[b, E]
    codebooks : float32[D · 256, E / D]: the centroids of one sub-quantizer after another
    """

    def __init__(self, embed: Embed, codebooks: Float32, spec: Quantizer) -> None:
        self.embed = embed
        self.block_rows = spec.block_rows
        self.metric = spec.metric
        self.codebooks = codebooks.reshape(spec.n_subquantizers, CENTROIDS, -1)

    def prepare_encoding(self) -> None:
        """Lay the codebooks out as the loop reads them: float32[D, E / D + 1, 256], the first line −‖c‖²/2."""
        self._books = lay_out(self.codebooks)

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows: the centroid with the greatest ⟨y, c⟩ − ‖c‖²/2, the first of equals."""
        coordinates = self.embed(rows, first=first)
        code = np.empty((len(rows), len(self.codebooks)), np.uint8)
        assign(coordinates, self._books, code)
        return {"code": code}

    def scanner(self, queries: NDArray[Any]) -> PqScanner:
        """Return queries ready to be scored by table look-ups, one a sub-quantizer."""
        return PqScanner(self.tables(queries))

    def tables(self, queries: NDArray[Any]) -> Float32:
        """Return what each centroid adds to a query's score, float32[D, 256, nq].

        The sum is ⟨x̃, q(ỹ)⟩, or 1 − ‖x̃ − q(ỹ)‖²/2, which is K(x, y) of unit vectors in feature space (Eq. 6).
        """
        points = self.embed(queries, label="query").astype(np.float64).reshape(len(queries), len(self.codebooks), -1)
        books = self.codebooks.astype(np.float64)
        inner = Cosine().exact  # adds in one order: a query's tables are its own to the bit, as a BLAS' are not
        tables = np.stack([inner(book, np.ascontiguousarray(points[:, j].T)) for j, book in enumerate(books)])
        if self.metric == "distance":
            tables -= np.square(books).sum(axis=2)[:, :, None] / 2
            tables -= np.square(points).sum(axis=2).T[:, None] / 2
            tables[0] += 1
        return tables.astype(np.float32)


def learn_codebooks(sample: Float32, count: int, random_state: int) -> Float32:
    """Return float32[count · 256, E / count]: centroids by k-means (Jégou et al. 2011), one seed a sub-quantizer.

    Where at most 256 points are distinct, those are the centroids, and the last is repeated: no row is ever assigned
    to a repeat.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    books = []
    for j, part in enumerate(np.split(sample, count, axis=1)):
        centers = np.unique(part, axis=0)
        if len(centers) > CENTROIDS:
            means = KMeans(CENTROIDS, n_init=1, max_iter=ITERATIONS, random_state=random_state + j)
            with threadpool_limits(1), warnings.catch_warnings():  # a limit from before the import would not hold
                warnings.simplefilter("ignore", ConvergenceWarning)  # centroids that fall together do no harm
                found = means.fit(part)
            centers = found.cluster_centers_.astype(np.float32)
        books.append(np.concatenate([centers, np.repeat(centers[-1:], CENTROIDS - len(centers), axis=0)]))
    return np.concatenate(books)


def raw(kernel: Kernel) -> Embed:
    """Return what gives prepared rows as float32."""

    def embed(rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
        return kernel.prepare(rows, first=first, label=label).astype(np.float32)

    return embed


def in_blocks(embedding: Embedding, size: int = 4096) -> Embed:
    """Return the embedding of any number of rows: a block's kernel values at a time."""

    def embed(rows: NDArray[Any]) -> Float32:
        return np.concatenate([embedding(rows[at : at + size], first=at) for at in range(0, len(rows), size)])

    return embed


def greatest_divisor(width: int) -> int:
    """Return the greatest number of sub-quantizers, at most 16, that share ``width`` coordinates out evenly."""
    return max(count for count in range(1, 17) if width % count == 0)
