"""Whether a file holds hits or a certificate: by its content where vectors have the suffix too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mercore.stores.errors import MercoreError
from mercore.stores.formats import open_source
from mercore.stores.formats.binary import BinarySource
from mercore.stores.formats.npz import member_names
from mercore.stores.results.certificates import ABOUT, read_certificate
from mercore.stores.results.hdf5 import SUFFIXES, has_hits, split_dataset
from mercore.stores.results.hits import found_certificate, read_hits
from mercore.stores.results.id_arrays import NAMES

Report = dict[str, Any]

LOOKED_AT = 1000  # rows of a file that may hold ids or vectors
SHARED = (".ivecs", ".ibin", ".npy")  # suffixes of ids and of vectors


def describe_results(path: str, called: str | None = None) -> Report | None:
    """Return the description of a file of hits or of a certificate, or None for another file.

    Parameters
    ----------
    called : the name of the file's format; without it the suffix decides

    Raises
    ------
    MercoreError
        If it is such a file, and damaged.
    """
    suffix = (Path(split_dataset(path)[0]).suffix if called is None else f".{called}").lower()
    if suffix == ".npz" and ABOUT in _names(path, member_names):
        return _describe_certificate(path)
    names = {pair[0] for pair in NAMES}
    holds_hits = (
        (suffix == ".npz" and bool(names & _names(path, member_names)))
        or (suffix == ".parquet" and "ids" in _names(path, _column_names))
        or (suffix in SUFFIXES and has_hits(path))
        or (suffix in SHARED and _looks_like_ids(path, suffix))
    )
    return _describe_hits(path, called) if holds_hits else None


def _describe_hits(path: str, called: str | None) -> Report:
    hits = read_hits(path, called)
    queries, k = hits.ids.shape
    scores = None if hits.scores is None else hits.scores.dtype.name
    proof = found_certificate(path)
    report: Report = {"kind": "hits", "path": path, "queries": queries, "k": k, "scores": scores}
    return report if proof is None else {**report, "certificate": proof}


def _describe_certificate(path: str) -> Report:
    arrays, about = read_certificate(path)
    queries = len(arrays["kth"]) if "kth" in arrays else None
    return {"kind": "certificate", "path": path, "query_count": queries, **about}


def _names(path: str, names: Callable[[str], list[str]]) -> set[str]:
    """Return the names of the arrays or columns of a file, none if it is damaged."""
    try:
        return set(names(path))
    except MercoreError:
        return set()


def _column_names(path: str) -> list[str]:
    from mercore.stores.results.parquet import column_names  # pyarrow takes a while to load

    return column_names(path)


def _looks_like_ids(path: str, suffix: str) -> bool:
    """Return whether the first rows are ids: signed, from -1 on, each one once in a row."""
    try:
        source = open_source(path, form=suffix)
    except MercoreError:  # as of a big-ann file with ids and scores
        return suffix == ".ibin" and _is_truth(path)
    return isinstance(source, BinarySource) and _distinct(source)


def _distinct(source: BinarySource) -> bool:
    rows = source.read_stored(0, min(LOOKED_AT, source.shape[0]))
    if rows.dtype.kind != "i" or rows.dtype.itemsize < 4 or not rows.size or rows.min() < -1:
        return False
    ordered = np.sort(rows, axis=1)
    return not ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()


def _is_truth(path: str) -> bool:
    try:
        read_hits(path, "ibin")
    except MercoreError:
        return False
    return True
