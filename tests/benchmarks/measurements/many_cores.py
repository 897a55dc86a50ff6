"""What many cores would meet: the cost of a part beside its work, and Dask with stand-in work."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import dask
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_limits

from mercore.jobs.cluster.client import SETTINGS
from mercore.jobs.cluster.tasks import DaskWorkers
from mercore.jobs.cluster.workers import Work
from mercore.pipeline.encode import encode_part, encoder_of
from mercore.stores.codes import create_or_resume, open_code_store
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.vectors import open_vector_store
from tests.benchmarks.reporting.tables import Row

PARTS = 3  # of a store, that are encoded
NODES = ((1, 64), (16, 4), (16, 16))
TASKS_PER_THREAD = 4
STAND_INS = (0.0, 1.0)  # seconds of work per part


def part_costs(vectors: Path, codes: Path) -> Row:
    """Return the seconds of the steps of one part, on one thread, with its rows on the disk."""
    held, source = open_code_store(codes), open_vector_store(vectors)
    encoder = encoder_of(held)
    encoder.prepare_encoding()
    taken: dict[str, list[float]] = {
        name: [] for name in ("read from disk", "read", "encode", "write")
    }
    with TemporaryDirectory(dir=codes.parent) as folder, threadpool_limits(1):
        made = create_or_resume(
            Path(folder) / "codes", held.spec, held.store.layout, held.model, source_path=vectors
        )
        for part in range(PARTS):
            start, stop = made.store.bounds(part)
            numbers = range(start // source.part_rows, -(-stop // source.part_rows))

            def read(numbers: range = numbers) -> None:
                for number in numbers:
                    source.read_part(number)

            forget(chunk_files(source.store, numbers))
            taken["read from disk"].append(_seconds(read))
            encode_part(encoder, source, start, stop)
            taken["read"].append(_seconds(read))
            began = time.perf_counter()
            columns = encode_part(encoder, source, start, stop)
            taken["encode"].append(time.perf_counter() - began - taken["read"][-1])
            began = time.perf_counter()
            made.store.write_part(part, columns)
            taken["write"].append(time.perf_counter() - began)
    steps = {name: median(values) for name, values in taken.items()}
    around = steps["read"] + steps["write"]
    return {
        "codes": f"{held.spec.encoder['name']}, {encoder_bytes(codes)} bytes",
        "rows of a part": held.store.layout.part_rows,
        **{f"{name}, s": value for name, value in steps.items()},
        "read and write / encode": around / steps["encode"],
    }


def encoder_bytes(codes: Path) -> int:
    """Return the bytes of codes per row."""
    held = open_code_store(codes)
    return round(sum(held.stored_bytes.values()) / held.rows)


def _work(seconds: float, _part: int) -> int:
    """Stand in for the encoding of a part."""
    time.sleep(seconds)
    return 1


def clusters() -> list[Row]:
    """Return what Dask takes for parts of no work, and of a second, on clusters of many threads.

    The scheduler and the way of submitting are those of an encode, over TCP. All nodes live in
    this process, so they slow the scheduler: real ones would not.
    """
    return [
        _simulated(nodes, threads, seconds) for nodes, threads in NODES for seconds in STAND_INS
    ]


def _simulated(nodes: int, threads: int, seconds: float) -> Row:
    parts = TASKS_PER_THREAD * nodes * threads
    work = Work("codes", partial(float, seconds))
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=nodes,
            threads_per_worker=threads,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        sent = _loopback_bytes()
        taken = _seconds(
            lambda: DaskWorkers(client).run(work, _work, range(parts), lambda done: None)
        )
        moved = _loopback_bytes() - sent
    ideal = TASKS_PER_THREAD * seconds
    return {
        "nodes × threads": f"{nodes} × {threads}",
        "parts": parts,
        "work per part, s": seconds,
        "seconds": taken,
        "ideal / taken": ideal / taken if seconds else None,
        "parts per second": parts / taken,
        "kB per part": moved / parts / 1e3,
    }


def _loopback_bytes() -> int:
    """Return the bytes that the loopback device of this machine has sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    (line,) = (each for each in lines if each.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
