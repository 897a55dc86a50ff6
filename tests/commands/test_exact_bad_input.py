"""Bad input to exact search, bounds and verify ends in one paragraph, word for word, and leaves
nothing behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.custom_kernels import INTERSECTION, write
from tests.support.running import files_of, histograms, invoke, run, succeed

Words = list[object]
Case = Callable[[Path], Words]
CASES: dict[str, tuple[int, str, Case]] = {}
KPCA = ("--encoder", "kpca-bound", "--landmarks", 64, "--components", 8)


def case(code: int, message: str) -> Callable[[Case], Case]:
    """Add a kind of bad input, and all that is said of it, ``{}`` standing for the folder."""

    def add(make: Case) -> Case:
        CASES[make.__name__.replace("_", " ")] = (code, message, make)
        return make

    return add


@pytest.fixture(scope="module")
def folder(vectors: Path, codes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors, other vectors, queries, true hits, several bounds, and codes that
    bound nothing."""
    folder = tmp_path_factory.mktemp("bad")
    shutil.copytree(vectors, folder / "vectors")
    shutil.copytree(codes, folder / "codes")
    for name, rows, seed in (("base", 3000, 9), ("queries", 12, 2), ("few", 11, 2)):
        np.save(folder / f"{name}.npy", histograms(rows, 24, seed))
    np.save(folder / "narrow.npy", histograms(12, 23, 2))
    succeed(f"ingest {folder}/base.npy {folder}/others")
    rbf = ("--kernel", "rbf", "--gamma", 0.5)
    for name, store, kernel, options in (
        ("bounds", "vectors", ("--kernel", "chi2"), KPCA),
        ("others-bounds", "others", ("--kernel", "chi2"), KPCA),
        ("rbf-bounds", "vectors", rbf, KPCA),
        ("bins", "vectors", ("--kernel", "chi2"), ("--encoder", "bin-bound", "--groups", 8)),
    ):
        succeed(f"encode {folder}/{store} {folder}/{name}", *kernel, *options)
    succeed(f"search {folder}/bounds {folder}/queries.npy -k 8 --exact --out {folder}/hits.npz")
    write(folder, INTERSECTION)
    np.savez(folder / "empty.npz", ids=np.empty((12, 0), np.int64))
    np.savez(folder / "wide.npz", ids=np.zeros((12, 3001), np.int64))
    (folder / "taken.npz.certificate.npz").mkdir()
    return folder


def search(
    folder: Path, *options: object, store: str = "bounds", queries: str = "queries.npy"
) -> Words:
    return [f"search {folder}/{store} {folder}/{queries} -k 5", *options]


def encode(folder: Path, *options: object, kernel: object = "chi2") -> Words:
    return [f"encode {folder}/vectors {folder}/new --kernel {kernel}", *options]


def verify(
    folder: Path, *options: object, hits: str = "hits.npz", queries: str = "queries.npy"
) -> Words:
    return [f"verify {folder}/vectors {folder}/{queries} {folder}/{hits} --kernel chi2", *options]


# --- search

BOUND_NOTHING = (
    "{}/codes holds codes of aska, which bound no score: expected codes of kpca-pq, map-pq, pca-pq or pq "
    "with proofs, a store of bounds, or vectors. "
    "Fix: mercore encode VECTORS CODES --encoder kpca-pq"
)
RELAXES_NOTHING = (
    "--relaxed has no use here: it relaxes the bounds of kpca-bound and kpca-pq, and {}/%s "
    "holds none. "
    "Fix: leave --relaxed out, or search codes that mercore encode --encoder kpca-pq makes."
)


@case(2, BOUND_NOTHING)
def exact_by_codes(folder: Path) -> Words:
    return search(folder, "--exact", store="codes")


@case(2, BOUND_NOTHING)
def relaxed_by_codes(folder: Path) -> Words:
    return search(folder, "--relaxed", 0.9, store="codes")


@case(
    2,
    "--rerank has no use here: an exact search scores all that its bounds leave. Fix: leave "
    "--rerank out.",
)
def exact_and_reranked(folder: Path) -> Words:
    return search(folder, "--exact", "--rerank", 10)


@case(2, "{}/bounds has kernel chi2: found --kernel cosine. Fix: leave --kernel out.")
def exact_with_another_kernel_than_the_bounds_have(folder: Path) -> Words:
    return search(folder, "--exact", "--kernel", "cosine")


@case(2, "{}/bounds has gamma none: found --gamma 2.0. Fix: leave --gamma out.")
def exact_with_a_gamma_for_bounds(folder: Path) -> Words:
    return search(folder, "--exact", "--gamma", 2)


@case(
    2,
    "{}/vectors holds vectors, and a search of vectors needs a kernel: found none. Fix: "
    "--kernel chi2",
)
def exact_by_vectors_without_a_kernel(folder: Path) -> Words:
    return search(folder, "--exact", store="vectors")


@case(2, "--vectors has no use here: {}/vectors is the vectors. Fix: leave --vectors out.")
def exact_by_vectors_and_vectors(folder: Path) -> Words:
    return search(
        folder, "--exact", "--kernel", "chi2", "--vectors", folder / "vectors", store="vectors"
    )


@pytest.mark.parametrize("share", ["0.0", "1.0", "-0.5", "99.0"])
def test_relaxed_out_of_range(share: str, folder: Path) -> None:
    message = (
        f"relaxed is out of range: found {share}, expected between 0 and 1. Fix: --relaxed 0.99"
    )
    assert_refused(search(folder, "--relaxed", share), 2, message)


@case(2, RELAXES_NOTHING % "vectors")
def relaxed_by_vectors(folder: Path) -> Words:
    return search(folder, "--relaxed", 0.9, "--kernel", "chi2", store="vectors")


@case(2, RELAXES_NOTHING % "bins")
def relaxed_by_bins(folder: Path) -> Words:
    return search(folder, "--relaxed", 0.9, store="bins")


@case(
    2,
    "--relaxed has no use here: relaxed bounds prove nothing, and --exact is to prove all. Fix: "
    "leave --relaxed out.",
)
def exact_and_relaxed(folder: Path) -> Words:
    return search(folder, "--exact", "--relaxed", 0.9)


@case(2, "k is out of range: found 3001, expected 1 to 3000, the rows of the store. Fix: -k 100")
def exact_for_more_than_all(folder: Path) -> Words:
    return search(folder, "--exact", "-k", 3001)


@case(2, "batch is out of range: found 0, expected 1 to 65536. Fix: leave --batch out.")
def exact_in_batches_of_none(folder: Path) -> Words:
    return search(folder, "--exact", "--batch", 0)


@case(
    2,
    "{}/narrow.npy has d = 23: expected 24, the dimension of {}/vectors. Fix: name queries of "
    "the same kind.",
)
def exact_for_queries_of_another_dimension(folder: Path) -> Words:
    return search(folder, "--exact", queries="narrow.npy")


@case(
    2, "{}/taken.npz.certificate.npz: a folder, expected a file to write. Fix: name another path."
)
def exact_with_a_folder_where_the_certificate_goes(folder: Path) -> Words:
    return search(folder, "--exact", "--out", folder / "taken.npz")


# --- encode


@case(2, "--components has no use here: it belongs to kpca-aska, kpca-pq, map-pq, pca-pq, kpca-lsh, kpca-jl, "
          "kpca, kpca-bound, pca-bound, "
         "found --encoder bound. Fix: leave --components out.")  # fmt: skip
def components_of_a_bound_to_be_chosen(folder: Path) -> Words:
    return encode(folder, "--encoder", "bound", "--components", 8)


@case(
    2,
    "--groups has no use here: it belongs to bin-bound, found --encoder kpca-bound. Fix: leave "
    "--groups out.",
)
def groups_of_kpca(folder: Path) -> Words:
    return encode(folder, *KPCA, "--groups", 8)


NO_SUM = (
    "bin-bound needs a sum over bins: found kernel %s, expected hellinger, chi2, intersection, "
    "jensen_shannon, or a "
    "transform. Fix: --encoder kpca-bound"
)


@case(2, NO_SUM % "cosine")
def bins_of_cosine(folder: Path) -> Words:
    return encode(folder, "--encoder", "bin-bound", "--groups", 8, kernel="cosine")


@case(2, NO_SUM % "own")
def bins_of_a_kernel_of_the_users_own(folder: Path) -> Words:
    return encode(folder, "--encoder", "bin-bound", "--groups", 8, kernel=folder / "mine.py")


@case(2, "groups is out of range: found 0, expected 1 to 24, the bins. Fix: --groups 24")
def no_groups(folder: Path) -> Words:
    return encode(folder, "--encoder", "bin-bound", "--groups", 0)


@case(2, "groups is out of range: found 64, expected 1 to 24, the bins. Fix: --groups 24")
def more_groups_than_bins(folder: Path) -> Words:
    return encode(folder, "--encoder", "bin-bound", "--groups", 64)


@case(
    2,
    "training rows is out of range: found 1, expected 2 to 1048576. Fix: leave --training-rows "
    "out.",
)
def one_training_row(folder: Path) -> Words:
    return encode(folder, "--encoder", "bin-bound", "--groups", 8, "--training-rows", 1)


# --- verify


@case(2, "{}/hits.npz holds hits of 12 queries: expected 11, as {}/few.npy has. "
         "Fix: name the queries that they are of.")  # fmt: skip
def hits_of_other_queries(folder: Path) -> Words:
    return verify(folder, queries="few.npy")


@pytest.mark.parametrize("k", [0, -1, 9])
def test_more_than_the_hits_hold(k: int, folder: Path) -> None:
    message = (
        f"k is out of range: found {k}, expected 1 to 8, the ids per query in "
        f"{folder / 'hits.npz'}. "
    )
    assert_refused(verify(folder, "-k", k), 2, f"{message}Fix: leave -k out.")


@case(2, "{}/empty.npz holds no ids: expected at least one per query. Fix: name a file of hits.")
def hits_without_ids(folder: Path) -> Words:
    return verify(folder, hits="empty.npz")


@case(2, "k is out of range: found 3001, expected 1 to 3000, the rows of the store. Fix: -k 100")
def hits_of_more_than_all_rows(folder: Path) -> Words:
    return verify(folder, hits="wide.npz")


@case(2, "{}/nothing.npz: no such file or folder. Fix: check the path.")
def no_hits(folder: Path) -> Words:
    return verify(folder, hits="nothing.npz")


@case(2, "{}/queries.npy: ids uint8[12, 24], expected ids int64[nq, k]. Fix: name a file of hits.")
def vectors_in_place_of_hits(folder: Path) -> Words:
    return verify(folder, hits="queries.npy")


@case(2, BOUND_NOTHING)
def verify_by_codes(folder: Path) -> Words:
    return verify(folder, "--bounds", folder / "codes")


@case(2, "{}/vectors is a store of vectors: expected one of codes. Fix: name the code store.")
def verify_by_vectors(folder: Path) -> Words:
    return verify(folder, "--bounds", folder / "vectors")


@pytest.mark.parametrize("kernel", [("chi2",), ("rbf", "--gamma", 0.25)])
def test_bounds_of_another_kernel(kernel: tuple[object, ...], folder: Path) -> None:
    named = {
        "chi2": '{"configuration":{},"name":"chi2"}',
        "rbf": '{"configuration":{"gamma":0.25},"name":"rbf"}',
    }
    message = (
        f"{folder}/rbf-bounds holds bounds of other data: "
        'found kernel {"configuration":{"gamma":0.5},"name":"rbf"}, '
        f"expected kernel {named[str(kernel[0])]}. "
        f"Fix: mercore encode {folder}/vectors BOUNDS --encoder bound"
    )
    assert_refused(
        verify(folder, "--kernel", *kernel, "--bounds", folder / "rbf-bounds"), 2, message
    )


def test_bounds_of_other_vectors(folder: Path) -> None:
    ours, theirs = (
        json.loads(succeed(f"info {folder}/{name} --json"))["fingerprint"]
        for name in ("vectors", "others")
    )
    message = (
        f"{folder}/others-bounds holds bounds of other data: found vectors {theirs}, expected "
        f"vectors {ours}. "
        f"Fix: mercore encode {folder}/vectors BOUNDS --encoder bound"
    )
    assert_refused(verify(folder, "--bounds", folder / "others-bounds"), 2, message)


# --- what holds of them all


def assert_refused(words: Words, code: int, message: str) -> None:
    outcome = invoke(*words)
    assert (outcome.code, outcome.out, outcome.err) == (code, "", f"mercore: {message}\n")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.promise("Bad input is refused before any work, in one paragraph, and leaves nothing")
def test_bad_input(name: str, folder: Path) -> None:
    code, message, make = CASES[name]
    before = files_of(folder)
    assert_refused(make(folder), code, message.replace("{}", str(folder)))
    assert files_of(folder) == before


def test_verify_needs_a_kernel(folder: Path) -> None:
    outcome = invoke(f"verify {folder}/vectors {folder}/queries.npy {folder}/hits.npz")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Missing option '--kernel'" in outcome.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact by codes", "hits of other queries"])
def test_bad_input_by_the_real_command(name: str, folder: Path) -> None:
    code, message, make = CASES[name]
    outcome = run(*make(folder))
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err == f"mercore: {message.replace('{}', str(folder))}\n"
