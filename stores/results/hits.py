"""Hits, the top-k rows per query, and their files: ``.ivecs .ibin .npz .parquet``."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import (
    ExistsError,
    FormatError,
    InputError,
    NotFoundError,
    ShapeError,
    StorageError,
)
from mercore.stores.formats.bigann import read_truth, truth_bytes
from mercore.stores.formats.npz import npz_bytes, read_npz
from mercore.stores.location.local_file import path_status
from mercore.stores.location.publish import publish, storage_errors
from mercore.stores.location.resolve import refuse_url
from mercore.stores.location.scratch import sweep
from mercore.stores.results.parquet import parquet_bytes, read_parquet_hits
from mercore.stores.results.texmex import check_beside, read_texmex_hits, write_texmex_hits

MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits:
    """The top-k rows per query.

    ``scores`` are float32 or float64 [nq, k], descending, or None if the file has none. ``ids`` are
    int64[nq, k], -1 where a query has fewer than k.

    Raises
    ------
    ShapeError
        If ``ids`` is not int64 of two dimensions, or ``scores`` is neither floating nor of the
        shape of ``ids``.
    """

    scores: NDArray[np.floating[Any]] | None
    ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.dtype != np.int64:
            message = (
                f"hits: ids are {_kind(self.ids)}, expected int64[nq, k]. Fix: pass one "
                "row of ids per query."
            )
            raise ShapeError(message)
        if self.scores is not None and (
            self.scores.shape != self.ids.shape or self.scores.dtype.kind != "f"
        ):
            message = (
                f"hits: scores are {_kind(self.scores)}, expected floats of the ids' shape "
                f"{list(self.ids.shape)}. "
                f"Fix: pass one score per id."
            )
            raise ShapeError(message)

    def __iter__(self) -> Iterator[Any]:
        """Yield ids and scores, for ``ids, scores = hits``."""
        return iter((self.ids, self.scores))

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.ids)


AnyHits = str | Hits | NDArray[np.integer[Any]]


def certificate_path(path: str) -> str:
    """Return the path of the certificate of the hits at ``path``."""
    return str(Path(path).with_suffix(".certificate.npz"))


def check_hits_path(path: str, *, read: Iterable[object] = ()) -> None:
    """Refuse a path that ``write_hits`` could not write to, before any work is done.

    Parameters
    ----------
    read : the inputs of the work; a path among them must not be overwritten

    Raises
    ------
    InputError
        If the suffix is unknown.
    NotFoundError
        If the folder does not exist.
    ExistsError
        If the path is a folder or an input, or ``.ivecs`` hits would overwrite an ``.fvecs`` that
        does not hold their scores.
    StorageError
        If the folder cannot be written.
    """
    refuse_url(path, "hits")
    suffix = _suffix(path)
    with storage_errors("write", path):
        _check_target(path, Path(path))
        if any(_is_file(path, other) for other in read):
            raise ExistsError(
                f"{path} is an input of this search: its hits would replace it. Fix: name "
                "another path."
            )
        if suffix == ".ivecs":
            check_beside(path)


def check_id(path: str, greatest: int) -> None:
    """Refuse a path whose format cannot hold the id ``greatest``.

    Raises
    ------
    InputError
        If it is above int32 and the format is ``.ivecs`` or ``.ibin``.
    """
    if _suffix(path) in (".ivecs", ".ibin") and greatest > MAX_INT32:
        message = (
            f"{path}: id {greatest} is above int32's {MAX_INT32}. Fix: write the hits as "
            ".npz or .parquet."
        )
        raise InputError(message)


def write_hits(path: str, hits: Hits) -> list[str]:
    """Write ``hits`` in the format of the suffix, over earlier files; return the paths written.

    ``.ivecs`` holds int32 ids, and the ``.fvecs`` of the same stem float32 scores. ``.ibin`` is
    big-ann's ground truth, int32 ids and float32 scores. ``.npz`` holds ``ids`` and ``scores``
    unchanged, and so does ``.parquet``, one row per query, in columns of lists.

    Raises
    ------
    InputError
        If the suffix is unknown, or an id is above int32 in ``.ivecs`` or ``.ibin``.
    ShapeError
        If there are no hits and the suffix is ``.ivecs`` or ``.ibin``.
    NotFoundError, ExistsError, StorageError
        If the path cannot be written; see ``check_hits_path``.
    """
    check_hits_path(path)
    sweep(Path(path).parent, Path(path).name)
    with storage_errors("write", path):
        certificate = Path(certificate_path(path))
        if Path(path).exists() and certificate.is_file():
            certificate.unlink()  # of the hits that are replaced
    if _suffix(path) == ".npz":
        arrays: dict[str, NDArray[Any]] = {"ids": hits.ids}
        publish(
            Path(path),
            npz_bytes(arrays if hits.scores is None else {**arrays, "scores": hits.scores}),
        )
        return [path]
    if _suffix(path) == ".parquet":
        publish(Path(path), parquet_bytes(hits.ids, hits.scores))
        return [path]
    ids = _int32_ids(path, hits.ids)
    scores = None if hits.scores is None else hits.scores.astype(np.float32)
    if _suffix(path) == ".ibin":
        publish(Path(path), truth_bytes(ids, scores))
        return [path]
    return write_texmex_hits(path, ids, scores)


def read_hits(path: str) -> Hits:
    """Read hits, or the ground truth of another tool; ``scores`` is None if the file has only ids.

    The scores of a foreign file are returned unchanged, even if they are distances.

    Raises
    ------
    NotFoundError
        If there is nothing at ``path``.
    InputError
        If the suffix is unknown.
    FormatError
        If the size or the arrays do not fit the format, or an id is below -1.
    StorageError
        If the operating system refuses.
    """
    refuse_url(path, "hits")
    suffix = _suffix(path)
    if not stat.S_ISREG(path_status(path).st_mode):
        message = f"{path}: not a regular file, expected hits. Fix: name the file."
        raise FormatError(message)
    ids, scores = READERS[suffix](path)
    return Hits(scores=scores, ids=_checked(path, ids))


def open_hits(hits: AnyHits) -> Hits:
    """Return the hits of a file, hits in memory, or the hits of integer ids [nq, k] without scores.

    Raises
    ------
    ShapeError
        If ids in memory are not integers of two dimensions.
    FormatError
        If an id is below -1, or above int64.
    MercoreError
        The errors of ``read_hits``, for a file.
    """
    if isinstance(hits, str):
        return read_hits(hits)
    if isinstance(hits, Hits):
        return hits
    if hits.dtype.kind not in "iu":
        raise ShapeError(
            f"hits: ids are {_kind(hits)}, expected integers [nq, k]. Fix: pass one row of ids "
            "per query."
        )
    return Hits(scores=None, ids=_checked("hits", hits))


def _checked(name: str, ids: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return ids as int64, or refuse ids below -1; ids above int64 become such ids."""
    whole = ids.astype(np.int64)
    low = np.argwhere(whole < -1)
    if low.size:
        row, column = (int(i) for i in low[0])
        message = (
            f"{name}: query {row} has the id {ids[row, column]} at rank {column}, expected ids "
            "≥ 0, or -1 for none. "
            f"Fix: fetch the file again, or check that it holds hits."
        )
        raise FormatError(message)
    return whole


def _is_file(path: str, other: object) -> bool:
    """Return whether ``other`` is a path of the same file."""
    return (
        isinstance(other, str)
        and Path(path).exists()
        and Path(other).exists()
        and Path(path).samefile(other)
    )


def _suffix(path: str) -> str:
    """Return the suffix in lower case, or refuse one of no format of hits."""
    suffix = Path(path).suffix
    if suffix.lower() not in READERS:
        message = (
            f"{path}: unknown suffix {suffix!r} for hits, expected {' '.join(READERS)}. "
            "Fix: rename the file."
        )
        raise InputError(message)
    return suffix.lower()


def _check_target(path: str, target: Path) -> None:
    """Refuse a target that is a folder, or whose folder is missing or read-only."""
    if not target.parent.is_dir():
        message = (
            f"{path}: the folder {target.parent} does not exist. Fix: create it, or name "
            "another path."
        )
        raise NotFoundError(message)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        message = (
            f"{path}: the folder {target.parent} cannot be written. Fix: grant access, "
            "or name another path."
        )
        raise StorageError(message)
    if target.is_dir():
        message = f"{path}: a folder, expected a file to write. Fix: name another path."
        raise ExistsError(message)


def _int32_ids(path: str, ids: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return ``ids`` as int32, or refuse what the int32 formats cannot hold."""
    if ids.size == 0:
        message = (
            f"{path}: hits of shape {list(ids.shape)}, expected at least one. Fix: write "
            "them as .npz or .parquet."
        )
        raise ShapeError(message)
    check_id(path, int(ids.max()))
    return ids.astype(np.int32)


def _read_npz(path: str) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """Read the hits of a ``.npz``."""
    return _ids_and_scores(path, read_npz(path))


def _read_parquet(path: str) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """Read the hits of a ``.parquet``."""
    return _ids_and_scores(path, read_parquet_hits(path))


def _ids_and_scores(
    path: str, arrays: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """Return the arrays ``ids`` and, if the file has it, ``scores``."""
    ids, scores = arrays.get("ids"), arrays.get("scores")
    if ids is None or ids.ndim != 2 or ids.dtype.kind not in "iu":
        kind = "no array ids" if ids is None else f"ids {_kind(ids)}"
        message = f"{path}: {kind}, expected ids int64[nq, k]. Fix: name a file of hits."
        raise FormatError(message)
    if ids.dtype.kind == "u" and ids.size and ids.max() > np.iinfo(np.int64).max:
        message = f"{path}: id {ids.max()} is above int64. Fix: name a file of hits."
        raise FormatError(message)
    if scores is None:
        return ids.astype(np.int64), None
    if scores.shape != ids.shape or scores.dtype.kind != "f" or scores.dtype.itemsize > 8:
        message = (
            f"{path}: scores {_kind(scores)}, expected floats {list(ids.shape)}. Fix: "
            "write the file again."
        )
        raise FormatError(message)
    return ids.astype(np.int64), scores.astype(
        np.result_type(scores.dtype, np.float32)
    )  # native bytes, not float16


def _kind(array: NDArray[Any]) -> str:
    """Return dtype[shape]."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


Reader = Callable[[str], tuple[NDArray[Any], NDArray[Any] | None]]
READERS: dict[str, Reader] = {
    ".ivecs": read_texmex_hits,
    ".ibin": read_truth,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
