"""Exact scores of rows of bytes and queries of whole numbers, from integer products."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64, float32_below
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners import byte_rows_numba
from mercore.pipeline.scanners.bounds.layout import CACHED_SUMS, MAX_ROW_BYTES, PANEL, WORD
from mercore.pipeline.simd.aligned import aligned

BIAS = 128  # makes signed bytes unsigned, and unsigned ones signed
FEW = 6  # queries up to which one after the other is faster than a panel of 32 lanes
ERROR = 4 * 2.0**-24  # of a float32 product over a norm: three roundings
Ids = NDArray[np.int64]


class ByteQueries:
    """A batch of queries of whole numbers, uint8 or int8 [nq, d], for rows of that type.

    With the integers p = ⟨x, y⟩, ‖x‖² and ‖y‖², a score is 2 p − ‖x‖² − ‖y‖² (``distance``), p
    (``product``), or ± √(p² / (‖x‖² ‖y‖²)) (``cosine``). The first two are exact. The third is
    rounded twice while p² and ‖x‖² ‖y‖² are below 2⁵³, and equal fractions have equal scores then;
    beyond, it is rounded four times.
    """

    def __init__(
        self,
        form: Literal["distance", "product", "cosine"],
        queries: NDArray[np.uint8 | np.int8],
    ) -> None:
        self.form = form
        self.nq, d = queries.shape
        self._halves = np.ascontiguousarray(queries, np.int16)
        self.squares = np.square(queries, dtype=np.int64).sum(axis=1)
        lanes = -(-self.nq // PANEL) * PANEL
        signed = queries.dtype == np.int8
        codes = np.zeros((lanes, -(-d // WORD) * WORD), np.int8)
        codes[: self.nq, :d] = self._halves - (0 if signed else BIAS)
        self._words = aligned(codes.size // WORD, np.int32)
        panels = codes.view(np.int32).reshape(lanes // PANEL, PANEL, -1).swapaxes(1, 2)
        self._words[:] = panels.reshape(-1)
        self._start = aligned(lanes, np.int32)
        self._start[: self.nq] = -BIAS * self._halves.sum(axis=1, dtype=np.int32) if signed else 0

    def reaching(
        self, rows: NDArray[Any], least: Float64, room: int
    ) -> tuple[Ids, Ids, Float64] | None:
        """Return rows, queries and true scores of a block's pairs that reach ``least`` [nq].

        A few others may be among them. Return None if a list of ``room`` pairs is too short. The
        score of a row of zeros is NaN where the kernel has none.

        Parameters
        ----------
        rows : uint8 or int8 [n, d], as the queries
        """
        find = self._of_few if self.nq <= FEW else self._of_panels
        found = find(rows, self._limits(least), room)
        if found is None:
            return None
        row, query, products, squares = found
        return row, query, self._scores(products, squares, query)

    def scores(self, rows: NDArray[Any], pairs: tuple[Ids, Ids]) -> Float64:
        """Return the scores of pairs (row, query) int64[p], float64[p]; NaN of a row of zeros.

        Like those of a ``Prefilter``, with no error.
        """
        products, squares = np.empty(len(pairs[0]), np.int64), np.empty(len(pairs[0]), np.int64)
        block = np.ascontiguousarray(rows)
        byte_rows_numba.multiply_pairs(block, pairs[0], self._halves, pairs[1], products, squares)
        return self._scores(products, squares, pairs[1])

    def error_at(self, scores: NDArray[np.floating]) -> Float64:
        """Return zeros."""
        return np.zeros(np.shape(scores))

    def _limits(self, least: Float64) -> Float64:
        """Return the limits of p less half of ‖x‖² rounded down, of p, or of p / ‖x‖."""
        if self.form == "distance":
            return np.asarray(np.ceil((least + self.squares) / 2))
        if self.form == "product":
            return np.asarray(np.ceil(least))
        limits = least * np.sqrt(self.squares)
        return np.where(np.isinf(least), least, limits - ERROR * np.abs(limits))

    def _of_few(self, rows: NDArray[Any], limits: Float64, room: int) -> tuple[Ids, ...] | None:
        """Return rows, queries, p and ‖x‖² of the pairs that reach their limits, query by query."""
        block, lists = np.ascontiguousarray(rows), []
        for query, (y, limit) in enumerate(zip(self._halves, limits, strict=True)):
            found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
            count = byte_rows_numba.list_one(
                self.form == "distance", self.form == "cosine", block, y, limit, found
            )
            if count > room:
                return None
            row, products, squares = (each[:count] for each in found)
            lists.append((row, np.full(count, query), products, squares))
        return tuple(np.concatenate(each) for each in zip(*lists, strict=True))

    def _of_panels(self, rows: NDArray[Any], limits: Float64, room: int) -> tuple[Ids, ...] | None:
        """Return rows, queries, p and ‖x‖² of the pairs that reach their limits, by panels."""
        scaled, unsigned = self.form == "cosine", rows.dtype == np.uint8
        sums, squares = self._sums(rows)
        shift = squares // 2 if self.form == "distance" else np.zeros_like(squares)
        scales = np.ones(len(rows), np.float32)
        padded = aligned(len(self._start), np.float32 if scaled else np.int32)
        if scaled:
            zero = np.flatnonzero(squares == 0)
            if len(zero):
                return zero, *[np.zeros_like(zero)] * 3
            scales = (1 / np.sqrt(squares)).astype(np.float32)
            padded[:], padded[: self.nq] = np.inf, float32_below(limits)
        else:
            least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
            padded[:], padded[: self.nq] = most, np.clip(limits, least, most)
        found = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
        count = byte_rows_numba.list_reaching(
            scaled,
            _words(rows),
            ((BIAS * sums if unsigned else 0) - shift).astype(np.int32),
            scales,
            self._words,
            self._start,
            padded,
            aligned(CACHED_SUMS, np.int32),
            found,
        )
        if count > room:
            return None
        row, query, values = (each[:count].astype(np.int64, copy=False) for each in found)
        return row, query, values + shift[row], squares[row]

    def _sums(self, rows: NDArray[Any]) -> tuple[Ids, Ids]:
        """Return Σ x and ‖x‖² of each row, int64[n] each."""
        sums, squares = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
        byte_rows_numba.sum_rows(np.ascontiguousarray(rows), sums, squares)
        return sums.astype(np.int64), squares.astype(np.int64)

    def _scores(self, products: Ids, squares: Ids, queries: Ids) -> Float64:
        """Return the scores of pairs from their products and ‖x‖², float64[p]."""
        if self.form == "product":
            return products.astype(np.float64)
        if self.form == "distance":
            return np.asarray(2 * products - squares - self.squares[queries], np.float64)
        p, square = products.astype(np.float64), squares.astype(np.float64)
        with np.errstate(invalid="ignore"):
            sizes = np.sqrt(np.square(p) / (square * self.squares[queries]))
        return np.asarray(np.copysign(sizes, p))


def takes_bytes(kernel: Kernel, dtype: np.dtype[Any], dims: int) -> bool:
    """Return whether a kernel has scores in integers of rows of this kind."""
    return kernel.of_bytes is not None and dtype in (np.uint8, np.int8) and dims <= MAX_ROW_BYTES


def as_bytes(
    kernel: Kernel, queries: NDArray[Any], dtype: np.dtype[Any]
) -> NDArray[np.uint8 | np.int8] | None:
    """Return raw queries [nq, d] as bytes like the rows, or None if scores are not in integers.

    Queries of another type are taken if all their values are whole and in range. But not for the
    cosine: its last bit depends on the way of computing, which must depend on no other query.
    """
    if not takes_bytes(kernel, dtype, queries.shape[1]):
        return None
    if queries.dtype == dtype:
        return queries
    limits = np.iinfo(dtype)
    if kernel.of_bytes == "cosine" or not ((queries >= limits.min) & (queries <= limits.max)).all():
        return None
    whole = queries.astype(dtype)
    return whole if (whole == queries).all() else None


def byte_queries(kernel: Kernel, queries: NDArray[Any], dtype: np.dtype[Any]) -> ByteQueries | None:
    """Return the batch of raw queries for rows of bytes, or None: see ``as_bytes``."""
    form, whole = kernel.of_bytes, as_bytes(kernel, queries, dtype)
    return None if form is None or whole is None else ByteQueries(form, whole)


def are_whole(kernel: Kernel, queries: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether scores of raw queries and rows are integers, with no rounding."""
    return kernel.of_bytes != "cosine" and as_bytes(kernel, queries, dtype) is not None


def _words(rows: NDArray[Any]) -> NDArray[np.int32]:
    """Return rows as words of four unsigned bytes, zero-padded: int32[n, ⌈d / 4⌉]."""
    n, d = rows.shape
    if rows.dtype == np.uint8 and d % WORD == 0 and rows.flags.c_contiguous:
        return rows.view(np.int32)
    padded = np.zeros((n, -(-d // WORD) * WORD), np.uint8)
    padded[:, :d] = rows.view(np.uint8)
    if rows.dtype == np.int8:
        padded[:, :d] ^= np.uint8(BIAS)
    return padded.view(np.int32)
