"""What a store is made of beside its parts: the metadata of every array and group, and the model's arrays."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stores.columns import column_metadata, encode_chunk, same_metadata
from stores.header import Header, header_attributes, model_column
from stores.publish import publish, storage_errors
from stores.receipts import receipts_column


def metadata_files(header: Header) -> Iterator[tuple[str, bytes]]:
    """Yield the key and the bytes of every ``zarr.json`` of a store."""
    layout = header.layout
    yield "zarr.json", _group_json(header_attributes(header))
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


def write_skeleton(folder: Path, header: Header, model: Mapping[str, NDArray[Any]]) -> list[str]:
    """Write the metadata and the model into a store's folder, but no file that is right already; return their keys."""
    written = []
    for files in (metadata_files(header), model_files(header, model)):
        for key, data in files:
            if not _holds(folder / key, data):
                publish(folder / key, data)
                written.append(key)
    return written


def wrong_metadata(folder: Path, header: Header) -> list[str]:
    """Return the keys of the metadata files that are missing or say something else than the header does."""
    return [key for key, data in metadata_files(header) if not _holds(folder / key, data)]


def _holds(path: Path, data: bytes) -> bool:
    """Return whether a file holds ``data``, or an array's metadata that says the same in other words."""
    with storage_errors("read", path):
        try:
            found = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return found == data or (path.name == "zarr.json" and same_metadata(found, data))


def _group_json(attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of a Zarr v3 group."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    return (json.dumps(group, indent=2, sort_keys=True) + "\n").encode()
