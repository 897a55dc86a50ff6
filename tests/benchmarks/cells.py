"""The report on cells: recall that was asked for and found, and time beside a scan and faiss."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from tests.benchmarks.measurements import cells
from tests.benchmarks.reporting.tables import Report, Row, Section, Table, timed_table

PROBES = 8, 16, 32, 64, 128


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """The sets: name, rows, queries, kernel, encoder, and the queries that measure recall."""

    sets: Sequence[tuple[str, str, str, str, str, int]]
    folder: Path

    def indexed(self) -> list[cells.Indexed]:
        """Return the sets, encoded and indexed."""
        return [
            cells.make_index(self.folder, (name, base, asked), (kernel, encoder), sample)
            for name, base, asked, kernel, encoder, sample in self.sets
        ]


def _promised(setup: Setup) -> list[Table]:
    tables = []
    for made in setup.indexed():
        title = f"{made.name}, {made.kernel}; the sample is {made.sample}"
        rows: list[Row] = cells.promised(made)
        tables.append(Table(title=title, rows=rows, keys=("set", "k", "asked")))
    return tables


def _time(setup: Setup) -> list[Table]:
    tables, done = [], set[str]()
    with threadpool_limits(1):
        for made in setup.indexed():
            if made.codes not in done:
                done.add(made.codes)
                rows = cells.timed(made, setup.folder, PROBES)
                fixed = ("of the rows, %",)
                tables.append(timed_table(made.name, rows, "set", "cells probed", fixed=fixed))
    return tables


REPORT = Report[Setup](
    title="Cells",
    figure="Of ten neighbours of SIFT under chi2, 0.952 are found where 0.950 are asked for, by scanning "
    "3.35 % of the codes.",
    text="""
An index of cells on queries that it has not seen, at most 1 000 of each set. The true neighbours are
those of every row by the kernel.
""",
    sections=[
        Section(
            name="recall",
            title="Recall that was asked for, and found",
            text="""
`search INDEX QUERIES --recall` chooses the cells and the codes to rerank. *found* is the share of the
true k neighbours among the k hits. The sample that measures recall is rows of the store, or other
queries. Where rows come in groups of alike ones and queries do not, rows of the store expect too
much; the tables of bags of words show it.
""",
            measure=_promised,
        ),
        Section(
            name="time",
            title="Time beside a scan and an inverted file of faiss",
            text="""
One thread, all in memory, 100 best codes, without reranking. *faiss* is `IndexIVFPQ` over the same
coordinates, of equal cells and bytes; its codes are of residuals from the centre of their cell. Its
time includes the coordinates of the queries. *scan* passes over all codes of the same store.
*ten found in 10 / 100* is the share of the true ten neighbours among the 10 and the 100 best codes.
""",
            measure=_time,
        ),
    ],
)
