"""Jitted functions that score int8 codes in small integers, and in float32 only possible hits.

A query's table T is stored as u = rint(T / Δ) − z in 0…L, L ≤ 127, so that |T − Δ (u + z)| ≤ Δ/2.
The float32 score s of a row with integer weights w, factor σ and sums A = Σ|w|, S = Σw then obeys s
≤ σ Δ (Σ w u + z S + h A), where h is one half plus float32 rounding. A row is scored in float32
unless this bound lies below the k-th score.

A row's bias b = ρ² / 2, if its residual counts, is added last: s + b, rounded, reaches a score t >
0 only if s + b ≥ t (1 − 2⁻²⁴). All queries then share one Δ, and a usual bias β is subtracted from
every score: (b − β) / (σ Δ) is one more integer in a row's sums, which must reach t − β.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.sparse_layout import GROUP, ROUNDED, TINY
from mercore.pipeline.scanners.sparse_numba import PANEL, half_square
from mercore.pipeline.simd.bytes import LANES, half_pair_products, pair_products, sum_eight_rows
from mercore.pipeline.simd.vectors import (
    add,
    add_saturated,
    first_of_four,
    fourth_of_four,
    high_product,
    load_int16,
    lowest_bit,
    prefetch,
    prefetch_for_later,
    reaches,
    second_of_four,
    splat_four_int16,
    splat_int16,
    third_of_four,
    zero_int16,
)
from mercore.pipeline.topk_numba import ZERO, insert

ANY, EIGHT, EIGHT_NARROW = range(3)  # any even α; α = 8; α = 8 for at most 32 queries
AHEAD = 1 << 8  # rows whose atoms are prefetched: scattered look-ups mislead the hardware
FIRST_TILE, FEW_HITS = 1 << 9, 1 << 5  # tiles grow while few rows of one are hits
TILE = 1 << 12  # rows whose hits are rescored together, under older thresholds


@jit
def row_sums(
    weights: NDArray[np.int8],
    alpha: int,
    start: int,
    stop: int,
    magnitudes: NDArray[np.int16],
    totals: NDArray[np.int16],
) -> None:
    """Set Σ|w| and Σ w of rows ``start`` to ``stop`` of flat ``weights`` [n · α], α ≤ 256."""
    whole = (stop - start) // 8 * 8 if alpha == 8 else 0
    for i in range(np.uint64(0), np.uint64(whole), np.uint64(8)):
        sum_eight_rows(weights, np.uint64(start) + i, magnitudes, totals, i)
    for row in range(start + whole, stop):
        magnitude, total = 0, 0
        for at in range(row * alpha, (row + 1) * alpha):
            magnitude += abs(int(weights[at]))
            total += int(weights[at])
        magnitudes[row - start] = magnitude
        totals[row - start] = total


@jit(inline="always")
def threshold(score: np.float32, units: NDArray[np.float64], query: int) -> np.uint16:
    """Return a query's k-th score, above β, in units of the filter, rounded down."""
    return np.uint16(min(65535.0, float(score) * units[0, query] - units[1, query]))


@jit(error_model="numpy")
def row_bounds(
    magnitudes: NDArray[np.int16],
    totals: NDArray[np.int16],
    factors: NDArray[np.float32],
    residuals: NDArray[np.uint16] | None,
    start: int,
    stop: int,
    limits: tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32],
    lifts: NDArray[np.uint16],
    gaps: NDArray[np.uint16],
    inverses: NDArray[np.uint16],
) -> None:
    """Set the numbers that rows ``start`` to ``stop`` add to sums and thresholds, and ``unit`` / σ.

    The sum Σ w u lies between −L N and L P, N and P the sums of negative and positive weights. It
    is computed modulo 2¹⁶, and is exact if the added number lifts that range into 0…65535.
    Otherwise the row gets thresholds of zero: it is always scored in float32. All integers here
    stay below 2²⁴: float32 holds them exactly.
    """
    half, zero, levels, unit, per_step, usual = limits
    none, one, most, rounding = (
        np.float32(0),
        np.float32(1),
        np.float32(65535),
        np.float32(1 - 2.0**-22),
    )
    for i in range(np.uint64(stop - start)):
        row = np.uint64(start) + i
        magnitude, total = np.float32(magnitudes[i]), np.float32(totals[i])
        negative, positive = (
            (magnitude - total) * np.float32(0.5),
            (magnitude + total) * np.float32(0.5),
        )
        slack = np.ceil(magnitude * half) + one + zero * total
        if residuals is not None:  # decided at compile time
            above = ((half_square(residuals[row]) - usual) * per_step + np.float32(TINY)) / factors[
                row
            ]
            slack += np.ceil(above + abs(above) * np.float32(ROUNDED))
        lift = max(slack, levels * negative)
        fits = lift + levels * positive <= most
        lifts[i] = np.uint16(min(lift, most))
        gaps[i] = np.uint16(min(lift - slack, most) if fits else none)
        inverse = min(most, unit / factors[row] * rounding)
        inverses[i] = np.uint16(inverse if fits else none)


@jit(constants=("way",))
def scan_filtered(
    way: int,
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    factors: NDArray[np.float32],
    residuals: NDArray[np.uint16] | None,
    limits: tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32],
    table8: NDArray[np.int8],
    table: NDArray[np.float32],
    units: NDArray[np.float64],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Keep the best of rows ``first``…, to the bit as ``scan_batch``; return the pairs rescored.

    ``way`` is ``ANY``, ``EIGHT`` or ``EIGHT_NARROW``; ``atoms``, ``weights`` [n, α], α even;
    ``factors`` σ [n]; ``residuals`` ρ, if they count, are bits of float16; ``limits`` h, z, L, the
    unit of 1/σ, 1/Δ and β are those of ``row_bounds``; ``table8`` flat [m · 64], or [m · 32] if
    narrow; ``table`` as in ``scan_batch``; ``units`` [2, Q] make thresholds; ``scores``, ``ids``
    [Q, k], Q ≤ 64, every k-th score positive and above β.
    """
    n = factors.size
    flat, flat_weights, alpha = atoms.reshape(-1), weights.reshape(-1), atoms.shape[1]
    pairs, least = flat_weights.view(np.int16), np.empty(GROUP, np.uint16)
    magnitudes, totals = np.empty(TILE, np.int16), np.empty(TILE, np.int16)
    lifts, gaps, inverses = (
        np.empty(TILE, np.uint16),
        np.empty(TILE, np.uint16),
        np.empty(TILE, np.uint16),
    )
    rows, bits = np.empty(2 * TILE, np.int64), np.empty(2 * TILE, np.uint64)
    bounds = lifts, gaps, inverses
    used = np.uint64(0)
    for lane in range(GROUP):
        query = lane % scores.shape[0]  # lanes without a query repeat another's threshold
        least[lane] = threshold(scores[query, -1], units, query)
        used |= np.uint64(lane < scores.shape[0]) << np.uint64(lane)
    rescored, side, count, stop, tile = ZERO, ZERO, ZERO, ZERO, ZERO + FIRST_TILE
    while stop < n:
        start, stop = stop, min(n, stop + tile)
        row_sums(flat_weights, alpha, start, stop, magnitudes, totals)
        row_bounds(
            magnitudes, totals, factors, residuals, start, stop, limits, lifts, gaps, inverses
        )
        for row in range(np.uint64(stop), np.uint64(stop + TILE), np.uint64(32)):
            prefetch(factors, row)
            prefetch(factors, row + np.uint64(16))
            if residuals is not None:
                prefetch(residuals, row)
        waiting, side = count, TILE - side
        if way == EIGHT:
            count = reaching_of_eight(
                flat, pairs, start, stop, table8, bounds, least, rows, bits, side
            )
        elif way == EIGHT_NARROW:
            count = half_reaching_of_eight(
                flat, pairs, start, stop, table8, bounds, least, rows, bits, side
            )
        else:
            count = reaching(
                flat, pairs, alpha // 2, start, stop, table8, bounds, least, rows, bits, side
            )
        tile = min(TILE, 2 * tile) if count < FEW_HITS else FIRST_TILE
        fetch(atoms, table, rows, bits, side, count, used)
        hits = rows, bits, TILE - side, waiting
        rescored += rescore(
            atoms, weights, factors, residuals, table, hits, first, units, least, scores, ids
        )
    hits = rows, bits, side, count
    return rescored + rescore(
        atoms, weights, factors, residuals, table, hits, first, units, least, scores, ids
    )


@jit
def reaching(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int16],
    count: int,
    start: int,
    stop: int,
    table: NDArray[np.int8],
    bounds: tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]],
    least: NDArray[np.uint16],
    rows: NDArray[np.int64],
    bits: NDArray[np.uint64],
    at: int,
) -> int:
    """List the rows that reach a lane's threshold, in slots from ``at`` on; return their number.

    One bit per lane; ``atoms`` flat; ``weights`` two per int16, ``count`` of these per row.
    """
    slot = at
    low_least, high_least = load_int16(least, 0), load_int16(least, LANES)
    one, four = np.uint64(1), np.uint64(4)
    fours = np.uint64(count - count % 4)
    for i in range(np.uint64(start), np.uint64(stop)):
        low, high = zero_int16(), zero_int16()
        begin = i * np.uint64(count)
        for p in range(begin, begin + fours, four):
            more_low, more_high = four_pairs(table, atoms, weights, p)
            low, high = add(low, more_low), add(high, more_high)
        for p in range(begin + fours, begin + np.uint64(count), one):
            more_low, more_high = pair(table, atoms, weights, p)
            low, high = add(low, more_low), add(high, more_high)
        limits = limits_of_one(bounds, i - np.uint64(start))
        hits = half_reaching(low, limits, low_least) | half_reaching(
            high, limits, high_least
        ) << np.uint64(LANES)
        if hits:
            rows[slot] = i
            bits[slot] = hits
            slot += 1
    return slot - at


@jit
def reaching_of_eight(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int16],
    start: int,
    stop: int,
    table: NDArray[np.int8],
    bounds: tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]],
    least: NDArray[np.uint16],
    rows: NDArray[np.int64],
    bits: NDArray[np.uint64],
    at: int,
) -> int:
    """Do ``reaching`` for α = 8, four rows at a time, pairs unrolled: a quarter faster."""
    slot, one, two, three = at, np.uint64(1), np.uint64(2), np.uint64(3)
    begin, end, leasts = (
        np.uint64(start),
        np.uint64(stop),
        (load_int16(least, 0), load_int16(least, LANES)),
    )
    fours = end - (end - begin) % np.uint64(4)
    for i in range(begin, fours, np.uint64(4)):
        ask_for_codes(atoms, weights, i)
        hits0 = row_of_eight(table, atoms, weights, i, limits_of_one(bounds, i - begin), leasts)
        hits1 = row_of_eight(
            table, atoms, weights, i + one, limits_of_one(bounds, i + one - begin), leasts
        )
        hits2 = row_of_eight(
            table, atoms, weights, i + two, limits_of_one(bounds, i + two - begin), leasts
        )
        hits3 = row_of_eight(
            table, atoms, weights, i + three, limits_of_one(bounds, i + three - begin), leasts
        )
        if hits0 | hits1 | hits2 | hits3:
            for j, hits in enumerate((hits0, hits1, hits2, hits3)):
                slot = list_row(rows, bits, slot, i + np.uint64(j), hits)
    for i in range(fours, end):
        hits = row_of_eight(table, atoms, weights, i, limits_of_one(bounds, i - begin), leasts)
        slot = list_row(rows, bits, slot, i, hits)
    return slot - at


@jit
def half_reaching_of_eight(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int16],
    start: int,
    stop: int,
    table: NDArray[np.int8],
    bounds: tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]],
    least: NDArray[np.uint16],
    rows: NDArray[np.int64],
    bits: NDArray[np.uint64],
    at: int,
) -> int:
    """Do ``reaching_of_eight`` for 32 columns; rows share loads, which limit the speed."""
    slot, one, two, three = at, np.uint64(1), np.uint64(2), np.uint64(3)
    begin, end, leasts = np.uint64(start), np.uint64(stop), load_int16(least, 0)
    fours = end - (end - begin) % np.uint64(4)
    for i in range(begin, fours, np.uint64(4)):
        ask_for_codes(atoms, weights, i)
        first, second, third, fourth = limits_of_four(bounds, i - begin)
        hits0 = half_row_of_eight(table, atoms, weights, i, first, leasts)
        hits1 = half_row_of_eight(table, atoms, weights, i + one, second, leasts)
        hits2 = half_row_of_eight(table, atoms, weights, i + two, third, leasts)
        hits3 = half_row_of_eight(table, atoms, weights, i + three, fourth, leasts)
        if hits0 | hits1 | hits2 | hits3:
            for j, hits in enumerate((hits0, hits1, hits2, hits3)):
                slot = list_row(rows, bits, slot, i + np.uint64(j), hits)
    for i in range(fours, end):
        hits = half_row_of_eight(table, atoms, weights, i, limits_of_one(bounds, i - begin), leasts)
        slot = list_row(rows, bits, slot, i, hits)
    return slot - at


@jit(inline="always")
def list_row(rows: Any, bits: Any, slot: int, row: Any, hits: np.uint64) -> int:
    """Put a row into ``slot`` of the list if it has hits; return the next free slot."""
    if hits:
        rows[slot] = row
        bits[slot] = hits
        return slot + 1
    return slot


@jit(inline="always")
def row_of_eight(
    table: Any, atoms: Any, weights: Any, i: Any, limits: Any, leasts: tuple[Any, Any]
) -> np.uint64:
    """Return the lanes, of 64, whose threshold a row of eight atoms reaches."""
    low, high = four_pairs(table, atoms, weights, i * np.uint64(4))
    return half_reaching(low, limits, leasts[0]) | half_reaching(
        high, limits, leasts[1]
    ) << np.uint64(LANES)


@jit(inline="always")
def ask_for_codes(atoms: Any, weights: Any, row: Any) -> None:
    """Prefetch codes of later rows; weights a tile ahead, as ``row_sums`` reads whole tiles."""
    prefetch(atoms, (row + np.uint64(AHEAD)) * np.uint64(8))
    prefetch_for_later(weights, (row + np.uint64(TILE)) * np.uint64(4))


@jit(inline="always")
def half_row_of_eight(
    table: Any, atoms: Any, weights: Any, i: Any, limits: Any, least: Any
) -> np.uint64:
    """Return the lanes, of 32, whose threshold a row of eight atoms reaches."""
    at = i * np.uint64(4)
    four = splat_four_int16(weights, at)
    a = half_pair(table, atoms, first_of_four(four), at)
    b = half_pair(table, atoms, second_of_four(four), at + np.uint64(1))
    c = half_pair(table, atoms, third_of_four(four), at + np.uint64(2))
    d = half_pair(table, atoms, fourth_of_four(four), at + np.uint64(3))
    return half_reaching(add(add(a, b), add(c, d)), limits, least)


@jit(inline="always")
def four_pairs(
    table: NDArray[np.int8], atoms: NDArray[np.uint16], weights: NDArray[np.int16], at: Any
) -> tuple[object, object]:
    """Return the summed products of four pairs of atoms of a row, for all 64 columns."""
    a0, a1 = pair(table, atoms, weights, at)
    b0, b1 = pair(table, atoms, weights, at + np.uint64(1))
    c0, c1 = pair(table, atoms, weights, at + np.uint64(2))
    d0, d1 = pair(table, atoms, weights, at + np.uint64(3))
    return add(add(a0, b0), add(c0, d0)), add(add(a1, b1), add(c1, d1))


@jit(inline="always")
def pair(
    table: NDArray[np.int8], atoms: NDArray[np.uint16], weights: NDArray[np.int16], at: Any
) -> tuple[object, object]:
    """Return the summed products of one pair of atoms of a row, for all 64 columns."""
    a = at + at
    first, second = (
        np.uint64(atoms[a]) * np.uint64(GROUP),
        np.uint64(atoms[a + np.uint64(1)]) * np.uint64(GROUP),
    )
    return pair_products(table, first, second, splat_int16(weights[at]))


@jit(inline="always")
def half_pair(table: NDArray[np.int8], atoms: NDArray[np.uint16], weights: Any, at: Any) -> object:
    """Return the summed products of one pair of atoms of a row, for all 32 columns."""
    a = at + at
    first, second = (
        np.uint64(atoms[a]) * np.uint64(LANES),
        np.uint64(atoms[a + np.uint64(1)]) * np.uint64(LANES),
    )
    return half_pair_products(table, first, second, weights)


@jit(inline="always")
def limits_of_one(bounds: tuple[Any, Any, Any], row: Any) -> tuple[object, object, object]:
    """Return a row's lift, gap and 1/σ, each in every lane."""
    lifts, gaps, inverses = bounds
    return splat_int16(lifts[row]), splat_int16(gaps[row]), splat_int16(inverses[row])


@jit(inline="always")
def limits_of_four(bounds: tuple[Any, Any, Any], row: Any) -> tuple[Any, Any, Any, Any]:
    """Return ``limits_of_one`` of four rows, loaded at once: loads are what limits the speed."""
    lifts, gaps, inverses = bounds
    lift, gap, inverse = (
        splat_four_int16(lifts, row),
        splat_four_int16(gaps, row),
        splat_four_int16(inverses, row),
    )
    return (
        (first_of_four(lift), first_of_four(gap), first_of_four(inverse)),
        (second_of_four(lift), second_of_four(gap), second_of_four(inverse)),
        (third_of_four(lift), third_of_four(gap), third_of_four(inverse)),
        (fourth_of_four(lift), fourth_of_four(gap), fourth_of_four(inverse)),
    )


@jit(inline="always")
def half_reaching(sums: Any, limits: tuple[Any, Any, Any], least: Any) -> np.uint64:
    """Return a bit for each of 32 lanes whose lifted sum reaches its threshold times 1/σ."""
    lift, gap, inverse = limits
    return np.uint64(reaches(add(sums, lift), add_saturated(high_product(least, inverse), gap)))


@jit
def fetch(
    atoms: NDArray[np.uint16],
    table: NDArray[np.float32],
    rows: NDArray[np.int64],
    bits: NDArray[np.uint64],
    at: int,
    count: int,
    used: np.uint64,
) -> None:
    """Clear the bits of lanes without a query; prefetch the entries that ``rescore`` will read."""
    flat, panel_size = table.reshape(-1), np.uint64(table.shape[1] * PANEL)
    for hit in range(at, at + count):
        bits[hit] &= used
        left, row = bits[hit], rows[hit]
        while left:
            panel = lowest_bit(left) // np.uint64(PANEL)
            left &= left - np.uint64(1)
            for a in range(np.uint64(atoms.shape[1])):
                prefetch(flat, panel * panel_size + np.uint64(atoms[row, a]) * np.uint64(PANEL))


@jit
def rescore(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    factors: NDArray[np.float32],
    residuals: NDArray[np.uint16] | None,
    table: NDArray[np.float32],
    hits: tuple[NDArray[np.int64], NDArray[np.uint64], int, int],
    first: int,
    units: NDArray[np.float64],
    least: NDArray[np.uint16],
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
        scale = factors[row]
        while left:
            query = np.int64(lowest_bit(left))
            left &= left - np.uint64(1)
            panel, column = query // PANEL, query % PANEL
            total = np.float32(0)
            for a in range(np.uint64(atoms.shape[1])):
                total = (
                    total
                    + np.float32(weights[row, a]) * scale * table[panel, atoms[row, a], column]
                )
            if residuals is not None:
                total = total + half_square(residuals[row])
            count += 1
            if total > scores[query, -1]:
                insert(scores, ids, query, total, first + row)
                least[query] = threshold(scores[query, -1], units, query)
    return count
