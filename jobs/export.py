"""Codes for other tools: an index of faiss, and the coordinates of queries that it is searched with."""

from pathlib import Path
from typing import Any

import numpy as np

from jobs.own_kernel import own_of
from jobs.progress import progress
from pipeline.encode import encoder_of
from pipeline.encoders.pq import Pq
from stores.codes import CodeStore, open_code_store
from stores.errors import InputError
from stores.foreign import open_rows
from stores.formats.faiss_index import check_faiss, write_index
from stores.formats.npy import write_npy
from stores.local_place import LocalPlace
from stores.place import refuse_url
from stores.vectors import original_ids

Report = dict[str, Any]


def export(
    codes: str, index: str, *, queries: str | None = None, points: str | None = None, kernel: str | None = None
) -> Report:
    """Write codes as a faiss index, and the coordinates of queries to search it with; return what was written.

    ``kernel`` is the file of a user's own kernel, where that of the codes is one.

    Raises
    ------
    InputError
        If the codes are not of product quantisation, faiss is not there, or only one of queries and points is named.
    """
    if (queries is None) != (points is None):
        raise InputError("--queries and --points go together: found one of them. Mend: name both, or neither.")
    check_faiss()
    store = open_code_store(codes)
    encoder = encoder_of(store, own_of(store, kernel))
    if not isinstance(encoder, Pq):
        raise InputError(
            f"{codes} holds codes of {store.spec.encoder['name']}: expected kpca-pq or pq, which faiss knows. "
            "Mend: encode with one of those."
        )
    for path in filter(None, (index, points)):
        refuse_url(path, "an index or points")
        LocalPlace(Path(path)).check_new()
    report: Report = {"store": codes, "rows": store.rows, "written": [index]}
    if queries is not None and points is not None:
        source = open_rows(queries)
        write_npy(Path(points), encoder.embed(source.read(0, source.shape[0]), label="query"))
        report["written"].append(points)
    ids = original_ids(np.arange(store.rows), store.dropped) if store.dropped.size else None
    write_index(Path(index), encoder.codebooks, _codes(store), ids, metric=encoder.metric)
    return report


def _codes(store: CodeStore) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return all codes, every byte checked."""
    with progress("export", store.parts, "parts") as advance:
        parts = []
        for receipt in store.receipts:
            parts.append(store.store.read_chunk(receipt, "code"))
            advance(1)
    return np.concatenate(parts)
