"""A path at which a verb is to write a store part by part, checked before the sources are there."""

from pathlib import Path

import numpy as np
import pytest

from mercore.jobs.verbs.encode import EncodeOptions
from mercore.jobs.verbs.index import IndexOptions
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.stores.errors import ExistsError, NotFoundError
from mercore.testing.stores import make_vectors


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
