"""Exact search by bounds beside the exhaustive search by the true kernel, and verifying beside
both."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs import api
from mercore.pipeline.arrays import Float32
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.kernels.panels import Columns
from mercore.pipeline.search.answers import ExactAnswers
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.exhaustive import search_vectors
from mercore.pipeline.search.scan import OpenCodes, read_parts
from mercore.pipeline.search.verify import verify
from mercore.stores.codes import open_code_store
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.vector_views import store_of
from mercore.stores.vectors import Vectors
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

BATCH, NEIGHBOURS, REPEATS = 100, (1, 10), 9
FAINT = np.float32(1e-30)
FLAT = ("faiss IndexFlatL2, in memory", "faiss IndexFlatL2, matrix products")
Queries = NDArray[Any]


class Bounded(NamedTuple):
    """An exact search by bounds, and the bound that a sample chose."""

    search: ExactSearch
    bound: str


def bounded(vectors: str, kernel: Mapping[str, Any], path: Path, threads: int) -> Bounded:
    """Make bounds of a vector store at ``path``; return the search with them.

    Parameters
    ----------
    kernel : the options of ``api.encode`` that name one
    """
    return _made(vectors, "bound", kernel, path, threads)


def _made(
    vectors: str, encoder: str, kernel: Mapping[str, Any], path: Path, threads: int
) -> Bounded:
    """Make codes or bounds at ``path``; return the search with them."""
    forced = encoder == "bound"
    made = api.encode(vectors, str(path), encoder=encoder, force=forced, **kernel)
    codes, rows = open_code_store(path), open_vectors(vectors)
    scorer = ExactScorer(
        vectors=rows, kernel=kernel_from_spec(codes.spec.kernel).ranking, threads=threads
    )
    search = ExactSearch(scorer=scorer, bounds=OpenCodes(codes, encoder_of(codes)))
    bound = f"{codes.spec.encoder['name']}, {made['bytes_per_row']:.0f} bytes"
    return Bounded(search, bound)


def proving(
    vectors: str, kernel: Mapping[str, Any], folder: Path, encoders: Mapping[str, str]
) -> dict[str, Bounded]:
    """Make codes that prove by several encoders; return the searches with them, on one thread."""
    return {
        name: _made(vectors, text, kernel, folder / f"proving-{number}", 1)
        for number, (name, text) in enumerate(encoders.items())
    }


def beside(
    searches: Mapping[str, Bounded],
    queries: Queries,
    k: int,
    *,
    alone: bool = True,
    streamed: bool = False,
    repeats: int = REPEATS,
) -> list[Row]:
    """Return, for each search, the share of rows scored, and nanoseconds per row and query.

    Medians of interleaved repeats: for all queries together, for three ``alone``, and for all
    together ``streamed`` from the disk. All searches must find the same ids. Under ``euclidean``
    the last rows are faiss' flat index as it is, and with matrix products for any batch.
    """
    first = next(iter(searches.values())).search
    rows, kernel = first.scorer.vectors, first.scorer.kernel
    tasks: dict[str, Callable[[], object]] = {}
    found, single = {}, queries[:: max(1, len(queries) // 3)][:3]
    with threadpool_limits(1):
        for name, (search, _) in searches.items():
            found[name] = search.prove(queries, k)
            tasks[name] = partial(search.prove, queries, k)
            if alone:
                tasks[f"{name}, alone"] = partial(_one_by_one, search, single, k)
            if streamed:
                tasks[f"{name}, from disk"] = partial(_from_disk, search, queries, k)
        tasks["every row"] = partial(search_vectors, rows, kernel, queries, k, threads=1)
        if kernel.name == "euclidean":
            tasks |= _flat_index(rows, queries, k)
        seconds = interleaved(tasks, repeats)
    assert all((one.ids == found[next(iter(found))].ids).all() for one in found.values())
    pairs = rows.rows * len(queries)
    lines: list[Row] = [
        {
            "codes": name,
            "bytes per row": search.bound.rsplit(", ", maxsplit=1)[1].removesuffix(" bytes"),
            "rows scored, median %": float(np.median(found[name].evaluated) / rows.rows * 100),
            "ns": seconds[name] / pairs * 1e9,
            "× every row": seconds["every row"] / seconds[name],
        }
        | (
            {"one query, ns": seconds[f"{name}, alone"] / rows.rows / len(single) * 1e9}
            if alone
            else {}
        )
        | ({"from disk, ns": seconds[f"{name}, from disk"] / pairs * 1e9} if streamed else {})
        for name, search in searches.items()
    ]
    for name in filter(seconds.__contains__, FLAT):
        time = seconds[name]
        speed = {"ns": time / pairs * 1e9, "× every row": seconds["every row"] / time}
        lines.append({"codes": name, **speed})
    return lines


def _one_by_one(search: ExactSearch, queries: Queries, k: int) -> None:
    for row in range(len(queries)):
        search.prove(queries[row : row + 1], k)


def _from_disk(search: ExactSearch, queries: Queries, k: int) -> None:
    """Search after the files of both stores were dropped from the memory of the system."""
    stored = store_of(search.scorer.vectors)
    assert search.bounds is not None
    assert stored is not None
    for store in (search.bounds.store.store, stored.store):
        forget(chunk_files(store, range(store.layout.parts)))
    search.prove(queries, k)


def _flat_index(rows: Vectors, queries: Queries, k: int) -> dict[str, Callable[[], object]]:
    """Return searches of faiss' flat index: as it is, and by matrix products for any batch."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(rows.dims)
    for part in range(rows.parts):
        index.add(rows.read_part(part).astype(np.float32))
    asked = np.ascontiguousarray(queries, np.float32)
    usual = faiss.cvar.distance_compute_blas_threshold

    def search(least: int) -> None:
        faiss.cvar.distance_compute_blas_threshold = least
        index.search(asked, k)

    return {name: partial(search, least) for name, least in zip(FLAT, (usual, 1), strict=True)}


def spread_queries(queries: str, count: int, shift: int = 0) -> Queries:
    """Return at most ``count`` queries, evenly drawn from a file, or the rows ``shift`` behind."""
    source = open_rows(queries)
    nq = source.shape[0]
    spread = np.linspace(0, nq - 1, min(count, nq)).astype(int)
    chosen: Queries = source.read(0, nq)[(spread + shift) % nq]
    return chosen


def work(search: ExactSearch, queries: Queries, k: int) -> Row:
    """Return the shares of rows scored, in percent, and how many ids differ from the exhaustive
    search's."""
    with threadpool_limits(1):
        proved = search.prove(queries, k)
        exhaustive = ExactSearch(scorer=search.scorer).prove(queries, k)
    share = proved.evaluated / search.scorer.vectors.rows * 100
    return {
        "median %": float(np.median(share)),
        "90 % quantile, %": float(np.quantile(share, 0.9)),
        "maximum %": float(share.max()),
        "queries by every row": int((proved.evaluated == search.scorer.vectors.rows).sum()),
        "wrong ids": int((proved.ids != exhaustive.ids).sum()),
    }


def times(search: ExactSearch, queries: Queries, k: int) -> Row:
    """Return nanoseconds per row and query, medians of interleaved repeats on one thread."""
    scorer, assured, bounds = search.scorer, search.prove(queries, k), search.bounds
    assert bounds is not None
    held = replace(search, bounds=OpenCodes(bounds.store, bounds.encoder, PartCache(sys.maxsize)))
    tasks: dict[str, Callable[[], object]] = {
        "brute": lambda: search_vectors(
            scorer.vectors, scorer.kernel, queries, k, threads=scorer.threads
        ),
        "dense": lambda: search_vectors(
            scorer.vectors, dense(scorer.kernel), queries, k, threads=scorer.threads
        ),
        "exact": lambda: search.prove(queries, k),
        "held": lambda: held.prove(queries, k),
        "verify": lambda: _assert_proved(search, queries, assured, said=True),
        "verify ids": lambda: _assert_proved(search, queries, assured, said=False),
        "read": lambda: _read(bounds, scorer.vectors),
        "embed": lambda: bounds.encoder.scanner(queries),
    }
    if not _is_sparse(scorer.vectors):
        del tasks["dense"]
    with threadpool_limits(1):
        seconds = interleaved(tasks, REPEATS)
    ns = {name: time / scorer.vectors.rows / len(queries) * 1e9 for name, time in seconds.items()}
    return {
        "every row, ns": ns["brute"],
        "exact, ns": ns["exact"],
        "× every row": ns["brute"] / ns["exact"],
        "exact, bounds in memory, ns": ns["held"],
        "× every row, bounds in memory": ns["brute"] / ns["held"],
        "every row with its zeros, ns": ns.get("dense"),
        "× every row with its zeros": ns["dense"] / ns["exact"] if "dense" in ns else None,
        "reading both stores, ns": ns["read"],
        "embedding the queries, ns": ns["embed"],
        "verify / exact": ns["verify"] / ns["exact"],
        "verify of ids alone / exact": ns["verify ids"] / ns["exact"],
    }


def dense(kernel: Kernel) -> Kernel:
    """Return a kernel whose blocks pass over no zero: each counts as a number of no account."""

    class Dense(type(kernel)):  # type: ignore[misc]
        def block(self, X: Float32, YT: Columns) -> Float32:
            block: Float32 = super().block(np.maximum(X, FAINT), YT)
            return block

    made: Kernel = Dense.__new__(Dense)
    made.__dict__.update(kernel.__dict__)
    return made


def _is_sparse(vectors: Vectors) -> bool:
    """Return whether most values of the first part are zero."""
    return bool((vectors.read_part(0) == 0).mean() > 0.5)


def _assert_proved(
    search: ExactSearch, queries: Queries, assured: ExactAnswers, *, said: bool
) -> None:
    """Verify an exact answer, by its scores too if they are said."""
    scores = assured.scores if said else None
    assert (verify(search, queries, assured.ids, scores).ranks < 0).all()


def _read(bounds: OpenCodes, vectors: Vectors) -> None:
    """Read every byte of both stores, checked, on one thread."""
    for _ in read_parts(
        bounds, bounds.store.store.layout.column_names, iter(range(bounds.store.parts))
    ):
        pass
    for part in range(vectors.parts):
        vectors.read_part(part)
