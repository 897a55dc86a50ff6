"""Codebooks of residual quantisation: how they are learned, and how they encode points.

ŷ is the sum of M centroids (Chen, Guan & Wang 2010), which a beam search finds, as in Babenko &
Lempitsky 2014. ‖x − ŷ‖² needs ‖ŷ‖², which is no sum over centroids. So the last byte of a code
names a centroid and a norm ‖ŷ‖² at once: one of 256 pairs, which k-means finds. Where the last
centroids are tiny, in long codes, it names little but the norm.
"""

import multiprocessing
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.codebooks import CENTROIDS, find_centroids, on_threads

Codes = NDArray[np.uint8]

BLOCK = 64  # rows whose products with all centroids are computed at once
WIDTH = 16  # sums that the beam keeps while rows are encoded
LEARNING_WIDTH = 5  # the same while codebooks are learned
MAX_RESIDUALS = 1 << 16  # of those that the beam leaves: a codebook is learned from them
ROUNDS = 8  # of codes and least squares in turn
WEIGHT = 64.0  # of a squared error of ‖ŷ‖², beside squared distances: by the variance of points
RIDGE = 1e-2  # rows that hold a centroid where it is


class ResidualGroup:
    """A residual quantiser of the coordinates of a group.

    Parameters
    ----------
    books : float32[M, 256, w], the centroids
    norms : float32[256], ‖ŷ‖² of all groups that the last centroids stand for, if they do
    weight : of a squared error of ‖ŷ‖² beside squared distances
    """

    def __init__(self, books: Float32, norms: Float32 | None = None, weight: float = 0.0) -> None:
        from mercore.pipeline.kernels.blocks import pack_products, products

        flat = np.ascontiguousarray(books.reshape(-1, books.shape[2]))
        self._products, self._packed = products, pack_products(np.ascontiguousarray(flat.T))
        halves = np.square(flat, dtype=np.float64).sum(axis=1) / 2
        self._halves = halves.astype(np.float32)
        self._norms = np.zeros(CENTROIDS, np.float32) if norms is None else norms / np.float32(2)
        earlier = [
            products(flat[: level * CENTROIDS], pack_products(np.ascontiguousarray(book.T)))
            for level, book in enumerate(books)
            if level
        ]
        self._cross = np.concatenate([np.zeros(0, np.float32), *(each.ravel() for each in earlier)])
        self._weight = np.float32(2 * weight)  # of gains and half norms, halves of both

    def encode(self, points: Float32, code: Codes, halves: Float32, *, width: int = WIDTH) -> None:
        """Set ``code`` uint8[n, kept, M], and add ‖ŷ‖² / 2 to ``halves`` float32[n]."""
        from mercore.pipeline.encoders.residual.beam_numba import search

        tables = self._halves, self._norms, self._cross
        for start in range(0, len(points), BLOCK):
            block = slice(start, start + BLOCK)
            inner = self._products(np.ascontiguousarray(points[block]), self._packed)
            search(inner.reshape(-1), *tables, width, self._weight, code[block], halves[block])


class ResidualBooks:
    """Residual quantisers of groups of coordinates, one behind another.

    Parameters
    ----------
    books : float32[D, 256, w], the centroids of one group after another
    norms : float32[256], ‖ŷ‖² that the last centroids stand for, if they do
    groups : their number
    """

    def __init__(self, books: Float32, norms: Float32 | None, groups: int) -> None:
        *others, last = np.split(books, groups)
        weight = 0.0 if norms is None else norm_weight(books)
        self._groups = [*map(ResidualGroup, others), ResidualGroup(last, norms, weight)]

    def assign(self, points: Float32, code: Codes) -> None:
        """Set ``code`` uint8[b, D] of ``points`` float32[b, E]."""
        halves, count = np.zeros(len(points), np.float32), len(self._groups)
        parts = np.split(points, count, axis=1), np.split(code, count, axis=1)
        for group, coordinates, part in zip(self._groups, *parts, strict=True):
            found = np.empty((len(points), 1, part.shape[1]), np.uint8)
            group.encode(coordinates, found, halves)
            part[:] = found[:, 0]


def learn_residual_books(
    sample: Float32, count: int, groups: int, random_state: int, *, by_distance: bool
) -> Float32:
    """Return ``count`` codebooks, float32[count · 256, E / groups + 1]: centroids, then norms.

    Only the last codebook has norms, and only if codes rank by distance. Threads share the groups
    out; each group is learned on one thread.
    """
    parts = [np.ascontiguousarray(part) for part in np.split(sample, groups, axis=1)]
    size = count // groups
    sizes = [size] * (groups - 1) + [size - by_distance]
    seeds = range(random_state, random_state + count, size)
    learned = on_threads(_learn_group, parts, sizes, seeds)
    norms = np.zeros((count, CENTROIDS, 1), np.float32)
    if by_distance:
        (last,) = on_threads(_learn_last, [(parts, learned)], [random_state + count - 1])
        learned.append(last[None, :, :-1])
        norms[-1] = last[:, -1:]
    return np.concatenate([np.concatenate(learned), norms], axis=2).reshape(count * CENTROIDS, -1)


def learning_bytes(rows: int, count: int, groups: int, width: int) -> int:
    """Return the bytes that learning from ``rows`` points of ``width`` coordinates takes."""
    size, threads = count // groups, min(groups, multiprocessing.cpu_count())
    codes = 8 * LEARNING_WIDTH * rows * size
    return threads * (12 * (CENTROIDS * size) ** 2 + codes) + 24 * MAX_RESIDUALS * width


def encoding_bytes(count: int, groups: int, width: int) -> int:
    """Return the bytes of codebooks, of products of centroids, and of a block of each thread."""
    size = count // groups
    block = 4 * BLOCK * CENTROIDS * size * multiprocessing.cpu_count()
    return 2 * CENTROIDS**2 * size * count + 24 * CENTROIDS * size * width + block


def norm_weight(books: Float32) -> float:
    """Return the weight of a squared error of ‖ŷ‖²: centroids vary about as points do."""
    variance = float(books.astype(np.float64).var(axis=1).sum())
    return WEIGHT / max(variance, float(np.finfo(np.float32).tiny))


def _learn_group(points: Float32, size: int, random_state: int) -> Float32:
    """Return the codebooks of a group, float32[size, 256, w]."""
    rng = np.random.default_rng(random_state)
    books, left = np.empty((0, CENTROIDS, points.shape[1]), np.float32), points
    for level in range(size):
        books = np.concatenate([books, find_centroids(left, random_state + level)[None]])
        left = _residuals(points, books, rng) if level < size - 1 else left
    for _ in range(ROUNDS if size > 1 else 0):
        books = _fitted(_codes(points, books)[:, 0], points, books)
    return books


def _learn_last(learned: tuple[list[Float32], list[Float32]], random_state: int) -> Float32:
    """Return the last codebook of the last group, its centroids with norms, float32[256, w + 1].

    ``learned`` are the points of groups, and their codebooks so far.
    """
    parts, books = learned
    sums = [_decoded(_codes(*each)[:, 0], each[1]) for each in zip(parts, books, strict=True)]
    squares = [np.square(each, dtype=np.float64).sum(axis=1) for each in sums]
    weight = norm_weight(np.concatenate(books))
    scale, left = np.sqrt(weight), parts[-1] - sums[-1]
    pairs = np.column_stack([left, scale * sum(squares)]).astype(np.float32)
    last = find_centroids(pairs, random_state)
    last[:, -1] /= scale
    for _ in range(ROUNDS):
        every = np.concatenate([books[-1], last[None, :, :-1]])
        halves = (sum(squares[:-1], np.zeros(len(left))) / 2).astype(np.float32)
        code = np.empty((len(left), 1, len(every)), np.uint8)
        group = ResidualGroup(every, np.ascontiguousarray(last[:, -1]), weight)
        group.encode(parts[-1], code, halves, width=LEARNING_WIDTH)
        left = parts[-1] - _decoded(code[:, 0, :-1], books[-1])
        pairs = np.column_stack([left, 2 * halves])
        last = _fitted(code[:, 0, -1:], pairs, last[None])[0]
    return last


def _codes(points: Float32, books: Float32, kept: int = 1) -> Codes:
    """Return the codes of points, the best first, uint8[n, kept, M]."""
    code = np.zeros((len(points), kept, len(books)), np.uint8)
    if len(books):
        halves = np.zeros(len(points), np.float32)
        ResidualGroup(books).encode(points, code, halves, width=LEARNING_WIDTH)
    return code


def _residuals(points: Float32, books: Float32, rng: np.random.Generator) -> Float32:
    """Return differences of points and the sums that their beams keep, drawn from all of these."""
    code = _codes(points, books, LEARNING_WIDTH)
    drawn = rng.permutation(len(points) * LEARNING_WIDTH)[:MAX_RESIDUALS]
    rows, sums = np.divmod(drawn, LEARNING_WIDTH)
    return points[rows] - _decoded(code[rows, sums], books)


def _decoded(code: Codes, books: Float32) -> Float32:
    """Return sums of centroids, float32[n, w]."""
    decoded = np.zeros((len(code), books.shape[2]), np.float32)
    for book, part in zip(books, code.T, strict=True):
        decoded += book[part]
    return decoded


def _fitted(code: Codes, values: Float32, start: Float32) -> Float32:
    """Return codebooks [M, 256, w] whose sums are nearest to ``values`` [n, w].

    A few rows of each centroid's own hold it at ``start``: centroids of no row stay there.
    """
    from scipy.linalg import solve

    size, flat = code.shape[1], start.reshape(-1, start.shape[2]).astype(np.float64)
    gram, right = np.empty((size, CENTROIDS, size, CENTROIDS)), RIDGE * flat
    at = code.astype(np.int64)
    for i, j in product(range(size), repeat=2):
        pairs = np.bincount(at[:, i] * CENTROIDS + at[:, j], minlength=CENTROIDS**2)
        gram[i, :, j] = pairs.reshape(CENTROIDS, CENTROIDS)
    for book, part in zip(right.reshape(start.shape), at.T, strict=True):
        np.add.at(book, part, values)
    square = gram.reshape(len(right), -1)
    square[np.diag_indices(len(square))] += RIDGE
    fitted = solve(square.T, right, assume_a="pos", overwrite_a=True)
    return np.asarray(fitted, np.float32).reshape(start.shape)
