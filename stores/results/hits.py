"""Hits, the top-k rows per query, and their files: ``.ivecs .ibin .npy .npz .parquet .h5``."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from mercore.stores.formats.npy import npy_bytes
from mercore.stores.formats.npz import npz_bytes, read_npz
from mercore.stores.location.local_file import path_status
from mercore.stores.location.publish import publish, storage_errors, sync_folder
from mercore.stores.location.resolve import refuse_url
from mercore.stores.location.scratch import sweep
from mercore.stores.results.hdf5 import SUFFIXES, hdf5_bytes, read_hdf5_hits, split_dataset
from mercore.stores.results.hit_table import HitLists, HitTable
from mercore.stores.results.id_arrays import IdsAndScores, dtype_shape, ids_and_scores, read_npy_ids
from mercore.stores.results.texmex import check_beside, read_texmex_hits, write_texmex_hits
from mercore.stores.wording import option, setting

MAX_INT32 = 2**31 - 1
INT32 = (".ivecs", ".ibin")  # formats of int32 ids and float32 scores
CERTIFICATE = ".certificate.npz"
Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits(HitTable):
    """The top-k rows per query, which become a table by ``to_pandas`` and its like.

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
            raise ShapeError(
                f"hits: ids are {dtype_shape(self.ids)}, expected int64[nq, k]. Fix: pass one "
                "row of ids per query."
            )
        if self.scores is not None and (
            self.scores.shape != self.ids.shape or self.scores.dtype.kind != "f"
        ):
            raise ShapeError(
                f"hits: scores are {dtype_shape(self.scores)}, expected floats of the ids' shape "
                f"{list(self.ids.shape)}. Fix: pass one score per id."
            )

    def __iter__(self) -> Iterator[Any]:
        """Yield ids and scores, for ``ids, scores = hits``."""
        return iter((self.ids, self.scores))

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.ids)

    def of(self, query: int) -> tuple[NDArray[np.int64], NDArray[np.floating[Any]]]:
        """Return the ids and the scores of the hits of a query; there must be scores."""
        assert self.scores is not None
        found = self.ids[query] >= 0
        return self.ids[query][found], self.scores[query][found]

    def lists(self) -> HitLists:
        """Return the hits of all queries in one list: those of query q begin at ``lims[q]``."""
        found = self.ids >= 0
        lims = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        return lims, self.ids[found], None if self.scores is None else self.scores[found]

    @property
    def names(self) -> Array | None:
        """The names of the ids, object[nq, k], None for none; None if hits are not ``named``."""
        names = super().names
        if names is None:
            return None
        found = np.full(self.ids.shape, None, object)
        found[self.ids >= 0] = names
        return found

    def json(self) -> dict[str, Any]:
        """Return lists; where a query has fewer hits, the id is −1 and score and name are None."""
        assert self.scores is not None
        scores = self.scores.astype(object)
        scores[self.ids < 0] = None
        lists = {"ids": self.ids.tolist(), "scores": scores.tolist()}
        names = self.names
        return lists if names is None else lists | {"names": names.tolist()}


AnyHits = str | Hits | NDArray[np.integer[Any]] | Sequence[Sequence[int]]


def certificate_path(path: str) -> str:
    """Return the path to which the certificate of the hits at ``path`` is written."""
    return path + CERTIFICATE


def found_certificate(path: str) -> str | None:
    """Return the path of the certificate beside the hits at ``path``, or None.

    Certificates of the first versions are called as the hits without their suffix. Such a one
    counts unless it may belong to other hits of that name.
    """
    old, hits = Path(path).with_suffix(CERTIFICATE), Path(path)
    with storage_errors("read", path):
        if Path(certificate_path(path)).is_file():
            return certificate_path(path)
        others = [hits.with_suffix(suffix) for suffix in READERS if suffix != hits.suffix]
        unproved = (each for each in others if not Path(certificate_path(str(each))).is_file())
        return str(old) if old.is_file() and not any(map(Path.is_file, unproved)) else None


def remove_certificate(path: str) -> None:
    """Remove the certificate of the hits at ``path``, which are to be replaced."""
    with storage_errors("write", path):
        stale = found_certificate(path)
        if Path(path).exists() and stale:
            Path(stale).unlink()
            sync_folder(Path(stale).parent)  # no power cut leaves it beside the next hits


def check_hits_path(
    path: str, called: str | None = None, *, read: Iterable[object] = (), replace: bool = True
) -> None:
    """Refuse a path that ``write_hits`` could not write to, before any work is done.

    Parameters
    ----------
    called : the name of the format; without it the suffix decides
    read : the inputs of the work; a path among them must not be overwritten
    replace : whether an existing file may be replaced

    Raises
    ------
    InputError
        If the suffix or the name of the format is unknown.
    NotFoundError
        If the folder does not exist.
    ExistsError
        If the path is a folder or an input, exists and is not to be replaced, or ``.ivecs`` hits
        would overwrite an ``.fvecs`` that does not hold their scores.
    StorageError
        If the folder cannot be written.
    """
    refuse_url(path, "hits")
    suffix = _suffix(path, called)
    with storage_errors("write", path):
        _check_target(path, Path(path))
        if any(_is_file(path, other) for other in read):
            raise ExistsError(
                f"{path} is an input of this search: its hits would replace it. Fix: name "
                "another path."
            )
        if not replace and Path(path).exists():
            raise ExistsError(
                f"{path} exists: expected a new path. Fix: name another, or replace it with "
                f"{setting(force=True)}."
            )
        if suffix == ".ivecs":
            check_beside(path)


def check_id(path: str, greatest: int, called: str | None = None) -> None:
    """Refuse a path whose format, by its suffix or as ``called``, cannot hold the id ``greatest``.

    Raises
    ------
    InputError
        If it is above int32 and the format is ``.ivecs`` or ``.ibin``.
    """
    if _suffix(path, called) in INT32 and greatest > MAX_INT32:
        raise InputError(
            f"{path}: id {greatest} is above int32's {MAX_INT32}. Fix: write the hits as "
            ".npz or .parquet."
        )


def check_names_path(path: str, called: str | None = None) -> None:
    """Refuse a path whose format, by its suffix or as ``called``, cannot hold names.

    Raises
    ------
    InputError
        If it is not ``.parquet``.
    """
    suffix = _suffix(path, called)
    if suffix != ".parquet":
        raise InputError(
            f"{path}: {suffix} holds no names, expected .parquet. Fix: "
            f"{setting(out='hits.parquet')}, or leave {option('names')} out."
        )


def write_hits(
    path: str, hits: Hits, called: str | None = None, *, distances: bool = False
) -> list[str]:
    """Write ``hits`` over earlier files; return the paths written.

    ``.ivecs`` holds int32 ids, and the ``.fvecs`` of the same stem float32 scores. ``.ibin`` is
    big-ann's ground truth, int32 ids and float32 scores, which are the squares of ``distances``.
    ``.npz`` holds ``ids`` and ``scores`` unchanged, and so does ``.parquet``, one row per query, in
    columns of lists; the ``names`` of named hits too. ``.npy`` holds the ids alone. ``.h5`` holds
    ``neighbors``, ``distances`` and ``scores``: see ``hdf5_bytes``.

    Parameters
    ----------
    called : the name of the format, such as ``ibin``; without it the suffix decides
    distances : whether the scores are Euclidean distances

    Raises
    ------
    InputError
        If the suffix or the name of the format is unknown, an id is above int32 in ``.ivecs`` or
        ``.ibin``, or the hits are named and the format is not ``.parquet``.
    ShapeError
        If there are no hits and the suffix is ``.ivecs`` or ``.ibin``.
    NotFoundError, ExistsError, StorageError
        If the path cannot be written; see ``check_hits_path``.
    """
    check_hits_path(path, called)
    if hits.naming is not None:
        check_names_path(path, called)
    sweep(Path(path).parent, Path(path).name)
    remove_certificate(path)
    suffix = _suffix(path, called)
    ids: Array = hits.ids
    scores = hits.scores
    if suffix in INT32:
        ids = _int32_ids(path, ids, called)
        if scores is not None and distances and suffix == ".ibin":
            scores = np.square(scores, dtype=np.float64)
        scores = None if scores is None else scores.astype(np.float32)
    if suffix == ".ivecs":
        return write_texmex_hits(path, ids, scores)
    if hits.naming is None:
        publish(Path(path), WRITERS[suffix](ids, scores, distances))
    else:
        publish(Path(path), _parquet_bytes(ids, scores, names=hits.names))
    return [path]


def read_hits(path: str, called: str | None = None) -> Hits:
    """Read hits, or the ground truth of another tool; ``scores`` is None if the file has only ids.

    The scores of a foreign file are returned unchanged, even if they are distances.

    Parameters
    ----------
    path : a file; ``file.h5::name`` names a dataset of ids in it
    called : the name of the format, such as ``ibin``; without it the suffix decides

    Raises
    ------
    NotFoundError
        If there is nothing at ``path``.
    InputError
        If the suffix or the name of the format is unknown.
    FormatError
        If the size or the arrays do not fit the format, or an id is below -1.
    StorageError
        If the operating system refuses.
    """
    refuse_url(path, "hits")
    file, _ = split_dataset(path)
    reader = READERS[_suffix(file, called)]
    if not stat.S_ISREG(path_status(file).st_mode):
        raise FormatError(f"{path}: not a regular file, expected hits. Fix: name the file.")
    ids, scores = reader(path)
    return Hits(scores=scores, ids=_checked(path, ids))


def open_hits(hits: AnyHits, called: str | None = None) -> Hits:
    """Return the hits of a file, hits in memory, or the hits of integer ids [nq, k] without scores.

    Parameters
    ----------
    hits : a path, hits, an array of ids, or one list of ids per query
    called : the name of a file's format, if its suffix does not say it

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
        return read_hits(hits, called)
    if isinstance(hits, Hits):
        return hits
    try:
        ids = np.asarray(hits)
    except ValueError:  # lists of different lengths
        raise ShapeError(
            "hits: the lists of ids have different lengths, expected k ids per query. Fix: pad "
            "them with -1."
        ) from None
    if ids.dtype.kind not in "iu":
        raise ShapeError(
            f"hits: ids are {dtype_shape(ids)}, expected integers [nq, k]. Fix: pass one row of "
            "ids per query."
        )
    return Hits(scores=None, ids=_checked("hits", ids))


def check_format(called: str | None) -> None:
    """Refuse the name of a format that holds no hits; None names none."""
    if called is not None:
        _suffix("", called)


def _checked(name: str, ids: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return ids as int64, or refuse ids below -1; ids above int64 become such ids."""
    whole = ids.astype(np.int64)
    low = np.argwhere(whole < -1)
    if low.size:
        row, column = (int(i) for i in low[0])
        raise FormatError(
            f"{name}: query {row} has the id {ids[row, column]} at rank {column}, expected ids ≥ "
            "0, or -1 for none. Fix: fetch the file again, or check that it holds hits."
        )
    return whole


def _is_file(path: str, other: object) -> bool:
    """Return whether ``other`` is a path of the same file."""
    return (
        isinstance(other, str)
        and Path(path).exists()
        and Path(other).exists()
        and Path(path).samefile(other)
    )


def _suffix(path: str, called: str | None) -> str:
    """Return the suffix of the format ``called``, or of ``path``; refuse one of no such format."""
    suffix = Path(path).suffix if called is None else f".{called}"
    if suffix.lower() in READERS:
        return suffix.lower()
    if called is None:
        raise InputError(
            f"{path}: unknown suffix {suffix!r} for hits, expected {' '.join(READERS)}. Fix: name "
            f"its format, as {setting(hits_format='ibin')}, or rename the file."
        )
    raise InputError(
        f"unknown format of hits: found {called!r}, expected {' '.join(FORMATS)}. Fix: name one "
        "of them."
    )


def _check_target(path: str, target: Path) -> None:
    """Refuse a target that is a folder, or whose folder is missing or read-only."""
    if not target.parent.is_dir():
        raise NotFoundError(
            f"{path}: the folder {target.parent} does not exist. Fix: create it, or name "
            "another path."
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise StorageError(
            f"{path}: the folder {target.parent} cannot be written. Fix: grant access, "
            "or name another path."
        )
    if target.is_dir():
        raise ExistsError(f"{path}: a folder, expected a file to write. Fix: name another path.")


def _int32_ids(path: str, ids: NDArray[Any], called: str | None) -> NDArray[np.int32]:
    """Return ``ids`` as int32, or refuse what the int32 formats cannot hold."""
    if ids.size == 0:
        raise ShapeError(
            f"{path}: hits of shape {list(ids.shape)}, expected at least one. Fix: write "
            "them as .npz or .parquet."
        )
    check_id(path, int(ids.max()), called)
    return ids.astype(np.int32)


def _npz_bytes(ids: Array, scores: Array | None, _: bool) -> bytes:
    return npz_bytes({"ids": ids} if scores is None else {"ids": ids, "scores": scores})


def _read_parquet(path: str) -> IdsAndScores:
    from mercore.stores.results.parquet import read_parquet_hits  # pyarrow takes a while to load

    return ids_and_scores(path, read_parquet_hits(path))


def _parquet_bytes(
    ids: Array, scores: Array | None, _: bool = False, *, names: Array | None = None
) -> bytes:
    from mercore.stores.results.parquet import parquet_bytes

    return parquet_bytes(ids, scores, names)


READERS: dict[str, Callable[[str], IdsAndScores]] = {
    ".ivecs": read_texmex_hits,
    ".ibin": read_truth,
    ".npy": read_npy_ids,
    ".npz": lambda path: ids_and_scores(path, read_npz(path)),
    ".parquet": _read_parquet,
    **dict.fromkeys(SUFFIXES, read_hdf5_hits),
}
FORMATS = tuple(suffix.removeprefix(".") for suffix in READERS)
# The bytes of a file of ids, scores and whether these are distances.
WRITERS: dict[str, Callable[[Array, Array | None, bool], bytes]] = {
    ".ibin": lambda ids, scores, _: truth_bytes(ids, scores),
    ".npy": lambda ids, scores, _: npy_bytes(ids),
    ".npz": _npz_bytes,
    ".parquet": _parquet_bytes,
    **dict.fromkeys(SUFFIXES, hdf5_bytes),
}
