"""A path at which a verb is to write a store part by part, checked before the sources are there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.jobs.verbs.encode import EncodeOptions
from mercore.jobs.verbs.index import IndexOptions
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.stores.errors import ExistsError, NotFoundError
from mercore.testing.stores import histograms, make_vectors
from tests.support.killing import kills


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (EncodeOptions(kernel=KernelOptions(name="chi2")), "code store"),
        (IndexOptions(), "store of orders"),
    ],
)
def test_a_target_is_new_or_of_the_same_kind(
    options: EncodeOptions | IndexOptions, what: str, tmp_path: Path
) -> None:
    make_vectors(tmp_path / "vectors", np.ones((20, 3), np.uint8))
    options.check_path(str(tmp_path / "new"))
    with pytest.raises(ExistsError, match=f"vectors exists and is no {what}: expected one"):
        options.check_path(str(tmp_path / "vectors"))
    with pytest.raises(NotFoundError):
        options.check_path(str(tmp_path / "missing" / "new"))


def test_sorted_orders_leave_nothing_of_a_killed_index_of_cells(tmp_path: Path) -> None:
    mercore.ingest(histograms(60, 4, seed=1), tmp_path / "vectors")
    for name, encoder in (("pq", "pq:subquantizers=2"), ("lsh", "kpca-lsh:landmarks=8,bits=8")):
        options: dict[str, Any] = {"kernel": "hellinger", "encoder": encoder}
        mercore.encode(tmp_path / "vectors", tmp_path / name, **options)
    index, beside = tmp_path / "index", tmp_path / "index.sorted"
    runs = kills(lambda _: mercore.index(tmp_path / "pq", index, cells=3))
    assert any(beside.exists() for _ in runs)
    assert not index.exists()
    mercore.index(tmp_path / "lsh", index, orders=2)
    assert not beside.exists()
    beside.mkdir()  # not ours
    mercore.index(tmp_path / "lsh", index, orders=2)
    assert beside.exists()
