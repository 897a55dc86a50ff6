"""Domain checks and normalisations of rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stores.errors import InputError


def checked(
    rows: NDArray[Any], *, kernel: str, first: int, label: str, signed: bool, zero_rows: bool
) -> NDArray[np.float64]:
    """Return the rows as float64[n, d] if all lie in the kernel's domain.

    Raises
    ------
    InputError
        Naming the first row that does not.
    """
    values = np.ascontiguousarray(rows, dtype=np.float64)
    if rows.dtype.kind == "f":
        _refuse(
            ~np.isfinite(values).all(axis=1),
            rows,
            first,
            f"{label} {{}} has a NaN or infinite value",
            f"kernel {kernel} needs finite ones",
            "clean the data",
        )
        if not signed:
            _refuse(
                (values < 0).any(axis=1),
                rows,
                first,
                f"{label} {{}} has a negative value",
                f"kernel {kernel} is defined for values ≥ 0",
                "use cosine or rbf, or shift the data",
            )
    if not zero_rows:
        _refuse(
            ~values.any(axis=1),
            rows,
            first,
            f"{label} {{}} is all zero",
            f"kernel {kernel} needs a non-zero row",
            "mercore ingest --drop-zero-rows drops such rows and keeps the ids of the others",
        )
    return values


def l1_normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows that sum to one, float64[n, d]."""
    peak = values.max(axis=1, keepdims=True)
    scaled = values / peak  # rows of subnormal numbers would lose their digits in the sum
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


def l2_normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows of unit Euclidean norm, float64[n, d]."""
    scaled = values / np.abs(values).max(axis=1, keepdims=True)
    return np.asarray(scaled / np.sqrt(np.square(scaled).sum(axis=1, keepdims=True)))


def _refuse(bad: NDArray[np.bool_], rows: NDArray[Any], first: int, what: str, expected: str, mend: str) -> None:
    """Raise for the first bad row."""
    if bad.any():
        row = int(np.argmax(bad))
        shown = np.array2string(rows[row, :4], separator=", ", precision=4).rstrip("]")
        more = ", …" if rows.shape[1] > 4 else ""
        raise InputError(f"{what.format(first + row)}: found {shown}{more}], but {expected}. Mend: {mend}.")
