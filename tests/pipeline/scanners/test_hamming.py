"""The Hamming scanner: scores to the bit and ids as the slow truth has them, in whatever order
parts come."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.scanners.hamming import HammingScanner, whole_words
from mercore.pipeline.topk import TopK
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from tests.independent import reference
from tests.pipeline.test_jitted import compiled
from tests.support.processors import assert_passed_on

Codes = NDArray[np.uint8]
WIDTHS, BATCHES = (1, 2, 8, 9, 32, 38, 64), (1, 3, 5, 16, 17, 64, 65)
ROWS = st.sampled_from((0, 1, 4, 7, 8, 9, 255, 256, 257, 300, 1200, 5000))


def made_codes(n: int, width: int, unused: int, *, distinct: int, seed: int) -> Codes:
    """Rows of bytes whose last ``unused`` bits are zero; so few are distinct that distances tie."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (distinct, width), dtype=np.uint8)
    codes[:, -1] &= np.uint8(255 >> unused)
    return codes[rng.integers(0, distinct, n)]


def scanned(
    scanner: HammingScanner, codes: Codes, bounds: Sequence[tuple[int, int]], nq: int, k: int
) -> TopK:
    """Scan parts in the order given into one list; row 0 of the store is row 1000."""
    best = TopK(nq, k, np.float32)
    for first, last in bounds:
        scanner.scan({"code": codes[first:last]}, 1000 + first, best)
    return TopK.merge([best])


def parts_of(n: int, parts: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, n, parts + 1).astype(int).tolist()
    return list(pairwise(edges))


def check(found: TopK, queries: Codes, codes: Codes, bits: int) -> None:
    """All that a list holds, to the bit."""
    k = found.ids.shape[1]
    scores, ids = reference.top_k(reference.hamming_scores(queries, codes, bits), k)
    held = ids.shape[1]
    np.testing.assert_array_equal(found.ids[:, :held], ids + 1000)
    np.testing.assert_array_equal(
        found.scores[:, :held].view(np.int32), scores.astype(np.float32).view(np.int32)
    )
    assert (found.ids[:, held:] == -1).all()
    assert np.isneginf(found.scores[:, held:]).all()


@compiled
@steady(150)
@given(
    n=ROWS,
    width=st.sampled_from(WIDTHS),
    nq=st.sampled_from(BATCHES),
    k=st.sampled_from((1, 2, 8, 100)),
    distinct=st.sampled_from((1, 3, 1000)),
    unused=st.integers(0, 7),
    parts=st.integers(1, 4),
    seed=st.integers(0, 99),
)
@pytest.mark.promise("Filtered scans of codes give the ids and scores of plain float32 scans")
def test_scans_keep_what_the_slow_truth_keeps(
    n: int, width: int, nq: int, k: int, distinct: int, unused: int, parts: int, seed: int
) -> None:
    codes = made_codes(n, width, unused, distinct=distinct, seed=seed)
    queries = made_codes(
        nq, width, unused, distinct=distinct, seed=seed + seed % 2
    )  # the rows themselves, or others
    bits = 8 * width - unused
    bounds = parts_of(n, parts)
    np.random.default_rng(seed).shuffle(bounds)
    check(scanned(HammingScanner(queries, bits), codes, bounds, nq, k), queries, codes, bits)


@compiled
@loop_over("width", WIDTHS)
@loop_over("nq", [1, 9])
def test_a_part_too_few_and_just_enough(width: int, nq: int) -> None:
    codes, queries = (made_codes(count, width, 0, distinct=50, seed=width) for count in (18, nq))
    for n in (0, 1, 16, 17, 18):
        check(
            scanned(HammingScanner(queries, 8 * width), codes[:n], [(0, n)], nq, 17),
            queries,
            codes[:n],
            8 * width,
        )


@compiled
@pytest.mark.parametrize("nq", [1, 65])
@pytest.mark.parametrize("width", [32, 38])
def test_a_list_takes_an_earlier_row_of_equal_score_whatever_the_order_of_parts(
    width: int, nq: int
) -> None:
    codes, queries = np.zeros((40_000, width), np.uint8), np.full((nq, width), 3, np.uint8)
    bounds = parts_of(len(codes), 5)
    for order in (bounds, bounds[::-1], [bounds[i] for i in (2, 4, 0, 3, 1)]):
        found = scanned(HammingScanner(queries, 8 * width), codes, order, nq, 70)
        assert (found.scores == np.float32(0.75)).all()
        np.testing.assert_array_equal(found.ids, np.tile(np.arange(1000, 1070), (nq, 1)))


@compiled
@pytest.mark.parametrize("nq", [1, 17])
def test_threads_share_a_scanner(nq: int) -> None:
    codes, queries = (made_codes(count, 38, 4, distinct=3000, seed=5) for count in (60_000, nq))
    scanner, bounds = HammingScanner(queries, 300), parts_of(60_000, 8)
    with ThreadPoolExecutor(4) as pool:
        lists = list(
            pool.map(lambda share: scanned(scanner, codes, bounds[share::4], nq, 30), range(4))
        )
    check(TopK.merge(lists), queries, codes, 300)


@compiled
def test_codes_at_an_odd_address_are_scanned_too() -> None:
    room = np.zeros(32 * 500 + 1, np.uint8)
    codes = room[1:].reshape(500, 32)
    codes[:] = made_codes(500, 32, 0, distinct=500, seed=1)
    queries = made_codes(3, 32, 0, distinct=3, seed=2)
    check(scanned(HammingScanner(queries, 256), codes, [(0, 500)], 3, 10), queries, codes, 256)


@compiled
@loop_over("width", [1, 3, 7, 9, 38, 63, 65, 100])
def test_rows_are_padded_to_whole_words(width: int) -> None:
    codes = made_codes(20_000, width, 0, distinct=20_000, seed=width)
    expected = np.zeros((len(codes), -(-width // 8) * 8), np.uint8)
    expected[:, :width] = codes
    found = np.concatenate([words.copy() for words in whole_words(codes)])
    np.testing.assert_array_equal(found, expected.view(np.uint64).reshape(-1))


def test_whole_words_are_not_copied() -> None:
    codes = made_codes(100, 16, 0, distinct=100, seed=0)
    (words,) = whole_words(codes)
    assert np.shares_memory(words, codes)


@pytest.mark.soak
@compiled
@pytest.mark.parametrize(("cpu", "features"), [("x86-64", ""), ("haswell", "+avx2")])
def test_builds_for_lesser_processors_find_the_same(cpu: str, features: str) -> None:
    """The same in a process whose code is made for a processor that counts no bits in vectors, or
    has none so wide."""
    assert_passed_on(cpu, features, __file__, "test_threads_share_a_scanner")
