"""Growth of a store: rows are added behind its last; a kill leaves the old rows or all new ones.

The last part may be ragged. Then it grows: its chunks are replaced by chunks with more rows, and
the old rows come first in both. A growing store publishes, in this order:

1. the new arrays of the model, and chunks and receipts of new parts: the old header names none;
2. the receipt of the part that grows, which describes its old and its new chunks (``grown``);
3. the new chunks of that part;
4. the metadata of the root, with the new header: now the store has grown;
5. the metadata of the columns, and the receipt of the part that grew, of its new chunks alone.

Before step 4 the store has its old rows: ``undo_growth`` takes steps 1 to 3 back. After it the
store has all new rows: ``finish_growth`` does step 5. Readers are right at every moment. From step
2 to step 5 the receipt allows the old and the new chunks; a reader takes from them the rows of its
own header. After step 5 a reader of the old header cuts the receipt to its rows
(``PartStore.receipt``).

The workers that encode take parts in any order. So the part that grows may come before new parts:
steps 2 and 3 before the rest of step 1.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError
from mercore.stores.location.protocol import ROOT
from mercore.stores.part_store.column import encode_chunk
from mercore.stores.part_store.group_metadata import (
    columns_metadata,
    model_files,
    publish_files,
    root_metadata,
    wrong_files,
)
from mercore.stores.part_store.header import Header, Layout, model_entries
from mercore.stores.part_store.part_files import PartFiles
from mercore.stores.part_store.receipts import Receipt, chunk_entry, stated
from mercore.stores.spec import to_json

MAX_GAP = 8  # parts in a row that a killed writer may have left out before another one


def ragged_part(layout: Layout) -> int | None:
    """Return the last part of a layout if it has fewer rows than the others can have."""
    return layout.parts - 1 if layout.rows % layout.part_rows else None


def begin_growth(
    old: PartFiles, spec: object, rows: int, model: Mapping[str, NDArray[Any]]
) -> Header:
    """Begin step 1: publish new arrays of the model; return the header of the next state.

    Parameters
    ----------
    model : the arrays that the model of the next state has beyond the old one
    """
    before = old.layout
    state = {"rows": before.rows, "digest": old.header.spec_digest}
    layout = replace(
        before,
        rows=rows,
        model={**before.model, **model_entries(model)},
        grown_from=[*before.grown_from, state],
    )
    header = replace(old.header, spec=to_json(spec), layout=layout, text=None)
    publish_files(old.location, model_files(header, model))
    return header


def grow_part(store: PartFiles, earlier: Receipt, files: Mapping[str, bytes]) -> Receipt:
    """Do steps 2 and 3: publish the chunks of the part that grows, behind their receipt.

    Parameters
    ----------
    store : the store in its next state
    earlier : the receipt of the part before
    files : the chunk of each column
    """
    chunks = {name: chunk_entry(store.columns[name], data) for name, data in files.items()}
    grown = {
        "job": store.header.spec_digest,
        "stop": store.bounds(earlier.part)[1],
        "chunks": chunks,
    }
    old = {name: stated(entry) for name, entry in earlier.chunks.items()}
    both = replace(earlier, chunks=old, grown=grown)
    store.publish_receipt(both)
    for name, data in files.items():
        store.chunk_file(store.columns[name], earlier.part).publish(data)
    return both


def publish_growth(store: PartFiles) -> None:
    """Do steps 4 and 5: publish the header of the next state, and what follows it."""
    store.location.sync_folders()
    (store.location / ROOT).publish(root_metadata(store.header))
    finish_growth(store)


def finish_growth(store: PartFiles) -> bool:
    """Do what is left of step 5; return whether anything was."""
    if not store.layout.grown_from:
        return False
    wrong = wrong_files(store.location, columns_metadata(store.header))
    publish_files(store.location, wrong)
    part = store.layout.grown_from[-1]["rows"] // store.layout.part_rows
    earlier = ungrown_receipt(store, part)
    grown = None if earlier is None else receipt_of_state(store, part, earlier)
    if grown is not None:
        store.publish_receipt(grown)
    return bool(wrong) or grown is not None


def undo_growth(store: PartFiles, array: str) -> None:
    """Take steps 1 to 3 of a killed growth back.

    Parameters
    ----------
    array : the name of the array, of one dimension, that the model of the next state may have

    Raises
    ------
    IntegrityError
        If a file of the ragged part is damaged.
    """
    undo_part(store)
    _remove_new_parts(store)
    keys = [f"model/{array}/c/0", f"model/{array}/{ROOT}"]
    for key in [*keys, *([] if store.layout.model else [f"model/{ROOT}"])]:
        (store.location / key).remove()


def undo_part(store: PartFiles, kept: str | None = None) -> None:
    """Take steps 2 and 3 back, unless they are of the growth to the state with digest ``kept``.

    Another version of a compressor may write the old rows in other bytes. The receipt describes
    these before they replace the grown chunk; an old chunk that is still there stays. Until the
    next append is done, a check of vectors then finds other bytes than their fingerprint covers.

    Raises
    ------
    IntegrityError
        If a file of the ragged part is damaged.
    """
    part = ragged_part(store.layout)
    receipt = None if part is None else store.stored_receipt(part)
    if receipt is None or receipt.grown.get("job", kept) == kept:
        return
    entries = {}
    for name, column in store.columns.items():
        data = store.read_file(receipt, column).tobytes()
        if stated(chunk_entry(column, data)) != receipt.chunks[name]:  # it is the grown chunk
            rows = store.decode_file(receipt, column, np.frombuffer(data, np.uint8))
            data = encode_chunk(column, rows)
            old = stated(chunk_entry(column, data))
            if old != receipt.chunks[name]:
                receipt = replace(receipt, chunks={**receipt.chunks, name: old})
                store.publish_receipt(receipt)
            store.chunk_file(column, receipt.part).publish(data)
        entries[name] = chunk_entry(column, data)
    store.publish_receipt(replace(receipt, chunks=entries, grown={}))


def _remove_new_parts(store: PartFiles) -> None:
    """Take step 1 back: remove the parts behind the last, which were published nearly in order."""
    size_of = store.location.sizes()

    def files(part: int) -> list[str]:
        keys = [column.chunk_key(part) for column in store.columns.values()]
        return [key for key in (*keys, store.receipt_key(part)) if size_of(key) is not None]

    found: list[list[str]] = []
    while any(found[-MAX_GAP:]) or len(found) < MAX_GAP:
        found.append(files(store.layout.parts + len(found)))
    for keys in reversed(found):  # the last part first: a kill here leaves no gap
        for key in keys:
            (store.location / key).remove()


def receipt_of_state(store: PartFiles, part: int, stored: Receipt) -> Receipt | None:
    """Return a stored receipt as that of all rows of a part in the state of a store, or None.

    A receipt of an earlier state counts if its part had all these rows already.
    """
    wanted = (part, *store.bounds(part))
    for each in stored.states:
        known = each.job == store.header.spec_digest or each.job in store.earlier
        if known and (each.part, each.start, each.stop) == wanted:
            return each
    return None


def is_ungrown(store: PartFiles, part: int, stored: Receipt) -> bool:
    """Return whether a stored receipt is of an earlier state, in which its part had fewer rows."""
    start, stop = store.bounds(part)
    at_start = (stored.part, stored.start) == (part, start)
    return at_start and stored.job in store.earlier and stored.stop < stop


def ungrown_receipt(store: PartFiles, part: int) -> Receipt | None:
    """Return the stored receipt of a part if it is of an earlier state with fewer rows."""
    if not store.layout.grown_from:
        return None
    with suppress(IntegrityError, FormatError):
        stored = store.stored_receipt(part)
        if stored is not None and is_ungrown(store, part, stored):
            return stored
    return None
