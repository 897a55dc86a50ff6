"""Scores of raw rows in decimal numbers, to more digits than any tie of float64 needs.

A row of floats is a row of integers times one power of two, so sums, products and ratios are exact in integers. What is
no integer, a term's ratio or root, is an integer multiple of 2^−BITS, rounded down.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.kernels.kernel import Kernel
from mercore.pipeline.kernels.sums import Chi2, Cosine, Hellinger, Intersection, JensenShannon, Rbf
from mercore.pipeline.kernels.transform import Transformed

TIE = Decimal("1e-50")  # scores no further apart are tied
BITS = 400  # 120 digits: the transforms lose up to 30 of them, each
DIGITS = 130
MANTISSA = 53
SHAPES = 64  # whose scores are kept: rows that tie with one another come one after another

Row = NDArray[Any]
Integers = list[int]
Shape = tuple[tuple[int, int], ...]


def decimal_score(kernel: Kernel, x: Row, y: Row) -> Decimal | None:
    """Return K of two raw rows in real numbers, off by less than 1e-55; None for a kernel without a formula here.

    The error is absolute: 2 d · 2^−400 of a sum, times s of each transform exp(s (κ − 1)), s ≤ 2e30 and 1e30. Which
    rows lie in the domain is for ``Kernel.prepare`` to say.

    Parameters
    ----------
    x, y : uint8, float16, float32 or float64 [d]
    """
    with localcontext(Context(prec=DIGITS)):
        return _score(kernel, x, y)


def is_of_shared_terms(kernel: Kernel) -> bool:
    """Return whether a score is of the dimensions where neither row is zero: the same for all rows that share none."""
    while isinstance(kernel, Transformed):
        kernel = kernel.kernel
    return type(kernel) is JensenShannon or type(kernel) in _FORMULAS


def tie_at(kernel: Kernel, score: Decimal) -> Decimal:
    """Return the most that scores lie apart that tie: of a Gaussian a share, for far rows are all near zero."""
    return TIE * score if type(kernel) is Rbf else TIE


def _score(kernel: Kernel, x: Row, y: Row) -> Decimal | None:
    """Return K of two raw rows, in the context that is set."""
    if isinstance(kernel, Transformed):
        inner = _score(kernel.kernel, x, y)
        return None if inner is None else (Decimal(kernel.scale) * (inner - 1)).exp()
    if type(kernel) is Rbf:
        return (-Decimal(kernel.gamma) * _squared_distance(x, y)).exp()
    if type(kernel) is JensenShannon:
        return _jensen_shannon(_shape(*_integers(x, y)[:2]))
    formula = _FORMULAS.get(type(kernel))
    return None if formula is None else Decimal(formula(*_integers(x, y)[:2])) / (1 << BITS)


def _integers(x: Row, y: Row) -> tuple[Integers, Integers, int]:
    """Return integers a, b and an exponent e with x = a 2^e and y = b 2^e, where either is not zero, e the greatest."""
    values = np.stack([x, y])
    values = values[:, values.any(axis=0)]
    (a, b), exponent = (values.tolist(), 0) if values.dtype.kind == "u" else _shifted_mantissas(values)
    common = functools.reduce(operator.or_, a + b, 0)
    zeros = max(0, (common & -common).bit_length() - 1)
    if zeros:
        a, b = ([value >> zeros for value in row] for row in (a, b))
    return a, b, exponent + zeros


def _shifted_mantissas(values: Row) -> tuple[list[Integers], int]:
    """Return the integers, [2, d], and an exponent that make floats [2, d]."""
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


def _shared(x: Integers, y: Integers) -> Iterator[tuple[int, int]]:
    """Yield the values of the dimensions where neither row is zero."""
    return ((a, b) for a, b in zip(x, y, strict=True) if a and b)


def _chi2(x: Integers, y: Integers) -> int:
    """Return Σ 2xy / (x + y) of the rows divided by their sums, in units of 2^−BITS."""
    X, Y = sum(x), sum(y)
    return sum((a * b << BITS + 1) // (a * Y + b * X) for a, b in _shared(x, y))


def _intersection(x: Integers, y: Integers) -> int:
    """Return Σ min(x, y) of the rows divided by their sums, in units of 2^−BITS."""
    X, Y = sum(x), sum(y)
    return (sum(min(a * Y, b * X) for a, b in _shared(x, y)) << BITS) // (X * Y)


def _hellinger(x: Integers, y: Integers) -> int:
    """Return Σ √(xy) of the rows divided by their sums, in units of 2^−BITS."""
    both = sum(x) * sum(y)
    return sum(math.isqrt((a * b << 2 * BITS) // both) for a, b in _shared(x, y))


def _cosine(x: Integers, y: Integers) -> int:
    """Return ⟨x, y⟩ / (‖x‖ ‖y‖) in units of 2^−BITS."""
    product = sum(a * b for a, b in _shared(x, y))
    squares = sum(a * a for a in x) * sum(b * b for b in y)
    size = math.isqrt((product * product << 2 * BITS) // squares)
    return size if product >= 0 else -size


def _shape(x: Integers, y: Integers) -> Shape:
    """Return the pairs of values of two rows, each row divided by what its values share, in ascending order."""
    first, second = math.gcd(*x), math.gcd(*y)
    return tuple(sorted(zip((a // first for a in x), (b // second for b in y), strict=True)))


@functools.lru_cache(maxsize=SHAPES)
def _jensen_shannon(shape: Shape) -> Decimal:
    """Return Σ ½ [x log2((x + y)/x) + y log2((x + y)/y)] of the rows of a shape divided by their sums.

    Neither the rows' scales nor the order of dimensions count. Rows that tie, and are not equal, are mostly of one
    shape, and logarithms of so many digits take long.
    """
    X, Y = sum(a for a, _ in shape), sum(b for _, b in shape)
    total = Decimal(0)
    for a, b in ((a * Y, b * X) for a, b in shape if a and b):
        both = Decimal(a + b)
        total += a * (both / a).ln() + b * (both / b).ln()
    return total / (2 * X * Y * Decimal(2).ln())


def _squared_distance(x: Row, y: Row) -> Decimal:
    """Return ‖x − y‖²."""
    a, b, exponent = _integers(x, y)
    squares = sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
    return squares * Decimal(4) ** exponent


_FORMULAS: dict[type[Kernel], Callable[[Integers, Integers], int]] = {
    Chi2: _chi2,
    Intersection: _intersection,
    Hellinger: _hellinger,
    Cosine: _cosine,
}
