"""What a store says of itself: its kind, its spec, and how its rows lie on disk."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError, NotFoundError
from mercore.stores.location.protocol import ROOT
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.column import Column, encode_chunk, payload_checksum
from mercore.stores.spec import digest, from_json


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a store's rows lie on disk: its columns, and each model array's dtype, shape and checksum."""

    name: str = "mercore-layout"
    version: int = 1
    rows: int
    part_rows: int
    columns: list[dict[str, Any]]
    model: dict[str, dict[str, Any]]

    @property
    def parts(self) -> int:
        """Number of parts; the last may be ragged."""
        return -(-self.rows // self.part_rows)

    def column(self, name: str) -> Column:
        """Return the named column."""
        (fields,) = (fields for fields in self.columns if fields["name"] == name)
        return Column(**fields, rows=self.rows, part_rows=self.part_rows)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns in their order."""
        return [fields["name"] for fields in self.columns]


def column_fields(name: str, dtype: str, width: int | None, compressor: str = "none") -> dict[str, Any]:
    """Return one entry of ``Layout.columns``."""
    return {"name": name, "dtype": dtype, "width": width, "compressor": compressor}


def row_bytes(columns: Sequence[Mapping[str, Any]]) -> int:
    """Return the bytes that a row takes in entries of ``Layout.columns``, uncompressed."""
    return sum(np.dtype(column["dtype"]).itemsize * (column["width"] or 1) for column in columns)


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a store says of itself: its kind, its spec, its layout, and notes that do not name the job."""

    kind: str
    spec: dict[str, Any]
    layout: Layout
    notes: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def job(self) -> str:
        """Digest of all that decides the bytes of the parts."""
        return digest({"kind": self.kind, "spec": self.spec, "layout": _layout_json(self.layout)})


def model_entries(model: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Any]]:
    """Return the entries of ``Layout.model`` for a model's arrays."""
    entries = {}
    for name, values in model.items():
        entry = {"dtype": values.dtype.name, "shape": list(values.shape)}
        data = encode_chunk(model_column(name, entry), 0, np.asarray(values))
        entries[name] = {**entry, "crc32c": f"{payload_checksum(data):08x}"}
    return entries


def open_header(where: Where) -> Header:
    """Return the header of the store there.

    Raises
    ------
    NotFoundError
        If nothing is there.
    FormatError
        If it is no store of mercore's, its metadata is damaged, or it is of another format version.
    """
    at = location_of(where)
    try:
        mapping = dict(json.loads((at / ROOT).read())["attributes"]["mercore"])
        stored = mapping.pop("digest")
    except (NotFoundError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, NotFoundError) and not at.exists():
            raise NotFoundError(f"{at} does not exist: expected a store. Fix: check the path.") from None
        raise FormatError(
            f"{at} is not a store of mercore: expected a Zarr group with a 'mercore' attribute. "
            "Fix: ingest the vectors, or name the store that encode wrote."
        ) from None
    header = _parse_header(mapping, str(at))
    if digest(mapping) != stored:
        raise IntegrityError(
            f"{at}: zarr.json is damaged: its digest is {digest(mapping)}, it says {stored}. "
            "Fix: restore it from a copy."
        )
    return header


def _parse_header(mapping: dict[str, Any], where: str) -> Header:
    """Return the header that the attributes hold; the layout's version is checked first."""
    layout = from_json(Layout, mapping.get("layout", {}), where)
    if set(mapping) != {"kind", "spec", "layout", "notes"}:
        raise FormatError(
            f"{where}: zarr.json has the fields {', '.join(sorted(mapping))}: expected kind, layout, notes, spec. "
            "Fix: restore it from a copy, or read it with the version of mercore that wrote it."
        )
    return Header(kind=mapping["kind"], spec=mapping["spec"], layout=layout, notes=mapping["notes"])


def header_attributes(header: Header) -> dict[str, Any]:
    """Return the attributes of the store's group: the header and its own digest."""
    mapping = _header_json(header)
    return {"mercore": {**mapping, "digest": digest(mapping)}}


def _header_json(header: Header) -> dict[str, Any]:
    return {"kind": header.kind, "spec": header.spec, "layout": _layout_json(header.layout), "notes": header.notes}


def _layout_json(layout: Layout) -> dict[str, Any]:
    fields = ("name", "version", "rows", "part_rows", "columns", "model")
    return {key: getattr(layout, key) for key in fields}


def model_column(name: str, entry: Mapping[str, Any]) -> Column:
    """Return a model array as a column of one chunk."""
    rows, *width = entry["shape"]
    return Column(name=name, dtype=entry["dtype"], width=width[0] if width else None, rows=rows, part_rows=rows)
