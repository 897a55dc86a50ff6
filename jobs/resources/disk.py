"""Bytes of a store on disk, and the refusal of work that exceeds the free disk."""

from mercore.jobs.printing import format_size
from mercore.pipeline.cells.plan import CellPlan
from mercore.pipeline.encode import EncodePlan
from mercore.pipeline.orders.plan import OrderPlan
from mercore.stores.codes import KIND as CODES
from mercore.stores.errors import BudgetError
from mercore.stores.formats.source import Source
from mercore.stores.indexes.cells import CellStore, SortedParts
from mercore.stores.indexes.orders import KIND as ORDERS
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.header import Header, Layout
from mercore.stores.part_store.sizes import bytes_beside_columns, plain_bytes
from mercore.stores.spec import to_json
from mercore.stores.vector_writer import chunk_rows
from mercore.stores.vectors import KIND as VECTORS
from mercore.stores.vectors import vectors_column


def check_disk(
    verb: str, where: Where, needed: int, fix: str = "name a path on another disk"
) -> None:
    """Refuse work that would write more bytes than are free at ``where``.

    Raises
    ------
    BudgetError
        If it would.
    """
    free = location_of(where).free_bytes()
    if free is not None and needed > free:
        raise BudgetError(
            f"{verb} would write {format_size(needed)}: expected at most {format_size(free)}, "
            f"which is free for {where}. Fix: free space there, or {fix}."
        )


def encoded_bytes(plan: EncodePlan) -> dict[str, int]:
    """Return the bytes of a code store's files; compressed columns and an unfitted model are 0."""
    fitted = "model" in vars(plan)
    layout = plan.layout if fitted else plan.unfitted
    plain = all(fields["compressor"] == "none" for fields in layout.columns)
    return _sizes(Header(kind=CODES, spec=to_json(plan.spec), layout=layout), plain=plain)


def order_store_bytes(plan: OrderPlan) -> dict[str, int]:
    """Return the bytes of the files of sorted orders by content."""
    header = Header(kind=ORDERS, spec=to_json(plan.spec), layout=plan.layout)
    return _sizes(header, plain=True)


def cell_store_bytes(plan: CellPlan) -> dict[str, int]:
    """Return the bytes of an index of cells and its sorted parts, without their models."""
    spec = to_json(plan.spec)
    headers = [
        Header(kind=kind.kind, spec=spec, layout=layout)
        for kind, layout in ((CellStore, plan.layout), (SortedParts, plan.sorted_layout(plan.rows)))
    ]
    index, beside = (_sizes(header, plain=True) for header in headers)
    return {**index, "sorted_parts": sum(beside.values())}


def ingested_bytes(source: Source, rows: int, compressor: str = "none") -> dict[str, int]:
    """Return the bytes of a vector store's files by content; compressed columns count 0."""
    dims, dtype = source.shape[1], source.dtype
    fields = vectors_column(dtype.name, dims, compressor)
    part_rows = chunk_rows(dims, dtype, source.shape[0])
    layout = Layout(rows=rows, part_rows=part_rows, columns=[fields], model={})
    return _sizes(Header(kind=VECTORS, spec={}, layout=layout), plain=compressor == "none")


def _sizes(header: Header, *, plain: bool) -> dict[str, int]:
    columns = plain_bytes(header.layout) if plain else dict.fromkeys(header.layout.column_names, 0)
    return {**columns, **bytes_beside_columns(header)}
