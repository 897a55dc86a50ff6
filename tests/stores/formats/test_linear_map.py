"""The matrix of a linear map is read from either order, and a file that is none is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError, MercoreError, NotFoundError
from mercore.stores.formats.linear_map import read_linear_map
from mercore.testing.cases import loop_over

MATRIX = np.random.default_rng(0).standard_normal((3, 5))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_of_any_order_is_read_as_float32(tmp_path: Path, dtype: str, order: Any) -> None:
    np.save(tmp_path / "map.npy", np.asarray(MATRIX, dtype, order=order))
    matrix = read_linear_map(str(tmp_path / "map.npy"))
    np.testing.assert_array_equal(matrix, MATRIX.astype(np.float32), strict=True)
    assert matrix.flags.c_contiguous


def changed(value: float) -> NDArray[Any]:
    matrix = MATRIX.copy()
    matrix[1, 4] = value
    return matrix


TWO_DIMS = "an array of shape {}, expected a matrix of two dimensions, (d', d). Fix: reshape it."
FLOATS = (
    "the numbers are {}, expected float32 or float64. Fix: numpy.save(path, "
    "matrix.astype(numpy.float32))."
)
FINITE = "row 1, column 4 holds {}, expected a finite float32. Fix: correct the matrix."


@loop_over(
    ("array", "error", "message"),
    [
        (MATRIX[0], FormatError, TWO_DIMS.format("(5,)")),
        (MATRIX[None], FormatError, TWO_DIMS.format("(1, 3, 5)")),
        (MATRIX.astype(np.int32), FormatError, FLOATS.format("int32")),
        (MATRIX.astype(np.float16), FormatError, FLOATS.format("float16")),
        (
            MATRIX[:0],
            FormatError,
            "a matrix of shape (0, 5), expected at least one row. Fix: save it again.",
        ),
        (changed(np.nan), InputError, FINITE.format("nan")),
        (changed(-np.inf), InputError, FINITE.format("-inf")),
        (changed(1e39), InputError, FINITE.format("1e+39")),
    ],
)
def test_what_is_no_matrix_is_refused(
    tmp_path: Path, array: NDArray[Any], error: type[MercoreError], message: str
) -> None:
    path = tmp_path / "map.npy"
    np.save(path, array)
    with pytest.raises(error, match=f"^{re.escape(f'{path}: {message}')}$"):
        read_linear_map(str(path))


def test_files_that_are_missing_or_cut_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.npy"
    with pytest.raises(NotFoundError, match=re.escape(str(path))):
        read_linear_map(str(path))
    np.save(path, MATRIX)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match=r"247 bytes, expected 248 for the header's \(3, 5\)"):
        read_linear_map(str(path))
