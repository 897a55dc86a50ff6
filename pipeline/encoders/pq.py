"""Product quantisation: of rows here, of kernel PCA's or linear PCA's coordinates elsewhere."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encoders.bounds.by_distance import of_rows
from mercore.pipeline.encoders.bounds.points import KernelEmbedding, RowEmbedding
from mercore.pipeline.encoders.bounds.proof import (
    BLOCK_ROWS,
    SAMPLE_ROWS,
    ErrorBounds,
    SimilarityOf,
    grid_of,
    learn_proof,
    proof_columns,
)
from mercore.pipeline.encoders.bounds.sample import QUERIES, Sample, sample_scores
from mercore.pipeline.encoders.codebooks import CENTROIDS, learn_codebooks
from mercore.pipeline.encoders.encoder import (
    MAX_BLOCK_ROWS,
    METRIC,
    METRICS,
    TRAINING_ROWS,
    BoundEncoder,
    CodeColumn,
    CoordinateCodes,
    Default,
    DefaultWord,
    EncoderSpec,
    Memory,
    Model,
    Size,
    check_choice,
    check_random_state,
    check_range,
    declare_option,
    draw_rows,
    read_rows,
    shrunk,
)
from mercore.pipeline.encoders.kpca import COMPONENTS, Embed, random_rotation
from mercore.pipeline.encoders.residual.books import (
    ResidualBooks,
    encoding_bytes,
    learn_residual_books,
    learning_bytes,
)
from mercore.pipeline.kernels import KINDS, Kernel
from mercore.pipeline.kernels.sums import Cosine
from mercore.pipeline.scanners.bounds.layout import MAX_ROW_BYTES
from mercore.stores.errors import InputError
from mercore.stores.spec import ABSENT
from mercore.stores.wording import option, setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.bounds.grid import PqBoundScanner
    from mercore.pipeline.scanners.pq import PqScanner
    from mercore.stores.vectors import Vectors

MAX_SUBQUANTIZERS = 256
PREPROCESSING = ("balanced", "permutation", "rotation", "none")
PROOFS = ("bounds", "none")
QUANTIZERS = ("pq", "rq", "prq")
MAX_GROUP = 16  # codebooks of a residual quantiser: tables of their products take 32 MB
FEW = 8  # queries whose tables are made one by one, which is then faster
MIN_COMPONENTS = 64  # components, at least, of codes whose size is chosen
SUBQUANTIZERS = declare_option(
    "subquantizers", "Bytes of a code, D: each is one of 256 centroids of E / D coordinates."
)


@dataclass(frozen=True, kw_only=True)
class PqParams(EncoderSpec, CoordinateCodes):
    """The parameters of product quantisers: D sub-quantizers of 256 centroids.

    The metric ``distance`` ranks by −‖x̃ − q(ỹ)‖² and ``product`` by ⟨x̃, q(ỹ)⟩; the codes are the
    same.
    """

    n_subquantizers: int = field(
        default=Default(32),
        metadata=SUBQUANTIZERS,
    )
    metric: str = field(default="distance", metadata=METRIC)
    n_training: int = field(default=1 << 15, metadata=TRAINING_ROWS)
    quantizer: str = field(
        default="pq",
        metadata={
            ABSENT: "pq",
            **declare_option(
                "quantizer",
                "What the bytes of a code are: pq, shares of the coordinates; rq, centroids whose "
                "sum is near the row, up to 16; prq, the same in shares. Only pq proves.",
                choices=QUANTIZERS,
            ),
        },
    )
    proof: str = field(
        default=DefaultWord("bounds"),
        metadata={
            ABSENT: "none",
            **declare_option(
                "proof",
                "Whether codes carry the numbers that an exact search needs.",
                choices=PROOFS,
            ),
        },
    )

    size = Size("n_subquantizers", "look-ups", MAX_SUBQUANTIZERS)
    scanned_names = ("code",)

    def __post_init__(self) -> None:
        """Adapt defaults to the quantizer: sums of centroids prove nothing, and rq takes few."""
        if self.residual and isinstance(self.proof, DefaultWord):
            object.__setattr__(self, "proof", "none")
        if self.quantizer == "rq":
            fewer = shrunk(self.n_subquantizers, MAX_GROUP)
            object.__setattr__(self, "n_subquantizers", fewer)

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS if self.proves else MAX_BLOCK_ROWS

    @property
    def residual(self) -> bool:
        """Whether a code is a sum of centroids, not centroids side by side."""
        return self.quantizer != "pq"

    @property
    def groups(self) -> int:
        """The shares of the coordinates that are quantised by themselves."""
        count = self.n_subquantizers
        if self.quantizer == "prq":
            return count // max(g for g in range(1, MAX_GROUP + 1) if count % g == 0)
        return 1 if self.quantizer == "rq" else count

    @property
    def proves(self) -> bool:
        """Whether codes carry what an exact search needs."""
        return self.proof == "bounds"

    @classmethod
    def of_size(cls, value: int, given: Mapping[str, Any]) -> Self:
        """Return the spec of a size: codes alone, unless proofs are asked for."""
        return cls(**{"proof": "none", **given, "n_subquantizers": value})

    def divide(self, width: int) -> int:
        """Return the sub-quantizers of ``width`` coordinates: a default is made to divide them."""
        count = self.n_subquantizers
        if isinstance(count, Default) and width % self.groups:
            return Default(greatest_divisor(width))
        return count

    def check_quantizer(self, width: int, *, fix: str) -> None:
        """Refuse a number of sub-quantizers that does not divide ``width``, and unknown metrics.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        check_choice("quantizer", self.quantizer, QUANTIZERS)
        most, works = MAX_SUBQUANTIZERS, setting(subquantizers=greatest_divisor(width))
        if self.quantizer == "rq":
            most, works = MAX_GROUP, setting(quantizer="prq")
        elif self.quantizer == "pq":
            most = min(width, most)
        check_range("subquantizers", self.n_subquantizers, (1, most), works)
        if width % self.groups:
            raise InputError(
                f"subquantizers share coordinates out evenly: found {self.n_subquantizers} for "
                f"{width} coordinates. Fix: {fix}."
            )
        check_range(
            "training rows", self.n_training, (1, 1 << 24), f"leave {option('training_rows')} out."
        )
        check_choice("metric", self.metric, METRICS)
        check_choice("proof", self.proof, PROOFS)
        if self.proves and self.residual:
            raise InputError(
                f"codes of {self.quantizer} bound no score: found {setting(proof='bounds')}, "
                f"expected {setting(proof='none')}. Fix: leave {option('proof')} out, or "
                f"{setting(quantizer='pq')}"
            )
        if self.proves:
            check_range("coordinates", width, (1, MAX_ROW_BYTES), setting(proof="none"))
        check_random_state(self.random_state)

    def code_columns(self) -> list[CodeColumn]:
        """Return the code, one byte per sub-quantizer, and what the proof adds to it."""
        code: list[CodeColumn] = [("code", "uint8", self.n_subquantizers)]
        return code + self.proof_columns() if self.proves else code

    @abstractmethod
    def proof_columns(self) -> list[CodeColumn]:
        """Return the columns that proofs need."""

    def learn(self, vectors: "Vectors", embed: Embed, rng: np.random.Generator) -> Float32:
        """Return codebooks learned from a sample of the vectors."""
        drawn = draw_rows(rng, vectors.rows, min(self.n_training, vectors.rows))
        return self.learn_books(embed(read_rows(vectors, drawn)))

    def learn_books(self, points: Float32) -> Float32:
        """Return codebooks learned from points [n, E], as a model keeps them (see ``Pq``)."""
        if not self.residual:
            return learn_codebooks(points, self.n_subquantizers, self.random_state)
        sizes = self.n_subquantizers, self.groups, self.random_state
        return learn_residual_books(points, *sizes, by_distance=self.metric == "distance")

    def books(self, model: Model) -> Float32:
        """Return the codebooks, float32[D, 256, E / D]."""
        return np.asarray(model["codebooks"]).reshape(self.n_subquantizers, CENTROIDS, -1)

    def decode(self, model: Model, columns: Mapping[str, NDArray[Any]]) -> Float32:
        """Return the points of codes: the centroids of each group side by side, or their sum."""
        books, code = self.books(model), columns["code"]
        width, size = books.shape[2] - self.residual, len(books) // self.groups
        points = np.zeros((len(code), self.groups, width), np.float32)
        for number, book in enumerate(books):
            points[:, number // size] += book[code[:, number], :width]
        return np.reshape(points, (len(code), -1))

    def learning_bytes(self, rows: int, dims: int, width: int) -> int:
        """Return the bytes that learning takes: the sample, its embedding, and k-means' copies."""
        sample = min(rows, self.n_training)
        learning = sample * (32 * dims + 24 * width)
        if self.residual:
            learning += learning_bytes(sample, self.n_subquantizers, self.groups, width)
        return learning

    def books_bytes(self, width: int) -> int:
        """Return the bytes of the codebooks while rows are encoded."""
        if self.residual:
            return encoding_bytes(self.n_subquantizers, self.groups, width)
        return 8 * CENTROIDS * width

    def size_fits(self, dims: int) -> bool:
        """Return whether the quantizer allows this number of sub-quantizers."""
        return self.quantizer != "rq" or self.n_subquantizers <= MAX_GROUP

    def proof_bytes(self, rows: int, dims: int, width: int) -> int:
        """Return the bytes that learning a proof takes: a sample, its points, and its bounds."""
        if not self.proves:
            return 0
        return min(rows, SAMPLE_ROWS) * (24 * dims + 64 * width + 48 * QUERIES)

    def table_bytes(self) -> int:
        """Return the bytes of a query's tables: in float32, in float32 panels, and in bytes."""
        return self.n_subquantizers * CENTROIDS * 12

    def learn_proof(
        self,
        vectors: "Vectors",
        kernel: Kernel,
        codebooks: Float32,
        proof: ErrorBounds,
        similarity: SimilarityOf,
    ) -> dict[str, NDArray[Any]]:
        """Return the model arrays of proofs, learned from a sample of the vectors."""
        rng = np.random.default_rng(self.random_state)
        count = min(SAMPLE_ROWS, vectors.rows)
        rows = rng.permutation(read_rows(vectors, draw_rows(rng, vectors.rows, count)))
        ranking = kernel.ranking
        scores = sample_scores(ranking, ranking.prepare(rows))
        of_space = kernel if isinstance(proof.space, KernelEmbedding) else None
        return learn_proof(proof, codebooks, Sample(rows, scores), similarity, of_space)


@dataclass(frozen=True, kw_only=True)
class ComponentQuantizer(PqParams):
    """The parameters of product quantisers of E components, which have an order."""

    n_components: int = field(default=Default(128), metadata=COMPONENTS)
    n_subquantizers: int = field(default=Default(64), metadata=SUBQUANTIZERS)
    preprocessing: str = field(
        default="balanced",
        metadata=declare_option(
            "preprocessing",
            "Map of the coordinates before they are quantised.",
            choices=PREPROCESSING,
        ),
    )

    per_subquantizer: ClassVar[int] = 1
    """Components per sub-quantizer of codes whose size is chosen: measured, so as to find most."""

    def divided(self) -> Self:
        """Return the spec with defaults that make components a multiple of sub-quantizers."""
        components = self.n_components
        whole = components - components % max(1, self.n_subquantizers)
        if isinstance(components, Default) and whole:
            return replace(self, n_components=Default(whole))
        return replace(self, n_subquantizers=self.divide(components))

    def check_component_quantizer(self) -> None:
        """Refuse sub-quantizers that do not divide the components, and unknown words."""
        whole = self.n_components - self.n_components % max(1, self.n_subquantizers)
        self.check_quantizer(self.n_components, fix=setting(components=whole))
        check_choice("preprocessing", self.preprocessing, PREPROCESSING)

    def size_fits(self, dims: int) -> bool:
        """Return whether sub-quantizers divide the components."""
        return super().size_fits(dims) and self.n_components % self.groups == 0

    @classmethod
    def of_size(cls, value: int, given: Mapping[str, Any]) -> Self:
        """Return the spec of a size, its components a multiple of it unless they are given."""
        spec = super().of_size(value, given)
        if "n_components" in given:
            return spec
        least = max(MIN_COMPONENTS, cls.per_subquantizer * value)
        return replace(spec, n_components=Default(-(-least // value) * value))

    def preprocess(self, components: Float64, rng: np.random.Generator) -> Float64:
        """Return the components [M, E] as they are, permuted, or rotated.

        Balanced, each sub-quantizer has the s-th greatest, and the s-th least, of each E / D. With
        residual quantisers, each group has.
        """
        e = self.n_components
        if self.preprocessing == "balanced":
            order = np.arange(e).reshape(-1, self.groups)
            order[1::2] = order[1::2, ::-1]
            return components[:, order.T.ravel()]
        if self.preprocessing == "permutation":
            return components[:, rng.permutation(e)]
        if self.preprocessing == "rotation":
            # zero components come last, and stay: a proof needs an orthonormal basis
            used = int(components.any(axis=0).sum())
            rotated = components[:, :used] @ random_rotation(rng, used)
            return np.hstack([rotated, components[:, used:]])
        return components


@dataclass(frozen=True, kw_only=True)
class RowQuantizer(PqParams):
    """The parameters of product quantisers in the space of prepared rows."""

    needs = "a kernel that ranks as distances or products of prepared rows do"

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether a metric of prepared rows ranks as the kernel does."""
        return bool(kernel.raw_metrics)

    def check_metric(self, kernel: Kernel) -> None:
        """Refuse kernels that no metric of the rows ranks like, and another metric than theirs."""
        if not kernel.raw_metrics:
            served = ", ".join(kind.name for kind in KINDS.values() if kind.raw_metrics)
            raise InputError(
                f"encoder {self.name} ranks rows by their Euclidean distance: found kernel "
                f"{kernel.name}, expected one of "
                f"{served}. Fix: {setting(encoder='kpca-pq')}"
            )
        if self.metric in METRICS and self.metric not in kernel.raw_metrics:
            ranked = kernel.raw_metrics[0]
            raise InputError(
                f"kernel {kernel.name} is a function of the {ranked}: found metric {self.metric}. "
                f"Fix: {setting(metric=ranked)}"
            )


@dataclass(frozen=True, kw_only=True)
class PqSpec(RowQuantizer):
    """Product quantisation of prepared rows, as in faiss' ``IndexPQ``.

    Scores are estimates of K for cosine and hellinger. For rbf they are 1 − ‖x − q(y)‖² / 2 and
    only rank. For kernels of raw rows they are −‖x − q(y)‖² or ⟨x, q(y)⟩ themselves.
    """

    name: str = "pq"
    version: int = 1

    description = "A code holds D bytes: the row itself, product-quantised as by faiss."
    source = "Jégou, Douze & Schmid 2011"

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        return replace(self, n_subquantizers=self.divide(dims))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range, and kernels that no metric of the rows ranks like."""
        self.check_metric(kernel)
        self.check_quantizer(
            vectors.dims, fix=setting(subquantizers=greatest_divisor(vectors.dims))
        )

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the codebooks, and what proofs need."""
        model: dict[str, NDArray[Any]] = {
            "codebooks": self.learn(
                vectors, prepared_rows(kernel), np.random.default_rng(self.random_state)
            )
        }
        if self.proves:
            books = self.books(model)
            model |= grid_of(books)
            model |= self.learn_proof(vectors, kernel, books, *self._proof(kernel, model))
        return model

    def encoder(self, kernel: Kernel, model: Model) -> "Pq":
        """Return the encoder of a model."""
        encoder = Pq(prepared_rows(kernel), model["codebooks"], self, raw=not kernel.normalised)
        return encoder.proving(*self._proof(kernel, model)) if self.proves else encoder

    def proof_columns(self) -> list[CodeColumn]:
        """Return the cell and e, and for products the norm."""
        return proof_columns("float32", "norm" if self.metric == "product" else "none")

    def _proof(self, kernel: Kernel, model: Model) -> tuple[ErrorBounds, SimilarityOf]:
        """Return the proof of prepared rows, and what a distance says about a score."""
        form = "norm" if self.metric == "product" else "none"
        proof = ErrorBounds(space=RowEmbedding(kernel, form), kind="float32", model=model)
        return proof, lambda points: of_rows(kernel, points.apart if form == "norm" else None)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 24 * dims + (40 * dims if self.proves else 0)
        return Memory(
            fit=self.learning_bytes(rows, dims, dims) + self.proof_bytes(rows, dims, dims),
            shared=self.books_bytes(dims),
            row=row,
            query=row + self.table_bytes(),
        )

    def size_fits(self, dims: int) -> bool:
        """Return whether the sub-quantizers divide the dimensions evenly."""
        return super().size_fits(dims) and dims % self.groups == 0


class Pq(BoundEncoder):
    """Encode rows as their coordinates' nearest centroids; only codes with a proof have bounds.

    Parameters
    ----------
    embed : the function from raw rows to coordinates, float32[b, E]
    codebooks : float32[D · 256, E / D]: the centroids of one sub-quantizer after another; of
        residual quantisers float32[D · 256, w + 1], with ‖q(ỹ)‖² behind the last centroids
    raw : whether a score by distance is −‖x̃ − q(ỹ)‖², not K of unit vectors
    """

    def __init__(
        self, embed: Embed, codebooks: Float32, spec: PqParams, *, raw: bool = False
    ) -> None:
        self.embed = embed
        self.block_rows = spec.block_rows
        self.metric = spec.metric
        self.raw = raw
        self.codebooks = codebooks.reshape(spec.n_subquantizers, CENTROIDS, -1)
        self.groups, self.residual = spec.groups, spec.residual
        self._norms = np.square(self.codebooks, dtype=np.float64).sum(axis=2)
        if spec.residual:
            self._norms = self.codebooks[:, :, -1].astype(np.float64)
            self.codebooks = np.ascontiguousarray(self.codebooks[:, :, :-1])
        self.proof: ErrorBounds | None = None

    def proving(self, proof: ErrorBounds, similarity: SimilarityOf) -> Self:
        """Return this encoder, whose codes then carry the numbers of a proof."""
        self.proof, self._similarity = proof, similarity
        return self

    def prepare_encoding(self) -> None:
        """Lay the codebooks out for encoding."""
        from mercore.pipeline.encoders.pq_numba import assign, lay_out_codebooks

        if self.residual:
            norms = self._norms[-1].astype(np.float32) if self.metric == "distance" else None
            self._assign = ResidualBooks(self.codebooks, norms, self.groups).assign
        else:
            laid_out = lay_out_codebooks(self.codebooks)
            self._assign = lambda points, code: assign(points, laid_out, code)

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of rows: the first centroid with the greatest ⟨y, c⟩ − ‖c‖²/2.

        Codes of residual quantisers are those that a beam search finds.
        """
        code = np.empty((len(rows), len(self.codebooks)), np.uint8)
        if self.proof is None:
            self._assign(self.embed(rows, first=first), code)
            return {"code": code}
        points = self.proof.space(rows, first=first)
        with np.errstate(over="ignore"):  # such rows have no bound
            coordinates = points.coordinates.astype(np.float32)
        self._assign(coordinates, code)
        return {"code": code, **self.proof.columns(points, code)}

    def scanner(self, queries: NDArray[Any]) -> "PqScanner":
        """Return the scanner of queries by table look-ups, one per sub-quantizer."""
        from mercore.pipeline.scanners.pq import PqScanner

        return PqScanner(self.tables(queries))

    def scanners(self, points: Float32) -> "Iterator[PqScanner]":
        """Yield a scanner for each query, given as its point."""
        from mercore.pipeline.scanners.pq import PqScanner

        for point in self._points(points):
            yield PqScanner(self._table(point))

    def bound_scanner(self, queries: NDArray[Any], beta: float = 1.0) -> "PqBoundScanner":
        """Return the scanner of queries that bounds their scores."""
        assert self.proof is not None
        points = self.proof.space(queries, label="query")
        return self.proof.scanner(points, self._similarity(points), beta=beta)

    def tables(self, queries: NDArray[Any]) -> Float32:
        """Return the term of each centroid in a query's score, float32[D, 256, nq].

        The sum is ⟨x̃, q(ỹ)⟩, or 1 − ‖x̃ − q(ỹ)‖²/2, which is K(x, y) of unit vectors in feature
        space (Eq. 6). Of raw rows it is −‖x̃ − q(ỹ)‖².
        """
        points = self._points(self.embed(queries, label="query"))
        if len(points) < FEW:
            return np.concatenate([self._table(point) for point in points], axis=2)
        books, size = self.codebooks.astype(np.float64), len(self.codebooks) // self.groups
        inner = Cosine().exact  # one order of addition, so that the batch does not matter
        columns = [np.ascontiguousarray(points[:, group].T) for group in range(self.groups)]
        sums = np.stack([inner(book, columns[j // size]) for j, book in enumerate(books)])
        return self._of_sums(sums, points)

    def _points(self, coordinates: Float32) -> Float64:
        """Return the coordinates of queries by group, float64[nq, groups, E / groups]."""
        return coordinates.astype(np.float64).reshape(len(coordinates), self.groups, -1)

    def _table(self, point: Float64) -> Float32:
        """Return the table of one query, float32[D, 256, 1]: that of ``tables`` to the bit."""
        from mercore.pipeline.encoders.pq_numba import one_table

        size, distance = len(self.codebooks) // self.groups, self.metric == "distance"
        columns = np.repeat(point.T, size, axis=1)
        squares = np.repeat(np.square(point).sum(axis=1) / size, size) / 2
        out = np.empty(self.codebooks.shape[:2], np.float32)
        one_table(self._by_coordinate, columns, self._norms, squares, (distance, self.raw), out)
        return out[:, :, None]

    @cached_property
    def _by_coordinate(self) -> Float64:
        """The codebooks by coordinate, float64[s, D, 256]."""
        return np.ascontiguousarray(np.moveaxis(self.codebooks, 2, 0), np.float64)

    def _of_sums(self, sums: Float64, points: Float64) -> Float32:
        """Return tables of inner products [D, 256, nq], which are overwritten."""
        if self.metric == "distance":
            size = len(self.codebooks) // self.groups
            squares = np.square(points).sum(axis=2).T / size
            sums -= self._norms[:, :, None] / 2
            sums -= np.repeat(squares, size, axis=0)[:, None] / 2
            if self.raw:
                sums *= 2
            else:
                sums[0] += 1
        return sums.astype(np.float32)


def prepared_rows(kernel: Kernel) -> Embed:
    """Return the function from raw rows to prepared rows in float32."""

    def embed(rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
        return kernel.prepare(rows, first=first, label=label).astype(np.float32)

    return embed


def greatest_divisor(width: int) -> int:
    """Return the greatest number of sub-quantizers, at most 16, that divides ``width``."""
    return max(count for count in range(1, 17) if width % count == 0)
