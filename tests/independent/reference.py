"""Slow, obvious truths in plain NumPy float64: every loop of the product is judged against
these."""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

KERNELS = ("cosine", "hellinger", "chi2", "intersection", "jensen_shannon", "exp_chi2", "rbf")
DEPENDENT = (
    1e-6  # squared distance of an atom to the span of those chosen, below which it adds nothing
)
SILENT = 1e-12  # a correlation that is nothing but rounding
GOLDEN = 0x9E3779B97F4A7C15  # 2⁶⁴ / golden ratio, odd


def prepare(name: str, X: ArrayLike) -> Floats:
    """The rows that ``kernel`` expects: L2- or L1-normalised, square-rooted or as is; ValueError
    off the domain."""
    rows: Floats = np.array(X, dtype=np.float64)
    _check_domain(name, rows)
    if name == "rbf":
        return rows
    if name == "cosine":
        norms: Floats = np.sqrt((rows**2).sum(axis=1, keepdims=True))
        return rows / norms
    shares: Floats = rows / rows.sum(axis=1, keepdims=True)
    return np.sqrt(shares) if name == "hellinger" else shares


def _check_domain(name: str, rows: Floats) -> None:
    if name not in KERNELS:
        raise ValueError(f"unknown kernel {name}")
    if not np.isfinite(rows).all():
        raise ValueError("NaN or inf")
    if name not in ("cosine", "rbf") and (rows < 0).any():
        raise ValueError("negative value")
    if name != "rbf" and (rows == 0).all(axis=1).any():
        raise ValueError("all-zero row")


def kernel(
    name: str, X: ArrayLike, Y: ArrayLike, gamma: float = 1.0, s: float | None = None
) -> Floats:
    """K[i, j] = K(X[i], Y[j]) of rows *prepared* already; with ``s``, exp(s(K − 1)) (Jiang et al.
    2014, Eq. 6)."""
    K = term_sums(name, X, Y)
    if name in ("exp_chi2", "rbf"):
        K = np.exp(-gamma * K)
    return K if s is None else np.exp(s * (K - 1))


def term_sums(name: str, X: ArrayLike, Y: ArrayLike) -> Floats:
    """The sums over dimensions that a kernel is, or (exp_chi2, rbf) is the exponential of, [n,
    m]."""
    A, B = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    sums: Floats = np.zeros((len(A), len(B)))
    for i, x in enumerate(A):
        sums[i] = _terms(name, x, B).sum(axis=1)
    return sums


def _terms(name: str, x: Floats, Y: Floats) -> Floats:
    """The terms of x and every y of Y, a dimension a column."""
    both = np.where(
        x + Y > 0, x + Y, 1.0
    )  # a term where both are zero is zero: any divisor will do
    terms: dict[str, Callable[[], Floats]] = {
        "cosine": lambda: x * Y,
        "hellinger": lambda: x * Y,
        "chi2": lambda: 2 * x * Y / both,
        "intersection": lambda: np.minimum(x, Y),
        "jensen_shannon": lambda: 0.5 * (_entropy_gain(x + 0 * Y, Y) + _entropy_gain(Y, x)),
        "exp_chi2": lambda: (x - Y) ** 2 / both,
        "rbf": lambda: (x - Y) ** 2,
    }
    return terms[name]()


def feature_map(rows: ArrayLike, weights: ArrayLike, frequency: float) -> Floats:
    """ψ of rows (Vedaldi & Zisserman 2012): √x times √w0, then √w cos and √w sin of each harmonic of
    the logarithm; zeros for a zero."""
    values = np.asarray(rows, np.float64)
    roots, logs = np.sqrt(values), np.log(np.where(values > 0, values, 1))
    parts = []
    for harmonic, weight in enumerate(np.asarray(weights)):
        parts.append(math.sqrt(weight) * roots * np.cos(harmonic * frequency * logs))
        if harmonic:
            parts.append(math.sqrt(weight) * roots * np.sin(harmonic * frequency * logs))
    return np.hstack(parts)


def signature(name: str, ratio: ArrayLike) -> Floats:
    """k(a, b) / √(ab) of numbers with ln(b / a) = ``ratio``."""
    half = np.exp(np.asarray(ratio, np.float64) / 2)
    terms: Floats = _terms(name, 1 / half, half[None])[0]
    return terms


def _entropy_gain(X: Floats, Y: Floats) -> Floats:
    """x log2((x + y) / x), 0 where x = 0; as a difference of logarithms, for (x + y) / x may
    overflow."""
    safe = np.where(X > 0, X, 1.0)
    return np.where(X > 0, X * (np.log2(safe + Y) - np.log2(safe)), 0.0)


def log2(value: float) -> Decimal:
    """log2 of a positive number, to 50 digits."""
    with localcontext(prec=50):
        return Decimal(value).ln() / Decimal(2).ln()


def digest_words(words: Sequence[int]) -> int:
    """Multiply and fold 64-bit words into one, modulo 2⁶⁴."""
    state = GOLDEN
    for word in words:
        state = (state ^ word) * GOLDEN % 2**64
        state ^= state >> 29
    return (state ^ state >> 29) * GOLDEN % 2**64


def exact_l1(x: Sequence[float | int | Fraction]) -> list[Fraction]:
    """x / Σx without rounding."""
    values = [_exact(value) for value in x]
    return [value / sum(values) for value in values]


def exact_additive(
    name: str, x: Sequence[float | int | Fraction], y: Sequence[float | int | Fraction]
) -> Fraction:
    """chi2 or intersection of two *prepared* rows without rounding: a float is the rational that it
    is."""
    pairs = [(_exact(a), _exact(b)) for a, b in zip(x, y, strict=True)]
    if name == "chi2":
        return sum((2 * a * b / (a + b) for a, b in pairs if a + b > 0), Fraction(0))
    if name == "intersection":
        return sum((min(a, b) for a, b in pairs), Fraction(0))
    raise ValueError(f"{name} is not rational")


def _exact(value: float | int | Fraction) -> Fraction:
    return value if isinstance(value, Fraction) else Fraction(float(value))


def omp(
    c0: ArrayLike, G: ArrayLike, alpha: int, tolerance: float = 1e-6, self_score: float = 1.0
) -> tuple[Ids, Floats]:
    """Kernel orthogonal matching pursuit (Pati et al. 1993) of one row: atoms int64[alpha], weights
    float64[alpha].

    ``c0`` is K(D, y), ``G`` is K(D, D), ``self_score`` is K(y, y). Ends early when residual² ≤
    tolerance · K(y, y), when no atom left correlates, or when the next atom depends on those
    chosen. Unused slots hold atom 0, weight 0.
    """
    start, gram = np.asarray(c0, dtype=np.float64), np.asarray(G, dtype=np.float64)
    support: list[int] = []
    w: Floats = np.zeros(0)
    while len(support) < min(alpha, len(start)):
        c = start - gram[:, support] @ w
        strength = np.abs(c)
        strength[support] = -1
        pick = int(np.argmax(strength))  # the first of equals: the lower index
        if strength[pick] <= SILENT or _distance_to_span(gram, support, pick) < DEPENDENT:
            break
        support.append(pick)
        w = np.linalg.solve(gram[np.ix_(support, support)], start[support]).astype(np.float64)
        if self_score - w @ start[support] <= tolerance * self_score:
            break
    atoms, weights = np.zeros(alpha, np.int64), np.zeros(alpha)
    atoms[: len(support)], weights[: len(support)] = support, w
    return atoms, weights


def ormp(
    c0: ArrayLike, G: ArrayLike, alpha: int, tolerance: float = 1e-6, self_score: float = 1.0
) -> tuple[Ids, Floats]:
    """Order-recursive matching pursuit (Rebollo-Neira & Lowe 2002): as ``omp``, but the next atom
    leaves the least.

    The residual² falls by c² / distance² for the atom's correlation c with what is left and its
    distance to the span.
    """
    start, gram = np.asarray(c0, dtype=np.float64), np.asarray(G, dtype=np.float64)
    support: list[int] = []
    w: Floats = np.zeros(0)
    while len(support) < min(alpha, len(start)):
        gains = ormp_gains(start, gram, support)
        pick = int(np.argmax(gains))  # the first of equals: the lower index
        if gains[pick] <= SILENT**2:
            break
        support.append(pick)
        w = np.linalg.solve(gram[np.ix_(support, support)], start[support]).astype(np.float64)
        if self_score - w @ start[support] <= tolerance * self_score:
            break
    atoms, weights = np.zeros(alpha, np.int64), np.zeros(alpha)
    atoms[: len(support)], weights[: len(support)] = support, w
    return atoms, weights


def ormp_gains(start: Floats, gram: Floats, support: list[int]) -> Floats:
    """What each atom would take off the residual²; 0 for those that depend on the support."""
    w = np.linalg.solve(gram[np.ix_(support, support)], start[support]) if support else np.zeros(0)
    left = start - gram[:, support] @ w
    apart = np.array([_distance_to_span(gram, support, atom) for atom in range(len(start))])
    apart[support] = 0
    return np.where(apart < DEPENDENT, 0.0, left**2 / np.maximum(apart, DEPENDENT))


def _distance_to_span(gram: Floats, support: list[int], atom: int) -> float:
    """Squared distance in feature space of an atom to the span of the support."""
    if not support:
        return float(gram[atom, atom])
    cross = gram[support, atom]
    return float(gram[atom, atom] - cross @ np.linalg.solve(gram[np.ix_(support, support)], cross))


def residual(c0: ArrayLike, G: ArrayLike, atoms: Ids, weights: Floats) -> float:
    """‖Φ(y) − Σ wₐ Φ(zₐ)‖ of a row with K(y, y) = 1; ``c0`` is K(D, y), ``G`` is K(D, D)."""
    start, gram = np.asarray(c0, np.float64), np.asarray(G, np.float64)
    square = float(1 - 2 * weights @ start[atoms] + weights @ gram[np.ix_(atoms, atoms)] @ weights)
    return math.sqrt(max(square, 0.0))


def aska_weights(code: Mapping[str, NDArray[Any]], power: float) -> NDArray[np.float32]:
    """The stored weights times the row's factor, float32[n, α]: its scale / ‖Φ̂(y)‖^power.

    ‖Φ̂(y)‖² = 1 − ρ² with ρ the residual, and at least 2⁻⁸.
    """
    factors = [
        np.float32(max(1 - float(left) ** 2, 2.0**-8) ** (-power / 2)) for left in code["residual"]
    ]
    column = np.array(factors, np.float32)[:, None]
    if "scale" in code:
        column *= code["scale"].astype(np.float32)[:, None]
    return np.asarray(code["weights"].astype(np.float32) * column)


def aska_scores(
    atoms: ArrayLike, weights: ArrayLike, table: ArrayLike, residuals: ArrayLike | None = None
) -> Floats:
    """Σ_a w[i, a] · table[atom[i, a], q] (Davis et al. 2014, Eq. 12) as [nq, n]; ``table`` [m, nq]
    is K(D, x).

    With ``residuals`` [n], ‖Φ(y) − Φ̂(y)‖, half their squares are added.
    """
    A, W, T = (
        np.asarray(atoms, np.int64),
        np.asarray(weights, np.float64),
        np.asarray(table, np.float64),
    )
    scores: Floats = np.zeros((T.shape[1], A.shape[0]))
    for i in range(A.shape[0]):
        for a in range(A.shape[1]):
            scores[:, i] += W[i, a] * T[A[i, a]]
    return scores if residuals is None else scores + np.asarray(residuals, np.float64) ** 2 / 2


def aska_scores_float32(
    atoms: ArrayLike, weights: ArrayLike, table: ArrayLike, residuals: ArrayLike | None = None
) -> NDArray[np.float32]:
    """``aska_scores`` in float32: each product rounded, then each sum, atoms in their order; the
    residual last."""
    A, W, T = (
        np.asarray(atoms, np.int64),
        np.asarray(weights, np.float32),
        np.asarray(table, np.float32),
    )
    scores = np.zeros((T.shape[1], A.shape[0]), np.float32)
    for i in range(A.shape[0]):
        for a in range(A.shape[1]):
            scores[:, i] += W[i, a] * T[A[i, a]]
    if residuals is not None:
        halves = np.asarray(residuals, np.float32)
        scores += halves * halves * np.float32(0.5)
    return scores


def top_k(scores: ArrayLike, k: int) -> tuple[Floats, Ids]:
    """The k greatest of each row of ``scores`` [nq, n], descending, ties to the lower id: (scores,
    ids) [nq, k]."""
    S: Floats = np.array(scores, dtype=np.float64)
    ids: Ids = np.zeros((len(S), min(k, S.shape[1])), np.int64)
    for q, row in enumerate(S):
        ids[q] = np.lexsort((np.arange(len(row)), -row))[:k]
    return np.take_along_axis(S, ids, axis=1), ids


def k_recall(returned: Ids, true: Ids, k: int) -> float:
    """Mean of |returned top k ∩ true top k| / k; −1 is nobody."""
    pairs = zip(returned.tolist(), true.tolist(), strict=True)
    return float(np.mean([len((set(r[:k]) & set(t[:k])) - {-1}) / k for r, t in pairs]))


def texmex_recall(returned: Ids, true: Ids, r: int) -> float:
    """Share of queries whose true first neighbour is among the first r returned (Jégou et al.
    2011)."""
    pairs = zip(returned.tolist(), true.tolist(), strict=True)
    return float(np.mean([t[0] != -1 and t[0] in row[:r] for row, t in pairs]))


def aska_recall(returned: Ids, true: Ids, r: int) -> float:
    """Share of queries whose first returned row is among the true first r (Davis et al. 2014,
    §3.2)."""
    pairs = zip(returned.tolist(), true.tolist(), strict=True)
    return float(np.mean([row[0] != -1 and row[0] in t[:r] for row, t in pairs]))


def tie_aware_recall(
    returned: Ids, returned_scores: Floats, true: Ids, true_scores: Floats, k: int
) -> float:
    """Mean share of k that reaches the k-th true score, or the last there is: absent never, a
    repeated id once."""
    shares = []
    for q in range(len(returned)):
        present = [
            score for i, score in zip(true[q, :k], true_scores[q, :k], strict=True) if i != -1
        ]
        good: set[int] = set()
        seen: set[int] = set()
        for i, score in zip(returned[q, :k].tolist(), returned_scores[q, :k].tolist(), strict=True):
            if i != -1 and i not in seen and present and score >= present[-1]:
                good.add(i)
            seen.add(i)
        shares.append(len(good) / k)
    return float(np.mean(shares))


def pq_scores_float32(codes: ArrayLike, tables: ArrayLike) -> NDArray[np.float32]:
    """tables[0, c₀, q] + tables[1, c₁, q] + … in float32, each sum rounded, of codes [n, M]: [nq,
    n]."""
    C, T = np.asarray(codes, np.int64), np.asarray(tables, np.float32)
    scores = np.zeros((T.shape[2], C.shape[0]), np.float32)
    for i in range(C.shape[0]):
        total = T[0, C[i, 0]].copy()
        for j in range(1, C.shape[1]):
            total += T[j, C[i, j]]
        scores[:, i] = total
    return scores


def hamming_scores(queries: ArrayLike, codes: ArrayLike, bits: int) -> NDArray[np.float32]:
    """1 − h / bits, rounded once to float32, [nq, n]; h is the number of bits in which two rows of
    bytes differ."""
    Q, C = np.asarray(queries, np.uint8), np.asarray(codes, np.uint8)
    scores = np.zeros((len(Q), len(C)), np.float32)
    for q, query in enumerate(Q):
        scores[q] = 1 - np.unpackbits(query ^ C, axis=1).sum(axis=1) / bits
    return scores


def inner_products_float32(points: ArrayLike, rows: ArrayLike) -> NDArray[np.float32]:
    """Σ_d x[d] · y[d] as [nq, n], dimensions ascending: each product added, and their sum rounded
    once to float32."""
    P, R = np.asarray(points, np.longdouble), np.asarray(rows, np.longdouble)
    scores = np.zeros((len(P), len(R)), np.float32)
    for d in range(P.shape[1]):
        scores = (scores + np.multiply.outer(P[:, d], R[:, d])).astype(np.float32)
    return scores


def l1_shares(X: ArrayLike) -> Floats:
    """Rows that sum to one: over their peaks first, for the digits of subnormal ones."""
    rows = np.ascontiguousarray(X, np.float64)
    scaled = rows / rows.max(axis=1, keepdims=True)
    shares: Floats = scaled / scaled.sum(axis=1, keepdims=True)
    return shares


def principal_components(gram: ArrayLike, count: int, least: float = 1e-6) -> tuple[Floats, Floats]:
    """The greatest eigenvalues σ² [E] of a Gram matrix and u / σ [M, E] (Bourrier et al. 2015, Eq.
    11).

    Eigenvalues not above ``least`` are zero, and so are their components; the greatest entry of a u
    is positive.
    """
    found, vectors = np.linalg.eigh(np.asarray(gram, dtype=np.float64))
    eigenvalues, components = np.zeros(count), np.zeros((len(vectors), count))
    for i in range(count):
        value, u = found[-1 - i], vectors[:, -1 - i]
        if value > least:
            eigenvalues[i] = value
            components[:, i] = u * np.sign(u[np.argmax(np.abs(u))]) / math.sqrt(value)
    return eigenvalues, components


def pq_codes(points: ArrayLike, codebooks: ArrayLike) -> Ids:
    """The nearest of the centroids [D, m, s] to each row's shares of coordinates [n, D · s], the
    first of equals."""
    P, B = np.asarray(points, np.float64), np.asarray(codebooks, np.float64)
    codes = np.zeros((len(P), len(B)), np.int64)
    for i, row in enumerate(P):
        for j, share in enumerate(np.split(row, len(B))):
            codes[i, j] = np.argmin(((B[j] - share) ** 2).sum(axis=1))
    return codes


def pq_decoded(codes: ArrayLike, codebooks: ArrayLike) -> Floats:
    """The centroids that codes name, side by side, [n, D · s]."""
    C, B = np.asarray(codes, np.int64), np.asarray(codebooks, np.float64)
    return np.concatenate([book[C[:, j]] for j, book in enumerate(B)], axis=1)


def pq_scores(points: ArrayLike, codes: ArrayLike, codebooks: ArrayLike, metric: str) -> Floats:
    """⟨x, q(y)⟩, or 1 − ‖x − q(y)‖² / 2 if ``metric`` is "distance", of points x [nq, D · s] and
    codes, [nq, n]."""
    P, decoded = np.asarray(points, np.float64), pq_decoded(codes, codebooks)
    if metric == "product":
        return P @ decoded.T
    return np.array([1 - ((decoded - x) ** 2).sum(axis=1) / 2 for x in P])


def residual_decoded(codes: ArrayLike, codebooks: ArrayLike, groups: int) -> Floats:
    """Sums of the centroids [D, 256, w] of each group that codes name, side by side."""
    C, B = np.asarray(codes, np.int64), np.asarray(codebooks, np.float64)
    size = len(B) // groups
    return np.concatenate(
        [
            sum(B[first + j][C[:, first + j]] for j in range(size))
            for first in range(0, len(B), size)
        ],
        axis=1,
    )


def residual_scores(
    points: ArrayLike, codes: ArrayLike, codebooks: ArrayLike, groups: int, metric: str
) -> Floats:
    """⟨x, ŷ⟩, or 1 − (‖x‖² − 2 ⟨x, ŷ⟩ + s) / 2, of points and codes, [nq, n]. A centroid
    [D, 256, w + 1] has a norm s behind it, which counts in the last codebook alone."""
    P, B, C = (np.asarray(each, np.float64) for each in (points, codebooks, codes))
    inner: Floats = P @ residual_decoded(codes, B[:, :, :-1], groups).T
    if metric == "product":
        return inner
    norms = B[-1, C[:, -1].astype(np.int64), -1]
    return np.asarray(1 - ((P**2).sum(axis=1)[:, None] - 2 * inner + norms) / 2)


def beam_searched(
    point: ArrayLike, books: ArrayLike, norms: ArrayLike, width: int, weight: float, others: float
) -> list[int]:
    """The code whose sum ŷ is nearest to a point, with ``width`` sums kept behind every codebook
    [M, 256, w]; the last adds ``weight`` times the squared error of ‖ŷ‖² + ``others``. The first of
    equals wins."""
    y, B, s = (np.asarray(each, np.float64) for each in (point, books, norms))
    beam: list[list[int]] = [[]]
    for level in range(len(B)):
        longer = [[*code, c] for code in beam for c in range(B.shape[1])]

        def cost(code: list[int], level: int = level) -> float:
            z = sum((B[j, c] for j, c in enumerate(code)), np.zeros(len(y)))
            left = float(((y - z) ** 2).sum())
            error = float((z**2).sum() + others - s[code[-1]])
            return left + weight * error**2 if level == len(B) - 1 else left

        beam = sorted(longer, key=cost)[:width]  # stable
    return beam[0]


def packed_signs(values: ArrayLike) -> NDArray[np.uint8]:
    """A bit for each value above zero, eight to a byte, the first in the lowest place, zeros behind
    the last."""
    V = np.asarray(values, np.float64)
    packed = np.zeros((len(V), -(-V.shape[1] // 8)), np.uint8)
    for b in range(V.shape[1]):
        packed[:, b // 8] += np.uint8(1 << b % 8) * (V[:, b] > 0).astype(np.uint8)
    return packed


def byte_dots(rows: ArrayLike, codes: ArrayLike, *, minimum: bool) -> NDArray[np.int64]:
    """Σ x y, or Σ min(x, y), of rows of bytes, [n, nq]."""
    X, Y = np.asarray(rows, np.int64), np.asarray(codes, np.int64)
    return np.minimum(X[:, None], Y).sum(axis=2) if minimum else X @ Y.T


def byte_bounds(
    dots: ArrayLike,
    numbers: ArrayLike,
    step: ArrayLike,
    const: ArrayLike,
    factors: ArrayLike,
    over: ArrayLike | None,
) -> NDArray[np.float32]:
    """((dot · scale) · step + const) + a₀ b₀ + … + min(over, over), [n, nq]; · scale and each +
    round to float32.

    ``numbers`` [n, 1 + J (+ 1)] are scale, a₀ … and, with ``over`` [nq], the rows' own; ``factors``
    [J, nq] are b₀ …
    """
    N, B = np.asarray(numbers, np.longdouble), np.asarray(factors, np.longdouble)
    scaled = (np.asarray(dots).astype(np.float32) * N[:, :1]).astype(np.float32)
    bounds = (scaled * np.asarray(step, np.longdouble) + np.asarray(const, np.float32)).astype(
        np.float32
    )
    for j in range(len(B)):
        bounds = (bounds + np.multiply.outer(N[:, 1 + j], B[j])).astype(np.float32)
    if over is not None:
        bounds += np.minimum(N[:, -1:], np.asarray(over)).astype(np.float32)
    return bounds


def merging_costs(X: ArrayLike, Y: ArrayLike) -> Floats:
    """What merging bins i and j adds to Σ min(x, y) of pairs of rows [p, g] on average, [g, g]."""
    first, second = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    costs = np.zeros((first.shape[1], first.shape[1]))
    for i, j in np.ndindex(costs.shape):
        apart = np.minimum(first[:, i], second[:, i]) + np.minimum(first[:, j], second[:, j])
        costs[i, j] = (
            np.minimum(first[:, i] + first[:, j], second[:, i] + second[:, j]) - apart
        ).mean()
    return costs


def projected(scores: NDArray[np.float64], projection: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores [n, M] times a projection [M, E], a landmark after the other."""
    out = np.zeros((len(scores), projection.shape[1]))
    for landmark, line in enumerate(projection):
        out += scores[:, landmark : landmark + 1] * line
    return out
