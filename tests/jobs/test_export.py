"""Codes as faiss sees them: the same neighbours, with their scores and ids."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from jobs import verbs
from jobs.export import export
from pipeline.encoders.aska import AskaSpec
from pipeline.encoders.pq import KpcaPqSpec, PqSpec
from pipeline.kernels import make_kernel
from stores.errors import ExistsError, InputError
from tests.making import histograms, make_codes, make_vectors

KPCA_PQ = KpcaPqSpec(n_landmarks=40, n_components=12, n_subquantizers=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    rows = histograms(400, 12)
    rows[[3, 200]] = 0
    vectors = make_vectors(folder / "vectors", rows, drop_zero_rows=True)
    whole = make_vectors(folder / "whole", histograms(400, 12, seed=4))
    make_codes(folder / "chi2", vectors, make_kernel("chi2"), KPCA_PQ)
    make_codes(folder / "raw", whole, make_kernel("rbf", gamma=0.5), PqSpec(n_subquantizers=6))
    product = PqSpec(n_subquantizers=3, metric="product")
    make_codes(folder / "product", whole, make_kernel("hellinger"), product)
    make_codes(folder / "aska", vectors, make_kernel("chi2"), AskaSpec(n_atoms=8, n_nonzero_coefs=2))
    np.save(folder / "queries.npy", histograms(30, 12, seed=1))
    return folder


@pytest.mark.parametrize("name", ["chi2", "raw", "product"])
def test_faiss_finds_what_we_find(folder: Path, name: str) -> None:
    index, points, queries = folder / f"{name}.faiss", folder / f"{name}.npy", str(folder / "queries.npy")
    report = export(str(folder / name), str(index), queries=queries, points=str(points))
    assert report["written"] == [str(index), str(points)]
    found: Any = faiss.read_index(str(index))
    theirs, ids = found.search(np.load(points), 20)
    scores = theirs if name == "product" else 1 - theirs / 2
    _, hits = verbs.search(str(folder / name), queries, k=20)
    assert hits.scores is not None
    np.testing.assert_allclose(scores, hits.scores, atol=2e-6)
    clear = np.abs(np.diff(hits.scores, axis=1, prepend=np.inf, append=-np.inf)).astype(float)
    apart = (clear[:, 1:] > 1e-5) & (clear[:, :-1] > 1e-5)  # codes that tie are in either order
    assert apart.mean() > 0.5
    np.testing.assert_array_equal(ids[apart], hits.ids[apart])


def test_what_cannot_be_exported_is_refused_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "index"
    with pytest.raises(InputError, match="--queries and --points go together: found one of them"):
        export(str(folder / "chi2"), str(target), queries=str(folder / "queries.npy"))
    with pytest.raises(InputError, match=r"holds codes of aska: expected kpca-pq or pq, which faiss knows\. Mend:"):
        export(str(folder / "aska"), str(target))
    with pytest.raises(ExistsError):
        export(str(folder / "chi2"), str(folder / "queries.npy"))
    assert not target.exists()
