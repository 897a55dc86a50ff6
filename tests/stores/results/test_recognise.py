"""Hits and certificates are recognised by the content of their files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.stores.results.certificates import write_certificate
from mercore.stores.results.hits import Hits, certificate_path, write_hits
from mercore.stores.results.recognise import describe_results
from tests.stores.results.test_foreign_hits import hdf5
from tests.stores.results.test_hits import IDS, SCORES


@pytest.mark.parametrize("suffix", ["npz", "parquet", "ivecs", "ibin", "h5", "npy"])
def test_hits_are_known(suffix: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"a.{suffix}")
    write_hits(path, Hits(scores=SCORES, ids=IDS))
    expected = {"kind": "hits", "path": path, "queries": 2, "k": 3}
    scores = None if suffix == "npy" else "float32"
    assert describe_results(path) == {**expected, "scores": scores}


def test_a_certificate_is_known_and_belongs_to_its_hits(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    write_hits(path, Hits(scores=SCORES, ids=IDS))
    write_certificate(certificate_path(path), {"kth": SCORES[:, 2]}, {"exact": True})
    described = describe_results(path)
    assert described is not None
    assert described["certificate"] == certificate_path(path)
    proof = {"kind": "certificate", "path": certificate_path(path), "query_count": 2, "exact": True}
    assert describe_results(certificate_path(path)) == proof


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[1, 0, 0, 2]], np.int64),
        np.array([[1, -2, 0]], np.int32),
        np.array([[1, 2, 3]], np.uint8),
        np.array([[1, 2, 3]], np.float32),
        np.empty((0, 3), np.int64),
    ],
)
def test_vectors_are_no_hits(rows: NDArray[Any], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", rows)
    assert describe_results(str(tmp_path / "a.npy")) is None


def test_what_holds_no_hits_is_left_to_others(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", data=IDS)
    vectors = hdf5(tmp_path / "a.h5", train=SCORES, neighbors=IDS)
    (tmp_path / "b.npz").write_bytes(b"no zip")
    (tmp_path / "b.parquet").write_bytes(b"no Parquet")
    (tmp_path / "b.h5").write_bytes(b"no HDF5")
    (tmp_path / "b.ibin").write_bytes(b"short")
    names = ["a.npz", "b.npz", "b.parquet", "b.h5", "b.ibin"]
    assert [describe_results(str(tmp_path / name)) for name in names] == [None] * 5
    assert describe_results(vectors) is None
    truth = describe_results(f"{vectors}::neighbors")
    assert truth is not None
    assert truth["queries"] == 2
