"""Searches by remote workers, on the smallest engine that fulfils their contract."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.jobs.cluster.connect import ThreadsHere
from mercore.jobs.cluster.workers import Work
from tests.support.running import files_of, histograms, succeed

SEARCHES = {
    "codes": "codes --rerank 20",
    "bounds": "bounds --exact",
    "every row": "vectors --kernel chi2",
}


class EagerTasks:
    """Tasks of two workers that run when they are submitted: a future is its result."""

    def __init__(self, work: Work) -> None:
        self.slots = ["first", "second"]
        self.opened = {slot: pickle.loads(pickle.dumps(work)).open() for slot in self.slots}  # noqa: S301
        self.turn = cycle(self.slots)

    def submit(
        self, task: Callable[..., Any], *arguments: object, worker: str | None = None
    ) -> object:
        sent, values = pickle.loads(pickle.dumps((task, arguments)))  # noqa: S301 - as Dask does
        return sent(self.opened[worker or next(self.turn)], *values)

    def results(self, futures: Sequence[object]) -> list[object]:
        return list(futures)


class EagerWorkers(ThreadsHere):
    """An engine of eager tasks: see ``RemoteWorkers``."""

    @contextmanager
    def opened(self, work: Work) -> Iterator[EagerTasks]:
        yield EagerTasks(work)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors in 12 parts, codes and bounds in three."""
    folder = tmp_path_factory.mktemp("stores")
    np.save(folder / "base.npy", histograms(768, 8, seed=1))
    np.save(folder / "queries.npy", histograms(24, 8, seed=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 512)
        succeed(f"ingest {folder}/base.npy {folder}/vectors")
    encode = (f"encode {folder}/vectors --kernel chi2 --part-rows 256",)
    succeed(*encode, folder / "codes", "--atoms", 32, "--sparsity", 4)
    bounds = ("--encoder", "kpca-bound", "--landmarks", 64, "--components", 16)
    succeed(*encode, folder / "bounds", *bounds)
    return folder


@pytest.mark.parametrize("shared", [False, True], ids=["whole batches", "shared batches"])
@pytest.mark.parametrize("name", SEARCHES)
def test_another_engine_answers_as_threads_do(
    name: str, shared: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def connect(_: object) -> Iterator[EagerWorkers]:
        yield EagerWorkers(2)

    monkeypatch.setattr("mercore.jobs.cluster.client.connect", connect)
    if shared:
        monkeypatch.setattr("mercore.jobs.cluster.search_parts.PAIRS_PER_RUN", 1)
    store, *options = SEARCHES[name].split()
    words = (f"search {folder}/{store} {folder}/queries.npy -k 5 --batch 8", *options)
    answers = []
    for where in ("--threads", "--processes"):
        (tmp_path / where).mkdir()
        succeed(*words, where, 2, "--out", tmp_path / where / "hits.npz")
        answers.append(files_of(tmp_path / where))
    assert answers[0] == answers[1]
