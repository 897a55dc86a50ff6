"""Product quantisation: the nearest of 256 centroids for each share of a row's coordinates."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.aligned import aligned
from mercore.pipeline.simd.selection import greatest_of, least_of, where_attains, where_greater
from mercore.pipeline.simd.vectors import FLOAT32, load_float32, multiply_add, splat_float32

Singles = NDArray[np.float32]

CENTROIDS = 256
LANES = np.uint64(FLOAT32.count)
PAIR, THREE = np.uint64(2) * LANES, np.uint64(3) * LANES
TILE = np.uint64(4) * LANES  # centroids per step: their products with four rows stay in registers
NUMBERS = np.arange(FLOAT32.count, dtype=np.float32)
NO_CENTROID = np.float32(1 << 20)


def lay_out_codebooks(codebooks: Singles) -> Singles:
    """Return codebooks [D, 256, s] for ``assign``: −‖c‖²/2, then a line per coordinate, flat."""
    count, _, width = codebooks.shape
    out = aligned((count, width + 1, CENTROIDS), np.float32)
    with np.errstate(over="ignore"):  # −∞: codes of such rows are poor, and e says how poor
        out[:, 0] = np.square(codebooks, dtype=np.float64).sum(axis=2) / -2
    out[:, 1:] = codebooks.transpose(0, 2, 1)
    return out.reshape(-1)


@jit
def one_table(
    books: NDArray[np.float64],
    columns: NDArray[np.float64],
    norms: NDArray[np.float64],
    squares: NDArray[np.float64],
    metric: tuple[bool, bool],
    out: Singles,
) -> None:
    """Set ``out`` [D, 256] to the terms of the score of one query: see ``Pq.tables``.

    Parameters
    ----------
    books : [s, D, 256], the codebooks by coordinate
    columns : [s, D], the query's coordinates that meet each codebook
    norms : [D, 256], ‖c‖²
    squares : [D], the query's share of ‖x‖²/2
    metric : whether scores are of distances, and whether these are of raw rows
    """
    distance, raw = metric
    sums = np.empty(CENTROIDS)
    for j in range(books.shape[1]):
        book, factor = books[0, j], columns[0, j]
        for c in range(CENTROIDS):
            sums[c] = book[c] * factor
        for i in range(1, books.shape[0]):
            book, factor = books[i, j], columns[i, j]
            for c in range(CENTROIDS):
                sums[c] += book[c] * factor
        if distance:
            for c in range(CENTROIDS):
                sums[c] = sums[c] - norms[j, c] / 2 - squares[j]
        if distance and raw:
            for c in range(CENTROIDS):
                sums[c] *= 2
        elif distance and j == 0:
            for c in range(CENTROIDS):
                sums[c] += 1
        out[j] = sums


@jit(inline="always")
def tile_of(books: Singles, at: np.uint64) -> Any:
    """Return 64 neighbouring entries, four vectors."""
    return (
        load_float32(books, at),
        load_float32(books, at + LANES),
        load_float32(books, at + PAIR),
        load_float32(books, at + THREE),
    )


@jit(inline="always")
def added(sums: Any, x: np.float32, entries: Any) -> Any:
    """Return ``sums`` + x · ``entries``, four vectors each."""
    factor = splat_float32(x)
    return (
        multiply_add(factor, entries[0], sums[0]),
        multiply_add(factor, entries[1], sums[1]),
        multiply_add(factor, entries[2], sums[2]),
        multiply_add(factor, entries[3], sums[3]),
    )


@jit(inline="always")
def raise_best(best: Any, sums: Any, first: np.float32) -> Any:
    """Update each lane's greatest sum and its vector's number by four vectors from ``first`` on."""
    best = greater(best, sums[0], first)
    best = greater(best, sums[1], first + np.float32(1))
    best = greater(best, sums[2], first + np.float32(2))
    return greater(best, sums[3], first + np.float32(3))


@jit(inline="always")
def greater(best: Any, sums: Any, number: np.float32) -> Any:
    """Update each lane's greatest sum and its vector's number by one vector."""
    value, where = best
    return where_greater(sums, value, sums, value), where_greater(
        sums, value, splat_float32(number), where
    )


@jit(inline="always")
def first_greatest(best: Any, lanes: Any) -> np.uint8:
    """Return the centroid with the greatest sum, the first of equals."""
    value, number = best
    centroid = multiply_add(number, splat_float32(np.float32(LANES)), lanes)
    peak = splat_float32(greatest_of(value))
    return np.uint8(
        np.int64(least_of(where_attains(value, peak, centroid, splat_float32(NO_CENTROID))))
    )


@jit
def assign(points: Singles, books: Singles, code: NDArray[np.uint8]) -> None:
    """Set ``code`` [b, D] to centroids c of greatest ⟨y, c⟩ − ‖c‖²/2 for shares y of ``points``.

    ``points`` [b, E]; ``books`` from ``lay_out_codebooks``. Sums run over the coordinates of a
    share in order, in every block.
    """
    n, count = code.shape
    width, flat = np.uint64(points.shape[1] // count), points.reshape(-1)
    lanes, start = load_float32(NUMBERS, 0), splat_float32(np.float32(-np.inf))
    stride, size = np.uint64(points.shape[1]), np.uint64(CENTROIDS)
    for j in range(np.uint64(count)):
        book = j * (width + np.uint64(1)) * size
        for i in range(0, n, 4):
            rows = (i, min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1))  # the last repeats
            a = np.uint64(rows[0]) * stride + j * width
            b = np.uint64(rows[1]) * stride + j * width
            c = np.uint64(rows[2]) * stride + j * width
            d = np.uint64(rows[3]) * stride + j * width
            best_a, best_b, best_c, best_d = (
                (start, start),
                (start, start),
                (start, start),
                (start, start),
            )
            for tile in range(np.uint64(0), size, TILE):
                at = book + tile
                sums_a = sums_b = sums_c = sums_d = tile_of(books, at)
                for s in range(width):
                    entries = tile_of(books, at + (s + np.uint64(1)) * size)
                    sums_a = added(sums_a, flat[a + s], entries)
                    sums_b = added(sums_b, flat[b + s], entries)
                    sums_c = added(sums_c, flat[c + s], entries)
                    sums_d = added(sums_d, flat[d + s], entries)
                first = np.float32(np.int64(tile // LANES))
                best_a, best_b = (
                    raise_best(best_a, sums_a, first),
                    raise_best(best_b, sums_b, first),
                )
                best_c, best_d = (
                    raise_best(best_c, sums_c, first),
                    raise_best(best_d, sums_d, first),
                )
            code[rows[0], j] = first_greatest(best_a, lanes)
            code[rows[1], j] = first_greatest(best_b, lanes)
            code[rows[2], j] = first_greatest(best_c, lanes)
            code[rows[3], j] = first_greatest(best_d, lanes)
