"""Deleted rows: no search finds them, codes and certificates of before stay, kills leave one of two
states, and a compacted store has the others with their ids."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

import mercore
from mercore.stores.errors import InputError, IntegrityError, MercoreError
from mercore.stores.part_store import deletions
from mercore.stores.results.certificates import read_certificate
from tests.independent import check_certificate
from tests.independent.exact_truth import nearest
from tests.support.running import files_of, histograms, invoke, succeed

N, D, NQ, K = 600, 16, 5, 6
ROWS, QUERIES = histograms(N, D, seed=1), histograms(NQ, D, seed=2)
ROWS[[0, 9, 400]] = 0  # left out by ingest
KEPT = np.flatnonzero(ROWS.any(axis=1))
CODES = {
    "codes": "kpca-pq:landmarks=64,components=32,subquantizers=16",
    "bounds": "bin-bound:groups=16",
    "bits": "klsh:landmarks=64,subset=8,bits=32",
}
Ids = NDArray[np.int64]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Vectors, codes of them, and sorted orders, before anything is deleted."""
    mercore.ingest(ROWS, tmp_path / "v", drop_zero_rows=True)
    for name, encoder in CODES.items():
        mercore.encode(
            tmp_path / "v", tmp_path / name, kernel="chi2", encoder=encoder, part_rows=128
        )
    mercore.index(tmp_path / "bits", tmp_path / "orders", orders=4)
    np.save(tmp_path / "queries.npy", QUERIES)
    return tmp_path


def true_ids(ids: Ids) -> Ids:
    return ids[nearest("chi2", ROWS[ids], QUERIES, K)]


def searches(folder: Path) -> Iterator[Ids]:
    """The ids that every kind of search finds, which are the true ones."""
    every: dict[str, list[dict[str, Any]]] = {
        "v": [{"kernel": "chi2"}, {"kernel": "chi2", "exact": True}],
        "codes": [{"exact": True}, {"rerank": 100}],
        "bounds": [{"exact": True}],
        "orders": [{"neighbours": 600}],
    }
    for store, kinds in every.items():
        for options in kinds:
            yield mercore.search(folder / store, QUERIES, k=K, **options)[1].ids
    with mercore.open(folder / "codes") as opened:
        yield opened.search(QUERIES, k=K, exact=True).ids
        hits = opened.search_within(QUERIES, 0.0, exact=True)
        yield np.array([hits.of(query)[0][:K] for query in range(NQ)])


@pytest.mark.promise(
    "No search finds a deleted row; a kill of a deletion leaves the rows of before or after, and lost bits are found"
)
def test_no_search_finds_a_deleted_row(folder: Path) -> None:
    before, gone = true_ids(KEPT), np.empty(0, np.int64)
    for found in searches(folder):
        np.testing.assert_array_equal(found, before)
    for some in (before[:, 0], before[:, :3].ravel(), np.arange(100, 250)):
        report = mercore.delete(folder / "v", some)
        left = np.setdiff1d(KEPT, [*gone, *some])
        assert report["rows_deleted"] == len(KEPT) - len(gone) - len(left)
        gone = np.setdiff1d(KEPT, left)
        assert report["rows"] == len(left)
        assert report["rows_deleted_in_all"] == len(gone)
        for found in searches(folder):
            np.testing.assert_array_equal(found, true_ids(left))
        approximate = mercore.search(folder / "codes", QUERIES, k=len(left))[1].ids
        np.testing.assert_array_equal(np.sort(approximate, axis=1), np.tile(left, (NQ, 1)))
    assert mercore.info(folder / "v")["deleted_rows"] == len(gone)
    assert len(list((folder / "v" / "deleted").iterdir())) == 2  # the last one, and the one before
    assert mercore.check(folder / "v")["faults"] == []

    processes: Any = {"exact": True, "processes": 2}
    found = mercore.search(folder / "codes", QUERIES, k=K, **processes)[1].ids
    np.testing.assert_array_equal(found, true_ids(left))
    among = np.arange(200, 600)
    found = mercore.search(folder / "codes", QUERIES, k=K, exact=True, among=among)[1].ids
    np.testing.assert_array_equal(found, true_ids(np.intersect1d(left, among)))


def test_certificates_state_the_rows_that_count(folder: Path) -> None:
    line = f"search {folder}/codes {folder}/queries.npy -k {K} --exact --out"
    succeed(f"{line} {folder}/before.npz")
    succeed(f"delete {folder}/v 100:300")
    succeed(f"{line} {folder}/after.npz")
    left = KEPT[(KEPT < 100) | (KEPT >= 300)]
    np.save(folder / "left.npy", left)
    for name, more in (("before", []), ("after", [f"{folder}/left.npy"])):
        files = [f"{folder}/v", f"{folder}/queries.npy", f"{folder}/{name}.npz"]
        assert check_certificate.main([*files, f"{files[-1]}.certificate.npz", *more]) == 0
    _, about = read_certificate(f"{folder}/after.npz.certificate.npz")
    assert about["selected"]["rows"] == len(left)
    verify = f"verify {folder}/v {folder}/queries.npy {folder}"
    succeed(f"{verify}/after.npz --kernel chi2 --bounds {folder}/bounds")
    assert invoke(f"{verify}/before.npz --kernel chi2").code == 1


def test_appended_rows_count_and_deleted_ones_stay_deleted(folder: Path) -> None:
    mercore.delete(folder / "v", slice(100, 300))
    mercore.append(ROWS[100:200], folder / "v")
    every = np.concatenate([ROWS, ROWS[100:200]])
    left = np.concatenate([KEPT[(KEPT < 100) | (KEPT >= 300)], np.arange(N, N + 100)])
    true = left[nearest("chi2", every[left], QUERIES, K)]
    found = mercore.search(folder / "v", QUERIES, k=K, kernel="chi2")[1].ids
    np.testing.assert_array_equal(found, true)
    old = mercore.search(folder / "codes", QUERIES, k=K, rerank=100)[1].ids
    np.testing.assert_array_equal(old, true_ids(left[left < N]))
    for name, encoder in CODES.items():
        mercore.encode(folder / "v", folder / name, kernel="chi2", encoder=encoder, part_rows=128)
    found = mercore.search(folder / "codes", QUERIES, k=K, exact=True)[1].ids
    np.testing.assert_array_equal(found, true)
    mercore.delete(folder / "v", true[:, 0])
    left = np.setdiff1d(left, true[:, 0])
    found = mercore.search(folder / "codes", QUERIES, k=K, exact=True)[1].ids
    np.testing.assert_array_equal(found, left[nearest("chi2", every[left], QUERIES, K)])


def test_a_compacted_store_has_the_other_rows_with_their_ids(folder: Path) -> None:
    mercore.delete(folder / "v", slice(100, 300))
    left = KEPT[(KEPT < 100) | (KEPT >= 300)]
    report = mercore.compact(folder / "v", folder / "w")
    assert report["rows"] == len(left)
    assert report["source_rows"] == N
    found = mercore.search(folder / "w", QUERIES, k=K, kernel="chi2")[1].ids
    np.testing.assert_array_equal(found, true_ids(left))
    assert mercore.check(folder / "w")["faults"] == []
    mercore.append(ROWS[1:2], folder / "w")  # ids go on where those of the old store ended
    ids = mercore.search(folder / "w", ROWS[1:2], k=2, kernel="chi2")[1].ids
    assert ids.tolist() == [[1, N]]
    with pytest.raises(InputError, match="has no deleted rows"):
        mercore.compact(folder / "w", folder / "x")


@pytest.mark.promise(
    "No search finds a deleted row; a kill of a deletion leaves the rows of before or after, and lost bits are found"
)
def test_a_kill_leaves_the_rows_of_before_or_after(folder: Path) -> None:
    before = files_of(folder / "v")
    with (
        patch.object(deletions, "root_metadata", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        mercore.delete(folder / "v", slice(100, 300))
    for found in searches(folder):
        np.testing.assert_array_equal(found, true_ids(KEPT))
    mercore.delete(folder / "v", slice(100, 300))
    after = files_of(folder / "v")
    assert {key for key in after if after[key] != before.get(key)} == {
        "zarr.json",
        *(f"deleted/{each.name}" for each in (folder / "v" / "deleted").iterdir()),
    }
    assert mercore.delete(folder / "v", slice(150, 200))["rows_deleted"] == 0
    assert files_of(folder / "v") == after


@pytest.mark.parametrize("damage", ["removed", "another", "cut", "header"])
@pytest.mark.promise(
    "No search finds a deleted row; a kill of a deletion leaves the rows of before or after, and lost bits are found"
)
def test_a_damaged_deletion_is_no_undoing(damage: str, folder: Path) -> None:
    mercore.delete(folder / "v", slice(100, 300))
    (file,) = (folder / "v" / "deleted").iterdir()
    if damage == "header":  # whose digest no longer fits
        header = folder / "v" / "zarr.json"
        header.write_text(header.read_text().replace(file.name, "0" * 32))
        with pytest.raises(IntegrityError, match=r"zarr\.json is damaged"):
            mercore.search(folder / "codes", QUERIES, k=K)
        return
    if damage == "removed":
        file.unlink()
    elif damage == "another":
        file.write_bytes(zlib.compress(bytes(80)))
    else:
        file.write_bytes(file.read_bytes()[:-1])
    for store in ("v", "codes"):
        kernel: Any = {"kernel": "chi2"} if store == "v" else {}
        with pytest.raises(IntegrityError, match="expected the bits of 200 deleted rows"):
            mercore.search(folder / store, QUERIES, k=K, **kernel)
    assert len(mercore.check(folder / "v")["faults"]) == 1


def test_what_cannot_be_deleted_is_refused(folder: Path) -> None:
    before = files_of(folder / "v")
    for ids, message in {
        "0:601": "id 600 is not one of",
        "0:600": "no row of .* would be left",
        "nothing.npy": "no such file",
        f"{folder}/queries.npy": "expected ids",
    }.items():
        with pytest.raises(MercoreError, match=message):
            mercore.delete(folder / "v", ids)
    with pytest.raises(MercoreError, match="is a store of codes"):
        mercore.delete(folder / "codes", "0:5")
    assert files_of(folder / "v") == before
