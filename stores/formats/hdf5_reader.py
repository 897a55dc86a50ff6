"""The process that reads an HDF5 dataset: the C library may crash on a damaged file.

``python -P hdf5_reader.py FILE [DATASET]`` imports nothing of mercore. It answers each line
``START STOP`` on stdin on stdout: one line of JSON, then the bytes of the rows. Its first line
describes the dataset, and names what lies beside it in the root of the file. The key ``error`` says
what is wrong.
"""

import json
import os
import signal
import sys
from itertools import islice
from typing import Any

import h5py
import numpy as np

CACHE_BYTES = 32 << 20  # of decoded chunks
MOST_CHUNK_BYTES = 1 << 30
MOST_RATIO = 1100  # of compression: gzip's limit is 1032
MOST_NAMES = 10_000  # of the root, none of them longer than 100
SHOWN_NAMES = 20
SECONDS = 300  # a block that takes longer ends the process


class RefusedError(Exception):
    """A file that the library can read, and that will not do."""


def main(path: str, member: str | None) -> None:
    """Open the dataset, then answer until stdin ends."""
    signal.alarm(SECONDS)
    try:
        file = h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES, locking=False)
        dataset = _dataset(path, file, member)
        beside = [name for name in islice(file, MOST_NAMES) if len(name) <= 100]
    except Exception as error:  # noqa: BLE001 - h5py raises anything for damaged files
        _answer(_wrong(error))
        return
    about = {"member": dataset.name.removeprefix("/"), "shape": dataset.shape, "names": beside}
    _answer({**about, "dtype": dataset.dtype.str})
    for line in sys.stdin:
        start, stop = map(int, line.split())
        signal.alarm(SECONDS)
        try:
            rows = np.ascontiguousarray(dataset[start:stop])
        except Exception as error:  # noqa: BLE001
            _answer(_wrong(error))
        else:
            _answer({"bytes": rows.nbytes}, rows.view(np.uint8).reshape(-1).data)


def _dataset(path: str, file: Any, member: str | None) -> Any:  # noqa: ANN401 - h5py has no types
    """Return the dataset; refuse one that has not two dimensions or cannot be read in blocks."""
    if member is None:
        names = [name for name, dims in _datasets(file) if dims == 2]
        if len(names) != 1:
            raise RefusedError(
                f"{len(names)} datasets of two dimensions ({_shown(names)}), "
                f"expected one. Fix: name one, as {path}::{names[0] if names else 'train'}"
            )
        member = names[0]
    dataset = file.get(member)
    if not isinstance(dataset, h5py.Dataset):
        shown = _shown([name for name, _ in _datasets(file)])
        raise RefusedError(
            f"no dataset {member!r}, expected one of: {shown}. Fix: name one, as {path}::NAME"
        )
    if dataset.shape is None or len(dataset.shape) != 2:
        raise RefusedError(
            f"dataset {member!r} has shape {dataset.shape}, expected two dimensions, (n, d). "
            "Fix: name another dataset, or reshape it."
        )
    if dataset.dtype.kind not in "biufc":
        raise RefusedError(
            f"dataset {member!r} is of {dataset.dtype}, expected numbers. Fix: name another "
            "dataset."
        )
    if dataset.file.filename != file.filename or dataset.external or dataset.is_virtual:
        raise RefusedError(
            f"the numbers of dataset {member!r} lie in another file, expected them in this one. "
            "Fix: copy them into this file, for example with h5copy."
        )
    _check_size(path, member, dataset)
    return dataset


def _check_size(path: str, member: str, dataset: Any) -> None:  # noqa: ANN401
    """Refuse a dataset that does not fit its file, or whose chunks do not fit the memory."""
    size = os.path.getsize(path)  # noqa: PTH202 - a light import
    if dataset.shape[0] * dataset.shape[1] * dataset.dtype.itemsize > MOST_RATIO * size:
        raise RefusedError(
            f"dataset {member!r} has the shape {dataset.shape} of {dataset.dtype}, but the file "
            f"has only {size} bytes. Fix: fetch or write the file again."
        )
    chunk = int(np.prod(dataset.chunks or (0,), dtype=object)) * dataset.dtype.itemsize
    if chunk > MOST_CHUNK_BYTES:
        raise RefusedError(
            f"a chunk of dataset {member!r} has {chunk} bytes, expected at most "
            f"{MOST_CHUNK_BYTES}. Fix: write it again with smaller chunks."
        )


def _datasets(file: Any) -> list[tuple[str, int]]:  # noqa: ANN401
    """Return the name and the count of dimensions of every dataset."""
    found: list[tuple[str, int]] = []

    def look(name: str, node: object) -> None:
        if isinstance(node, h5py.Dataset):
            found.append((name, len(node.shape or ())))

    file.visititems(look)
    return sorted(found)


def _shown(names: list[str]) -> str:
    """Return the first names of a list."""
    more = ", …" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more or "none"


def _wrong(error: Exception) -> dict[str, str]:
    """Return the answer that names an error."""
    if isinstance(error, RefusedError):
        return {"error": str(error)}
    text = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return {"error": f"it cannot be read ({text}). Fix: fetch or write the file again."}


def _answer(header: dict[str, Any], data: memoryview | bytes = b"") -> None:
    """Write an answer, however long the other process takes to read it."""
    signal.alarm(0)
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
