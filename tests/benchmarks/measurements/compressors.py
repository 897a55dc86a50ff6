"""What each compressor saves on vectors and codes, and what reading and searching them costs."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mercore.jobs import api
from mercore.stores.codes import open_code_store
from mercore.stores.part_store.part_reader import PartReader
from mercore.stores.vectors import open_vector_store
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

FOUND, KERNEL = 100, "chi2"


def measure(base: str, queries: str, compressors: Sequence[str], folder: Path) -> list[Row]:
    """Return a row per compressor: bytes per row, and the time to read and decode every part.

    The first compressor is the one that the others are compared with.
    """
    stores = {name: _made(base, name, folder) for name in compressors}
    rows = api.info(stores[compressors[0]][0])["rows"]
    seconds = interleaved(
        {f"vectors {name}": partial(_read_vectors, made[0]) for name, made in stores.items()}
        | {f"codes {name}": partial(_read_codes, made[1]) for name, made in stores.items()}
        | {
            f"search {name}": partial(api.search, made[1], queries, k=FOUND, threads=1)
            for name, made in stores.items()
        }
    )
    lines: list[Row] = []
    for name, made in stores.items():
        line: Row = {"compressor": name}
        for kind, store in zip(("vectors", "codes"), made, strict=True):
            taken, least = seconds[f"{kind} {name}"], seconds[f"{kind} {compressors[0]}"]
            line[f"{kind}, bytes per row"] = api.info(store)["bytes"] / rows
            line[f"reading {kind}, ns per row"] = taken / rows * 1e9
            line[f"reading {kind}, × {compressors[0]}"] = taken / least
        lines.append({**line, "search, ms": seconds[f"search {name}"] * 1e3})
    return lines


def _made(base: str, compressor: str, folder: Path) -> tuple[str, str]:
    """Make a vector store and its codes with a compressor; return their paths."""
    name = compressor.replace(":", "-")
    vectors, codes = str(folder / f"vectors-{name}"), str(folder / f"codes-{name}")
    api.ingest(base, vectors, compressor=compressor)
    api.encode(vectors, codes, kernel=KERNEL, compressor=compressor)
    return vectors, codes


def _read_vectors(path: str) -> None:
    """Read every part of a vector store."""
    store = open_vector_store(Path(path))
    for part in range(store.parts):
        store.read_part(part)


def _read_codes(path: str) -> None:
    """Read every part of a code store, as the scan does."""
    codes = open_code_store(Path(path))
    reader = PartReader(codes.store, codes.receipts, codes.store.layout.column_names)
    for part in range(codes.parts):
        reader.read(part)
