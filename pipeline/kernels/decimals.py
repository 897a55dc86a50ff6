"""Scores of raw rows in decimal numbers, with more digits than float64 ties need.

A row of floats is a row of integers times one power of two, so sums and products are exact in
integers. A ratio or root is rounded down to an integer multiple of 2^−BITS.
"""

import functools
import math
import operator
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext

import numpy as np

from mercore.pipeline.arrays import Rows
from mercore.pipeline.kernels.kernel import Kernel

TIE = Decimal("1e-50")  # scores no further apart are tied
BITS = 400  # 120 digits: the transforms lose up to 30 of them, each
DIGITS = 130
MANTISSA = 53

Integers = list[int]
Shape = tuple[tuple[int, int], ...]


def decimal_score(kernel: Kernel, x: Rows, y: Rows) -> Decimal | None:
    """Return K of two raw rows in real numbers to within 1e-55.

    None for a kernel without a formula.

    The error is absolute: 2 d · 2^−400 for a sum, times s for each transform exp(s (κ − 1)), where
    s ≤ 2e30 and 1e30. ``Kernel.prepare`` checks the domain, this function does not.

    Parameters
    ----------
    x, y : uint8, int8, float16, float32 or float64 [d]
    """
    with localcontext(Context(prec=DIGITS)):
        return kernel.decimal(x, y)


def is_of_shared_terms(kernel: Kernel) -> bool:
    """Return whether dimensions in which one of the rows is zero add nothing to the score."""
    return kernel.shared_terms


def tie_at(kernel: Kernel, score: Decimal) -> Decimal:
    """Return the greatest difference of two scores that tie."""
    return TIE * abs(score) if kernel.relative_ties else TIE


def from_units(score: int) -> Decimal:
    """Return a score in units of 2^−BITS as a decimal number of the current context."""
    return Decimal(score) / (1 << BITS)


def shape(x: Rows, y: Rows) -> Shape:
    """Return the sorted pairs of values of integer rows without a common divisor.

    It does not change with the scale of a row, nor with the order of the dimensions.
    """
    a, b, _ = integers(x, y)
    first, second = math.gcd(*a), math.gcd(*b)
    return tuple(sorted(zip((p // first for p in a), (q // second for q in b), strict=True)))


def shared(x: Integers, y: Integers) -> Iterator[tuple[int, int]]:
    """Yield the values of the dimensions where neither row is zero."""
    return ((a, b) for a, b in zip(x, y, strict=True) if a and b)


def squared_distance(x: Rows, y: Rows) -> Decimal:
    """Return ‖x − y‖²."""
    a, b, exponent = integers(x, y)
    squares = sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
    return squares * Decimal(4) ** exponent


def integers(x: Rows, y: Rows) -> tuple[Integers, Integers, int]:
    """Return integers a, b and the greatest exponent e with x = a 2^e and y = b 2^e.

    Dimensions in which both rows are zero are left out.
    """
    values = np.stack([x, y])
    values = values[:, values.any(axis=0)]
    (a, b), exponent = (
        (values.tolist(), 0) if values.dtype.kind in "iu" else _shifted_mantissas(values)
    )
    common = functools.reduce(operator.or_, a + b, 0)
    zeros = max(0, (common & -common).bit_length() - 1)
    if zeros:
        a, b = ([value >> zeros for value in row] for row in (a, b))
    return a, b, exponent + zeros


def _shifted_mantissas(values: Rows) -> tuple[list[Integers], int]:
    """Return integers [2, d] and the exponent that make the floats [2, d] of them."""
    fractions, exponents = np.frexp(values.astype(np.float64))
    mantissas = np.ldexp(fractions, MANTISSA).astype(np.int64)
    filled = mantissas != 0
    least = int(exponents.min(where=filled, initial=1024))
    shifts = np.where(filled, exponents - least, 0)
    lists = [
        [value << shift for value, shift in zip(row, by, strict=True)]
        for row, by in zip(mantissas.tolist(), shifts.tolist(), strict=True)
    ]
    return lists, least - MANTISSA
