"""Stores of any number of rows on a small disk: the files of a smaller store, linked over and over.

Each part is a file of its own for every command: it has a path and a receipt, and is read and
checked. Only the disk holds it once.
"""

import os
from dataclasses import replace
from pathlib import Path

from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.part_store.header import Header, Layout
from mercore.stores.part_store.part_store import PartStore, create
from mercore.stores.spec import digest, to_json
from mercore.stores.vectors import KIND, VectorStore, open_vector_store


def repeated_vectors(source: Path, out: Path, rows: int, period: int) -> VectorStore:
    """Write a vector store of the first ``period`` rows of another, repeated.

    It has the least number of whole parts that hold ``rows`` rows.
    """
    held = open_vector_store(source)
    layout = _layout(held.store.layout, rows)
    entries = held.chunk_entries()[: period // layout.part_rows]
    content = digest([entries[part % len(entries)] for part in range(layout.parts)])
    spec = replace(held.spec, content=content, source_rows=layout.rows)
    header = Header(kind=KIND, spec=to_json(spec), layout=layout, notes=held.store.header.notes)
    store = create(out, header, {})
    _link(held.store, store, len(entries))
    return VectorStore(store)


def repeated_codes(
    source: Path, out: Path, rows: int, *, vectors: VectorStore | None = None
) -> CodeStore:
    """Write a code store of the whole parts of another, repeated for at least ``rows`` rows.

    ``vectors`` are the rows that it states as its source; by default, the source of the other.
    """
    held = open_code_store(source)
    layout = _layout(held.store.layout, rows)
    spec, where = held.spec, held.source_path
    if vectors is not None:
        assert layout.rows == vectors.rows
        spec, where = replace(spec, source=vectors.fingerprint), vectors.where
    made = CodeStore.create_or_resume(out, spec, layout, held.model, source_path=where)
    _link(held.store, made.store, whole_rows(held) // layout.part_rows)
    return made


def whole_rows(codes: CodeStore) -> int:
    """Return the rows in the whole parts of codes."""
    return codes.rows // codes.store.layout.part_rows * codes.store.layout.part_rows


def _layout(layout: Layout, rows: int) -> Layout:
    """Return the layout with the least number of whole parts that hold ``rows`` rows."""
    return replace(layout, rows=-(-rows // layout.part_rows) * layout.part_rows)


def _link(source: PartStore, made: PartStore, parts: int) -> None:
    """Link the files of the first ``parts`` parts of a store, over and over."""
    receipts = [source.receipt(part) for part in range(parts)]
    for part in range(made.layout.parts):
        receipt = receipts[part % parts]
        assert receipt is not None
        for name in made.layout.column_names:
            column = made.layout.column(name)
            file = Path(str(made.location)) / column.chunk_key(part)
            file.parent.mkdir(parents=True, exist_ok=True)
            os.link(Path(str(source.location)) / column.chunk_key(receipt.part), file)
        made.publish_receipt(made.new_receipt(part, receipt.chunks, receipt.facts))
