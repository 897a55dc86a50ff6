"""No option is parsed and ignored: one that would have no effect is refused, with its mend."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.jobs import api
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import InputError
from mercore.stores.results.hits import Hits, write_hits
from mercore.testing.stores import histograms, make_codes, make_vectors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    vectors = make_vectors(folder / "vectors", histograms(40, 6))
    make_codes(
        folder / "codes", vectors, make_kernel("chi2"), AskaSpec(n_atoms=8, n_nonzero_coefs=2)
    )
    np.save(folder / "queries.npy", histograms(3, 6, seed=1))
    write_hits(str(folder / "hits.npz"), Hits(scores=None, ids=np.zeros((3, 2), np.int64)))
    return folder


@pytest.mark.parametrize(
    ("store", "options", "because"),
    [
        ("codes", {"gamma": 2.0}, "{folder}/codes has gamma none: found gamma=2.0."),
        ("codes", {"transform": 2.0}, "{folder}/codes has transform none: found transform=2.0."),
        (
            "codes",
            {"vectors": "x"},
            "vectors has no use here: the vectors are only read to rerank.",
        ),
        (
            "vectors",
            {"kernel": "chi2", "vectors": "x"},
            "vectors has no use here: {folder}/vectors is the vectors.",
        ),
    ],
)
@pytest.mark.promise("An option without effect is refused")
def test_search(folder: Path, store: str, options: dict[str, Any], because: str) -> None:
    with pytest.raises(InputError) as error:
        api.search(str(folder / store), str(folder / "queries.npy"), k=2, **options)
    name = next(reversed(options))
    assert str(error.value) == because.format(folder=folder) + f" Fix: leave {name} out."


@pytest.mark.parametrize("option", ["queries", "kernel"])
def test_evaluate(folder: Path, option: str) -> None:
    hits = str(folder / "hits.npz")
    with pytest.raises(
        InputError, match=f"{option} has no use here: it says how to re-score the hits"
    ):
        api.evaluate(hits, hits, **{option: "chi2"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "because"),
    [
        ({"neighbours": 3}, "neighbours has no use here: it says how many hits vote on a label."),
        ({"codes": "x"}, "codes has no use here: it gives the bits of codes for overlap."),
    ],
)
def test_evaluate_without_labels_or_overlap(
    folder: Path, option: dict[str, Any], because: str
) -> None:
    hits = str(folder / "hits.npz")
    with pytest.raises(InputError) as error:
        api.evaluate(hits, hits, **option)
    assert str(error.value) == f"{because} Fix: leave {next(iter(option))} out."


@pytest.mark.promise("An option without effect is refused")
def test_encode_on_a_cluster_takes_no_workers(folder: Path) -> None:
    vectors, new = str(folder / "vectors"), str(folder / "new")
    with pytest.raises(
        InputError, match="workers has no use here: an existing cluster has its own workers"
    ):
        api.encode(
            vectors,
            new,
            kernel="chi2",
            encoder="aska:atoms=8",
            workers=2,
            scheduler="tcp://127.0.0.1:1",
        )
    assert not (folder / "new").exists()


def test_the_answers_and_what_reranking_reads_count_against_the_memory(folder: Path) -> None:
    from mercore.jobs.resources.limits import search_bytes
    from mercore.pipeline.search.batch_search import SearchSettings
    from mercore.stores.codes import open_code_store
    from mercore.stores.vectors import open_vector_store

    codes, vectors = open_code_store(folder / "codes"), open_vector_store(folder / "vectors")
    options = SearchSettings(k=10)
    few = search_bytes(codes, options, queries=options.batch)
    assert (
        search_bytes(codes, options, queries=options.batch + 1_000_000) - few
        == 2 * 1_000_000 * 10 * 16
    )
    assert search_bytes(codes, options, queries=options.batch, reranked=vectors) - few == 16 * 6 * (
        2 * 4 + 24
    )
