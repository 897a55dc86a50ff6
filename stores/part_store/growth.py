"""Growth of a store: what is published around the moment at which its header is replaced.

A growing store publishes new parts, which its old header does not count; then the grown last part,
whose receipt describes both states; then its new header: at this moment it has grown. What the
header replaced in the files beside it follows (``finish_growth``).
"""

from dataclasses import replace

from mercore.stores.location.protocol import ROOT
from mercore.stores.part_store.column import encode_chunk
from mercore.stores.part_store.header import Header, Layout
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import chunk_entry, receipt_bytes
from mercore.stores.part_store.skeleton import holds, metadata_files, root_metadata

MOST_MISSING = 8  # parts in a row that a killed writer may have left out before another one


def grown_layout(header: Header, rows: int, model: dict[str, dict[str, object]]) -> Layout:
    """Return the layout of a store that has grown to ``rows`` rows.

    Parameters
    ----------
    model : the entries of the model arrays that the old header lacks
    """
    before = header.layout
    state = {"rows": before.rows, "digest": header.spec_digest}
    return replace(
        before,
        rows=rows,
        model={**before.model, **model},
        grown_from=[*before.grown_from, state],
    )


def ragged_part(layout: Layout) -> int | None:
    """Return the last part of a layout if it has fewer rows than the others can have."""
    return layout.parts - 1 if layout.rows % layout.part_rows else None


def part_that_grew(layout: Layout) -> int | None:
    """Return the part that had fewer rows before the store grew last, or None."""
    return ragged_part(replace(layout, rows=layout.grown_from[-1]["rows"]))


def is_finished(store: PartStore) -> bool:
    """Return whether all that follows the header of the last growth is published."""
    if not store.layout.grown_from:
        return True
    part = part_that_grew(store.layout)
    receipt = None if part is None else store.stored_receipt(part)
    if receipt is not None and receipt.stop < store.bounds(receipt.part)[1]:
        return False
    files = {key: data for key, data in metadata_files(store.header) if _is_of_columns(store, key)}
    return all(holds(store.location, key, data) for key, data in files.items())


def is_growing_to_another(store: PartStore, header: Header) -> bool:
    """Return whether a killed growth to another state than that of ``header`` left its mark."""
    part = ragged_part(store.layout)
    receipt = None if part is None else store.stored_receipt(part)
    states = ("", header.spec_digest)
    return receipt is not None and receipt.grown.get("job", "") not in states


def publish_growth(store: PartStore) -> None:
    """Publish the header of a store whose parts have grown, and what follows it."""
    store.location.sync_folders()
    (store.location / ROOT).publish(root_metadata(store.header))
    finish_growth(store)


def finish_growth(store: PartStore) -> None:
    """Publish what follows the header of the last growth: metadata, then the grown receipt."""
    files = [item for item in metadata_files(store.header) if _is_of_columns(store, item[0])]
    for key, data in files:
        if not holds(store.location, key, data):
            (store.location / key).publish(data)
    part = part_that_grew(store.layout)
    if part is not None and store.ungrown_receipt(part) is not None:
        receipt = store.receipt(part)
        assert receipt is not None
        store.publish_receipt(part, receipt.chunks, receipt.facts)


def undo_growth(store: PartStore) -> None:
    """Give the last part its old files back, if a growth was killed before its header.

    Raises
    ------
    IntegrityError
        If a file of the part is damaged.
    """
    part = ragged_part(store.layout)
    receipt = None if part is None else store.stored_receipt(part)
    if part is None or receipt is None or not receipt.grown:
        return
    for name in store.layout.column_names:
        column = store.layout.column(name)
        data = encode_chunk(column, store.read_chunk(receipt, name))
        if chunk_entry(data) != receipt.chunks[name]:  # another version of a compressor
            receipt = replace(receipt, chunks={**receipt.chunks, name: chunk_entry(data)})
            store.receipt_file(part).publish(receipt_bytes(receipt, store.layout.parts))
        store.chunk_file(column, part).publish(data)
    store.publish_receipt(part, receipt.chunks, receipt.facts)


def remove_leftovers(store: PartStore) -> None:
    """Remove the parts that a killed growth published behind the last part, nearly in order."""
    size_of = store.location.sizes()
    columns = [store.layout.column(name) for name in store.layout.column_names]

    def files(part: int) -> list[str]:
        keys = (*(column.chunk_key(part) for column in columns), store.receipt_key(part))
        return [key for key in keys if size_of(key) is not None]

    found: list[list[str]] = []
    while any(found[-MOST_MISSING:]) or len(found) < MOST_MISSING:
        found.append(files(store.layout.parts + len(found)))
    for keys in reversed(found):  # the last part first: a kill here leaves no gap
        for key in keys:
            (store.location / key).remove()


def _is_of_columns(store: PartStore, key: str) -> bool:
    """Return whether a key is the metadata of a column or of the receipts."""
    return key in {f"{name}/{ROOT}" for name in (*store.layout.column_names, "receipts")}
