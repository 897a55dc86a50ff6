"""Kernel orthogonal matching pursuit, plain and order-recursive, on correlations with all atoms.

Each non-zero takes one pass over a row's correlations. The Gram row of a new atom comes from
memory: two rows take turns, and each pass prefetches the Gram row that the other row needs next.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.selection import attains, magnitude, where_greater
from mercore.pipeline.simd.vectors import (
    FLOAT32,
    load_float32,
    lowest_bit,
    multiply,
    multiply_add,
    prefetch,
    splat_float32,
    store,
    subtract,
    zero_float32,
)

Singles = NDArray[np.float32]
Places = NDArray[np.uint64]
Doubles = NDArray[np.float64]

LANES = np.uint64(FLOAT32.count)
PAIR = np.uint64(2 * FLOAT32.count)
THREE = np.uint64(3 * FLOAT32.count)
TILE = np.uint64(4 * FLOAT32.count)  # correlations in registers while Gram rows are added
DEPENDENT = 1e-6  # least squared distance of an atom to the span of the chosen ones
APART = np.float32(1e-5)  # the same for float32 distances, which are rounded
TURNS = 2  # rows pursued in turn
CACHE = 1 << 18  # Gram entries that stay in the second-level cache: a megabyte


@jit(inline="always")
def accumulate(
    gram: Singles,
    support: Places,
    factors: Singles,
    own: np.uint64,
    count: np.uint64,
    first: np.uint64 | int,
    c: Any,
) -> Any:
    """Return c + G[:, S] f over a tile; ``support[own : own + count]`` are starts of Gram rows."""
    c0, c1, c2, c3 = c
    for s in range(own, own + count):
        g, f = support[s] + first, splat_float32(factors[s])
        c0 = multiply_add(f, load_float32(gram, g), c0)
        c1 = multiply_add(f, load_float32(gram, g + LANES), c1)
        c2 = multiply_add(f, load_float32(gram, g + PAIR), c2)
        c3 = multiply_add(f, load_float32(gram, g + THREE), c3)
    return c0, c1, c2, c3


@jit(inline="always")
def tile_of(values: Singles, at: np.uint64) -> Any:
    """Return a tile of ``values``, four vectors."""
    return (
        load_float32(values, at),
        load_float32(values, at + LANES),
        load_float32(values, at + PAIR),
        load_float32(values, at + THREE),
    )


@jit(inline="always")
def magnitudes(c: Any) -> Any:
    """Return |c| of a tile."""
    return magnitude(c[0]), magnitude(c[1]), magnitude(c[2]), magnitude(c[3])


@jit(inline="always")
def ask_for(gram: Singles, at: np.uint64) -> None:
    """Prefetch a tile."""
    prefetch(gram, at)
    prefetch(gram, at + LANES)
    prefetch(gram, at + PAIR)
    prefetch(gram, at + THREE)


@jit(inline="always")
def first_attaining(c: Any, peak: Any) -> np.uint64:
    """Return the place in a tile of the first value of at least ``peak``; 0 if there is none."""
    low = np.uint64(attains(c[0], peak)) | np.uint64(attains(c[1], peak)) << LANES
    high = np.uint64(attains(c[2], peak)) | np.uint64(attains(c[3], peak)) << LANES
    hits = low | high << PAIR
    return lowest_bit(hits) if hits else np.uint64(0)


@jit(inline="always")
def greatest_lane(lanes: Singles) -> Any:
    """Return (n, d, tile) of the lane with the greatest n / d; of equals, the first tile.

    ``lanes`` holds the lanes' n, then their tiles, then their d.
    """
    n, d, tile = lanes[0], lanes[PAIR], lanes[LANES]
    for lane in range(np.uint64(1), LANES):
        left, right = lanes[lane] * d, n * lanes[PAIR + lane]
        if left > right or (left == right and lanes[LANES + lane] < tile):
            n, d, tile = lanes[lane], lanes[PAIR + lane], lanes[LANES + lane]
    return n, d, np.uint64(np.int64(tile))


@jit(inline="always")
def most_correlated(
    start: Singles,
    row: np.uint64,
    gram: Singles,
    support: Places,
    factors: Singles,
    own: np.uint64,
    count: np.uint64,
    size: np.uint64,
    ahead: np.uint64,
    lanes: Singles,
) -> np.uint64:
    """Return the atom that OMP takes: the first with the greatest |c|, c = K(D, y) − G[:, S] w.

    Pati et al. 1993. ``factors`` are −w. Every lane keeps its greatest |c| and its tile; the place
    comes from computing that tile again.
    """
    best, where = splat_float32(np.float32(-1)), zero_float32()
    for first in range(np.uint64(0), size, TILE):
        ask_for(gram, ahead + first)
        c = magnitudes(
            accumulate(gram, support, factors, own, count, first, tile_of(start, row + first))
        )
        peak, other = where_greater(c[0], c[1], c[0], c[1]), where_greater(c[2], c[3], c[2], c[3])
        peak = where_greater(peak, other, peak, other)
        where = where_greater(peak, best, splat_float32(np.float32(np.int64(first))), where)
        best = where_greater(peak, best, peak, best)
    store(lanes, np.uint64(0), best)
    store(lanes, LANES, where)
    store(lanes, PAIR, splat_float32(np.float32(1)))
    most, _, first = greatest_lane(lanes)
    c = magnitudes(
        accumulate(gram, support, factors, own, count, first, tile_of(start, row + first))
    )
    return first + first_attaining(c, splat_float32(most))


@jit(inline="always")
def accumulate_both(
    gram: Singles,
    support: Places,
    factors: Singles,
    directions: Singles,
    own: np.uint64,
    count: np.uint64,
    first: np.uint64 | int,
    c: Any,
) -> Any:
    """Return c + G[:, S] f and v = G[:, S] u over a tile, loading each Gram entry once."""
    c0, c1, c2, c3 = c
    v0 = v1 = v2 = v3 = zero_float32()
    for s in range(own, own + count):
        g, f, u = support[s] + first, splat_float32(factors[s]), splat_float32(directions[s])
        g0, g1, g2, g3 = tile_of(gram, g)
        c0, v0 = multiply_add(f, g0, c0), multiply_add(u, g0, v0)
        c1, v1 = multiply_add(f, g1, c1), multiply_add(u, g1, v1)
        c2, v2 = multiply_add(f, g2, c2), multiply_add(u, g2, v2)
        c3, v3 = multiply_add(f, g3, c3), multiply_add(u, g3, v3)
    return c0, c1, c2, c3, v0, v1, v2, v3


@jit(inline="always")
def move_apart(distances: Singles, at: np.uint64, v: Any) -> Any:
    """Subtract v² from a vector of squared distances to the span, and return it."""
    left = subtract(load_float32(distances, at), multiply(v, v))
    store(distances, at, left)
    return left


@jit(inline="always")
def gain(c: Any, d: Any) -> Any:
    """Return the decrease of the residual² as a fraction (c², d); (0, 1) if d is too small."""
    apart = splat_float32(APART)
    n = where_greater(d, apart, multiply(c, c), zero_float32())
    return n, where_greater(d, apart, d, splat_float32(np.float32(1)))


@jit(inline="always")
def greater_gain(one: Any, other: Any) -> Any:
    """Return the greater of two fractions n / d, d > 0; of equals, the first."""
    left, right = multiply(other[0], one[1]), multiply(one[0], other[1])
    return where_greater(left, right, other[0], one[0]), where_greater(
        left, right, other[1], one[1]
    )


@jit(inline="always")
def gain_attains(c: Any, d: Any, n: Any, bar: Any) -> np.uint64:
    """Return a bit per atom: its gain is at least n / bar."""
    own, apart = gain(c, d)
    return np.uint64(attains(multiply(own, bar), multiply(n, apart)))


@jit(inline="always")
def first_gaining(c: Any, d: Any, n: np.float32, bar: np.float32) -> np.uint64:
    """Return the index in its tile of the first atom that gains at least n / bar, else 0."""
    most, over = splat_float32(n), splat_float32(bar)
    low = gain_attains(c[0], d[0], most, over) | gain_attains(c[1], d[1], most, over) << LANES
    high = gain_attains(c[2], d[2], most, over) | gain_attains(c[3], d[3], most, over) << LANES
    hits = low | high << PAIR
    return lowest_bit(hits) if hits else np.uint64(0)


@jit(inline="always")
def most_lowering(
    start: Singles,
    row: np.uint64,
    gram: Singles,
    support: Places,
    factors: Singles,
    directions: Singles,
    own: np.uint64,
    count: np.uint64,
    size: np.uint64,
    ahead: np.uint64,
    distances: Singles,
    base: np.uint64,
    lanes: Singles,
) -> np.uint64:
    """Return the atom that ORMP takes: the first with the greatest c² / (1 − Σ v²).

    Rebollo-Neira & Lowe 2002. ``distances[base:]`` are 1 − Σ v² of the directions before the
    newest; its v² = (G[:, S] u)² is subtracted here.
    """
    best, where = (splat_float32(np.float32(-1)), splat_float32(np.float32(1))), zero_float32()
    for first in range(np.uint64(0), size, TILE):
        ask_for(gram, ahead + first)
        tile = tile_of(start, row + first)
        c0, c1, c2, c3, v0, v1, v2, v3 = accumulate_both(
            gram, support, factors, directions, own, count, first, tile
        )
        at = base + first
        one = greater_gain(
            gain(c0, move_apart(distances, at, v0)), gain(c1, move_apart(distances, at + LANES, v1))
        )
        g2, g3 = (
            gain(c2, move_apart(distances, at + PAIR, v2)),
            gain(c3, move_apart(distances, at + THREE, v3)),
        )
        one = greater_gain(one, greater_gain(g2, g3))
        left, right = multiply(one[0], best[1]), multiply(best[0], one[1])
        where = where_greater(left, right, splat_float32(np.float32(np.int64(first))), where)
        best = greater_gain(best, one)
    store(lanes, np.uint64(0), best[0])
    store(lanes, LANES, where)
    store(lanes, PAIR, best[1])
    n, d, first = greatest_lane(lanes)
    c = accumulate(gram, support, factors, own, count, first, tile_of(start, row + first))
    return first + first_gaining(c, tile_of(distances, base + first), n, d)


@jit(inline="always")
def orthogonalise(
    gram: Singles,
    support: Places,
    own: np.uint64,
    count: np.uint64,
    inverse: Doubles,
    corner: np.uint64,
    alpha: np.uint64,
    atom: np.uint64,
    projections: Doubles,
) -> float:
    """Return an atom's squared distance to the span; append its row to M = L⁻¹, L Lᵀ = G_SS.

    The direction is u = (Φ(z) − Σ_j l_j u_j) / ‖·‖ with l = M K(S, z): its weights on the atoms are
    row M_count. A dependent atom is not appended.
    """
    apart = 1.0
    for j in range(count):
        value = 0.0
        for i in range(j + np.uint64(1)):
            value += inverse[corner + j * alpha + i] * gram[support[own + i] + atom]
        projections[j] = value
        apart -= value * value
    if apart < DEPENDENT:
        return apart
    scale = 1 / math.sqrt(apart)
    for i in range(count):
        value = 0.0
        for j in range(i, count):
            value -= projections[j] * inverse[corner + j * alpha + i]
        inverse[corner + count * alpha + i] = value * scale
    inverse[corner + count * alpha + count] = scale
    return apart


@jit(inline="always")
def add_direction(
    start: Singles,
    gram: Singles,
    support: Places,
    factors: Singles,
    directions: Singles,
    own: np.uint64,
    count: np.uint64,
    inverse: Doubles,
    alpha: np.uint64,
    row: np.uint64,
    size: np.uint64,
    weights: Doubles,
) -> float:
    """Add the newest direction u, row ``count`` of M, to a row's code; return the decrease ⟨u, y⟩².

    Each weight w = Mᵀ M K(S, y) gains z M_count, z = ⟨u, y⟩: the residual² loses z².
    """
    newest = own * alpha + count * alpha
    z = 0.0
    for i in range(count + np.uint64(1)):
        z += inverse[newest + i] * start[row * size + support[own + i] // size]
    for i in range(count + np.uint64(1)):
        weights[row * alpha + i] += z * inverse[newest + i]
        factors[own + i] = -weights[row * alpha + i]
        directions[own + i] = inverse[newest + i]
    return z * z


@jit
def whole_zeros(count: np.uint64) -> Places:
    """Return zeros: ``np.zeros`` and ``np.arange`` of several types take a second to compile."""
    out = np.empty(np.int64(count), np.uint64)
    for i in range(out.size):
        out[i] = 0
    return out


@jit
def doubles(count: np.uint64, value: float) -> Doubles:
    """Return float64 copies of a number."""
    out = np.empty(np.int64(count), np.float64)
    for i in range(out.size):
        out[i] = value
    return out


@jit
def singles(count: np.uint64, value: float) -> Singles:
    """Return float32 copies of a number."""
    out = np.empty(np.int64(count), np.float32)
    for i in range(out.size):
        out[i] = value
    return out


@jit(constants=("order_recursive",))
def pursue(
    starts: Singles,
    grams: Singles,
    order_recursive: bool,
    tolerance: float,
    atoms: NDArray[np.int64],
    out: Doubles,
) -> None:
    """Pursue the rows of ``starts`` = K(y, D) [b, m], K(y, y) = 1: fill ``atoms``, ``out`` [b, α].

    ``out`` holds the weights. ``grams`` is K(D, D) [atoms, m]; both are C-contiguous, and zeros
    fill m up to whole tiles. A row stops early if its residual² is at most ``tolerance``; free
    slots hold atom 0 with weight 0.
    """
    atoms[:] = 0
    out[:] = 0
    start, gram, weights = starts.reshape(-1), grams.reshape(-1), out.reshape(-1)
    b, alpha, size = np.uint64(atoms.shape[0]), np.uint64(atoms.shape[1]), np.uint64(grams.shape[1])
    turns = np.uint64(TURNS if TURNS * alpha * size <= CACHE else 1)
    rows, counts, support = whole_zeros(turns), whole_zeros(turns), whole_zeros(turns * alpha)
    left, inverse, projections = (
        doubles(turns, 1.0),
        doubles(turns * alpha * alpha, 0.0),
        doubles(alpha, 0.0),
    )
    factors, directions = singles(turns * alpha, 0.0), singles(turns * alpha, 0.0)
    lanes = singles(THREE, 0.0)
    distances = singles(turns * size if order_recursive else np.uint64(1), 1.0)
    for place in range(turns):
        rows[place] = place
    turn, following, done, ahead = np.uint64(0), turns, np.uint64(0), np.uint64(0)
    while done < b:
        turn = turn + np.uint64(1) if turn + np.uint64(1) < turns else np.uint64(0)
        row, count, own, base = np.uint64(rows[turn]), counts[turn], turn * alpha, turn * size
        if row >= b:
            continue
        if order_recursive:
            atom = most_lowering(
                start,
                row * size,
                gram,
                support,
                factors,
                directions,
                own,
                count,
                size,
                ahead,
                distances,
                base,
                lanes,
            )
        else:
            atom = most_correlated(
                start, row * size, gram, support, factors, own, count, size, ahead, lanes
            )
        apart = orthogonalise(
            gram, support, own, count, inverse, own * alpha, alpha, atom, projections
        )
        if apart >= DEPENDENT:
            support[own + count], atoms[row, count] = atom * size, atom
            ahead = atom * size
            left[turn] -= add_direction(
                start,
                gram,
                support,
                factors,
                directions,
                own,
                count,
                inverse,
                alpha,
                row,
                size,
                weights,
            )
            counts[turn] += np.uint64(1)
        if apart < DEPENDENT or counts[turn] == alpha or left[turn] <= tolerance:
            rows[turn], counts[turn], left[turn] = following, np.uint64(0), 1
            distances[base : base + size] = 1
            following += np.uint64(1)
            done += np.uint64(1)
