"""One open store: a verb reads each header once, and prepares each query once."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mercore.jobs import api
from mercore.pipeline.arrays import Float64, Rows
from mercore.pipeline.kernels.sums import Chi2
from tests.support.running import histograms, succeed

QUERIES = 5
opened: Counter[str] | None = None  # paths of files opened, while they are counted


def count_opened(event: str, arguments: tuple[object, ...]) -> None:
    """Count a file that any code of this process opens."""
    if event == "open" and opened is not None and isinstance(arguments[0], str | bytes):
        opened[str(arguments[0])] += 1


sys.addaudithook(count_opened)


@contextmanager
def headers_read(folder: Path) -> Iterator[dict[str, int]]:
    """Count how often the header of each store in a folder is opened."""
    global opened  # noqa: PLW0603 - an audit hook cannot be removed
    counts: dict[str, int] = {}
    opened = Counter()
    try:
        yield counts
    finally:
        for path, count in opened.items():
            where = Path(path)
            if where.name == "zarr.json" and where.parent.parent == folder:
                counts[where.parent.name] = count
        opened = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors, queries, codes that prove, binary codes and sorted orders."""
    folder = tmp_path_factory.mktemp("openings")
    np.save(folder / "base.npy", histograms(300, 16, 0))
    np.save(folder / "queries.npy", histograms(QUERIES, 16, 1))
    succeed(f"ingest {folder}/base.npy {folder}/vectors")
    succeed(f"ingest {folder}/queries.npy {folder}/queries")
    size = ("--landmarks", 16, "--components", 8)
    words = (f"encode {folder}/vectors {folder}/codes --kernel chi2",)
    succeed(*words, "--encoder", "kpca-pq", *size)
    succeed(
        f"encode {folder}/vectors {folder}/bits --kernel chi2 --encoder klsh --bits 32 "
        "--landmarks 32"
    )
    succeed(f"index {folder}/bits {folder}/orders --orders 4")
    succeed(f"search {folder}/codes {folder}/queries -k 3 --exact --out {folder}/hits.npz")
    return folder


def search(store: str, **options: object) -> Callable[[Path], object]:
    """Return a search of a store of the folder for its queries, which are a store too."""
    return lambda folder: api.search(folder / store, folder / "queries", k=3, **options)  # type: ignore[arg-type]


# Each call, the stores whose headers it reads, and how many of its scans prepare queries.
CASES = {
    "codes": (search("codes"), {"codes", "vectors", "queries"}, 1),  # have the vectors grown?
    "rerank": (search("codes", rerank=9), {"codes", "vectors", "queries"}, 2),
    "exact": (search("codes", exact=True), {"codes", "vectors", "queries"}, 2),
    "vectors": (search("vectors", kernel="chi2"), {"vectors", "queries"}, 1),
    "orders": (search("orders"), {"orders", "vectors", "queries"}, 1),
    "verify": (
        lambda folder: api.verify(
            *(folder / name for name in ("vectors", "queries", "hits.npz")),
            kernel="chi2",
            bounds=folder / "codes",
        ),
        {"codes", "vectors", "queries"},
        3,  # bounds, scores of the rows that they leave, and of the hits
    ),
    "info": (lambda folder: api.info(folder / "codes"), {"codes"}, 0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.promise(
    "A search, an exact search and a verify read each header once, an encode the header of its codes twice"
)
def test_each_header_is_read_once_and_each_scan_prepares_each_query_once(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, stores, scans = CASES[name]
    prepared = []
    prepare = Chi2.prepare

    def counted(kernel: Chi2, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        prepared.extend(["query"] * len(rows) * (label == "query"))
        return prepare(kernel, rows, first=first, label=label)

    monkeypatch.setattr(Chi2, "prepare", counted)
    with headers_read(folder) as headers:
        call(folder)
    assert headers == dict.fromkeys(stores, 1)
    assert len(prepared) == scans * QUERIES


@pytest.mark.parametrize("state", ["new", "finished"])
@pytest.mark.promise(
    "A search, an exact search and a verify read each header once, an encode the header of its codes twice"
)
def test_an_encode_reads_the_header_of_its_codes_before_and_under_the_lease(
    state: str, folder: Path
) -> None:
    encoder = "klsh:bits=32,landmarks=32"
    with headers_read(folder) as headers:
        api.encode(folder / "vectors", folder / "again", kernel="chi2", encoder=encoder)
    assert headers["again"] == 2, state
