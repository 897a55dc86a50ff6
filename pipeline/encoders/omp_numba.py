"""Kernel orthogonal matching pursuit, one row at a time, on the correlations of a whole dictionary."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

TILE = 1024  # correlations of a tile stay in L1 while each chosen atom's Gram row passes over them
ABSOLUTE = np.int32(0x7FFFFFFF)


@njit(nogil=True, cache=True)
def greatest(values: NDArray[np.float32], first: int, best: tuple[np.int32, int]) -> tuple[np.int32, int]:
    """Return (bits of |value|, position) of the greatest |value|, the earlier ``best`` kept on ties.

    The bits of non-negative floats order as integers do, and an integer maximum vectorises without fastmath.
    """
    bits = values.view(np.int32)
    peak = np.int32(0)
    for j in range(bits.size):
        peak = max(peak, np.int32(bits[j] & ABSOLUTE))
    if peak <= best[0]:
        return best
    for j in range(bits.size):
        if np.int32(bits[j] & ABSOLUTE) == peak:
            return peak, first + j
    return best


@njit(nogil=True, cache=True)
def next_atom(
    start: NDArray[np.float32],
    gram: NDArray[np.float32],
    support: NDArray[np.int64],
    coefficients: NDArray[np.float32],
    count: int,
    tile: NDArray[np.float32],
) -> int:
    """Return the atom most correlated with the residual, in one pass: c = K(D, y) − G[:, S] w, then argmax |c|.

    ``coefficients`` beyond ``count`` are zero up to a multiple of four, and ``support`` repeats a valid atom there.
    """
    best = (np.int32(-1), 0)
    for first in range(0, start.size, TILE):
        last = min(start.size, first + TILE)
        c = tile[: last - first]
        c[:] = start[first:last]
        for s in range(0, count, 4):
            p, q = gram[support[s], first:last], gram[support[s + 1], first:last]
            r, t = gram[support[s + 2], first:last], gram[support[s + 3], first:last]
            a, b = coefficients[s], coefficients[s + 1]
            e, f = coefficients[s + 2], coefficients[s + 3]
            for j in range(c.size):
                c[j] -= a * p[j] + b * q[j] + e * r[j] + f * t[j]
        best = greatest(c, first, best)
    return best[1]


@njit(nogil=True, cache=True)
def extend(
    L: NDArray[np.float64], gram: NDArray[np.float32], support: NDArray[np.int64], count: int, atom: int
) -> bool:
    """Append an atom's row to the Cholesky factor of the support's Gram matrix; False if the atom depends on it."""
    left = float(gram[atom, atom])
    for i in range(count):
        if support[i] == atom:
            return False
        value = float(gram[support[i], atom])
        for j in range(i):
            value -= L[count, j] * L[i, j]
        L[count, i] = value / L[i, i]
        left -= L[count, i] * L[count, i]
    if left < 1e-6:
        return False
    L[count, count] = math.sqrt(left)
    return True


@njit(nogil=True, cache=True)
def solve_upper(L: NDArray[np.float64], z: NDArray[np.float64], count: int, w: NDArray[np.float64]) -> None:
    """Solve Lᵀ w = z for the leading ``count`` unknowns."""
    for i in range(count - 1, -1, -1):
        value = z[i]
        for j in range(i + 1, count):
            value -= L[j, i] * w[j]
        w[i] = value / L[i, i]


@njit(nogil=True, cache=True)
def omp(
    start: NDArray[np.float32],
    gram: NDArray[np.float32],
    tolerance: float,
    atoms: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> None:
    """Pursue each row of ``start`` = K(y, D) [b, m] with unit K(y, y): fill ``atoms`` and ``weights`` [b, α].

    Stops early where the residual² is at most ``tolerance``; slots left over hold atom 0 with weight 0.
    """
    b, alpha = atoms.shape
    slots = alpha + 4
    support = np.zeros(slots, np.int64)
    coefficients = np.zeros(slots, np.float32)
    L = np.zeros((alpha, alpha))
    z = np.zeros(alpha)
    w = np.zeros(alpha)
    tile = np.empty(TILE, np.float32)
    for row in range(b):
        support[:] = 0
        coefficients[:] = 0
        count = 0
        left = 1.0
        while count < alpha and left > tolerance:
            atom = next_atom(start[row], gram, support, coefficients, count, tile)
            if not extend(L, gram, support, count, atom):
                break
            value = float(start[row, atom])
            for j in range(count):
                value -= L[count, j] * z[j]
            z[count] = value / L[count, count]
            left -= z[count] * z[count]
            support[count] = atom
            count += 1
            solve_upper(L, z, count, w)
            for j in range(count):
                coefficients[j] = w[j]
        atoms[row, :] = support[:alpha]
        weights[row, :count] = w[:count]
        weights[row, count:] = 0


@njit(nogil=True, cache=True)
def round_keeping_sum(scaled: NDArray[np.float64], limit: int, rounded: NDArray[np.int8]) -> None:
    """Round to integers within ±limit so that their sum is the rounded sum: the values nearest to a half give way.

    Dictionary atoms resemble each other, so the error of the weights' *sum* is what shows in a score.
    """
    total = 0.0
    found = 0
    for a in range(scaled.size):
        rounded[a] = min(limit, max(-limit, int(np.rint(scaled[a]))))
        total += scaled[a]
        found += int(rounded[a])
    surplus = found - int(np.rint(total))
    step = 1 if surplus < 0 else -1
    for _ in range(abs(surplus)):
        best, which = -2.0, -1
        for a in range(scaled.size):
            gain = step * (scaled[a] - rounded[a])
            if scaled[a] != 0 and gain > best and abs(int(rounded[a]) + step) <= limit:
                best, which = gain, a
        if which >= 0:
            rounded[which] += step


@njit(nogil=True, cache=True)
def quantise_int8(weights: NDArray[np.float64], scales: NDArray[np.float64], rounded: NDArray[np.int8]) -> None:
    """Set ``rounded`` [b, α] to weights / scale, sums kept; ``scales`` [b] are about max |weight| / 127."""
    scaled = np.empty(weights.shape[1])
    for row in range(weights.shape[0]):
        scale = scales[row]
        for a in range(scaled.size):
            scaled[a] = weights[row, a] / scale if scale > 0 else 0.0
        round_keeping_sum(scaled, 127, rounded[row])


@njit(nogil=True, cache=True)
def residuals(
    start: NDArray[np.float32],
    gram: NDArray[np.float32],
    atoms: NDArray[np.int64],
    weights: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i]`` to ‖Φ(y) − Σ wₐ Φ(zₐ)‖ for the weights as stored: √(1 − 2 wᵀK(S, y) + wᵀ G_SS w)."""
    alpha = atoms.shape[1]
    for row in range(atoms.shape[0]):
        square = 1.0
        for i in range(alpha):
            w = weights[row, i]
            if w != 0:
                square -= 2 * w * start[row, atoms[row, i]]
                for j in range(alpha):
                    square += w * weights[row, j] * gram[atoms[row, i], atoms[row, j]]
        out[row] = math.sqrt(max(square, 0.0))
