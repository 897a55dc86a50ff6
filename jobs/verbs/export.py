"""``mercore export``: codes or cells as a faiss index, and coordinates of queries to search it."""

from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.options import Report
from mercore.jobs.progress import progress
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions, VerbTask
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.pq import Pq
from mercore.pipeline.kernels import kernel_from_spec
from mercore.pipeline.linear_map import map_of, mapped_source
from mercore.pipeline.search.batch_search import check_queries
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import ExistsError, FormatError, InputError
from mercore.stores.formats.faiss_index import check_faiss, write_cells, write_index
from mercore.stores.formats.npy import open_npy, write_npy
from mercore.stores.formats.source import Source
from mercore.stores.indexes.cells import ROWS, CellStore
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.publish import publish_output
from mercore.stores.location.resolve import real_path, refuse_url
from mercore.stores.rows import open_rows, open_stored
from mercore.stores.vectors import original_ids
from mercore.stores.wording import option, setting

Points = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(VerbOptions):
    """Options of export; ``kernel`` is the file of the custom kernel, if the codes have one."""

    queries: str | None = None
    points: str | None = None
    kernel: str | None = None
    force: bool = False

    def check(self) -> None:
        """Refuse queries without points, points without queries, and points that are not writable.

        Raises
        ------
        InputError
            If only one of queries and points is given, or their paths are the same.
        ExistsError, StorageError
            If the points cannot be written.
        """
        queries, points = self.queries, self.points
        if (queries is None) != (points is None):
            raise InputError(
                f"{option('queries')} and {option('points')} go together: found one of them. "
                "Fix: name both, or neither."
            )
        self.check_distinct({option("queries"): queries, option("points"): points})
        if points is not None:  # a killed export may have written them
            self._check_writable(points, replace=True)

    def check_path(self, target: str) -> None:
        """Refuse an index that cannot be written, or that exists without ``force``."""
        self.check_distinct(
            {"INDEX": target, option("queries"): self.queries, option("points"): self.points}
        )
        self._check_writable(target, replace=self.force)

    @staticmethod
    def _check_writable(path: str, *, replace: bool) -> None:
        refuse_url(path, "an index or points")
        if not (replace and Path(path).is_file()):
            LocalLocation(Path(path)).check_new()

    def check_distinct(self, paths: dict[str, str | None]) -> None:
        """Refuse two options whose paths lead to the same file."""
        seen: dict[str, str] = {}
        for name, path in paths.items():
            twin = seen.setdefault(real_path(path), name) if path is not None else name
            if twin != name:
                raise InputError(
                    f"{twin} and {name} are one path: found {path} twice. Fix: name another for "
                    f"{name}."
                )


@dataclass(frozen=True, kw_only=True)
class ExportTask(VerbTask):
    """An export with everything open and checked."""

    store: CodeStore | CellStore
    index: str
    encoder: Pq
    queries: Source | None
    points: str | None
    force: bool

    def run(self) -> Report:
        """Write the points, then the index; a killed export is finished by the same command."""
        store, encoder = self.store, self.encoder
        report: Report = {"store": store.where, "rows": store.rows, "written": [self.index]}
        if self.queries is not None and self.points is not None:
            with threadpool_limits(1):  # so that the same command makes the same bytes
                rows = self.queries.read(0, self.queries.shape[0])
                points = encoder.embed(rows, label="query")
                if self.force:
                    write_npy(Path(self.points), points)
                else:
                    _write_points(self.points, points)
            report["written"].append(self.points)
        path, books, codes = Path(self.index), encoder.codebooks, _column(store, "code")
        if isinstance(store, CellStore):
            places = store.places_by_cell
            cells = store.model["centres"], store.sizes
            ids = store.ids_of(_column(store, ROWS)[places].astype(np.int64))
            write_cells(path, books, cells, (codes[places], ids), metric=encoder.metric)
        else:
            other = original_ids(np.arange(store.rows), store.dropped)
            named = other if store.dropped.size else None
            write_index(path, books, codes, named, metric=encoder.metric)
        return report


def open_export(codes: str, index: str, options: ExportOptions) -> ExportTask:
    """Open the inputs of an export, and check them.

    Raises
    ------
    InputError
        If the codes are not of product quantisation, faiss is not installed, or the queries do not
        fit the codes.
    ExistsError, StorageError
        If the index or other points exist already, or cannot be written.
    """
    options.check_distinct(
        {
            "CODES": codes,
            "INDEX": index,
            option("queries"): options.queries,
            option("points"): options.points,
        }
    )
    options.check()
    options.check_path(index)
    check_faiss()
    stored = open_stored(codes)
    store = stored if isinstance(stored, CellStore) else open_code_store(codes)
    custom = custom_kernel_of(store, options.kernel)
    named = KernelOptions(name=options.kernel)
    named.check_same(kernel_from_spec(store.spec.kernel, custom), codes)
    encoder = encoder_of(store, custom)
    if not isinstance(encoder, Pq):
        raise InputError(
            f"{codes} holds codes of {store.spec.encoder['name']}: expected kpca-pq, map-pq, "
            "pca-pq or pq, which faiss knows. Fix: encode with one of those."
        )
    if encoder.residual:
        raise InputError(
            f"{codes} holds codes of quantizer {store.spec.encoder['quantizer']}: expected pq, as "
            f"an IndexPQ has. Fix: encode with {setting(quantizer='pq')}."
        )
    queries = None
    if options.queries is not None and options.points is not None:
        queries = mapped_source(open_rows(options.queries), map_of(store))
        check_queries(queries, kernel_from_spec(store.spec.kernel, custom), store.spec.dims, codes)
        if not options.force:
            count, _, width = encoder.codebooks.shape
            _check_points(options.points, (queries.shape[0], count * width))
    return ExportTask(
        store=store,
        index=index,
        encoder=encoder,
        queries=queries,
        points=options.points,
        force=options.force,
    )


def _check_points(path: str, shape: tuple[int, int]) -> None:
    """Refuse a file of points with another shape or dtype."""
    if Path(path).is_file():
        with suppress(FormatError):
            there = open_npy(path)
            if there.shape == shape and there.dtype == np.float32:
                return
        raise _other_points(path)


def _write_points(path: str, points: Points) -> None:
    """Write points, unless the same ones are there already."""
    stream = BytesIO()
    np.save(stream, points, allow_pickle=False)
    if not Path(path).is_file():
        publish_output(Path(path), stream.getbuffer())
    elif Path(path).read_bytes() != stream.getbuffer():
        raise _other_points(path)


def _other_points(path: str) -> ExistsError:
    return ExistsError(
        f"{path} exists and holds other points: expected a new path. Fix: name another, or "
        "remove it."
    )


def _column(store: CodeStore | CellStore, name: str) -> NDArray[Any]:
    """Return a column of all parts; every byte is checked."""
    with progress("export", store.parts, "parts") as advance:
        parts = []
        for receipt in store.receipts:
            parts.append(store.store.read_chunk(receipt, name))
            advance(1)
    return np.concatenate(parts)
