"""The stores under ``tests/formats/v1`` were committed with their format: today's code must read
them, for ever."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import mercore
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    search_code_store,
    search_vector_store,
)
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.part_store.blocks import BLOCK_BYTES
from mercore.stores.part_store.header import open_header
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_vectors
from mercore.stores.vectors import VectorStore, open_vector_store
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors
from tests.support.making import aska_of

HERE = Path("tests/formats/v1")
ROOT = Path(__file__).parents[2]
K = 4


def make_v1(folder: Path) -> None:
    """Write the stores, and what a search of them must give.

    ``python -c "from tests.formats.test_format_v1 import *; make_v1(HERE)"`` made
    ``tests/formats/v1`` from the repository's root. Once a version is released its stores are never
    made again: a new format gets a folder and a file of its own.
    """
    folder.mkdir(parents=True)
    rows = histograms(13, 5, dtype="float16", seed=1)
    rows[[2, 7]] = 0
    vectors = make_vectors(folder / "vectors", rows, part_rows=4, drop_zero_rows=True)
    spec = AskaSpec(n_atoms=6, n_nonzero_coefs=2, random_state=1, metric="product")
    codes = make_codes(
        folder / "codes", vectors, make_kernel("exp_chi2", gamma=0.5), spec, part_rows=8
    )
    np.save(folder / "rows.npy", rows)
    expected = {
        name: [hits.ids.tolist(), as_floats(hits)]
        for name, hits in searched(vectors, codes).items()
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def searched(vectors: VectorStore, codes: CodeStore) -> dict[str, Hits]:
    """Hits of the codes, of the codes reranked, and of the vectors."""
    queries = Rows(histograms(2, 5, seed=2))
    return {
        "codes": search_code_store(codes, queries, SearchSettings(k=K)),
        "reranked": search_code_store(
            codes, queries, SearchSettings(k=K, rerank=9), vectors=vectors
        ),
        "vectors": search_vector_store(vectors, make_kernel("chi2"), queries, SearchSettings(k=K)),
    }


def as_floats(hits: Hits) -> Any:
    assert hits.scores is not None
    return hits.scores.astype(float).tolist()


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> tuple[VectorStore, CodeStore]:
    monkeypatch.chdir(ROOT)
    return open_vector_store(HERE / "vectors"), open_code_store(HERE / "codes")


@pytest.mark.promise("Stores of format v1 stay readable")
def test_the_stores_are_whole(stores: tuple[VectorStore, CodeStore]) -> None:
    vectors, codes = stores
    assert vectors.store.check() == codes.store.check() == []
    assert codes.undone_parts() == {}


@pytest.mark.promise("A certificate says whether its fingerprint covers all rows, by which digest")
def test_an_old_fingerprint_is_of_checksums(stores: tuple[VectorStore, CodeStore]) -> None:
    assert stores[0].fingerprint_of == "the crc32c checksums of all rows"
    assert stores[0].check_content() is None


def test_the_rows_are_those_that_were_ingested(stores: tuple[VectorStore, CodeStore]) -> None:
    vectors, _ = stores
    rows = np.load(HERE / "rows.npy")
    read = np.concatenate([vectors.read_part(part) for part in range(vectors.parts)])
    np.testing.assert_array_equal(read, rows[rows.any(axis=1)], strict=True)
    assert vectors.dropped.tolist() == [2, 7]
    assert (vectors.spec.source_rows, vectors.spec.zero_rows, vectors.spec.duplicate_rows) == (
        13,
        2,
        1,
    )
    np.testing.assert_array_equal(
        np.asarray(zarr.open_array(HERE / "vectors" / "vectors", mode="r")[:]), read
    )


def test_the_codes_are_of_these_rows(stores: tuple[VectorStore, CodeStore]) -> None:
    vectors, codes = stores
    assert codes.spec.source == vectors.fingerprint
    assert codes.source_path == str(HERE / "vectors")
    assert open_vectors(codes.source_path).fingerprint == codes.spec.source
    assert codes.spec.kernel == {"name": "exp_chi2", "configuration": {"gamma": 0.5}}
    assert codes.dropped.tolist() == [2, 7]
    assert aska_of(codes).spec.metric == "product"  # as all were before there was another


@pytest.mark.promise("Stores of format v1 stay readable")
def test_a_search_gives_what_it_gave(stores: tuple[VectorStore, CodeStore]) -> None:
    """But for scores of codes: products are divided by ‖ŷ‖^½ now, those of old stores too."""
    expected = json.loads((HERE / "expected.json").read_text())
    found = searched(*stores)
    assert list(found) == list(expected)
    for name, hits in found.items():
        ids, scores = expected[name]
        np.testing.assert_array_equal(hits.ids, ids)
        np.testing.assert_allclose(
            as_floats(hits), scores, rtol=0, atol=1e-12 if name != "codes" else 1e-6
        )


def test_the_committed_stores_are_a_few_kilobytes_and_name_no_place_on_a_machine() -> None:
    files = [path for path in (ROOT / HERE).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 40_000
    assert not any(re.search(rb'": "/\w', path.read_bytes()) for path in files)


def test_check_adds_blocks_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / HERE, tmp_path / "v1")
    before = searched(*opened(tmp_path / "v1"))
    for name in ("vectors", "codes"):
        path = tmp_path / "v1" / name
        for state in ("has its checksums of blocks now", "had checksums of blocks already"):
            assert mercore.check(path, add_blocks=True)["faults"] == []
            assert f"{path} {state}" in capsys.readouterr().err
        assert open_header(path).block_bytes == BLOCK_BYTES
    vectors, codes = opened(tmp_path / "v1")
    assert codes.spec.source == vectors.fingerprint
    for name, hits in searched(vectors, codes).items():
        np.testing.assert_array_equal(hits.ids, before[name].ids)
        assert as_floats(hits) == as_floats(before[name])


def opened(folder: Path) -> tuple[VectorStore, CodeStore]:
    return open_vector_store(folder / "vectors"), open_code_store(folder / "codes")
