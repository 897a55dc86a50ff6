"""Stores that are moved: codes find their vectors, and remember their new place."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.running import histograms, invoke, succeed

ENCODE = ("--kernel", "intersection", "--encoder", "bin-bound", "--groups", 8)
SEARCH = ("-k", 3, "--rerank", 9)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder ``there`` with queries, vectors, and codes in a folder of their own."""
    there = tmp_path / "there"
    (there / "codes").mkdir(parents=True)
    np.save(there / "base.npy", histograms(300, 12, seed=1))
    np.save(tmp_path / "queries.npy", histograms(4, 12, seed=2))
    succeed(f"ingest {there}/base.npy {there}/base")
    succeed(f"encode {there}/base {there}/codes/bounds", *ENCODE)
    return there


def source_of(codes: Path) -> str:
    """The path of the vectors that codes name."""
    return str(json.loads(succeed(f"info {codes} --json"))["source"])


@pytest.mark.parametrize("options", [SEARCH, ("-k", 3, "--exact")], ids=["rerank", "exact"])
@pytest.mark.promise("Vectors and codes that are moved together find each other")
def test_base_and_codes_that_move_together_keep_working(
    options: tuple[object, ...], made: Path, tmp_path: Path
) -> None:
    queries = tmp_path / "queries.npy"
    before = succeed(f"search {made}/codes/bounds {queries}", *options)
    moved = made.rename(tmp_path / "moved")
    assert succeed(f"search {moved}/codes/bounds {queries}", *options) == before


def test_the_fingerprint_decides_which_vectors_are_right(made: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.npy"
    before = succeed(f"search {made}/codes/bounds {queries}", *SEARCH)
    moved = tmp_path / "moved"
    shutil.copytree(made, moved)
    np.save(made / "other.npy", histograms(300, 12, seed=9))
    shutil.rmtree(made / "base")
    succeed(f"ingest {made}/other.npy {made}/base")
    assert succeed(f"search {moved}/codes/bounds {queries}", *SEARCH) == before
    refused = invoke(f"search {made}/codes/bounds {queries}", *SEARCH)
    assert refused.code == 2
    assert f"{made / 'base'} is not what {made / 'codes/bounds'} encodes" in refused.err


def test_vectors_that_are_nowhere_are_asked_for(made: Path, tmp_path: Path) -> None:
    codes, base = tmp_path / "bounds", made / "base"
    (made / "codes/bounds").rename(codes)
    shutil.rmtree(base)
    outcome = invoke(f"search {codes} {tmp_path}/queries.npy", *SEARCH)
    assert (outcome.code, outcome.err) == (
        2,
        f"mercore: {base} does not exist: expected a vector store. Fix: check the path, or "
        f"mercore ingest SOURCE {base}. {codes} was encoded from it: name its new path with "
        "--vectors.\n",
    )


def test_encoding_again_records_the_new_place(made: Path, tmp_path: Path) -> None:
    codes, renamed = made / "codes/bounds", tmp_path / "renamed"
    assert source_of(codes) == str(made / "base")
    (made / "base").rename(renamed)
    report = json.loads(succeed(f"encode {renamed} {codes}", *ENCODE, "--json"))
    assert report["parts_done_now"] == 0
    assert source_of(codes) == str(renamed)
    assert json.loads(succeed(f"check {codes} --json"))["faults"] == []
    succeed(f"search {codes} {tmp_path}/queries.npy", *SEARCH)
    written = (codes / "zarr.json").stat().st_mtime_ns
    succeed(f"encode {renamed} {codes}", *ENCODE)
    assert (codes / "zarr.json").stat().st_mtime_ns == written


def test_orders_of_moved_codes_find_the_vectors(made: Path, tmp_path: Path) -> None:
    queries, klsh = tmp_path / "queries.npy", ("--kernel", "chi2", "--encoder", "klsh")
    succeed(f"encode {made}/base {made}/codes/klsh", *klsh)
    moved = made.rename(tmp_path / "moved")
    succeed(f"index {moved}/codes/klsh {tmp_path}/orders --orders 4")
    assert source_of(tmp_path / "orders") == str(moved / "base")
    succeed(f"search {tmp_path}/orders {queries} -k 3")
