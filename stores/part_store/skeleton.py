"""What a store is made of beside its parts: the metadata of every array and group, and the model's arrays."""

import json
from collections.abc import Iterator, Mapping
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
    yield ROOT, _group_json(header_attributes(header))
    for column in (*map(layout.column, layout.column_names), receipts_column(layout.parts)):
        yield f"{column.name}/zarr.json", column_metadata(column)
    if layout.model:
        yield "model/zarr.json", _group_json({})
    for name, entry in layout.model.items():
        yield f"model/{name}/zarr.json", column_metadata(model_column(name, entry))


def model_files(header: Header, model: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the bytes of every chunk of a store's model."""
    for name, values in model.items():
        column = model_column(name, header.layout.model[name])
        yield f"model/{column.chunk_key(0)}", encode_chunk(column, 0, np.asarray(values))


def write_skeleton(at: Location, header: Header, model: Mapping[str, NDArray[Any]]) -> None:
    """Write the metadata and the model of a new store, all but the root's metadata, which makes it a store."""
    for key, data in _files(header, model):
        if key != ROOT:
            (at / key).publish(data)


def root_metadata(header: Header) -> bytes:
    """Return the ``zarr.json`` of a store's root."""
    return dict(metadata_files(header))[ROOT]


def restore_skeleton(at: Location, header: Header, model: Mapping[str, NDArray[Any]]) -> list[str]:
    """Write those files of a store's metadata and model again that are missing or wrong; return their keys."""
    wrong = [(key, data) for key, data in _files(header, model) if not _holds(at, key, data)]
    for key, data in wrong:
        (at / key).publish(data)
    return [key for key, _ in wrong]


def wrong_metadata(at: Location, header: Header) -> list[str]:
    """Return the keys of the metadata files that are missing or say something else than the header does."""
    return [key for key, data in metadata_files(header) if not _holds(at, key, data)]


def _files(header: Header, model: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the bytes of every file of a store but those of its parts."""
    yield from metadata_files(header)
    yield from model_files(header, model)


def _holds(at: Location, key: str, data: bytes) -> bool:
    """Return whether a file holds ``data``, or an array's metadata that says the same in other words."""
    try:
        found = (at / key).read()
    except NotFoundError:
        return False
    return found == data or (key.endswith(ROOT) and same_metadata(found, data))


def _group_json(attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of a Zarr v3 group."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return (json.dumps(group, indent=2, sort_keys=True) + "\n").encode()
