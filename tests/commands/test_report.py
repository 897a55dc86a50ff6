"""The real command makes a page about codes, and about a comparison."""

import json
from pathlib import Path

import pytest

from tests.support.pages import check_rules
from tests.support.running import invoke, succeed


@pytest.mark.promise("A report needs no other file, and shows the recall of search and evaluate")
def test_a_page_about_codes(data: Path, codes: Path, vectors: Path, tmp_path: Path) -> None:
    page, hits, truth = tmp_path / "page.html", tmp_path / "hits.npz", tmp_path / "truth.npz"
    words = ("-k", 50, "--out")
    succeed(f"search {vectors} {data}/queries.npy --kernel chi2 --exact", *words, truth)
    succeed(f"search {codes} {data}/queries.npy", *words, hits)
    given = ("--queries", data / "queries.npy", "--truth", truth, "--threads", 1)
    outcome = invoke("report", codes, *given, "--out", page)
    assert (outcome.code, outcome.out) == (0, f"{page}\n")
    recall = json.loads(succeed(f"evaluate {hits} {truth} --ranks 1,10,50 --json"))["recall"]
    parsed = check_rules(page.read_text())
    for definition, title in (
        ("k-recall", "k-recall@R: share of the true R among the first R found"),
        ("texmex", "R@R: true first among the first R found"),
        ("aska", "ASKA’s Recall@R: first found among the true R"),
    ):
        shown = parsed.row(title)
        expected = [f"{row['value']:.3f}" for row in recall if row["definition"] == definition]
        assert [shown[0], shown[3], shown[5]] == expected
        first = next(row for row in recall if row["definition"] == definition)
        assert f"{definition}@1 {first['value']:.3f}" in outcome.err
    assert parsed.titles()[-1] == "Certificate of the true neighbours"
    assert parsed.row("threads") == ["1"]
    assert len(parsed.svgs()) == 1

    again = invoke(f"report {codes} --out {page}")
    assert (again.code, again.out) == (2, "")
    assert again.err == (
        f"mercore: {page} exists: expected a new path. Fix: name another, or replace it with "
        "--force.\n"
    )
    report = json.loads(succeed(f"report {codes} --out {page} --force --json"))
    assert (report["rows"], report["rows_searched"], report["queries"]) == (3000, 3000, 1000)


def test_what_is_no_store_ends_in_one_paragraph(data: Path, vectors: Path, tmp_path: Path) -> None:
    outcome = invoke(f"report {vectors} --out {tmp_path}/page.html")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"mercore: {vectors}: found a store of vectors, expected a store of codes, or a folder "
        f"that mercore compare wrote. Fix: mercore encode {vectors} CODES --kernel chi2, "
        "then report CODES.\n"
    )
