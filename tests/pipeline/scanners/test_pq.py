"""The product-quantisation scanner: the float32 scores of the slow truth, to the bit, whatever the
filter dismisses."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.scanners import pq
from mercore.pipeline.scanners.pq import One, PqScanner
from mercore.pipeline.simd.lookups import ROW_OF_BYTE, ROW_OF_BYTE_OF_TWO
from mercore.pipeline.topk import TopK
from mercore.stores.errors import InputError, ShapeError
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from tests.independent import reference
from tests.support.processors import assert_passed_on

Codes = NDArray[np.uint8]
Tables = NDArray[np.float32]

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("NUMBA_DISABLE_JIT")),
    reason="vector instructions exist in compiled code only",
)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter is to begin after some rows, where it would let a plain loop do thousands."""
    monkeypatch.setattr(pq, "FIRST_ROWS", 16)


def made_codes(n: int, M: int, *, distinct: int, seed: int) -> Codes:
    """Codes of which only some values are taken: the fewer, the more rows tie."""
    return np.random.default_rng(seed).integers(0, distinct, (n, M)).astype(np.uint8)


def made_tables(M: int, nq: int, style: str, *, seed: int) -> Tables:
    rng = np.random.default_rng(seed)
    tables = rng.standard_normal((M, 256, nq))
    if style == "distances":
        tables = -(tables**2)
    elif (
        style == "wild"
    ):  # from subnormal to huge, some zero, each sub-quantizer and query at its own scale
        tables *= 10.0 ** rng.uniform(-44, 32, (M, 1, nq)) * (rng.random((M, 256, 1)) > 0.1)
    elif style == "far":  # what differs is as small as what float32 rounds
        tables = 1000 + tables * 1e-3
    elif style == "whole":
        tables = np.rint(tables)
    elif style == "flat":
        tables = np.broadcast_to(rng.choice([-1.5, 0.0, 2.5], (M, 1, nq)), tables.shape)
    return np.ascontiguousarray(tables, np.float32)


STYLES = ("normal", "distances", "wild", "far", "whole", "flat")


def scanned(codes: Codes, tables: Tables, k: int, parts: int = 1) -> TopK:
    """The best, parts one after another."""
    scanner, best = PqScanner(tables), TopK(tables.shape[2], k, np.float32)
    for first, last in parts_of(len(codes), parts):
        scanner.scan({"code": codes[first:last]}, first, best)
    return TopK.merge([best])


def parts_of(n: int, parts: int) -> Iterator[tuple[int, int]]:
    return pairwise(np.linspace(0, n, parts + 1).astype(int).tolist())


def same_as_the_truth(found: TopK, codes: Codes, tables: Tables) -> None:
    k, n = found.ids.shape[1], len(codes)
    scores, ids = reference.top_k(reference.pq_scores_float32(codes, tables), min(k, n))
    np.testing.assert_array_equal(found.ids[:, :n], ids)
    np.testing.assert_array_equal(found.scores[:, :n], scores)
    assert (found.ids[:, n:] == -1).all()
    assert np.isneginf(found.scores[:, n:]).all()


def same(found: TopK, expected: TopK) -> None:
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.usefixtures("early")
@steady(150)
@given(
    n=st.integers(0, 900),
    M=st.sampled_from([1, 2, 3, 7, 8, 9, 16, 24, 33]),
    nq=st.sampled_from([1, 3, 5, 32, 33, 64, 65, 130]),
    k=st.integers(1, 20),
    style=st.sampled_from(STYLES),
    distinct=st.sampled_from([1, 3, 256]),
    parts=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_scans_equal_the_slow_truth(
    n: int, M: int, nq: int, k: int, style: str, distinct: int, parts: int, seed: int
) -> None:
    codes, tables = (
        made_codes(n, M, distinct=distinct, seed=seed),
        made_tables(M, nq, style, seed=seed),
    )
    same_as_the_truth(scanned(codes, tables, k, parts), codes, tables)


@pytest.mark.usefixtures("early")
@loop_over("n", [0, 1, 9, 10, 63, 64, 65, 129])
@loop_over("nq", [1, 4])
def test_few_rows(n: int, nq: int) -> None:
    codes, tables = made_codes(n, 8, distinct=9, seed=n), made_tables(8, nq, "normal", seed=n)
    same_as_the_truth(scanned(codes, tables, 10, 2), codes, tables)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("M", [128, 256])
def test_long_codes(M: int) -> None:
    codes, tables = made_codes(700, M, distinct=256, seed=M), made_tables(M, 6, "normal", seed=M)
    same_as_the_truth(scanned(codes, tables, 5), codes, tables)
    same_as_the_truth(scanned(codes, tables[:, :, :1], 5), codes, tables[:, :, :1])


@loop_over("M", [4, 8, 16, 32])
@pytest.mark.parametrize("style", ["normal", "distances", "far"])
@pytest.mark.promise("Filtered scans of codes give the ids and scores of plain float32 scans")
def test_the_filter_dismisses_rows_and_never_a_hit(
    M: int, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, k = 200_000, 20
    codes, tables = made_codes(n, M, distinct=256, seed=M), made_tables(M, 66, style, seed=M)
    filtered = scanned(codes, tables, k)
    most = (
        0.02 if style != "far" else 0.05 if M <= 8 else 1
    )  # of what float32 rounds, sixteen codes leave nothing over
    assert filtered.rescored < 66 * n * most
    same(scanned(codes, tables, k, parts=3), filtered)
    monkeypatch.setattr(pq, "FIRST_ROWS", n + 1)
    plain = scanned(codes, tables, k)
    assert plain.rescored == 0
    same(filtered, plain)


@pytest.mark.parametrize("M", [8, 16, 24])
def test_one_query_is_filtered_where_bytes_are_looked_up(M: int) -> None:
    codes, tables = (
        made_codes(200_000, M, distinct=256, seed=3),
        made_tables(M, 1, "distances", seed=3),
    )
    filtering, plain, best, expected = (
        PqScanner(tables),
        PqScanner(tables),
        *(TopK(1, 20, np.float32) for _ in "ab"),
    )
    (one,), (other,) = filtering.groups, plain.groups
    assert isinstance(one, One)
    one.filters, other.filters = True, False  # whatever this processor does best
    filtering.scan({"code": codes}, 0, best)
    plain.scan({"code": codes}, 0, expected)
    same(best, expected)
    assert 20 < best.rescored < 4000


def test_what_is_rescored_is_little_more_than_what_must_be() -> None:
    codes, tables = (
        made_codes(200_000, 8, distinct=256, seed=1),
        made_tables(8, 64, "distances", seed=1),
    )
    best = scanned(codes[:100_000], tables, 100)
    scanner, before = PqScanner(tables), best.kth.copy()
    best.rescored = 0
    scanner.scan({"code": codes[100_000:]}, 100_000, best)
    scores = sum(tables[j][codes[100_000:, j]] for j in range(8))
    assert best.rescored < 2 * (scores >= before).sum()


def test_many_ties() -> None:
    codes = np.concatenate([made_codes(1000, 8, distinct=256, seed=4)] * 100)
    tables = made_tables(8, 70, "normal", seed=4)
    best = scanned(codes, tables, 50, parts=7)
    assert (np.diff(best.ids) == 1000).all()  # one row's copies, lower ids first


def test_parts_may_come_in_any_order_and_threads_share_a_scanner() -> None:
    codes, tables = made_codes(150_000, 8, distinct=40, seed=5), made_tables(8, 67, "whole", seed=5)
    scanner, parts = PqScanner(tables), list(parts_of(len(codes), 8))

    def work(share: int) -> TopK:
        best = TopK(67, 30, np.float32)
        for first, last in reversed(parts[share::4]):
            scanner.scan({"code": codes[first:last]}, first, best)
        return best

    with ThreadPoolExecutor(4) as pool:
        found = TopK.merge(list(pool.map(work, range(4))))
    same(found, scanned(codes, tables, 30))
    backwards = TopK(67, 30, np.float32)
    for first, last in reversed(parts):
        scanner.scan({"code": codes[first:last]}, first, backwards)
    same(backwards, found)


def test_a_query_scores_the_same_in_every_batch() -> None:
    codes, tables = made_codes(30_000, 8, distinct=256, seed=6), made_tables(8, 70, "far", seed=6)
    whole = scanned(codes, tables, 10)
    for queries in (slice(0, 1), slice(3, 7), slice(10, 43), slice(68, 70)):
        part = scanned(codes, np.ascontiguousarray(tables[:, :, queries]), 10)
        np.testing.assert_array_equal(part.ids, whole.ids[queries])
        np.testing.assert_array_equal(part.scores, whole.scores[queries])


@loop_over("nq", [1, 6])
@loop_over("M", [3, 8, 16])
def test_zeros_keep_their_sign(M: int, nq: int) -> None:
    for zero in (0.0, -0.0):
        found = scanned(
            made_codes(20, M, distinct=256, seed=8), np.full((M, 256, nq), zero, np.float32), 5
        )
        assert (np.signbit(found.scores) == np.signbit(zero)).all()


def test_codes_that_are_not_contiguous() -> None:
    codes, tables = (
        made_codes(20_000, 16, distinct=256, seed=7),
        made_tables(8, 5, "normal", seed=7),
    )
    same(
        scanned(codes[:, 3:11], tables, 10),
        scanned(np.ascontiguousarray(codes[:, 3:11]), tables, 10),
    )


def test_bytes_of_a_transposed_vector_are_each_a_row() -> None:
    assert sorted(ROW_OF_BYTE) == sorted(ROW_OF_BYTE_OF_TWO) == list(range(64))


def test_wrong_shapes_and_sums_beyond_float32_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"tables are float32\[8, 16, 2\]: expected float32\[M, 256, nq\]"
    ):
        PqScanner(np.zeros((8, 16, 2), np.float32))
    with pytest.raises(ShapeError, match=r"tables are float64\[8, 256, 2\]: expected float32"):
        PqScanner(np.zeros((8, 256, 2)))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"codes are uint8\[5, 4\]: expected uint8\[n, 8\]"):
        PqScanner(np.zeros((8, 256, 1), np.float32)).scan(
            {"code": np.zeros((5, 4), np.uint8)}, 0, TopK(1, 1, "f4")
        )
    for value in (np.inf, np.nan, 2e38):
        with pytest.raises(InputError, match="expected what float32 holds"):
            PqScanner(np.full((2, 256, 1), value, np.float32))


@pytest.mark.soak
@pytest.mark.parametrize(("cpu", "features"), [("x86-64", ""), ("haswell", "+avx2")])
def test_builds_for_lesser_processors_find_the_same(cpu: str, features: str) -> None:
    """The same property in a process whose code is made for a processor without AVX-512, or without
    AVX2."""
    names = "test_many_ties", "test_one_query_is_filtered_where_bytes_are_looked_up"
    assert_passed_on(cpu, features, __file__, *names)
