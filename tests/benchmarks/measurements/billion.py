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
from mercore.stores.rows import open_rows
from tests.benchmarks.measurements.exact import spread_queries
from tests.benchmarks.measurements.repeated import repeated_codes, repeated_vectors, whole_rows
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
    words = ("encode", vectors, codes, "--kernel", "chi2", "--encoder", *encoder)
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
            words = ("search", codes, queries, "-k", k, *out)
            lines.append(_line(f"search, {count} queries, k = {k}", *_cold_and_warm(files, words)))
    return lines


def large(vectors: Path, codes: Path, query_file: str, folder: Path, rows: int) -> list[Row]:
    """Return what commands take on ``rows`` repeated vectors and the codes that prove."""
    held = open_code_store(codes)
    part_rows = held.store.layout.part_rows
    rows = -(-rows // part_rows) * part_rows
    large_vectors = repeated_vectors(vectors, folder / "large-vectors", rows, whole_rows(held))
    repeated_codes(codes, folder / "large-codes", rows, vectors=large_vectors)
    queries, more = folder / "large-queries.npy", folder / "more.npy"
    np.save(queries, spread_queries(query_file, 10))
    np.save(more, open_rows(query_file).read(0, 10_000))
    store, made = folder / "large-vectors", folder / "large-codes"
    encode = ("encode", store, made, "--kernel", "chi2", "--encoder", "kpca-pq")
    out = ("--out", folder / "large.npz", "--force", "--memory", MEMORY)
    steps: dict[str, Sequence[object]] = {
        "info of the vectors": ("info", store),
        "info of the codes": ("info", made),
        "check of the codes": ("check", made),
        "plan of the exact search": ("plan", "search", made, queries, "-k", 10, "--exact", *out),
        "exact search, 10 queries, k = 10": ("search", made, queries, "-k", 10, "--exact", *out),
        "encode again: all is done": (*encode, "--part-rows", part_rows),
        "append 10,000 rows": ("append", more, store),
        "encode the new rows": (*encode, "--part-rows", part_rows),
    }
    lines = []
    for name, words in steps.items():
        ran = measured(*words, seconds=HOUR)
        lines.append({"command": name, "seconds": ran.seconds, "peak, MB": ran.peak / 1e6})
    return lines


def far_ids(codes: Path, query_file: str, folder: Path, rows: int) -> list[Row]:
    """Search repeated codes of ``rows`` rows; count hits that are not those of the first period."""
    held, found = open_code_store(codes), folder / "far.npz"
    period, copies = whole_rows(held), 4
    far, near = folder / "far", folder / "near"
    large = repeated_codes(codes, far, rows)
    repeated_codes(codes, near, period)
    queries = folder / "far-queries.npy"
    np.save(queries, spread_queries(query_file, 32))
    times = large.rows // period + 1
    k = copies * times
    seconds = {}
    hits = {}
    for store, width in ((near, copies), (far, k)):
        out = ("-k", width, "--out", found, "--force", "--memory", MEMORY)
        seconds[store] = measured("search", store, queries, *out, seconds=HOUR).seconds
        with np.load(found) as arrays:
            hits[store] = arrays["scores"], arrays["ids"]
    wrong = 0
    for scores, ids, theirs in zip(*hits[near], hits[far][1], strict=True):
        every = (ids[:, None] + period * np.arange(times)).ravel()
        order = np.lexsort((every, -np.repeat(scores, times)))
        expected = every[order][every[order] < large.rows]
        sure = np.repeat(scores, times)[order][every[order] < large.rows] > scores[-1]
        wrong += int((expected[sure] != theirs[: sure.sum()]).sum())
    ids = hits[far][1]
    return [
        {
            "rows": large.rows,
            "parts": large.parts,
            "hits": ids.size,
            "hits beyond 2³¹": int((ids >= 1 << 31).sum()),
            "wrong": wrong,
            "seconds": seconds[far],
        }
    ]


def repeated_searches(codes: Path, query_file: str, folder: Path, rows: int) -> list[Row]:
    """Return what searches of codes take that are repeated to ``rows`` rows."""
    store = folder / "repeated"
    made = repeated_codes(codes, store, rows)
    lines = []
    for count in BATCHES[:2]:
        queries = folder / f"queries-{count}.npy"
        np.save(queries, spread_queries(query_file, count))
        out = ("--out", folder / "hits.npz", "--force", "--memory", MEMORY)
        ran = min(
            (measured("search", store, queries, "-k", 10, *out, seconds=HOUR) for _ in range(2)),
            key=lambda each: each.seconds,
        )
        lines.append(
            {
                "queries": count,
                "bytes": sum(made.stored_bytes.values()),
                "parts": made.parts,
                "seconds": ran.seconds,
                "peak, MB": ran.peak / 1e6,
            }
        )
    return lines


def exact(vectors: Path, codes: Path, query_file: str, folder: Path) -> list[Row]:
    """Return what an exact search takes under 1 GB, beside scoring every row."""
    queries = folder / "exact-queries.npy"
    np.save(queries, spread_queries(query_file, 100))
    out = ("-k", 10, "--exact", "--out", folder / "exact.npz", "--force", "--memory", MEMORY)
    files = [*_files(vectors), *_files(codes)]
    every = ("search", vectors, queries, "--kernel", "chi2", *out)
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
