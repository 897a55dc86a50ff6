"""Text for people has one format of sizes and times, and no program loses a character of a
table."""

import itertools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mercore.jobs.background.job_printing import print_jobs
from mercore.jobs.printing import (
    format_seconds,
    format_size,
    print_evaluation,
    print_search,
    print_verdicts,
)
from mercore.jobs.progress import progress
from mercore.stores.results.hits import Hits
from mercore.testing.cases import loop_over


@loop_over(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_700, "1 MB"),
        (1_234_567, "1.23 MB"),
        (5e9, "5 GB"),
        (7.5e15, "7,500 TB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert format_size(count) == text


@loop_over(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (0.5, "0.5 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (7100, "118 min"),
        (9000, "2.5 h"),
        (400_000, "4.6 days"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@loop_over(
    ("queries", "seconds", "text"),
    [
        (1, 1.9098, "1 query × 5,000,000 rows in 1.91 s, 1,910 ms per query → h.npz\n"),
        (1, 0.0123, "1 query × 5,000,000 rows in 12.3 ms, 12.3 ms per query → h.npz\n"),
        (9, 0.0012, "9 queries × 5,000,000 rows in 1.2 ms, 7,500 queries per second → h.npz\n"),
        (2, 8.0, "2 queries × 5,000,000 rows in 8 s, 0.25 queries per second → h.npz\n"),
    ],
)
def test_speeds(
    queries: int, seconds: float, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {"queries": queries, "rows": 5_000_000, "seconds": seconds, "written": ["h.npz"]}
    hits = Hits(scores=None, ids=np.empty((queries, 0), np.int64))
    print_search(report | {"queries_per_second": queries / seconds}, hits)
    assert capsys.readouterr().err == text


def test_a_table_that_no_terminal_shows_is_not_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    target = "/data/" + "[bold]long/" * 40
    report: dict[str, Any] = {
        "id": "encode-1",
        "state": "running",
        "target": target,
        "why": "",
        "age_seconds": 7200.0,
        "seconds": 90.5,
        "parts_done": None,
        "seconds_left": 90.0,
        "parts": None,
        "rate": 1234.5,
        "progress": {"done": 1000, "total": 2000, "unit": "rows"},
    }
    print_jobs([report])
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "state", "done", "rate", "left", "age", "took", "target", "why"]
    figures = ["1,000/2,000", "rows", "1,234", "rows/s", "90", "s", "2.0", "h", "90.5", "s"]
    assert line.split() == ["encode-1", "running", *figures, target]


def test_verdicts_are_tab_separated(capsys: pytest.CaptureFixture[str]) -> None:
    refuted = {
        "query": 1,
        "verdict": "refuted",
        "rank": 2,
        "claimed": 7,
        "better": 5,
        "score": 0.25,
    }
    counts = {"proved": 1, "tied": 0, "refuted": 1}
    report = {"queries": 2, "rows": 1000, "seconds": 0.5, **counts}
    verdicts = {"verdicts": [{"query": 0, "verdict": "proved"}, refuted]}
    print_verdicts({**report, **verdicts})
    printed = capsys.readouterr()
    header, line = "query\tverdict\trank\tclaimed\tbetter\tscore\n", "1\trefuted\t2\t7\t5\t0.25\n"
    assert printed.out == header + line
    print_verdicts({**report, **verdicts}, every=True)
    assert capsys.readouterr().out == f"{header}0\tproved\t\t\t\t\n{line}"
    assert printed.err == "2 queries × 1,000 rows in 0.5 s: 1 proved, 0 tied, 1 refuted\n"


@loop_over(
    ("value", "cut", "cell", "more"),
    [
        (None, 0, "–", ""),
        (0.25, 1200, "0.2500", "; 1,200 queries may have more of them: search with a greater -k"),
    ],
)
def test_an_overlap_has_its_pairs_on_stderr(
    value: float | None, cut: int, cell: str, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"definition": "overlap-3", "rank": 50, "value": value, "pairs": 4000, "queries_cut": cut}
    print_evaluation({"recall": [row]})
    printed = capsys.readouterr()
    assert printed.out.split() == ["definition", "rank", "value", "overlap-3", "50", cell]
    assert printed.err == f"overlap-3: 4,000 pairs of a query and a near hit{more}\n"


@pytest.mark.parametrize(("seconds", "drawn"), [(0.02, 0), (0.3, 3)])
def test_a_notebook_keeps_one_line_of_a_bar_and_nothing_of_a_short_one(
    seconds: float, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def show(line: dict[str, str], **options: bool) -> Any:
        assert options == ({"raw": True, "display_id": True} if not shown else {"raw": True})
        shown.append(line["text/plain"])
        return SimpleNamespace(update=show)

    ticks = itertools.count(step=seconds)
    clock = SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr("mercore.jobs.progress.time", clock)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("IPython.display.display", show)
    with progress("encode", 9, "rows") as advance:
        for _ in range(3):
            advance(3)
    assert len(shown) == drawn
    if drawn:
        assert re.fullmatch(r"encode ━+ 100 % [\d,–]+( rows/s)? .* left 0:00:00", shown[-1])
