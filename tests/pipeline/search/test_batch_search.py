"""Search of small real stores: the same hits whatever lies between, and the true ones where they
are promised."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.encoder import METRICS
from mercore.pipeline.kernels import UNIT_KERNELS, Kernel, make_kernel
from mercore.pipeline.scanners import sparse
from mercore.pipeline.search import exhaustive
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    check_queries,
    check_source,
    search_code_store,
    search_vector_store,
)
from mercore.pipeline.search.exhaustive import search_vectors
from mercore.pipeline.search.rerank import true_scores
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.pipeline.topk import TopK
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import InputError, IntegrityError, MercoreError, ShapeError
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_rows
from mercore.stores.vectors import VectorStore, original_ids, stored_rows
from mercore.testing.cases import loop_over
from mercore.testing.rows import one_ulp_apart, steady
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors
from tests.independent import reference
from tests.support.making import aska_of

Floats = NDArray[np.float64]
SPEC = AskaSpec(n_atoms=24, n_nonzero_coefs=5, random_state=3)
GAMMA = {"rbf": 0.3, "exp_chi2": 1.5}
every_kernel = pytest.mark.parametrize("name", UNIT_KERNELS)


def kernel_of(name: str) -> Kernel:
    return make_kernel(name, gamma=GAMMA.get(name))


def truth(name: str, queries: NDArray[Any], rows: NDArray[Any]) -> Floats:
    prepared = reference.prepare(name, queries), reference.prepare(name, rows)
    return reference.kernel(name, *prepared, gamma=GAMMA.get(name, 1.0))


def same(found: TopK | Hits, expected: TopK | Hits) -> None:
    """Equal ids, and scores equal to the bit."""
    assert found.scores is not None
    assert expected.scores is not None
    np.testing.assert_array_equal(found.ids, expected.ids, strict=True)
    np.testing.assert_array_equal(found.scores, expected.scores, strict=True)


def check_true(found: TopK | Hits, true: Floats) -> None:
    """The k best by the slow truth: the same scores, and the same ids but where the truth itself is
    a tie."""
    assert found.scores is not None
    k = found.ids.shape[1]
    best, ids = reference.top_k(true, k)
    np.testing.assert_allclose(found.scores, best, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        np.take_along_axis(true, found.ids, axis=1), best, rtol=0, atol=1e-12
    )
    settled = np.ones(ids.shape, bool)
    gaps = np.diff(reference.top_k(true, min(k + 1, true.shape[1]))[0], axis=1) > -1e-12
    settled[:, 1:] &= ~gaps[:, : k - 1]
    settled[:, : gaps.shape[1]] &= ~gaps
    np.testing.assert_array_equal(found.ids[settled], ids[settled])
    assert all(len(set(row)) == k for row in found.ids.tolist())


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    rows = histograms(150, 12, seed=1)
    rows[40:60] = rows[0:20]  # twins of rows in other parts
    rows[60:70] = one_ulp_apart(rows[0:10], seed=2)
    return rows


@pytest.fixture(scope="module")
def queries(rows: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([histograms(66, 12, seed=5), rows[:3], one_ulp_apart(rows[3:5], seed=6)])


@pytest.fixture(scope="module")
def vectors(rows: NDArray[Any], tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    return make_vectors(tmp_path_factory.mktemp("search") / "vectors", rows, part_rows=32)


@pytest.fixture(scope="module", params=METRICS)
def codes(
    vectors: VectorStore, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> CodeStore:
    spec = replace(SPEC, metric=request.param)
    return make_codes(
        tmp_path_factory.mktemp("search") / "codes", vectors, kernel_of("chi2"), spec, part_rows=37
    )


# Codes


def code_truth(codes: CodeStore, queries: NDArray[Any]) -> NDArray[np.float32]:
    """ASKA's score of every query and row, in float32 and the stated order, from what lies on
    disk."""
    encoder = aska_of(codes)
    parts = [
        {name: codes.store.read_chunk(receipt, name) for name in codes.store.layout.column_names}
        for receipt in codes.receipts
    ]
    atoms = np.concatenate([part["atoms"] for part in parts])
    residuals, power = None, encoder.spec.norm_power
    if encoder.spec.metric == "distance":
        residuals, power = np.concatenate([part["residual"] for part in parts]), 0
    weights = np.concatenate([reference.aska_weights(part, power) for part in parts])
    return reference.aska_scores_float32(atoms, weights, encoder.table(queries), residuals)


@loop_over("k", [1, 10, 150])
def test_a_scan_gives_the_best_codes_by_the_stated_arithmetic(
    codes: CodeStore, queries: NDArray[Any], k: int
) -> None:
    true = code_truth(codes, queries)
    best, ids = reference.top_k(true, k)
    found = scan_codes(OpenCodes(codes, encoder_of(codes)), queries, k, threads=2)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, best.astype(np.float32), strict=True)


def tied(n: int, d: int, *, signed: bool) -> NDArray[Any]:
    """Rows of which every third is the twin of another, with negative values if ``signed``."""
    rows = (
        np.random.default_rng(9).normal(size=(n, d)).astype(np.float32)
        if signed
        else histograms(n, d, seed=9)
    )
    rows[::3] = rows[np.arange(0, n, 3) // 6]
    return rows


@pytest.mark.parametrize("metric", METRICS)
@loop_over("alpha", [1, 5, 8, 16])
@pytest.mark.parametrize(
    ("name", "weights", "signed"),
    [
        ("chi2", "int8", False),
        ("cosine", "int8", True),
        ("rbf", "int8", True),
        ("hellinger", "float16", False),
    ],
)
def test_a_filter_passes_over_no_row_that_the_stated_arithmetic_keeps(
    name: str,
    weights: str,
    signed: bool,
    alpha: int,
    metric: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sparse, "FIRST_ROWS", 64)
    monkeypatch.setattr(sparse, "BLOCK_ROWS", 150)
    rows = tied(1200, 10, signed=signed)
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=2048)
    spec = AskaSpec(n_atoms=60, n_nonzero_coefs=alpha, weights=weights, metric=metric)
    codes = make_codes(tmp_path / "codes", vectors, kernel_of(name), spec, part_rows=500)
    queries = np.concatenate([tied(60, 10, signed=signed)[5:40] * 1.5, rows[::40]])
    true = code_truth(codes, queries)
    for count in (1, 3, 5, 65):
        for k in (1, 10, 700, 1200):  # the last scores of signed rows are negative
            best, ids = reference.top_k(true[:count], k)
            found = scan_codes(OpenCodes(codes, encoder_of(codes)), queries[:count], k, threads=2)
            np.testing.assert_array_equal(found.ids, ids)
            np.testing.assert_array_equal(found.scores, best.astype(np.float32), strict=True)


def test_a_table_is_the_rounded_true_score_of_every_atom(
    codes: CodeStore, queries: NDArray[Any]
) -> None:
    table = aska_of(codes).table(queries)
    true = truth("chi2", codes.model["dictionary"], queries)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, true, rtol=2.0**-24, atol=1e-12)


@loop_over(("threads", "batch"), [(1, 1), (3, 1), (2, 2), (1, 63), (2, 65), (3, 70), (2, 71)])
def test_hits_of_codes_depend_on_neither_threads_nor_batch(
    codes: CodeStore, queries: NDArray[Any], threads: int, batch: int
) -> None:
    wanted = search_code_store(codes, Rows(queries), SearchSettings(k=7))
    same(
        search_code_store(codes, Rows(queries), SearchSettings(k=7, batch=batch, threads=threads)),
        wanted,
    )


@pytest.mark.parametrize(
    ("compressor", "sizes"),
    [
        ("none", (150, 8)),
        ("zstd:1", (11, 64)),
        ("blosc", (64, 16)),
        ("gzip", (50, 64)),
        ("lz4", (30, 32)),
        ("bz2", (75, 256)),
        ("lzma:1", (149, 128)),
    ],
)
def test_hits_depend_on_neither_parts_nor_compressor(
    codes: CodeStore, vectors: VectorStore, compressor: str, sizes: tuple[int, int], tmp_path: Path
) -> None:
    kernel, queries = kernel_of("chi2"), histograms(9, 12, seed=5)
    rows = np.concatenate([vectors.read_part(part) for part in range(vectors.parts)])
    again = make_vectors(tmp_path / "vectors", rows, part_rows=sizes[1], compressor=compressor)
    spec = replace(SPEC, metric=aska_of(codes).spec.metric)
    other = make_codes(
        tmp_path / "codes", again, kernel, spec, part_rows=sizes[0], compressor=compressor
    )
    for options in (SearchSettings(k=9, threads=2), SearchSettings(k=1, batch=1)):
        same(
            search_code_store(other, Rows(queries), options),
            search_code_store(codes, Rows(queries), options),
        )
    same(
        search_vectors(again, kernel, queries, 9, threads=2),
        search_vectors(vectors, kernel, queries, 9, threads=1),
    )


def test_a_byte_that_changed_is_an_error_and_never_a_hit(
    vectors: VectorStore, queries: NDArray[Any], tmp_path: Path
) -> None:
    codes = make_codes(tmp_path / "codes", vectors, kernel_of("chi2"), SPEC, part_rows=50)
    for name in ("atoms", "weights", "scale", "residual"):
        chunk = (
            tmp_path / "codes" / name / "c" / "1" / ("" if name in ("scale", "residual") else "0")
        )
        whole = chunk.read_bytes()
        chunk.write_bytes(whole[:20] + bytes([whole[20] ^ 4]) + whole[21:])
        with pytest.raises(
            IntegrityError, match=rf"part 1: column {name} has no checksum of its own bytes"
        ):
            search_code_store(
                open_code_store(tmp_path / "codes"), Rows(queries), SearchSettings(k=1, threads=2)
            )
        chunk.write_bytes(whole)
    search_code_store(codes, Rows(queries), SearchSettings(k=1))


# Vectors


@every_kernel
@loop_over("k", [1, 10, 150])
def test_the_exhaustive_search_is_exact_ties_and_near_ties_included(
    name: str, vectors: VectorStore, rows: NDArray[Any], queries: NDArray[Any], k: int
) -> None:
    found = search_vectors(vectors, kernel_of(name), queries, k, threads=2)
    assert found.scores.dtype == np.float64
    check_true(found, truth(name, queries, rows))


@every_kernel
def test_its_order_is_that_of_the_true_scores_to_the_bit(
    name: str, vectors: VectorStore, rows: NDArray[Any], queries: NDArray[Any]
) -> None:
    kernel = kernel_of(name)
    true = kernel.exact(kernel.prepare(queries), np.ascontiguousarray(kernel.prepare(rows).T))
    found = search_vectors(vectors, kernel, queries, 100, threads=3)
    best, ids = reference.top_k(true, 100)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, best)
    assert (
        found.ids[66:69, 0] == [0, 1, 2]
    ).all()  # a stored row finds itself before its twin, id 40 and up


@every_kernel
@loop_over(("threads", "batch"), [(1, 1), (3, 5), (2, 22)])
@pytest.mark.promise("Answers do not depend on threads, batch, parts or bound")
def test_true_hits_depend_on_neither_threads_nor_batch(
    name: str, vectors: VectorStore, queries: NDArray[Any], threads: int, batch: int
) -> None:
    some = Rows(queries[-22:])
    wanted = search_vector_store(vectors, kernel_of(name), some, SearchSettings(k=6))
    options = SearchSettings(k=6, batch=batch, threads=threads)
    same(search_vector_store(vectors, kernel_of(name), some, options), wanted)


@every_kernel
@loop_over("k", [1, 3, 90])
def test_massive_ties_go_to_the_lowest_rows(name: str, k: int, tmp_path: Path) -> None:
    once = histograms(2, 7, seed=8)
    rows = np.repeat(once, [30, 60], axis=0)[np.random.default_rng(0).permutation(90)]
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=16)
    found = search_vectors(vectors, kernel_of(name), once, k, threads=2)
    for q in (0, 1):
        custom = np.flatnonzero((rows == once[q]).all(axis=1))
        others = np.flatnonzero((rows != once[q]).any(axis=1))
        np.testing.assert_array_equal(found.ids[q], np.concatenate([custom, others])[:k])


@every_kernel
@given(data=st.data())
@steady(6)
def test_the_exhaustive_search_is_exact_on_rows_that_float32_cannot_tell_apart(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    n, d, seed = (
        data.draw(st.integers(1, 150)),
        data.draw(st.integers(1, 200)),
        data.draw(st.integers(0, 2**32 - 1)),
    )
    rng = np.random.default_rng(seed)
    one = histograms(1, d, seed=seed).repeat(n, axis=0)
    rows = one_ulp_apart(one, seed)
    if data.draw(st.booleans()):
        rows = (one * (1 + 1e-7 * rng.normal(size=(n, d)))).astype(np.float32)
    k = data.draw(st.integers(1, n))
    vectors = make_vectors(tmp_path_factory.mktemp("near") / "vectors", rows, part_rows=64)
    kernel = kernel_of(name)
    queries = np.concatenate([one[:1], one[:1] * 3 + 1, histograms(2, d, seed=seed + 1)]).astype(
        np.float32
    )
    found = search_vectors(vectors, kernel, queries, k, threads=1)
    true = kernel.exact(kernel.prepare(queries), np.ascontiguousarray(kernel.prepare(rows).T))
    best, ids = reference.top_k(true, k)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, best)


def test_hits_depend_on_no_block(
    codes: CodeStore, vectors: VectorStore, queries: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers() -> list[TopK]:
        encoder, kernel = encoder_of(codes), kernel_of("hellinger")
        return [
            scan_codes(OpenCodes(codes, encoder), queries[:1], 5, threads=1),
            scan_codes(OpenCodes(codes, encoder), queries, 5, threads=1),
            search_vectors(vectors, kernel, queries, 5, threads=1),
        ]

    wanted = answers()
    for rows_of_a_block in (1, 7, 32):
        monkeypatch.setattr(sparse, "BLOCK_ROWS", rows_of_a_block)
        monkeypatch.setattr(exhaustive, "block_rows", lambda _, rows=rows_of_a_block: rows)
        for found, expected in zip(answers(), wanted, strict=True):
            same(found, expected)


@loop_over("room", [0, 2_000, 10**9])
def test_hits_depend_on_no_part_that_stays_in_memory(
    room: int, codes: CodeStore, queries: NDArray[Any], tmp_path: Path
) -> None:
    np.save(tmp_path / "queries.npy", queries)
    source = open_rows(str(tmp_path / "queries.npy"))
    wanted = search_code_store(codes, source, SearchSettings(k=5))
    for threads in (1, 2):
        options = SearchSettings(k=5, batch=7, threads=threads, cache_bytes=room)
        same(search_code_store(codes, source, options), wanted)


def test_parts_stay_in_memory_as_far_as_there_is_room(
    codes: CodeStore, queries: NDArray[Any]
) -> None:
    encoder, names = encoder_of(codes), codes.store.layout.column_names
    parts = [
        encoder.unpacked({name: codes.store.read_chunk(receipt, name) for name in names})
        for receipt in codes.receipts[:2]
    ]
    size = sum(values.nbytes for part in parts for values in part.values())
    held = PartCache(size)
    scan_codes(OpenCodes(codes, encoder, held), queries, 5, threads=1)
    assert held.size == size
    assert [held.get(part) is not None for part in range(3)] == [True, True, False]


def test_a_part_in_memory_is_read_no_more(
    codes: CodeStore, queries: NDArray[Any], tmp_path: Path
) -> None:
    copied = shutil.copytree(codes.where, tmp_path / "codes")
    opened = open_code_store(copied)
    parts = OpenCodes(opened, encoder_of(opened), PartCache(10**9))
    wanted = scan_codes(parts, queries, 5, threads=2)
    shutil.rmtree(copied / "atoms" / "c")
    same(scan_codes(parts, queries, 5, threads=2), wanted)
    with pytest.raises(IntegrityError):
        scan_codes(OpenCodes(opened, encoder_of(opened)), queries, 5, threads=2)


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_bytes_and_halves_are_searched_as_they_are(dtype: str, tmp_path: Path) -> None:
    rows = histograms(60, 9, dtype=dtype, seed=4)
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=16)
    assert vectors.dtype == np.dtype(dtype)
    for name in UNIT_KERNELS:
        check_true(
            search_vectors(vectors, kernel_of(name), rows[::7], 8, threads=1),
            truth(name, rows[::7], rows),
        )


# Rerank


@loop_over("k", [1, 12, 150])
def test_reranking_every_row_is_the_exhaustive_search(
    codes: CodeStore, vectors: VectorStore, queries: NDArray[Any], k: int
) -> None:
    reranked = search_code_store(
        codes, Rows(queries), SearchSettings(k=k, rerank=150, batch=20, threads=2), vectors=vectors
    )
    same(
        reranked,
        search_vector_store(vectors, kernel_of("chi2"), Rows(queries), SearchSettings(k=k)),
    )


def test_reranking_orders_the_best_codes_by_their_true_scores(
    codes: CodeStore, vectors: VectorStore, rows: NDArray[Any], queries: NDArray[Any]
) -> None:
    candidates = search_code_store(codes, Rows(queries), SearchSettings(k=20)).ids
    true = truth("chi2", queries, rows)
    options = SearchSettings(k=5, rerank=20)
    for q, ids in enumerate(search_code_store(codes, Rows(queries), options, vectors=vectors).ids):
        assert set(ids.tolist()) <= set(candidates[q].tolist())
        np.testing.assert_allclose(
            true[q, ids], -np.sort(-true[q, candidates[q]])[:5], rtol=0, atol=1e-12
        )


@loop_over("batch", [1, 4, 64])
def test_reranked_hits_depend_on_neither_threads_nor_batch(
    codes: CodeStore, vectors: VectorStore, queries: NDArray[Any], batch: int
) -> None:
    some = Rows(queries[-22:])
    wanted = search_code_store(codes, some, SearchSettings(k=4, rerank=9), vectors=vectors)
    options = SearchSettings(k=4, rerank=9, batch=batch, threads=3)
    same(search_code_store(codes, some, options, vectors=vectors), wanted)


def test_true_scores_of_any_rows_none_among_them(
    vectors: VectorStore, rows: NDArray[Any], queries: NDArray[Any]
) -> None:
    ids = np.random.default_rng(0).integers(-1, 150, (len(queries), 13))
    ids[4], ids[5, 0] = -1, 149
    true = np.take_along_axis(truth("intersection", queries, rows), np.maximum(ids, 0), axis=1)
    for threads in (1, 3):
        found = true_scores(vectors, kernel_of("intersection"), queries, ids, threads=threads)
        np.testing.assert_allclose(found, np.where(ids < 0, -np.inf, true), rtol=0, atol=1e-12)
    assert np.isneginf(
        true_scores(vectors, kernel_of("cosine"), queries, np.full_like(ids, -1), threads=2)
    ).all()


def test_the_vectors_must_be_those_that_were_encoded(
    codes: CodeStore,
    vectors: VectorStore,
    rows: NDArray[Any],
    queries: NDArray[Any],
    tmp_path: Path,
) -> None:
    other = make_vectors(tmp_path / "other", one_ulp_apart(rows, seed=0), part_rows=32)
    refused(
        lambda: check_source(other, codes),
        InputError,
        f"{tmp_path}/other is not what {codes.where} encodes: found vectors {other.fingerprint}, "
        f"expected {vectors.fingerprint}. Fix: name the right vector store with vectors, or "
        "encode this one.",
    )


# Ids


@given(gone=st.sets(st.integers(0, 60)), kept=st.integers(1, 40))
@steady(200)
def test_original_ids_and_stored_rows_are_inverse(gone: set[int], kept: int) -> None:
    n = kept + len(gone)
    dropped = np.array(sorted(row for row in gone if row < n), np.int64)
    ids = np.setdiff1d(np.arange(n), dropped)  # the slow truth: number what is left
    rows = np.arange(len(ids))
    np.testing.assert_array_equal(original_ids(rows, dropped), ids)
    np.testing.assert_array_equal(stored_rows(ids, dropped), rows)
    np.testing.assert_array_equal(stored_rows(dropped, dropped), np.full(len(dropped), -1))
    nobody = np.full((2, 3), -1)
    np.testing.assert_array_equal(original_ids(nobody, dropped), nobody)
    np.testing.assert_array_equal(stored_rows(nobody, dropped), nobody)


@every_kernel
def test_hits_name_the_rows_of_the_source_where_rows_were_dropped(
    name: str, tmp_path: Path
) -> None:
    rows = histograms(80, 6, seed=9)
    rows[[0, 7, 8, 50, 79]] = 0
    queries = histograms(5, 6, seed=10)
    kept = np.flatnonzero(rows.any(axis=1))
    vectors = make_vectors(tmp_path / "vectors", rows, drop_zero_rows=True)
    codes = make_codes(tmp_path / "codes", vectors, kernel_of(name), SPEC, part_rows=32)
    true = np.full((5, 80), -1.0)
    true[:, kept] = truth(name, queries, rows[kept])
    hits = search_vector_store(vectors, kernel_of(name), Rows(queries), SearchSettings(k=75))
    check_true(hits, true)
    assert set(hits.ids[0].tolist()) == set(kept.tolist())
    options = SearchSettings(k=75, rerank=75)
    same(search_code_store(codes, Rows(queries), options, vectors=vectors), hits)


# Refusals


def refused(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refusal:
        call()
    assert type(refusal.value) is kind
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"k": 0},
            "k is out of range: found 0, expected 1 to 150, the rows of the store. Fix: k=100",
        ),
        (
            {"k": 151},
            "k is out of range: found 151, expected 1 to 150, the rows of the store. Fix: k=100",
        ),
        (
            {"k": 9, "rerank": 8},
            "rerank is out of range: found 8, expected k = 9 to 150, the rows of the store. "
            "Fix: rerank=90",
        ),
        (
            {"k": 9, "rerank": 151},
            "rerank is out of range: found 151, expected k = 9 to 150, the rows of the store. "
            "Fix: rerank=90",
        ),
        (
            {"k": 1, "batch": 0},
            "batch is out of range: found 0, expected 1 to 65536. Fix: leave batch out.",
        ),
        (
            {"k": 1, "batch": 65537},
            "batch is out of range: found 65537, expected 1 to 65536. Fix: leave batch out.",
        ),
        (
            {"k": 1, "threads": 0},
            "threads is out of range: found 0, expected 1 or more. Fix: leave threads out.",
        ),
    ],
)
def test_counts_that_no_search_can_serve_are_refused(options: dict[str, Any], message: str) -> None:
    refused(lambda: SearchSettings(**options).check(150), InputError, message)


@pytest.mark.parametrize(
    ("queries", "kind", "message"),
    [
        (
            np.ones((2, 11), np.float32),
            ShapeError,
            "q.npy has d = 11: expected 12, the dimension of codes. Fix: name queries of the same "
            "kind.",
        ),
        (
            np.ones((0, 12), np.float32),
            ShapeError,
            "q.npy holds no query: expected at least one. Fix: check the file.",
        ),
        (
            np.vstack([np.ones((4999, 12)), -np.ones((1, 12))]).astype(np.float32),
            InputError,
            "query 4999 has a negative value: found [-1., -1., -1., -1., …], but kernel chi2 is "
            "defined for values ≥ 0. Fix: use cosine or rbf, or shift the data.",
        ),
    ],
)
def test_queries_that_fit_no_row_are_refused(
    queries: NDArray[Any], kind: type[MercoreError], message: str
) -> None:
    refused(
        lambda: check_queries(Rows(queries, "q.npy"), kernel_of("chi2"), 12, "codes"), kind, message
    )


def test_progress_adds_up_to_the_queries(
    codes: CodeStore, vectors: VectorStore, queries: NDArray[Any]
) -> None:
    told: list[int] = []
    search_code_store(codes, Rows(queries), SearchSettings(k=1, batch=30), advance=told.append)
    search_vector_store(
        vectors,
        kernel_of("chi2"),
        Rows(queries),
        SearchSettings(k=1, batch=40),
        advance=told.append,
    )
    assert told == [30, 30, 11, 40, 31]
