"""Reports of benchmarks: their text is made from recorded figures, without a trace of the
machine's folders."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.jobs import api
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.encoder import draw_rows
from tests.benchmarks.billion import REPORT as BILLION
from tests.benchmarks.cells import REPORT as CELLS
from tests.benchmarks.cluster import REPORT as CLUSTERS
from tests.benchmarks.encode import REPORT as ENCODING
from tests.benchmarks.exact import REPORT as EXACT
from tests.benchmarks.hashing import REPORT as HASHING
from tests.benchmarks.measurements import peers
from tests.benchmarks.measurements.halves import write_halves
from tests.benchmarks.measurements.recall import Data, by_drawn_rows
from tests.benchmarks.recall import REPORT as RECALL
from tests.benchmarks.recall import lead
from tests.benchmarks.reporting.document import Measured, Record, read_record, render, write_report
from tests.benchmarks.reporting.machine import command_line, commit, processor, run_conditions
from tests.benchmarks.reporting.plots import Bars, Lines, draw_bars, draw_lines
from tests.benchmarks.reporting.run import produce
from tests.benchmarks.reporting.tables import Plot, Report, Section, Table, cell, timed_table
from tests.benchmarks.scan import REPORT as SCANNING

REPORTS = Path(__file__).parents[1] / "notebooks" / "reports"
COMMITTED: dict[str, Report[Any]] = {
    "billion": BILLION,
    "cells": CELLS,
    "clusters": CLUSTERS,
    "encoding": ENCODING,
    "exact": EXACT,
    "hashing": HASHING,
    "recall": RECALL,
    "scanning": SCANNING,
}
CPU = """processor\t: 0
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Gold  6338
flags\t\t: fpu avx2 avx512f avx512vbmi

processor\t: 1
cpu family\t: 7
"""
RUN = {
    "date": "2026-01-02",
    "commit": "abc1234",
    "memory": "8 GB",
    "versions": "Python 3.11.7",
    "command": "python -m tests.benchmarks scan base.bvecs",
}
PATH = Path("speed.md")


def times(ns: float, size: float = 28.4) -> Table:
    """A made table: one row, whose time depends on the processor."""
    row = {"kernel": "chi2", "bytes per row": size, "ns per row": ns, "× faiss": 10 / ns}
    return timed_table("one thread", [row], "kernel", fixed=("bytes per row",))


def bars(figures: object) -> bytes:
    """A made plot."""
    del figures
    return draw_bars([Bars("panel", ["a", "b"], {"x": [1.0, None]})], "µs per row")


REPORT = Report[None](
    title="Speed",
    text="An introduction.",
    sections=[
        Section(
            name="one",
            title="One query",
            text="How to read it.",
            measure=lambda _: [times(2.0)],
            plot=Plot("A caption", bars),
        ),
        Section(name="two", title="Batches", text="Read it so.", measure=lambda _: [times(4.0)]),
        Section(name="three", title="No data", text="Never shown.", measure=lambda _: []),
    ],
)


def record(*processors: tuple[str, float]) -> Record:
    """A record with the section ``one`` of each processor."""
    made = Record()
    for name, ns in processors:
        made.add(name, "one", Measured(run=RUN, tables=[times(ns)]))
    return made


def test_a_report_of_one_processor() -> None:
    assert (
        render(REPORT, record(("Xeon", 2.0)), PATH)
        == """# Speed

An introduction.

<details markdown="1">
<summary>Processors, dates, versions and commands</summary>

|  | this run |
| --- | --- |
| processor | Xeon |
| date | 2026-01-02 |
| commit | abc1234 |
| memory | 8 GB |
| versions | Python 3.11.7 |
| command | `python -m tests.benchmarks scan base.bvecs` |

</details>

## One query

How to read it.

![A caption](speed-one.svg)

**one thread**

| kernel | bytes per row | ns per row | × faiss |
| --- | --- | --- | --- |
| chi2 | 28.4 | 2.00 | 5.00 |
"""
    )


def test_two_processors_are_two_columns_of_each_time() -> None:
    text = render(REPORT, record(("Xeon", 2.0), ("Epyc", 4.0)), PATH)
    assert "|  | A | B |\n| --- | --- | --- |\n| processor | Xeon | Epyc |" in text
    assert text.endswith(
        "| kernel | bytes per row | ns per row, A | ns per row, B | × faiss, A | × faiss, B |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| chi2 | 28.4 | 2.00 | 4.00 | 5.00 | 2.50 |\n"
    )


def test_a_processor_without_a_section_has_no_column_there() -> None:
    made = record(("Xeon", 2.0), ("Epyc", 4.0))
    made.add("Epyc", "two", Measured(run=RUN, tables=[times(3.0)]))
    text = render(REPORT, made, PATH)
    assert "| kernel | bytes per row | ns per row, B | × faiss, B |" in text


def test_figures_that_no_processor_changes_are_the_most_recent_ones() -> None:
    made = record(("Xeon", 2.0))
    later = RUN | {"date": "2026-03-04"}
    made.add("Epyc", "one", Measured(run=later, tables=[times(4.0, size=26.0)]))
    made.add("Xeon", "two", Measured(run=RUN, tables=[times(4.0)]))
    assert "| chi2 | 26.0 | 2.00 | 4.00 |" in render(REPORT, made, PATH)


def test_a_section_measured_later_says_so() -> None:
    made = record(("Xeon", 2.0))
    later = RUN | {"date": "2026-03-04", "commit": "def5678 + changes"}
    made.add("Xeon", "two", Measured(run=later, tables=[times(4.0)]))
    text = render(REPORT, made, PATH)
    assert "| date | 2026-03-04 |" in text  # as many sections of either run: the later one
    assert (
        "How to read it.\n\nMeasured on 2026-01-02 at commit abc1234: "
        "`python -m tests.benchmarks scan base.bvecs`" in text
    )
    assert text.count("Measured on") == 1


def test_a_section_without_a_benchmark_keeps_its_figures_and_says_which_commit_has_it() -> None:
    report = replace(REPORT, sections=[replace(REPORT.sections[0], measure=None)])
    text = render(report, record(("Xeon", 2.0)), PATH)
    said = f"Measured on 2026-01-02 at commit abc1234: `{RUN['command']}`"
    assert f"How to read it.\n\n{said}\n\n![A caption](speed-one.svg)" in text
    assert report.chosen(()) == []


def test_a_later_run_renews_its_sections_alone(tmp_path: Path) -> None:
    path = tmp_path / "speed.md"
    produce(REPORT, None, (), path)
    first = read_record(path.with_suffix(".json"))
    produce(REPORT, None, ("two",), path)
    again = read_record(path.with_suffix(".json"))
    (sections,) = again.processors.values()
    assert list(sections) == ["one", "two"]
    assert sections["one"] == first.processors[processor()]["one"]
    assert path.read_text() == render(REPORT, again, path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "speed-one.svg",
        "speed.json",
        "speed.md",
    ]
    for each in tmp_path.iterdir():
        assert str(tmp_path) not in each.read_text()


def test_a_second_processor_keeps_the_figures_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "speed.md"
    write_report(REPORT, record(("Xeon", 2.0)), path)
    read = read_record(path.with_suffix(".json"))
    read.add("Epyc", "one", Measured(run=RUN, tables=[times(4.0)]))
    write_report(REPORT, read, path)
    assert read_record(path.with_suffix(".json")) == record(("Xeon", 2.0), ("Epyc", 4.0))
    assert "| chi2 | 28.4 | 2.00 | 4.00 | 5.00 | 2.50 |" in path.read_text()


def test_another_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "speed.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^speed\.json is not the record of a report$"):
        read_record(tmp_path / "speed.json")


def test_a_command_line_has_no_folder() -> None:
    words = ["exact", "--sift", "/data/x/base.bvecs", "q.bvecs", "--report=/a/b/exact.md"]
    assert command_line(words) == (
        "python -m tests.benchmarks exact --sift base.bvecs q.bvecs --report=exact.md"
    )
    said = run_conditions(["scan", "/data/base.bvecs", "s3://bucket/key/queries"])
    assert not any(folder in str(said) for folder in ("/data", "bucket", str(Path.home())))


def test_a_processor_is_named_with_its_instructions() -> None:
    said = processor(CPU)
    assert said.startswith("Intel Xeon Gold 6338, family 6 model 106, ")
    assert said.endswith(" cores, AVX-512 with VBMI")
    assert processor("flags\t: avx2").endswith(" cores, AVX2")


def test_a_tree_with_changes_is_marked(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        names = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        done = subprocess.run(
            ["git", "-C", tmp_path, *names, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert commit(tmp_path) == "unknown"
    git("init", "-q")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.py").write_text("1\n")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "report.md").write_text("not a source\n")
    assert commit(tmp_path) == git("rev-parse", "--short", "HEAD")
    (tmp_path / "jobs" / "a.py").write_text("2\n")
    assert commit(tmp_path) == git("rev-parse", "--short", "HEAD") + " + changes"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1161615, "1,161,615"),
        (1161615.2, "1,161,615"),
        (15.04, "15.0"),
        (1.905, "1.91"),
        (0.0971, "0.097"),
        (0.00123, "0.0012"),
        (0.0, "0"),
        ("as it is", "as it is"),
    ],
)
def test_figures_as_text(value: object, text: str) -> None:
    assert cell(value) == text


def test_plots_have_the_same_bytes_and_a_white_ground() -> None:
    def lines() -> bytes:
        return draw_lines(
            [Lines("panel", {"x": [(1, 2.0), (64, 0.1)], "y": [(1, 3.0)]})], "q", "ns"
        )

    for draw in (lines, lambda: bars(None)):
        assert draw() == draw()
        assert b"fill: #ffffff" in draw()


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(Exception, match=r"^four: expected one of \['one', 'two', 'three'\]$"):
        produce(REPORT, None, ("four",), None)


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_reports_say_what_was_recorded(name: str) -> None:
    path = REPORTS / f"{name}.md"
    text = render(COMMITTED[name], read_record(path.with_suffix(".json")), path)
    assert path.read_text() == text


@pytest.mark.parametrize("name", COMMITTED)
def test_the_figure_that_a_report_begins_with_is_in_its_tables(name: str) -> None:
    number = r"(?<![\w.])\d[\d,]*(?:\.\d+)?"
    _, _, rest = (REPORTS / f"{name}.md").read_text().partition("</details>")
    stated = re.findall(number, COMMITTED[name].figure)
    assert stated
    assert set(stated) <= set(re.findall(number, rest))


def test_halves_share_no_label_and_leave_nothing_out(tmp_path: Path) -> None:
    rows, queries = np.arange(20.0).reshape(10, 2), np.arange(6.0).reshape(3, 2)
    labels = np.array([5, 5, 7, 7, 7, 2, 2, 9, 9, 9])
    for name, values in (("rows", rows), ("queries", queries), ("labels", labels)):
        np.save(tmp_path / f"{name}.npy", values)
    paths = [str(tmp_path / f"{name}.npy") for name in ("rows", "queries", "labels")]
    base, asked, of_rows = paths
    assert write_halves(base, asked, of_rows, tmp_path / "out") == [(5, 2), (5, 1)]
    first, second = (np.load(tmp_path / "out" / f"base-{half}.npy") for half in (0, 1))
    np.testing.assert_array_equal(first, rows[np.isin(labels, [2, 7])])
    np.testing.assert_array_equal(second, rows[np.isin(labels, [5, 9])])


def test_recall_tells_rows_that_are_atoms_from_the_others(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((300, 16), np.float32)
    np.save(tmp_path / "queries.npy", rows[:200])  # each is its own nearest row
    api.ingest(rows, tmp_path / "vectors")
    store, queries = str(tmp_path / "vectors"), str(tmp_path / "queries.npy")
    data = Data(store=store, queries=queries, folder=tmp_path, atoms=100, sparsity=2)
    spec = AskaSpec(n_atoms=100, n_nonzero_coefs=2)
    found = by_drawn_rows(data, "chi2", spec, tmp_path / "codes")
    atoms = draw_rows(np.random.default_rng(spec.random_state), 300, 100)
    assert (found.rows, found.nearest) == (100, (atoms < 200).mean() / 2)
    drawn, others, every = (
        (found.recall[name] or {})["texmex@1"]
        for name in ("nearest row drawn", "nearest row not drawn", "all queries")
    )
    assert drawn == 1 > every > others
    assert every == pytest.approx(found.nearest + (1 - found.nearest) * others)
    assert str(data) == "300 rows, 200 queries, m = 100 (33.3 % of the rows), α = 2"


@pytest.mark.slow
@pytest.mark.parametrize("name", peers.PEERS)
def test_quantisers_of_faiss_take_the_bytes_that_the_report_says(name: str) -> None:
    for size in peers.PEERS[name]:
        for data in ("main data", "bags of words"):
            _, width = peers.chosen_space(data, "chi2", name, size)
            assert peers.make_index(name, width, size).sa_code_size() == size


@pytest.mark.parametrize("name", ["SQ 8 bits", "RaBitQ"])
def test_coordinates_of_peers_keep_the_nearest_rows(tmp_path: Path, name: str) -> None:
    rows = np.random.default_rng(0).random((300, 16), np.float32)
    np.save(tmp_path / "queries.npy", rows[:100])  # each is its own nearest row
    api.ingest(rows, tmp_path / "vectors")
    store, queries = str(tmp_path / "vectors"), str(tmp_path / "queries.npy")
    data = Data(store=store, queries=queries, folder=tmp_path, atoms=100, sparsity=2)
    assert peers.of_peer(data, "chi2", name, 28, 300)["texmex@1"] > 0.95


@pytest.mark.parametrize("name", ["PQ", "RaBitQ"])
def test_a_seed_changes_what_faiss_learns_and_seed_0_is_that_of_faiss(name: str) -> None:
    rows = np.random.default_rng(0).random((300, 32), np.float32)
    codes = []
    for index in (
        peers.make_index(name, 32, 16),
        peers.make_index(name, 32, 16),
        peers.make_index(name, 32, 16, seed=1),
    ):
        index.train(rows)
        codes.append(index.sa_encode(rows))
    np.testing.assert_array_equal(codes[0], codes[1])
    assert (codes[0] != codes[2]).any()


def test_the_lead_is_that_of_the_greatest_means_over_the_seeds() -> None:
    found = [
        {"map-pq": 0.5, "aska": 0.2, "faiss PQ": 0.4, "faiss LSQ": 0.1},
        {"map-pq": 0.3, "aska": 0.7, "faiss PQ": 0.3},  # LSQ is measured with one seed
    ]
    ranks = [
        {
            codes: {f"texmex@{rank}": value * rank for rank in (1, 10, 100)}
            for codes, value in each.items()
        }
        for each in found
    ]
    np.testing.assert_allclose(lead(ranks), [0.1, 1, 10])


def test_further_seeds_are_for_what_may_decide_a_comparison() -> None:
    first = {
        name: {"texmex@1": at_1, "texmex@10": at_10}
        for name, at_1, at_10 in [
            ("map-pq", 0.5, 0.9),
            ("kpca-pq", 0.47, 0.89),  # near at rank 10
            ("aska", 0.4, 0.8),
            ("faiss PQ", 0.3, 0.7),
            ("faiss RQ", 0.1, 0.6),
        ]
    }
    again = [name for name in first if peers.measured(name, "chi2", 16, first)]
    assert again == ["map-pq", "kpca-pq", "faiss PQ"]
    assert all(peers.measured(name, "chi2", 16) for name in first)
    assert all(peers.measured(name, "hellinger", 16, first) for name in first)
    assert not peers.measured("faiss LSQ", "hellinger", 8)
