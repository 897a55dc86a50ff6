"""Exact search on the real command line: the true ids by every bound, whatever the batch, the
threads and the parts."""

import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.bounds.pca_bound import PcaBoundSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.map_pq import MapPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.encoders.pq import PqParams, PqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.results.certificates import read_certificate
from mercore.stores.results.hits import read_hits
from mercore.testing.stores import make_codes, make_vectors
from tests.independent import check_certificate
from tests.independent.exact_truth import KERNELS, RAW, nearest
from tests.support.adversarial import MAKERS, adversary
from tests.support.custom_kernels import INTERSECTION, write
from tests.support.running import finish, histograms, invoke, names_in, run, start_words, succeed
from tests.support.tiers import slow_unless

ROWS, DIMS, NQ, K = 1200, 24, 20, 10
GAMMA = {"rbf": 1e-4, "exp_chi2": 2.0}
ADDITIVE = ("hellinger", "chi2", "intersection", "jensen_shannon")
BOUNDS: dict[str, tuple[object, ...]] = {
    "bound": ("--encoder", "bound", "--force"),
    "kpca-bound": ("--encoder", "kpca-bound", "--landmarks", 256, "--components", 64),
    "bin-bound": ("--encoder", "bin-bound", "--groups", 24),
    "kpca-pq": (
        *("--encoder", "kpca-pq", "--landmarks", 256, "--components", 96),
        *("--subquantizers", 48),
    ),
    "map-pq": ("--encoder", "map-pq", "--components", 48, "--subquantizers", 24),
}
PQ = ("--encoder", "pq", "--subquantizers", 12)
PCA_PQ = ("--encoder", "pca-pq", "--components", 12, "--subquantizers", 6)
GIVEN = {
    "bound": ("chi2", "cosine", "rbf", *RAW),  # which bound is chosen is tested for itself
    "kpca-bound": KERNELS,
    "bin-bound": (*ADDITIVE, "exp_chi2"),
    "kpca-pq": KERNELS,
    "map-pq": (*ADDITIVE, "exp_chi2"),
    "pq": ("cosine", "hellinger", "rbf", *RAW),
    "pca-pq": ("cosine", "hellinger", "rbf", *RAW),
    "pca-bound": RAW,
}
OF_RAW: dict[str, tuple[object, ...]] = {
    "bound": BOUNDS["bound"],
    "pca-bound": ("--encoder", "pca-bound", "--components", 16),
}
SMALL: dict[str, EncoderSpec] = {
    "pca-bound": PcaBoundSpec(n_components=16),
    "kpca-bound": KpcaBoundSpec(n_landmarks=48, n_components=24),
    "bin-bound": BinBoundSpec(n_groups=16),
    "kpca-pq": KpcaPqSpec(n_landmarks=48, n_components=24, n_subquantizers=12),
    "map-pq": MapPqSpec(n_components=9, n_subquantizers=3),
    "pq": PqSpec(n_subquantizers=1),
    "pca-pq": PcaPqSpec(n_components=4, n_subquantizers=4),
}

Ids = NDArray[np.int64]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors in 10 parts, their bounds for chi2, and queries.

    Every fifth query is one of the rows.
    """
    folder = tmp_path_factory.mktemp("exact")
    rows, queries = histograms(ROWS, DIMS, seed=1), histograms(NQ, DIMS, seed=2)
    queries[::5] = rows[: len(queries[::5])]
    np.save(folder / "base.npy", rows)
    np.save(folder / "queries.npy", queries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 3 << 10)
        succeed(f"ingest {folder}/base.npy {folder}/vectors")
    for name, options in BOUNDS.items():
        encode(folder / "vectors", folder / name, "--kernel", "chi2", *options, "--part-rows", 200)
    return folder


def encode(vectors: Path, bounds: Path, *options: object) -> None:
    succeed(f"encode {vectors} {bounds}", *options, "--workers", 2)


def exact(store: Path, queries: Path, *options: object, k: int = K) -> tuple[Ids, dict[str, Any]]:
    """The ids that an exact search prints, and its report."""
    report = json.loads(succeed(f"search {store} {queries} -k {k} --exact --json", *options))
    return np.array(report["ids"]), report


def kernel_options(kernel: str) -> tuple[object, ...]:
    return ("--kernel", kernel, *(("--gamma", GAMMA[kernel]) if kernel in GAMMA else ()))


def loaded(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.load(folder / "base.npy"), np.load(folder / "queries.npy")


def certify(folder: Path, hits: Path) -> tuple[int, str]:
    """The exit code and the words of the script that knows only NumPy and the files."""
    files = (
        folder / "vectors",
        folder / "queries.npy",
        hits,
        hits.with_name(f"{hits.name}.certificate.npz"),
    )
    with redirect_stdout(StringIO()) as said:
        code = check_certificate.main([str(file) for file in files])
    return code, said.getvalue()


# --- the ids


@pytest.mark.parametrize("kernel", slow_unless({"chi2", "euclidean"}.__contains__, KERNELS))
@pytest.mark.promise(
    "Codes of `kpca-pq`, `map-pq`, `pca-pq` and `pq` prove answers: no pair that reaches a threshold is left out"
)
@pytest.mark.promise(
    "Exact search returns the true neighbours, under every kernel and on adversarial rows"
)
def test_ids_are_the_true_ones_by_every_bound_and_by_none(
    kernel: str, folder: Path, tmp_path: Path
) -> None:
    true = nearest(kernel, *loaded(folder), K, gamma=GAMMA.get(kernel, 1.0))
    queries = folder / "queries.npy"
    ids, report = exact(folder / "vectors", queries, *kernel_options(kernel))
    np.testing.assert_array_equal(ids, true)
    bounds = OF_RAW if kernel in RAW else BOUNDS
    product = ("--metric", "product") if kernel == "inner_product" else ()
    quantisers = {"pq": (*PQ, *product), "pca-pq": (*PCA_PQ, *product)}
    for name, options in (bounds | quantisers).items():
        if kernel in GIVEN[name]:
            encode(
                folder / "vectors",
                tmp_path / name,
                *kernel_options(kernel),
                *options,
                "--part-rows",
                200,
            )
            found, bounded = exact(tmp_path / name, queries)
            np.testing.assert_array_equal(found, true)
            assert bounded["scores"] == report["scores"]
            assert (bounded["bound"] == name) is (name != "bound")


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_leave_few_rows(bound: str, folder: Path) -> None:
    _, report = exact(folder / bound, folder / "queries.npy")
    assert report["queries_by_every_row"] == 0
    assert report["rows_scored"]["max"] < 0.1
    assert report["approximate"] is None


@pytest.mark.parametrize("kernel", slow_unless("chi2".__eq__, ["cosine", "chi2", "intersection"]))
@pytest.mark.promise("A transform keeps the order of true neighbours")
def test_transforms_keep_the_ids(kernel: str, folder: Path, tmp_path: Path) -> None:
    true = nearest(kernel, *loaded(folder), K)
    transformed = ("--kernel", kernel, "--transform", 3)
    encode(folder / "vectors", tmp_path / "bounds", *transformed, *BOUNDS["bound"])
    ids, report = exact(tmp_path / "bounds", folder / "queries.npy")
    _, plain = exact(folder / "vectors", folder / "queries.npy", "--kernel", kernel)
    np.testing.assert_array_equal(ids, true)
    np.testing.assert_allclose(
        report["scores"], np.exp(3 * (np.array(plain["scores"]) - 1)), rtol=1e-12
    )


@pytest.mark.parametrize("made", slow_unless({"duplicated", "permuted"}.__contains__, MAKERS))
@pytest.mark.promise(
    "Exact search returns the true neighbours, under every kernel and on adversarial rows"
)
def test_ids_of_adversarial_rows_under_every_kernel(made: str, tmp_path: Path) -> None:
    """The search is by command; the stores are made by function calls, which take less time."""
    data = adversary(made, 80, 4)
    np.save(tmp_path / "queries.npy", data.queries)
    vectors = make_vectors(tmp_path / "vectors", data.rows, part_rows=128)
    for kernel in KERNELS:
        true = nearest(kernel, data.rows, data.queries, K, gamma=GAMMA.get(kernel, 1.0))
        ids, _ = exact(tmp_path / "vectors", tmp_path / "queries.npy", *kernel_options(kernel))
        np.testing.assert_array_equal(ids, true, err_msg=kernel)
        general = ("pca-bound", "pq", "pca-pq") if kernel in RAW else ("kpca-bound", "kpca-pq")
        for name in (*general, *(("bin-bound", "map-pq") if kernel in ADDITIVE else ())):
            bounds = tmp_path / f"{name}-{kernel}"
            true_kernel, spec = make_kernel(kernel, gamma=GAMMA.get(kernel)), SMALL[name]
            if isinstance(spec, PqParams) and kernel == "inner_product":
                spec = replace(spec, metric="product")
            make_codes(bounds, vectors, true_kernel, spec, part_rows=40)
            ids, _ = exact(bounds, tmp_path / "queries.npy")
            np.testing.assert_array_equal(ids, true, err_msg=str(bounds))


@pytest.mark.promise("Ids are the row numbers of the source, also where zero rows were dropped")
def test_ids_are_those_of_the_source_where_zero_rows_were_dropped(
    folder: Path, tmp_path: Path
) -> None:
    rows, queries = loaded(folder)
    rows[::7] = 0
    np.save(tmp_path / "base.npy", rows)
    succeed(f"ingest {tmp_path}/base.npy {tmp_path}/vectors --drop-zero-rows")
    kept = np.flatnonzero(rows.any(axis=1))
    true = kept[nearest("chi2", rows[kept], queries, K)]
    encode(tmp_path / "vectors", tmp_path / "bounds", "--kernel", "chi2", *BOUNDS["kpca-bound"])
    for words in ((tmp_path / "bounds",), (tmp_path / "vectors", "--kernel", "chi2")):
        ids, _ = exact(words[0], folder / "queries.npy", *words[1:])
        np.testing.assert_array_equal(ids, true)


def test_a_zarr_array_of_another_tool_is_searched_where_it_lies(
    folder: Path, tmp_path: Path
) -> None:
    rows, queries = loaded(folder)
    array = zarr.create_array(
        tmp_path / "rows", shape=rows.shape, chunks=(700, DIMS), dtype=rows.dtype
    )
    array[...] = rows
    encode(tmp_path / "rows", tmp_path / "bounds", "--kernel", "intersection", *BOUNDS["bound"])
    true = nearest("intersection", rows, queries, K)
    for words in ((tmp_path / "bounds",), (tmp_path / "rows", "--kernel", "intersection")):
        ids, _ = exact(words[0], folder / "queries.npy", *words[1:])
        np.testing.assert_array_equal(ids, true)


@pytest.mark.parametrize("bound", slow_unless("bound".__eq__, ["kpca-bound", "bound"]))
def test_a_kernel_of_the_users_own(bound: str, folder: Path, tmp_path: Path) -> None:
    mine = write(tmp_path, INTERSECTION)
    encode(folder / "vectors", tmp_path / "bounds", "--kernel", mine, *BOUNDS[bound])
    true = nearest("intersection", *loaded(folder), K)
    ids, report = exact(tmp_path / "bounds", folder / "queries.npy", "--kernel", mine)
    np.testing.assert_array_equal(ids, true)
    assert report["queries_by_every_row"] < NQ
    ids, _ = exact(folder / "vectors", folder / "queries.npy", "--kernel", mine)
    np.testing.assert_array_equal(ids, true)


def test_k_up_to_all_rows(folder: Path) -> None:
    rows, queries = loaded(folder)
    np.save(folder / "few.npy", queries[:3])
    for k in (1, ROWS // 2 - 1, ROWS // 2, ROWS):
        ids, _ = exact(folder / "kpca-bound", folder / "few.npy", k=k)
        np.testing.assert_array_equal(ids, nearest("chi2", rows, queries[:3], k))


# --- the files


@pytest.mark.promise("Answers do not depend on threads, batch, parts or bound")
def test_the_bytes_of_hits_do_not_depend_on_batch_threads_or_parts(
    folder: Path, tmp_path: Path
) -> None:
    encode(
        folder / "vectors",
        tmp_path / "other",
        "--kernel",
        "chi2",
        *BOUNDS["kpca-bound"],
        "--part-rows",
        1024,
    )
    out = tmp_path / "hits.npz"
    hits: set[bytes] = set()
    certificates: dict[tuple[Path, int], set[bytes]] = {}
    for store in (folder / "kpca-bound", tmp_path / "other"):
        for batch in (1, 10, NQ):
            for threads in (1, 2):
                words = ("--exact", "--batch", batch, "--threads", threads, "--out", out, "--force")
                succeed(f"search {store} {folder}/queries.npy -k {K}", *words)
                hits.add(out.read_bytes())
                certificates.setdefault((store, batch), set()).add(
                    (tmp_path / "hits.npz.certificate.npz").read_bytes()
                )
    by_kernel = ("--kernel", "chi2", "--exact", "--out", out, "--force")
    succeed(f"search {folder}/vectors {folder}/queries.npy -k {K}", *by_kernel)
    hits.add(out.read_bytes())
    assert len(hits) == 1
    assert {len(found) for found in certificates.values()} == {1}  # whatever the threads
    assert names_in(tmp_path) == ["hits.npz", "hits.npz.certificate.npz", "other"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".ivecs", ".ibin"])
@pytest.mark.promise("A certificate is written beside hits of every format")
def test_every_format_of_hits_has_its_certificate_beside(
    suffix: str, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / f"gt{suffix}"
    words = (f"search {folder}/kpca-bound {folder}/queries.npy -k {K} --exact --out {out} --json",)
    report = json.loads(succeed(*words))
    beside = [str(tmp_path / "gt.fvecs")] if suffix == ".ivecs" else []
    assert report["written"] == [str(out), *beside, f"{out}.certificate.npz"]
    assert names_in(tmp_path) == sorted(Path(path).name for path in report["written"])
    hits = read_hits(str(out))
    np.testing.assert_array_equal(hits.ids, nearest("chi2", *loaded(folder), K))
    assert hits.scores is not None
    arrays, about = read_certificate(f"{out}.certificate.npz")
    np.testing.assert_allclose(hits.scores[:, -1], arrays["kth"], rtol=1e-6)
    np.testing.assert_array_equal(
        arrays["slack"], np.full(NQ, 2 * make_kernel("chi2").exact_error(DIMS))
    )
    assert (about["exact"], about["relaxed"], about["bound"], about["k"]) == (
        True,
        None,
        "kpca-bound",
        K,
    )


@pytest.mark.parametrize("suffix", [".ivecs", ".ibin"])
def test_ids_beyond_int32_are_refused_before_work(
    suffix: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mercore.stores.results.hits.MAX_INT32", ROWS - 2
    )  # as if the last row were number 2³¹
    monkeypatch.setattr(
        "mercore.jobs.verbs.searches.exact.prove", lambda job, out: pytest.fail("it searched")
    )
    out = tmp_path / f"gt{suffix}"
    outcome = invoke(f"search {folder}/kpca-bound {folder}/queries.npy --exact --out {out}")
    message = (
        f"{out}: id {ROWS - 1} is above int32's {ROWS - 2}. Fix: write the hits as .npz "
        "or .parquet."
    )
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"mercore: {message}\n")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("kernel", ["cosine", "hellinger", "chi2", "intersection", "rbf", *RAW])
@pytest.mark.promise("An independent script accepts right certificates")
def test_certificates_are_accepted_by_the_script_that_knows_only_the_files(
    kernel: str, folder: Path, tmp_path: Path
) -> None:
    options = OF_RAW["pca-bound"] if kernel in RAW else BOUNDS["kpca-bound"]
    encode(folder / "vectors", tmp_path / "bounds", *kernel_options(kernel), *options)
    accepted = f"proved: {NQ} queries against {ROWS} rows by {kernel}\n"
    for words in ((tmp_path / "bounds",), (folder / "vectors", *kernel_options(kernel))):
        out = tmp_path / "gt.npz"
        options = (*words[1:], "-k", K, "--exact", "--out", out, "--force")
        succeed(f"search {words[0]} {folder}/queries.npy", *options)
        assert certify(folder, out) == (0, accepted)
    hits = dict(np.load(out))
    hits["ids"][7, 3] = np.setdiff1d(np.arange(ROWS), hits["ids"][7])[0]
    np.savez(out, **hits)
    assert certify(folder, out) == (1, "query 7: scores are others\n")


# --- what it says


@pytest.mark.promise("A relaxed search is called approximate everywhere")
def test_a_relaxed_search_is_named_approximate_everywhere(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "hits.npz"
    words = (f"search {folder}/kpca-bound {folder}/queries.npy -k {K} --relaxed 0.9",)
    report = json.loads(succeed(*words, "--json"))
    approximate = report["approximate"]
    assert approximate["relaxed"] == 0.9
    assert 0 < approximate["beta"] < 1
    assert 0.1 < approximate["failure_probability"] < 0.2
    outcome = invoke(*words, "--out", out)
    assert outcome.code == 0
    missed = "approximate: a neighbour is missed with an estimated probability of at most 0.1"
    assert missed in outcome.err
    assert "proved" not in outcome.err
    _, about = read_certificate(str(tmp_path / "hits.npz.certificate.npz"))
    assert (about["exact"], about["relaxed"]) == (False, 0.9)
    code, said = certify(folder, out)
    assert code == 1
    assert "of other vectors, or not exact" in said
    _, bounded = exact(folder / "kpca-bound", folder / "queries.npy")
    assert report["rows_scored"]["median"] < bounded["rows_scored"]["median"]
    assert (
        np.mean([np.isin(a, b).mean() for a, b in zip(report["ids"], bounded["ids"], strict=True)])
        > 0.8
    )


@pytest.mark.promise("Where bounds fail, every row is scored, and the command says so")
def test_bounds_that_fail_are_told_of(tmp_path: Path) -> None:
    data = adversary("near-uniform", 1500, 5)
    np.save(tmp_path / "base.npy", data.rows)
    np.save(tmp_path / "queries.npy", data.queries)
    succeed(f"ingest {tmp_path}/base.npy {tmp_path}/vectors")
    bounds, options = tmp_path / "bounds", ("--landmarks", 64, "--components", 16)
    made = invoke(f"encode {tmp_path}/vectors {bounds} --kernel cosine", *BOUNDS["bound"])
    assert made.code == 0
    warned = (
        f"scoring every row of {tmp_path / 'vectors'} under kernel cosine is cheaper than any "
        "bound: "
    )
    assert warned in made.err
    bounds = tmp_path / "narrow"
    encode(tmp_path / "vectors", bounds, "--kernel", "cosine", "--encoder", "kpca-bound", *options)
    outcome = invoke(f"search {bounds} {tmp_path}/queries.npy -k 3 --exact")
    every = (
        f"the bounds of {bounds} ruled out too few rows for 5 of 5 queries: for those "
        "every row was scored"
    )
    assert outcome.err.startswith(every)
    assert "proved; rows scored by the true kernel: median 100.0000%" in outcome.err


@pytest.mark.slow
def test_the_real_command_from_rows_to_a_verified_truth(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "gt.npz"
    encoded = run(f"encode {folder}/vectors {tmp_path}/bounds --kernel hellinger", *BOUNDS["bound"])
    assert encoded.code == 0, encoded.err
    assert "expected cost of exact searches for 10 neighbours" in encoded.err
    searched = run(f"search {tmp_path}/bounds {folder}/queries.npy -k {K} --exact --out {out}")
    assert (searched.code, searched.out) == (0, "")
    assert "\nproved; rows scored by the true kernel: median " in searched.err
    np.testing.assert_array_equal(read_hits(str(out)).ids, nearest("hellinger", *loaded(folder), K))
    checked = finish(
        start_words([sys.executable, check_certificate.__file__, str(folder / "vectors"), str(folder / "queries.npy"), str(out),
                     f"{out}.certificate.npz"])
    )  # fmt: skip
    assert checked.code == 0, checked
    verified = run(f"verify {folder}/vectors {folder}/queries.npy {out} --kernel hellinger")
    assert verified.code == 0, verified.err
