"""Stores of a billion rows, and what their commands take."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mercore.jobs.resources.execution import available_cores
from mercore.stores.codes import CodeStore, create_or_resume, open_code_store
from mercore.stores.part_store.header import open_header
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.part_store.part_store import PartStore
from tests.benchmarks.measurements.exact import spread_queries
from tests.benchmarks.reporting.tables import Row
from tests.support.busy import busy_processes
from tests.support.peaks import measured

PART_ROWS, MEMORY = 1 << 20, "1GB"
BATCHES = (1, 32, 128)
HOUR = 3600.0
READ_BYTES = 1 << 23


def encoded(vectors: Path, codes: Path, encoder: Sequence[object], others: int = 0) -> Row:
    """Encode a vector store by the command; return its time beside the planned one.

    ``others`` is the number of other processes that are busy meanwhile.
    """
    words = (f"encode {vectors} {codes} --kernel chi2 --encoder", *encoder)
    with busy_processes(others):
        plan = json.loads(measured("plan", *words, "--json", seconds=HOUR).outcome.out)
        (planned,) = (each for each in plan["times"] if each["cores"] == available_cores())
        ran = measured(*words, seconds=HOUR)
    seconds = planned.get("seconds_busy", planned["seconds"])
    encoding = ran.seconds - plan["seconds_before_encoding"]
    return {
        "encoder": " ".join(map(str, encoder)),
        "rows": plan["rows"],
        "other busy processes": others,
        "seconds": ran.seconds,
        "planned / taken": seconds / ran.seconds,
        "µs per row, without learning": encoding / plan["rows"] * 1e6,
        "peak, MB": ran.peak / 1e6,
    }


def tiled(codes: Path, vectors: Path, out: Path, rows: int) -> CodeStore:
    """Write a store of ``rows`` codes: each part holds codes of ``codes``, drawn anew."""
    source = open_code_store(codes)
    layout = replace(source.store.layout, rows=rows, part_rows=PART_ROWS)
    made = create_or_resume(out, source.spec, layout, source.model, source_path=str(vectors))
    receipts = (source.store.receipt(part) for part in range(source.parts))
    columns = [
        {
            name: np.array(source.store.read_chunk(receipt, name))
            for name in source.store.layout.column_names
        }
        for receipt in receipts
        if receipt is not None
    ]
    held = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    rng = np.random.default_rng(0)
    for part in range(made.parts):
        start, stop = made.store.bounds(part)
        drawn = rng.integers(0, source.rows, stop - start)
        made.store.write_part(part, {name: values[drawn] for name, values in held.items()})
    return made


def searches(codes: Path, query_file: str, folder: Path) -> list[Row]:
    """Return what commands on the codes take, from the disk and from the system's memory."""
    files = _files(codes)
    lines: list[Row] = [_line("reading the files, and no more", *_bare(files))]
    lines += [_line(verb, *_cold_and_warm(files, (verb, codes))) for verb in ("info", "check")]
    for count in BATCHES:
        queries = folder / f"queries-{count}.npy"
        np.save(queries, spread_queries(query_file, count))
        for k in (10, 1000) if count == BATCHES[1] else (10,):
            out = ("--out", folder / "hits.npz", "--force", "--memory", MEMORY)
            words = (f"search {codes} {queries} -k {k}", *out)
            lines.append(_line(f"search, {count} queries, k = {k}", *_cold_and_warm(files, words)))
    return lines


def exact(vectors: Path, codes: Path, query_file: str, folder: Path) -> list[Row]:
    """Return what an exact search takes under 1 GB, beside scoring every row."""
    queries = folder / "exact-queries.npy"
    np.save(queries, spread_queries(query_file, 100))
    out = ("-k", 10, "--exact", "--out", folder / "exact.npz", "--force", "--memory", MEMORY)
    files = [*_files(vectors), *_files(codes)]
    every = (f"search {vectors} {queries} --kernel chi2", *out)
    return [
        _line("by codes that prove", *_cold_and_warm(files, ("search", codes, queries, *out))),
        _line("every row scored", *_cold_and_warm(files, every)),
    ]


def _files(path: Path) -> list[Path]:
    """Return the files of all parts of a store of either kind."""
    store = PartStore(path, open_header(path))
    return chunk_files(store, range(store.layout.parts))


def _line(command: str, cold: float, warm: float, peak: int | None = None) -> Row:
    found: Row = {"command": command, "seconds, from disk": cold, "seconds, in memory": warm}
    return found | {"peak, MB": None if peak is None else peak / 1e6}


def _cold_and_warm(files: Sequence[Path], words: Sequence[object]) -> tuple[float, float, int]:
    """Run a command twice; return its seconds with the files on disk and in memory, and its peak."""
    forget(files)
    cold = measured(*words, seconds=HOUR)
    warm = min(measured(*words, seconds=HOUR).seconds for _ in range(2))
    return cold.seconds, warm, cold.peak


def _bare(files: Sequence[Path]) -> tuple[float, float]:
    """Return the seconds of reading files one after another, from disk and from memory."""
    buffer = bytearray(READ_BYTES)

    def read() -> float:
        began = time.perf_counter()
        for path in files:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        return time.perf_counter() - began

    forget(files)
    return read(), read()
