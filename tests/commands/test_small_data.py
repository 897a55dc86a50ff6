"""Small data, with the defaults of every option: ten rows go through every encoder, and small
stores are small on disk."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encoders import ENCODERS
from mercore.stores.results.hits import Hits, read_hits
from tests.support.running import histograms, invoke, succeed

KERNELS = {
    "pq": ("hellinger",),
    "pca-pq": ("euclidean",),
    "rff": ("rbf", "--gamma", "0.001"),
    "pca-bound": ("euclidean",),
}
SHAPES = ((10, 16), (10, 3), (10, 1))


def kernel_of(encoder: str) -> tuple[str, ...]:
    """The options of a kernel that an encoder serves."""
    return ("--kernel", *KERNELS.get(encoder, ("chi2",)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stores ``base-ROWS-DIMS``, and their rows as ``.npy`` files."""
    folder = tmp_path_factory.mktemp("small")
    for n, d in SHAPES:
        np.save(folder / f"rows-{n}-{d}.npy", histograms(n, d, seed=d))
        succeed(f"ingest {folder}/rows-{n}-{d}.npy {folder}/base-{n}-{d}")
    return folder


@pytest.fixture(scope="module")
def true_hits(folder: Path) -> Callable[[tuple[int, int], tuple[str, ...]], Hits]:
    """A function that returns the true neighbours of all rows of a shape under a kernel."""

    @cache
    def hits_of(shape: tuple[int, int], kernel: tuple[str, ...]) -> Hits:
        n, d = shape
        out = folder / f"{n}-{d}-{kernel[1]}.npz"
        queries = folder / f"rows-{n}-{d}.npy"
        succeed(f"search {folder}/base-{n}-{d} {queries}", *kernel, "--out", out)
        return read_hits(str(out))

    return hits_of


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.promise("Ten rows with all defaults go through every encoder")
def test_ten_rows_go_through_every_encoder_with_all_defaults(
    encoder: str,
    shape: tuple[int, int],
    folder: Path,
    true_hits: Callable[[tuple[int, int], tuple[str, ...]], Hits],
    tmp_path: Path,
) -> None:
    n, d = shape
    queries, codes = folder / f"rows-{n}-{d}.npy", tmp_path / "codes"
    succeed(f"encode {folder}/base-{n}-{d} {codes} --encoder {encoder}", *kernel_of(encoder))
    if shape == SHAPES[0]:
        succeed(f"search {codes} {queries} --out {tmp_path}/found.npz")
        found = read_hits(str(tmp_path / "found.npz"))
        assert np.array_equal(np.sort(found.ids), [range(n)] * n)
    truth = true_hits(shape, kernel_of(encoder))
    out = tmp_path / "hits.npz"
    for options in [("--rerank", n), *[("--exact",)] * ENCODERS[encoder].bounds]:
        succeed(f"search {codes} {queries}", *options, "--out", out)
        hits = read_hits(str(out))
        out.unlink()
        assert np.array_equal(hits.ids, truth.ids)
        assert hits.scores is not None
        assert truth.scores is not None
        np.testing.assert_allclose(hits.scores, truth.scores, rtol=1e-15)  # ties: one last bit


def test_ten_rows_have_sorted_orders(folder: Path, tmp_path: Path) -> None:
    base, queries = folder / "base-10-16", folder / "rows-10-16.npy"
    succeed(f"encode {base} {tmp_path}/codes --kernel chi2 --encoder klsh")
    succeed(f"index {tmp_path}/codes {tmp_path}/orders")
    succeed(f"search {tmp_path}/orders {queries} --out {tmp_path}/hits.npz")
    assert np.array_equal(read_hits(str(tmp_path / "hits.npz")).ids[:, 0], range(10))


def test_a_default_that_shrinks_is_printed_once(folder: Path, tmp_path: Path) -> None:
    base, queries = folder / "base-10-16", folder / "rows-10-16.npy"
    encoded = invoke(f"encode {base} {tmp_path}/codes --kernel chi2")
    assert encoded.err.count("aska: defaults fit 10 rows of 16 numbers: --atoms is 10\n") == 1
    assert encoded.err.count("defaults") == 1
    searched = invoke(f"search {tmp_path}/codes {queries}")
    assert searched.err.count("-k is 10, as the store has no more rows\n") == 1
    reranked = invoke(f"search {tmp_path}/codes {queries} --rerank 4")
    assert reranked.err.count("-k is 4, as --rerank scores no more\n") == 1


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (("--atoms", 8192), "atoms is out of range: found 8192, expected 1 to 10 rows"),
        (("--atoms", 4, "--sparsity", 8), "sparsity is out of range: found 8, expected 1 to 4"),
        (
            ("--encoder", "kpca", "--landmarks", 1024),
            "landmarks is out of range: found 1024, expected 1 to 10",
        ),
        (
            ("--encoder", "kpca", "--components", 64),
            "components is out of range: found 64, expected 1 to 10",
        ),
        (("--encoder", "klsh", "--subset", 30), "subset is out of range: found 30, expected 1 to"),
        (("--encoder", "rmmh", "--samples", 32), "samples is out of range: found 32, expected 2"),
        (("--encoder", "bin-bound", "--groups", 64), "groups is out of range: found 64, expected"),
        (
            ("--encoder", "kpca-pq", "--subquantizers", 16),
            "subquantizers is out of range: found 16, expected 1 to 10",
        ),
    ],
    ids=lambda value: str(value[-2]) if isinstance(value, tuple) else "",
)
def test_a_number_that_is_given_is_refused_as_ever(
    options: tuple[object, ...], refusal: str, folder: Path, tmp_path: Path
) -> None:
    outcome = invoke(f"encode {folder}/base-10-16 {tmp_path}/codes --kernel chi2", *options)
    assert outcome.code == 2
    assert refusal in outcome.err
    assert not (tmp_path / "codes").exists()


@pytest.mark.parametrize("option", ["-k", "--rerank"])
def test_too_many_neighbours_are_refused_if_they_are_asked_for(
    option: str, folder: Path, tmp_path: Path
) -> None:
    base, queries = folder / "base-10-16", folder / "rows-10-16.npy"
    succeed(f"encode {base} {tmp_path}/codes --kernel chi2")
    outcome = invoke(f"search {tmp_path}/codes {queries} {option} 11")
    assert outcome.code == 2
    assert f"{option.strip('-')} is out of range: found 11" in outcome.err


def bytes_of(store: Path) -> int:
    """The bytes of all files of a store."""
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file())


def test_ten_rows_take_little_disk(folder: Path, tmp_path: Path) -> None:
    base = folder / "base-10-16"
    assert bytes_of(base) < 80_000
    succeed(f"encode {base} {tmp_path}/codes --kernel chi2")
    assert bytes_of(tmp_path / "codes") < 80_000


def bvecs(rows: NDArray[np.uint8]) -> bytes:
    """Rows as a ``.bvecs`` file."""
    width = np.tile(np.array([rows.shape[1]], "<i4").view(np.uint8), (len(rows), 1))
    return np.hstack([width, rows]).tobytes()


def test_codes_serve_equal_rows_under_any_name_and_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = histograms(300, 12, seed=4)
    np.save("base.npy", rows)
    Path("base.bvecs").write_bytes(bvecs(rows))
    for number, source in enumerate(("base.bvecs", "./base.bvecs", "base.npy")):
        succeed(f"ingest {source} base{number}")
    succeed("encode base0 codes --kernel chi2")
    found = {
        succeed(f"search codes base.npy -k 3 --rerank 9 --vectors base{number}")
        for number in range(3)
    }
    assert len(found) == 1
