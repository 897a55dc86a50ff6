"""Stores that are made part by part from another store, with a model: codes, and sorted orders."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import (
    ExistsError,
    FormatError,
    IntegrityError,
    MercoreError,
    NotFoundError,
)
from mercore.stores.location.protocol import ROOT
from mercore.stores.location.resolve import Where, beside, location_of, relative_path
from mercore.stores.part_store.deletions import deleted_bits
from mercore.stores.part_store.group_metadata import root_metadata
from mercore.stores.part_store.growth import begin_growth, undo_part
from mercore.stores.part_store.header import Header, Layout, model_entries, open_header
from mercore.stores.part_store.part_store import PartStore, create
from mercore.stores.part_store.receipts import Receipt
from mercore.stores.spec import in_words, to_json
from mercore.stores.vectors import dropped_name, dropped_rows

LINEAR_MAP = "linear_map"  # name of a model array
CONTENT = "source_content"  # a note
UNSET = "unset"  # a field that the spec leaves out, which then has its default meaning


class PartBackedStore:
    """An open store with a model, finished or not.

    A subclass states the ``kind`` in its header, and how messages call it.
    """

    kind: ClassVar[str]
    called: ClassVar[str]

    def __init__(self, store: PartStore) -> None:
        self.store = store
        self.parts = store.layout.parts
        self.where = store.where

    @classmethod
    def create_or_resume(
        cls,
        path: Where,
        spec: object,
        layout: Layout,
        model: dict[str, NDArray[Any]],
        *,
        source_path: Where,
    ) -> Self:
        """Open the store of this spec and layout at ``path``, or create it.

        Parameters
        ----------
        source_path : the path of the vectors

        Raises
        ------
        ExistsError
            If something else lies at ``path``; the message names what differs.
        """
        store = cls.begun(path)
        if store is not None:
            return store.resumed(spec, layout)
        try:
            return cls.create(path, spec, layout, model, source_path=source_path)
        except ExistsError:  # another process has made a store there
            store = cls.begun(path)
            assert store is not None
            return store.resumed(spec, layout)

    @classmethod
    def create(
        cls,
        path: Where,
        spec: object,
        layout: Layout,
        model: dict[str, NDArray[Any]],
        *,
        source_path: Where,
    ) -> Self:
        """Create the store of this spec and layout at ``path``, where nothing may be."""
        notes = _source_notes(path, source_path)
        header = Header(kind=cls.kind, spec=to_json(spec), layout=layout, notes=notes)
        return cls(create(path, header, model))

    @classmethod
    def begun(cls, path: Where) -> Self | None:
        """Open the store at ``path``, finished or not; None if nothing is there.

        Raises
        ------
        ExistsError
            If something else is there.
        """
        try:
            return cls.open(path)
        except NotFoundError:
            return None
        except FormatError:
            raise ExistsError(
                f"{path} exists and is no {cls.called}: expected one that is begun, or a new path. "
                "Fix: name another."
            ) from None

    def continues(self, spec: object, layout: Layout) -> bool:
        """Return whether this store has this spec and layout, with any model."""
        return self.store.header.spec_digest == self._header_of(spec, layout).spec_digest

    def resumed(self, spec: object, layout: Layout) -> Self:
        """Return this store if it has this spec and layout, with any model.

        Raises
        ------
        ExistsError
            If it has others; the message names what differs.
        """
        if not self.continues(spec, layout):
            difference = _difference(self.store.header, self._header_of(spec, layout))
            raise ExistsError(
                f"{self.where} is another store: it differs in {difference}. Fix: give the "
                "options it was made with, or name another path."
            )
        return self

    def _header_of(self, spec: object, layout: Layout) -> Header:
        """Return the header of a spec and a layout, with the model and the states of this store."""
        stored = self.store.layout
        layout = replace(layout, model=stored.model, grown_from=stored.grown_from)
        return Header(kind=self.kind, spec=to_json(spec), layout=layout)

    @classmethod
    def open(cls, path: Where) -> Self:
        """Open a store of this kind.

        Raises
        ------
        NotFoundError, FormatError
            If it does not exist or is something else.
        """
        header = open_header(path)
        if header.kind != cls.kind:
            raise FormatError(
                f"{path} is a store of {header.kind}: expected one of {cls.kind}. Fix: name the "
                f"{cls.called}."
            )
        return cls(PartStore(path, header))

    @cached_property
    def model(self) -> dict[str, NDArray[Any]]:
        """The arrays of the model, every byte checked."""
        return self.store.read_model()

    @property
    def undropped_model(self) -> dict[str, NDArray[Any]]:
        """The arrays of the model without those of dropped rows."""
        names = {dropped_name(state) for state in range(self._states)}
        return {name: values for name, values in self.model.items() if name not in names}

    @property
    def _states(self) -> int:
        """Number of states of the store: the earlier ones and the present one."""
        return len(self.store.layout.grown_from) + 1

    @property
    def dropped(self) -> NDArray[np.int64]:
        """The source rows that ingest dropped, int64, ascending."""
        return np.concatenate(dropped_rows(self.model, self._states))

    @property
    def id_count(self) -> int:
        """The number of ids: those of the encoded rows, and of the rows dropped among them."""
        return self.encoded_rows + len(self.dropped)

    @property
    def encoded_rows(self) -> int:
        """The number of rows that were encoded."""
        return self.store.layout.rows

    @cached_property
    def linear_map(self) -> NDArray[np.float32] | None:
        """The matrix of the linear map that the rows were encoded with, every byte checked."""
        store = self.store
        return store.read_model_array(LINEAR_MAP) if LINEAR_MAP in store.layout.model else None

    @cached_property
    def receipts(self) -> list[Receipt]:
        """The receipts of all parts; raises ``IntegrityError`` unless all are done."""
        return self.store.receipts()

    @cached_property
    def stored_bytes(self) -> dict[str, int]:
        """Bytes on disk per column; raises ``IntegrityError`` unless all parts are done."""
        return self.store.column_bytes(self.receipts)

    @property
    def source_path(self) -> str:
        """The path or URL of the vector store when the codes were made."""
        return str(self.store.header.notes.get("source_path", "unknown vectors"))

    @property
    def source_paths(self) -> list[str]:
        """Paths or URLs of the vector store: the recorded one, and that from this store's folder.

        The second one holds if both stores were moved together.
        """
        relative = self.store.header.notes.get("source_relative")
        moved = [] if relative is None else [beside(self.where, str(relative))]
        return list(dict.fromkeys([self.source_path, *moved]))

    def source_header(self, path: str) -> Header | None:
        """Return the header of the store at a path of the vectors, read once; None if none is.

        Raises
        ------
        IntegrityError
            If it is damaged: it may name deleted rows.
        """
        if path not in self._source_headers:
            try:
                self._source_headers[path] = open_header(path)
            except IntegrityError:
                raise
            except MercoreError:
                self._source_headers[path] = None
        return self._source_headers[path]

    def deleted(self, moved: str | None = None) -> NDArray[np.uint8] | None:
        """Return a bit for each row of the vectors, set if it is deleted; None if none is.

        Parameters
        ----------
        moved : the new path of the vectors, if they were moved; where they are not found, no
            deletion is known
        """
        for path in self.source_paths if moved is None else [moved]:
            header = self.source_header(path)
            states = [] if header is None else [header.spec_digest, *_digests(header)]
            if header is not None and self.store.header.spec["source"] in states:
                return deleted_bits(header, location_of(path))
        return None

    @cached_property
    def _source_headers(self) -> dict[str, Header | None]:
        return {}

    @property
    def source_content(self) -> str | None:
        """The digest of all rows of a foreign source; None if receipts hold it, or nobody does."""
        return self.store.header.notes.get(CONTENT)

    def check_content(self, content: str, where: str) -> None:
        """Refuse rows of a foreign source at ``where`` that have changed since they were encoded.

        Raises
        ------
        IntegrityError
            If their digest is not ``content``.
        """
        if self.source_content not in (None, content):
            raise IntegrityError(
                f"{where} holds other rows than those that {self.where} was encoded from: found "
                f"digest {content}, expected {self.source_content}. Fix: restore its rows, or "
                f"mercore encode {where} NEW_PATH"
            )

    def record_source(self, source_path: Where, content: str | None = None) -> None:
        """Record the path of the vectors, if it is a new one; needs the lease of the store.

        The digest of a foreign source is recorded before the first part, and checked from then on.
        """
        header, found = self.store.header, _source_notes(self.where, source_path)
        if content is not None:
            self.check_content(content, str(source_path))
            if self.source_content or not self.store.parts_done:
                found[CONTENT] = content
        if found != {key: header.notes.get(key) for key in found}:
            header = replace(header, notes={**header.notes, **found}, text=None)
            (self.store.location / ROOT).publish(root_metadata(header))
            self.store = PartStore(self.store.location, header)

    def check_done(self) -> None:
        """Raise ``IntegrityError`` unless all parts are done."""
        _ = self.receipts

    def undone_parts(self, first: int = 0) -> dict[int, str]:
        """Check the parts from ``first`` on; return the parts to do, each with its fault.

        The fault of a part that has no receipt is "".
        """
        faults = self.store.each_part(self.store.check_part, first)
        return {part: fault for part, fault in enumerate(faults, first) if fault is not None}

    def grown_to(self, spec: object, rows: int, model: dict[str, NDArray[Any]]) -> Self:
        """Open the next state of the store, which has more rows, to write its parts.

        Readers see the old state until ``publish_growth``.

        Parameters
        ----------
        model : the arrays that the model of the next state has beyond the old one
        """
        header = begin_growth(self.store, spec, rows, model)
        undo_part(self.store, kept=header.spec_digest)
        return type(self)(PartStore(self.store.location, header))

    def restore(self, fit: Callable[[], dict[str, NDArray[Any]]]) -> list[str]:
        """Write missing and damaged metadata and model files again; return their keys.

        Parameters
        ----------
        fit : makes the model; it is called only if an array of the stored model is damaged

        Raises
        ------
        IntegrityError
            If ``fit`` makes another model than the stored one.
        """
        try:
            model = self.model
        except IntegrityError as error:
            model = fit()
            found, stored = model_entries(model), self.store.layout.model
            if found != {name: found.get(name, {}) | entry for name, entry in stored.items()}:
                raise IntegrityError(
                    f"{self.where}: its model is damaged, and fitted again it is another: found "
                    "different checksums, "
                    "expected those of its header. Fix: restore the model from a copy, or "
                    "write the store to a new path."
                ) from error
        written = self.store.restore(model, self.store.header.text)
        self.__dict__.pop("model", None)
        return written


def _digests(header: Header) -> list[str]:
    """Return the digests of the earlier states of a store."""
    return [state["digest"] for state in header.layout.grown_from]


def _source_notes(path: Where, source_path: Where) -> dict[str, Any]:
    """Return the notes of a store at ``path`` that say where its vectors are."""
    relative = relative_path(source_path, path)
    return {"source_path": str(source_path), "source_relative": relative}


def _difference(stored: Header, wanted: Header) -> str:
    """Name the fields in which two headers differ, with both values."""
    ours, theirs = _parameters(wanted), _parameters(stored)
    differing = [
        key for key in {**ours, **theirs} if ours.get(key, UNSET) != theirs.get(key, UNSET)
    ]
    values = (
        f"{key} ({in_words(theirs.get(key, UNSET))}, not {in_words(ours.get(key, UNSET))})"
        for key in differing
    )
    return ", ".join(values) or "its columns"


def _parameters(header: Header) -> dict[str, Any]:
    """Return the fields that decide a store: of its spec, of its encoder, and counts."""
    spec = dict(header.spec)
    encoder = spec.pop("encoder", {})
    first: dict[str, Any] = {key: spec.pop(key) for key in ("source", "kernel") if key in spec}
    return {
        **first,
        "rows": header.layout.rows,
        "part_rows": header.layout.part_rows,
        "compressor": header.layout.columns[0]["compressor"],
        **{key: value for key, value in spec.items() if key not in ("name", "version", "dims")},
        **{f"encoder {key}": value for key, value in encoder.items()},
    }
