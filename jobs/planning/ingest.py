"""What ingesting takes, from rows that are ingested into a folder that is removed again."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.planning.report import Report, process_seconds, times
from mercore.jobs.planning.timing import measure
from mercore.jobs.progress import waiting
from mercore.jobs.resources.disk import ingested_bytes
from mercore.jobs.resources.limits import INTERPRETER_BYTES, ingest_bytes
from mercore.jobs.verbs.ingest import IngestTask
from mercore.pipeline.ingest import ingest
from mercore.stores.distinct import DistinctCounter
from mercore.stores.formats.source import Source
from mercore.stores.location.resolve import location_of
from mercore.stores.vector_writer import VectorWriter, chunk_rows

SECONDS = 0.6  # that a repeat of a measurement takes
PIECES = 8  # of the source that samples come from


class Pieces:
    """Some rows from all over a source, seen as a source: runs of them, so many each."""

    def __init__(self, source: Source, each: int) -> None:
        self.source, self.name, self.dtype = source, source.name, source.dtype
        rows = source.shape[0]
        count = max(1, min(PIECES, rows // each))
        self.starts = np.linspace(0, max(0, rows - each), count).astype(np.int64).tolist()
        self.each = min(each, rows)
        self.shape = (self.each * count, source.shape[1])

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), dtype[stop − start, d]."""
        found = []
        while start < stop:
            piece, at = divmod(start, self.each)
            count = min(self.each - at, stop - start)
            first = self.starts[piece] + at
            found.append(self.source.read(first, first + count))
            start += count
        return np.concatenate(found)

    def fingerprint(self) -> str:
        """Return the source's own."""
        return self.source.fingerprint()


def plan(task: IngestTask, cores: int | None) -> Report:
    """Return what ingesting would take; nothing is written but temporary files."""
    loaded = process_seconds()
    rows, store, options = task.source, task.target, task.options
    with waiting("measuring a sample"), TemporaryDirectory(prefix="mercore-plan-") as folder:
        run, seen = _runs(rows, Path(folder), options.compressor, drop=options.drop_zero_rows)
        chunk = min(rows.shape[0], chunk_rows(rows.shape[1], rows.dtype))
        pace = measure({"one": run}, max(1, rows.shape[0] // chunk), SECONDS)["one"]
    kept = int(rows.shape[0] * (1 - seen["dropped"]))
    found = ingested_bytes(rows, max(1, kept), options.compressor)
    if options.compressor != "none":
        found["vectors"] = int(seen["row_bytes"] * kept)
    found["total"] = sum(size for name, size in found.items() if name != "total")
    seconds = loaded + pace.first + pace.of(max(1, rows.shape[0] // chunk))
    return {
        "path": store,
        "bytes": found["total"],
        "bytes_of": {name: size for name, size in found.items() if name != "total"},
        "free": location_of(store).free_bytes(),
        "memory": INTERPRETER_BYTES + ingest_bytes(rows),
        "rows": kept,
        "times": times(1, 1, lambda _: {"seconds": seconds}),
    }


def _runs(
    source: Source, folder: Path, compressor: str, *, drop: bool
) -> tuple[Callable[[int], None], dict[str, float]]:
    """Return what ingests so many chunks of rows, and where it notes the share of rows dropped and bytes a row."""
    chunk = chunk_rows(source.shape[1], source.dtype)
    seen = {"dropped": 0.0, "row_bytes": 0.0}
    turn = iter(range(1 << 30))

    def run(chunks: int) -> None:
        rows = Pieces(source, max(1, chunks * chunk // min(PIECES, chunks)))
        target = folder / str(next(turn))
        with (
            VectorWriter(target, dims=rows.shape[1], dtype=rows.dtype, compressor=compressor) as writer,
            closing(DistinctCounter(folder)) as counter,
        ):
            made = ingest(rows, writer, counter, drop_zero_rows=drop)
        seen["dropped"] = made.spec.dropped_rows / rows.shape[0]
        seen["row_bytes"] = sum(made.store.stored_bytes.values()) / made.rows

    return run, seen
