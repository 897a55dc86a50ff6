"""The Encoder contract: a spec that checks itself and fits a model, and the encoder made of both.

The spec of an encoder says all that other modules need: its options, memory and size. No spec
imports numba or zarr before it computes, so that ``mercore encode --help`` can read the options.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.kernels import CustomKernel, Kernel
from mercore.stores.errors import InputError
from mercore.stores.wording import option, setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.scanner import Bounds, Scanner
    from mercore.stores.vectors import Vectors

BLOCK_SCORES = 1 << 20  # kernel values of a block of rows: few enough to stay in the cache
MAX_BLOCK_ROWS = 1024
# A sample of a large store is drawn from runs of neighbouring rows: from at least 1024 runs, which
# hold at least 8 times the rows of the sample.
DRAWN_RUNS, RUN_ROWS, RUNS_SHARE = 1 << 10, 1 << 11, 8
METRICS = ("distance", "product")  # rankings by codes of coordinates
OPTION = "option"  # key of a field's metadata
Model = Mapping[str, NDArray[Any]]
CodeColumn = tuple[str, str, int | None]


class Default(int):
    """The default of a spec's field: it shrinks to what the data allow.

    A number that a user gives is a plain ``int``. It never shrinks: ``check`` refuses it.
    """

    def at_most(self, most: int) -> "Default":
        """Return the greatest default that is allowed, at least 1."""
        return Default(max(1, min(self, most)))


class DefaultWord(str):
    """The default of a spec's field that other fields may change; a word that is given is not."""

    __slots__ = ()


class DefaultNumber(float):
    """The default of a spec's field that counts with some other fields alone.

    A number that is given where it does not count is refused.
    """

    __slots__ = ()


def shrunk(value: int, most: int) -> int:
    """Return a default of at most ``most``; return a number that was given unchanged."""
    return value.at_most(most) if isinstance(value, Default) else value


class Option(NamedTuple):
    """The command-line option of a spec's field: its name with underscores, and its help text.

    ``choices`` are the words it takes, the first being the usual one; without them it takes what
    the field's type says. ``shown_default`` stands in the help text in place of the field's
    default.
    """

    name: str
    help: str
    choices: tuple[str, ...] = ()
    shown_default: str | None = None


class Memory(NamedTuple):
    """The memory that an encoder takes, in bytes.

    ``fit``: fitting the model; ``shared``: all threads together while they encode; ``row``: one row
    of a block that is encoded; ``query``: one query while codes are scanned.
    """

    fit: int
    shared: int
    row: int
    query: int


class Size(NamedTuple):
    """The field of a spec that sets the size of a code, and the operation of a scan.

    The field is at most ``most``. A scan does that many operations per row and query. One look-up
    counts as ``worth`` operations in the protocol of Davis, Balzer & Soatto (CVPR 2014, §3.2),
    which compares 8 atoms with 8 sub-quantizers, 300 bits and 32 Gaussian projections.
    """

    field: str
    operation: str
    most: int
    worth: Fraction = Fraction(1)


def declare_option(
    name: str, text: str, *, choices: tuple[str, ...] = (), shown_default: str | None = None
) -> dict[str, Any]:
    """Return the metadata that makes a spec's field a command-line option."""
    return {OPTION: Option(name, text, choices, shown_default)}


METRIC = declare_option(
    "metric",
    "Rank by −‖x̃ − ŷ‖² or ⟨x̃, ŷ⟩, where ŷ is the decoded row. With aska, distance ranks rows that "
    "are atoms low.",
    choices=METRICS,
)
TRAINING_ROWS = declare_option("training_rows", "Rows that the codes are learned from.")


class Encoder(ABC):
    """A fitted encoder: it turns rows into codes, and queries into a scanner of codes."""

    block_rows: int
    """The number of rows that are best encoded at once."""

    def prepare_encoding(self) -> None:  # noqa: B027 - most encoders have nothing to do
        """Compute what encoding needs and scanning does not."""

    @abstractmethod
    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, one array per column.

        The code of a row does not depend on its block, to the bit.

        Parameters
        ----------
        rows : dtype[b, d]
        first : int
            Number of the first row, for messages.
        """

    def unpacked(self, columns: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return the columns that scans read, made of those that are stored."""
        return columns

    @abstractmethod
    def scanner(self, queries: NDArray[Any]) -> "Scanner":
        """Return the scanner of raw queries, dtype[nq, d]."""


class CoordinateEncoder(Protocol):
    """An encoder that embeds rows as the points that its codes stand for."""

    embed: Callable[..., Float32]
    """The function from raw rows to their points, float32[b, E]."""

    def scanners(self, points: Float32) -> "Iterator[Scanner]":
        """Yield a scanner for each query, given as its point: as ``scanner`` of it alone."""
        ...


class CoordinateCodes(ABC):
    """The spec of codes that stand for points of a Euclidean space: near rows have near points.

    Its encoder is a ``CoordinateEncoder``.
    """

    scanned_names: ClassVar[tuple[str, ...]]
    """The columns that a scan reads, and that codes are decoded from."""

    @abstractmethod
    def decode(self, model: Model, columns: Mapping[str, NDArray[Any]]) -> Float32:
        """Return the points that codes stand for, float32[n, E]."""


class BoundEncoder(Encoder):
    """An encoder whose codes bound scores from above; some codes also have estimates of scores."""

    @abstractmethod
    def bound_scanner(self, queries: NDArray[Any], beta: float = 1.0) -> "Bounds":
        """Return the scanner of raw queries that lists rows by upper bounds of their scores.

        With β < 1 (Bourrier et al. 2015, Eq. 28) these are relaxed: no bounds. Only encoders of
        kernel PCA's coordinates have such scanners.
        """

    def scanner(self, queries: NDArray[Any]) -> "Scanner":
        """Return the scanner of queries: of upper bounds, unless codes have estimates."""
        return self.bound_scanner(queries)


@dataclass(frozen=True, kw_only=True)
class EncoderSpec(ABC):
    """The parameters of an encoder; a subclass gives ``name`` and ``version`` their values."""

    name: str = ""
    version: int = 1
    random_state: int = field(
        default=0, metadata=declare_option("random_state", "Seed of every random choice.")
    )

    description: ClassVar[str]
    """What a code is, in one sentence for users."""

    source: ClassVar[str]
    """The paper that defines the code."""

    needs: ClassVar[str] = "a Mercer kernel with K(x, x) = 1"
    """What it asks of a kernel."""

    size: ClassVar[Size]
    bounds: ClassVar[bool] = False
    """Whether codes are nothing but upper bounds of the kernel."""

    @property
    def proves(self) -> bool:
        """Whether codes bound the kernel from above, so that an exact search can use them."""
        return self.bounds

    @property
    @abstractmethod
    def block_rows(self) -> int:
        """The number of rows that are best encoded at once."""

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether codes can be made for a kernel."""
        return kernel.normalised

    def check_kernel(self, kernel: Kernel) -> None:
        """Refuse a kernel of raw rows that codes cannot serve; ``check`` refuses other kernels.

        Raises
        ------
        InputError
            With an encoder, or a kernel, that works.
        """
        if kernel.normalised or self.serves(kernel):
            return
        if isinstance(kernel, CustomKernel):
            raise kernel.lacks("codes or bounds")
        fix = setting(encoder="pq", metric="product")
        if self.bounds:
            fix = setting(encoder="pca-bound")
        elif kernel.ascending:
            rbf = setting(kernel="rbf", gamma="median")
            fix = f"{setting(encoder='pq')}, or {rbf}, which ranks rows alike"
        raise InputError(
            f"encoder {self.name} needs {self.needs}: found kernel {kernel.name}. Fix: {fix}"
        )

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit ``rows`` rows of ``dims`` numbers.

        Fields that were given stay as they are.
        """
        return self

    @abstractmethod
    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters that these vectors, this kernel or the code's format cannot take.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """

    @abstractmethod
    def code_columns(self) -> list[CodeColumn]:
        """Return name, dtype and width of every column of a code.

        A width of None means one number per row.
        """

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code as a store lists them."""
        from mercore.stores.part_store.header import column_fields

        return [
            column_fields(name, dtype, width, compressor)
            for name, dtype, width in self.code_columns()
        ]

    @abstractmethod
    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the model, arrays by name: drawn and learned with the spec's seed."""

    @abstractmethod
    def encoder(self, kernel: Kernel, model: Model) -> Encoder:
        """Return the encoder of a model."""

    @abstractmethod
    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take.

        ``rows``, those of the store, count for fitting.
        """

    def size_fits(self, dims: int) -> bool:
        """Return whether the other parameters allow the size, for rows of ``dims`` numbers."""
        return True

    @classmethod
    def of_size(cls, value: int, given: Mapping[str, Any]) -> Self:
        """Return the spec of a size with the fields that are ``given``.

        Others may be adapted to the size.
        """
        return cls(**{**given, cls.size.field: value})


def options_of(kind: type[EncoderSpec]) -> dict[str, Field[Any]]:
    """Return the field of an encoder's spec per option."""
    return {each.metadata[OPTION].name: each for each in fields(kind) if OPTION in each.metadata}


def rows_of_block(exemplars: int) -> int:
    """Return the number of rows that are best scored at once against a number of exemplars."""
    most = BLOCK_SCORES // max(1, exemplars)  # a damaged store may state none
    return max(64, min(MAX_BLOCK_ROWS, most))


def check_range(name: str, value: int, bounds: tuple[int, int], fix: str, *, why: str = "") -> None:
    """Refuse a parameter outside its bounds, which are allowed themselves.

    ``why`` explains the bounds.

    Raises
    ------
    InputError
        With an option that works.
    """
    least, most = bounds
    if not least <= value <= most:
        raise InputError(
            f"{name} is out of range: found {value}, expected {least} to {most}{why}. Fix: {fix}"
        )


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices.

    Raises
    ------
    InputError
        With the choices.
    """
    if value not in choices:
        expected = ", ".join(choices)
        raise InputError(
            f"unknown {name}: found {value!r}, expected one of {expected}. Fix: leave "
            f"{option(name)} out."
        )


def check_random_state(random_state: int) -> None:
    """Refuse a negative seed.

    Raises
    ------
    InputError
        If it is negative.
    """
    if random_state < 0:
        raise InputError(
            f"random_state must not be negative: found {random_state}. Fix: "
            f"{setting(random_state=0)}"
        )


def draw_rows(rng: np.random.Generator, rows: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` of ``rows`` rows, int64, ascending: drawn without replacement, uniformly.

    If there are very many rows, runs of neighbouring rows are drawn first, and the sample from
    those runs. So a larger store does not mean more parts to read.
    """
    runs = max(DRAWN_RUNS, RUNS_SHARE * count // RUN_ROWS)
    if rows <= runs * RUN_ROWS:
        return np.sort(rng.choice(rows, count, replace=False, shuffle=False)).astype(np.int64)
    chosen = np.sort(rng.choice(rows // RUN_ROWS, runs, replace=False, shuffle=False))
    drawn = draw_rows(rng, runs * RUN_ROWS, count)
    return np.asarray(chosen[drawn // RUN_ROWS] * RUN_ROWS + drawn % RUN_ROWS, np.int64)


def read_rows(vectors: "Vectors", rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the rows with these numbers, dtype[len(rows), d]."""
    from mercore.stores.vectors import gather

    return gather(vectors, rows)
