"""The plan of an ingest, from sample rows that are ingested into a temporary folder."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.options import Report
from mercore.jobs.planning.report import times
from mercore.jobs.planning.timing import measure
from mercore.jobs.progress import waiting
from mercore.jobs.resources.disk import ingested_bytes
from mercore.jobs.resources.limits import INTERPRETER_BYTES, ingest_bytes
from mercore.jobs.verbs.ingest import IngestTask
from mercore.pipeline.ingest import Drop, ingest
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import InputError
from mercore.stores.formats.source import Source
from mercore.stores.formats.streams import is_open_ended
from mercore.stores.location.resolve import location_of
from mercore.stores.vector_writer import VectorWriter, chunk_rows

SECONDS = 0.6  # of the sample
PIECES = 8  # of the source, from which samples are taken


class Pieces:
    """A sample of a source, with the interface of a source: spread runs of ``each`` rows."""

    def __init__(self, source: Source, each: int) -> None:
        self.source, self.name, self.dtype = source, source.name, source.dtype
        self.source_dtype, rows = source.source_dtype, source.shape[0]
        count = max(1, min(PIECES, rows // each))
        self.starts = np.linspace(0, max(0, rows - each), count).astype(np.int64).tolist()
        self.each = min(each, rows)
        self.shape = (self.each * count, source.shape[1])

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), dtype[stop − start, d]."""
        runs = []
        while start < stop:
            piece, at = divmod(start, self.each)
            count = min(self.each - at, stop - start)
            first = self.starts[piece] + at
            runs.append(self.source.read(first, first + count))
            start += count
        return np.concatenate(runs)

    def fingerprint(self) -> str:
        """Return the fingerprint of the whole source."""
        return self.source.fingerprint()


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
    return {
        "path": store,
        "bytes": sum(sizes.values()),
        "bytes_of": sizes,
        "free": location_of(store).free_bytes(),
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
        rows = Pieces(source, max(1, chunks * chunk // min(PIECES, chunks)))
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
