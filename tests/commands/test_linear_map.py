"""``--linear-map`` on processes of this machine: each worker maps the rows that it reads."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.running import files_of, succeed

pytestmark = pytest.mark.slow
ROWS, DIMS, MAPPED, NQ = 900, 10, 6, 23
RBF = ("--kernel", "rbf", "--gamma", 0.02)
ENCODER = ("--encoder", "kpca-bound", "--landmarks", 64, "--components", 16, "--part-rows", 200)
PROCESSES = ("--processes", 2)


@pytest.mark.promise("A mapped row has the same bits in any block, part, thread or process")
def test_processes_do_as_threads_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)  # workers in other folders find relative paths
    for name, shape in (("base", (ROWS, DIMS)), ("queries", (NQ, DIMS)), ("map", (MAPPED, DIMS))):
        np.save(f"{name}.npy", rng.standard_normal(shape))
    monkeypatch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 4 << 10)
    succeed("ingest base.npy vectors")
    option = ("--linear-map", "map.npy")
    klsh = ("--encoder", "klsh", "--landmarks", 64, "--subset", 9, "--bits", 64)
    succeed("encode vectors codes", *RBF, *klsh, *option)
    succeed("index codes orders --orders 3")
    searches: dict[str, tuple[object, ...]] = {
        "reranked": ("bounds-threads", "queries.npy", "--rerank", 50),
        "orders": ("orders", "queries.npy", "--neighbours", 20),
        "exact": ("bounds-threads", "queries.npy", "--exact"),
        "exact-vectors": ("vectors", "queries.npy", "--exact", *RBF, *option),
    }
    for where, words in (("threads", ()), ("processes", PROCESSES)):
        succeed(f"encode vectors bounds-{where}", *RBF, *ENCODER, *option, *words)
        Path(where).mkdir()
        for name, search in searches.items():
            out = ("--out", f"{where}/{name}.npz", "-k", 5, "--batch", 8)
            succeed("search", *search, *out, *words)
        verified = ("vectors", "queries.npy", f"{where}/exact.npz", *RBF, *option)
        succeed("verify", *verified, "--bounds", "bounds-threads", *words)
    assert files_of(Path("bounds-processes")) == files_of(Path("bounds-threads"))
    assert files_of(Path("processes")) == files_of(Path("threads"))
