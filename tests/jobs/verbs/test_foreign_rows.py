"""Codes of another tool's array, whose rows change: bounds of the old rows prove nothing of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import mercore
from mercore.jobs import api
from mercore.stores.errors import IntegrityError
from mercore.stores.results.certificates import read_certificate
from mercore.stores.rows import open_vectors
from mercore.testing.stores import histograms

CHANGED = r"array holds other rows than those that .*codes was encoded from: found digest"


Array = zarr.Array[Any]


@pytest.fixture
def array(tmp_path: Path) -> Array:
    rows = histograms(400, 16)
    made = zarr.create_array(tmp_path / "array", data=rows, chunks=(50, 16))
    api.encode(str(tmp_path / "array"), str(tmp_path / "codes"), kernel="chi2", encoder="bin-bound")
    return made


@pytest.mark.promise("Bounds of an array of another tool whose rows have changed are refused")
def test_bounds_of_rows_that_have_changed_are_refused(array: Array, tmp_path: Path) -> None:
    codes, queries = str(tmp_path / "codes"), histograms(3, 16, seed=9)
    before = api.search(codes, queries, k=2, exact=True)[1]
    array[103] = queries[0]  # no row that the fingerprint covers
    assert open_vectors(str(tmp_path / "array")).fingerprint_of == "64 of the rows"
    for search in (
        lambda: api.search(codes, queries, k=2, exact=True),
        lambda: api.search(codes, queries, within=0.5, exact=True),
        lambda: mercore.open(codes).search(queries, k=2, exact=True),
        lambda: api.encode(str(tmp_path / "array"), codes, kernel="chi2", encoder="bin-bound"),
    ):
        with pytest.raises(IntegrityError, match=CHANGED):
            search()
    array[103] = histograms(400, 16)[103]
    after = api.search(codes, queries, k=2, exact=True)[1]
    assert np.array_equal(before.ids, after.ids)


@pytest.mark.promise("A certificate says whether its fingerprint covers all rows, by which digest")
def test_a_certificate_says_what_a_fingerprint_covers(array: Array, tmp_path: Path) -> None:
    out, codes = str(tmp_path / "hits.npz"), str(tmp_path / "codes")
    api.search(codes, histograms(3, 16, seed=9), k=2, exact=True, out=out)
    about = read_certificate(f"{out}.certificate.npz")[1]
    assert about["fingerprint_of"] == "64 of the rows"
    assert len(about["content"]) == 32
    stored = str(tmp_path / "stored")
    api.ingest(str(tmp_path / "array"), stored)
    api.search(
        stored, histograms(3, 16, seed=9), k=2, kernel="chi2", exact=True, out=out, force=True
    )
    about = read_certificate(f"{out}.certificate.npz")[1]
    assert about["fingerprint_of"] == "all rows"
    assert "content" not in about
