"""What ``mercore plan`` says, beside what the planned command then takes: time, bytes on disk, peak
memory."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from mercore.stores.part_store.header import open_header
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.part_store.part_store import PartStore
from tests.benchmarks.reporting.tables import Row
from tests.support.peaks import measured

HOURS = 3600.0
BOUNDS = ("kpca-bound", "bin-bound")
TIME, MEMORY = "time, planned / taken", "memory, planned / peak"


class Case(NamedTuple):
    """A command that is planned, then run: what it writes, and the stores whose files are read from
    the disk."""

    name: str
    words: Sequence[object]
    written: Path | None
    read: Sequence[str]


def measure(vectors: str, queries: str, folder: Path, source: str) -> list[Row]:
    """Return a row per job: planned and measured figures, and their ratios.

    Parameters
    ----------
    source : the file that is ingested
    """
    lines = []
    for case in _cases(vectors, queries, folder, source):
        lines.append(_line(case))
        click.echo(str(lines[-1]), err=True)
    return lines


def _cases(vectors: str, queries: str, folder: Path, source: str) -> Iterator[Case]:
    """Yield the jobs in order: a job may read what an earlier one wrote."""
    chi2, made = ("--kernel", "chi2"), folder / "ingested"
    yield Case("ingest", ("ingest", source, made), made, ())
    for encoder in ("aska", "kpca-pq", "kpca-jl", *BOUNDS):
        made = folder / encoder
        yield Case(
            f"encode {encoder}",
            ("encode", vectors, made, *chi2, "--encoder", encoder),
            made,
            (vectors,),
        )
    for encoder in ("aska", "kpca-pq"):
        made = folder / encoder
        out = ("--out", folder / "hits.npz", "--force")
        yield Case(f"search {encoder}", ("search", made, queries, *out), None, (str(made),))
        reranked = ("--batch", 256, "--rerank", 1000)
        yield Case(
            f"search {encoder}, rerank",
            ("search", made, queries, *reranked, *out),
            None,
            (str(made), vectors),
        )
    yield Case("search vectors", ("search", vectors, queries, *chi2, *out), None, (vectors,))
    exact = ("-k", 10, "--exact", "--out", folder / "exact.npz", "--force")
    for bound in BOUNDS:
        made = folder / bound
        words = ("search", made, queries, *exact)
        yield Case(f"search --exact, {bound}", words, None, (str(made), vectors))


def _line(case: Case) -> Row:
    """Plan a job, run it with its stores read from the disk, and compare."""
    planning = measured("plan", *case.words, "--json", seconds=HOURS)
    plan = json.loads(planning.outcome.out)
    for store in case.read:
        forget(chunk_files(_parts(store), range(_parts(store).layout.parts)))
    ran = measured(*case.words, seconds=HOURS)
    (time,) = (each for each in plan["times"] if each["cores"] == _cores(plan))
    line: Row = {
        "job": case.name,
        "planning, s": planning.seconds,
        "planned, s": time["seconds"],
        "taken, s": ran.seconds,
        TIME: time["seconds"] / ran.seconds,
        "planned, MB": plan["memory"] / 1e6,
        "peak, MB": ran.peak / 1e6,
        MEMORY: plan["memory"] / ran.peak,
    }
    if case.written is not None:
        size = sum(path.stat().st_size for path in case.written.rglob("*") if path.is_file())
        line |= {"planned, bytes": plan["bytes"], "written, bytes": size}
        line["bytes, planned / written"] = f"{plan['bytes'] / size:.4f}"
    return line


def _cores(plan: dict[str, list[Row]]) -> int:
    """Return the cores that the job uses: the most that were measured."""
    return max(int(each["cores"]) for each in plan["times"] if each["measured"])


def _parts(store: str) -> PartStore:
    """Return the parts of a store of either kind."""
    return PartStore(Path(store), open_header(Path(store)))
