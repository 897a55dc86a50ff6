"""``mercore delete`` hides rows from every search; ``mercore compact`` writes the others."""

import time
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from mercore.jobs.options import Report
from mercore.jobs.progress import progress
from mercore.jobs.resources.disk import check_disk, ingested_bytes
from mercore.jobs.verbs.info import describe_vectors
from mercore.jobs.verbs.inputs import VerbOptions, VerbTask, exclusive
from mercore.jobs.verbs.rows.choice import RowChoice, RowSet, bits_of
from mercore.pipeline.ingest import Drop, ingest
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import InputError
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.part_store.deletions import deleted_rows, publish_deletion
from mercore.stores.rows import StoredRows
from mercore.stores.vector_writer import VectorWriter
from mercore.stores.vectors import Vectors, VectorStore, open_vector_store
from mercore.stores.wording import command


@dataclass(frozen=True, kw_only=True)
class DeleteTask(VerbTask):
    """A deletion of rows from an open store."""

    store: VectorStore
    ids: RowSet

    def run(self) -> Report:
        """Mark the rows as deleted; return the numbers of rows."""
        location = self.store.store.location
        with exclusive(location):
            store = open_vector_store(location)  # which may have grown since
            bits = bits_of(self.ids, "ids", store)
            deleted = store.deleted
            if deleted is not None:
                bits[: len(deleted)] |= deleted
            if int(np.bitwise_count(bits).sum(dtype=np.int64)) == store.rows:
                raise InputError(
                    f"no row of {store.where} would be left: expected one or more. Fix: delete "
                    "fewer rows, or remove the store."
                )
            before = deleted_rows(store.store.header)
            header = publish_deletion(store.store.header, location, bits)
        now = deleted_rows(header)
        return {
            "path": store.where,
            "rows": store.rows - now,
            "rows_deleted": now - before,
            "rows_deleted_in_all": now,
        }


def open_delete(store: str, ids: RowSet) -> DeleteTask:
    """Open a vector store, and refuse ids that it lacks."""
    opened = open_vector_store(store)
    bits_of(ids, "ids", opened)
    return DeleteTask(store=opened, ids=ids)


@dataclass(frozen=True, kw_only=True)
class CompactOptions(VerbOptions):
    """The option of compact: the compressor of the new store."""

    compressor: str = "none"

    def check(self) -> None:
        """Refuse an unknown compressor."""
        check_compressor(self.compressor)

    def check_path(self, target: str) -> None:
        """Refuse a path at which no store can be made."""
        location_of(target).check_new()


@dataclass(frozen=True, kw_only=True)
class CompactTask(VerbTask):
    """A compaction of an open store."""

    store: VectorStore
    target: str
    options: CompactOptions

    def check_limits(self) -> None:
        """Refuse rows that exceed the free disk; compressed rows may take less, so they pass."""
        if self.options.compressor == "none":
            sizes = ingested_bytes(self._rows, self._rows.shape[0])
            check_disk("compacting", self.target, sum(sizes.values()))

    def run(self) -> Report:
        """Write the rows that are left; return the description of the new store."""
        self.check_limits()
        began = time.perf_counter()
        rows, location = self._rows, location_of(self.target)
        with (
            exclusive(self.target) as lease,
            VectorWriter(
                self.target,
                dims=rows.shape[1],
                dtype=rows.dtype,
                compressor=self.options.compressor,
            ) as writer,
            closing(DistinctCounter(location.spill_folder())) as counter,
            progress("compact", rows.shape[0], "rows") as advance,
        ):
            kept = self._vectors.ids_of(np.arange(rows.shape[0]))
            missing = np.setdiff1d(np.arange(self.store.id_count), kept, assume_unique=True)
            checked = lease.checked(advance)
            made = ingest(rows, writer, counter, drop=Drop(missing=missing), advance=checked)
        return {**describe_vectors(made), "seconds": round(time.perf_counter() - began, 3)}

    @property
    def _vectors(self) -> Vectors:
        """The rows that are left."""
        return RowChoice().select_vectors(self.store)

    @property
    def _rows(self) -> StoredRows:
        return StoredRows(self._vectors)


def open_compact(store: str, target: str, options: CompactOptions) -> CompactTask:
    """Open a vector store, and refuse a path at which no store can be made."""
    options.check()
    options.check_path(target)
    opened = open_vector_store(store)
    if opened.deleted is None:
        raise InputError(
            f"{store} has no deleted rows: expected some. Fix: {command('delete', store, 'IDS')}"
        )
    return CompactTask(store=opened, target=target, options=options)
