"""Exact search over a grid: every kernel, bound and adversarial set, by drawn threads, batches and
parts, under transforms and linear maps, against scores of 256 bits."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mercore
from mercore.testing.cases import in_case
from mercore.testing.rows import STYLES, kernel_rows, one_ulp_apart
from mercore.testing.stores import make_vectors
from tests.independent.exact_truth import KERNELS, RAW, nearest
from tests.support.adversarial import MAKERS, adversary

K = 7
GAMMA = {"rbf": 1e-4, "exp_chi2": 2.0}
SIGNED = ("cosine", "rbf", *RAW)
ADDITIVE = ("hellinger", "chi2", "intersection", "jensen_shannon", "exp_chi2")
OF_COORDINATES = ("cosine", "hellinger", "rbf", *RAW)
NORMED = tuple(kernel for kernel in KERNELS if kernel not in RAW)
BOUNDS = {  # with all defaults, which fit any rows
    "": KERNELS,
    "kpca-bound": NORMED,
    "pca-bound": RAW,
    "bin-bound": ADDITIVE,
    "kpca-pq": NORMED,
    "map-pq": ADDITIVE,
    "pq": OF_COORDINATES,
    "pca-pq": OF_COORDINATES,
}
MOST_MAPPED = 400  # dimensions; a matrix has their square
Sets = tuple[NDArray[Any], NDArray[Any]]
STYLED = [f"{style} {d}" for d in (1, 7, 5000) for style in STYLES]


@cache
def data_of(name: str, signed: bool) -> Sets:
    """Return rows and queries; styled rows come twice, an ulp apart, and permuted too."""
    if name in MAKERS:
        made = adversary(name, 90, 4)
        return made.rows, made.queries
    style, dims = name.split()
    n, d = 20, int(dims)
    first = kernel_rows(style, "float32", (n, d), signed=signed, seed=1)
    mixed = np.random.default_rng(2).permuted(first, axis=1)
    others = kernel_rows(style, "float32", (2, d), signed=signed, seed=3)
    rows = np.concatenate([first, one_ulp_apart(first, 1), first[::-1], mixed])
    return rows, np.concatenate([others, first[:1], np.ones((1, d), np.float32)])


def run_case(folder: Path, kernel: str, bound: str, name: str, **more: Any) -> None:
    """Search a store by a bound, or by every row; the ids are the true ones."""
    rows, queries = data_of(name, kernel in SIGNED)
    rng = np.random.default_rng([len(name), KERNELS.index(kernel), list(BOUNDS).index(bound)])
    part_rows = int(rng.choice([8, 16, 128]))
    options: dict[str, Any] = {"kernel": kernel, "gamma": GAMMA.get(kernel)}
    if kernel not in RAW and bound not in ("pq", "pca-pq") and rng.random() < 0.3:
        options["transform"] = 3.0
    if rows.shape[1] <= MOST_MAPPED and rng.random() < 0.3:  # keeps all scores
        options["linear_map"] = folder / "map.npy"
        np.save(folder / "map.npy", rng.permutation(np.eye(rows.shape[1], dtype=np.float32)))
    vectors = folder / f"vectors-{part_rows}-{kernel in SIGNED}"
    if not vectors.exists():
        make_vectors(vectors, rows, part_rows=part_rows)
    store = vectors
    if bound:
        store = folder / f"{bound}-{kernel}"
        metric = ":metric=product" if kernel == "inner_product" and "pq" in bound else ""
        part = int(rng.choice([9, 40]))
        mercore.encode(vectors, store, **options, encoder=bound + metric, part_rows=part)
        options = {}
    how = more or {"threads": int(rng.integers(1, 3))}
    batch = int(rng.choice([1, 3, 64]))
    _, hits = mercore.search(store, queries, k=K, exact=True, batch=batch, **options, **how)
    np.testing.assert_array_equal(hits.ids, true_ids(kernel, name))


@cache
def true_ids(kernel: str, name: str) -> NDArray[np.int64]:
    """Return the true neighbours."""
    rows, queries = data_of(name, kernel in SIGNED)
    return nearest(kernel, rows, queries, K, gamma=GAMMA.get(kernel, 1.0))


def cases() -> Iterator[tuple[str, str]]:
    """Yield every kernel with every bound."""
    yield from (
        (kernel, bound) for kernel in KERNELS for bound in BOUNDS if kernel in BOUNDS[bound]
    )


def run_set(name: str, folder: Path) -> None:
    """Search a set by every kernel and every bound."""
    for kernel, bound in cases():
        with in_case(kernel=kernel, bound=bound):
            run_case(folder, kernel, bound, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["huge_range 7"])
def test_a_sample_of_the_grid(name: str, tmp_path: Path) -> None:
    run_set(name, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [*MAKERS, *STYLED])
@pytest.mark.promise(
    "Exact search returns the true neighbours, under every kernel and on adversarial rows"
)
def test_every_kernel_bound_and_set(name: str, tmp_path: Path) -> None:
    run_set(name, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize(("kernel", "bound"), [*cases()])
def test_processes_find_the_same(kernel: str, bound: str, tmp_path: Path) -> None:
    run_case(tmp_path, kernel, bound, "duplicated", processes=2)
