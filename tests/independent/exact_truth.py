"""The exact nearest rows under each kernel, apart from the product: float64 where it is proof, 256
bits where not.

A score is the real number that the kernel gives of the raw rows. Scores within 1e-50 are ties, the
lower id first; of the two kernels without a greatest score, within 1e-50 of themselves.
"""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from functools import lru_cache
from math import gcd, isqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Numbers = tuple[int, ...]

RAW = ("euclidean", "inner_product")  # of rows as they are, by −‖x − y‖² and ⟨x, y⟩
KERNELS = ("cosine", "hellinger", "chi2", "intersection", "jensen_shannon", "exp_chi2", "rbf", *RAW)
ORDERED_AS = {
    "exp_chi2": "chi2"
}  # exp(−γ (2 − 2 chi2)) of rows that sum to one: it ascends with chi2
CLOSE = 3e-12  # a float64 score is within 1e-12: a gap above this proves an order
BITS = 256  # of the fraction of an exact score; each of its terms is floored
DIGITS = 90  # of logarithms and exponentials
TIE = (1 << BITS) // 10**50
UNIT = 149  # every float32 is a whole number of 2⁻¹⁴⁹
TELLING = (
    1e-38,
    90.0,
)  # where γ d² that differ by CLOSE of themselves have scores that differ by more than 1e-50
BLOCK, BATCH = 4096, 32


def nearest(
    name: str,
    rows: NDArray[np.generic],
    queries: NDArray[np.generic],
    k: int,
    *,
    gamma: float = 1.0,
) -> Ids:
    """Return the ids of the k rows of greatest score for each query, int64[nq, k].

    Parameters
    ----------
    rows, queries : uint8, float16 or float32 [n, d] and [nq, d], raw; in the kernel's domain
    k : int, 1 ≤ k ≤ n
    gamma : float
        γ of rbf; that of exp_chi2 does not change the order.
    """
    name = ORDERED_AS.get(name, name)
    ids = [
        _first(name, gamma, scores, k, rows, query)
        for query, scores in _scored(name, gamma, rows, queries)
    ]
    return np.array(ids, np.int64).reshape(len(queries), k)


def _first(
    name: str,
    gamma: float,
    scores: Floats,
    k: int,
    rows: NDArray[np.generic],
    query: NDArray[np.generic],
) -> list[int]:
    """Return the k first ids: by float64, and within a run of close scores by their exact ones."""
    kth = np.partition(scores, len(scores) - k)[len(scores) - k]
    near = np.flatnonzero(scores >= kth - CLOSE)
    near = near[np.argsort(-scores[near], kind="stable")]
    runs = np.split(near, np.flatnonzero(np.diff(-scores[near]) > CLOSE) + 1)
    ids: list[int] = []
    for run in runs:
        ids += run.tolist() if len(run) == 1 else _decided(name, gamma, run.tolist(), rows, query)
    return ids[:k]


def _decided(
    name: str, gamma: float, run: list[int], rows: NDArray[np.generic], query: NDArray[np.generic]
) -> list[int]:
    """Return a run of rows by descending exact score; those that differ by at most ``TIE`` by
    ascending id."""
    x = _numbers(query, name)
    scores = {i: exact_score(name, gamma, x, _numbers(rows[i], name)) for i in run}
    ids: list[int] = []
    tied: list[int] = []
    for i in sorted(run, key=lambda row: (-scores[row], row)):
        tie = abs(scores[tied[-1]]) // 10**50 if tied and name in RAW else TIE
        if tied and scores[tied[-1]] - scores[i] > tie:
            ids += sorted(tied)
            tied = []
        tied.append(i)
    return ids + sorted(tied)


def _numbers(row: NDArray[np.generic], name: str) -> Numbers:
    """Return the whole numbers that a row is in units of 2⁻¹⁴⁹, over their divisor where only
    shares count."""
    return _whole(row.tobytes(), row.dtype.str, name not in ("rbf", *RAW))


@lru_cache(1 << 15)
def _whole(row: bytes, dtype: str, reduced: bool) -> Numbers:
    values = [
        int(value)
        for value in np.ldexp(np.frombuffer(row, dtype).astype(np.float64), UNIT).tolist()
    ]
    divisor = gcd(*values) if reduced else 1
    return tuple(value // divisor for value in values)


@lru_cache(1 << 15)
def exact_score(name: str, gamma: float, x: Numbers, y: Numbers) -> int:
    """Return the score of two rows of whole numbers times 2²⁵⁶, within 2 d units.

    With A = Σ a and B = Σ b: chi2 is Σ 2ab / (aB + bA), intersection Σ min(aB, bA) / AB, hellinger
    Σ √(ab / AB).
    """
    A, B, pairs = sum(x), sum(y), [(a, b) for a, b in zip(x, y, strict=True) if a and b]
    if name == "inner_product":  # in units of 2⁻²⁹⁸, as −‖x − y‖²
        return sum(a * b for a, b in pairs)
    if name in ("rbf", "euclidean"):
        squares = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
        return -squares if name == "euclidean" else _exponential(gamma, squares)
    if name == "cosine":
        dot, norms = sum(a * b for a, b in pairs), sum(a * a for a in x) * sum(b * b for b in y)
        return (1 if dot > 0 else -1) * isqrt((dot * dot << 2 * BITS) // norms)
    if name == "intersection":
        return (sum(min(a * B, b * A) for a, b in pairs) << BITS) // (A * B)
    return sum(_term(name, a, A, b, B) for a, b in pairs)


def _term(name: str, a: int, A: int, b: int, B: int) -> int:
    """Return one term of hellinger, chi2 or jensen_shannon times 2²⁵⁶."""
    if name == "hellinger":
        return isqrt((a * b << 2 * BITS) // (A * B))
    if name == "chi2":
        return (2 * a * b << BITS) // (a * B + b * A)
    return _gain(a, A, b, B)


def _exponential(gamma: float, square: int) -> int:
    """Return exp(−γ d²) times 2²⁵⁶ of a squared distance in units of 2⁻²⁹⁸."""
    with localcontext(prec=DIGITS):
        return int((-Decimal(gamma) * square / 4**UNIT).exp() * 2**BITS)


@lru_cache(1 << 18)
def _gain(a: int, A: int, b: int, B: int) -> int:
    """Return ½ [x log2((x + y) / x) + y log2((x + y) / y)] times 2²⁵⁶ of the shares x = a / A and y
    = b / B."""
    p, q = a * B, b * A
    with localcontext(prec=DIGITS):
        gain = (p + q) * _ln(p + q) - p * (_ln(a) + _ln(B)) - q * (_ln(b) + _ln(A))
        return int(gain / (2 * A * B * _ln(2)) * 2**BITS)


@lru_cache(1 << 18)
def _ln(value: int) -> Decimal:
    with localcontext(prec=DIGITS):
        return Decimal(value).ln()


def _scored(
    name: str, gamma: float, rows: NDArray[np.generic], queries: NDArray[np.generic]
) -> Iterator[tuple[NDArray[np.generic], Floats]]:
    """Yield each query with what its rows rank by: scores, for rbf −ln(γ d²), float64[n] to within
    1e-12. For euclidean that is −ln d²; inner products are divided by the norms' greatest product.
    """
    Y = _prepared(name, rows)
    blocks = [np.ascontiguousarray(Y[at : at + BLOCK].T) for at in range(0, len(Y), BLOCK)]
    entropies = [_entropy(block) if name == "jensen_shannon" else block for block in blocks]
    for at in range(0, len(queries), BATCH):
        X = _prepared(name, queries[at : at + BATCH])
        parts = [_sums(name, X, *pair) for pair in zip(blocks, entropies, strict=True)]
        scores = np.concatenate(parts, axis=1)
        if name == "rbf":
            scores = -np.log(np.clip(gamma * scores, *TELLING))
        elif name == "euclidean":
            scores = -np.log(np.maximum(scores, 1e-300))
        elif name == "inner_product":
            norms = [np.sqrt(np.square(side).sum(axis=1)) for side in (X, Y)]
            scores /= np.maximum(norms[0][:, None] * norms[1].max(), 1e-300)
        yield from zip(queries[at : at + BATCH], scores, strict=True)


def _prepared(name: str, rows: NDArray[np.generic]) -> Floats:
    """Return rows of unit norm, the roots of their shares, as they are, or their shares."""
    values: Floats = rows.astype(np.float64)
    if name in ("rbf", *RAW):
        return values
    if name == "cosine":
        return np.asarray(values / np.sqrt((values**2).sum(axis=1, keepdims=True)))
    shares: Floats = values / values.sum(axis=1, keepdims=True)
    return np.sqrt(shares) if name == "hellinger" else shares


def _sums(name: str, X: Floats, YT: Floats, entropy: Floats) -> Floats:
    """Return the sums of terms of queries X [b, d] and columns YT [d, m], float64[b, m]."""
    if name in ("cosine", "hellinger", "inner_product"):
        return X @ YT
    return np.array([_sum(name, x, YT, entropy) for x in X])


def _sum(name: str, x: Floats, YT: Floats, entropy: Floats) -> Floats:
    """Return the sum of terms of one query and every column, its empty bins left out where they add
    nothing."""
    total = np.zeros(YT.shape[1])
    squared = name in ("rbf", "euclidean")
    used = np.arange(len(x)) if squared else np.flatnonzero(x)
    for value, y in zip(x[used].tolist(), (YT[j] for j in used), strict=True):
        if name == "intersection":
            total += np.minimum(y, value)
        elif name == "chi2":  # 2xy / (x + y) = 2x − 2x² / (x + y)
            total += value * value / (y + value)
        elif squared:
            total += np.square(y - value)
        else:
            total += _entropy(y + value)
    if name == "chi2":
        return np.asarray(2 * x.sum() - 2 * total)
    if name == "jensen_shannon":
        return np.asarray((total - _entropy(x).sum() - entropy[used].sum(axis=0)) / 2)
    return total


def _entropy(shares: Floats) -> Floats:
    """Return s log2 s, 0 of 0."""
    return np.asarray(shares * np.log2(np.maximum(shares, 1e-300)))
