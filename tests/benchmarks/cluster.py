"""The report on executions: threads beside processes, and plans beside measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mercore.jobs import api
from mercore.stores.rows import open_rows
from tests.benchmarks.measurements import cluster, plans
from tests.benchmarks.measurements.exact import spread_queries
from tests.benchmarks.reporting.plots import Bars, draw_bars
from tests.benchmarks.reporting.tables import Plot, Report, Section, Table, timed_table


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """The inputs and options of the report, and the stores that its sections share."""

    base: str
    query_file: str
    folder: Path
    queries: int
    workers: int
    batch: int
    repeats: int

    @cached_property
    def store(self) -> str:
        """A vector store of the base."""
        store = str(self.folder / "vectors")
        api.ingest(self.base, store)
        return store

    @cached_property
    def some_queries(self) -> str:
        """A file of evenly drawn queries."""
        path = str(self.folder / "queries.npy")
        np.save(path, spread_queries(self.query_file, self.queries))
        return path

    def made_folder(self, name: str) -> Path:
        """Make a folder for a section."""
        folder = self.folder / name
        folder.mkdir()
        return folder

    @property
    def title(self) -> str:
        """The sizes of the data."""
        rows, nq = (open_rows(path).shape[0] for path in (self.base, self.some_queries))
        return f"{rows:,} rows, {nq:,} queries, chi2"


def _workers(setup: Setup) -> list[Table]:
    stores = cluster.made(setup.store, setup.made_folder("cluster"))
    setting = cluster.Setting(setup.workers, setup.batch, setup.repeats)
    rows, start = cluster.measure(setup.some_queries, stores, setting)
    workers = f"{setup.workers} threads, {setup.workers} processes"
    title = f"{workers}, {setup.title}, batches of {setup.batch}, k = {cluster.K}"
    started = [{"processes": setup.workers, "seconds": start}]
    return [
        timed_table(title, rows, "work"),
        timed_table("start of the processes", started, "processes"),
    ]


def _plans(setup: Setup) -> list[Table]:
    rows = plans.measure(
        setup.store, setup.some_queries, setup.made_folder("plans"), source=setup.base
    )
    fixed = ("planned, bytes", "written, bytes", "bytes, planned / written")
    return [timed_table(setup.title, rows, "job", fixed=fixed)]


def _draw(measured: Mapping[str, Sequence[Table]]) -> bytes:
    """Draw planned time and memory as multiples of the measured ones."""
    panels = []
    for label, tables in measured.items():
        rows = tables[0].rows
        series = {
            "time, planned / taken": [row[plans.TIME] for row in rows],
            "memory, planned / peak": [row[plans.MEMORY] for row in rows],
        }
        title = f"processor {label}" if len(measured) > 1 else "plan and measurement"
        panels.append(Bars(title, [row["job"] for row in rows], series))
    return draw_bars(panels, "planned / measured")


REPORT = Report[Setup](
    title="Clusters, plans, memory and survival",
    figure="2 processes search codes of aska 1.77 times as fast as 2 threads, and encode 0.989 times as "
    "fast.",
    text="Times are wall times; the base is a file that is ingested first.",
    sections=[
        Section(
            name="workers",
            title="Threads beside processes",
            text="""
The same work on threads of one process and on as many processes of one thread each: medians of
repeats that alternate. Processes take whole batches where there are enough, and so share out the
steps that threads do one after another. *Processes, × threads* is the throughput of processes as a
multiple of that of threads. The benchmark checks that both give the same bytes.
""",
            measure=_workers,
        ),
        Section(
            name="plans",
            title="Plans beside measurements",
            text="""
`mercore plan` says what a job would take before it runs; the job then runs in a process of its own,
its stores read from the disk. *Planning* is the time of the plan itself. Planned time is right if
*planned / taken* is 1. Planned memory is an upper limit: *planned / peak* is at least 1. An exact
search plans for the longest lists that bounds may leave. kpca-jl learns from 8,192 landmarks.
Written bytes are those of all files.
""",
            measure=_plans,
            plot=Plot("Planned time and memory as multiples of the measured ones", _draw),
        ),
        Section(
            name="memory",
            title="Memory budgets",
            text="""
Each command runs in a process of its own with `--memory`. *Peak* is the greatest resident memory of
the process. *Made smaller* is what the command reduced to keep to the budget.
""",
        ),
        Section(
            name="survival",
            title="Survival of jobs",
            text="""
A trial encodes 100 parts and is disturbed at random moments. It counts if the job ends done and
every file of the store has the bytes of an undisturbed run; in a race without a kill no part is
done twice. The first trial that fails ends the benchmark, and its section is not written.
""",
        ),
    ],
)
