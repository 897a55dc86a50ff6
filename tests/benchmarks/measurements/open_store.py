"""One query at a time: an open store beside the scanner's own loop over the same codes."""

import numpy as np

from mercore.jobs.resources.execution import Execution
from mercore.jobs.session.open_store import OpenStore
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.topk import TopK
from mercore.stores.codes import open_code_store
from mercore.stores.rows import open_rows
from tests.benchmarks.measurements.scan import load
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

K = 100
LOOP, OPEN = "scanner's loop", "open store"


def one_at_a_time(codes: str, queries: str, repeats: int) -> Row:
    """Return milliseconds of one query on one thread, medians over ``repeats`` queries each.

    The loop scans codes in memory with prepared tables. The open store prepares the query as well,
    checks it, and returns hits.
    """
    stored = open_code_store(codes)
    query = open_rows(queries).read(0, 1)
    scanner = encoder_of(stored).scanner(query)
    columns = load(stored, scanner.names)
    execution = Execution(threads=1)
    opened = OpenStore(codes, kernel=KernelOptions(), vectors=None, execution=execution)

    def loop() -> None:
        scanner.scan(columns, 0, TopK(1, K, np.float32))

    tasks = {LOOP: loop, OPEN: lambda: opened.search(query, k=K)}
    times = interleaved(tasks, repeats)
    return {
        "rows": stored.rows,
        **{f"{name}, ms": 1000 * seconds for name, seconds in times.items()},
        "×": times[OPEN] / times[LOOP],
    }
