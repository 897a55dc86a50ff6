"""The figures of each measurement, and their Markdown."""

import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mercore.jobs import api
from mercore.jobs.encoder_options import spec_of_options
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.verbs.evaluate import EvaluateOptions, open_evaluate, recalls
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.stores.codes import open_code_store
from mercore.stores.part_store.part_reader import PartReader
from mercore.stores.results.hits import Hits
from mercore.stores.vectors import open_vector_store

Row = dict[str, Any]

FOUND, REPEATS = 100, 5


def markdown(rows: list[Row]) -> str:
    """Return rows as a Markdown table, figures to three places."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    lines += [
        "| "
        + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        + " |"
        for row in rows
    ]
    return "\n".join(lines)


def recall_rows(
    store: str, queries: str, kernel: str, weights: list[str], parameters: Mapping[str, int]
) -> list[Row]:
    """Encode a store with each dtype of weights, search it, and compare with the exhaustive
    search."""
    threads = available_cores()
    _, truth = api.search(store, queries, k=FOUND, kernel=kernel, threads=threads)
    rows = []
    for dtype in weights:
        with TemporaryDirectory() as folder:
            codes = str(Path(folder) / "codes.zarr")
            made = api.encode(
                store,
                codes,
                kernel=kernel,
                encoder=spec_of_options("aska", {"weights": dtype, **parameters}),
            )
            _, hits = api.search(codes, queries, k=FOUND, threads=threads)
            options = EvaluateOptions(
                vectors=store, queries=queries, kernel=KernelOptions(name=kernel)
            )
            task = open_evaluate(hits, truth, options)
            assert task.rescoring is not None
            hits = Hits(scores=task.rescoring.scores(), ids=hits.ids)
        found = {
            f"{row['definition']}@{row['rank']}": row["value"]
            for row in recalls(hits, truth, exact_scores=True)
        }
        name = {"kernel": kernel, "weights": dtype, "bytes a row": made["bytes_per_row"]}
        rows.append({**name, "ratio": _ratios(store, made["bytes"]), **found})
    return rows


def compressor_rows(
    folder: Path,
    sources: tuple[str, str],
    compressors: list[str],
    kernel: str,
    parameters: Mapping[str, int],
) -> list[Row]:
    """Ingest and encode with each compressor; time reading every part, checked and decoded,
    interleaved."""
    base, queries = sources
    stores: dict[str, tuple[str, str]] = {}
    for compressor in compressors:
        vectors, codes = (
            str(folder / f"{kind}-{compressor.replace(':', '-')}") for kind in ("vectors", "codes")
        )
        api.ingest(base, vectors, compressor=compressor)
        api.encode(
            vectors,
            codes,
            kernel=kernel,
            compressor=compressor,
            encoder=spec_of_options("aska", parameters),
        )
        stores[compressor] = vectors, codes
    times: dict[str, list[tuple[float, float, float]]] = {
        compressor: [] for compressor in compressors
    }
    for _ in range(REPEATS):
        for compressor, (vectors, codes) in stores.items():
            times[compressor].append(
                (_read_vectors(vectors), _read_codes(codes), _search(codes, queries))
            )
    rows = []
    for compressor, (vectors, codes) in stores.items():
        read_vectors, read_codes, search = (
            statistics.median(column) for column in zip(*times[compressor], strict=True)
        )
        size, coded = api.info(vectors)["bytes"], api.info(codes)["bytes"]
        n = api.info(codes)["rows"]
        rows.append(
            {
                "compressor": compressor,
                "vectors, bytes a row": size / n,
                "read, ns a row": read_vectors / n * 1e9,
                "codes, bytes a row": coded / n,
                "read, ns a row ": read_codes / n * 1e9,
                "search, ms": search * 1e3,
            }
        )
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _read_vectors(path: str) -> float:
    """Return the seconds that reading every part of a vector store takes."""
    store = open_vector_store(Path(path))
    began = time.perf_counter()
    for part in range(store.parts):
        store.read_part(part)
    return time.perf_counter() - began


def _read_codes(path: str) -> float:
    """Return the seconds that reading every part of a code store takes, as the scan does."""
    codes = open_code_store(Path(path))
    reader = PartReader(codes.store, codes.receipts, codes.store.layout.column_names)
    began = time.perf_counter()
    for part in range(codes.parts):
        reader.read(part)
    return time.perf_counter() - began


def _search(codes: str, queries: str) -> float:
    """Return the seconds that one search takes on one thread."""
    report, _ = api.search(codes, queries, k=FOUND, threads=1)
    return float(report["seconds"])


def _ratios(store: str, coded: int) -> str:
    """Return how much smaller the codes are than the raw values, and than float32 values as the
    papers count."""
    vectors = open_vector_store(Path(store))
    values = vectors.rows * vectors.dims
    raw, floats = (
        values * vectors.dtype.itemsize / coded,
        vectors.rows * (4 * vectors.dims + 4) / coded,
    )
    return f"{raw:.2f} ({floats:.1f} of .fvecs)"
