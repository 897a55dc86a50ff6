"""``mercore info``: the description of a store or a file."""

from dataclasses import dataclass

from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.verbs.inputs import VerbOptions, VerbTask
from mercore.pipeline.cells.curve import LISTED, RecallCurve, curve_of
from mercore.pipeline.kernels import is_custom, kernel_from_spec
from mercore.pipeline.linear_map import map_of
from mercore.stores.codes import CodeStore
from mercore.stores.formats import check_format, open_source
from mercore.stores.indexes import CellStore, Index, OrderStore
from mercore.stores.part_store.deletions import deleted_rows
from mercore.stores.results.hdf5 import split_dataset
from mercore.stores.results.recognise import describe_results
from mercore.stores.rows import Stored, open_stored
from mercore.stores.vectors import KIND as VECTORS
from mercore.stores.vectors import VectorStore


@dataclass(frozen=True, kw_only=True)
class InfoOptions(VerbOptions):
    """The option of info: the format of a file whose suffix does not say it."""

    format: str | None = None

    def check(self) -> None:
        """Refuse an unknown format."""
        check_format(self.format)


@dataclass(frozen=True, kw_only=True)
class InfoTask(VerbTask):
    """The path of a store or a file; the open store, or None; and the format that the user gave."""

    path: str
    store: Stored | None
    format: str | None

    def run(self) -> Report:
        """Return the description."""
        if isinstance(self.store, CodeStore):
            return describe_codes(self.store)
        if isinstance(self.store, OrderStore):
            return describe_orders(self.store)
        if isinstance(self.store, CellStore):
            return describe_cells(self.store)
        if self.store is not None:
            return describe_vectors(self.store)
        results = describe_results(self.path, self.format)
        if results is not None:
            return results
        source = open_source(self.path, form=self.format)
        rows, dims = source.shape
        return {
            "kind": "foreign",
            "path": self.path,
            "rows": rows,
            "dims": dims,
            "dtype": source.dtype.name,
        }


def open_info(store: str, options: InfoOptions = InfoOptions()) -> InfoTask:
    """Determine the kind of a store or file; ``file.h5::name`` is a dataset in a file.

    Raises
    ------
    MercoreError
        If there is nothing, or the format is unknown or of no use.
    """
    options.check()
    opened = open_stored(split_dataset(store)[0])
    if opened is not None:
        refuse_unused(f"{store} is a store of {opened.kind}", format=options.format)
    return InfoTask(path=store, store=opened, format=options.format)


def describe_vectors(vectors: VectorStore) -> Report:
    """Return the description of a vector store."""
    deleted = deleted_rows(vectors.store.header)
    return {
        "kind": VECTORS,
        "path": vectors.where,
        "rows": vectors.rows,
        "parts": vectors.parts,
        "bytes": vectors.stored_bytes,
        **({"deleted_rows": deleted} if deleted else {}),
        "fingerprint": vectors.fingerprint,
        **{
            key: value
            for key, value in vars(vectors.spec).items()
            if key not in ("name", "version", "content", "dropped_kinds", "appended")
        },
        "source": vectors.source,
        **({"appended": _appended(vectors)} if vectors.spec.appended else {}),
    }


def _appended(vectors: VectorStore) -> str:
    """Return the names of the sources that were appended."""
    return ", ".join(
        str(each.get("source")) for sources in vectors.spec.appended for each in sources
    )


def describe_codes(codes: CodeStore) -> Report:
    """Return the description of a code store, which may be unfinished."""
    done = codes.store.done()
    columns, parts_done = codes.store.column_bytes(done), len(done)
    total = sum(columns.values())
    rows_done = min(codes.rows, parts_done * codes.store.layout.part_rows)
    return {
        "kind": "codes",
        "path": codes.where,
        "rows": codes.rows,
        "parts": codes.parts,
        "parts_done": parts_done,
        **_scoring(codes),
        "encoder": codes.spec.encoder,
        "bytes": total,
        "bytes_per_row": round(total / max(1, rows_done), 3),
        "columns": columns,
        "source": codes.source_path,
    }


def describe_orders(orders: OrderStore) -> Report:
    """Return the description of sorted orders, which may be unfinished."""
    done = orders.store.done()
    columns = orders.store.column_bytes(done)
    return {
        "kind": OrderStore.kind,
        "path": orders.where,
        "rows": orders.rows,
        "orders": orders.orders,
        "parts": orders.parts,
        "parts_done": len(done),
        "random_state": orders.spec.random_state,
        **_scoring(orders),
        "encoder": orders.spec.encoder,
        "bytes": sum(columns.values()),
        "columns": columns,
        "source": orders.source_path,
    }


def describe_cells(cells: CellStore) -> Report:
    """Return the description of an index of cells, which may be unfinished."""
    done, curve = cells.store.done(), curve_of(cells.model)
    columns, largest = cells.store.column_bytes(done), int(cells.sizes.max())
    return {
        "kind": cells.kind,
        "path": cells.where,
        "rows": cells.rows,
        "cells": cells.spec.cells,
        "largest_cell": largest,
        "parts": cells.parts,
        "parts_done": len(done),
        "random_state": cells.spec.random_state,
        **_scoring(cells),
        "encoder": cells.spec.encoder,
        **({} if curve is None else {"recall_at_10": _recalls(curve)}),
        "bytes": sum(columns.values()),
        "columns": columns,
        "source": cells.source_path,
    }


def _recalls(curve: RecallCurve) -> dict[str, float]:
    """Return the recall of 10 neighbours by the number of cells, if enough codes are reranked."""
    k, most = min(10, curve.cell_ranks.shape[1]), int(curve.cell_ranks.max()) + 1
    probes = [1 << power for power in range(most.bit_length())]
    return {str(each): round(curve.recall(k, each, LISTED), 3) for each in probes}


def _scoring(store: CodeStore | Index) -> Report:
    """Return the kernel of a store, and the linear map of its rows if it has one."""
    kernel, linear_map = dict(store.spec.kernel), map_of(store)
    report: Report = {"kernel": kernel if is_custom(kernel) else kernel_from_spec(kernel).spec()}
    if linear_map is not None:
        report["linear_map"] = {
            "shape": list(linear_map.matrix.shape),
            "digest": linear_map.digest,
        }
    return report
