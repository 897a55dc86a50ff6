"""Adds the checksums of blocks to a store that an earlier version wrote, without copying it.

The receipts are published again, part by part: they state the same chunks, and their blocks too.
Then come the metadata of the receipts, and the header, which says that there are blocks. A kill
leaves receipts that every reader takes; the next run goes over all parts again.
"""

from collections.abc import Callable
from dataclasses import replace

from mercore.stores.location.protocol import ROOT
from mercore.stores.part_store.blocks import BLOCK_BYTES
from mercore.stores.part_store.group_metadata import (
    columns_metadata,
    publish_files,
    root_metadata,
    wrong_files,
)
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import chunk_entry


def add_blocks(store: PartStore, advance: Callable[[int], None]) -> list[str]:
    """Check a store whose lease is held, and add the checksums of its blocks.

    Return one sentence per fault; a store with faults gets no new header.
    """
    new = PartStore(store.location, replace(store.header, block_bytes=BLOCK_BYTES, text=None))

    def add(part: int) -> None:
        stored = store.stored_receipt(part)
        if stored is None or stored.grown:  # the encode or append that is at work there adds them
            return
        receipt = store.done_receipt(part)
        entries = {}
        for name, column in new.columns.items():
            entries[name] = chunk_entry(column, store.read_file(receipt, column).tobytes())
        new.publish_receipt(replace(stored, chunks=entries))

    store.sweep()
    faults = store.check(advance, add)
    if not faults:
        publish_files(new.location, wrong_files(new.location, columns_metadata(new.header)))
        (new.location / ROOT).publish(root_metadata(new.header))
    return faults
