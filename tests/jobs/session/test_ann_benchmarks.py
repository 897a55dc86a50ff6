"""The algorithm for ann-benchmarks and VIBE, as their runners call it; recall by their definition."""

import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mercore.jobs.session.ann_benchmarks import KERNELS, Mercore
from mercore.stores.errors import InputError
from mercore.testing.stores import histograms
from tests.independent import ann_benchmarks

TRAIN, TEST, COUNT = histograms(600, 16, seed=1), histograms(12, 16, seed=2), 5


def run(folder: Path, arguments: list[Any], groups: list[list[int]]) -> list[tuple[float, str]]:
    """Build, query one by one and as a batch, as a runner does; the recall and name of each group."""
    algorithm, found = Mercore(*arguments), []
    distance = ann_benchmarks.DISTANCES[arguments[0]]
    true = np.sort([distance(query, TRAIN) for query in TEST], axis=1)[:, :COUNT]
    with h5py.File(folder / "set.hdf5", "w") as file:
        file.attrs["distance"] = arguments[0]
        file["train"], file["test"], file["distances"] = TRAIN, TEST, true
    try:
        assert algorithm.get_memory_usage() > 0
        algorithm.fit(TRAIN)
        for group in groups or [[]]:
            if group:
                algorithm.set_query_arguments(*group)
            single = [algorithm.query(query, COUNT) for query in TEST]
            algorithm.batch_query(TEST, COUNT)
            for ids, others in zip(single, algorithm.get_batch_results(), strict=True):
                assert len(ids) == len(set(ids)) <= COUNT
                assert ids.tolist() == others.tolist()
                assert TRAIN[ids].shape == (len(ids), 16)  # VIBE takes rows by them
            padded = np.full((len(TEST), COUNT), -1)
            for row, ids in zip(padded, single, strict=True):
                row[: len(ids)] = ids
            with h5py.File(folder / "run.hdf5", "w") as file:
                file["neighbors"] = padded
                file.attrs.update(algorithm.get_additional())
            recall = ann_benchmarks.recall(f"{folder}/set.hdf5", f"{folder}/run.hdf5", COUNT)
            found.append((recall, str(algorithm)))
    finally:
        algorithm.done()
    assert not list(folder.glob("mercore-*"))
    return found


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let temporary folders lie in that of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_every_row(tmp_path: Path) -> None:
    assert run(tmp_path, ["euclidean"], []) == [(1.0, "mercore(every row)")]
    assert run(tmp_path, ["angular"], []) == [(1.0, "mercore(every row)")]


def test_codes(tmp_path: Path) -> None:
    (codes, name), (reranked, other) = run(
        tmp_path, ["angular", "pca-pq:subquantizers=2"], [[0], [100]]
    )
    assert (name, other) == (
        "mercore(pca-pq:subquantizers=2)",
        "mercore(pca-pq:subquantizers=2, rerank=100)",
    )
    assert codes < reranked == 1.0


def test_cells(tmp_path: Path) -> None:
    groups = [[0, 1], [100, 1], [1, 16]]  # fewer to rerank than to return are as many
    few, better, every = run(tmp_path, ["euclidean", "pca-pq:subquantizers=2", 16], groups)
    assert few[0] <= better[0] < every[0]
    assert better[1] == "mercore(pca-pq:subquantizers=2, cells=16, rerank=100, probes=1)"


def test_a_metric_without_a_kernel_is_refused() -> None:
    with pytest.raises(InputError, match=r"metric is 'jaccard': expected euclidean, .*, ip\. Fix"):
        Mercore("jaccard")
    for metric in KERNELS:
        Mercore(metric).done()  # nothing was made yet
