"""Jitted functions that scan product-quantisation codes: M look-ups per row and query.

They score in float32, or filter in bytes. A query's entries T[j, c] lie δ = max_c T[j, c] − T[j, c]
below the greatest of their sub-quantizer. A row reaches the k-th score only if its Σ δ is at most
D: the sum of the greatest entries less that score, plus float32 rounding. Let u = min(⌊δ / Δ⌋,
255): then Σ u ≤ Σ δ / Δ, and a row whose saturated sum of u exceeds ⌊D / Δ⌋ ≤ 254 is ruled out.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.saturating import (
    add_up_to_255,
    at_most,
    load_32_bytes,
    load_64_bytes,
    load_like,
    zero_32_bytes,
    zero_64_bytes,
)
from mercore.pipeline.simd.selection import attains
from mercore.pipeline.simd.vectors import FLOAT32, add, load_float32, lowest_bit, prefetch, store
from mercore.pipeline.topk_numba import ZERO, insert

ENTRIES = 256  # per sub-quantizer
PANEL = FLOAT32.count  # queries per vector of sums
WIDE, NARROW = 64, 32  # queries per vector of bytes
BYTE_STEPS = 253  # Δ = D / 253: one below 254, the most below 255, for the rounding of ⌊D / Δ⌋
MARGIN = 1 + 1e-9  # more than float64 can round here
TILE = 1 << 12  # rows whose hits are rescored together, under older limits
AHEAD = 1 << 8  # rows whose codes are prefetched


@jit
def scan_batch(
    codes: NDArray[np.uint8],
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows ``first``… for Q queries and keep the best.

    ``codes`` [n, M]; ``table`` [⌈Q / 16⌉, M · 256, 16] in panels: one code loads 16 neighbouring
    entries; ``scores``, ``ids`` [Q, k]. Sums run over sub-quantizers in order: the same bits as
    ``scan_one``.
    """
    for panel in range(table.shape[0]):
        begin, end = panel * PANEL, min((panel + 1) * PANEL, scores.shape[0])
        scan_panel(codes, table[panel].reshape(-1), first, scores[begin:end], ids[begin:end])


@jit
def scan_panel(
    codes: NDArray[np.uint8],
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows for up to 16 queries, ``table`` flat [M · 256 · 16]."""
    flat, width = codes.reshape(-1), np.uint64(codes.shape[1])
    least, sums = np.full(PANEL, np.inf, np.float32), np.empty(PANEL, np.float32)
    for query in range(scores.shape[0]):  # an assignment of slices takes seconds to compile
        least[query] = scores[query, -1]
    for i in range(np.uint64(codes.shape[0])):
        at = i * width
        total = load_float32(table, np.uint64(flat[at]) * np.uint64(PANEL))
        for j in range(np.uint64(1), width):
            entry = j * np.uint64(ENTRIES) + np.uint64(flat[at + j])
            total = add(total, load_float32(table, entry * np.uint64(PANEL)))
        hits = np.uint64(attains(total, load_float32(least, 0)))
        if hits:
            store(sums, 0, total)
            while hits:
                query = np.int64(lowest_bit(hits))
                hits &= hits - np.uint64(1)
                insert(scores, ids, query, sums[query], first + np.int64(i))
                least[query] = scores[query, -1]


@jit
def scan_one(
    codes: NDArray[np.uint8],
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows ``first``… for one query, ``table`` [M · 256]; keep the best in lists [1, k]."""
    flat, width = codes.reshape(-1), np.uint64(codes.shape[1])
    least = scores[0, -1]
    for i in range(np.uint64(codes.shape[0])):
        at = i * width
        total = table[np.uint64(flat[at])]
        for j in range(np.uint64(1), width):
            total = total + table[j * np.uint64(ENTRIES) + np.uint64(flat[at + j])]
        if total >= least:
            insert(scores, ids, ZERO, total, first + int(i))
            least = scores[0, -1]


@jit
def scan_one_by_words(
    codes: NDArray[np.uint8],
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Do ``scan_one`` for M a multiple of 8: codes are cut out of words, a fifth faster."""
    words, width = codes.reshape(-1).view(np.uint64), np.uint64(codes.shape[1] // 8)
    least = scores[0, -1]
    for i in range(np.uint64(codes.shape[0])):
        total = np.float32(-0.0)  # −0 + x is x, to the bit
        for w in range(width):
            word, base = words[i * width + w], w * np.uint64(8 * ENTRIES)
            for j in range(np.uint64(8)):
                code = (word >> (j * np.uint64(8))) & np.uint64(255)
                total = total + table[base + j * np.uint64(ENTRIES) + code]
        if total >= least:
            insert(scores, ids, ZERO, total, first + int(i))
            least = scores[0, -1]


@jit
def quantise(
    table: NDArray[np.float32],
    tops: NDArray[np.float64],
    inverses: NDArray[np.float64],
    out: NDArray[np.uint8],
) -> None:
    """Set ``out`` [M · 256, lanes] to u of each entry; lanes without a query keep their values.

    ``table`` as in ``scan_batch``; ``tops`` [M, Q] the greatest entries; ``inverses`` [Q] 1 / Δ.
    """
    count = inverses.size
    for panel in range(table.shape[0]):
        begin = panel * PANEL
        width = np.uint64(min(PANEL, count - begin))
        for entry in range(table.shape[1]):
            line, source = out[entry, begin:], table[panel, entry]
            top, inverse = tops[entry // ENTRIES, begin:], inverses[begin:]
            for q in range(width):
                steps = (top[q] - np.float64(source[q])) * inverse[q]
                line[q] = np.uint8(np.int32(min(steps, 255.0)))


@jit(inline="always")
def limit_of(ceiling: float, score: np.float32, inverse: float) -> np.uint8:
    """Return the greatest Σ u of rows that may reach a score."""
    return np.uint8(max(0.0, (ceiling - np.float64(score)) * inverse * MARGIN))


@jit(constants=("wide", "eight"))
def scan_filtered(
    wide: bool,
    eight: bool,
    codes: NDArray[np.uint8],
    table8: NDArray[np.uint8],
    table: NDArray[np.float32],
    ceilings: NDArray[np.float64],
    inverses: NDArray[np.float64],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Keep the best of rows ``first``…, to the bit as ``scan_batch``; return the pairs rescored.

    ``eight`` says whether M is 8. ``table8`` is flat, [M · 256 · 64] if ``wide``, else [M · 256 ·
    32]; ``ceilings`` [Q] are upper limits of float32 scores; ``inverses`` [Q] 1 / Δ; ``scores``,
    ``ids`` [Q, k], Q ≤ 64, no k-th score below the one that Δ was made for.
    """
    n, width = codes.shape
    flat, limits = codes.reshape(-1), np.zeros(WIDE, np.uint8)
    rows, bits = np.empty(2 * TILE, np.int64), np.empty(2 * TILE, np.uint64)
    for query in range(scores.shape[0]):
        limits[query] = limit_of(ceilings[query], scores[query, -1], inverses[query])
    rescored, side, count = ZERO, ZERO, ZERO
    for start in range(0, n, TILE):
        stop, waiting, side = min(n, start + TILE), count, TILE - side
        if eight:
            count = reaching_8(flat, width, start, stop, table8, limits, wide, rows, bits, side)
        else:
            count = reaching_any(flat, width, start, stop, table8, limits, wide, rows, bits, side)
        fetch(codes, table, rows, bits, side, count)
        hits = rows, bits, TILE - side, waiting
        rescored += rescore(codes, table, hits, first, ceilings, inverses, limits, scores, ids)
    hits = rows, bits, side, count
    return rescored + rescore(codes, table, hits, first, ceilings, inverses, limits, scores, ids)


def reaching_of(fixed: int) -> Any:
    """Make ``reaching`` for M = ``fixed`` (0: any M): it lists rows within a lane's limit."""

    @jit(constants=("wide",))
    def reaching(
        codes: NDArray[np.uint8],
        width: int,
        start: int,
        stop: int,
        table: NDArray[np.uint8],
        limits: NDArray[np.uint8],
        wide: bool,
        rows: NDArray[np.int64],
        bits: NDArray[np.uint64],
        at: int,
    ) -> int:
        M = np.uint64(fixed if fixed else width)
        if wide:
            vectors, lanes = (load_64_bytes(limits, 0), zero_64_bytes()), np.uint64(WIDE)
            return list_hits(codes, M, start, stop, table, vectors, lanes, rows, bits, at)
        half_vectors, half_lanes = (load_32_bytes(limits, 0), zero_32_bytes()), np.uint64(NARROW)
        return list_hits(codes, M, start, stop, table, half_vectors, half_lanes, rows, bits, at)

    return reaching


@jit(inline="always")
def list_hits(
    codes: Any,
    M: Any,
    start: int,
    stop: int,
    table: Any,
    vectors: Any,
    lanes: Any,
    rows: Any,
    bits: Any,
    at: int,
) -> int:
    """List rows within a lane's limit from ``at`` on, a bit per lane; ``vectors``: limits, 0."""
    slot, begin, end, four = at, np.uint64(start), np.uint64(stop), np.uint64(4)
    limit, none = vectors
    fours = end - (end - begin) % four
    for i in range(begin, fours, four):
        prefetch(codes, (i + np.uint64(AHEAD)) * M)
        sum_a, sum_b, sum_c, sum_d = none, none, none, none
        a = i * M
        for j in range(M):
            sum_a = added(sum_a, table, codes, a, j, lanes)
            sum_b = added(sum_b, table, codes, a + M, j, lanes)
            sum_c = added(sum_c, table, codes, a + M + M, j, lanes)
            sum_d = added(sum_d, table, codes, a + M + M + M, j, lanes)
        hits = (
            at_most(sum_a, limit),
            at_most(sum_b, limit),
            at_most(sum_c, limit),
            at_most(sum_d, limit),
        )
        if hits[0] | hits[1] | hits[2] | hits[3]:
            for row in range(4):
                if hits[row]:
                    rows[slot] = np.int64(i) + row
                    bits[slot] = hits[row]
                    slot += 1
    for i in range(fours, end):
        total = none
        for j in range(M):
            total = added(total, table, codes, i * M, j, lanes)
        hit = at_most(total, limit)
        if hit:
            rows[slot] = np.int64(i)
            bits[slot] = hit
            slot += 1
    return slot - at


@jit(inline="always")
def added(sums: Any, table: Any, codes: Any, at: Any, j: Any, lanes: Any) -> Any:
    """Return sums plus the bytes of all lanes for code j of the row whose codes start at ``at``."""
    entry = j * np.uint64(ENTRIES) + np.uint64(codes[at + j])
    return add_up_to_255(sums, load_like(table, entry * lanes, sums))


reaching_8, reaching_any = reaching_of(8), reaching_of(0)  # unrolled, 8 are a tenth faster


@jit
def fetch(
    codes: NDArray[np.uint8],
    table: NDArray[np.float32],
    rows: NDArray[np.int64],
    bits: NDArray[np.uint64],
    at: int,
    count: int,
) -> None:
    """Prefetch the entries that ``rescore`` will read."""
    flat, panel_size = table.reshape(-1), np.uint64(table.shape[1] * PANEL)
    for hit in range(at, at + count):
        left, row = bits[hit], rows[hit]
        while left:
            panel = lowest_bit(left) // np.uint64(PANEL)
            left &= ~(np.uint64(0xFFFF) << (panel * np.uint64(PANEL)))
            for j in range(np.uint64(codes.shape[1])):
                entry = j * np.uint64(ENTRIES) + np.uint64(codes[row, j])
                prefetch(flat, panel * panel_size + entry * np.uint64(PANEL))


@jit
def rescore(
    codes: NDArray[np.uint8],
    table: NDArray[np.float32],
    hits: tuple[NDArray[np.int64], NDArray[np.uint64], int, int],
    first: int,
    ceilings: NDArray[np.float64],
    inverses: NDArray[np.float64],
    limits: NDArray[np.uint8],
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Score the marked pairs in float32 and keep the best; return the number of pairs.

    ``hits``: rows of the block, bits, first hit, number of hits; the block begins at row ``first``.
    """
    rows, bits, at, waiting = hits
    count = 0
    for hit in range(at, at + waiting):
        row, left = rows[hit], bits[hit]
        while left:
            query = np.int64(lowest_bit(left))
            left &= left - np.uint64(1)
            panel, column = query // PANEL, query % PANEL
            total = table[panel, codes[row, 0], column]
            for j in range(np.uint64(1), np.uint64(codes.shape[1])):
                total = (
                    total + table[panel, j * np.uint64(ENTRIES) + np.uint64(codes[row, j]), column]
                )
            count += 1
            if total >= scores[query, -1]:
                insert(scores, ids, query, total, first + row)
                limits[query] = limit_of(ceilings[query], scores[query, -1], inverses[query])
    return count
