"""A report on a comparison: its figures are those that the folder keeps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.stores.errors import FormatError, InputError, NotFoundError
from tests.support.pages import ParsedPage, check_rules, texts_outside
from tests.support.running import histograms

ENCODERS = ["aska:atoms=32,sparsity=4,weights=float16,pursuit=omp", "aska:atoms=16,sparsity=4"]
OPTIONS = ["aska:atoms=32,pursuit=omp,weights=float16", "aska:atoms=16,pursuit=ormp,weights=int8"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a comparison of two encoders under one kernel, and its report."""
    folder = tmp_path_factory.mktemp("compared")
    np.save(folder / "queries.npy", histograms(20, 12, seed=2))
    mercore.ingest(histograms(300, 12, seed=1), folder / "base")
    report = mercore.compare(
        folder / "base",
        folder / "queries.npy",
        kernels="chi2",
        encoders=ENCODERS,
        ranks=[1, 10],
        seeds=2,
        rerank="0,20,60",
        out=folder / "out",
    )
    return folder / "out", report


def page_of(folder: Path, out: Path) -> tuple[dict[str, Any], ParsedPage]:
    """The report on a folder, and its page."""
    report = mercore.report(folder, out=out, force=True)
    return report, check_rules(out.read_text())


def test_figures_are_those_of_the_comparison(
    compared: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, comparison = compared
    before = sorted(path.name for path in folder.iterdir())
    report, page = page_of(folder, tmp_path / "page.html")
    assert (report["kernels"], report["runs"]) == (["chi2"], 4)
    assert page.titles() == ["chi2"]
    assert page.row("rows") == ["300"]
    assert page.row("queries") == ["20"]
    assert page.row("runs per encoder") == ["random states 0, 1"]
    labels = [each + way for each in ENCODERS for way in ("", ", 20 reranked", ", 60 reranked")]
    for label, entry in zip(labels, comparison["summary"], strict=True):
        places = [entry["ranks"].index(rank) for rank in (1, 10)]
        recalls = [
            f"{entry['recall_mean'][place]:.3f} ± {entry['recall_std'][place]:.3f}"
            for place in places
        ]
        times = [entry["search_ns_per_row_and_query"], entry["encode_us_per_row"]]
        atoms = f"{entry['atoms_of_rows']:.1%}, {entry['atoms_of_hits']:.1%}"
        figures = [*recalls, atoms, *(f"{each:.2f}" for each in times)]
        expected = [str(entry["bytes_per_row"]), *figures, "2"]
        assert page.row(label) == expected
    (picture,) = page.svgs()
    assert texts_outside(picture) == []
    for axis in ("rank R", "queries per second", "bytes per row"):
        assert f"<!-- {axis} -->" in picture
    assert "goes from codes alone (filled) to 20, 60 hits reranked." in page.text
    assert sorted(path.name for path in folder.iterdir()) == before


def test_runs_of_several_data_have_sections_of_their_own(
    compared: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Runs of an older version, which do not say how many rows they searched, too."""
    written = json.loads((compared[0] / "compare.json").read_text())
    others = [{**run, "vectors": "other"} for run in written["runs"]]
    for run in others:
        del run["rows"], run["query_count"], run["text"]
        run["reranked"] = run["reranked"][0]
    written["runs"] += others
    (tmp_path / "compare.json").write_text(json.dumps(written))
    report, page = page_of(tmp_path, tmp_path / "page.html")
    assert page.titles() == ["chi2", "chi2"]
    assert [row[1] for row in page.rows if row[0] == "rows"] == ["300", "not recorded"]
    assert ["queries per second" in svg for svg in page.svgs()] == [True, False]
    shown = [row[0] for row in page.rows if row[0].startswith("aska")][6:]
    assert shown == [each + way for each in OPTIONS for way in ("", ", 20 reranked")]
    assert report["runs"] == 8


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("[]", {}, FormatError, "found something else, expected the runs of a comparison"),
        ("", {}, FormatError, "found something else"),
        (
            '{"name": "mercore-compare", "version": 1, "runs": []}',
            {},
            NotFoundError,
            "found no finished run, expected at least one. Fix: run mercore compare with out=",
        ),
        ("[]", {"threads": 1}, InputError, "threads has no use here: .* is a comparison"),
        ("[]", {"vectors": "base"}, InputError, "vectors has no use here"),
        (None, {}, FormatError, "found neither, expected a store of codes, or a folder that"),
    ],
)
def test_what_is_no_comparison_is_refused(
    text: str | None, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "compare.json").write_text(text)
    with pytest.raises(error, match=message):
        mercore.report(tmp_path, out=tmp_path / "page.html", **options)
    assert not (tmp_path / "page.html").exists()
