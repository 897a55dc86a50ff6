"""The plan of an encode: bytes and memory, and the time of one encoded sample."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.cluster.connect import connect
from mercore.jobs.options import Report
from mercore.jobs.planning.report import disk_report, times
from mercore.jobs.planning.samples import first_rows, spread_rows
from mercore.jobs.planning.timing import measure, timed
from mercore.jobs.progress import waiting
from mercore.jobs.resources.disk import encoded_bytes
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.encode import EncodeTask, resumed_codes
from mercore.pipeline.encode import EncodePlan, check_every_row, encode_bytes
from mercore.pipeline.encoders import Encoder
from mercore.pipeline.parallel import over_parts
from mercore.stores.codes import CodeStore
from mercore.stores.part_store.header import Layout
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.vector_views import store_of
from mercore.stores.vectors import Vectors, VectorStore, gather

SECONDS = 0.6  # of the sample
BLOCKS = 64  # the most that are encoded
READS = 5  # parts of the vectors
Blocks = list[NDArray[Any]]


class EncodeTimes(NamedTuple):
    """The seconds of an encoded sample on one core, and the bytes per row of its codes by column.

    ``before`` are those before the first row, ``row`` those per row, ``read`` and ``write`` those
    per part of the vectors and of the codes. ``slowdown`` is the factor of other processes.
    """

    before: float
    row: float
    read: float
    write: float
    row_bytes: dict[str, float]
    slowdown: float


def plan(task: EncodeTask, cores: int | None) -> Report:
    """Return the plan of an encode; only temporary files are written."""
    loaded, began = time.process_time(), time.perf_counter()
    task = task.with_choice()
    work, codes, limit = task.plan, task.codes, task.execution.memory
    assert work is not None
    begun = resumed_codes(work, CodeStore.begun(codes))
    with connect(task.execution) as workers:
        here = workers.threads
    loaded += time.perf_counter() - began  # the job also chooses and connects
    memory = INTERPRETER_BYTES + encode_bytes(work, here)
    if limit is not None and memory > limit:  # measuring would exceed it too
        return disk_report(codes, encoded_bytes(work)) | {"memory": memory, "times": []}
    with threadpool_limits(1), waiting("measuring a sample"):
        sample = _measured(work, begun)
    sizes, layout, rows = encoded_bytes(work), work.unfitted, work.vectors.rows
    for fields in layout.columns:
        if fields["compressor"] != "none":
            row_bytes = sample.row_bytes[fields["name"]]
            sizes[fields["name"]] = int(row_bytes * layout.parts * layout.part_rows)
    left = layout.parts - (begun.store.parts_done if begun else 0)
    around = work.vectors.parts * sample.read + layout.parts * sample.write
    fixed, on_one = loaded + sample.before, left / layout.parts * (rows * sample.row + around)

    def seconds(count: int) -> float:
        return fixed + on_one / min(count, max(1, left))

    return disk_report(codes, sizes) | {
        "memory": memory,
        "rows": rows,
        "parts": layout.parts,
        "parts_left": left,
        "seconds_before_encoding": round(fixed, 3),
        "times": times(here, cores, seconds, sample.slowdown),
    }


def _measured(work: EncodePlan, begun: CodeStore | None) -> EncodeTimes:
    """Fit the model, and encode blocks of rows that are spread over the vectors."""
    encoder, before = _prepared(work, begun)
    rows = gather(work.vectors, spread_rows(work.vectors, BLOCKS * encoder.block_rows))
    blocks = np.split(rows, range(encoder.block_rows, len(rows), encoder.block_rows))
    rounds = max(1, len(blocks) // available_cores())
    timing = measure(partial(_encode, encoder, blocks), rounds, SECONDS)
    write, row_bytes = _write(work, encoder, blocks)
    return EncodeTimes(
        before=before + timing.first,
        row=timing.of(rounds) / rounds * len(blocks) / len(rows),  # a core has a block per round
        read=_read(work.vectors),
        write=write,
        row_bytes=row_bytes,
        slowdown=timing.slowdown,
    )


def _prepared(work: EncodePlan, begun: CodeStore | None) -> tuple[Encoder, float]:
    """Return the encoder with its model, fitted or begun, and the seconds until it can encode."""
    with timed() as spent:
        if begun is not None:
            work.__dict__["model"] = begun.model
        encoder = work.encoder.encoder(work.kernel, work.model)
        encoder.prepare_encoding()
    seconds, vectors = spent.seconds, work.vectors
    if not isinstance(vectors, VectorStore):  # the job checks every row of a foreign array
        some = first_rows(vectors, min(vectors.rows, vectors.part_rows))
        with timed() as spent:
            check_every_row(some, work.kernel)
        seconds += spent.seconds * vectors.rows / some.rows
    return encoder, seconds


def _encode(encoder: Encoder, blocks: Blocks, rounds: int) -> None:
    """Encode blocks in a number of rounds; every core encodes one block per round."""

    def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            encoder.encode(blocks[number])

    cores = available_cores()
    over_parts(list(range(min(len(blocks), rounds * cores))), cores, work)


def _read(vectors: Vectors) -> float:
    """Return the seconds of reading a part of the vectors from the disk: the median of some."""
    stored, seconds = store_of(vectors), []
    for part in np.unique(np.linspace(0, vectors.parts - 1, READS).astype(int)).tolist():
        if stored is not None:
            forget(chunk_files(stored.store, [part]))
        with timed() as spent:
            vectors.read_part(part)
        seconds.append(spent.seconds)
    return sorted(seconds)[len(seconds) // 2]


def _write(work: EncodePlan, encoder: Encoder, blocks: Blocks) -> tuple[float, dict[str, float]]:
    """Write a part, or all codes of the sample; return the seconds, and the bytes per row."""
    count = max(1, min(len(blocks), work.unfitted.part_rows // encoder.block_rows))
    made = [encoder.encode(block) for block in blocks[:count]]
    columns = {name: np.concatenate([each[name] for each in made]) for name in made[0]}
    rows = len(next(iter(columns.values())))
    with TemporaryDirectory(prefix="mercore-plan-") as folder:
        layout = Layout(
            rows=rows, part_rows=rows, columns=work.unfitted.columns, model=work.layout.model
        )
        store = CodeStore.create(
            Path(folder) / "codes", work.spec, layout, work.model, source_path=folder
        ).store
        with timed() as spent:
            receipt = store.write_part(0, columns)
    return spent.seconds, {name: chunk["bytes"] / rows for name, chunk in receipt.chunks.items()}
