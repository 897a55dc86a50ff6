"""The plan of an ingest, from sample rows that are ingested into a temporary folder."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mercore.jobs.options import Report
from mercore.jobs.planning.report import disk_report, times
from mercore.jobs.planning.timing import measure
from mercore.jobs.progress import waiting
from mercore.jobs.resources.disk import ingested_bytes
from mercore.jobs.resources.limits import INTERPRETER_BYTES, ingest_bytes
from mercore.jobs.verbs.ingest import IngestTask
from mercore.pipeline.ingest import Drop, ingest
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import InputError
from mercore.stores.formats.chained import ChainedSource
from mercore.stores.formats.source import RowRange, Source
from mercore.stores.formats.streams import is_open_ended
from mercore.stores.vector_writer import VectorWriter, chunk_rows

SECONDS = 0.6  # of the sample
PIECES = 8  # of the source, from which samples are taken


def sample_of(source: Source, rows: int) -> Source:
    """Return about ``rows`` rows of a source: runs that are spread over it."""
    n = source.shape[0]
    each = max(1, rows // PIECES)
    starts = np.linspace(0, max(0, n - each), max(1, min(PIECES, n // each))).astype(int).tolist()
    return ChainedSource([RowRange(source, at, min(at + each, n)) for at in starts])


def plan(task: IngestTask, cores: int | None) -> Report:
    """Return the plan of an ingest; only temporary files are written."""
    if is_open_ended(task.source):
        raise InputError(
            f"{task.source.name}: a stream is read forward once, so no sample of it can be taken. "
            "Fix: decompress or save it, and name the file."
        )
    loaded = time.process_time()
    rows, store, options = task.source, task.target, task.options
    with waiting("measuring a sample"), TemporaryDirectory(prefix="mercore-plan-") as folder:
        run, seen = _runs(rows, Path(folder), options.compressor, drop=options.drop)
        chunk = min(rows.shape[0], chunk_rows(rows.shape[1], rows.dtype))
        timing = measure(run, max(1, rows.shape[0] // chunk), SECONDS)
    kept = int(rows.shape[0] * (1 - seen["dropped"]))
    sizes = ingested_bytes(rows, max(1, kept), options.compressor)
    if options.compressor != "none":
        sizes["vectors"] = int(seen["row_bytes"] * kept)
    seconds = loaded + timing.first + timing.of(max(1, rows.shape[0] // chunk))
    return disk_report(store, sizes) | {
        "memory": INTERPRETER_BYTES + ingest_bytes(rows),
        "rows": kept,
        "times": times(1, 1, lambda _: seconds, timing.slowdown),
    }


def _runs(
    source: Source, folder: Path, compressor: str, *, drop: Drop
) -> tuple[Callable[[int], None], dict[str, float]]:
    """Return a function that ingests chunks, and the figures that it updates."""
    chunk = chunk_rows(source.shape[1], source.dtype)
    seen = {"dropped": 0.0, "row_bytes": 0.0}
    turn = iter(range(1 << 30))

    def run(chunks: int) -> None:
        rows = sample_of(source, chunks * chunk)
        target = folder / str(next(turn))
        with (
            VectorWriter(
                target, dims=rows.shape[1], dtype=rows.dtype, compressor=compressor
            ) as writer,
            closing(DistinctCounter(folder)) as counter,
        ):
            made = ingest(rows, writer, counter, drop=drop)
        seen["dropped"] = made.spec.dropped_rows / rows.shape[0]
        seen["row_bytes"] = made.stored_bytes / made.rows

    return run, seen
