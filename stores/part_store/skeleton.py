"""The skeleton of a store: all metadata and the model, so every file except the parts."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import NotFoundError
from mercore.stores.location.protocol import ROOT, Location
from mercore.stores.part_store.column import column_metadata, encode_chunk, same_metadata
from mercore.stores.part_store.header import Header, header_attributes, model_column
from mercore.stores.part_store.receipts import receipts_column


def metadata_files(header: Header) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the bytes of every ``zarr.json`` of a store."""
    layout = header.layout
    yield ROOT, root_metadata(header)
    for column in (*map(layout.column, layout.column_names), receipts_column(layout.parts)):
        yield f"{column.name}/zarr.json", column_metadata(column)
    if layout.model:
        yield "model/zarr.json", _group_json({})
    for name, entry in layout.model.items():
        yield f"model/{name}/zarr.json", column_metadata(model_column(name, entry))


def model_files(header: Header, model: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the bytes of every chunk of the model."""
    for name, values in model.items():
        column = model_column(name, header.layout.model[name])
        yield f"model/{column.chunk_key(0)}", encode_chunk(column, np.asarray(values))


def write_skeleton(location: Location, header: Header, model: Mapping[str, NDArray[Any]]) -> None:
    """Write the skeleton of a new store, except the metadata of its root."""
    for key, data in _files(header, model):
        if key != ROOT:
            (location / key).publish(data)


def publish_model(location: Location, header: Header, model: Mapping[str, NDArray[Any]]) -> None:
    """Publish the given arrays of the model of a header, with their metadata."""
    below = tuple(f"model/{name}/" for name in model)
    if model:
        for key, data in metadata_files(header):
            if key == f"model/{ROOT}" or key.startswith(below):
                (location / key).publish(data)
    for key, data in model_files(header, model):
        (location / key).publish(data)


def root_metadata(header: Header) -> bytes:
    """Return the ``zarr.json`` of the root of a store."""
    return _group_json(header_attributes(header))


def restore_skeleton(
    location: Location, header: Header, model: Mapping[str, NDArray[Any]]
) -> list[str]:
    """Write missing and wrong files of the skeleton again; return their keys."""
    wrong = [(key, data) for key, data in _files(header, model) if not holds(location, key, data)]
    for key, data in wrong:
        (location / key).publish(data)
    return [key for key, _ in wrong]


def wrong_metadata(location: Location, header: Header) -> list[str]:
    """Return the keys of the metadata files that are missing or disagree with the header.

    Until a growth is finished, columns may have their length of before.
    """
    wrong = [key for key, data in metadata_files(header) if not holds(location, key, data)]
    if not wrong or not header.layout.grown_from:
        return wrong
    before = replace(header.layout, rows=header.layout.grown_from[-1]["rows"])
    earlier = dict(metadata_files(replace(header, layout=before)))
    return [key for key in wrong if key == ROOT or not holds(location, key, earlier[key])]


def _files(header: Header, model: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the bytes of every file of the skeleton."""
    yield from metadata_files(header)
    yield from model_files(header, model)


def holds(location: Location, key: str, data: bytes) -> bool:
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
