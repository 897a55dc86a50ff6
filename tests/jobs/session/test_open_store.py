"""Hits of an open store are those of a search that opens it anew, and no part is read twice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.stores.errors import InputError, IntegrityError, MercoreError, ShapeError
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt
from mercore.stores.results.hits import Hits
from mercore.testing.stores import histograms

QUERIES = histograms(9, 12, seed=2)
CODES = {
    "codes": "kpca-pq:landmarks=64,components=16,subquantizers=8",
    "bounds": "kpca-bound:landmarks=64,components=16",
    "bits": "klsh:landmarks=64,subset=8,bits=32",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors, and codes of them in three parts."""
    folder = tmp_path_factory.mktemp("open")
    rows = histograms(700, 12, seed=1)
    rows[5] = 0
    mercore.ingest(rows, folder / "vectors", drop_zero_rows=True)
    for name, encoder in CODES.items():
        mercore.encode(
            folder / "vectors", folder / name, kernel="chi2", encoder=encoder, part_rows=256
        )
    return folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns whose chunks are read meanwhile."""
    seen: list[str] = []
    opened = PartStore.read_chunk

    def watched(self: PartStore, receipt: Receipt, name: str, *buffer: Any) -> Any:
        seen.append(name)
        return opened(self, receipt, name, *buffer)

    monkeypatch.setattr(PartStore, "read_chunk", watched)
    return seen


def anew(store: Path, **options: Any) -> Hits:
    return mercore.search(store, QUERIES, k=7, **options)[1]


def same(hits: Hits, expected: Hits) -> None:
    ids, scores = hits
    np.testing.assert_array_equal(ids, expected.ids)
    np.testing.assert_array_equal(scores, expected.scores)


CASES: list[tuple[str, dict[str, Any]]] = [
    ("codes", {}),
    ("codes", {"rerank": 40}),
    ("bits", {}),
    ("bits", {"rerank": 40}),
    ("bounds", {"exact": True}),
    ("codes", {"exact": True}),
]


@pytest.mark.parametrize("memory", [0, 5000, None])
@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.promise("An open store answers as a search does, and reads no part twice")
def test_hits_are_those_of_a_search(
    name: str, options: dict[str, Any], memory: int | None, folder: Path
) -> None:
    expected = anew(folder / name, **options)
    with mercore.open(folder / name, memory=memory, threads=2) as store:
        for _ in range(2):
            same(store.search(QUERIES, k=7, **options), expected)
        one = store.search(QUERIES[3:4], k=7, **options)
        same(one, Hits(ids=expected.ids[3:4], scores=expected.scores[3:4]))  # type: ignore[index]


@pytest.mark.parametrize("exact", [False, True])
def test_vectors_are_searched_by_a_kernel(exact: bool, folder: Path) -> None:
    expected = anew(folder / "vectors", kernel="chi2", exact=exact)
    with mercore.open(folder / "vectors", kernel="chi2") as store:
        same(store.search(QUERIES, k=7, exact=exact), expected)


def test_one_store_answers_in_every_way(folder: Path) -> None:
    """Estimates read fewer columns than proofs: what is in memory serves both."""
    ways: list[dict[str, Any]] = [{}, {"exact": True}, {"rerank": 40}, {"exact": True}]
    with mercore.open(folder / "codes") as store:
        for options in ways:
            same(store.search(QUERIES, k=7, **options), anew(folder / "codes", **options))


@pytest.mark.promise("An open store answers as a search does, and reads no part twice")
def test_what_was_read_is_not_read_again(folder: Path, read: list[str]) -> None:
    with mercore.open(folder / "codes") as store:
        assert (len(store), store.rows, store.dims) == (699, 699, 12)
        first = store.search(QUERIES, k=7, rerank=40)
        before = len(read)
        assert before > 0
        same(store.search(QUERIES, k=7, rerank=40), first)
        assert len(read) == before
        store.close()
        same(store.search(QUERIES, k=7, rerank=40), first)
        assert len(read) > before


def test_threads_search_at_once(folder: Path) -> None:
    expected = anew(folder / "codes", rerank=40)
    with mercore.open(folder / "codes") as store, ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: store.search(QUERIES, k=7, rerank=40), range(12))
        for hits in found:
            same(hits, expected)


def test_k_is_what_the_rows_allow(folder: Path) -> None:
    with mercore.open(folder / "codes") as store:
        assert store.search(QUERIES).ids.shape == (9, 100)
    mercore.ingest(histograms(10, 12), folder / "ten")
    with mercore.open(folder / "ten", kernel="chi2") as store:
        assert store.search(QUERIES).ids.shape == (9, 10)


@pytest.mark.parametrize(
    ("name", "opening", "searching", "error"),
    [
        ("bits", {}, {"exact": True}, InputError),
        ("codes", {}, {"k": 701}, InputError),
        ("codes", {}, {"k": 2.5}, InputError),
        ("bounds", {}, {"exact": True, "rerank": 30}, InputError),
        ("vectors", {}, {}, InputError),
        ("vectors", {"kernel": "chi2"}, {"rerank": 30}, InputError),
        ("nothing", {}, {}, MercoreError),
        ("codes", {"threads": 0}, {}, InputError),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, opening: dict[str, Any], searching: dict[str, Any], error: type, folder: Path
) -> None:
    with pytest.raises(error, match="Fix:"), mercore.open(folder / name, **opening) as store:
        store.search(QUERIES, **searching)


def test_queries_of_another_dimension_are_refused(folder: Path) -> None:
    with mercore.open(folder / "codes") as store, pytest.raises(ShapeError):
        store.search(QUERIES[:, :5])


def test_bounds_prove_nothing_once_their_vectors_have_grown(tmp_path: Path) -> None:
    rows = histograms(80, 12, seed=1)
    mercore.ingest(rows, tmp_path / "vectors")
    mercore.encode(
        tmp_path / "vectors", tmp_path / "bounds", kernel="chi2", encoder=CODES["bounds"]
    )
    mercore.append(rows[:5], tmp_path / "vectors")
    with mercore.open(tmp_path / "bounds") as store:
        for _ in range(2):
            with pytest.raises(InputError, match="an answer would not be exact"):
                store.search(QUERIES, k=3, exact=True)
        assert store.search(QUERIES, k=3).ids.max() < 80


@pytest.fixture
def damaged(folder: Path) -> Iterator[Path]:
    """Codes with one wrong byte."""
    path = folder / "codes" / "code" / "c" / "0" / "0"
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    yield folder / "codes"
    path.write_bytes(data)


def test_a_wrong_byte_gives_no_answer(damaged: Path) -> None:
    with mercore.open(damaged) as store:
        for _ in range(2):
            with pytest.raises(IntegrityError):
                store.search(QUERIES, k=7)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors in parts of many blocks, and codes of them."""
    folder = tmp_path_factory.mktemp("wide")
    mercore.ingest(histograms(20_000, 256, seed=1), folder / "vectors")
    mercore.encode(folder / "vectors", folder / "codes", kernel="chi2", encoder=CODES["codes"])
    return folder


def test_an_open_store_counts_what_it_reads(wide: Path) -> None:
    queries, row_bytes = histograms(3, 256, seed=2), 1024
    with mercore.open(wide / "codes", memory=0) as store:
        assert store.stats() == {"codes": {"bytes": 0, "requests": 0, "blocks": 0, "cached": 0}}
        for query in range(3):
            store.search(queries[query : query + 1], k=2, rerank=10)
        counts = store.stats()
        assert counts["codes"]["bytes"] > 3 * 20_000 * 8
        # a block between two that are wanted is read with them
        assert 3 <= counts["vectors"]["blocks"] <= 40
        assert counts["vectors"]["bytes"] <= counts["vectors"]["blocks"] * 16 * row_bytes
    with mercore.open(wide / "codes", memory="64MB") as store:
        held = store.prefetch()
        counts = store.stats()
        assert held > 20_000 * (8 + row_bytes)
        assert counts["codes"]["bytes"] + counts["vectors"]["bytes"] >= held
        store.search(queries, k=2, rerank=10)
        later = store.stats()
        for name, before in counts.items():
            assert later[name]["cached"] > before["cached"]
            assert {**later[name], "cached": 0} == {**before, "cached": 0}


def test_parts_that_look_ups_have_paid_for_are_kept(wide: Path) -> None:
    queries = histograms(400, 256, seed=4)
    with mercore.open(wide / "codes", memory="64MB") as store:
        for query in range(0, 400, 4):
            store.search(queries[query : query + 4], k=2, rerank=10)
        counts = store.stats()["vectors"]
        store.search(queries, k=2, rerank=10)
        later = store.stats()["vectors"]
    assert counts["blocks"] > 0
    assert counts["bytes"] <= 2.1 * 20_000 * 1024 + 5 * (4 << 20)
    assert (later["bytes"], later["blocks"]) == (counts["bytes"], counts["blocks"])


def test_a_search_reports_the_bytes_that_it_read(wide: Path) -> None:
    queries = histograms(1, 256, seed=2)
    whole = 20_000 * 1024
    every, _ = mercore.search(wide / "vectors", queries, k=2, kernel="chi2")
    codes, _ = mercore.search(wide / "codes", queries, k=2)
    ranked, _ = mercore.search(wide / "codes", queries, k=2, rerank=10)
    assert every["read_bytes"] >= whole
    assert 20_000 * 8 < codes["read_bytes"] < whole // 16
    assert 0 < ranked["read_bytes"] - codes["read_bytes"] <= 10 * 16 * 1024


def test_many_threads_look_rows_up_at_once(wide: Path) -> None:
    queries = histograms(40, 256, seed=3)
    with mercore.open(wide / "codes", threads=1, memory=0) as store:
        expected = [store.search(queries[i : i + 1], k=5, rerank=30) for i in range(40)]
    with (
        mercore.open(wide / "codes", threads=2, memory=0) as store,
        ThreadPoolExecutor(8) as pool,
    ):
        found = pool.map(lambda i: store.search(queries[i : i + 1], k=5, rerank=30), range(40))
        for one, other in zip(found, expected, strict=True):
            same(one, other)
