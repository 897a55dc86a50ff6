"""Searches by remote workers, on the smallest engine that fulfils their contract."""

import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.jobs.cluster.connect import ThreadsHere
from mercore.jobs.cluster.search_parts import open_stores, searching
from mercore.jobs.cluster.workers import RemoteWorkers, Work
from mercore.jobs.resources.execution import SearchSize, WorkerPaths
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.kernels import kernel_from_spec, make_kernel
from mercore.pipeline.search.answers import concatenate_answers
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    search_code_store,
    search_vector_store,
)
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.pipeline.search.within import Limit, Reaching
from mercore.stores.results.hits import read_hits
from mercore.stores.selection import BitSelection, RangeSelection, Selection
from mercore.stores.vector_views import WatchedVectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows
from tests.support.running import files_of, histograms, succeed

SEARCHES = {
    "codes": "codes --rerank 20",
    "bounds": "bounds --exact",
    "every row": "vectors --kernel chi2",
    "ties of mapped rows": "vectors --kernel rbf --gamma 0.1 --exact --linear-map {folder}/map.npy",
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
    rows = histograms(768, 8, seed=1)
    rows[400:500] = rows[:100]
    np.save(folder / "base.npy", rows)
    np.save(folder / "map.npy", np.eye(5, 8, dtype=np.float32))
    np.save(folder / "queries.npy", histograms(24, 8, seed=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 512)
        succeed(f"ingest {folder}/base.npy {folder}/vectors")
    encode = (f"encode {folder}/vectors --kernel chi2 --part-rows 256",)
    succeed(*encode, folder / "codes", "--atoms", 32, "--sparsity", 4)
    bounds = ("--encoder", "kpca-bound", "--landmarks", 64, "--components", 16)
    succeed(*encode, folder / "bounds", *bounds)
    return folder


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--processes`` gives eager workers."""

    @contextmanager
    def connect(_: object) -> Iterator[EagerWorkers]:
        yield EagerWorkers(2)

    monkeypatch.setattr("mercore.jobs.cluster.client.connect", connect)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("shared", [False, True], ids=["whole batches", "shared batches"])
@pytest.mark.parametrize("name", SEARCHES)
def test_another_engine_answers_as_threads_do(
    name: str, shared: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared:
        monkeypatch.setattr("mercore.jobs.cluster.search_parts.PAIRS_PER_RUN", 1)
    store, *options = SEARCHES[name].format(folder=folder).split()
    words = (f"search {folder}/{store} {folder}/queries.npy -k 5 --batch 8", *options)
    answers = []
    for where in ("--threads", "--processes"):
        (tmp_path / where).mkdir()
        succeed(*words, where, 2, "--out", tmp_path / where / "hits.npz")
        answers.append(files_of(tmp_path / where))
    assert answers[0] == answers[1]


@pytest.mark.usefixtures("eager")
def test_workers_search_no_rows_that_were_appended_since(folder: Path, tmp_path: Path) -> None:
    """So many neighbours are asked for that every row is scored."""
    shutil.copytree(folder / "vectors", tmp_path / "vectors")
    options = "--kernel chi2 --encoder kpca-bound --landmarks 64 --components 16"
    succeed(f"encode {tmp_path}/vectors {tmp_path}/bounds {options}")
    succeed(f"append {folder}/queries.npy {tmp_path}/vectors")
    words = f"search {tmp_path}/bounds {folder}/queries.npy -k 400 --batch 8 --relaxed 0.9"
    for where in ("threads", "processes"):
        succeed(f"{words} --{where} 2 --out {tmp_path}/{where}.npz")
    here, there = (read_hits(str(tmp_path / f"{each}.npz")) for each in ("threads", "processes"))
    np.testing.assert_array_equal(there.ids, here.ids)
    assert there.ids.max() < 768


def answers_of(
    workers: RemoteWorkers | None, paths: WorkerPaths, queries: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Search stores on workers, or on two threads: by bounds if there are some; ids and scores."""
    (codes, vectors), kernel = open_stores(paths), kernel_from_spec(paths.kernel)
    assert vectors is not None
    size = SearchSize(len(queries), 8)
    with searching(workers, paths, size) if workers else nullcontext() as executor:
        settings = SearchSettings(k=5, rerank=20, batch=8, threads=2, executor=executor)
        if codes is None:
            hits = search_vector_store(vectors, kernel, Rows(queries), settings)
        elif not spec_of(codes).proves:
            hits = search_code_store(codes, Rows(queries), settings, vectors=vectors)
        else:
            scorer = ExactScorer(vectors=WatchedVectors(vectors), kernel=kernel, threads=2)
            bounds = OpenCodes(codes, encoder_of(codes))
            search = ExactSearch(scorer=scorer, bounds=bounds, remote=executor)
            batches = np.split(queries, range(8, len(queries), 8))
            found = concatenate_answers([search.prove(batch, 5) for batch in batches])
            search.executor.check_rest()
            return vectors.ids_of(found.ids), found.scores
    assert hits.scores is not None
    return hits.ids, hits.scores


def check_selected(
    workers: RemoteWorkers, folder: Path, codes: str | None, selection: Selection
) -> None:
    """Workers answer as threads do, and name selected rows alone."""
    paths = WorkerPaths(
        kernel=make_kernel("chi2").spec(),
        codes=codes and str(folder / codes),
        vectors=str(folder / "vectors"),
        selection=selection,
    )
    queries = np.load(folder / "queries.npy")
    ids, scores = answers_of(workers, paths, queries)
    expected = answers_of(None, paths, queries)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(scores, expected[1])
    assert (selection.numbers_of(ids) >= 0).all()
    assert not np.array_equal(ids, answers_of(None, replace(paths, selection=None), queries)[0])


@pytest.mark.parametrize("shared", [False, True], ids=["whole batches", "shared batches"])
@loop_over("codes", ["codes", "bounds", None])
def test_workers_search_selected_rows(
    codes: str | None, shared: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared:
        monkeypatch.setattr("mercore.jobs.cluster.search_parts.PAIRS_PER_RUN", 1)
    for selection in (RangeSelection(100, 400), random_rows(768)):
        check_selected(EagerWorkers(2), folder, codes, selection)


def test_workers_keep_what_another_collector_keeps(folder: Path) -> None:
    paths = WorkerPaths(kernel=make_kernel("chi2").spec(), vectors=str(folder / "vectors"))
    queries, vectors = np.load(folder / "queries.npy"), open_stores(paths)[1]
    new = partial(Reaching, len(queries), Limit(0.9, 1 << 20))
    here = ThreadExecutor(kernel=make_kernel("chi2"), threads=2, vectors=vectors)
    with searching(EagerWorkers(2), paths, SearchSize(len(queries), len(queries))) as executor:
        found = set(zip(*executor.batch(queries).score_every_row(new).pairs(), strict=True))
    expected = set(zip(*here.batch(queries).score_every_row(new).pairs(), strict=True))
    assert len(found) > 0
    assert found == expected


def random_rows(rows: int) -> BitSelection:
    """Return a selection of 3 rows in 10."""
    mask = np.random.default_rng(0).random(rows) < 0.3
    return BitSelection(np.packbits(mask, bitorder="little"))
