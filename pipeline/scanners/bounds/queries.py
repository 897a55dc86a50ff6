"""Upper bounds of scores from exact sums of bytes: a block of rows against a batch of queries."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.scanners.bounds.byte_bounds_numba import bound_rows
from mercore.pipeline.scanners.bounds.layout import (
    CACHED_SUMS,
    CHUNK_ROWS,
    LANES,
    MAX_ROW_BYTES,
    PANEL,
    WORD,
    Form,
    PackedQueries,
    PairBuffer,
    Sink,
    SparseWords,
)
from mercore.pipeline.simd.aligned import aligned


def pack_queries(  # noqa: PLR0913
    codes: NDArray[Any],
    *,
    start: NDArray[np.int32] | None,
    step: Float32,
    const: Float32,
    factors: Float32,
    over: Float32 | None = None,
) -> PackedQueries:
    """Pack a batch of queries for ``bound_block`` and ``bound_hits``.

    The bound of row i and query q in float32, each step rounded once, ``·+`` as one step::

        (float32(dot) · scale[i]) · step[q] + const[q] ·+ a[i, 0] · b[0, q] ·+ a[i, 1] · b[1, q] …

    where dot = start[q] + Σ_e row[i, e] · code[q, e] is an exact int32. In the minimum form,
    dot = Σ_e min(row[i, e], code[q, e]), and min(over[i], over[q]) is added last.

    Parameters
    ----------
    codes : int8[nq, E], or uint8[nq, E] in the minimum form; E ≤ 32 896
    start : int32[nq], optional
        The start value of the sum of products.
    step, const : float32[nq]
    factors : float32[J, nq]
        The numbers b of the formula.
    over : float32[nq], optional
        If given, the bounds have the minimum form.
    """
    nq, E = codes.shape
    assert codes.dtype == (np.int8 if over is None else np.uint8)
    assert E <= MAX_ROW_BYTES
    lanes = -(-nq // LANES) * LANES
    wide = lanes - lanes % PANEL
    depth = -(-E // WORD)
    padded = np.zeros((lanes, depth * WORD), np.uint8)
    padded[:nq, :E] = codes.view(np.uint8)
    lines = [step, const, *factors] if over is None else [step, const, *factors, over]
    terms = np.zeros((len(lines), lanes), np.float32)
    for line, values in zip(terms, lines, strict=True):
        line[:nq] = values
    begin = aligned(lanes, np.int32)
    begin[:nq] = 0 if start is None else start
    words = _in_panels(padded.view(np.int32).T, wide)
    form = Form(nq, depth, tuple(range(len(factors))), over is not None)
    return PackedQueries(words, begin, _in_panels(terms, wide), wide, form)


def bound_block(
    rows: NDArray[np.uint8], numbers: Float32, queries: PackedQueries, out: Float32
) -> None:
    """Set ``out`` to the bounds; each depends on its row and its query alone, to the bit.

    Parameters
    ----------
    rows : uint8[n, E]
        Read in place if E is a multiple of 4.
    numbers : float32[n, 1 + J], or float32[n, 2 + J] in the minimum form
        The scale, the numbers a of the formula and, in the minimum form, over.
    out : float32[n, nq], C-contiguous
    """
    assert out.shape == (len(rows), queries.form.nq)
    hits = PairBuffer(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    _bound(rows, numbers, queries, _sink(queries, hits, out=out.reshape(-1)))


def bound_hits(
    rows: NDArray[np.uint8],
    numbers: Float32,
    queries: PackedQueries,
    least: Float32,
    hits: PairBuffer,
) -> int:
    """List the pairs with bounds ≥ ``least`` float32[nq] as far as they fit; return their number.

    ``rows``, ``numbers`` and the bounds are those of ``bound_block``, to the bit. Each pair is
    listed once; the order depends on the block.
    """
    return _bound(rows, numbers, queries, _sink(queries, hits, least=least))


def _bound(rows: NDArray[np.uint8], numbers: Float32, queries: PackedQueries, sink: Sink) -> int:
    """Compute all bounds; return the number of hits, listed or not."""
    form = queries.form
    assert numbers.shape == (len(rows), 1 + len(form.factors) + form.minimum)
    words = _words(rows)
    assert words.shape[1] == form.depth
    stride = form.depth + LANES
    n = min(CHUNK_ROWS, len(rows))
    room = SparseWords(
        np.empty(n * stride, np.int32),
        np.empty(n * stride, np.uint32),
        np.empty(n, np.uint64),
        stride,
    )
    return int(bound_rows(form.minimum, words, np.ascontiguousarray(numbers), queries, room, sink))


def _sink(
    queries: PackedQueries,
    hits: PairBuffer,
    *,
    out: Float32 | None = None,
    least: Float32 | None = None,
) -> Sink:
    """Return the outputs, with scratch space for a tile."""
    limits = np.full(queries.start.size, np.inf, np.float32)
    if least is not None:
        limits[: queries.form.nq] = least
    block = np.empty(0, np.float32) if out is None else out
    sums, marks = aligned(CACHED_SUMS, np.int32), aligned(CACHED_SUMS // LANES, np.uint16)
    return Sink(block, limits, sums, marks, hits)


def _words(rows: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return rows as words of four bytes, zero-padded: int32[n, ⌈E / 4⌉]."""
    n, E = rows.shape
    if E % WORD == 0 and rows.flags.c_contiguous and rows.ctypes.data % WORD == 0:
        return rows.view(np.int32)
    padded = np.zeros((n, -(-E // WORD) * WORD), np.uint8)
    padded[:, :E] = rows
    return padded.view(np.int32)


def _in_panels(lines: NDArray[Any], wide: int) -> NDArray[Any]:
    """Return lines [depth, lanes] by panels, flat: 32 lanes each below ``wide``, then 16."""
    depth, _ = lines.shape
    out = aligned(lines.size, lines.dtype)
    out[: depth * wide] = lines[:, :wide].reshape(depth, -1, PANEL).swapaxes(0, 1).reshape(-1)
    out[depth * wide :] = lines[:, wide:].reshape(depth, -1, LANES).swapaxes(0, 1).reshape(-1)
    return out
