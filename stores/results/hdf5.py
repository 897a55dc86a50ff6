"""Hits in HDF5 files, as ann-benchmarks has them: ``neighbors``, ``distances`` and ``scores``."""

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.location.local_file import LocalFile
from mercore.stores.results.id_arrays import IdsAndScores, ids_and_scores

if TYPE_CHECKING:
    import h5py

SUFFIXES = (".h5", ".hdf5")
SEPARATOR = "::"  # between a file and a dataset in it
NEIGHBOURS, SCORES = "neighbors", ("scores", "distances")
MOST_RATIO = 1100  # of compression: gzip's limit is 1032


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
        If the file is damaged, or has no such ids.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file, dataset = split_dataset(path)
    size = LocalFile(file).size
    ids = dataset or NEIGHBOURS
    import h5py

    try:
        with h5py.File(file, "r", locking=False) as opened:
            names = [ids, *(SCORES if ids == NEIGHBOURS else ())]
            found = {name: _read(opened, name, size) for name in names if name in opened}
    # h5py raises all of these for damage.
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(". ")
        raise FormatError(
            f"{file}: the HDF5 file is damaged ({reason}). Fix: fetch or write the file again."
        ) from error
    if ids not in found:
        raise FormatError(
            f"{file}: no dataset {ids}, expected ids int64[nq, k]. Fix: name the dataset, as in "
            f"{file}{SEPARATOR}{NEIGHBOURS}"
        )
    arrays = {"neighbors": found.pop(ids)}
    scores = next(iter(found.values()), None)
    if scores is not None:
        arrays["distances"] = scores
    return ids_and_scores(path, arrays)


def hdf5_bytes(ids: NDArray[np.int64], scores: NDArray[np.floating[Any]] | None) -> bytes:
    """Return the HDF5 file of ``ids`` and ``scores``, both [nq, k].

    ``neighbors`` are the ids. ``distances`` are 1 − score, or the scores themselves if these ascend
    as distances do. ``scores`` are the scores, which reading prefers.
    """
    import h5py

    stream = BytesIO()
    with h5py.File(stream, "w") as file:
        file.create_dataset(NEIGHBOURS, data=ids)
        if scores is not None:
            ascend = bool((scores[:, 1:] > scores[:, :-1]).any())
            file.create_dataset("distances", data=scores if ascend else 1 - scores)
            file.create_dataset("scores", data=scores)
    return stream.getvalue()


def _read(file: "h5py.File", name: str, size: int) -> NDArray[Any]:
    """Return a dataset; refuse one in another file, and one that such a file cannot hold."""
    import h5py

    link, dataset = file.get(name, getlink=True), file[name]
    here = isinstance(link, h5py.HardLink) and dataset.file.filename == file.filename
    if not here or not isinstance(dataset, h5py.Dataset):
        raise FormatError(
            f"{file.filename}: {name} is no dataset of this file. Fix: copy it into the file."
        )
    if dataset.is_virtual or dataset.external:
        raise FormatError(
            f"{file.filename}: the numbers of {name} lie in another file. Fix: copy them into "
            "this one."
        )
    if dataset.nbytes > MOST_RATIO * size:
        raise FormatError(
            f"{file.filename}: {name} has the shape {dataset.shape}, but the file has only {size} "
            "bytes. Fix: fetch or write the file again."
        )
    return np.asarray(dataset[()])
