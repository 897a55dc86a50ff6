"""Scan loops over int8 codes that score in small integers, and in float32 only the rows that may be among the best.

A query's table T is stored as u = rint(T / Δ) + z in 0…127, so that |T − Δ (u − z)| ≤ Δ/2. The float32 score s of a
row with integer weights w, scale σ and sums A = Σ|w|, S = Σw then obeys s ≤ σ Δ (Σ w u − z S + h A), where h is one
half and what float32 rounds. A row is scored in float32 unless this bound says that it cannot reach the k-th score.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline import lanes
from pipeline.best_numba import insert

GROUP = 64
PACKED_ROWS = 1 << 7  # 1 KiB of packed bytes: written and read back within L1
COLUMNS = np.array(lanes.COLUMNS)


@njit(nogil=True, cache=True)
def widen_scales(halves: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    """Set ``out`` to non-negative float16 given as their bits: exact, subnormal ones included."""
    for i in range(out.size):
        out[i] = widened(halves[i])


@njit(nogil=True, cache=True, inline="always")
def widened(half: np.uint16) -> np.float32:
    """Return a non-negative float16, given as its bits, as float32: shifted into place, the exponent mended."""
    return np.int32(np.int32(half) << np.int32(13)).view(np.float32) * np.float32(2.0**112)


@njit(nogil=True, cache=True)
def word_sums(words: NDArray[np.uint64], magnitudes: NDArray[np.int16], totals: NDArray[np.int16]) -> None:
    """Set Σ|w| and Σ w of each word of eight int8 weights, byte by byte within a register."""
    ones, signs = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
    wide, fold = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)
    s7, s8, s48, full = np.uint64(7), np.uint64(8), np.uint64(48), np.uint64(255)
    for i in range(words.size):
        w = words[i]
        negative = (w >> s7) & ones
        absolute = (w ^ (negative * full)) + negative
        shifted = w ^ signs  # w + 128
        magnitudes[i] = np.int64((((absolute & wide) + ((absolute >> s8) & wide)) * fold) >> s48)
        totals[i] = np.int64((((shifted & wide) + ((shifted >> s8) & wide)) * fold) >> s48) - 1024


@njit(nogil=True, cache=True)
def byte_sums(weights: NDArray[np.int8], magnitudes: NDArray[np.int16], totals: NDArray[np.int16]) -> None:
    """Set Σ|w| and Σ w of rows [n, α] of any α."""
    for i in range(weights.shape[0]):
        magnitude, total = 0, 0
        for a in range(weights.shape[1]):
            magnitude += abs(int(weights[i, a]))
            total += int(weights[i, a])
        magnitudes[i] = magnitude
        totals[i] = total


@njit(nogil=True, cache=True, error_model="numpy")
def row_bounds(
    magnitudes: NDArray[np.int16],
    totals: NDArray[np.int16],
    scales: NDArray[np.float32],
    half: int,
    zero: int,
    shift: int,
    pairs: int,
    unit: np.float32,
    most: np.float32,
    inverse: NDArray[np.uint16],
    slack: NDArray[np.int16],
) -> None:
    """Set what each row adds to its integer sum before it is compared, and ``unit`` / σ ≤ ``most``: to the safe side.

    ``half`` is h in units of 2⁻¹⁶. ``scan_filtered`` adds ``pairs`` pairs of products, each divided by 2^shift and
    rounded down: it loses less than one a pair.
    """
    for i in range(slack.size):
        lost = ((np.int64(magnitudes[i]) * half) >> 16) + 1 - zero * np.int64(totals[i])
        slack[i] = (lost >> shift) + 1 + pairs
        over = unit / scales[i] * np.float32(1 - 2.0**-22)
        inverse[i] = np.uint16(min(most, over))


@njit(nogil=True, cache=True)
def threshold(score: float, unit: float) -> int:
    """Return a k-th score in units of the filter, rounded down; scores must be positive."""
    return int(min(65535.0, np.floor(score * unit)))


@njit(nogil=True, cache=True, inline="always")
def pair(
    table: NDArray[np.int8], atoms: NDArray[np.uint16], pairs: NDArray[np.int16], i: int, p: int, by: object
) -> tuple[object, object]:
    """Return the products of pair p of row i for all 64 columns, added and divided by the power of two."""
    a = p + p
    first, second = np.uint64(atoms[i, a]) * np.uint64(GROUP), np.uint64(atoms[i, a + np.uint64(1)]) * np.uint64(GROUP)
    low, high = lanes.pair_products(table, first, second, lanes.splat(pairs[i, p]))
    return lanes.shift_right(low, by), lanes.shift_right(high, by)


@njit(nogil=True, cache=True)
def scan_filtered(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    pairs: NDArray[np.int16],
    bounds: tuple[NDArray[np.float32], NDArray[np.uint16], NDArray[np.int16]],
    shift: int,
    table8: NDArray[np.int8],
    table: NDArray[np.float32],
    units: NDArray[np.float64],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Keep the best of rows ``first``… for up to 64 queries, to the bit as ``scan_batch`` does; return pairs rescored.

    ``pairs`` are the weights two to an int16, [n, α/2]; α is even. ``bounds`` are σ float32, 1/σ uint16 and slack int16
    of the rows; ``table8`` flat [m · 64]; ``table`` float32 [m, Q]; ``scores``, ``ids`` [Q, k], each k-th one positive.
    """
    n, count = pairs.shape
    scales, inverse, slack = bounds
    least = np.full(GROUP, 65535, np.uint16)
    used = np.zeros(2, np.uint32)
    for lane in range(GROUP):
        query = COLUMNS[lane]
        if query < scores.shape[0]:
            least[lane] = threshold(scores[query, -1], units[query])
            used[lane // 32] |= np.uint32(1) << np.uint32(lane % 32)
    by = lanes.splat(np.int16(shift))
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    fours = np.uint64(count - count % 4)
    rescored = 0
    for i in range(np.uint64(n)):
        low, high = lanes.zero(), lanes.zero()
        for p in range(np.uint64(0), fours, four):
            a0, a1 = pair(table8, atoms, pairs, i, p, by)
            b0, b1 = pair(table8, atoms, pairs, i, p + one, by)
            c0, c1 = pair(table8, atoms, pairs, i, p + two, by)
            d0, d1 = pair(table8, atoms, pairs, i, p + three, by)
            low = lanes.add(low, lanes.add(lanes.add(a0, b0), lanes.add(c0, d0)))
            high = lanes.add(high, lanes.add(lanes.add(a1, b1), lanes.add(c1, d1)))
        for p in range(fours, np.uint64(count)):
            a0, a1 = pair(table8, atoms, pairs, i, p, by)
            low, high = lanes.add(low, a0), lanes.add(high, a1)
        extra, over = lanes.splat(slack[i]), lanes.splat(np.int16(inverse[i]))
        hits0 = lanes.exceeds(lanes.add(low, extra), lanes.high_product(lanes.load(least, 0), over))
        hits1 = lanes.exceeds(lanes.add(high, extra), lanes.high_product(lanes.load(least, 32), over))
        if (hits0 & used[0]) | (hits1 & used[1]):
            rescored += rescore(
                atoms,
                weights,
                i,
                scales[i],
                table,
                units,
                first + np.int64(i),
                np.uint64(hits0 & used[0]) | (np.uint64(hits1 & used[1]) << np.uint64(32)),
                least,
                scores,
                ids,
            )
    return rescored


@njit(nogil=True, cache=True)
def rescore(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    i: int,
    scale: np.float32,
    table: NDArray[np.float32],
    units: NDArray[np.float64],
    row: int,
    hits: np.uint64,
    least: NDArray[np.uint16],
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Score row i of a block, ``row`` of the store, in float32 for the queries whose bit is set; return how many."""
    count = 0
    while hits:
        lane = lanes.lowest_bit(hits)
        hits &= hits - np.uint64(1)
        query = COLUMNS[lane]
        total = np.float32(0)
        for a in range(np.uint64(atoms.shape[1])):
            total = total + np.float32(weights[i, a]) * scale * table[atoms[i, a], query]
        count += 1
        if total > scores[query, -1]:
            insert(scores, ids, query, total, row)
            least[lane] = threshold(scores[query, -1], units[query])
    return count


@njit(nogil=True, cache=True)
def pack_rows(
    atoms: NDArray[np.uint16], start: int, stop: int, table: NDArray[np.uint8], out: NDArray[np.uint64]
) -> None:
    """Set ``out[i − start]`` to the eight bytes ``table[atoms[i]]`` of rows ``start`` to ``stop``; ``atoms`` [n, 8]."""
    k0, k1, k2, k3 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
    k4, k5, k6, k7 = np.uint64(4), np.uint64(5), np.uint64(6), np.uint64(7)
    s8, s16, s24, s32 = np.uint64(8), np.uint64(16), np.uint64(24), np.uint64(32)
    for i in range(np.uint64(start), np.uint64(stop)):
        low = np.uint64(table[atoms[i, k0]]) | (np.uint64(table[atoms[i, k1]]) << s8)
        low |= (np.uint64(table[atoms[i, k2]]) << s16) | (np.uint64(table[atoms[i, k3]]) << s24)
        high = np.uint64(table[atoms[i, k4]]) | (np.uint64(table[atoms[i, k5]]) << s8)
        high |= (np.uint64(table[atoms[i, k6]]) << s16) | (np.uint64(table[atoms[i, k7]]) << s24)
        out[i - np.uint64(start)] = low | (high << s32)


@njit(nogil=True, cache=True)
def scan_one_filtered(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    halves: NDArray[np.uint16],
    table8: NDArray[np.uint8],
    table: NDArray[np.float32],
    step: float,
    half: float,
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Keep the best of rows ``first``… for one query, to the bit as ``scan_one`` does; return the rows rescored.

    ``halves`` [n] are σ as the bits of float16; ``table8`` [m] holds u = rint(T / ``step``), z = 0; α = 8; the k-th
    score is positive. Rows behind the last whole eight are all scored in float32.
    """
    packed = np.empty(PACKED_ROWS, np.uint64)
    flat, flat_atoms = weights.reshape(-1), atoms.reshape(-1)
    whole = halves.size - halves.size % 8
    rescored = halves.size - whole
    slack = np.float32(half)
    least = np.float32(scores[0, -1] / step * (1 - 1e-6))
    for start in range(0, whole, PACKED_ROWS):
        stop = min(whole, start + PACKED_ROWS)
        # Streams that are read in turns are more than the hardware follows: ask for the next tile's lines.
        for row in range(np.uint64(stop), np.uint64(stop + PACKED_ROWS), np.uint64(8)):
            lanes.prefetch(flat_atoms, row * np.uint64(8))
            lanes.prefetch(flat_atoms, (row + np.uint64(4)) * np.uint64(8))
            lanes.prefetch(flat, row * np.uint64(8))
            lanes.prefetch(halves, row)
        pack_rows(atoms, start, stop, table8, packed)
        for i in range(np.uint64(start), np.uint64(stop), np.uint64(8)):
            hits = lanes.rows_reaching(packed, i - np.uint64(start), flat, halves, i, slack, least)
            if hits:
                for j in range(8):
                    if (hits >> np.uint8(j)) & np.uint8(1):
                        row = np.int64(i) + j
                        score_one(atoms, weights, row, widened(halves[row]), table, first, scores, ids)
                        rescored += 1
                least = np.float32(scores[0, -1] / step * (1 - 1e-6))
    for row in range(whole, halves.size):
        score_one(atoms, weights, row, widened(halves[row]), table, first, scores, ids)
    return rescored


@njit(nogil=True, cache=True)
def score_one(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    i: int,
    scale: np.float32,
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score row i of a block in float32 and keep it if it is among the best."""
    total = np.float32(0)
    for a in range(atoms.shape[1]):
        total = total + np.float32(weights[i, a]) * scale * table[atoms[i, a]]
    if total > scores[0, -1]:
        insert(scores, ids, 0, total, first + i)
