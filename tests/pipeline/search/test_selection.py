"""Searches of selected rows: the hits are those of a store that holds no other row."""

import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.hashing.kpca_lsh import KpcaLshSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.orders.build import OrderBuilder, runs_of
from mercore.pipeline.orders.candidates import OpenOrders
from mercore.pipeline.orders.plan import plan_orders
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    search_code_store,
    search_vector_store,
)
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.pipeline.search.sublinear import search_order_store
from mercore.pipeline.search.verify import verify
from mercore.stores.codes import CodeStore, SelectedCodes, open_code_store
from mercore.stores.errors import IntegrityError
from mercore.stores.indexes.orders import OrderStore, create_or_resume
from mercore.stores.part_store.part_reader import PartCache, PartReader
from mercore.stores.selection import BitSelection, RangeSelection, Selection
from mercore.stores.vector_views import SelectedVectors, VectorCache, WatchedVectors
from mercore.stores.vectors import VectorStore
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors
from tests.independent.exact_truth import nearest

Ids = NDArray[np.int64]
N, D, NQ, K = 2000, 16, 7, 5
KERNEL = make_kernel("chi2")
SPECS: dict[str, EncoderSpec] = {
    "aska": AskaSpec(n_atoms=64, n_nonzero_coefs=4),
    "kpca-pq": KpcaPqSpec(n_landmarks=128, n_components=32, n_subquantizers=16),
    "bin-bound": BinBoundSpec(n_groups=16),
    "kpca-lsh": KpcaLshSpec(n_landmarks=128, n_components=32, n_bits=64),
}


class Case(NamedTuple):
    """A selection of rows, and the rows that it selects."""

    selection: Selection
    rows: Ids

    @property
    def k(self) -> int:
        return min(K, len(self.rows))


def bits(mask: NDArray[np.bool_]) -> Case:
    return Case(BitSelection(np.packbits(mask, bitorder="little")), np.flatnonzero(mask))


def rows_between(start: int, stop: int) -> Case:
    return Case(RangeSelection(start, stop), np.arange(start, stop))


def random_rows(share: float) -> Case:
    return bits(np.random.default_rng(5).random(N) < share)


CASES = {
    "0.1 %": random_rows(0.001),
    "10 %": random_rows(0.1),
    "50 %": random_rows(0.5),
    "all but one": bits(np.arange(N) != 700),
    "one row": bits(np.arange(N) == 1234),
    "all": rows_between(0, N),
    "first": rows_between(0, 1111),
    "range": rows_between(1290, 1500),
}


@dataclass(frozen=True, eq=False)
class Made:
    """Vectors, codes of them by name, sorted orders, queries, and the ids of the rows."""

    rows: NDArray[Any]
    ids: Ids
    vectors: VectorStore
    codes: dict[str, CodeStore]
    orders: OrderStore
    queries: NDArray[Any]

    @cached_property
    def nearest(self) -> dict[str, Ids]:
        """The ids of the rows nearest to each query of those that a case selects."""
        chosen = {
            name: (self.rows[case.rows], self.queries, case.k) for name, case in CASES.items()
        }
        return {
            name: self.ids[CASES[name].rows[nearest("chi2", *each)]]
            for name, each in chosen.items()
        }

    def selected(self, case: Case) -> SelectedVectors:
        return SelectedVectors(self.vectors, case.selection)

    def exact(self, case: Case, threads: int, name: str | None, window: int | None) -> ExactSearch:
        """An exact search by bounds, or of every row."""
        scorer = ExactScorer(
            vectors=WatchedVectors(self.selected(case)),
            kernel=KERNEL,
            threads=threads,
            window=window,
        )
        bounds = None if name is None else opened(SelectedCodes(self.codes[name], case.selection))
        return ExactSearch(scorer=scorer, bounds=bounds)


def opened(codes: CodeStore, cache_bytes: int = 0) -> OpenCodes:
    return OpenCodes(codes, encoder_of(codes), PartCache(cache_bytes))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Rows with many ties among them. Others were dropped, so ids are no row numbers."""
    folder, rows = tmp_path_factory.mktemp("selection"), histograms(N, D, seed=1)
    rows[1600:1900] = rows[1200:1500]
    rows[100:130] = rows[1234]
    source = np.insert(rows, np.arange(0, N, 7), 0, axis=0)
    vectors = make_vectors(folder / "vectors", source, part_rows=128, drop_zero_rows=True)
    codes = {
        name: make_codes(folder / name, vectors, KERNEL, spec, part_rows=200)
        for name, spec in SPECS.items()
    }
    plan = plan_orders(codes["kpca-lsh"], 3, part_rows=500)
    orders = create_or_resume(
        folder / "orders", plan.spec, plan.layout, plan.model, source_path=folder / "vectors"
    )
    builder = OrderBuilder(codes["kpca-lsh"], orders)
    for run in runs_of(range(orders.parts), plan.order_parts, orders.parts):
        builder.write(run)
    queries = np.concatenate([histograms(NQ - 2, D, seed=2), rows[[1234, 1700]]])
    return Made(rows, np.flatnonzero(source.any(axis=1)), vectors, codes, orders, queries)


def settings(case: Case, threads: int, rerank: int | None = None) -> SearchSettings:
    return SearchSettings(k=case.k, rerank=rerank, threads=threads, batch=4, cache_bytes=20_000)


@loop_over("name", CASES)
@loop_over("threads", [1, 2])
@pytest.mark.parametrize("encoder", SPECS)
@pytest.mark.promise(
    "A search among some rows finds their nearest, in every kind of search, and its certificate names them"
)
def test_codes_of_selected_rows(encoder: str, threads: int, name: str, made: Made) -> None:
    case, codes = CASES[name], made.codes[encoder]
    every = scan_codes(opened(codes), made.queries, N, threads=1)  # the scores of all rows
    wanted = np.isin(every.ids, case.rows)
    ranked = every.ids[wanted].reshape(NQ, -1)
    chosen, source = SelectedCodes(codes, case.selection), Rows(made.queries)
    found = search_code_store(chosen, source, settings(case, threads))
    assert found.scores is not None
    np.testing.assert_array_equal(found.ids, made.ids[ranked[:, : case.k]])
    scores = every.scores[wanted].reshape(NQ, -1)[:, : case.k]
    np.testing.assert_array_equal(found.scores, KERNEL.shown(scores))

    width = min(4 * case.k, len(case.rows))
    reranked = search_code_store(
        chosen, source, settings(case, threads, width), vectors=made.selected(case)
    )
    for query, rows, ids in zip(made.queries, ranked, reranked.ids, strict=True):
        few = np.sort(rows[:width])
        best = few[nearest("chi2", made.rows[few], query[None], case.k)[0]]
        np.testing.assert_array_equal(ids, made.ids[best])


@loop_over("name", CASES)
@loop_over("threads", [1, 2])
def test_every_selected_vector(threads: int, name: str, made: Made) -> None:
    case = CASES[name]
    found = search_vector_store(
        made.selected(case), KERNEL, Rows(made.queries), settings(case, threads)
    )
    np.testing.assert_array_equal(found.ids, made.nearest[name])


@loop_over("name", CASES)
@loop_over(("threads", "window"), [(1, None), (2, 1)])
@pytest.mark.parametrize("bounds", ["kpca-pq", "bin-bound", None])
def test_exact_answers_and_verdicts(
    bounds: str | None, threads: int, window: int | None, name: str, made: Made
) -> None:
    case = CASES[name]
    search, true = made.exact(case, threads, bounds, window), made.nearest[name]
    answers = search.prove(made.queries, case.k)
    rows, vectors = len(case.rows), search.scorer.vectors
    np.testing.assert_array_equal(vectors.ids_of(answers.ids), true)
    assert answers.evaluated.max() <= rows
    if bounds and rows >= 300:
        assert answers.evaluated.min() < rows
    search.executor.check_rest()
    assert isinstance(vectors, WatchedVectors)
    assert vectors.unread == []
    claimed = vectors.rows_with(true)
    assert "refuted" not in verify(search, made.queries, claimed).words()
    other = np.setdiff1d(np.arange(N), case.rows)[:1]  # a row that does not take part
    if len(other):
        claimed[0, -1] = vectors.rows_with(made.ids[other])[0]
        assert claimed[0, -1] == -1
        verdicts = verify(search, made.queries, claimed)
        assert [word == "refuted" for word in verdicts.words()] == [True] + [False] * (NQ - 1)


@loop_over("name", CASES)
@loop_over("threads", [1, 2])
def test_candidates_of_sorted_orders(threads: int, name: str, made: Made) -> None:
    case, orders = CASES[name], OpenOrders(made.orders, encoder_of(made.orders), neighbours=20)
    rows, of_query = orders.candidates(made.queries, threads=1)
    found = search_order_store(
        orders, made.selected(case), Rows(made.queries), settings(case, threads)
    )
    for query, ids in enumerate(found.hits.ids):
        near = np.intersect1d(rows[of_query == query], case.rows)
        best = np.full(case.k, -1)
        k = min(case.k, len(near))
        if k:
            first = near[nearest("chi2", made.rows[near], made.queries[[query]], k)[0]]
            best[:k] = made.ids[first]
        np.testing.assert_array_equal(ids, best)
        assert found.scored[query] == len(near)


@loop_over("name", ["range", "one row", "0.1 %", "first"])
@loop_over("cache_bytes", [0, 1 << 20])
def test_parts_without_a_selected_row_are_not_read(name: str, cache_bytes: int, made: Made) -> None:
    case, codes = CASES[name], made.codes["bin-bound"]
    read: dict[str, set[int]] = {"codes": set(), "vectors": set()}

    def read_codes(self: PartReader, part: int) -> Any:
        read["codes"].add(part)
        return read_code_part(self, part)

    def read_vectors(self: VectorStore, part: int) -> Any:
        read["vectors"].add(part)
        return read_vector_part(self, part)

    read_code_part, read_vector_part = PartReader.read, VectorStore.read_part
    chosen = opened(SelectedCodes(codes, case.selection), cache_bytes)
    with (
        patch.object(PartReader, "read", read_codes),
        patch.object(VectorStore, "read_part", read_vectors),
    ):
        for _ in range(2):  # the second time from the cache, if there is one
            scan_codes(chosen, made.queries, case.k, threads=2)
        made.exact(case, 2, None, None).prove(made.queries, case.k)
    assert read["codes"] == set((case.rows // 200).tolist())
    assert read["vectors"] == set((case.rows // 128).tolist())
    assert len(chosen.cache) == (len(read["codes"]) if cache_bytes else 0)


@loop_over(("start", "stop", "damaged"), [(1290, 1300, True), (0, 10, False), (1400, 1410, False)])
def test_a_damaged_part_is_found_if_a_row_of_it_takes_part(
    start: int, stop: int, damaged: bool, made: Made, tmp_path: Path
) -> None:
    """Every row is scored, so the codes are only checked: those of the parts that take part."""
    case = rows_between(start, stop)
    undamaged = made.codes["bin-bound"]
    shutil.copytree(undamaged.where, tmp_path / "codes")
    column = undamaged.store.layout.column_names[0]
    chunk = next((tmp_path / "codes" / column).glob(f"c/{1290 // 200}/*"))
    chunk.write_bytes(chunk.read_bytes()[:-9] + bytes(9))
    codes = SelectedCodes(open_code_store(tmp_path / "codes"), case.selection)
    search = replace(made.exact(case, 1, None, None), bounds=opened(codes))
    assert search.prove(made.queries, K).evaluated.tolist() == [10] * NQ
    with pytest.raises(IntegrityError) if damaged else nullcontext():
        search.executor.check_rest()


def test_long_lists_of_selected_rows(tmp_path: Path) -> None:
    """Lists of more than 128 rows: a sample of the selected rows is scanned first."""
    rows, mask = histograms(40_000, 8, seed=3), np.random.default_rng(1).random(40_000) < 0.4
    mask[:20_000] &= np.arange(20_000) % 9 == 0  # parts hold different numbers of rows
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=4096)
    codes = make_codes(tmp_path / "codes", vectors, KERNEL, SPECS["kpca-lsh"], part_rows=1000)
    case, queries = bits(mask), histograms(3, 8, seed=4)
    chosen = opened(SelectedCodes(codes, case.selection))
    found = scan_codes(chosen, queries, 150, threads=2)
    every = scan_codes(opened(codes), queries, len(rows), threads=1)
    ranked = every.ids[mask[every.ids]].reshape(3, -1)
    np.testing.assert_array_equal(case.rows[found.ids], ranked[:, :150])


def test_a_selection_of_selected_rows_and_a_cache_of_them(made: Made) -> None:
    """Rows of an earlier state are themselves a selection."""
    some = CASES["50 %"]
    rows = some.rows[some.rows < 999]
    vectors = SelectedVectors(SelectedVectors(made.vectors, RangeSelection(0, 999)), some.selection)
    cached = VectorCache(vectors, 1 << 14)
    for each in (vectors, cached, cached):
        read = np.concatenate([each.read_part(part) for part in range(each.parts)])
        np.testing.assert_array_equal(read, made.rows[rows])
        np.testing.assert_array_equal(each.ids_of(np.arange(each.rows)), made.ids[rows])


@loop_over("through_cache", [False, True])
def test_few_rows_are_read_by_blocks_and_checked_whole(through_cache: bool, tmp_path: Path) -> None:
    rows = np.arange(3 * 8192 * 32, dtype=np.float32).reshape(-1, 32)
    vectors = make_vectors(tmp_path / str(through_cache), rows, part_rows=8192)
    few = np.array([5, 8000, 9000, 9001])  # of two parts
    mask = np.isin(np.arange(len(rows)), few) | (np.arange(len(rows)) >= 2 * 8192)
    selected = SelectedVectors(
        VectorCache(vectors, 1 << 21) if through_cache else vectors, bits(mask).selection
    )
    watched = WatchedVectors(selected)
    before = vectors.store.reads.bytes
    read = np.concatenate([watched.read_part(part) for part in range(2)])
    np.testing.assert_array_equal(read, rows[few])
    assert vectors.store.reads.bytes - before <= 3 << 14
    assert watched.unread == [0, 1, 2]
    watched.read_part(2)
    assert watched.unread == [0, 1]

    chunk = next(Path(vectors.where).glob("vectors/c/0/*"))
    chunk.write_bytes(chunk.read_bytes()[:-9] + bytes(9))
    np.testing.assert_array_equal(watched.read_part(0), rows[few[:2]])
    with pytest.raises(IntegrityError):
        watched.check_part(0)
    chunk.write_bytes(bytes(1 << 14) + chunk.read_bytes()[1 << 14 :])
    with pytest.raises(IntegrityError):
        watched.read_part(0)
