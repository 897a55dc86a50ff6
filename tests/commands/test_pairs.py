"""Pairs within a threshold: complete against NumPy, each once, by every kind of store; groups, absence
and its certificate, resumption, and what is refused."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from numpy.typing import NDArray

import mercore
from mercore.jobs.verbs.pairs import PairsTask
from mercore.stores.errors import InputError
from mercore.testing.cases import loop_over
from tests.independent import check_certificate, reference
from tests.support.running import histograms, invoke, succeed

N, D, NQ = 500, 16, 40
ROWS, OTHERS = histograms(N, D, seed=1), histograms(NQ, D, seed=2)
ROWS[400:430] = ROWS[100:130]
ROWS[[430, 431]] = ROWS[100]
ROWS[[0, 3, 250]] = 0  # left out by ingest
KEPT = np.flatnonzero(ROWS.any(axis=1))
OTHERS[7] = ROWS[120]
STORES = {
    "v": {"kernel": "chi2"},
    "codes": {},
    "bounds": {},
}


def shares(rows: NDArray[Any]) -> NDArray[np.float64]:
    return reference.prepare("chi2", rows)


OWN = reference.kernel("chi2", shares(ROWS[KEPT]), shares(ROWS[KEPT]))
CROSS = reference.kernel("chi2", shares(OTHERS), shares(ROWS[KEPT]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, codes that prove, bounds, and other rows."""
    folder = tmp_path_factory.mktemp("pairs")
    mercore.ingest(ROWS, folder / "v", drop_zero_rows=True)
    encoder = "kpca-pq:landmarks=64,components=32,subquantizers=16"
    for name, text in (("codes", encoder), ("bounds", "bin-bound:groups=16")):
        mercore.encode(folder / "v", folder / name, kernel="chi2", encoder=text, part_rows=128)
    np.save(folder / "others.npy", OTHERS)
    return folder


def listed(hits: Any) -> set[tuple[int, int]]:
    """The pairs of hits, none of them twice."""
    first = np.repeat(np.arange(len(hits)), np.diff(hits.lims))
    pairs = list(zip(first.tolist(), hits.ids.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def own_pairs(threshold: float, ids: NDArray[Any] = KEPT) -> set[tuple[int, int]]:
    """All pairs of different rows within, the lower id first."""
    first, second = np.nonzero(np.triu(threshold - 1e-12 <= OWN, 1))
    some = np.isin(KEPT[first], ids) & np.isin(KEPT[second], ids)
    return set(zip(KEPT[first[some]].tolist(), KEPT[second[some]].tolist(), strict=True))


@loop_over("threshold", [1 - 1e-9, 0.8, 0.6, 2.0])
@loop_over(("threads", "batch"), [(1, 1024), (2, 64)])
@pytest.mark.parametrize("name", STORES)
@pytest.mark.promise(
    "Pairs within a threshold are complete, each is found once, and absence is certified"
)
def test_pairs_are_all_there_and_each_is_found_once(
    name: str, threads: int, batch: int, threshold: float, folder: Path
) -> None:
    given: Any = {"within": threshold, "threads": threads, "batch": batch, **STORES[name]}
    report, hits = mercore.pairs(folder / name, **given)
    assert listed(hits) == own_pairs(threshold)
    assert report["pairs"] == len(hits.ids)
    _, hits = mercore.pairs(folder / name, OTHERS, **given)
    first, second = np.nonzero(threshold - 1e-12 <= CROSS)
    assert listed(hits) == set(zip(first.tolist(), KEPT[second].tolist(), strict=True))
    _, hits = mercore.pairs(folder / name, among="100:420", **given)
    assert listed(hits) == own_pairs(threshold, np.arange(100, 420))


def test_files_groups_and_certificates(folder: Path, tmp_path: Path) -> None:
    line = f"pairs {folder}/codes --within 0.8 --batch 100"
    succeed(f"{line} --out {tmp_path}/p.parquet --groups {tmp_path}/g.parquet")
    table = pq.read_table(f"{tmp_path}/p.parquet").to_pydict()
    assert set(zip(table["first"], table["second"], strict=True)) == own_pairs(0.8)
    at = np.searchsorted(KEPT, table["first"]), np.searchsorted(KEPT, table["second"])
    np.testing.assert_allclose(table["score"], OWN[at], rtol=0, atol=1e-12)

    groups = pq.read_table(f"{tmp_path}/g.parquet").to_pydict()
    group = {int(each): int(each) for each in KEPT}
    for _ in range(N):  # slow and obvious: the lowest id spreads along pairs
        before = dict(group)
        for first, second in own_pairs(0.8):
            group[first] = group[second] = min(group[first], group[second])
        if before == group:
            break
    assert dict(zip(groups["id"], groups["group"], strict=True)) == group
    assert [i for i, keep in zip(groups["id"], groups["keep"], strict=True) if keep] == sorted(
        set(group.values())
    )
    mercore.delete(folder / "v", [])  # of nothing
    succeed(f"{line} --out {tmp_path}/p.npz --groups {tmp_path}/g.npz")
    matrix: Any = scipy.sparse.load_npz(f"{tmp_path}/p.npz")
    assert matrix.shape == (N, N)
    assert set(zip(*(each.tolist() for each in matrix.nonzero()), strict=True)) == own_pairs(0.8)
    with np.load(f"{tmp_path}/g.npz") as file:
        np.testing.assert_array_equal(file["group"], groups["group"])
    files = [f"{folder}/v", f"{folder}/others.npy", f"{tmp_path}/p.npz"]
    proof = f"{files[-1]}.certificate.npz"
    assert check_certificate.main([*files, proof]) == 0
    with np.load(files[-1]) as file:
        arrays = dict(file)
    first = int(np.flatnonzero(np.diff(arrays["indptr"]))[0])
    arrays["indptr"] = arrays["indptr"] - (np.arange(N + 1) > first)
    for name in ("indices", "data"):
        arrays[name] = np.delete(arrays[name], arrays["indptr"][first])
    np.savez(files[-1], **arrays)
    assert check_certificate.main([*files, proof]) == 1


@pytest.mark.promise(
    "Pairs within a threshold are complete, each is found once, and absence is certified"
)
def test_absence_is_certified_and_a_planted_pair_is_found(folder: Path, tmp_path: Path) -> None:
    clean = np.delete(OTHERS, 7, axis=0)
    np.save(tmp_path / "clean.npy", clean)
    line = f"--within 0.999 --none --out {tmp_path}/none.npz"
    outcome = invoke(f"pairs {folder}/codes {tmp_path}/clean.npy {line}")
    assert outcome.code == 0
    assert "no pair is within" in outcome.err
    files = [f"{folder}/v", f"{tmp_path}/clean.npy", f"{tmp_path}/none.npz"]
    assert check_certificate.main([*files, f"{files[-1]}.certificate.npz"]) == 0
    (tmp_path / "none.npz").unlink()
    (tmp_path / "none.npz.certificate.npz").unlink()
    outcome = invoke(f"pairs {folder}/codes {folder}/others.npy {line} --batch 8 --threads 1")
    assert outcome.code == 1
    assert outcome.out.splitlines()[1].split("\t")[:2] == ["7", "120"]
    assert "the search ended there" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["clean.npy"]  # nothing is proved
    report = json.loads(invoke(f"pairs {folder}/codes --within 0.9999 --none --json").out)
    assert report["refuted"] == 1


@pytest.mark.parametrize("store", ["v --kernel chi2", "codes"])
def test_a_pair_a_hair_beyond_the_threshold_does_not_end_the_search(
    store: str, folder: Path, tmp_path: Path
) -> None:
    """Such a pair is scored, and not within: the other batches are searched, and none is certified."""
    name, *kernel = store.split(" ", 1)
    hits = mercore.search(folder / "v", OTHERS, k=1, kernel="chi2")[1]
    assert hits.scores is not None
    clean = np.delete(OTHERS, 7, axis=0)
    beyond = np.nextafter(np.delete(hits.scores[:, 0], 7).max(), 2)
    np.save(tmp_path / "clean.npy", clean)
    line = f"pairs {folder}/{name} {tmp_path}/clean.npy {' '.join(kernel)} --none --batch 4"
    report = json.loads(
        succeed(f"{line} --within {float(beyond)!r} --out {tmp_path}/none.npz --json")
    )
    assert (report["refuted"], report["pairs"]) == (0, 0)
    assert len(report["written"]) == 2
    files = [f"{folder}/v", f"{tmp_path}/clean.npy", f"{tmp_path}/none.npz"]
    assert check_certificate.main([*files, f"{files[-1]}.certificate.npz"]) == 0


def test_a_killed_search_ends_in_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    line = f"pairs {folder}/bounds --within 0.7 --batch 100 --threads 1"
    succeed(f"{line} --out {tmp_path}/whole.npz")
    solved: list[int] = []
    solve = PairsTask.solve

    def killed(self: PairsTask, search: Any, queries: Any, k: int, first: int = 0) -> Any:
        solved.append(first)
        if len(solved) == 3:
            raise KeyboardInterrupt
        return solve(self, search, queries, k, first)

    with patch.object(PairsTask, "solve", killed):
        assert invoke(f"{line} --out {tmp_path}/pairs.npz").code != 0
        succeed(f"{line} --out {tmp_path}/pairs.npz")
    assert solved == [0, 100, 200, 200, 300, 400]
    for suffix in ("", ".certificate.npz"):
        whole = (tmp_path / f"whole.npz{suffix}").read_bytes()
        assert (tmp_path / f"pairs.npz{suffix}").read_bytes() == whole


@pytest.mark.slow
def test_processes_find_the_same_pairs(folder: Path) -> None:
    _, hits = mercore.pairs(folder / "codes", within=0.8, processes=2, batch=100)
    assert listed(hits) == own_pairs(0.8)


def test_what_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    for words, message in {
        f"{folder}/codes --within 0.9 --none --groups {tmp_path}/g.npz": "found both",
        f"{folder}/codes --within 0.9 --groups {tmp_path}/g.csv": "unknown suffix",
        f"{folder}/codes {folder}/others.npy --within 0.9 --groups {tmp_path}/g.npz": "one store",
        f"{folder}/codes --within 0.9 --out {tmp_path}/p.ivecs": "of any number",
        f"{folder}/v --within 0.9": "needs a kernel",
        f"{folder}/codes": "--within",
    }.items():
        outcome = invoke(f"pairs {words}")
        assert outcome.code == 2
        assert message in outcome.err
    bits = "klsh:landmarks=64,bits=32"
    mercore.encode(folder / "v", tmp_path / "bits", kernel="chi2", encoder=bits)
    with pytest.raises(InputError, match="bound no score"):
        mercore.pairs(tmp_path / "bits", within=0.9)
