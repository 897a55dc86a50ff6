"""Hits in TEXMEX files: ids in an ``.ivecs``, scores in the ``.fvecs`` of the same stem."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import ExistsError, FormatError
from mercore.stores.formats.texmex import open_texmex, texmex_bytes
from mercore.stores.location.publish import publish_output, storage_errors, sync_folder


def check_beside(path: str) -> None:
    """Refuse hits whose scores would overwrite vectors of the same stem.

    Raises
    ------
    ExistsError
        If the ``.fvecs`` exists and does not hold the scores of the ``.ivecs``.
    """
    beside = _beside(path)
    if beside.exists() and not _are_scores(beside, Path(path)):
        raise ExistsError(
            f"{path}: its scores would overwrite {beside}, which holds something else. "
            "Fix: name another path, or move that file."
        )


def write_texmex_hits(
    path: str, ids: NDArray[np.int32], scores: NDArray[np.float32] | None
) -> list[str]:
    """Write ids, then scores, both [nq, k]; return the paths written.

    A stop between the two leaves ids without scores, never with scores of other ids.

    Raises
    ------
    StorageError
        If the operating system refuses.
    """
    beside = _beside(path)
    with storage_errors("write", beside):
        beside.unlink(missing_ok=True)
        sync_folder(beside.parent)
    publish_output(Path(path), texmex_bytes(ids))
    if scores is None:
        return [path]
    publish_output(beside, texmex_bytes(scores))
    return [path, str(beside)]


def read_texmex_hits(path: str) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
    """Return ids, int32[nq, k], and scores, float32[nq, k], or None without scores of that shape.

    Raises
    ------
    FormatError
        If the size or the rows of a file do not fit the format.
    NotFoundError, StorageError
        If a file does not exist, or cannot be read.
    """
    source = open_texmex(path, "ivecs")
    nq = source.shape[0]
    beside = _beside(path)
    if not _are_scores(beside, Path(path)):
        return source.read_stored(0, nq), None
    return source.read_stored(0, nq), open_texmex(str(beside), "fvecs").read_stored(0, nq)


def _beside(path: str) -> Path:
    """Return the path of the scores."""
    return Path(path).with_suffix(".fvecs")


def _are_scores(beside: Path, ids: Path) -> bool:
    """Return whether ``beside`` can hold the scores of ``ids``: both exist and have one shape."""
    if not (beside.is_file() and ids.is_file()):
        return False
    try:
        return open_texmex(str(beside), "fvecs").shape == open_texmex(str(ids), "ivecs").shape
    except FormatError:
        return False
