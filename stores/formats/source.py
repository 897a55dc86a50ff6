"""Sources: rows to read in blocks, and a fingerprint, whatever the format of the file."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError, ShapeError
from mercore.stores.formats.dtypes import returned_dtype
from mercore.stores.spec import canonical_json
from mercore.stores.wording import setting

MAX_D = 1_000_000
FINGERPRINT_ROWS = 64
STEADY_ROWS, STEADY_BYTES = 64, 1 << 20  # the rows of one checksum, and about their bytes at most


class Source(Protocol):
    """Rows that are read in blocks, by any number of threads."""

    @property
    def name(self) -> str:
        """The path as the user wrote it."""

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, d)``."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the rows from ``read``: uint8, int8, float16 or float32, in native order."""

    @property
    def source_dtype(self) -> np.dtype[Any]:
        """Dtype of the numbers as they are stored, before ``read`` converts them."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)``, C-contiguous.

        Raises
        ------
        ShapeError
            If ``0 ≤ start ≤ stop ≤ n`` does not hold.
        FormatError
            If the rows cannot be decoded, or the file has changed since it was opened.
        InputError
            If a value has no float32 (see ``mercore.stores.formats.dtypes``).
        StorageError
            If the operating system refuses.
        """

    def fingerprint(self) -> str:
        """Return a digest of format, shape, stored dtype, size and 64 evenly spaced rows."""


class StoredSource(ABC):
    """A ``Source`` of numbers that a file or an array stores, and that ``read`` converts.

    ``kind`` names the format in the fingerprint.

    Raises
    ------
    FormatError
        If there are not 1 to ``MAX_D`` dimensions, or mercore does not read the dtype ``stored``.
    """

    kind: str

    def __init__(self, name: str, shape: tuple[int, int], stored: np.dtype[Any]) -> None:
        check_shape(name, *shape)
        self.name, self.shape, self.source_dtype = name, shape, stored
        self.dtype = returned_dtype(stored, name)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` as ``dtype``; see ``Source.read``."""
        check_row_range(self, start, stop)
        return self._read(start, stop)

    @abstractmethod
    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows that are there."""

    @property
    def source_bytes(self) -> int:
        """Bytes in the fingerprint: of the uncompressed rows, unless a format says otherwise."""
        return self.shape[0] * self.shape[1] * self.source_dtype.itemsize

    def fingerprint(self) -> str:
        """Return the digest that ``Source.fingerprint`` describes."""
        n, d = self.shape
        head = f"{self.kind} {n} {d} {self.source_dtype.str} {self.source_bytes}\n"
        digest = blake2b(head.encode(), digest_size=16)
        little = self.dtype.newbyteorder("<")
        for row in spaced_rows(n):
            digest.update(self.read(row, row + 1).astype(little, copy=False).tobytes())
        return digest.hexdigest()


class RowRange:
    """The rows [first, last) of a source as a ``Source``: row ``first`` becomes row 0."""

    def __init__(self, source: Source, first: int, last: int) -> None:
        self.name, self.dtype, self.source_dtype = source.name, source.dtype, source.source_dtype
        self.shape = (last - first, source.shape[1])
        self._source, self._first = source, first

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), dtype[stop − start, d]."""
        check_row_range(self, start, stop)
        return self._source.read(self._first + start, self._first + stop)

    def fingerprint(self) -> str:
        """Return a digest of the source's fingerprint and of the range."""
        words = [self._source.fingerprint(), self._first, self._first + self.shape[0]]
        return blake2b(canonical_json(words).encode(), digest_size=16).hexdigest()


class SteadySource:
    """A source that refuses rows that differ from what an earlier read of them returned.

    It reads blocks of ``block_rows`` rows. ``digests`` holds the BLAKE3 of each block that was
    read, by its number.
    """

    def __init__(
        self, source: Source, block_rows: int | None = None, digests: dict[int, str] | None = None
    ) -> None:
        self.name, self.shape = source.name, source.shape
        self.dtype, self.source_dtype = source.dtype, source.source_dtype
        row_bytes = self.shape[1] * self.dtype.itemsize
        self.block_rows = block_rows or max(1, min(STEADY_ROWS, STEADY_BYTES // row_bytes))
        self.digests = {} if digests is None else digests
        self._source = source

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), dtype[stop − start, d].

        Raises
        ------
        FormatError
            If a block of them has changed since it was first read.
        """
        check_row_range(self, start, stop)
        size = self.block_rows
        first = start // size * size
        rows = self._source.read(first, min(-(-stop // size) * size, self.shape[0]))
        for at in range(0, len(rows), size):
            self._check(first + at, rows[at : at + size])
        return rows[start - first : stop - first]

    def fingerprint(self) -> str:
        """Return the fingerprint of the source."""
        return self._source.fingerprint()

    def _check(self, first: int, block: NDArray[Any]) -> None:
        """Keep the digest of a block, or refuse one that differs from the kept one."""
        found = blake3(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data).hexdigest()
        expected = self.digests.setdefault(first // self.block_rows, found)
        if found != expected:
            raise FormatError(
                f"{self.name}: rows [{first}, {first + len(block)}) have changed since they were "
                f"first read: found blake3 {found:.16}, expected {expected:.16}. Fix: change no "
                "file while it is read, and run the same command again."
            )


def parse_rows(text: str) -> tuple[int, int | None]:
    """Return the range of a text such as ``1000:2000``, ``1000:`` or ``:2000``; None is the end.

    Raises
    ------
    InputError
        If it is no range of at least one row.
    """
    first, colon, last = text.partition(":")
    words = [word.strip() for word in (first, last)]
    if colon and all(not word or (word.isascii() and word.isdecimal()) for word in words):
        start, stop = int(words[0] or 0), int(words[1]) if words[1] else None
        if stop is None or start < stop:
            return start, stop
    raise InputError(
        f"rows are {text!r}: expected first:last, the rows from first on and before last. "
        f"Fix: {setting(rows='0:1000')}"
    )


def check_shape(name: str, n: int, d: int) -> None:
    """Refuse an impossible shape.

    Raises
    ------
    FormatError
        If ``n`` is negative, or ``d`` is not in ``[1, MAX_D]``.
    """
    if n < 0 or not 1 <= d <= MAX_D:
        raise FormatError(
            f"{name}: the header says n = {n} rows of d = {d}, expected n ≥ 0 and 1 ≤ d ≤ {MAX_D}. "
            "Fix: check that the suffix names the file's true format, or fetch the file again."
        )


def check_row_range(source: Source, start: int, stop: int) -> None:
    """Refuse a range of rows outside of ``source``.

    Raises
    ------
    ShapeError
        If ``0 ≤ start ≤ stop ≤ n`` does not hold.
    """
    n = source.shape[0]
    if not 0 <= start <= stop <= n:
        raise ShapeError(
            f"{source.name}: rows [{start}, {stop}) asked for, it has [0, {n}). Fix: ask "
            "for rows it has."
        )


def content_digest(rows: Source, *, block_rows: int = 4096) -> str:
    """Return the blake2b-16 hex digest of the dtype, the shape and every number of rows."""
    n, d = rows.shape
    digest = blake2b(canonical_json([rows.dtype.str, n, d]).encode(), digest_size=16)
    for start in range(0, n, block_rows):
        digest.update(rows.read(start, min(start + block_rows, n)).tobytes())
    return digest.hexdigest()


def spaced_rows(n: int) -> Sequence[int]:
    """Return the rows that a fingerprint covers: 64 evenly spaced ones, or all of fewer."""
    if n <= FINGERPRINT_ROWS:
        return range(n)
    return [i * (n - 1) // (FINGERPRINT_ROWS - 1) for i in range(FINGERPRINT_ROWS)]
