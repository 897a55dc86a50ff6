"""The plan of an encode, from an encoded sample: bytes, memory, time, and the time of a search."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.cluster.workers import connect
from mercore.jobs.options import Report
from mercore.jobs.planning.report import times
from mercore.jobs.planning.samples import FirstParts, FirstRows, spread_rows
from mercore.jobs.planning.timing import Spent, Timing, measure, timed
from mercore.jobs.progress import waiting
from mercore.jobs.resources.disk import encoded_bytes
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.encode import EncodeTask, resumed_codes
from mercore.pipeline.encode import EncodePlan, check_every_row, encode_bytes
from mercore.pipeline.encoders import Encoder
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.stores.codes import CodeStore, create_or_resume
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.header import Layout
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.vectors import Vectors, VectorStore, gather, store_of

SECONDS = 0.6  # of the sample
BLOCKS = 64  # the most that are encoded
WRITES = 3
BATCH, NEIGHBOURS, SEARCHED_ROWS = 64, 100, 1 << 18  # of the planned search


@dataclass(frozen=True, kw_only=True)
class EncodedSample:
    """A sample of spread rows, the prepared encoder, and the seconds of preparing it."""

    plan: EncodePlan
    encoder: Encoder
    rows: NDArray[Any]
    model_seconds: float

    @property
    def blocks(self) -> int:
        """Number of blocks of the rows."""
        return -(-len(self.rows) // self.encoder.block_rows)

    def block(self, number: int) -> dict[str, NDArray[Any]]:
        """Return the columns of a block."""
        size = self.encoder.block_rows
        return self.encoder.encode(self.rows[number * size : (number + 1) * size])

    @property
    def rounds(self) -> int:
        """Number of rounds; every core encodes one block per round."""
        return max(1, self.blocks // available_cores())

    def encode(self, rounds: int) -> None:
        """Encode the blocks of a number of rounds."""

        def work(taken: Iterator[int]) -> None:
            for number in taken:
                self.block(number)

        cores = available_cores()
        over_parts(list(range(min(self.blocks, rounds * cores))), cores, work)

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The codes of one part, or of all blocks if they are fewer."""
        count = max(1, min(self.blocks, self.plan.unfitted.part_rows // self.encoder.block_rows))
        made = [self.block(number) for number in range(count)]
        return {name: np.concatenate([columns[name] for columns in made]) for name in made[0]}


def plan(task: EncodeTask, cores: int | None) -> Report:
    """Return the plan of an encode; only temporary files are written."""
    loaded, began = time.process_time(), time.perf_counter()
    task = task.with_choice()
    work, codes, execution = task.plan, task.codes, task.execution
    assert work is not None
    begun = resumed_codes(work, CodeStore.begun(codes))
    with connect(execution) as workers:
        here = workers.threads
    loaded += time.perf_counter() - began  # the job also chooses and connects
    memory = INTERPRETER_BYTES + encode_bytes(work, here)
    if execution.memory is not None and memory > execution.memory:  # measuring would exceed it too
        size = sum(encoded_bytes(work).values())
        return {
            "path": codes,
            "bytes": size,
            "free": location_of(codes).free_bytes(),
            "memory": memory,
            "times": [],
        }
    with threadpool_limits(1), waiting("measuring a sample"):
        sample = _sample(work, begun)
        timing = measure(sample.encode, sample.rounds, SECONDS)
        around, search = _around(sample), _searching(sample)
    parts = work.unfitted.parts - (begun.store.parts_done if begun else 0)
    fixed = loaded + sample.model_seconds + timing.first
    report = _sizes(sample, codes, around)
    report |= {
        "memory": memory,
        "rows": work.vectors.rows,
        "parts": work.unfitted.parts,
        "parts_left": parts,
    }
    report["seconds_before_encoding"] = round(fixed, 2)
    seconds = _seconds(sample, timing, around, parts)
    report["times"] = times(here, cores, lambda count: fixed + seconds(count), timing.slowdown)
    return report | search


def _sample(work: EncodePlan, begun: CodeStore | None) -> EncodedSample:
    """Fit the model, or take that of begun codes, and gather rows."""
    with timed() as spent:
        if begun is not None:
            work.__dict__["model"] = begun.model
        encoder = work.encoder.encoder(work.kernel, work.model)
        encoder.prepare_encoding()
    seconds, vectors = spent.seconds, work.vectors
    if not isinstance(vectors, VectorStore):
        some = FirstRows(vectors, min(vectors.rows, vectors.part_rows))
        with timed() as spent:
            check_every_row(some, work.kernel)
        seconds += spent.seconds * vectors.rows / some.rows
    rows = gather(vectors, spread_rows(vectors, BLOCKS * encoder.block_rows))
    return EncodedSample(plan=work, encoder=encoder, rows=rows, model_seconds=seconds)


def _around(sample: EncodedSample) -> dict[str, Any]:
    """Return what it takes to read and to write a part, and the bytes of codes per row."""
    vectors, work = sample.plan.vectors, sample.plan
    reads = [
        _read(vectors, part)
        for part in np.unique(np.linspace(0, vectors.parts - 1, 5).astype(int)).tolist()
    ]
    columns = sample.columns
    rows = len(next(iter(columns.values())))
    with TemporaryDirectory(prefix="mercore-plan-") as folder:
        layout = Layout(
            rows=WRITES * rows,
            part_rows=rows,
            columns=work.unfitted.columns,
            model=work.layout.model,
        )
        store = create_or_resume(
            Path(folder) / "codes", work.spec, layout, work.model, source_path=Path(folder)
        ).store
        writes, receipts = [], []
        for part in range(WRITES):
            with timed() as spent:
                receipts.append(store.write_part(part, columns))
            writes.append(spent)
    sizes = {name: chunk["bytes"] / rows for name, chunk in receipts[0].chunks.items()}
    return {"read": _median(reads), "write": _median(writes), "row_bytes": sizes}


def _median(samples: list[Spent]) -> Spent:
    """Return the sample that took the median of the seconds: disks have slow moments."""
    return sorted(samples, key=lambda spent: spent.seconds)[len(samples) // 2]


def _read(vectors: Vectors, part: int) -> Spent:
    """Return what it takes to read a part from the disk."""
    stored = store_of(vectors)
    if stored is not None:
        forget(chunk_files(stored.store, [part]))
    with timed() as spent:
        vectors.read_part(part)
    return spent


def _seconds(
    sample: EncodedSample, timing: Timing, around: dict[str, Any], parts: int
) -> Callable[[int], float]:
    """Return a function from the number of cores to the seconds of encoding ``parts`` parts.

    A worker computes or waits for the disk; the disk serves one worker at a time.
    """
    work = sample.plan
    rows = min(work.unfitted.part_rows, work.vectors.rows)
    aligned = work.unfitted.part_rows % work.vectors.part_rows == 0
    reads = max(1.0, rows / work.vectors.part_rows + (0.0 if aligned else 0.5))
    block = timing.of(sample.rounds) / sample.rounds  # the seconds of a block on one core
    encoding = block * rows / sample.encoder.block_rows
    spent = reads * around["read"].seconds + around["write"].seconds
    computing = reads * around["read"].processor + around["write"].processor
    disk = max(0.0, spent - computing)
    whole = parts * work.vectors.rows / (rows * work.unfitted.parts)  # the last part may be small

    def seconds(cores: int) -> float:
        busy = min(float(cores), max(1.0, whole))
        return float(whole * max((encoding + spent) / busy, disk))

    return seconds


def _sizes(sample: EncodedSample, codes: str, around: dict[str, Any]) -> Report:
    """Return the bytes of the codes on disk, and the free bytes."""
    sizes, layout, location = encoded_bytes(sample.plan), sample.plan.unfitted, location_of(codes)
    for fields in layout.columns:
        if fields["compressor"] != "none":
            sizes[fields["name"]] = int(
                around["row_bytes"][fields["name"]] * layout.parts * layout.part_rows
            )
    return {
        "path": codes,
        "bytes": sum(sizes.values()),
        "bytes_of": sizes,
        "bytes_there": location.stored_bytes(),
        "free": location.free_bytes(),
    }


def _searching(sample: EncodedSample) -> Report:
    """Return the seconds per query of searching the codes, measured on those of the sample."""
    work, threads = sample.plan, available_cores()
    rows = min(work.vectors.rows, SEARCHED_ROWS)  # sample codes, repeated
    part_rows = max(1, rows // 16)
    columns = {
        name: np.resize(values, (rows, *values.shape[1:]))
        for name, values in sample.columns.items()
    }
    with TemporaryDirectory(prefix="mercore-plan-") as folder:
        layout = Layout(
            rows=rows, part_rows=part_rows, columns=work.unfitted.columns, model=work.layout.model
        )
        store = create_or_resume(
            Path(folder) / "codes", work.spec, layout, work.model, source_path=Path(folder)
        )
        for part in range(store.parts):
            start, stop = store.store.bounds(part)
            store.store.write_part(
                part, {name: values[start:stop] for name, values in columns.items()}
            )
        queries = sample.rows[:BATCH]
        timing = measure(
            lambda parts: scan_codes(
                OpenCodes(FirstParts(store, parts), sample.encoder),
                queries,
                min(NEIGHBOURS, rows),
                threads=1,
            ),
            store.parts,
            SECONDS / 2,
        )
    parts = -(-work.vectors.rows // part_rows)
    return {
        "search": {
            "k": min(NEIGHBOURS, rows),
            "batch": len(queries),
            "threads": threads,
            "seconds_a_query": timing.of(parts, threads) / len(queries),
        }
    }
