"""The Encoder contract: a spec that checks itself and fits a model, and the encoder that the two of them make."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners.scanner import Scanner
from mercore.stores.errors import InputError
from mercore.stores.vectors import Vectors

BLOCK_SCORES = 1 << 20  # kernel values of a block of rows: what is made of them finds them in the cache
MAX_BLOCK_ROWS = 1024
METRICS = ("distance", "product")  # what codes of coordinates rank by
Model = Mapping[str, NDArray[Any]]


class Encoder(Protocol):
    """What turns rows into columns of codes, and queries into a scanner of such codes."""

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        ...

    def prepare_encoding(self) -> None:
        """Compute what only encoding needs."""
        ...

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, one array a column.

        Parameters
        ----------
        rows : dtype[b, d]
        first : int
            Number of the first row, for messages. A row's code is the same to the bit whatever block it comes in.
        """
        ...

    def scanner(self, queries: NDArray[Any]) -> Scanner:
        """Return raw queries, dtype[nq, d], ready to be scored against codes."""
        ...


class EncoderSpec(Protocol):
    """The parameters of an encoder: a frozen dataclass with a ``name`` and a ``version``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """The encoder's name."""
        ...

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        ...

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse parameters that these vectors, this kernel or the code's format cannot take.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        ...

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code."""
        ...

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the model, arrays by name: drawn and learned with the spec's seed."""
        ...

    def encoder(self, kernel: Kernel, model: Model) -> Encoder:
        """Return the encoder of a model."""
        ...

    def fit_bytes(self, rows: int, dims: int) -> int:
        """Return the memory that fitting to so many rows takes."""
        ...

    def shared_bytes(self, dims: int) -> int:
        """Return the memory that all threads share while encoding."""
        ...

    def row_bytes(self, dims: int) -> int:
        """Return the memory that a row of a block takes while it is encoded."""
        ...

    def query_bytes(self, dims: int) -> int:
        """Return the memory that a query takes while codes are scanned."""
        ...


def rows_of_block(exemplars: int) -> int:
    """Return how many rows are best scored at once against so many exemplars."""
    return max(64, min(MAX_BLOCK_ROWS, BLOCK_SCORES // exemplars))


def check_range(name: str, value: int, bounds: tuple[int, int], fix: str, *, why: str = "") -> None:
    """Refuse a parameter outside its bounds, both of which it may take; ``why`` says what bounds it.

    Raises
    ------
    InputError
        With the option that mends it.
    """
    least, most = bounds
    if not least <= value <= most:
        raise InputError(f"{name} is out of range: found {value}, expected {least} to {most}{why}. Fix: {fix}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is none of the choices.

    Raises
    ------
    InputError
        With the default as the mend.
    """
    if value not in choices:
        expected = ", ".join(choices)
        raise InputError(f"unknown {name}: found {value!r}, expected one of {expected}. Fix: leave --{name} out.")


def check_random_state(random_state: int) -> None:
    """Refuse a negative seed.

    Raises
    ------
    InputError
        If it is negative.
    """
    if random_state < 0:
        raise InputError(f"random_state must not be negative: found {random_state}. Fix: --random-state 0")


def draw_rows(rng: np.random.Generator, rows: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` of ``rows`` rows, int64, ascending: drawn without replacement, uniformly."""
    return np.sort(rng.choice(rows, count, replace=False, shuffle=False)).astype(np.int64)
