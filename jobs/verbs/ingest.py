"""``mercore ingest``: copy a foreign source into a vector store."""

import time
from contextlib import closing
from dataclasses import dataclass

import click

from mercore.jobs.options import Report
from mercore.jobs.progress import progress
from mercore.jobs.resources.disk import check_disk, ingested_bytes
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.verbs.info import describe_vectors
from mercore.jobs.verbs.inputs import VerbOptions, exclusive
from mercore.pipeline.ingest import ingest as ingest_source
from mercore.stores.distinct import DistinctCounter
from mercore.stores.formats import AnyRows, check_format, open_source
from mercore.stores.formats.source import Source, parse_rows
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.vector_writer import VectorWriter


@dataclass(frozen=True, kw_only=True)
class IngestOptions(VerbOptions):
    """The options of an ingest."""

    drop_zero_rows: bool = False
    compressor: str = "none"
    format: str | None = None
    rows: str | None = None

    def check(self, target: Where | None = None) -> None:
        """Refuse an unknown compressor or format, and a path at which no store can be made."""
        check_compressor(self.compressor)
        check_format(self.format)
        if self.rows is not None:
            parse_rows(self.rows)
        if target is not None:
            location_of(target).check_new()


@dataclass(frozen=True, kw_only=True)
class IngestTask:
    """An ingest whose source is open."""

    source: Source
    target: Where
    options: IngestOptions

    def check_limits(self) -> None:
        """Refuse rows that exceed the free disk; compressed rows may take less, so they pass."""
        if self.options.compressor == "none":
            sizes = ingested_bytes(self.source, self.source.shape[0])
            check_disk("ingesting", self.target, sum(sizes.values()))

    def run(self) -> Report:
        """Write the vector store; return its description."""
        self.check_limits()
        began = time.perf_counter()
        n, d = self.source.shape
        location = location_of(self.target)
        location.check_new()  # before waiting for another process
        with (
            exclusive(self.target) as lease,
            VectorWriter(
                self.target,
                dims=d,
                dtype=self.source.dtype,
                compressor=self.options.compressor,
                rows=n,
            ) as writer,
            closing(DistinctCounter(location.spill_folder())) as counter,
            progress("ingest", n, "rows") as advance,
        ):
            drop, checked = self.options.drop_zero_rows, lease.checked(advance)
            made = ingest_source(self.source, writer, counter, drop_zero_rows=drop, advance=checked)
        self._print_rounding()
        return {**describe_vectors(made), "seconds": round(time.perf_counter() - began, 3)}

    def _print_rounding(self) -> None:
        """Print that the store holds other numbers than the source, if it does."""
        stored = self.source.source_dtype
        if stored.kind == "f" and stored.itemsize > self.source.dtype.itemsize:
            click.echo(
                f"{self.source.name} holds {stored.name}: the store keeps its numbers rounded to "
                f"{self.source.dtype.name}",
                err=True,
            )


def open_ingest(source: AnyRows, store: Where, options: IngestOptions) -> IngestTask:
    """Open a file or rows in memory [n, d], and refuse a path at which no store can be made."""
    options.check(store)
    opened = open_source(source, form=options.format, rows=options.rows, ingesting=True)
    return IngestTask(source=_described(opened), target=store, options=options)


def _described(source: Source) -> Source:
    """Return images as their GIST, and other rows as they are."""
    from mercore.pipeline.gist import GistSource
    from mercore.stores.formats.images import Images

    return GistSource(source, available_cores()) if isinstance(source, Images) else source
