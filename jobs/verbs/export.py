"""Codes for other tools: an index of faiss, and the coordinates of queries that it is searched with."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.background.job_spec import real_path
from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.progress import progress
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.pq import Pq
from mercore.pipeline.kernels import kernel_from_spec
from mercore.pipeline.search.batch_search import check_queries
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import ExistsError, FormatError, InputError
from mercore.stores.formats.faiss_index import check_faiss, write_index
from mercore.stores.formats.npy import open_npy
from mercore.stores.formats.source import Source
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.publish import publish
from mercore.stores.location.resolve import refuse_url
from mercore.stores.rows import open_rows
from mercore.stores.vectors import original_ids

Report = dict[str, Any]
Points = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What is to be exported, all checked."""

    store: CodeStore
    encoder: Pq
    queries: Source | None


def export(
    codes: str, index: str, *, queries: str | None = None, points: str | None = None, kernel: str | None = None
) -> Report:
    """Write codes as a faiss index, and the coordinates of queries to search it with; return what was written.

    The index is written last: the same command ends what was killed before that.

    Parameters
    ----------
    kernel : the file of a user's own kernel, where that of the codes is one

    Raises
    ------
    MercoreError
        As ``exported`` does, or if ``points`` are there already and others.
    """
    found = exported(codes, index, {"queries": queries, "points": points, "kernel": kernel})
    store, encoder = found.store, found.encoder
    report: Report = {"store": codes, "rows": store.rows, "written": [index]}
    if found.queries is not None and points is not None:
        with threadpool_limits(1):  # so that the same command makes the same bytes
            _write_points(points, encoder.embed(found.queries.read(0, found.queries.shape[0]), label="query"))
        report["written"].append(points)
    ids = original_ids(np.arange(store.rows), store.dropped) if store.dropped.size else None
    write_index(Path(index), encoder.codebooks, _codes(store), ids, metric=encoder.metric)
    return report


def exported(codes: str, index: str, options: Mapping[str, Any]) -> Exported:
    """Open all that an export reads, and refuse what cannot be exported, before any work.

    Raises
    ------
    InputError
        If the codes are not of product quantisation, faiss is not there, only one of queries and points is named, two
        of the paths are one, or the queries are not such as the codes are of.
    ExistsError, StorageError
        If something lies where the index or other points are to be, or nothing can be written there.
    """
    check_paths(codes, index, options)
    check_faiss()
    store = open_code_store(codes)
    custom = custom_kernel_of(store, options.get("kernel"))
    encoder = encoder_of(store, custom)
    if not isinstance(encoder, Pq):
        raise InputError(
            f"{codes} holds codes of {store.spec.encoder['name']}: expected kpca-pq or pq, which faiss knows. "
            "Fix: encode with one of those."
        )
    if options.get("queries") is None:
        return Exported(store=store, encoder=encoder, queries=None)
    queries = open_rows(options["queries"])
    check_queries(queries, kernel_from_spec(store.spec.kernel, custom), store.spec.dims, codes)
    _check_points(options["points"], (queries.shape[0], encoder.codebooks.shape[0] * encoder.codebooks.shape[2]))
    return Exported(store=store, encoder=encoder, queries=queries)


def check_paths(codes: str, index: str, options: Mapping[str, Any]) -> None:
    """Refuse paths of which two are one, and those at which an index or points cannot be written.

    Points that are there already may be those that an export wrote before it was killed.

    Raises
    ------
    InputError
        If two paths are one, or only one of queries and points is named.
    ExistsError, StorageError
        If they cannot be written.
    """
    queries, points = options.get("queries"), options.get("points")
    if (queries is None) != (points is None):
        raise InputError("--queries and --points go together: found one of them. Fix: name both, or neither.")
    for path in filter(None, (index, points)):
        refuse_url(path, "an index or points")
    paths = {"CODES": codes, "INDEX": index, "--queries": queries, "--points": points}
    seen: dict[str, str] = {}
    for name, path in paths.items():
        twin = seen.setdefault(real_path(path), name) if path is not None else name
        if twin != name:
            raise InputError(f"{twin} and {name} are one path: found {path} twice. Fix: name another for {name}.")
    LocalLocation(Path(index)).check_new()
    if points is not None and not Path(points).is_file():
        LocalLocation(Path(points)).check_new()


def _check_points(path: str, shape: tuple[int, int]) -> None:
    """Refuse a file that cannot hold the very points that are to be written."""
    if Path(path).is_file():
        with suppress(FormatError):
            there = open_npy(path)
            if there.shape == shape and there.dtype == np.float32:
                return
        raise _other_points(path)


def _write_points(path: str, points: Points) -> None:
    """Write points, unless these very ones are there already."""
    stream = BytesIO()
    np.save(stream, points, allow_pickle=False)
    if not Path(path).is_file():
        publish(Path(path), stream.getbuffer())
    elif Path(path).read_bytes() != stream.getbuffer():
        raise _other_points(path)


def _other_points(path: str) -> ExistsError:
    return ExistsError(f"{path} exists and holds other points: expected a new path. Fix: name another, or remove it.")


def _codes(store: CodeStore) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return all codes, every byte checked."""
    with progress("export", store.parts, "parts") as advance:
        parts = []
        for receipt in store.receipts:
            parts.append(store.store.read_chunk(receipt, "code"))
            advance(1)
    return np.concatenate(parts)
