"""Range search on the command line: every row within a threshold, by every kernel and bound, against
NumPy in float64; files, certificates, resumption, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from numpy.typing import NDArray

import mercore
from mercore.pipeline.search import within as within_module
from mercore.pipeline.search.exact import ExactSearch
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, NotFoundError
from mercore.stores.results.range_hits import RangeHits
from mercore.testing.cases import loop_over
from tests.independent import check_certificate, reference
from tests.support.adversarial import MAKERS, adversary
from tests.support.running import histograms, invoke, succeed
from tests.support.tiers import slow_unless

N, D, NQ = 700, 16, 5
KERNELS = {
    "chi2": {},
    "intersection": {},
    "hellinger": {},
    "jensen_shannon": {},
    "cosine": {},
    "exp_chi2": {"gamma": 2.0},
    "rbf": {"gamma": 1e-4},
    "euclidean": {},
    "inner_product": {},
}
RAW = ("euclidean", "inner_product")
BOUNDS = {
    "kpca-bound": "kpca-bound --landmarks 128 --components 32",
    "kpca-pq": "kpca-pq --landmarks 128 --components 32 --subquantizers 16",
    "bin-bound": "bin-bound --groups 16",
    "map-pq": "map-pq --components 32 --subquantizers 16",
    "pca-bound": "pca-bound --components 8",
    "pq": "pq --subquantizers 8",
}
ADDITIVE = ("chi2", "intersection", "hellinger", "jensen_shannon", "exp_chi2")
SERVED = {
    "kpca-bound": tuple(name for name in KERNELS if name not in RAW),
    "kpca-pq": tuple(name for name in KERNELS if name not in RAW),
    "bin-bound": ADDITIVE,
    "map-pq": ("chi2", "intersection", "hellinger", "jensen_shannon"),
    "pca-bound": RAW,
    "pq": ("cosine", "hellinger", "rbf", "euclidean"),
}
Floats = NDArray[np.float64]


def true_scores(name: str, rows: NDArray[Any], queries: NDArray[Any]) -> Floats:
    """The scores of all rows as they are shown, float64[nq, n]."""
    x, y = queries.astype(np.float64), rows.astype(np.float64)
    if name == "inner_product":
        return np.asarray(x @ y.T)
    if name == "euclidean":
        return np.asarray(np.sqrt(((x[:, None] - y[None]) ** 2).sum(axis=2)))
    prepared = reference.prepare(name, queries), reference.prepare(name, rows)
    return reference.kernel(name, *prepared, **KERNELS[name])


def words_of(name: str) -> str:
    return " ".join([f"--kernel {name}", *(f"--{key} {v}" for key, v in KERNELS[name].items())])


def check(name: str, hits: Any, true: Floats, threshold: float, ids: NDArray[Any]) -> None:
    """All rows within are there, none twice, the nearest first; none of them is nearer to the
    threshold than rounding, but for those that tie with it."""
    sign = -1 if name == "euclidean" else 1
    margin = 1e-12 * max(1.0, float(abs(true).max()))
    for query, scores in enumerate(true):
        found, shown = hits.of(query)
        np.testing.assert_array_equal(np.sort(found), ids[sign * (scores - threshold) >= -margin])
        at = np.searchsorted(ids, found)
        np.testing.assert_allclose(shown, scores[at], rtol=0, atol=margin)
        assert (sign * np.diff(shown) <= 0).all()
        tied = (np.diff(shown) == 0) & (name != "exp_chi2")  # which orders as chi2 does
        assert (np.diff(found)[tied] > 0).all()


def thresholds_of(name: str, hits: Any, true: Floats) -> list[float]:
    """Thresholds that some rows reach, nobody, everybody, and ties with a row that was found."""
    ranked = np.sort(true.ravel())
    some = len(ranked) // 50
    gaps = np.diff(ranked)
    first = some // 2 if name == "euclidean" else len(gaps) - some
    at = first + int(gaps[first : first + some // 2].argmax())
    between = float(ranked[at : at + 2].mean())
    beyond = [float(ranked[0]) * 0.999 - 1e-3, float(ranked[-1]) * 1.001 + 1e-3]
    return [between, *beyond, float(hits.scores[0, 3])]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of rows of bytes. Some are equal, and ingest left zero rows out."""
    folder = tmp_path_factory.mktemp("within")
    rows = histograms(N, D, seed=1)
    rows[600:640] = rows[200:240]
    rows[[0, 7, 300]] = 0
    queries = histograms(NQ, D, seed=2)
    queries[-1] = rows[230]
    np.save(folder / "rows.npy", rows)
    np.save(folder / "queries.npy", queries)
    succeed(f"ingest {folder}/rows.npy {folder}/v.zarr --drop-zero-rows")
    return folder


def loaded(folder: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The rows that were kept, the queries, and the ids of the rows."""
    rows = np.load(folder / "rows.npy")
    kept = np.flatnonzero(rows.any(axis=1))
    return rows[kept], np.load(folder / "queries.npy"), kept


@pytest.mark.parametrize("name", slow_unless({"chi2", "euclidean"}.__contains__, KERNELS))
@pytest.mark.promise("A range search misses no row within the threshold, by every kernel and bound")
def test_every_row_within_is_found_by_every_bound(name: str, data: Path, tmp_path: Path) -> None:
    rows, queries, ids = loaded(data)
    true, kernel = true_scores(name, rows, queries), KERNELS[name]
    options: Any = {"kernel": name, **kernel}
    _, nearest = mercore.search(data / "v.zarr", queries, k=10, exact=True, **options)
    stores = [str(data / "v.zarr")]
    for bound, words in BOUNDS.items():
        if name in SERVED[bound]:
            succeed(f"encode {data}/v.zarr {tmp_path}/{bound} {words_of(name)} --encoder {words}")
            stores.append(f"{tmp_path}/{bound}")
    for threshold in thresholds_of(name, nearest, true):
        for number, store in enumerate(stores):
            more: Any = options if not number else {}
            for threads, batch in ((1, 1024), (2, 2)):
                report, hits = mercore.search(
                    store,
                    queries,
                    within=threshold,
                    exact=True,
                    threads=threads,
                    batch=batch,
                    **more,
                )
                assert isinstance(hits, RangeHits)
                check(name, hits, true, threshold, ids)
                assert report["hits"] == len(hits.ids)


@pytest.mark.parametrize("maker", slow_unless({"duplicated", "permuted"}.__contains__, MAKERS))
@loop_over("bound", ["kpca-bound", "bin-bound"])
@pytest.mark.promise("A range search misses no row within the threshold, by every kernel and bound")
def test_adversarial_rows(bound: str, maker: str, tmp_path: Path) -> None:
    made = adversary(maker, 300, 4)
    mercore.ingest(made.rows, tmp_path / f"v-{bound}")
    words = f"--kernel chi2 --encoder {BOUNDS[bound]}"
    succeed(f"encode {tmp_path}/v-{bound} {tmp_path}/{bound} {words}")
    true = true_scores("chi2", made.rows, made.queries)
    every = mercore.search(tmp_path / f"v-{bound}", made.queries, kernel="chi2", k=300)[1]
    assert every.scores is not None
    for threshold in (float(every.scores[0, 20]), float(np.median(true)), 0.0):
        given: Any = {"within": threshold, "exact": True}
        _, hits = mercore.search(tmp_path / bound, made.queries, **given)
        for query, (row_ids, scores) in enumerate(zip(every.ids, every.scores, strict=True)):
            found, shown = hits.of(query)
            np.testing.assert_array_equal(np.sort(found), np.sort(row_ids[scores >= threshold]))
            np.testing.assert_array_equal(shown, np.sort(scores[scores >= threshold])[::-1])


@loop_over("name", ["chi2", "euclidean"])
def test_files_and_certificates(name: str, data: Path, tmp_path: Path) -> None:
    rows, queries, ids = loaded(data)
    true = true_scores(name, rows, queries)
    threshold = float(np.quantile(true, 0.02 if name == "euclidean" else 0.98))
    line = (
        f"search {data}/v.zarr {data}/queries.npy {words_of(name)} --within {threshold!r} --exact"
    )
    out = f"{tmp_path}/{name}"
    succeed(f"{line} --out {out}.npz")
    files = [f"{data}/v.zarr", f"{data}/queries.npy", f"{out}.npz", f"{out}.npz.certificate.npz"]
    assert check_certificate.main(files) == 0
    matrix: Any = scipy.sparse.load_npz(f"{out}.npz")
    assert matrix.shape == (NQ, N)
    hits = RangeHits(lims=matrix.indptr.astype(np.int64), ids=matrix.indices, scores=matrix.data)
    check(name, hits, true, threshold, ids)

    succeed(f"{line} --out {out}.parquet")
    table = pq.read_table(f"{out}.parquet")
    for query, (found, scores) in enumerate(zip(*table.to_pydict().values(), strict=True)):
        np.testing.assert_array_equal(found, hits.of(query)[0])
        np.testing.assert_array_equal(scores, hits.of(query)[1])

    succeed(f"{line} --out {out}-f.npz --hits-format faiss")
    with np.load(f"{out}-f.npz") as file:
        np.testing.assert_array_equal(file["lims"], hits.lims)
        np.testing.assert_array_equal(file["I"], hits.ids)
        np.testing.assert_array_equal(file["D"], hits.scores)

    succeed(f"{line} --out {out}.ibin")
    words = np.fromfile(f"{out}.ibin", "<i4")
    assert words[:2].tolist() == [NQ, len(hits.ids)]
    np.testing.assert_array_equal(words[2 : 2 + NQ], np.diff(hits.lims))
    np.testing.assert_array_equal(words[2 + NQ : 2 + NQ + len(hits.ids)], hits.ids)
    squared = hits.scores**2 if name == "euclidean" else hits.scores
    last = words[2 + NQ + len(hits.ids) :].view("<f4")
    np.testing.assert_array_equal(last, squared.astype(np.float32))

    printed = [row.split("\t") for row in succeed(line).splitlines()[1:]]
    assert [int(row[2]) for row in printed] == hits.ids.tolist()


@pytest.mark.parametrize("fault", ["left out", "added", "moved", "score"])
@pytest.mark.promise("A range search misses no row within the threshold, by every kernel and bound")
def test_a_planted_fault_is_refuted(fault: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "hits.npz"
    line = f"search {data}/v.zarr {data}/queries.npy --kernel chi2"
    succeed(f"{line} --within 0.7 --exact --out {out}")
    with np.load(out) as file:
        arrays = dict(file)
    lims, ids, scores = arrays["indptr"], arrays["indices"].copy(), arrays["data"].copy()
    at = int(lims[1]) - 1  # the last of the first query
    if fault == "left out":
        ids, scores = np.delete(ids, at), np.delete(scores, at)
        lims = np.concatenate([lims[:1], lims[1:] - 1])
    elif fault == "added":
        other = np.setdiff1d(np.arange(1, N - 1), [*ids[: at + 1], 7, 300])[0]
        ids, scores = np.insert(ids, at + 1, other), np.insert(scores, at + 1, 0.7)
        lims = np.concatenate([lims[:1], lims[1:] + 1])
    elif fault == "moved":
        ids[at] = np.setdiff1d(np.arange(1, N - 1), [*ids[: at + 1], 7, 300])[0]
    else:
        scores[at] -= 1e-6
    np.savez(out, **arrays | {"indptr": lims, "indices": ids, "data": scores})
    files = [f"{data}/v.zarr", f"{data}/queries.npy", str(out), f"{out}.certificate.npz"]
    assert check_certificate.main(files) == 1


def test_a_killed_search_ends_in_the_same_bytes(data: Path, tmp_path: Path) -> None:
    line = f"search {data}/v.zarr {data}/queries.npy --kernel chi2 --within 0.7 --exact --batch 2"
    succeed(f"{line} --out {tmp_path}/whole.npz")
    solved: list[int] = []
    searched = within_module.search_within

    def killed(search: ExactSearch, queries: NDArray[Any], *limit: Any) -> Any:
        solved.append(len(queries))
        if len(solved) == 2:
            raise KeyboardInterrupt
        return searched(search, queries, *limit)

    with patch("mercore.jobs.verbs.searches.within.search_within", killed):
        assert invoke(f"{line} --out {tmp_path}/hits.npz --threads 1").code != 0
        assert (tmp_path / "hits.npz.parts").is_dir()
        outcome = invoke(f"{line.replace('0.7', '0.8')} --out {tmp_path}/hits.npz")
        assert outcome.code == 2
        assert "within (0.7, not 0.8)" in outcome.err
        succeed(f"{line} --out {tmp_path}/hits.npz --threads 1")
    assert solved == [2, 2, 2, 1]
    for suffix in ("", ".certificate.npz"):
        whole = (tmp_path / f"whole.npz{suffix}").read_bytes()
        assert (tmp_path / f"hits.npz{suffix}").read_bytes() == whole
    assert not (tmp_path / "hits.npz.parts").exists()


def test_approximate_ranges_and_the_k_nearest_within(data: Path, tmp_path: Path) -> None:
    rows, queries, ids = loaded(data)
    codes = tmp_path / "codes"
    succeed(f"encode {data}/v.zarr {codes} --kernel chi2 --encoder {BOUNDS['kpca-pq']}")
    every = mercore.search(codes, queries, k=len(rows))[1]
    assert every.scores is not None
    for threshold in (float(every.scores[0, 30]), float(every.scores.min()), 2.0):
        with patch.object(within_module, "FIRST_WIDTH", 8):
            _, hits = mercore.search(codes, queries, within=threshold, batch=3)
        with mercore.open(codes) as store:
            other = store.search_within(queries, threshold)
        for found in (hits, other):
            for query in range(NQ):
                kept = every.scores[query] >= np.float64(threshold)
                np.testing.assert_array_equal(found.of(query)[0], every.ids[query][kept])
    moved = shutil.copytree(codes, tmp_path / "alone")  # numbers need no vectors
    with patch.object(CodeStore, "source_paths", [str(tmp_path / "gone")]):
        _, alone = mercore.search(moved, queries, within=threshold)
        with pytest.raises(NotFoundError):
            mercore.search(moved, queries, within="top:1%")
    np.testing.assert_array_equal(alone.ids, hits.ids)
    true = true_scores("chi2", rows, queries)
    threshold = float(np.quantile(true, 0.996))
    for options in ({"rerank": len(rows)}, {"exact": True}):
        given: Any = {"within": threshold, **options}
        check("chi2", mercore.search(codes, queries, **given)[1], true, threshold, ids)
        _, few = mercore.search(codes, queries, k=4, **given)
        wanted = mercore.search(codes, queries, within=threshold, exact=True)[1]
        for query in range(NQ):
            np.testing.assert_array_equal(few.of(query)[0], wanted.of(query)[0][:4])
    assert (few.ids < 0).any()
    with mercore.open(codes) as store:
        check("chi2", store.search_within(queries, threshold, exact=True), true, threshold, ids)
        kept = ids[100:400]
        some = store.search_within(queries, threshold, exact=True, among=kept)
    check("chi2", some, true[:, 100:400], threshold, kept)


def test_a_share_of_all_pairs(data: Path, tmp_path: Path) -> None:
    rows, _, _ = loaded(data)
    outcome = invoke(
        f"search {data}/v.zarr {data}/queries.npy --kernel chi2 --within top:2% --json"
    )
    assert outcome.code == 0
    found = json.loads(outcome.out)
    # the sample is all of them, and its scores are float32
    assert abs(len(found["ids"]) - 0.02 * len(rows) * NQ) <= 1
    assert "which 0.02 of the pairs of a sample reach" in outcome.err
    assert f"within: {found['within']:.9g}" in outcome.err


@pytest.mark.slow
def test_processes_plan_and_selection(data: Path, tmp_path: Path) -> None:
    rows, queries, ids = loaded(data)
    true, kept = true_scores("chi2", rows, queries), ids[50:500]
    succeed(f"encode {data}/v.zarr {tmp_path}/b --kernel chi2 --encoder {BOUNDS['bin-bound']}")
    for options in ({"exact": True}, {}):
        given: Any = {"processes": 2, "among": slice(kept[0], kept[-1] + 1), **options}
        hits = mercore.search(tmp_path / "b", queries, within=0.75, **given)[1]
        if options:
            check("chi2", hits, true[:, 50:500], 0.75, kept)
        assert set(hits.ids.tolist()) <= set(kept.tolist())
    out = tmp_path / "hits.npz"
    line = f"{tmp_path}/b {data}/queries.npy --within 0.75 --exact --among 100:200"
    succeed(f"plan search {line} --out {out}")
    succeed(f"search {line} --out {out}")
    np.save(tmp_path / "ids.npy", np.arange(100, 200))
    files = [f"{data}/v.zarr", f"{data}/queries.npy", str(out), f"{out}.certificate.npz"]
    assert check_certificate.main([*files, f"{tmp_path}/ids.npy"]) == 0


def test_what_does_not_fit_is_refused(data: Path, tmp_path: Path) -> None:
    line = f"search {data}/v.zarr {data}/queries.npy --kernel chi2"
    for options, message in {
        "--within top:0%": "top:0%",
        "--within near": "near",
        "--within nan": "nan",
        f"--within 0.5 --out {tmp_path}/h.ivecs": "holds k hits per query",
        f"--within 0.5 --out {tmp_path}/h.npz --hits-format h5": "holds k hits per query",
        "--within 0.5 --rerank 10": "true scores already",
    }.items():
        outcome = invoke(f"{line} {options}")
        assert outcome.code == 2
        assert message in outcome.err
    with (
        patch.object(within_module, "PAIR_BYTES", 1 << 60),
        pytest.raises(InputError, match="pairs reach within, and the memory holds no more"),
    ):
        mercore.search(data / "v.zarr", data / "queries.npy", kernel="chi2", within=0.0)
