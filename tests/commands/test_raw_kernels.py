"""Euclidean distances and inner products by the real command: searches, verdicts, codes, γ."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mercore
from mercore.stores.results.hits import Hits, read_hits, write_hits
from tests.independent.exact_truth import nearest
from tests.support.running import invoke, succeed

N, NQ, D, K = 400, 20, 16, 10
KERNELS = ("euclidean", "inner_product")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of bytes with many ties and a row of zeros, and queries."""
    folder, rng = tmp_path_factory.mktemp("raw"), np.random.default_rng(0)
    rows = rng.integers(0, 12, (N, D)).astype(np.uint8)
    rows[7], rows[300] = 0, rows[3]
    np.save(folder / "base.npy", rows)
    np.save(folder / "queries.npy", rng.integers(0, 12, (NQ, D)).astype(np.uint8))
    succeed(f"ingest {folder}/base.npy {folder}/base")
    return folder


def loaded(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.load(folder / "base.npy"), np.load(folder / "queries.npy")


def search(folder: Path, store: object, *options: object) -> dict[str, Any]:
    words = ("search", folder / str(store), folder / "queries.npy", "-k", K, "--json")
    report: dict[str, Any] = json.loads(succeed(*words, *options))
    return report


def scores_of(kernel: str, rows: NDArray[Any], queries: NDArray[Any]) -> NDArray[np.float64]:
    """The scores that users see, float64[nq, n]."""
    X, Y = queries.astype(float), rows.astype(float)
    if kernel == "euclidean":
        return np.asarray(np.sqrt(np.square(X[:, None] - Y[None]).sum(axis=2)))
    return np.asarray(X @ Y.T)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_search_gives_the_true_rows_with_distances_or_products(
    kernel: str, folder: Path, tmp_path: Path
) -> None:
    rows, queries = loaded(folder)
    true = nearest(kernel, rows, queries, K)
    scores = np.take_along_axis(scores_of(kernel, rows, queries), true, axis=1)
    bounds = tmp_path / "bounds"
    words = ("--kernel", kernel, "--encoder", "pca-bound", "--components", 8)
    succeed(f"encode {folder}/base {bounds}", *words)
    for store, options in (
        ("base", ("--kernel", kernel)),
        ("base", ("--kernel", kernel, "--exact")),
        (bounds, ("--exact",)),
        (bounds, ("--rerank", N)),
    ):
        found = search(folder, store, *options)
        np.testing.assert_array_equal(found["ids"], true)
        np.testing.assert_allclose(found["scores"], scores, rtol=1e-15)
    step = np.diff(scores, axis=1)
    assert ((step >= 0) if kernel == "euclidean" else (step <= 0)).all()


@pytest.mark.parametrize("bounded", [False, True])
def test_truth_of_float32_arithmetic_verifies_and_ties_are_no_fault(
    bounded: bool, folder: Path, tmp_path: Path
) -> None:
    """As faiss computes it: squared norms and products in float32, ties in any order."""
    rows, queries = (side.astype(np.float32) for side in loaded(folder))
    squared = np.square(rows).sum(axis=1) - 2 * queries @ rows.T
    ids = np.argsort(squared[:, ::-1], axis=1, kind="stable")[:, :K]
    ids = (N - 1 - ids).astype(np.int64)  # of rows that tie, the higher id first
    write_hits(str(tmp_path / "truth.ivecs"), Hits(scores=None, ids=ids))
    words = [folder / "base", folder / "queries.npy", tmp_path / "truth.ivecs", "--kernel", "L2"]
    if bounded:
        made = ("--kernel", "l2", "--encoder", "pca-bound", "--components", 8)
        succeed(f"encode {folder}/base {tmp_path}/bounds", *made)
        words += ["--bounds", tmp_path / "bounds"]
    report = json.loads(succeed("verify", *words, "--json"))
    assert report["refuted"] == 0
    assert report["tied"] > 0
    ids[4, 2] = int(np.argmax(squared[4]))
    write_hits(str(tmp_path / "wrong.ivecs"), Hits(scores=None, ids=ids))
    words[2] = tmp_path / "wrong.ivecs"
    outcome = invoke("verify", *words, "--json")
    assert outcome.code == 1
    refuted = [each for each in json.loads(outcome.out)["verdicts"] if each["verdict"] == "refuted"]
    assert [each["query"] for each in refuted] == [4]
    true = scores_of("euclidean", rows, queries)[4, refuted[0]["better"]]
    assert refuted[0]["score"] == pytest.approx(true, rel=1e-12)


def test_hits_hold_distances_and_evaluate_compares_them(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "hits.npz"
    words = (f"search {folder}/base {folder}/queries.npy -k {K} --kernel euclidean",)
    succeed(*words, "--exact", "--out", out)
    hits = read_hits(str(out))
    assert hits.scores is not None
    assert (np.diff(hits.scores, axis=1) >= 0).all()
    rescored = ("--vectors", folder / "base", "--queries", folder / "queries.npy", "--kernel", "l2")
    report = json.loads(succeed(f"evaluate {out} {out}", *rescored, "--json"))
    values = {(row["definition"], row["rank"]): row["value"] for row in report["recall"]}
    assert values["tie-aware", 10] == values["k-recall", 10] == 1.0


RANKED_BY = [("euclidean", "distance"), ("inner_product", "product")]


@pytest.mark.parametrize(("kernel", "metric"), RANKED_BY)
@pytest.mark.promise("Ties count in recall whatever numbers the truth holds")
def test_compare_counts_ties_by_distances_or_products(
    kernel: str, metric: str, folder: Path, tmp_path: Path
) -> None:
    inputs, spec = (folder / "base", folder / "queries.npy"), f"pq:subquantizers=1,metric={metric}"
    words = ("--kernel", kernel, "--encoder", spec, "--ranks", f"1,{K}", "--rerank", K)
    (run,) = json.loads(succeed("compare", *inputs, *words, "--json"))["runs"]
    given: dict[str, Any] = {"kernels": kernel, "encoders": spec, "ranks": [1, K], "rerank": K}
    (same,) = mercore.compare(*inputs, **given)["runs"]
    for way in ("search", "reranked"):
        assert run[way]["recall"] == same[way]["recall"]
    mercore.encode(inputs[0], tmp_path / "codes", kernel=kernel, encoder=spec)
    ids = search(folder, tmp_path / "codes", "--rerank", K)["ids"]
    nearness = scores_of(kernel, *loaded(folder)) * (-1 if kernel == "euclidean" else 1)
    kth = np.sort(nearness, axis=1)[:, -K, None]
    expected = (np.take_along_axis(nearness, np.array(ids), axis=1) >= kth).mean()
    values = {(row["definition"], row["rank"]): row["value"] for row in run["reranked"]["recall"]}
    assert values["tie-aware", K] == pytest.approx(expected)
    assert values["k-recall", K] <= expected < 1


@pytest.mark.parametrize(("kernel", "metric"), RANKED_BY)
def test_pq_ranks_by_distances_or_products_of_its_points(
    kernel: str, metric: str, folder: Path, tmp_path: Path
) -> None:
    """With at most 256 rows per share, each row is its own centroid: codes score truly."""
    rows, queries = loaded(folder)
    np.save(tmp_path / "few.npy", rows[:200])
    succeed(f"ingest {tmp_path}/few.npy {tmp_path}/few")
    words = ("--kernel", kernel, "--encoder", "pq", "--subquantizers", 4, "--metric", metric)
    succeed(f"encode {tmp_path}/few {tmp_path}/codes", *words)
    found = search(folder, tmp_path / "codes", "--kernel", kernel.upper())
    true = scores_of(kernel, rows[:200], queries)
    np.testing.assert_allclose(
        found["scores"], np.take_along_axis(true, np.array(found["ids"]), axis=1), rtol=1e-5
    )
    best = np.sort(true if kernel == "euclidean" else -true, axis=1)[:, :K]
    np.testing.assert_allclose(np.abs(found["scores"]), np.abs(best), rtol=1e-5)


@pytest.mark.parametrize("encoder", ["aska", "kpca-pq", "klsh", "rff", "kpca-bound", "bin-bound"])
def test_encoders_of_normalised_kernels_are_refused_before_any_work(
    encoder: str, folder: Path, tmp_path: Path
) -> None:
    words = (f"encode {folder}/base {tmp_path}/codes --kernel l2 --encoder {encoder}",)
    outcome = invoke(*words)
    assert outcome.code == 2
    assert outcome.err.startswith(f"mercore: encoder {encoder} needs ")
    assert "found kernel euclidean. Fix: --encoder p" in outcome.err
    assert not (tmp_path / "codes").exists()


def test_gamma_median_is_said_once_and_kept_as_a_number(folder: Path, tmp_path: Path) -> None:
    rows, _ = loaded(folder)
    squares = np.square(scores_of("euclidean", rows, rows)[np.triu_indices(N, 1)])
    gamma = float(f"{1 / np.median(squares):.4g}")
    rbf = ("--kernel", "gaussian", "--gamma", "median", "--encoder", "pq", "--subquantizers", 4)
    outcome = invoke(f"encode {folder}/base {tmp_path}/codes", *rbf, "--json")
    kernel = json.loads(outcome.out)["kernel"]
    assert kernel == {"name": "rbf", "configuration": {"gamma": gamma}}
    assert outcome.err.count("gamma: ") == 1
    for said in ((), ("--gamma", "median"), ("--gamma", gamma, "--kernel", "RBF")):
        search(folder, tmp_path / "codes", *said)
    words = (f"search {tmp_path}/codes {folder}/queries.npy -k {K}",)
    assert f"has gamma {gamma}: found --gamma 2.0" in invoke(*words, "--gamma", 2).err
    words = (f"search {folder}/base {folder}/queries.npy -k {K}",)
    assert invoke(*words, "--gamma", "median", "--kernel", "chi2").err == (
        "mercore: kernel chi2 takes no gamma: found median. Fix: leave --gamma out.\n"
    )
