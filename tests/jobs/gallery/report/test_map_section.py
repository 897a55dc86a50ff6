"""The map of a report: the axes of another library, and the true neighbours of its queries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA, KernelPCA

import mercore
from mercore.jobs.gallery.page import MAP_SIZE
from mercore.jobs.gallery.report.map_section import principal_axes
from mercore.pipeline.kernels import make_kernel
from tests.independent import reference
from tests.support.pages import check_rules
from tests.support.running import histograms


def same_axes(found: Any, expected: Any) -> None:
    """Equal but for the sign of each axis."""
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, rtol=1e-6, atol=1e-9)


def test_axes_are_those_of_kernel_pca() -> None:
    landmarks, rows = histograms(60, 12, seed=1), histograms(90, 12, seed=2)
    prepared = [reference.prepare("chi2", each) for each in (landmarks, rows)]
    gram, scores = (reference.kernel("chi2", each, prepared[0]) for each in prepared)
    expected = KernelPCA(2, kernel="precomputed").fit(gram).transform(scores)
    same_axes(principal_axes(make_kernel("chi2"), landmarks, rows), expected)
    assert not principal_axes(make_kernel("chi2"), landmarks[:1], rows).any()


@pytest.mark.parametrize(("kernel", "factor"), [("euclidean", 2**0.5), ("inner_product", 1.0)])
def test_axes_of_raw_rows_are_those_of_pca(kernel: str, factor: float) -> None:
    rows = histograms(80, 6, seed=3).astype(np.float32)
    expected = factor * PCA(2).fit_transform(rows.astype(np.float64))
    same_axes(principal_axes(make_kernel(kernel), rows, rows), expected)


def test_a_query_shows_its_true_neighbours(tmp_path: Path) -> None:
    rows, queries = histograms(300, 8, seed=4), histograms(30, 8, seed=5)
    np.save(tmp_path / "queries.npy", queries)
    mercore.ingest(rows, tmp_path / "base")
    mercore.encode(tmp_path / "base", tmp_path / "codes", kernel="chi2", encoder="aska:atoms=16")
    out = tmp_path / "page.html"
    mercore.report(tmp_path / "codes", queries=tmp_path / "queries.npy", out=out)
    page = check_rules(out.read_text())
    asked, stored = (reference.prepare("chi2", each) for each in (queries, rows))
    scores, ids = reference.top_k(reference.kernel("chi2", asked, stored), 5)
    labels = [link["aria-label"] for link in page.all("a") if "aria-label" in link]
    assert labels == [
        f"query {query}, nearest rows: "
        + ", ".join(f"{row} ({score:.3f})" for row, score in zip(*found, strict=True))
        for query, found in enumerate(zip(ids[:24].tolist(), scores[:24].tolist(), strict=True))
    ]
    (dots,) = (path["d"] for path in page.all("path") if path.get("class") == "dots")
    assert dots.count("h0") == 300
    for circle in page.all("circle"):
        assert 20 <= int(circle["cx"]) <= MAP_SIZE[0] - 20
        assert 20 <= int(circle["cy"]) <= MAP_SIZE[1] - 20
