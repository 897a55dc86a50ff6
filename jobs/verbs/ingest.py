"""``mercore ingest`` and ``mercore append``: copy foreign sources into a vector store."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mercore.jobs.notices import echo, warn
from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.resources.disk import check_disk, ingested_bytes
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.verbs.info import describe_vectors
from mercore.jobs.verbs.inputs import VerbOptions, exclusive
from mercore.pipeline.ingest import Drop, is_append_of
from mercore.pipeline.ingest import ingest as ingest_source
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import InputError
from mercore.stores.formats import AnyRows, check_format, open_source
from mercore.stores.formats.array import is_arrow
from mercore.stores.formats.chained import ChainedSource, check_same_kind, sources_of
from mercore.stores.formats.source import Source, parse_rows
from mercore.stores.formats.streams import is_open_ended
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.resolve import Where, expand_home, location_of
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.vector_writer import VectorAppender, VectorWriter, ready_to_grow
from mercore.stores.vectors import VectorStore, open_vector_store
from mercore.stores.wording import option

Given = Path | AnyRows  # one source


@dataclass(frozen=True, kw_only=True)
class DropOptions(VerbOptions):
    """The rows that an ingest or an append leaves out."""

    drop_zero_rows: bool = False
    drop_bad_rows: bool = False

    @property
    def drop(self) -> Drop:
        """The rows to leave out."""
        return Drop(zero=self.drop_zero_rows, bad=self.drop_bad_rows)


@dataclass(frozen=True, kw_only=True)
class AppendOptions(DropOptions):
    """The options of an append."""

    again: bool = False

    def check(self) -> None:
        """Refuse nothing: an append has no option that can be wrong without its store."""


@dataclass(frozen=True, kw_only=True)
class IngestOptions(DropOptions):
    """The options of an ingest."""

    compressor: str = "none"
    format: str | None = None
    rows: str | None = None

    def check(self) -> None:
        """Refuse an unknown compressor or format."""
        check_compressor(self.compressor)
        check_format(self.format)
        if self.rows is not None:
            parse_rows(self.rows)

    def check_path(self, target: Where) -> None:
        """Refuse a path at which no store can be made."""
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
            ) as writer,
            closing(DistinctCounter(location.spill_folder())) as counter,
            progress("ingest", n, "rows") as advance,
        ):
            drop, checked = self.options.drop, lease.checked(advance)
            made = ingest_source(self.source, writer, counter, drop=drop, advance=checked)
        print_bad_rows(made, 0, 0)
        self._warn_of_rounding()
        return {**describe_vectors(made), "seconds": round(time.perf_counter() - began, 3)}

    def _warn_of_rounding(self) -> None:
        """Warn that the store holds other numbers than the source, if it does."""
        stored = self.source.source_dtype
        if stored.kind == "f" and stored.itemsize > self.source.dtype.itemsize:
            warn(
                f"{self.source.name} holds {stored.name}: the store keeps its numbers rounded to "
                f"{self.source.dtype.name}"
            )


@dataclass(frozen=True, kw_only=True)
class AppendTask:
    """An append whose source and store are open."""

    source: Source
    store: VectorStore
    options: AppendOptions

    def check_limits(self) -> None:
        """Refuse rows that exceed the free disk; compressed rows may take less, so they pass."""
        compressor = self.store.store.layout.columns[0]["compressor"]
        if compressor == "none":
            sizes = ingested_bytes(self.source, self.source.shape[0])
            check_disk("appending", self.store.where, sum(sizes.values()), "append fewer rows")

    def run(self) -> Report:
        """Append the rows, unless an append has done so; return the description of the store."""
        began = time.perf_counter()
        location, sources = self.store.store.location, _described(self.source)
        with exclusive(location) as lease:
            store = ready_to_grow(location)
            number = None if self.options.again else self._earlier_append(store, sources)
            if number is None:
                self.check_limits()
                made = self._appended(store, sources, lease)
            else:
                made = store
                print_repeated(store, number)
        return {
            **describe_vectors(made),
            "rows_appended": made.rows - store.rows,
            "seconds": round(time.perf_counter() - began, 3),
        }

    def _earlier_append(self, store: VectorStore, sources: list[dict[str, Any]]) -> int | None:
        """Return the number of the append that stored these very rows, or None."""
        numbers = store.appends_of([each["fingerprint"] for each in sources])
        return next((each for each in numbers if is_append_of(self.source, store, each)), None)

    def _appended(
        self, store: VectorStore, sources: list[dict[str, Any]], lease: LeaseHandle
    ) -> VectorStore:
        """Write the rows behind those of the store."""
        with (
            VectorAppender(store, sources) as writer,
            closing(DistinctCounter(store.store.location.spill_folder())) as counter,
            progress("append", self.source.shape[0], "rows") as advance,
        ):
            drop, checked = self.options.drop, lease.checked(advance)
            made = ingest_source(self.source, writer, counter, drop=drop, advance=checked)
        print_bad_rows(made, *(store.spec.kept_rows(kind) for kind in ("nan", "infinite")))
        return made


def print_repeated(vectors: VectorStore, number: int) -> None:
    """Print that a store has the rows of an append already, and under which ids."""
    sources, before = vectors.spec.appended[number], vectors.history[number]
    names = ", ".join(each["source"] for each in sources)
    first = before.rows + before.dropped
    last = first + sum(each["rows"] for each in sources) - 1
    echo(
        f"{vectors.where} has these rows already, as ids {first:,} to {last:,} from {names}. "
        f"Nothing is appended; {option('again')} appends them once more.",
        err=True,
    )


def print_bad_rows(vectors: VectorStore, nan_before: int, infinite_before: int) -> None:
    """Print how many rows with NaN or infinity an ingest or an append has stored, if any."""
    nan = vectors.spec.kept_rows("nan") - nan_before
    infinite = vectors.spec.kept_rows("infinite") - infinite_before
    if nan or infinite:
        echo(
            f"{vectors.where}: {nan:,} of the new rows hold NaN and {infinite:,} hold infinity, "
            "which no kernel takes. Fix: ingest the source into a new store with "
            f"{option('drop_bad_rows')}.",
            err=True,
        )


def open_ingest(
    source: Given | Sequence[Given], store: Where, options: IngestOptions
) -> IngestTask:
    """Open files or rows in memory [n, d], and refuse a path at which no store can be made."""
    options.check()
    options.check_path(store)
    opened = open_sources(source, form=options.format, rows=options.rows)
    return IngestTask(source=opened, target=store, options=options)


def open_append(
    source: Given | Sequence[Given], store: Where, options: AppendOptions
) -> AppendTask:
    """Open files or arrays [n, d], and the store; refuse rows of another dimension or dtype."""
    opened = open_vector_store(store)
    rows = open_sources(source, appending=True)
    for each in sources_of(rows):
        check_same_kind(each, opened.dims, opened.dtype, opened.where)
    return AppendTask(source=rows, store=opened, options=options)


def open_sources(
    given: Given | Sequence[Given],
    *,
    form: str | None = None,
    rows: str | None = None,
    appending: bool = False,
) -> Source:
    """Open a file or rows in memory [n, d]; a list of these is one source, read in its order.

    Parameters
    ----------
    form, rows : the format and the range of rows: see ``open_source``
    appending : whether the rows are to be appended, which may read them again
    """
    listed = several(given)
    if len(listed) > 1:
        refuse_unused("a range is of one source, and there are several", rows=rows)
    once = len(listed) == 1 and not appending
    opened: list[Source] = [_open(_path(each), form, rows, once=once) for each in listed]
    for source in opened:
        if is_open_ended(source) and (appending or len(opened) > 1):
            raise InputError(
                f"{source.name} is a stream, which is read once: expected files or arrays. Fix: "
                "decompress it, or ingest it alone into a new store."
            )
    return opened[0] if len(opened) == 1 else ChainedSource(opened)


def _open(given: AnyRows, form: str | None, rows: str | None, *, once: bool) -> Source:
    """Open rows, of an Arrow stream perhaps to be read ``once``; images become their GIST."""
    source = open_source(given, form=form, rows=rows, ingesting=True, once=once)
    if not hasattr(source, "picture"):
        return source
    from mercore.pipeline.gist import GistSource  # needs a package of the extra images
    from mercore.stores.formats.images import Images

    assert isinstance(source, Images)
    return GistSource(source, available_cores())


def several(given: Any) -> list[Any]:  # noqa: ANN401 - a path, an array, or a list of these
    """Return the sources in a list of paths or of 2-D arrays; anything else is one source."""
    are_sources = isinstance(given, list | tuple) and all(
        isinstance(each, str | Path) or is_arrow(each) or len(getattr(each, "shape", ())) == 2
        for each in given
    )
    return list(given) if are_sources and given else [given]


def _path(given: Given) -> AnyRows:
    """Return a path as text, its ``~`` expanded, and rows in memory as they are."""
    return expand_home(str(given)) if isinstance(given, str | Path) else given


def _described(source: Source) -> list[dict[str, Any]]:
    """Return the entries of a grown store about the sources of an append."""
    return [
        {"source": each.name, "fingerprint": each.fingerprint(), "rows": each.shape[0]}
        for each in sources_of(source)
    ]
