"""Codes for a fair comparison: of every encoder one that costs the same operations a row, or the same bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from mercore.pipeline.encoders.aska import MAX_NONZERO_COEFS
from mercore.pipeline.encoders.encoder import EncoderSpec, check_range
from mercore.pipeline.encoders.kpca import MAX_LANDMARKS
from mercore.pipeline.encoders.kpca_jl import MAX_PROJECTIONS
from mercore.pipeline.encoders.kpca_lsh import MAX_BITS
from mercore.pipeline.encoders.pq import MAX_SUBQUANTIZERS
from mercore.stores.errors import InputError
from mercore.stores.part_store.header import row_bytes


@dataclass(frozen=True, kw_only=True)
class Size:
    """The field of a spec that sets how large a code is, up to ``most``, and what a scan does so often a row.

    A look-up is ``worth`` so many of them in the protocol of Davis, Balzer & Soatto (CVPR 2014, §3.2): there 8 atoms
    stand against 8 sub-quantizers, 300 bits and 32 Gaussian projections.
    """

    field: str
    operation: str
    most: int
    worth: Fraction = Fraction(1)


SIZES = (  # a spec's is the first that it has
    Size(field="n_nonzero_coefs", operation="look-ups", most=MAX_NONZERO_COEFS),
    Size(field="n_subquantizers", operation="look-ups", most=MAX_SUBQUANTIZERS),
    Size(field="n_bits", operation="bits", most=MAX_BITS, worth=Fraction(300, 8)),
    Size(field="n_projections", operation="multiply-adds", most=MAX_PROJECTIONS, worth=Fraction(32, 8)),
    Size(field="n_groups", operation="byte operations", most=1 << 15),
    Size(field="n_components", operation="multiply-adds", most=MAX_LANDMARKS),  # plain KPCA is not in the paper
)


def size_of(kind: type[EncoderSpec] | EncoderSpec) -> Size:
    """Return what sets the size of an encoder's codes."""
    names = {field.name for field in fields(kind)}
    return next(size for size in SIZES if size.field in names)


def code_bytes(spec: EncoderSpec) -> int:
    """Return the bytes of a row's code, uncompressed: those of all its columns."""
    return row_bytes(spec.columns("none"))


def operations(spec: EncoderSpec) -> str:
    """Return what a scan does for a row and query, in words."""
    size = size_of(spec)
    return f"{getattr(spec, size.field)} {size.operation}"


def equal_operations(kind: type[EncoderSpec], given: Mapping[str, Any], count: int) -> EncoderSpec:
    """Return the spec whose codes take the work of ``count`` look-ups a row; halves are rounded up.

    Where the sub-quantizers do not share the components out evenly and those are not among the fields ``given``, the
    components are raised to the next multiple.

    Raises
    ------
    InputError
        If ``count`` is out of range.
    """
    check_range("operations", count, (1, MAX_LANDMARKS), "--operations 8")
    size = size_of(kind)
    return _sized(kind, given, int(count * size.worth + Fraction(1, 2)))


def equal_bytes(kind: type[EncoderSpec], given: Mapping[str, Any], budget: int, *, dims: int) -> EncoderSpec:
    """Return the spec of the largest codes of at most ``budget`` bytes a row, for rows of ``dims`` numbers.

    Components are raised as in ``equal_operations``; those that are ``given`` must be shared out evenly, and so must
    the ``dims`` of a quantiser without components.

    Raises
    ------
    InputError
        If even the smallest code takes more.
    """
    smallest = _sized(kind, given, 1)
    least = code_bytes(smallest)
    if least > budget:
        raise InputError(
            f"no code fits: found at least {least} bytes a row, expected at most {budget}. Fix: --bytes {least}"
        )
    fitting = (spec for spec in _from_the_largest(kind, given, dims) if code_bytes(spec) <= budget)
    return next(fitting, smallest)  # the smallest too is impossible where other fields are: its check says so


def _from_the_largest(kind: type[EncoderSpec], given: Mapping[str, Any], dims: int) -> Iterator[EncoderSpec]:
    """Yield the specs of every possible size, the largest first."""
    for value in range(size_of(kind).most, 0, -1):
        spec = _sized(kind, given, value)
        if _possible(spec, dims):
            yield spec


def _sized(kind: type[EncoderSpec], given: Mapping[str, Any], value: int) -> EncoderSpec:
    """Return the spec of a size, its components raised to a multiple of the sub-quantizers if that is left open."""
    chosen = {**given, size_of(kind).field: value}
    spec = kind(**chosen)
    width = getattr(spec, "n_components", None)
    if hasattr(spec, "n_subquantizers") and width is not None and "n_components" not in given:
        return kind(**{**chosen, "n_components": -(-width // value) * value})
    return spec


def _possible(spec: EncoderSpec, dims: int) -> bool:
    """Return whether a spec's own parameters allow its size, whatever the store."""
    has: dict[str, int] = vars(spec)
    return (
        has.get("n_nonzero_coefs", 0) <= has.get("n_atoms", 0)
        and has.get("n_components", 0) <= has.get("n_landmarks", 0)
        and has.get("n_components", dims) % has.get("n_subquantizers", 1) == 0
    )
