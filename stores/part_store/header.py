"""The header of a store: its kind, its spec, and its layout on disk."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError, NotFoundError
from mercore.stores.location.protocol import ROOT, Location
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.blocks import BLOCK_BYTES
from mercore.stores.part_store.column import (
    CHECKSUM_BYTES,
    DIGEST,
    Column,
    chunk_digest,
    encode_chunk,
    payload_checksum,
)
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.spec import ABSENT, RESTORE, check_types, digest, from_json, parse_json

MAX_BYTES = 1 << 48  # of a column or a model array: no disk has as many
MIN_BLOCK_BYTES = 1 << 10  # smaller blocks would make receipts long
MAX_PARTS = 1 << 22  # each is a file: commands that look at all of them have to end
NAME = re.compile("[a-z][a-z0-9_]*")  # it becomes the name of a folder
HEADER_TYPES = dict.fromkeys(("spec", "layout", "notes"), dict[str, Any]) | {
    "kind": str,
    "block_bytes": int,
}
COLUMN_TYPES = {"name": str, "dtype": str, "width": int | None, "compressor": str, "digest": str}
MODEL_TYPES = {"dtype": str, "shape": list[int], "crc32c": str, DIGEST: str}
STATE_TYPES = {"rows": int, "digest": str}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of a store: its columns, and dtype, shape and digest of each model array.

    ``grown_from`` are the earlier states of a store that has grown, oldest first: each with its
    ``rows`` and the ``digest`` of its header.
    """

    name: str = "mercore-layout"
    version: int = 1
    rows: int
    part_rows: int
    columns: list[dict[str, Any]]
    model: dict[str, dict[str, Any]]
    grown_from: list[dict[str, Any]] = field(default_factory=list, metadata={ABSENT: []})

    @property
    def parts(self) -> int:
        """Number of parts; the last may be ragged."""
        return -(-self.rows // self.part_rows)

    def column(self, name: str) -> Column:
        """Return the named column."""
        (fields,) = (fields for fields in self.columns if fields["name"] == name)
        return Column(**fields, rows=self.rows, part_rows=self.part_rows)

    def check_columns(self, expected: Sequence[Mapping[str, Any]], where: str) -> None:
        """Refuse other columns than ``expected``; compressors are not compared.

        Raises
        ------
        FormatError
            If a name, a dtype or a width differs.
        """
        found, wanted = (
            [f"{each['name']} {each['dtype']}[{each['width'] or ''}]" for each in columns]
            for columns in (self.columns, expected)
        )
        if found != wanted:
            raise FormatError(
                f"{where}: zarr.json has the columns {', '.join(found)}: expected "
                f"{', '.join(wanted)}, as its spec says. {RESTORE}"
            )

    @property
    def column_names(self) -> list[str]:
        """Names of the columns in their order."""
        return [fields["name"] for fields in self.columns]


def column_fields(
    name: str, dtype: str, width: int | None, compressor: str = "none"
) -> dict[str, Any]:
    """Return one entry of ``Layout.columns``."""
    return {"name": name, "dtype": dtype, "width": width, "compressor": compressor}


def row_bytes(columns: Sequence[Mapping[str, Any]]) -> int:
    """Return the uncompressed bytes per row of entries of ``Layout.columns``."""
    return sum(np.dtype(column["dtype"]).itemsize * (column["width"] or 1) for column in columns)


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a store: kind, spec, layout, and what does not count for its digest.

    ``notes`` say where the store comes from. Blocks of at most ``block_bytes`` have checksums of
    their own; in stores of earlier versions it is 0. ``text`` is the metadata that the header was
    read from, if it was.
    """

    kind: str
    spec: dict[str, Any]
    layout: Layout
    notes: dict[str, Any] = field(default_factory=dict)
    block_bytes: int = BLOCK_BYTES
    text: bytes | None = field(default=None, compare=False, repr=False)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The columns by name."""
        columns = map(self.layout.column, self.layout.column_names)
        return {column.name: replace(column, block_bytes=self.block_bytes) for column in columns}

    @cached_property
    def spec_digest(self) -> str:
        """Digest of everything that decides the bytes of the parts: kind, spec and layout."""
        return digest({"kind": self.kind, "spec": self.spec, "layout": _layout_json(self.layout)})


def model_entries(model: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, Any]]:
    """Return the entries of ``Layout.model`` for the arrays of a model."""
    entries = {}
    for name, values in model.items():
        entry = {"dtype": values.dtype.name, "shape": list(values.shape)}
        data = encode_chunk(model_column(name, entry), np.asarray(values))
        blake = chunk_digest(np.frombuffer(data, np.uint8)[:-CHECKSUM_BYTES])
        entries[name] = {**entry, "crc32c": f"{payload_checksum(data):08x}", DIGEST: blake}
    return entries


def open_header(where: Where) -> Header:
    """Read the header of a store.

    Raises
    ------
    NotFoundError
        If nothing is there.
    FormatError
        If it is no store of mercore, or of another format version.
    IntegrityError
        If its metadata is damaged.
    """
    location = location_of(where)
    try:
        return _header_in((location / ROOT).read(), location)
    except NotFoundError:
        if location.exists():
            raise _no_store(location) from None
        raise NotFoundError(
            f"{location} does not exist: expected a store. Fix: check the path."
        ) from None


def header_of_group(where: Where) -> Header | None:
    """Read the header of a store; None where no Zarr v3 group is, as every store of mercore is one.

    Raises
    ------
    FormatError, IntegrityError
        As ``open_header`` does.
    """
    location = location_of(where)
    try:
        text = (location / ROOT).read()
    except NotFoundError:
        return None
    return _header_in(text, location) if _is_group(text) else None


def _is_group(text: bytes) -> bool:
    """Return whether metadata are those of a Zarr v3 group."""
    try:
        root = parse_json(text)
    except ValueError:
        return b'"node_type": "group"' in text  # a damaged store, to be named as one
    return isinstance(root, dict) and root.get("node_type") == "group"


def _no_store(location: Location) -> FormatError:
    return FormatError(
        f"{location} is not a store of mercore: expected a Zarr group with a 'mercore' "
        "attribute. Fix: ingest the vectors, or name the store that encode wrote."
    )


def _header_in(text: bytes, location: Location) -> Header:
    """Return the header in the metadata of a store's root, every field checked."""
    try:
        mapping = dict(parse_json(text)["attributes"]["mercore"])
        stored = mapping.pop("digest")
    except (ValueError, KeyError, TypeError):
        raise _no_store(location) from None
    header = _parse_header(mapping, str(location))
    if digest(mapping) != stored:
        raise IntegrityError(
            f"{location}: zarr.json is damaged: its digest is {digest(mapping)}, it says {stored}. "
            "Fix: restore it from a copy."
        )
    check_types({"block_bytes": 0, **mapping}, HEADER_TYPES, str(location))
    _check_layout(header, str(location))
    return replace(header, text=text)


def _parse_header(mapping: dict[str, Any], where: str) -> Header:
    """Return the header in a store's attributes; the version of its layout is checked first."""
    layout = from_json(Layout, mapping.get("layout", {}), where)
    if set(mapping) - {"block_bytes"} != {"kind", "spec", "layout", "notes"}:
        raise FormatError(
            f"{where}: zarr.json has the fields {', '.join(sorted(mapping))}: expected kind, "
            "layout, notes, spec. "
            "Fix: restore it from a copy, or read it with the version of mercore that wrote it."
        )
    return Header(
        kind=mapping["kind"],
        spec=mapping["spec"],
        layout=layout,
        notes=mapping["notes"],
        block_bytes=mapping.get("block_bytes", 0),
    )


def _check_layout(header: Header, where: str) -> None:
    """Refuse a layout that no store can have, before anything is made of its numbers."""
    layout = header.layout
    for entry in layout.columns:
        check_types({"digest": "none", **entry}, COLUMN_TYPES, where)
    for entry in layout.grown_from:
        check_types(entry, STATE_TYPES, where)
    for entry in layout.model.values():
        check_types({DIGEST: "", **entry}, MODEL_TYPES, where)
    sizes = (layout.rows, layout.part_rows, *(state["rows"] for state in layout.grown_from))
    good = (
        all(1 <= size <= MAX_BYTES for size in sizes)
        and layout.parts <= MAX_PARTS
        and (header.block_bytes == 0 or MIN_BLOCK_BYTES <= header.block_bytes <= MAX_BYTES)
        and 1 <= len(layout.columns) == len(set(layout.column_names))
        and all(map(_can_be, map(layout.column, layout.column_names)))
        and all(len(entry["shape"]) in (1, 2) for entry in layout.model.values())
        and all(_can_be(model_column(*entry)) for entry in layout.model.items())
    )
    if not good:
        raise FormatError(
            f"{where}: zarr.json describes no layout of a store: found "
            f"{_layout_json(layout)!r:.200}, expected columns and arrays of numbers. {RESTORE}"
        )


def _can_be(column: Column) -> bool:
    """Return whether there can be such a column or model array."""
    try:
        dtype = np.dtype(column.dtype)
        check_compressor(column.compressor)
    except (TypeError, ValueError, SyntaxError):
        return False
    numbers = max(column.part_rows, column.rows) * (1 if column.width is None else column.width)
    return (
        NAME.fullmatch(column.name) is not None
        and column.digest in ("none", DIGEST)
        and dtype.kind in "biuf"
        and dtype.name == column.dtype
        and numbers * dtype.itemsize <= MAX_BYTES
    )


def header_attributes(header: Header) -> dict[str, Any]:
    """Return the attributes of a store: the header and its digest."""
    mapping = _header_json(header)
    return {"mercore": {**mapping, "digest": digest(mapping)}}


def _header_json(header: Header) -> dict[str, Any]:
    return {
        "kind": header.kind,
        "spec": header.spec,
        "layout": _layout_json(header.layout),
        "notes": header.notes,
    } | ({"block_bytes": header.block_bytes} if header.block_bytes else {})


def _layout_json(layout: Layout) -> dict[str, Any]:
    fields = ("name", "version", "rows", "part_rows", "columns", "model")
    grown = {"grown_from": layout.grown_from} if layout.grown_from else {}
    return {key: getattr(layout, key) for key in fields} | grown


def model_column(name: str, entry: Mapping[str, Any]) -> Column:
    """Return the column of one chunk that stores a model array."""
    rows, *width = entry["shape"]
    return Column(
        name=name,
        dtype=entry["dtype"],
        width=width[0] if width else None,
        rows=rows,
        part_rows=rows,
    )
