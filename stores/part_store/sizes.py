"""Sizes of stores on disk, and of memory."""

import psutil

from mercore.stores.part_store.column import CHECKSUM_BYTES
from mercore.stores.part_store.group_metadata import metadata_files
from mercore.stores.part_store.header import Header, Layout, model_column
from mercore.stores.part_store.receipts import receipts_column

SMALL_BYTES = 64 << 10  # a part of the smallest store: parts of a grown store stay few


def small_part_rows(rows: int, row_bytes: int, max_rows: int) -> int:
    """Return the rows per part of a store: ``max_rows``, or fewer if the store has fewer rows.

    Zarr pads a chunk with fewer rows to the size of the others. So a store with fewer rows has
    parts of the next power of two of its rows, and of at least 64 KiB.
    """
    min_rows = 1 << (max(1, SMALL_BYTES // row_bytes).bit_length() - 1)
    return min(max_rows, max(min_rows, 1 << max(0, rows - 1).bit_length()))


def plain_bytes(layout: Layout) -> dict[str, int]:
    """Return the bytes on disk per column, as they are without compression."""
    columns = map(layout.column, layout.column_names)
    return {column.name: layout.parts * (column.chunk_bytes + CHECKSUM_BYTES) for column in columns}


def bytes_beside_columns(header: Header) -> dict[str, int]:
    """Return the bytes on disk of the model, the receipts, and the metadata."""
    layout = header.layout
    model = (
        model_column(name, entry).chunk_bytes + CHECKSUM_BYTES
        for name, entry in layout.model.items()
    )
    return {
        "model": sum(model),
        "receipts": layout.parts * (receipts_column(header).chunk_bytes + CHECKSUM_BYTES),
        "metadata": sum(len(data) for _, data in metadata_files(header)),
    }


def free_memory() -> int:
    """Return the bytes of memory that are free, or that the page cache can give up."""
    return int(psutil.virtual_memory().available)
