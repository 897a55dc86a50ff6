"""Hits in HDF5 files, as ann-benchmarks has them: ``neighbors``, ``distances`` and ``scores``."""

from io import BytesIO
from typing import Any

from numpy.typing import NDArray

from mercore.stores.errors import MercoreError
from mercore.stores.formats.hdf5 import Hdf5Dataset
from mercore.stores.results.id_arrays import IdsAndScores, ids_and_scores

SUFFIXES = (".h5", ".hdf5")
SEPARATOR = "::"  # between a file and a dataset in it
NEIGHBOURS, SCORES, ROWS = "neighbors", ("scores", "distances"), "train"


def split_dataset(path: str) -> tuple[str, str | None]:
    """Return the file and the dataset of ``file.h5::dataset``; other paths name no dataset."""
    file, separator, dataset = path.rpartition(SEPARATOR)
    if separator and file.lower().endswith(SUFFIXES):
        return file, dataset
    return path, None


def read_hdf5_hits(path: str) -> IdsAndScores:
    """Return ids, int64[nq, k], and scores, float32 or float64 [nq, k] or None.

    Parameters
    ----------
    path : ``file.h5``, whose ids are ``neighbors``; or ``file.h5::name``, which has ids only

    Raises
    ------
    FormatError
        If the file is damaged, or has no such ids; see ``Hdf5Dataset``.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file, dataset = split_dataset(path)
    ids = Hdf5Dataset(file, dataset or NEIGHBOURS)
    arrays = {NEIGHBOURS: ids.read_all()}
    scores = next((name for name in SCORES if name in ids.names), None)
    if scores is not None and dataset in (None, NEIGHBOURS):
        arrays["distances"] = Hdf5Dataset(file, scores).read_all()
    return ids_and_scores(path, arrays)


def has_hits(path: str) -> bool:
    """Return whether an HDF5 file holds ids; one with rows to search holds vectors first."""
    file, dataset = split_dataset(path)
    if dataset not in (None, NEIGHBOURS):
        return False
    try:
        ids = Hdf5Dataset(file, NEIGHBOURS)
    except MercoreError:
        return False
    return dataset == NEIGHBOURS or ROWS not in ids.names


def hdf5_bytes(ids: NDArray[Any], scores: NDArray[Any] | None, distances: bool) -> bytes:
    """Return the HDF5 file of ``ids`` and ``scores``, both [nq, k].

    ``neighbors`` are the ids. ``distances`` are 1 − score, or the scores themselves if they are
    ``distances``. ``scores`` are the scores, which reading prefers.
    """
    import h5py

    stream = BytesIO()
    with h5py.File(stream, "w") as file:
        file.create_dataset(NEIGHBOURS, data=ids)
        if scores is not None:
            file.create_dataset("distances", data=scores if distances else 1 - scores)
            file.create_dataset("scores", data=scores)
    return stream.getvalue()
