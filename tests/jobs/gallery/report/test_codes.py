"""A report on codes: its figures are those of the verbs, and what does not fit is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import mercore
from mercore.jobs.gallery.report import sample as sampling
from mercore.jobs.gallery.report.codes import CodesReportTask
from mercore.jobs.gallery.report.measure import CodeFigures
from mercore.jobs.gallery.report.report import ReportOptions, open_report
from mercore.jobs.gallery.report.sample import SampledVectors, draw_queries
from mercore.pipeline.encoders.encoder import draw_rows
from mercore.stores.errors import (
    BudgetError,
    ExistsError,
    FormatError,
    InputError,
    MercoreError,
    NotFoundError,
    ShapeError,
)
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_vectors
from tests.independent import reference
from tests.support.custom_kernels import INTERSECTION, write
from tests.support.pages import ParsedPage, check_rules
from tests.support.running import histograms

ROWS, DIMS, K = 400, 12, 20
SPECS = {
    "aska": "aska:atoms=32,sparsity=4",
    "pq": "kpca-pq:landmarks=32,components=8,subquantizers=4",
    "bits": "klsh:bits=32,landmarks=64",
    "bounds": "bin-bound:groups=4",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors with a dropped row, codes of every sort, queries, and their true neighbours."""
    folder = tmp_path_factory.mktemp("reported")
    rows = histograms(ROWS, DIMS, seed=1)
    rows[3] = 0
    np.save(folder / "queries.npy", histograms(30, DIMS, seed=2))
    mercore.ingest(rows, folder / "base", drop_zero_rows=True)
    for name, spec in SPECS.items():
        mercore.encode(folder / "base", folder / name, kernel="chi2", encoder=spec)
    found: dict[str, Any] = {"kernel": "chi2", "k": K, "exact": True, "out": folder / "truth.npz"}
    mercore.search(folder / "base", folder / "queries.npy", **found)
    return folder


def reported(folder: Path, store: str, **options: Any) -> tuple[dict[str, Any], ParsedPage]:
    """The report on a store, and its page."""
    out = folder / f"{store}.html"
    report = mercore.report(folder / store, out=out, force=True, **options)
    assert report["page"] == str(out)
    assert report["bytes"] == out.stat().st_size
    return report, check_rules(out.read_text())


@pytest.mark.promise("A report needs no other file, and shows the recall of search and evaluate")
def test_recall_and_certificate_are_those_of_the_verbs(folder: Path) -> None:
    words = {"queries": folder / "queries.npy", "truth": folder / "truth.npz"}
    report, page = reported(folder, "aska", **words)
    _, hits = mercore.search(folder / "aska", folder / "queries.npy", k=K)
    expected = mercore.evaluate(hits, folder / "truth.npz", ranks=[1, 2, 5, 10, 20])["recall"]
    assert report["recall"]["codes"] == expected
    values = {(row["definition"], row["rank"]): f"{row['value']:.3f}" for row in expected}
    ranks = (1, 2, 5, 10, 20)
    shown = page.row("R@R: true first among the first R found")
    assert shown == [values["texmex", rank] for rank in ranks]
    assert report["rows_searched"] == ROWS - 1
    assert "queries.npy: all 30 queries." in page.text
    assert page.row("queries with every other row below the k-th score") == ["30"]
    assert page.row("k") == [str(K)]


def stored_rows() -> NDArray[np.int64]:
    """The ids of the rows of the store: row 3 was dropped."""
    return np.delete(np.arange(ROWS), 3)


def true_neighbours(queries: NDArray[np.int64], among: NDArray[np.int64], k: int) -> Any:
    """The ids of the k nearest rows by the reference, without the query itself."""
    rows = reference.prepare("chi2", histograms(ROWS, DIMS, seed=1))
    scores = reference.kernel("chi2", rows[queries], rows[among])
    scores[queries[:, None] == among] = -1
    return among[reference.top_k(scores, k)[1]]


def measured_of(store: Path) -> CodeFigures:
    """What a report measures."""
    task = open_report(str(store), ReportOptions(out=str(store) + "-new.html"))
    assert isinstance(task, CodesReportTask)
    measured = task.measure()
    assert measured is not None
    return measured


@pytest.mark.promise("In a report, a row of the store is never its own neighbour")
def test_a_row_does_not_find_itself(folder: Path) -> None:
    measured = measured_of(folder / "pq")
    own = measured.query_ids
    assert sorted(own) == stored_rows().tolist()
    for hits in (measured.hits, measured.truth):
        assert hits.ids.shape == (ROWS - 1, 100)
        assert not (hits.ids == own[:, None]).any()
        assert all(len(set(ids)) == 100 for ids in hits.ids.tolist())
    expected = true_neighbours(own, stored_rows(), 10)
    assert (measured.truth.ids[:, :10] == expected).mean() > 0.999  # but for ties
    scored = measured.scored
    assert scored is not None
    assert scored.kept.sum() == scored.true.size - len(scored.true)  # each query is a row
    assert (scored.near.sum(axis=1) == 10).all()


def test_a_sample_of_parts_is_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS["aska"]
    mercore.encode(folder / "base", folder / "parted", kernel="chi2", encoder=spec, part_rows=16)
    monkeypatch.setattr(sampling, "MAX_ROWS", 100)
    report, page = reported(folder, "parted")
    assert report["rows_searched"] == report["queries"] == 16 * 6
    assert "A sample of 96 of 399 rows was searched" in page.text
    measured = measured_of(folder / "parted")
    parts = np.unique(np.linspace(0, 24, 16).astype(int))
    sampled = stored_rows()[(16 * parts[:, None] + np.arange(6)).ravel()]
    assert measured.query_ids.tolist() == sampled.tolist()
    assert set(measured.hits.ids.ravel().tolist()) == set(sampled.tolist())
    expected = true_neighbours(sampled, sampled, 10)
    assert (measured.truth.ids[:, :10] == expected).mean() > 0.999
    _, whole = mercore.search(
        folder / "parted", histograms(ROWS, DIMS, seed=1)[sampled], k=ROWS - 1
    )
    for query, (ids, found) in enumerate(zip(whole.ids, measured.hits.ids, strict=True)):
        kept = ids[np.isin(ids, sampled) & (ids != sampled[query])]
        assert kept[: found.size].tolist() == found.tolist()


def test_queries_and_rows_are_not_those_that_an_encoder_learns_from(folder: Path) -> None:
    """Encoders draw by a seed of one number: the same seed would draw the same rows."""
    vectors = SampledVectors(open_vectors(str(folder / "base")), np.zeros(1, np.int64), 399)
    assert len(draw_queries(None, vectors).values) == 399
    learned = draw_rows(np.random.default_rng(0), 10_000, 500)
    drawn = draw_rows(np.random.default_rng(sampling.ROW_SEED), 10_000, 500)
    assert len(np.intersect1d(learned, drawn)) < 60


@pytest.mark.parametrize("store", SPECS)
def test_every_sort_of_codes_has_its_sections(store: str, folder: Path) -> None:
    report, page = reported(folder, store)
    titles = {
        "aska": ["Scores of codes and true scores", "Map of the rows", "Residuals of rows"],
        "bounds": ["Bounds and true scores", "Map of the rows"],
    }.get(store, ["Scores of codes and true scores", "Map of the rows"])
    assert page.titles() == ["What the store holds", "Recall", "Speed of a scan", *titles]
    headings = [text for _, text in page.headings]
    assert len(set(headings)) == len(headings)
    described = mercore.info(folder / store)
    assert page.row("fingerprint of the vectors") == [mercore.info(folder / "base")["fingerprint"]]
    assert page.row("kernel") == ["chi2"]
    assert page.row("rows left out of the vectors") == ["1"]
    assert page.row("random_state")[0] == str(described["encoder"]["random_state"])
    assert page.row("threads") == [str(report["threads"])]
    (scan,) = page.row("scan")
    number, unit = scan.split(" ", 1)
    assert unit == "ns per row and query"
    assert float(number) == pytest.approx(report["ns_per_row_and_query"], abs=0.011)
    assert ("other rows" in page.text) == (store != "bits")
    proved = "bounds, 0 are on the wrong side of the true score" in page.text
    assert proved == (store in ("pq", "bounds"))
    assert ("Slack of bounds" in page.text) == (store in ("pq", "bounds"))


def test_scores_of_codes_are_those_of_a_search(folder: Path) -> None:
    measured = measured_of(folder / "aska")
    scored = measured.scored
    assert scored is not None
    errors = (scored.approximate - scored.true)[scored.kept & scored.near]
    _, page = reported(folder, "aska")
    shown = f"{errors.mean():+.4f}".replace("-", "−")
    assert page.row("true neighbours")[:2] == [f"{errors.size:,}", shown]
    query = int(measured.query_ids[0])
    _, hits = mercore.search(folder / "aska", histograms(ROWS, DIMS, seed=1)[[query]], k=399)
    assert hits.scores is not None
    by_row = dict(zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True))
    assert scored.approximate[0].tolist() == [by_row[row] for row in stored_rows().tolist()]


def test_euclidean_codes_are_compared_as_distances(folder: Path) -> None:
    codes = folder / "raw"
    mercore.encode(folder / "base", codes, kernel="euclidean", encoder="pq:subquantizers=4")
    _, page = reported(folder, "raw")
    scored = measured_of(codes).scored
    assert scored is not None
    kept = scored.kept & scored.near
    approximate, true = np.sqrt(-scored.approximate[kept]), np.sqrt(-scored.true[kept])
    shown = f"{(approximate.astype(np.float64) - true).mean():+.4f}".replace("-", "−")
    errors = next(row for row in page.rows if row[0] == "true neighbours")
    assert errors[2] == shown


def test_without_vectors_the_page_says_what_the_store_holds(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(folder / "base", alone / "base")
    mercore.encode(alone / "base", alone / "aska", kernel="chi2", encoder=SPECS["aska"])
    shutil.rmtree(alone / "base")
    report, page = reported(alone, "aska")
    assert "recall" not in report
    assert page.titles() == ["What the store holds"]
    assert "The vectors are not at hand" in page.text
    assert "nothing is measured by the true kernel" in capsys.readouterr().err
    report, page = reported(alone, "aska", vectors=folder / "base")
    assert report["rows_searched"] == 399
    given = {"queries": folder / "queries.npy", "truth": folder / "truth.npz"}
    report, page = reported(alone, "aska", **given)
    assert "Residuals of rows" in page.titles()
    assert "Scores of codes and true scores" not in page.titles()
    with pytest.raises(NotFoundError, match="was encoded from it: name its new path"):
        mercore.report(alone / "aska", out=tmp_path / "x.html", queries=folder / "queries.npy")


def test_images_become_a_gallery(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (30, 4, 4, 3), np.uint8)
    for row, each in enumerate(pixels):
        Image.fromarray(each).resize((40, 40)).save(tmp_path / "images" / f"{row:02}.png")
    mercore.ingest(tmp_path / "images", tmp_path / "base")
    mercore.encode(tmp_path / "base", tmp_path / "codes", kernel="chi2", encoder="aska:atoms=8")
    _, page = reported(tmp_path, "codes")
    assert page.titles()[-1] == "Queries and their best hits"
    alts = [image["alt"] for image in page.all("img") if "Hit" in image["alt"]]
    assert len(alts) == 12 * 2 * 5
    assert "Query 0: 00.png" in {image["alt"] for image in page.all("img")}
    assert sum("the true nearest neighbour" in alt for alt in alts) >= 12
    shutil.rmtree(tmp_path / "images")
    _, page = reported(tmp_path, "codes")
    assert "Queries and their best hits" not in page.titles()


@pytest.mark.parametrize(
    ("store", "options", "error", "message"),
    [
        ("base", {}, FormatError, "found a store of vectors, expected a store of codes, or a folder "
         "that mercore compare wrote. Fix: "),
        ("queries.npy", {}, FormatError, "found neither, expected a store of codes"),
        ("none", {}, NotFoundError, "none does not exist"),
        ("aska", {"out": "there.html"}, ExistsError, "there.html exists: expected a new path. Fix: "
         "name another, or replace it with force=True."),
        ("aska", {"truth": "truth.npz"}, InputError, "found no queries. Fix: name the queries with "
         "queries, or leave truth out."),
        ("aska", {"queries": "queries.npy", "truth": "few.npy"}, ShapeError,
         "found true neighbours of 2 queries, expected 30"),
        ("aska", {"queries": "queries.npy", "truth": "beyond.npy"}, ShapeError,
         "found row 400, expected at most 399, the last row of"),
        ("aska", {"queries": "narrow.npy"}, ShapeError, "has d = 3: expected 12"),
        ("aska", {"vectors": "bits"}, MercoreError, "bits"),
        ("aska", {"kernel": "hellinger"}, InputError, "has kernel chi2: found kernel"),
        ("aska", {"threads": 0}, InputError, "threads is out of range"),
        ("aska", {"memory": "10MB"}, BudgetError, "measuring would take .*: expected at most 10 MB"),
        ("hellinger", {"queries": "queries.npy", "truth": "truth.npz"}, InputError,
         "found the certificate of kernel .*chi2.*, expected .*hellinger"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    store: str,
    options: dict[str, Any],
    error: type[MercoreError],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    Path("there.html").touch()
    np.save("few.npy", np.zeros((2, 5), np.int64))
    np.save("beyond.npy", np.tile([1, 400], (30, 1)))
    np.save("narrow.npy", histograms(2, 3, seed=0))
    if store == "hellinger" and not Path(store).exists():
        mercore.encode("base", store, kernel=store, encoder=SPECS["aska"])
    with pytest.raises(error, match=message):
        mercore.report(store, **{"out": "new.html", **options})
    assert not Path("new.html").exists()


def test_codes_of_a_custom_kernel_name_its_file(folder: Path, tmp_path: Path) -> None:
    kernel, codes = write(tmp_path, INTERSECTION), tmp_path / "codes"
    mercore.encode(folder / "base", codes, kernel=kernel, encoder=SPECS["aska"])
    mercore.report(codes, out=tmp_path / "page.html", kernel=kernel)
    assert "mine.py" in (tmp_path / "page.html").read_text()


def test_equal_rows_are_a_page(tmp_path: Path) -> None:
    mercore.ingest(np.ones((30, DIMS), np.float32), tmp_path / "base")
    mercore.encode(tmp_path / "base", tmp_path / "codes", kernel="chi2", encoder="aska:atoms=2")
    _, page = reported(tmp_path, "codes")
    assert "The correlation of both scores is 0.000." in page.text


def test_hits_in_memory_are_true_neighbours(folder: Path) -> None:
    queries = np.load(folder / "queries.npy")
    truth = Hits(scores=None, ids=np.load(folder / "truth.npz")["ids"])
    report, page = reported(folder, "aska", queries=queries, truth=truth)
    from_files, _ = reported(
        folder, "aska", queries=folder / "queries.npy", truth=folder / "truth.npz"
    )
    assert report["recall"] == from_files["recall"]
    assert "Certificate of the true neighbours" not in page.titles()


def test_memory_shrinks_batches_and_changes_no_figure(folder: Path) -> None:
    free, _ = reported(folder, "pq")
    tight, _ = reported(folder, "pq", memory="420MB")
    assert tight["recall"] == free["recall"]
