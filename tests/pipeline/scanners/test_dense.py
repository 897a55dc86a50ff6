"""The dense scanner: float32 inner products whose bits depend on row and query alone, ties to the
lower row."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.scanners.dense import DenseScanner, float32_rows
from mercore.pipeline.topk import TopK
from mercore.testing.rows import steady
from tests.independent import reference
from tests.pipeline.test_jitted import compiled

Floats = NDArray[np.floating[Any]]
BATCHES, DIMENSIONS = (1, 2, 6, 7, 16, 17, 64, 65), (1, 2, 3, 15, 16, 17, 40, 96)
ROWS = st.sampled_from((0, 1, 9, 16, 17, 255, 256, 300, 900))


def made_rows(n: int, d: int, *, whole: bool, seed: int) -> Floats:
    """Small whole numbers, so that scores tie; or any."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (n, d)) if whole else rng.normal(size=(n, d))
    return rows.astype(np.float32)


def scanned(
    scanner: DenseScanner, rows: Floats, bounds: Sequence[tuple[int, int]], nq: int, k: int
) -> TopK:
    """Scan parts in the order given into one list; row 0 of the store is row 1000."""
    best = TopK(nq, k, np.float32)
    for first, last in bounds:
        scanner.scan({"point": rows[first:last]}, 1000 + first, best)
    return TopK.merge([best])


def parts_of(n: int, parts: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, n, parts + 1).astype(int).tolist()
    return list(pairwise(edges))


def check(found: TopK, points: Floats, rows: Floats) -> None:
    """All that a list holds, to the bit."""
    scores, ids = reference.top_k(
        reference.inner_products_float32(points, rows), found.ids.shape[1]
    )
    held = ids.shape[1]
    np.testing.assert_array_equal(found.ids[:, :held], ids + 1000)
    np.testing.assert_array_equal(found.scores[:, :held], scores)
    assert (found.ids[:, held:] == -1).all()
    assert np.isneginf(found.scores[:, held:]).all()


@compiled
@steady(80)
@given(
    n=ROWS,
    d=st.sampled_from(DIMENSIONS),
    nq=st.sampled_from(BATCHES),
    k=st.sampled_from((1, 8, 40)),
    dtype=st.sampled_from(("float16", "float32")),
    whole=st.booleans(),
    parts=st.integers(1, 4),
    seed=st.integers(0, 99),
)
@pytest.mark.promise("Filtered scans of codes give the ids and scores of plain float32 scans")
def test_scans_keep_what_the_slow_truth_keeps(
    n: int, d: int, nq: int, k: int, dtype: str, whole: bool, parts: int, seed: int
) -> None:
    rows = made_rows(n, d, whole=whole, seed=seed).astype(dtype)
    points = made_rows(nq, d, whole=whole, seed=seed + 1).astype(np.float32)
    bounds = parts_of(n, parts)
    np.random.default_rng(seed).shuffle(bounds)
    check(scanned(DenseScanner(points, "point"), rows, bounds, nq, k), points, rows)


@compiled
@pytest.mark.parametrize("nq", [1, 20])
def test_a_list_takes_an_earlier_row_of_equal_score_whatever_the_order_of_parts(nq: int) -> None:
    rows, points = np.ones((20_000, 3), np.float32), np.ones((nq, 3), np.float32)
    bounds = parts_of(len(rows), 5)
    for order in (bounds, bounds[::-1], [bounds[i] for i in (2, 4, 0, 3, 1)]):
        found = scanned(DenseScanner(points, "point"), rows, order, nq, 70)
        assert (found.scores == 3).all()
        np.testing.assert_array_equal(found.ids, np.tile(np.arange(1000, 1070), (nq, 1)))


@compiled
@pytest.mark.parametrize("nq", [1, 17])
def test_threads_share_a_scanner(nq: int) -> None:
    rows, points = (
        made_rows(count, 24, whole=False, seed=5).astype(np.float32) for count in (30_000, nq)
    )
    scanner, bounds = DenseScanner(points, "point"), parts_of(30_000, 8)
    with ThreadPoolExecutor(4) as pool:
        lists = list(
            pool.map(lambda share: scanned(scanner, rows, bounds[share::4], nq, 30), range(4))
        )
    check(TopK.merge(lists), points, rows)


@compiled
def test_a_score_has_the_same_bits_in_every_batch() -> None:
    rows, points = (
        made_rows(3000, 33, whole=False, seed=1),
        made_rows(70, 33, whole=False, seed=2).astype(np.float32),
    )
    together = scanned(DenseScanner(points, "point"), rows, [(0, 3000)], 70, 20)
    for width in (1, 5, 16, 64):
        for start in (0, 3):
            some = slice(start, start + width)
            found = scanned(
                DenseScanner(points[some], "point"), rows, [(0, 999), (999, 3000)], width, 20
            )
            np.testing.assert_array_equal(found.ids, together.ids[some])
            np.testing.assert_array_equal(found.scores, together.scores[some])


def test_every_float16_is_widened_as_numpy_widens_it() -> None:
    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16).reshape(-1, 16)
    with np.errstate(over="ignore"):
        found = float32_rows(halves)
    with np.errstate(invalid="ignore"):
        expected = halves.astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_it_reads_the_column_it_was_given() -> None:
    assert DenseScanner(np.ones((2, 3), np.float32), "embedding").names == ("embedding",)
