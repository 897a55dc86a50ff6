"""The metadata of a store and its model: every file except the parts."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import NotFoundError
from mercore.stores.location.protocol import ROOT, Location
from mercore.stores.part_store.blocks import BLOCK_BYTES
from mercore.stores.part_store.column import column_metadata, encode_chunk, same_metadata
from mercore.stores.part_store.header import Header, Layout, header_attributes, model_column
from mercore.stores.part_store.receipts import receipts_column

File = tuple[str, bytes]  # the key of a file below a store, and its bytes


def metadata_files(header: Header) -> Iterator[File]:
    """Yield every ``zarr.json`` of a store."""
    yield ROOT, root_metadata(header)
    yield from columns_metadata(header)
    yield from _model_metadata(header.layout, header.layout.model)


def root_metadata(header: Header) -> bytes:
    """Return the ``zarr.json`` of the root of a store."""
    return _group_json(header_attributes(header))


def columns_metadata(header: Header) -> Iterator[File]:
    """Yield the ``zarr.json`` of each column, and of the receipts."""
    for column in (*header.columns.values(), receipts_column(header)):
        yield f"{column.name}/{ROOT}", column_metadata(column)


def _model_metadata(layout: Layout, names: Iterable[str]) -> Iterator[File]:
    """Yield the ``zarr.json`` of the group of the model, and of the named arrays in it."""
    for number, name in enumerate(names):
        if number == 0:
            yield f"model/{ROOT}", _group_json({})
        yield f"model/{name}/{ROOT}", column_metadata(model_column(name, layout.model[name]))


def model_files(header: Header, model: Mapping[str, NDArray[Any]]) -> Iterator[File]:
    """Yield the metadata and the chunks of some arrays of the model."""
    yield from _model_metadata(header.layout, model)
    for name, values in model.items():
        column = model_column(name, header.layout.model[name])
        yield f"model/{column.chunk_key(0)}", encode_chunk(column, np.asarray(values))


def files_beside_parts(header: Header, model: Mapping[str, NDArray[Any]]) -> Iterator[File]:
    """Yield every file of a store except its parts and the metadata of its root."""
    yield from columns_metadata(header)
    yield from model_files(header, model)


def keys_beside_parts(header: Header) -> Iterator[str]:
    """Yield the key of every file of a store except its parts and the metadata of its root."""
    yield from (key for key, _ in metadata_files(header) if key != ROOT)
    for name, entry in header.layout.model.items():
        yield f"model/{model_column(name, entry).chunk_key(0)}"


def publish_files(location: Location, files: Iterable[File]) -> None:
    """Publish files of a store, one after another."""
    for key, data in files:
        (location / key).publish(data)


def wrong_metadata(location: Location, header: Header) -> list[str]:
    """Return the keys of the metadata files that are missing or disagree with the header.

    Until a growth is finished, the metadata of columns may state the rows of the state before.
    Until blocks are added, the receipts may have the width for them (see ``add_blocks.py``).
    """
    others = []
    if header.layout.grown_from:
        rows = header.layout.grown_from[-1]["rows"]
        others.append(replace(header, layout=replace(header.layout, rows=rows)))
    if not header.block_bytes:
        others.append(replace(header, block_bytes=BLOCK_BYTES))
    wrong = wrong_files(location, metadata_files(header))
    for other in others:
        expected = {**dict(wrong), **dict(columns_metadata(other))}
        wrong = wrong_files(location, [(key, expected[key]) for key, _ in wrong])
    return [key for key, _ in wrong]


def wrong_files(location: Location, files: Iterable[File]) -> list[File]:
    """Return those files that are missing in a store, or say something else there."""
    return [(key, data) for key, data in files if not _holds(location, key, data)]


def _holds(location: Location, key: str, data: bytes) -> bool:
    """Return whether a file holds ``data``, or metadata that says the same in other words."""
    try:
        stored = (location / key).read()
    except NotFoundError:
        return False
    return stored == data or (key.endswith(ROOT) and same_metadata(stored, data))


def _group_json(attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of a Zarr v3 group."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return (json.dumps(group, indent=2, sort_keys=True) + "\n").encode()
