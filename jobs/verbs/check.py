"""``mercore check``: every byte of a store against its receipts."""

from contextlib import nullcontext
from dataclasses import dataclass

from mercore.jobs.notices import echo
from mercore.jobs.options import Report
from mercore.jobs.progress import progress
from mercore.jobs.verbs.inputs import VerbTask, exclusive
from mercore.stores.codes import KIND as CODES
from mercore.stores.errors import FormatError, IntegrityError
from mercore.stores.indexes import CellStore, OrderStore
from mercore.stores.part_store.add_blocks import add_blocks
from mercore.stores.part_store.deletions import deleted_bits
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.rows import stored_header
from mercore.stores.vectors import KIND as VECTORS
from mercore.stores.vectors import VectorStore


@dataclass(frozen=True, kw_only=True)
class CheckTask(VerbTask):
    """A store of parts whose header is read."""

    path: str
    store: PartStore
    add_blocks: bool

    def run(self) -> Report:
        """Read every file of the store; return its faults, one sentence each."""
        parts, adds = self.store.layout.parts, self.add_blocks and not self.store.header.block_bytes
        with (
            exclusive(self.store.location) if adds else nullcontext(),
            progress("check", parts, "parts") as advance,
        ):
            faults = add_blocks(self.store, advance) if adds else self.store.check(advance)
            if not faults and self.store.header.kind == VECTORS:
                faults = [*filter(None, [VectorStore(self.store).check_content()])]
            try:
                deleted_bits(self.store.header, self.store.location)
            except IntegrityError as error:
                faults = [*faults, error.message]
        if self.add_blocks and not faults:
            state = "has its checksums of blocks now" if adds else "had checksums of blocks already"
            echo(f"{self.path} {state}", err=True)
        return {"path": self.path, "kind": self.store.header.kind, "parts": parts, "faults": faults}


def open_check(store: str, add_blocks: bool) -> CheckTask:
    """Open the header of a store; refuse anything without receipts."""
    header = stored_header(store)
    if header is None or header.kind not in (CODES, CellStore.kind, OrderStore.kind, VECTORS):
        raise FormatError(
            f"{store} has no receipts to check against. Fix: mercore ingest {store} STORE"
        )
    return CheckTask(path=store, store=PartStore(store, header), add_blocks=add_blocks)
