"""Codes as faiss sees them: the same neighbours, with their scores and ids."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from mercore.jobs import api
from mercore.jobs.verbs import export as exporting
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.encoders.pq import PqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import ExistsError, InputError, StorageError
from mercore.testing.stores import histograms, make_codes, make_vectors
from tests.support.running import on_command_line
from tests.support.tiers import slow_unless

KPCA_PQ = KpcaPqSpec(n_landmarks=40, n_components=12, n_subquantizers=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    rows = histograms(400, 12)
    rows[[3, 200]] = 0
    vectors = make_vectors(folder / "vectors", rows, drop_zero_rows=True)
    whole = make_vectors(folder / "whole", histograms(400, 12, seed=4))
    make_codes(folder / "chi2", vectors, make_kernel("chi2"), KPCA_PQ)
    make_codes(folder / "raw", whole, make_kernel("rbf", gamma=0.5), PqSpec(n_subquantizers=6))
    product = PqSpec(n_subquantizers=3, metric="product")
    make_codes(folder / "product", whole, make_kernel("hellinger"), product)
    sums = PqSpec(n_subquantizers=2, quantizer="rq")
    make_codes(folder / "rq", whole, make_kernel("hellinger"), sums)
    axes = PcaPqSpec(n_components=10, n_subquantizers=5)
    make_codes(folder / "axes", whole, make_kernel("hellinger"), axes)
    make_codes(
        folder / "aska", vectors, make_kernel("chi2"), AskaSpec(n_atoms=8, n_nonzero_coefs=2)
    )
    np.save(folder / "queries.npy", histograms(30, 12, seed=1))
    return folder


@pytest.mark.parametrize(
    "name", slow_unless({"chi2", "raw"}.__contains__, ["chi2", "raw", "product", "axes"])
)
@pytest.mark.promise("An exported index finds in faiss what mercore finds")
def test_faiss_finds_what_we_find(folder: Path, name: str) -> None:
    index, points, queries = (
        folder / f"{name}.faiss",
        folder / f"{name}.npy",
        str(folder / "queries.npy"),
    )
    report = api.export(str(folder / name), str(index), queries=queries, points=str(points))
    assert report["written"] == [str(index), str(points)]
    found: Any = faiss.read_index(str(index))
    theirs, ids = found.search(np.load(points), 20)
    scores = theirs if name == "product" else 1 - theirs / 2
    _, hits = api.search(str(folder / name), queries, k=20)
    assert hits.scores is not None
    np.testing.assert_allclose(scores, hits.scores, atol=2e-6)
    clear = np.abs(np.diff(hits.scores, axis=1, prepend=np.inf, append=-np.inf)).astype(float)
    apart = (clear[:, 1:] > 1e-5) & (clear[:, :-1] > 1e-5)  # codes that tie are in either order
    assert apart.mean() > 0.5
    np.testing.assert_array_equal(ids[apart], hits.ids[apart])


@pytest.mark.parametrize(
    "name", slow_unless({"chi2", "raw"}.__contains__, ["chi2", "raw", "product", "axes"])
)
def test_faiss_finds_in_cells_what_we_find(folder: Path, name: str) -> None:
    queries, points = str(folder / "queries.npy"), folder / f"{name}-cells.npy"
    cells, index = folder / f"{name}-cells", folder / f"{name}-cells.faiss"
    api.index(str(folder / name), cells, cells=9)
    api.export(str(cells), str(index), queries=queries, points=str(points))
    found: Any = faiss.read_index(str(index))
    for probes in (1, 4, 9):
        found.nprobe = probes
        theirs, ids = found.search(np.load(points), 20)
        scores = theirs if name == "product" else 1 - theirs / 2
        _, hits = api.search(str(cells), queries, k=20, probes=probes)
        assert hits.scores is not None
        np.testing.assert_array_equal(ids < 0, hits.ids < 0)
        known = hits.ids >= 0
        np.testing.assert_allclose(scores[known], hits.scores[known], atol=2e-6)
        finite = np.where(known, hits.scores, -1e9 - np.arange(20))
        clear = np.abs(np.diff(finite, axis=1, prepend=np.inf, append=-np.inf))
        apart = (clear[:, 1:] > 1e-5) & (clear[:, :-1] > 1e-5) & known
        assert apart.any()
        np.testing.assert_array_equal(ids[apart], hits.ids[apart])


def test_what_cannot_be_exported_is_refused_before_anything_is_written(
    folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / "index"
    with pytest.raises(InputError, match="queries and points go together: found one of them"):
        api.export(str(folder / "chi2"), str(target), queries=str(folder / "queries.npy"))
    with pytest.raises(
        InputError,
        match=r"holds codes of aska: expected kpca-pq, map-pq, pca-pq or pq, which faiss knows\. Fix:",
    ):
        api.export(str(folder / "aska"), str(target))
    with pytest.raises(
        InputError,
        match=r"holds codes of quantizer rq: expected pq, as an IndexPQ has\. "
        r'Fix: encode with quantizer="pq"\.',
    ):
        api.export(str(folder / "rq"), str(target))
    with pytest.raises(ExistsError):
        api.export(str(folder / "chi2"), str(folder / "queries.npy"))
    assert not target.exists()


def test_queries_that_the_codes_are_not_for_are_refused_before_anything_is_written(
    folder: Path, tmp_path: Path
) -> None:
    negative = histograms(3, 12, seed=1).astype(np.float32)
    negative[1, 2] = -1
    cases: dict[str, tuple[Any, str]] = {
        "wide": (
            histograms(3, 13, seed=1),
            r"wide\.npy has d = 13: expected 12, the dimension of .*chi2\. Fix: ",
        ),
        "none": (
            np.zeros((0, 12), np.float32),
            r"none\.npy holds no query: expected at least one\. Fix: ",
        ),
        "negative": (negative, r"^query 1 has a negative value: "),
    }
    for name, (rows, message) in cases.items():
        queries = tmp_path / f"{name}.npy"
        np.save(queries, rows)
        with pytest.raises(InputError, match=message):
            api.export(
                str(folder / "chi2"),
                str(tmp_path / "x"),
                queries=str(queries),
                points=str(tmp_path / "p.npy"),
            )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "negative.npy",
        "none.npy",
        "wide.npy",
    ]


def test_two_paths_that_are_one_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    codes, queries = str(folder / "chi2"), str(folder / "queries.npy")
    for index, points, message in (
        (
            "x",
            "x",
            "INDEX and --points are one path: found x twice. Fix: name another for --points.",
        ),
        (
            "x",
            "link/x",
            "INDEX and --points are one path: found link/x twice. Fix: name another for --points.",
        ),
        (
            "x",
            queries,
            f"--queries and --points are one path: found {queries} twice. Fix: name another for "
            "--points.",
        ),
        (
            queries,
            "x",
            f"INDEX and --queries are one path: found {queries} twice. Fix: name another for "
            "--queries.",
        ),
    ):
        with pytest.raises(InputError) as error:
            api.export(codes, index, queries=queries, points=points)
        assert on_command_line(error.value) == message
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_the_same_command_ends_an_export_that_stopped_between_points_and_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, index, points = str(folder / "chi2"), tmp_path / "x.faiss", tmp_path / "p.npy"
    queries = str(folder / "queries.npy")

    def full(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "write_index", full)
        with pytest.raises(StorageError):
            api.export(codes, str(index), queries=queries, points=str(points))
    assert (points.exists(), index.exists()) == (True, False)
    written = points.stat().st_mtime_ns
    api.export(codes, str(index), queries=queries, points=str(points))
    assert index.exists()
    assert points.stat().st_mtime_ns == written


@pytest.mark.parametrize("there", ["other values", "another shape", "another type", "no array"])
def test_other_points_are_not_overwritten(folder: Path, tmp_path: Path, there: str) -> None:
    points, queries = tmp_path / "p.npy", str(folder / "queries.npy")
    made: dict[str, Any] = {
        "other values": np.zeros((30, 12), np.float32),
        "another shape": np.zeros((30, 11), np.float32),
        "another type": np.zeros((30, 12), np.uint8),
    }
    if there in made:
        np.save(points, made[there])
    else:
        points.write_bytes(b"text")
    before = points.read_bytes()
    with pytest.raises(ExistsError) as error:
        api.export(str(folder / "chi2"), str(tmp_path / "x"), queries=queries, points=str(points))
    message = (
        f"{points} exists and holds other points: expected a new path. Fix: name "
        "another, or remove it."
    )
    assert str(error.value) == message
    assert points.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["p.npy"]
