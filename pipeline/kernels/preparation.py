"""Domain checks and normalisations of rows."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import InputError
from mercore.stores.wording import command


@dataclass(frozen=True)
class Domain:
    """The rows that a kernel takes, all finite, some with negative values or all zero."""

    kernel: str
    signed: bool
    zero_rows: bool


def checked(rows: NDArray[Any], domain: Domain, *, first: int, label: str) -> NDArray[np.float64]:
    """Return the rows as float64[n, d] if all lie in the kernel's domain.

    Raises
    ------
    InputError
        If a row does not; the message names the first.
    """
    values = np.ascontiguousarray(rows, dtype=np.float64)
    for bad, what, expected, fix in _faults(rows if rows.dtype.kind != "f" else values, domain):
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"{label} {first + row} {what}: found {_shown(rows[row])}, but kernel "
                f"{domain.kernel} {expected}. "
                f"Fix: {fix}."
            )
    return values


def l1_roundings(d: int) -> float:
    """Return a bound, in u, of the relative error of a value of a row that sums to one.

    The two divisions and the terms of the sum are 3. The depth of a pairwise sum of n ≤ 128 is at
    most n / 8 + 9, and one more per halving: in all at most min(d, 20 + log2 d). Values that
    underflow are below 1e−323 of the peak.
    """
    return 3 + min(d, 20 + math.log2(d))


def l1_normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows that sum to one, float64[n, d]."""
    from mercore.pipeline.kernels import preparation_numba

    out = np.empty_like(values)
    preparation_numba.l1_normalise(values, out)
    return out


def l2_normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows of unit Euclidean norm, float64[n, d]."""
    scaled = values / np.abs(values).max(axis=1, keepdims=True)
    return np.asarray(scaled / np.sqrt(np.square(scaled).sum(axis=1, keepdims=True)))


def _faults(
    values: NDArray[Any], domain: Domain
) -> Iterator[tuple[NDArray[np.bool_], str, str, str]]:
    """Yield (rows outside the domain, fault, the kernel's demand, fix), fault by fault."""
    integers = values.dtype.kind != "f"
    if not integers:
        with np.errstate(over="ignore", invalid="ignore"):
            fine = np.isfinite(values.sum())  # one number that is not finite shows in the sum
        finite = np.ones(len(values), np.bool_) if fine else np.isfinite(values).all(axis=1)
        yield ~finite, "has a NaN or infinite value", "needs finite ones", "clean the data"
    if values.dtype.kind != "u" and not domain.signed:
        negative = np.asarray((values < 0).any(axis=1))
        yield (
            negative,
            "has a negative value",
            "is defined for values ≥ 0",
            "use cosine or rbf, or shift the data",
        )
    if not domain.zero_rows:
        zero = ~np.asarray(values.any(axis=1))
        ingest = command("ingest", drop_zero_rows=True)
        fix = f"{ingest} drops such rows and keeps the ids of the others"
        yield zero, "is all zero", "needs a non-zero row", fix


def _shown(row: NDArray[Any]) -> str:
    """Return the first values of a row as messages show them."""
    values = np.array2string(row[:4], separator=", ", precision=4).rstrip("]")
    return f"{values}{', …' if row.size > 4 else ''}]"
