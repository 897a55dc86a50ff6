"""Specs on disk: frozen dataclasses as canonical JSON, strict about fields and their types."""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from mercore.stores.errors import FormatError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Spec = TypeVar("Spec", bound="DataclassInstance")
ABSENT = "absent"  # metadata of a field: the value that is left out on disk
RESTORE = "Fix: restore the file from the store that was copied, or write it anew."


def canonical_json(value: object) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - JSON can be anything
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        If it is no JSON, is nested too deeply, or holds NaN or an infinite number.
    """
    try:
        value = json.loads(text)
        canonical_json(value)  # refuses NaN and infinite numbers
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def digest(value: object) -> str:
    """Return the digest of a JSON-able ``value``, 32 hexadecimal digits."""
    return hashlib.blake2b(canonical_json(value).encode(), digest_size=16).hexdigest()


def in_words(value: object) -> str:
    """Return a value of a spec as people write it: ``chi2``, ``rbf (gamma 0.5)``, ``a 1, b 2``."""
    if not isinstance(value, Mapping):
        return str(value)
    rest = value.get("configuration") if set(value) == {"name", "configuration"} else None
    if rest is None:
        return ", ".join(f"{key} {in_words(entry)}" for key, entry in value.items())
    return f"{value['name']} ({in_words(rest)})" if rest else str(value["name"])


def to_json(spec: object) -> dict[str, Any]:
    """Return a spec dataclass as a JSON-able mapping, without fields at their ``ABSENT`` value.

    A field that is added with such a value does not change the digests of existing specs.
    """
    if not dataclasses.is_dataclass(spec) or isinstance(spec, type):
        raise TypeError(f"not a spec: {spec!r}")
    mapping: dict[str, Any] = json.loads(canonical_json(dataclasses.asdict(spec)))
    absent = _absent_values(type(spec))
    return {
        key: value for key, value in mapping.items() if key not in absent or value != absent[key]
    }


def from_json(kind: type[Spec], mapping: Mapping[str, Any], where: str) -> Spec:
    """Return the spec of dataclass ``kind`` that ``mapping`` describes.

    Raises
    ------
    FormatError
        If it is no mapping, has another name or version, or a field is missing, unknown or of
        another type.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(mapping, Mapping):  # JSON can be anything
        raise FormatError(
            f"{where}: found {mapping!r}, expected the fields of {fields['name'].default}. "
            f"{RESTORE}"
        )
    for key in ("name", "version"):
        expected = fields[key].default
        if mapping.get(key) != expected:
            raise FormatError(
                f"{where}: {key} is {mapping.get(key)!r}, expected {expected!r}. "
                "Fix: read it with the version of mercore that wrote it, or write it anew."
            )
    mapping = {**_absent_values(kind), **mapping}
    if set(mapping) != set(fields):
        missing, unknown = sorted(set(fields) - set(mapping)), sorted(set(mapping) - set(fields))
        raise FormatError(
            f"{where}: its fields do not fit {fields['name'].default} version "
            f"{fields['version'].default}: "
            f"missing {missing}, unknown {unknown}. {RESTORE}"
        )
    check_types(mapping, _types(kind), where)
    return kind(**mapping)


def check_types(mapping: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    """Refuse a mapping that has other fields, or a value that is not of its type.

    An ``int`` is a count: 0 or more, and below 2^64. A ``float`` may be written as an ``int``.

    Raises
    ------
    FormatError
        If a field is missing, unknown or of another type.
    """
    if set(mapping) != set(types):
        found, expected = (", ".join(sorted(each)) for each in (mapping, types))
        raise FormatError(f"{where}: found the fields {found}: expected {expected}. {RESTORE}")
    for name, kind in types.items():
        if not _is_of(mapping[name], kind):
            expected = "a whole number, 0 or more" if kind is int else getattr(kind, "__name__", "")
            raise FormatError(
                f"{where}: {name} is {mapping[name]!r:.80}, expected "
                f"{str(kind).replace('typing.', '') if get_args(kind) else expected}. {RESTORE}"
            )


def _is_of(value: object, kind: Any) -> bool:  # noqa: ANN401 - a type, or a form of one
    """Return whether a JSON value is of a type."""
    if kind is int:
        return type(value) is int and 0 <= value < 1 << 64
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return abs(value) <= sys.float_info.max
    form, inner = get_origin(kind), get_args(kind)
    if form is UnionType:
        return any(_is_of(value, each) for each in inner)
    if isinstance(value, dict | list) and form is type(value):
        held = value.values() if isinstance(value, dict) else value
        return all(_is_of(each, inner[-1]) for each in held)
    return kind is Any or type(value) is kind


@cache
def _types(kind: "type[DataclassInstance]") -> dict[str, Any]:
    """Return the type of each field of a spec."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in dataclasses.fields(kind)}


def _absent_values(kind: "type[DataclassInstance]") -> dict[str, Any]:
    """Return the fields that may be left out, each with the value that this means."""
    return {
        field.name: field.metadata[ABSENT]
        for field in dataclasses.fields(kind)
        if ABSENT in field.metadata
    }
