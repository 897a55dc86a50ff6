"""Specs for a fair comparison: codes with the same operations or bytes per row."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from mercore.pipeline.encoders.encoder import EncoderSpec, check_range
from mercore.pipeline.encoders.kpca import MAX_LANDMARKS
from mercore.stores.errors import InputError
from mercore.stores.wording import setting


def code_bytes(spec: EncoderSpec) -> int:
    """Return the uncompressed bytes of a row's code, all columns together."""
    return sum(np.dtype(dtype).itemsize * (width or 1) for _, dtype, width in spec.code_columns())


def operations(spec: EncoderSpec) -> str:
    """Return the work of a scan per row and query, in words."""
    return f"{getattr(spec, spec.size.field)} {spec.size.operation}"


def equal_operations(kind: type[EncoderSpec], given: Mapping[str, Any], count: int) -> EncoderSpec:
    """Return the spec whose codes cost the work of ``count`` look-ups per row.

    Halves are rounded up.

    Fields that are not ``given`` may be adapted to the size (see ``EncoderSpec.of_size``).

    Raises
    ------
    InputError
        If ``count`` is out of range.
    """
    check_range("operations", count, (1, MAX_LANDMARKS), setting(operations=8))
    return kind.of_size(int(count * kind.size.worth + Fraction(1, 2)), given)


def equal_bytes(
    kind: type[EncoderSpec], given: Mapping[str, Any], budget: int, *, rows: int, dims: int
) -> EncoderSpec:
    """Return the spec of the largest codes of at most ``budget`` bytes per row.

    Fields are adapted as in ``equal_operations``; those that are ``given``, and ``rows`` rows of
    ``dims`` numbers, must allow the size.

    Raises
    ------
    InputError
        If the smallest code takes more.
    """
    smallest = kind.of_size(1, given)
    least = code_bytes(smallest)
    if least > budget:
        raise InputError(
            f"no code fits: found at least {least} bytes a row, expected at most {budget}. Fix: "
            f"{setting(bytes=least)}"
        )
    sizes = range(kind.size.most, 0, -1)
    specs = (kind.of_size(value, given).with_defaults_for(rows, dims) for value in sizes)
    fitting = (spec for spec in specs if spec.size_fits(dims) and code_bytes(spec) <= budget)
    return next(fitting, smallest)  # if no size is possible, the check of the smallest one says why
