"""``mercore check``: every byte of a store against its receipts."""

from dataclasses import dataclass

from mercore.jobs.options import Report
from mercore.jobs.progress import progress
from mercore.jobs.verbs.inputs import VerbTask
from mercore.stores.codes import KIND as CODES
from mercore.stores.errors import FormatError
from mercore.stores.orders import KIND as ORDERS
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.rows import stored_header
from mercore.stores.vectors import KIND as VECTORS


@dataclass(frozen=True, kw_only=True)
class CheckTask(VerbTask):
    """A store of parts whose header is read."""

    path: str
    store: PartStore

    def run(self) -> Report:
        """Read every file of the store; return its faults, one sentence each."""
        parts = self.store.layout.parts
        with progress("check", parts, "parts") as advance:
            faults = self.store.check(advance)
        return {"path": self.path, "kind": self.store.header.kind, "parts": parts, "faults": faults}


def open_check(store: str) -> CheckTask:
    """Open the header of a store; refuse anything without receipts."""
    header = stored_header(store)
    if header is None or header.kind not in (CODES, ORDERS, VECTORS):
        raise FormatError(
            f"{store} has no receipts to check against. Fix: mercore ingest {store} STORE"
        )
    return CheckTask(path=store, store=PartStore(store, header))
