"""Hits of a range search, any number per query, and their files: ``.npz .parquet .ibin``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import InputError
from mercore.stores.formats.npz import ArrayInPieces, Arrays, npz_bytes, publish_npz, read_npz
from mercore.stores.location.publish import publish
from mercore.stores.location.scratch import sweep
from mercore.stores.results.hit_table import HitLists, HitTable
from mercore.stores.results.hits import (
    MAX_INT32,
    check_hits_path,
    check_names_path,
    remove_certificate,
)
from mercore.stores.wording import setting

FAISS = "faiss"
FORMATS = ("npz", "parquet", "ibin", FAISS)


@dataclass(frozen=True, kw_only=True, eq=False)
class RangeHits(HitTable):
    """The rows within a threshold of each query, which become a table as ``Hits`` do.

    The rows of query q are ``ids[lims[q]:lims[q + 1]]``, with ``scores`` of the same positions, the
    nearest first; ties go to the lower id. ``lims`` is int64[nq + 1], ``ids`` int64[hits], and
    ``scores`` float32 or float64 [hits]. They are faiss' ``lims, I, D``.
    """

    lims: NDArray[np.int64]
    ids: NDArray[np.int64]
    scores: NDArray[np.floating[Any]]

    def __iter__(self) -> Iterator[Any]:
        """Yield lims, scores and ids, for ``lims, scores, ids = hits`` as faiss orders them."""
        return iter((self.lims, self.scores, self.ids))

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.lims) - 1

    def of(self, query: int) -> tuple[NDArray[np.int64], NDArray[np.floating[Any]]]:
        """Return the ids and the scores of the hits of a query."""
        place = slice(int(self.lims[query]), int(self.lims[query + 1]))
        return self.ids[place], self.scores[place]

    def lists(self) -> HitLists:
        """Return the hits of all queries in one list: those of query q begin at ``lims[q]``."""
        return self.lims, self.ids, self.scores

    def json(self) -> dict[str, Any]:
        """Return lists."""
        lists = {name: getattr(self, name).tolist() for name in ("lims", "ids", "scores")}
        names = self.names
        return lists if names is None else lists | {"names": names.tolist()}


@dataclass(frozen=True, kw_only=True, eq=False)
class HitsInPieces:
    """Hits as ``RangeHits`` that are never in memory at once: they are written and read again."""

    lims: NDArray[np.int64]
    ids: ArrayInPieces
    scores: ArrayInPieces

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.lims) - 1


class HitsOfFile(RangeHits):
    """Hits that were written to a file of ``IN_PIECES``, which is read when they are first used."""

    def __init__(self, path: str, called: str | None) -> None:
        object.__setattr__(self, "_file", (path, called))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the arrays, which are not set yet
        if name not in RangeHits.__dataclass_fields__:
            raise AttributeError(name)
        path, called = self._file
        arrays = read_npz(path)
        for field, stored in IN_PIECES[_format(path, called)].items():
            object.__setattr__(self, field, arrays[stored])
        return getattr(self, name)


def check_range_path(
    path: str, called: str | None, *, read: tuple[object, ...] = (), replace: bool = True
) -> None:
    """Refuse a path that ``write_range_hits`` could not write to.

    Raises
    ------
    MercoreError
        As of ``check_hits_path``, or if the format holds no hits of a range search.
    """
    name = _format(path, called)
    if name not in FORMATS:
        raise InputError(
            f"{path}: {name!r} holds k hits per query, and these are of any number: expected "
            f"{', '.join(FORMATS)}. Fix: {setting(hits_format='npz')}"
        )
    check_hits_path(path, "npz" if name == FAISS else name, read=read, replace=replace)


def written_in_pieces(path: str, called: str | None) -> bool:
    """Return whether the format of a path takes ``HitsInPieces``."""
    return _format(path, called) in IN_PIECES


def write_range_hits(
    path: str,
    hits: RangeHits | HitsInPieces,
    ids: int,
    called: str | None = None,
    *,
    distances: bool = False,
) -> list[str]:
    """Write the hits over an earlier file; return the paths written.

    ``.npz`` is a sparse matrix of SciPy, CSR [nq, ids] of scores; ``faiss`` is a ``.npz`` of
    ``lims``, ``D`` and ``I``. ``.parquet`` has one row per query, in columns of lists. ``.ibin`` is
    big-ann's truth of a range search: counts, int32 ids, and float32 scores, which are the squares
    of ``distances``.

    Parameters
    ----------
    ids : the number of ids that the searched store has
    """
    check_range_path(path, called)
    name = _format(path, called)
    if isinstance(hits, RangeHits) and hits.naming is not None:
        check_names_path(path, called if called != FAISS else "npz")
    sweep(Path(path).parent, Path(path).name)
    remove_certificate(path)
    if name in IN_PIECES:
        publish_npz(Path(path), _arrays(hits, ids, name))
    else:
        assert isinstance(hits, RangeHits)
        publish(Path(path), WRITERS[name](hits, ids, distances))
    return [path]


def _format(path: str, called: str | None) -> str:
    return called or Path(path).suffix.removeprefix(".").lower()


def _arrays(hits: RangeHits | HitsInPieces, ids: int, name: str) -> Arrays:
    """Return the arrays of a ``.npz``: those of ``scipy.sparse.save_npz``, or of faiss."""
    if name == FAISS:
        return {"lims": hits.lims, "D": hits.scores, "I": hits.ids}
    arrays: Arrays = {"indices": hits.ids, "indptr": hits.lims, "format": np.array(b"csr")}
    return {**arrays, "shape": np.array([len(hits), ids]), "data": hits.scores}


def _parquet_bytes(hits: RangeHits, _: int, __: bool) -> bytes:
    import pyarrow as pa  # takes a while to load
    from pyarrow import parquet

    columns = {"ids": hits.ids, "names": hits.names, "scores": hits.scores}
    lists = {
        name: pa.LargeListArray.from_arrays(pa.array(hits.lims), pa.array(values))
        for name, values in columns.items()
        if values is not None
    }
    stream = BytesIO()
    parquet.write_table(pa.table(lists), stream, write_page_checksum=True)
    return stream.getvalue()


def table_bytes(columns: Mapping[str, NDArray[Any]], suffix: str) -> bytes:
    """Return the bytes of a file of columns of equal length: ``.parquet`` or ``.npz``."""
    if suffix == ".npz":
        return npz_bytes(dict(columns))
    import pyarrow as pa
    from pyarrow import parquet

    stream = BytesIO()
    parquet.write_table(pa.table(dict(columns)), stream, write_page_checksum=True)
    return stream.getvalue()


def _big_ann_bytes(hits: RangeHits, ids: int, distances: bool) -> bytes:
    if max(ids - 1, len(hits.ids)) > MAX_INT32:
        raise InputError(
            f"ids up to {ids - 1} or {len(hits.ids)} hits are above int32's {MAX_INT32}. Fix: "
            "write the hits as .npz or .parquet."
        )
    scores = np.square(hits.scores, dtype=np.float64) if distances else hits.scores
    header = np.array([len(hits), len(hits.ids)], "<i4")
    counts = np.diff(hits.lims).astype("<i4")
    return b"".join(
        each.tobytes() for each in (header, counts, hits.ids.astype("<i4"), scores.astype("<f4"))
    )


WRITERS: dict[str, Callable[[RangeHits, int, bool], bytes]] = {
    "parquet": _parquet_bytes,
    "ibin": _big_ann_bytes,
}
IN_PIECES = {  # the names of the arrays in formats of .npz
    "npz": {"lims": "indptr", "scores": "data", "ids": "indices"},
    FAISS: {"lims": "lims", "scores": "D", "ids": "I"},
}
