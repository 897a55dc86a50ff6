"""The graph of all rows: the nearest other rows of each, against brute force; equal rows, files,
resumption, and what is refused."""

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
from mercore.jobs.verbs import graph
from mercore.jobs.verbs.searches.exact import figures_of
from mercore.pipeline.kernels.sums import Chi2
from mercore.testing.cases import loop_over
from tests.independent import check_certificate
from tests.independent.exact_truth import nearest
from tests.support.running import histograms, invoke, succeed
from tests.support.tiers import first_of, slow_unless

N, D, K = 400, 16, 5
ROWS = histograms(N, D, seed=1)
ROWS[300:320] = ROWS[100]  # more equal rows than neighbours
ROWS[330:340] = ROWS[200:210]
ROWS[[0, 3, 250]] = 0  # left out by ingest
KEPT = np.flatnonzero(ROWS.any(axis=1))
Ids = NDArray[np.int64]
STORES: dict[str, dict[str, Any]] = {
    "v": {"kernel": "chi2"},
    "codes": {},
    "bounds": {},
    "v as distances": {"kernel": "euclidean"},
    "v as products": {"kernel": "inner_product"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    mercore.ingest(ROWS, folder / "v", drop_zero_rows=True)
    encoder = "kpca-pq:landmarks=64,components=32,subquantizers=16"
    for name, text in (("codes", encoder), ("bounds", "bin-bound:groups=16")):
        mercore.encode(folder / "v", folder / name, kernel="chi2", encoder=text, part_rows=128)
    return folder


def true_graph(kernel: str, ids: Ids) -> Ids:
    """The k nearest others of each row, of all its neighbours in their true order."""
    every = ids[nearest(kernel, ROWS[ids], ROWS[ids], len(ids))]
    others: Ids = every[every != ids[:, None]].reshape(len(ids), -1)
    return others[:, :K]


def listed(hits: Any, ids: Ids) -> Ids:
    """The neighbours of some ids; no other id has any."""
    assert len(hits) == N
    assert np.diff(hits.lims)[ids].tolist() == [K] * len(ids)
    assert len(hits.ids) == K * len(ids)
    return np.array([hits.of(i)[0] for i in ids.tolist()])


@pytest.fixture(autouse=True)
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small stores, too, score each pair once."""
    monkeypatch.setattr(graph, "LEAST_ROWS", 0)


@loop_over(("threads", "batch"), [(1, 1024), (2, 50), (2, None)])
@pytest.mark.parametrize("name", slow_unless(first_of(lambda name: "products" in name), STORES))
@pytest.mark.promise(
    "The graph of all rows holds the true nearest others of each, equal rows among them"
)
def test_the_neighbours_are_the_true_ones(
    name: str, threads: int, batch: int | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if batch is None:  # each row asks all others
        monkeypatch.setattr(graph, "LEAST_ROWS", N)
    options = STORES[name]
    given: Any = {**options, "k": K, "threads": threads, "batch": batch}
    store, kernel = folder / name.split(maxsplit=1)[0], options.get("kernel", "chi2")
    report, hits = mercore.graph(store, **given)
    np.testing.assert_array_equal(listed(hits, KEPT), true_graph(kernel, KEPT))
    assert report["k"] == K
    some = KEPT[(KEPT >= 100) & (KEPT < 320)]
    _, hits = mercore.graph(store, among="100:320", **given)
    np.testing.assert_array_equal(listed(hits, some), true_graph(kernel, some))


def test_files_are_by_id(folder: Path, tmp_path: Path) -> None:
    line = f"graph {folder}/codes -k {K} --out"
    true = true_graph("chi2", KEPT)
    succeed(f"{line} {tmp_path}/g.npz --distances")
    matrix: Any = scipy.sparse.load_npz(f"{tmp_path}/g.npz")
    assert matrix.shape == (N, N)
    np.testing.assert_array_equal(matrix.indices.reshape(-1, K), true)
    nearest_ones = mercore.KernelNeighbors(K, kernel="chi2").fit(folder / "v")
    distances, ids = nearest_ones.kneighbors()
    np.testing.assert_array_equal(ids, true)
    np.testing.assert_allclose(matrix.data.reshape(-1, K), distances, rtol=1e-12, atol=1e-12)
    succeed(f"{line} {tmp_path}/g.parquet")
    table = pq.read_table(f"{tmp_path}/g.parquet").to_pydict()
    assert [table["ids"][i] for i in KEPT.tolist()] == true.tolist()
    assert table["ids"][3] == []


@loop_over("options", ["", "--distances", "--among 100:320"])
@pytest.mark.parametrize("kernel", ["chi2", "euclidean"])
@pytest.mark.promise(
    "The graph of all rows holds the true nearest others of each, equal rows among them"
)
def test_certificates_prove_the_graph_and_refute_another(
    kernel: str, options: str, folder: Path, tmp_path: Path
) -> None:
    out = f"{tmp_path}/graph-{options.strip('-')[:5]}.npz"
    succeed(f"graph {folder}/v --kernel {kernel} -k {K} --out {out} {options}")
    np.save(tmp_path / "ids.npy", np.arange(100, 320))
    np.save(tmp_path / "no.npy", ROWS[:1])  # queries, which are the rows themselves
    files = [f"{folder}/v", f"{tmp_path}/no.npy", out, f"{out}.certificate.npz"]
    files += [f"{tmp_path}/ids.npy"] * ("among" in options)
    assert check_certificate.main(files) == 0
    with np.load(out) as file:
        arrays = dict(file)
    at = int(arrays["indptr"][150])
    for fault in range(2):
        wrong = {name: values.copy() for name, values in arrays.items()}
        if fault == 0:  # another row in the place of one
            missing = np.setdiff1d(np.arange(151, 299), arrays["indices"][at : at + K])
            wrong["indices"][at + 1] = missing[missing != 250][0]
        else:
            wrong["data"][at + 1] += 1e-6
        np.savez(out, **wrong)
        assert check_certificate.main(files) == 1


def test_a_killed_graph_ends_in_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    line = f"graph {folder}/bounds -k {K} --batch 100 --threads 1 --out"
    succeed(f"{line} {tmp_path}/whole.npz")
    solved: list[int] = []
    solve = graph.TurnsTask.solve

    def killed(self: graph.TurnsTask, search: Any, queries: Any, k: int, first: int = 0) -> Any:
        solved.append(first)
        if len(solved) == 3:
            raise KeyboardInterrupt
        return solve(self, search, queries, k, first)

    with patch.object(graph.TurnsTask, "solve", killed):
        assert invoke(f"{line} {tmp_path}/g.npz").code != 0
        succeed(f"{line} {tmp_path}/g.npz")
    assert solved == [0, 100, 200, 200, 300]
    for suffix in ("", ".certificate.npz"):
        whole = (tmp_path / f"whole.npz{suffix}").read_bytes()
        assert (tmp_path / f"g.npz{suffix}").read_bytes() == whole


@loop_over("options", ["", "--hits-format faiss", "--distances", "--among 100:320"])
@pytest.mark.promise(
    "The graph of all rows holds the true nearest others of each, equal rows among them"
)
def test_a_graph_that_is_written_batch_by_batch_has_the_bytes_of_one_in_memory(
    options: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so has a killed one; what it keeps is checked when it is read."""
    name = f"g{len(options)}"
    line = f"graph {folder}/bounds -k {K} --batch 100 --threads 1 {options} --out {tmp_path}/{name}"
    monkeypatch.setattr(graph, "LEAST_ROWS", N)  # each row asks all others
    with monkeypatch.context() as in_memory:
        in_memory.setattr(graph.GraphTask, "in_pieces", False)
        succeed(f"{line}-memory.npz")
    solved: list[int] = []
    solve = graph.GraphTask.solve

    def killed(self: graph.GraphTask, search: Any, queries: Any, k: int, first: int = 0) -> Any:
        solved.append(first)
        if len(solved) == 2:
            raise KeyboardInterrupt
        return solve(self, search, queries, k, first)

    with patch.object(graph.GraphTask, "solve", killed):
        assert invoke(f"{line}-pieces.npz").code != 0
        succeed(f"{line}-pieces.npz")
    assert solved[:3] == [0, 100, 100]
    for suffix in (".npz", ".npz.certificate.npz"):
        in_pieces = (tmp_path / f"{name}-pieces{suffix}").read_bytes()
        assert in_pieces == (tmp_path / f"{name}-memory{suffix}").read_bytes()
    assert not list(tmp_path.glob("*.parts"))


def test_hits_of_a_graph_in_a_file_are_read_when_they_are_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "LEAST_ROWS", N)
    _, expected = mercore.graph(folder / "bounds", k=K)
    _, hits = mercore.graph(folder / "bounds", k=K, out=tmp_path / "g.npz")
    assert not {"lims", "ids", "scores"} & vars(hits).keys()
    assert len(hits) == N
    for found, values in zip(hits, expected, strict=True):
        np.testing.assert_array_equal(found, values)


def test_a_kept_batch_that_is_damaged_before_the_end_is_an_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"graph {folder}/bounds -k {K} --batch 100 --threads 1 --out {tmp_path}/g.npz"
    monkeypatch.setattr(graph, "LEAST_ROWS", N)

    def damaged(task: Any, proved: Any) -> Any:
        (tmp_path / "g.npz.parts" / "batch-00000002.npz").write_bytes(b"")
        return figures_of(task, proved)

    with monkeypatch.context() as once:
        once.setattr(graph, "figures_of", damaged)
        outcome = invoke(line)
    assert outcome.code == 1
    assert "batch 2 beside" in outcome.err
    assert not (tmp_path / "g.npz").exists()
    succeed(line)


def test_answers_in_pieces_take_less_memory(folder: Path, tmp_path: Path) -> None:
    """The plan says so; rows that ask in turn, and other formats, hold answers in memory."""
    line = f"plan graph {folder}/v --kernel chi2 -k {K} --batch 64 --json"
    pieces = json.loads(succeed(f"{line} --processes 1 --out {tmp_path}/g.npz"))["memory"]
    memory = json.loads(succeed(f"{line} --processes 1 --out {tmp_path}/g.parquet"))["memory"]
    assert memory - pieces > 500 * len(KEPT)


@loop_over("options", ["", "--distances"])
def test_a_graph_by_codes_is_that_of_their_best_scored_again(
    options: str, folder: Path, tmp_path: Path
) -> None:
    line = f"graph {folder}/codes -k {K} {options} --out"
    succeed(f"{line} {tmp_path}/true{options}.npz")
    succeed(f"{line} {tmp_path}/all{options}.npz --rerank {len(KEPT)} --batch 100")
    true: Any = scipy.sparse.load_npz(f"{tmp_path}/true{options}.npz")
    every: Any = scipy.sparse.load_npz(f"{tmp_path}/all{options}.npz")
    np.testing.assert_array_equal(every.indices, true.indices)
    np.testing.assert_array_equal(every.data, true.data)
    assert not list(tmp_path.glob(f"all{options}*certificate*"))
    report, hits = mercore.graph(folder / "codes", k=K, rerank=20)
    _, found = mercore.search(folder / "codes", folder / "v", k=K + 1, rerank=21)
    others = [[i for i in ids if i != own][:K] for own, ids in zip(KEPT, found.ids, strict=True)]
    np.testing.assert_array_equal(listed(hits, KEPT), others)
    assert report["k"] == K


def scored(folder: Path) -> float:
    """The share of the rows that most rows were scored against; the neighbours are the true ones."""
    report, hits = mercore.graph(folder / "v", kernel="chi2", k=K, batch=50)
    np.testing.assert_array_equal(listed(hits, KEPT), true_graph("chi2", KEPT))
    return float(report["rows_scored"]["median"])


def test_each_pair_is_scored_once_where_memory_and_kernel_allow(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scored(folder) < 0.7
    with monkeypatch.context() as short:
        short.setattr(graph, "PAIRS_PER_NEIGHBOUR", 1 << 40)
        assert scored(folder) == 1
    monkeypatch.setattr(Chi2, "symmetric", False)  # scores depend on which row asks
    assert scored(folder) == 1


@pytest.mark.parametrize("most", [100, 2000])  # of a batch; of all batches together
def test_rows_that_keep_too_many_pairs_ask_all_others(
    most: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph.GraphTask, "max_pairs", most)
    assert scored(folder) == 1
    succeed(f"graph {folder}/v --kernel chi2 -k {K} --batch 100 --out {tmp_path}/g.npz")
    assert {each.name for each in tmp_path.iterdir()} == {"g.npz", "g.npz.certificate.npz"}


def test_a_graph_that_began_without_turns_goes_on_without(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"graph {folder}/v --kernel chi2 -k {K} --batch 100 --out {tmp_path}/g.npz"
    solved: list[int] = []
    solve = graph.GraphTask.solve

    def killed(self: graph.GraphTask, search: Any, queries: Any, k: int, first: int = 0) -> Any:
        solved.append(first)
        if len(solved) == 3:
            raise KeyboardInterrupt
        return solve(self, search, queries, k, first)

    monkeypatch.setattr(graph.GraphTask, "solve", killed)
    with monkeypatch.context() as few_rows:
        few_rows.setattr(graph, "LEAST_ROWS", N)
        assert invoke(f"{line} --threads 1").code != 0
    succeed(f"{line} --threads 1")
    assert solved == [0, 100, 200, 200, 300]


def test_what_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there.npz").write_bytes(b"")
    for words, message in {
        f"{folder}/codes -k 397": "found 397, expected 1 to 396, the other rows",
        f"{folder}/codes -k 1 --among 5:6": "found 1, expected 1 to 0, the other rows",
        f"{folder}/v": "needs a kernel",
        f"{folder}/v --kernel chi2 --rerank 20": "have true scores already",
        f"{folder}/v --kernel inner_product --distances": "gives no distances",
        f"{folder}/codes --out {tmp_path}/g.h5": "of any number",
        f"{folder}/codes --out {tmp_path}/there.npz": "exists",
        f"{folder}/codes --hits-format npz": "no file is written",
    }.items():
        outcome = invoke(f"graph {words}")
        assert outcome.code == 2
        assert message in outcome.err
