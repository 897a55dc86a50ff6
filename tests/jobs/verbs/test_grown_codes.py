"""Codes of vectors that have grown: only new rows are encoded, and a kill loses no row."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

import mercore
from mercore.jobs import api
from mercore.jobs.resources import execution
from mercore.stores import vector_writer
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import ExistsError, InputError
from mercore.testing.stores import columns_of, histograms
from tests.support.killing import kills
from tests.support.running import files_of

DIMS, OLD, NEW, NEWEST = 6, 37, 61, 90
ENCODERS = {
    "aska": "aska:atoms=16,sparsity=2",
    "bound": "kpca-bound:landmarks=16,components=4",
    "klsh": "klsh:bits=16,landmarks=16,subset=4",
}
PART_ROWS = 20
TWO_COLUMNS = ENCODERS["bound"]


@pytest.fixture(autouse=True)
def small_and_serial() -> Iterator[None]:
    """Vectors in parts of eight rows, one thread, and no waits for the disk."""
    with (
        patch.object(vector_writer, "CHUNK_BYTES", 8 * DIMS * 4),
        patch.object(execution, "available_cores", lambda: 1),
        patch.object(os, "fsync"),
    ):
        yield


@pytest.fixture(scope="module")
def rows() -> NDArray[np.float32]:
    """Histograms. Two are all zero: one before the first append, one after it."""
    rows = histograms(NEWEST, DIMS, seed=5)
    rows[[20, 50]] = 0
    return rows


@pytest.fixture
def vectors(rows: NDArray[np.float32], tmp_path: Path) -> Path:
    mercore.ingest(rows[:OLD], tmp_path / "vectors", drop_zero_rows=True)
    return tmp_path / "vectors"


def append(vectors: Path, rows: NDArray[np.float32]) -> None:
    mercore.append(rows, vectors, drop_zero_rows=True)


def encode(vectors: Path, codes: Path, encoder: str = ENCODERS["aska"]) -> dict[str, Any]:
    return mercore.encode(vectors, codes, kernel="chi2", encoder=encoder, part_rows=PART_ROWS)


def copy_of(store: Path, name: str) -> Path:
    target = store.with_name(name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(store, target)
    return target


@pytest.mark.parametrize("encoder", list(ENCODERS.values()), ids=list(ENCODERS))
@pytest.mark.promise(
    "Codes grow with their vectors: new parts alone are encoded, and a kill loses nothing"
)
def test_only_new_parts_and_the_grown_one_are_encoded(
    encoder: str, vectors: Path, rows: NDArray[np.float32]
) -> None:
    codes = vectors.with_name("codes")
    encode(vectors, codes, encoder)
    before = open_code_store(codes)
    old = columns_of(before)
    append(vectors, rows[OLD:NEW])
    append(vectors, rows[NEW:])
    report = encode(vectors, codes, encoder)
    assert (report["rows"], report["parts"], report["parts_done_now"]) == (88, 5, 4)
    assert encode(vectors, codes, encoder)["parts_done_now"] == 0
    grown = columns_of(open_code_store(codes))
    for name, values in old.items():
        np.testing.assert_array_equal(grown[name][: len(values)], values)
    assert mercore.check(codes)["faults"] == []
    for name, values in columns_of(before).items():  # a reader of before keeps its rows
        np.testing.assert_array_equal(values, old[name])


def test_hits_of_grown_stores_are_those_of_all_rows(
    vectors: Path, rows: NDArray[np.float32]
) -> None:
    codes, bounds = vectors.with_name("codes"), vectors.with_name("bounds")
    encode(vectors, codes)
    encode(vectors, bounds, ENCODERS["bound"])
    append(vectors, rows[OLD:])
    encode(vectors, codes)
    encode(vectors, bounds, ENCODERS["bound"])
    queries = rows[::9] + np.float32(0.01)
    whole = vectors.with_name("whole")
    mercore.ingest(rows, whole, drop_zero_rows=True)
    _, truth = mercore.search(whole, queries, kernel="chi2", k=5)
    found = [
        mercore.search(vectors, queries, kernel="chi2", k=5),
        mercore.search(codes, queries, k=5, rerank=88),
        mercore.search(bounds, queries, k=5, exact=True),
        mercore.search(vectors, queries, kernel="chi2", k=5, exact=True),
    ]
    for _, hits in found:
        np.testing.assert_array_equal(hits.ids, truth.ids)
        np.testing.assert_array_equal(hits.scores, truth.scores)
    proved = mercore.verify(vectors, queries, found[2][1], kernel="chi2", bounds=bounds)
    assert proved["proved"] == len(queries)


def test_codes_of_before_are_searched_with_one_notice(
    vectors: Path, rows: NDArray[np.float32], capsys: pytest.CaptureFixture[str]
) -> None:
    codes, bounds = vectors.with_name("codes"), vectors.with_name("bounds")
    encode(vectors, codes)
    encode(vectors, bounds, ENCODERS["bound"])
    _, truth = mercore.search(vectors, rows[:3], kernel="chi2", k=4)
    append(vectors, rows[OLD:])
    capsys.readouterr()
    for rerank in (36, None):
        _, hits = mercore.search(codes, rows[:3], k=4, rerank=rerank)
        notice = f"has 88 rows, and {codes} was made of the first 36: newer rows are not searched"
        assert capsys.readouterr().err.count(notice) == 1
        assert hits.ids.max() < OLD
        if rerank:
            np.testing.assert_array_equal(hits.ids, truth.ids)
    with pytest.raises(InputError, match=r"would not be exact\. Fix: mercore encode"):
        mercore.search(bounds, rows[:3], k=4, exact=True)
    with pytest.raises(InputError, match="to which rows were appended after 36"):
        mercore.verify(vectors, rows[:3], truth, kernel="chi2", bounds=bounds)


def test_a_measured_gamma_stays_that_of_the_first_rows(
    vectors: Path, rows: NDArray[np.float32]
) -> None:
    codes = vectors.with_name("codes")
    options: dict[str, Any] = {"kernel": "rbf", "gamma": "median"}
    before = mercore.encode(vectors, codes, **options, encoder=ENCODERS["aska"])["kernel"]
    append(vectors, 9 * rows[OLD:])  # whose median is another
    after = mercore.encode(vectors, codes, **options, encoder=ENCODERS["aska"])
    assert after["kernel"] == before
    assert after["rows"] == mercore.info(vectors)["rows"]


def test_other_options_do_not_grow_codes(vectors: Path, rows: NDArray[np.float32]) -> None:
    codes = vectors.with_name("codes")
    encode(vectors, codes)
    append(vectors, rows[OLD:])
    before = files_of(codes)
    with pytest.raises(ExistsError, match="it differs in encoder n_atoms"):
        encode(vectors, codes, "aska:atoms=8,sparsity=2")
    assert files_of(codes) == before


def test_sorted_orders_of_grown_codes_are_made_anew(
    vectors: Path, rows: NDArray[np.float32], capsys: pytest.CaptureFixture[str]
) -> None:
    codes, orders = vectors.with_name("codes"), vectors.with_name("orders")
    encode(vectors, codes, ENCODERS["klsh"])
    api.index(codes, orders, orders=2)
    append(vectors, rows[OLD:])
    encode(vectors, codes, ENCODERS["klsh"])
    capsys.readouterr()
    mercore.search(orders, rows[:3], k=2)
    assert capsys.readouterr().err.count("newer rows are not searched") == 1
    with pytest.raises(ExistsError, match=r"sorted orders cannot grow\. Fix: mercore index"):
        api.index(codes, orders, orders=2)
    api.index(codes, vectors.with_name("new"), orders=2)
    _, hits = mercore.search(vectors.with_name("new"), rows[60:63], k=1)
    np.testing.assert_array_equal(hits.ids[:, 0], [60, 61, 62])


def test_an_index_grows_with_the_vectors_that_its_codes_encode_now(
    vectors: Path, rows: NDArray[np.float32]
) -> None:
    """They are a copy, to which rows were appended."""
    codes, index, copied = (vectors.with_name(name) for name in ("codes", "index", "copied"))
    mercore.encode(vectors, codes, kernel="euclidean", encoder="pq:subquantizers=3")
    mercore.index(codes, index, cells=4)
    append(copy_of(vectors, copied.name), rows[OLD:])
    mercore.encode(copied, codes, kernel="euclidean", encoder="pq:subquantizers=3")
    mercore.index(codes, index)
    _, hits = mercore.search(index, rows[60:63], k=1, probes=4, rerank=88)
    np.testing.assert_array_equal(hits.ids[:, 0], [60, 61, 62])


@pytest.mark.promise(
    "Codes grow with their vectors: new parts alone are encoded, and a kill loses nothing"
)
def test_a_kill_at_any_moment_leaves_old_codes_or_new_ones(
    vectors: Path, rows: NDArray[np.float32]
) -> None:
    codes = vectors.with_name("codes")
    encode(vectors, codes, TWO_COLUMNS)
    old = columns_of(open_code_store(codes))
    append(vectors, rows[OLD:NEW])
    undisturbed = copy_of(codes, "undisturbed")
    encode(vectors, undisturbed, TWO_COLUMNS)
    new = columns_of(open_code_store(undisturbed))
    readers: dict[int, CodeStore] = {}

    def run(number: int) -> None:
        store = copy_of(codes, f"killed{number}")
        readers[number] = open_code_store(store)
        readers[number].check_done()
        encode(vectors, store, TWO_COLUMNS)

    seen: list[int] = []
    for number in kills(run):
        store = codes.with_name(f"killed{number}")
        found = open_code_store(store)
        expected = new if found.rows == 59 else old
        for name, values in columns_of(found).items():
            np.testing.assert_array_equal(values, expected[name])
        assert mercore.check(store)["faults"] == []
        encode(vectors, store, TWO_COLUMNS)
        assert files_of(store) == files_of(undisturbed)
        for name, values in columns_of(readers[number]).items():
            np.testing.assert_array_equal(values, old[name])
        seen.append(found.rows)
    assert set(seen) == {36, 59}
    assert len(seen) > 8


@pytest.mark.slow
def test_vectors_that_grow_again_after_a_kill_have_the_same_codes(
    vectors: Path, rows: NDArray[np.float32]
) -> None:
    codes = vectors.with_name("codes")
    encode(vectors, codes, TWO_COLUMNS)
    first = copy_of(vectors, "first")
    append(first, rows[OLD:NEW])
    second = copy_of(first, "second")
    append(second, rows[NEW:])
    direct, twice = copy_of(codes, "direct"), copy_of(codes, "twice")
    encode(second, direct, TWO_COLUMNS)
    encode(first, twice, TWO_COLUMNS)
    encode(second, twice, TWO_COLUMNS)
    ends = [files_of(direct), files_of(twice)]
    for number in kills(
        lambda number: encode(first, copy_of(codes, f"killed{number}"), TWO_COLUMNS)
    ):
        store = codes.with_name(f"killed{number}")
        encode(second, store, TWO_COLUMNS)
        assert mercore.check(store)["faults"] == []
        assert files_of(store) in ends


@pytest.mark.parametrize(
    ("files", "old"),
    [("model/**/c/0*", False), ("receipts/c/1/0", False), ("receipts/c/1/0", True)],
)
def test_damaged_files_of_grown_codes_are_written_again(
    files: str, old: bool, vectors: Path, rows: NDArray[np.float32]
) -> None:
    """The model, or the receipt of the part that grew; ``old`` is the receipt of before."""
    codes = vectors.with_name("codes")
    encode(vectors, codes)
    before = files_of(codes)
    append(vectors, rows[OLD:])
    encode(vectors, codes)
    whole = files_of(codes)
    for file in sorted(codes.glob(files)):
        if file.is_file():
            file.write_bytes(before[str(file.relative_to(codes))] if old else b"damaged")
    assert files_of(codes) != whole
    encode(vectors, codes)
    assert mercore.check(codes)["faults"] == []
    encode(vectors, codes)  # drops the old state from a receipt that describes both
    assert files_of(codes) == whole
