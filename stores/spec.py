"""Specs on disk: frozen dataclasses as canonical JSON, strict about unknown fields."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from mercore.stores.errors import FormatError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Spec = TypeVar("Spec", bound="DataclassInstance")
ABSENT = "absent"  # metadata of a field: the value that is left out on disk


def canonical_json(value: object) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


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
        If it is no mapping, has another name or version, or a field is missing or unknown.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(mapping, Mapping):  # JSON can be anything
        raise FormatError(
            f"{where}: found {mapping!r}, expected the fields of {fields['name'].default}. "
            "Fix: restore the file from the store that was copied, or write it anew."
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
            f"missing {missing}, unknown {unknown}. "
            "Fix: restore the file from the store that was copied, or write it anew."
        )
    return kind(**mapping)


def _absent_values(kind: "type[DataclassInstance]") -> dict[str, Any]:
    """Return the fields that may be left out, each with the value that this means."""
    return {
        field.name: field.metadata[ABSENT]
        for field in dataclasses.fields(kind)
        if ABSENT in field.metadata
    }
