"""Scans for long lists: a sample is scanned first, and the hits are those of a plain scan."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.search import scan
from mercore.pipeline.search.scan import OpenCodes, PartScan, scan_codes
from mercore.pipeline.topk import TopK
from mercore.stores.codes import open_code_store
from mercore.stores.part_store.part_store import PartStore
from mercore.testing.cases import loop_over
from tests.support.running import histograms, succeed

ROWS, DIMS, K = 13_000, 12, 200  # more than 64 rows per neighbour
ENCODERS = {
    "pq": ("kpca-pq", "--components", 8, "--subquantizers", 4, "--proof", "none"),
    "proof": ("kpca-pq", "--components", 8, "--subquantizers", 4),
    "aska": ("aska", "--atoms", 64, "--sparsity", 4),
    "bits": ("kpca-lsh", "--bits", 32),
    "dense": ("kpca", "--components", 8),
    "bound": ("kpca-bound", "--components", 8),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors in two orders: any, and with the best rows of some queries all at the beginning."""
    made = tmp_path_factory.mktemp("scan")
    rows = histograms(ROWS, DIMS, seed=1)
    rows[5000:5300] = rows[:300]  # ties across parts
    np.save(made / "any.npy", rows)
    np.save(made / "sorted.npy", rows[np.argsort(rows[:, 0], kind="stable")])
    for name in ("any", "sorted"):
        succeed(f"ingest {made}/{name}.npy {made}/{name}")
    return made


@pytest.mark.parametrize(
    ("order", "name"), [*(("any", name) for name in ENCODERS), ("sorted", "pq")]
)
def test_long_lists_are_those_of_a_plain_scan(
    name: str, order: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = folder / f"{name}-{order}"
    encoder = ("--kernel", "chi2", "--encoder", *ENCODERS[name])
    succeed(f"encode {folder}/{order} {codes}", *encoder, "--part-rows", 1000)
    queries = np.concatenate([histograms(9, DIMS, seed=2), np.load(folder / "sorted.npy")[:2]])
    found = [hits_of(codes, queries, threads) for threads in (1, 3)]
    monkeypatch.setattr(scan, "LONGEST_SORTED", ROWS)
    wanted = hits_of(codes, queries, 1)
    for each in found:
        np.testing.assert_array_equal(each.ids, wanted.ids)
        np.testing.assert_array_equal(each.scores, wanted.scores)


def hits_of(path: Path, queries: Any, threads: int) -> TopK:
    codes = open_code_store(path)
    return scan_codes(OpenCodes(codes, encoder_of(codes)), queries, K, threads=threads)


@loop_over("first", [0, 12])
def test_a_score_that_too_few_rows_reach_is_lowered(
    first: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample holds the best rows of all: it says nothing of the others."""
    codes = folder / f"few-{first}"
    encoder = ("--kernel", "chi2", "--encoder", *ENCODERS["pq"])
    succeed(f"encode {folder}/sorted {codes}", *encoder, "--part-rows", 1000)
    queries = np.load(folder / "sorted.npy")[[1000 * first + 5, 1000 * first + 6]]
    monkeypatch.setattr(
        scan, "_first_pass", lambda codes, scanned, k: scan.FirstPass([first], 1000, 9)
    )
    passes: list[object] = []
    lists = PartScan.lists

    def counted(self: PartScan, scanned: Any, *arguments: Any) -> list[TopK]:
        passes.append(scanned)
        return lists(self, scanned, *arguments)

    monkeypatch.setattr(PartScan, "lists", counted)
    found = hits_of(codes, queries, 2)
    assert len(passes) == 3
    monkeypatch.undo()
    monkeypatch.setattr(scan, "LONGEST_SORTED", ROWS)
    wanted = hits_of(codes, queries, 1)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.scores, wanted.scores)


def test_parts_of_a_distant_store_are_not_all_read_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = folder / "distant"
    encoder = ("--kernel", "chi2", "--encoder", *ENCODERS["pq"])
    succeed(f"encode {folder}/any {codes}", *encoder, "--part-rows", 500)
    opened = open_code_store(codes)
    every = OpenCodes(opened, encoder_of(opened)), (range(opened.parts), None), K
    here = scan._first_pass(*every)
    monkeypatch.setattr(PartStore, "is_local", False)
    there = scan._first_pass(*every)
    assert here is not None
    assert there is not None
    assert here.parts == list(range(26))
    assert there.parts == [0, 16]
    monkeypatch.setattr(scan, "MIN_ROWS_PER_ENTRY", 1)
    assert scan._first_pass(every[0], (range(16), None), K) is not None
    assert scan._first_pass(every[0], (range(15), None), K) is None
