"""Labels of a ``.npy`` and of an array: every type of integer that int64 holds, and no other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.stores.errors import FormatError, NotFoundError
from mercore.stores.formats.labels import open_labels
from mercore.testing.cases import loop_over

WHOLE = ["int8", "uint8", "<i2", ">i4", "uint32", ">i8", "int64"]


@loop_over(("dtype", "n"), [(dtype, n) for dtype in WHOLE for n in (0, 1, 50)])
def test_labels_are_read_as_int64(dtype: str, n: int, tmp_path: Path) -> None:
    labels = (np.arange(n) * 2).astype(dtype)
    np.save(tmp_path / "labels.npy", labels)
    for given in (labels, str(tmp_path / "labels.npy")):
        found = open_labels(given, "labels")
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, labels)


@loop_over(
    ("labels", "kind"),
    [
        (np.zeros(3, np.float32), "float32[3]"),
        (np.zeros(3, np.uint64), "uint64[3]"),
        (np.zeros(3, bool), "bool[3]"),
        (np.zeros((3, 1), np.int64), "int64[3, 1]"),
        (np.array(3), "int64[]"),
        (np.array(["a"]), "<U1[1]"),
    ],
)
def test_anything_else_is_refused(labels: Any, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.npy"
    np.save(path, labels)
    for given, name in ((labels, "query labels"), (str(path), str(path))):
        with pytest.raises(FormatError) as error:
            open_labels(given, "query labels")
        assert str(error.value) == (
            f"{name}: {kind}, expected labels, int64[n]. Fix: save one whole number per row as a "
            "one-dimensional array."
        )


def test_a_file_of_another_size_or_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.npy"
    with pytest.raises(NotFoundError):
        open_labels(str(path), "labels")
    np.save(path, np.zeros(4, np.int64))
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(FormatError, match="161 bytes, expected 160 for the header's"):
        open_labels(str(path), "labels")
