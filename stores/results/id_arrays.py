"""Ids and scores as arrays of a file: ``.npy``, ``.npz``, and the names that other tools use."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.npy import read_npy
from mercore.stores.location.local_file import LocalFile

# Ids and scores as called by mercore, by faiss, and by ann-benchmarks.
NAMES = (("ids", "scores"), ("I", "D"), ("neighbors", "distances"))
FIX = "Fix: name a file of hits."

IdsAndScores = tuple[NDArray[Any], NDArray[Any] | None]


def read_npy_ids(path: str) -> IdsAndScores:
    """Return the ids of a ``.npy``, int64[nq, k], such as ``faiss`` users save; it has no scores.

    Raises
    ------
    FormatError
        If the header is damaged, the size is not that of the header, or the array holds no ids.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    ids = read_npy(LocalFile(path))
    if ids.dtype.itemsize < 4:  # rows of vectors, as no program saves ids
        raise FormatError(f"{path}: ids {dtype_shape(ids)}, expected ids int64[nq, k]. {FIX}")
    return checked_ids(path, "ids", ids), None


def ids_and_scores(path: str, arrays: Mapping[str, NDArray[Any]]) -> IdsAndScores:
    """Return the ids among named arrays, int64[nq, k], and their scores if there are any.

    Scores are float32 or float64 [nq, k]; distances of whole numbers become float64.

    Raises
    ------
    FormatError
        If there are no ids, or the scores have another shape.
    """
    found = next((pair for pair in NAMES if pair[0] in arrays), None)
    if found is None:
        names = "ids, I or neighbors"
        raise FormatError(f"{path}: no array {names}, expected ids int64[nq, k]. {FIX}")
    name, scored = found
    ids, scores = checked_ids(path, name, arrays[name]), arrays.get(scored)
    if scores is None:
        return ids, None
    if scored != "scores" and scores.dtype.kind in "iu":
        scores = scores.astype(np.float64)
    if scores.shape != ids.shape or scores.dtype.kind != "f" or scores.dtype.itemsize > 8:
        raise FormatError(
            f"{path}: {scored} {dtype_shape(scores)}, expected floats {list(ids.shape)}. Fix: "
            "write the file again."
        )
    return ids, scores.astype(np.result_type(scores.dtype, np.float32))  # native, not float16


def checked_ids(path: str, name: str, ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return ids as int64, or refuse numbers that are no ids."""
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise FormatError(f"{path}: {name} {dtype_shape(ids)}, expected {name} int64[nq, k]. {FIX}")
    if ids.dtype.kind == "u" and ids.size and ids.max() > np.iinfo(np.int64).max:
        raise FormatError(f"{path}: id {ids.max()} is above int64. {FIX}")
    return ids.astype(np.int64)


def dtype_shape(array: NDArray[Any]) -> str:
    """Return dtype[shape]."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"
