"""A kernel of the user's own on the real command line: encoded, searched, evaluated, refused where
it has no use."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import LocalCluster
from numpy.typing import NDArray

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.stores.codes import open_code_store
from tests.support.custom_kernels import INTERSECTION, returning, write
from tests.support.running import histograms, invoke, succeed
from tests.support.tiers import slow_unless

ROWS, DIMS = 600, 16
ENCODERS = {
    "aska": ("--encoder", "aska", "--atoms", "32", "--sparsity", "4"),
    "kpca": ("--encoder", "kpca", "--landmarks", "48", "--components", "12"),
    "kpca-pq": "--encoder kpca-pq --landmarks 48 --components 12 --subquantizers 4".split(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors, queries, the file of a kernel, and codes of it by every encoder."""
    folder = tmp_path_factory.mktemp("own")
    np.save(folder / "base.npy", histograms(ROWS, DIMS, seed=1))
    np.save(folder / "queries.npy", histograms(5, DIMS, seed=2))
    write(folder, INTERSECTION)
    succeed(f"ingest {folder}/base.npy {folder}/vectors")
    for name, options in ENCODERS.items():
        encode(folder, name, *options, "--part-rows", 200, "--workers", 2)
    return folder


def encode(folder: Path, codes: str, *options: object) -> None:
    succeed(f"encode {folder}/vectors {folder}/{codes} --kernel {folder}/mine.py", *options)


def hits(*words: object) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    found: dict[str, Any] = json.loads(succeed("search", *words, "-k", 7, "--json"))
    return np.array(found["ids"]), np.array(found["scores"])


def refused(code: int, message: str, *words: object) -> None:
    outcome = invoke(*words)
    assert (outcome.code, outcome.out, outcome.err) == (code, "", f"mercore: {message}\n")


def digest(folder: Path, codes: str = "aska") -> str:
    found: dict[str, Any] = json.loads(succeed(f"info {folder}/{codes} --json"))["kernel"]
    assert found["configuration"].keys() == {"file", "digest"}
    return str(found["configuration"]["digest"])


def test_vectors_are_searched_as_by_the_built_in_kernel(folder: Path) -> None:
    ids, scores = hits(folder / "vectors", folder / "queries.npy", "--kernel", folder / "mine.py")
    known, known_scores = hits(
        folder / "vectors", folder / "queries.npy", "--kernel", "intersection"
    )
    np.testing.assert_array_equal(ids, known)
    np.testing.assert_allclose(scores, known_scores, rtol=0, atol=1e-14)


@pytest.mark.parametrize("encoder", slow_unless("aska".__eq__, ENCODERS))
def test_codes_are_searched_and_reranked_by_it(folder: Path, encoder: str) -> None:
    words = (folder / encoder, folder / "queries.npy", "--kernel", folder / "mine.py")
    truth, true_scores = hits(folder / "vectors", *words[1:])
    ids, scores = hits(*words, "--rerank", ROWS)
    np.testing.assert_array_equal(ids, truth)
    np.testing.assert_array_equal(scores, true_scores)
    approximate, _ = hits(*words)
    assert (
        np.mean(
            [np.isin(found, true).mean() for found, true in zip(approximate, truth, strict=True)]
        )
        > 0.2
    )


def test_kpca_of_it_is_that_of_the_built_in_kernel(folder: Path) -> None:
    known = (f"encode {folder}/vectors {folder}/known --kernel intersection", *ENCODERS["kpca"])
    succeed(*known, "--part-rows", 200)
    ids, scores = hits(folder / "known", folder / "queries.npy")
    custom, own_scores = hits(
        folder / "kpca", folder / "queries.npy", "--kernel", folder / "mine.py"
    )
    np.testing.assert_array_equal(custom, ids)
    np.testing.assert_allclose(own_scores, scores, rtol=0, atol=1e-4)


@pytest.mark.promise(
    "No store holds the code of a custom kernel; a kernel with another text is refused"
)
def test_encoding_again_resumes_and_no_code_is_on_disk(folder: Path) -> None:
    encode(folder, "aska", *ENCODERS["aska"], "--part-rows", 200)
    header = (folder / "aska/zarr.json").read_text()
    assert "mine.py" in header
    assert "njit" not in header
    assert str(folder / "mine.py") not in header
    succeed("check", folder / "aska")


def test_a_transform_of_it_is_encoded_and_searched(folder: Path) -> None:
    encode(folder, "transformed", *ENCODERS["aska"], "--transform", 3)
    words = (
        folder / "transformed",
        folder / "queries.npy",
        "--kernel",
        folder / "mine.py",
        "--rerank",
        ROWS,
    )
    known, _ = hits(folder / "vectors", folder / "queries.npy", "--kernel", "intersection")
    np.testing.assert_array_equal(hits(*words)[0], known)


@pytest.mark.slow
def test_workers_elsewhere_load_it_themselves(folder: Path) -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        encode(
            folder,
            "far",
            *ENCODERS["aska"],
            "--part-rows",
            200,
            "--scheduler",
            cluster.scheduler_address,
        )
    words = (folder / "queries.npy", "--kernel", folder / "mine.py")
    np.testing.assert_array_equal(hits(folder / "far", *words), hits(folder / "aska", *words))


def test_hits_are_evaluated_by_it(folder: Path) -> None:
    words = (folder / "queries.npy", "-k", 10, "--kernel", folder / "mine.py")
    succeed("search", folder / "vectors", *words, "--out", folder / "truth.npz")
    succeed("search", folder / "aska", *words, "--out", folder / "hits.npz")
    scoring = (
        "--vectors",
        folder / "vectors",
        "--queries",
        folder / "queries.npy",
        "--kernel",
        folder / "mine.py",
    )
    report = json.loads(
        succeed(f"evaluate {folder}/truth.npz {folder}/truth.npz", *scoring, "--json")
    )
    assert {row["value"] for row in report["recall"]} == {1.0}


@pytest.mark.slow
def test_encoders_are_compared_under_it(folder: Path) -> None:
    queries, encoder = folder / "queries.npy", "aska:atoms=32,sparsity=4"
    words = ("--encoder", encoder, "--ranks", "1,7", "--rerank", ROWS, "--json")
    (mine, known) = (
        json.loads(succeed(f"compare {folder}/vectors {queries} --kernel {kernel}", *words))
        for kernel in (folder / "mine.py", "intersection")
    )
    (run,), (same,) = mine["runs"], known["runs"]
    assert run["kernel"]["configuration"].keys() == {"file", "digest"}
    assert run["kernel_label"] == str(folder / "mine.py")
    assert run["search"]["recall"] == same["search"]["recall"]
    assert run["reranked"]["recall"] == same["reranked"]["recall"]


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")
def test_it_is_compiled_before_a_search_is_timed(folder: Path) -> None:
    custom = custom_kernel_of(open_code_store(folder / "kpca"), str(folder / "mine.py"))
    assert custom is not None
    function: Any = custom.declared.function
    assert len(function.signatures) == 1
    custom.exact(np.ones((2, 3)), np.ones((3, 2)))
    assert len(function.signatures) == 1


def test_export_takes_it_too(folder: Path) -> None:
    pytest.importorskip("faiss")
    succeed(f"export {folder}/kpca-pq {folder}/index.faiss --kernel {folder}/mine.py")
    assert (folder / "index.faiss").stat().st_size > 0


def test_codes_of_it_need_its_file(folder: Path) -> None:
    search = (f"search {folder}/aska {folder}/queries.npy",)
    expected = f"mine.py with digest {digest(folder)}"
    message = (
        f"the store's kernel is a custom one: found no file of it, expected {expected}. "
        "Fix: --kernel mine.py"
    )
    refused(2, message, *search)
    other = write(folder, returning("1.0"), "other.py")
    outcome = invoke(*search, "--kernel", other)
    assert outcome.code == 2
    assert outcome.err.startswith(
        "mercore: the store's kernel is another: found other.py with digest "
    )
    assert outcome.err.endswith(
        f", expected {expected}. Fix: name the file as it was when the store was encoded.\n"
    )
    where = folder / "aska"
    refused(
        2,
        f"{where} has kernel mine.py: found --kernel intersection. Fix: leave --kernel out.",
        *search, "--kernel", "intersection",
    )  # fmt: skip


def test_it_is_refused_where_it_has_no_use(folder: Path, codes: Path, data: Path) -> None:
    mine = folder / "mine.py"
    refused(
        2,
        f"{codes} has kernel chi2: found --kernel {mine}. Fix: leave --kernel out.",
        f"search {codes} {data}/queries.npy --kernel {mine}",
    )  # fmt: skip
    refused(
        2,
        "kernel mine.py takes no gamma: found 2.0. Fix: leave --gamma out, write it there.",
        f"search {folder}/vectors {folder}/queries.npy --kernel {mine} --gamma 2",
    )  # fmt: skip


@pytest.mark.promise(
    "A custom kernel that is not semi-definite is searched by every row, and has no codes, bounds or distances"
)
def test_a_kernel_that_is_not_semidefinite_scores_every_row(folder: Path) -> None:
    text = returning("-1e200 * abs(x[0] * y[1] - x[1] * y[0])", semidefinite=False)
    far = write(folder, text.replace("= 300", "= 1e205"), "far.py")  # K(x, x) = 0, in no float32
    rows, queries = (np.load(folder / f"{name}.npy").astype(float) for name in ("base", "queries"))
    truth = -1e200 * np.abs(queries[:, :1] * rows[:, 1] - queries[:, 1:2] * rows[:, 0])
    words = (folder / "vectors", folder / "queries.npy")
    ids, scores = hits(*words, "--kernel", far, "--exact")
    np.testing.assert_array_equal(ids, np.argsort(-truth, axis=1, kind="stable")[:, :7])
    np.testing.assert_array_equal(scores, np.take_along_axis(truth, ids, axis=1))
    np.save(folder / "far.npy", ids)
    verified = json.loads(succeed("verify", *words, folder / "far.npy", "--kernel", far, "--json"))
    assert (verified["queries"], verified["refuted"]) == (5, 0)
    refused(
        2,
        "kernel far.py has no codes or bounds: found SEMIDEFINITE = False in the file, expected "
        "True, since only a positive semi-definite kernel with K(x, x) = 1 has codes or bounds. "
        "Fix: mercore search VECTORS QUERIES --kernel far.py, which scores every row.",
        f"encode {words[0]} {folder}/new --kernel {far} --encoder bound",
    )  # fmt: skip
    assert not (folder / "new").exists()


@pytest.mark.promise("A custom kernel is checked before it encodes anything")
def test_a_kernel_that_is_not_what_it_declares_encodes_nothing(folder: Path) -> None:
    distant = write(folder, returning("1.0 - 1e-2 * np.abs(x - y).sum()"), "distant.py")
    for words in (
        (f"encode {folder}/vectors {folder}/new",),
        (f"search {folder}/vectors {folder}/queries.npy",),
    ):
        outcome = invoke(*words, "--kernel", distant)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(
            "mercore: the kernel of distant.py is not positive semi-definite: found a Gram "
            "matrix of 256 rows with an "
            "eigenvalue of -"
        )
        assert outcome.err.endswith(
            " or more. Fix: declare the ROUNDING that it has, or correct its formula, or declare "
            "SEMIDEFINITE = False and search by every row.\n"
        )
    assert not (folder / "new").exists()
    missing = folder / "missing.py"
    refused(
        2,
        f"{missing} cannot be read: No such file or directory, expected a file that declares a "
         "kernel. "
        "Fix: check the path.",
        f"encode {folder}/vectors {folder}/new --kernel {missing}",
    )  # fmt: skip
    assert sys.modules.get("mercore_own_kernel") is None
