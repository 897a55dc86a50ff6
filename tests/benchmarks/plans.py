"""What ``mercore plan`` says, beside what the planned command then takes: time, bytes on disk, peak
memory."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from mercore.stores.codes import open_code_store
from mercore.stores.part_store.header import open_header
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.sizes import chunk_files, forget
from tests.benchmarks.tables import Row
from tests.support.peaks import measured

HOURS = 3600.0


class Case(NamedTuple):
    """A command that is planned, then run: what it writes, and the stores whose files are read from
    the disk."""

    name: str
    words: Sequence[object]
    written: Path | None
    read: Sequence[str]


def measure(
    vectors: str, queries: str, folder: Path, more: Mapping[str, str | None], *, only: str = ""
) -> dict[str, list[Row]]:
    """Return a line a job: planned and measured figures, and their ratios.

    Parameters
    ----------
    more : a store of ``bounds`` to search, a ``source`` to ingest
    only : what the jobs' names hold
    """
    lines = []
    for case in _cases(vectors, queries, folder, more):
        if only not in case.name:
            if case.written is not None and case.name.startswith("encode"):
                measured(*case.words, seconds=HOURS)  # searched later
        else:
            lines.append(_line(case))
            click.echo(str(lines[-1]), err=True)
    return {"plans": lines}


def _cases(
    vectors: str, queries: str, folder: Path, more: Mapping[str, str | None]
) -> Iterator[Case]:
    """Yield the jobs, each of which may read what those before it wrote."""
    bounds, source = more.get("bounds"), more.get("source")
    chi2 = ("--kernel", "chi2")
    if source is not None:
        made = folder / "ingested"
        yield Case("ingest", ("ingest", source, made), made, ())
    for encoder in ("aska", "kpca-pq", "kpca-bound"):
        made = folder / encoder
        yield Case(
            f"encode {encoder}",
            ("encode", vectors, made, *chi2, "--encoder", encoder),
            made,
            (vectors,),
        )
    for encoder in ("aska", "kpca-pq"):
        made = folder / encoder
        out = ("--out", folder / "hits.npz")
        yield Case(f"search {encoder}", ("search", made, queries, *out), None, (str(made),))
        reranked = ("--batch", 256, "--rerank", 1000)
        yield Case(
            f"search {encoder}, rerank",
            ("search", made, queries, *reranked, *out),
            None,
            (str(made), vectors),
        )
    yield Case("search vectors", ("search", vectors, queries, *chi2, *out), None, (vectors,))
    exact = ("-k", 10, "--exact", "--out", folder / "exact.npz")
    yield Case(
        "search --exact", ("search", folder / "kpca-bound", queries, *exact), None, (vectors,)
    )
    if bounds is not None:
        source_of = str(open_code_store(Path(bounds)).source_path)
        yield Case(
            "search --exact BOUNDS", ("search", bounds, queries, *exact), None, (bounds, source_of)
        )


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
        "plan, s": planning.seconds,
        "planned, s": time["seconds"],
        "took, s": ran.seconds,
    }
    line["time, planned / taken"] = time["seconds"] / ran.seconds
    line |= {
        "planned, MB": plan["memory"] / 1e6,
        "peak, MB": ran.peak / 1e6,
        "memory": plan["memory"] / ran.peak,
    }
    if case.written is not None:
        size = sum(path.stat().st_size for path in case.written.rglob("*") if path.is_file())
        line |= {"planned, bytes": plan["bytes"], "written": size, "bytes": plan["bytes"] / size}
    else:
        line |= {"planned, bytes": "", "written": "", "bytes": ""}
    return line


def _cores(plan: dict[str, list[Row]]) -> int:
    """Return the cores that the job uses: the most that were measured."""
    return max(int(each["cores"]) for each in plan["times"] if each["measured"])


def _parts(store: str) -> PartStore:
    """Return the parts of a store of either kind."""
    return PartStore(Path(store), open_header(Path(store)))
