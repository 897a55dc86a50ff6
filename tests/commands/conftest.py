"""Small stores that look real, made once: tests that damage a store take a copy."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.queueing import Queue
from tests.support.running import ENCODE, histograms, succeed

ROWS, DIMS, PART_ROWS = 3000, 24, 50


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``base.npy`` uint8[3000, 24] and ``queries.npy`` uint8[12, 24]."""
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "base.npy", histograms(ROWS, DIMS, seed=1))
    np.save(folder / "queries.npy", histograms(12, DIMS, seed=2))
    return folder


@pytest.fixture(scope="session")
def vectors(data: Path) -> Path:
    """The vector store of ``base.npy``."""
    succeed(f"ingest {data}/base.npy {data}/vectors")
    return data / "vectors"


@pytest.fixture(scope="session")
def codes(data: Path, vectors: Path) -> Path:
    """The code store of ``vectors``, 60 parts."""
    succeed(f"encode {vectors} {data}/codes", *ENCODE, "--part-rows", PART_ROWS)
    return data / "codes"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """An empty queue, whose processes end with the test."""
    made = Queue(tmp_path)
    yield made
    made.kill()
