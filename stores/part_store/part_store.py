"""A store of parts: a Zarr v3 group with an array per column, a model, and a receipt per part."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError, MercoreError, NotFoundError
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.protocol import ROOT, Result
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.column import (
    CHECKSUM_BYTES,
    DIGEST,
    Column,
    chunk_digest,
    encode_chunk,
    payload_checksum,
)
from mercore.stores.part_store.group_metadata import (
    files_beside_parts,
    keys_beside_parts,
    publish_files,
    root_metadata,
    wrong_files,
    wrong_metadata,
)
from mercore.stores.part_store.growth import (
    grow_part,
    is_ungrown,
    receipt_of_state,
    ungrown_receipt,
)
from mercore.stores.part_store.header import Header, model_column, open_header
from mercore.stores.part_store.part_files import PartFiles
from mercore.stores.part_store.receipts import Receipt, encode_with_entry


class PartStore(PartFiles):
    """An open store of parts, safe to read and write from any threads and processes.

    Its parts can be written, read and checked, in the state of its header: see ``PartFiles``.
    """

    @property
    def is_local(self) -> bool:
        """Whether its files lie on this machine, whose memory keeps what was just read."""
        return isinstance(self.location, LocalLocation)

    def write_part(
        self,
        part: int,
        columns: Mapping[str, NDArray[Any]],
        facts: Mapping[str, int] = MappingProxyType({}),
    ) -> Receipt:
        """Publish every chunk of a part, then its receipt; writing a part again is harmless.

        A part that had fewer rows in an earlier state of the store grows: see ``growth.py``.

        Parameters
        ----------
        columns : dtype[rows of the part(, width)] per column
        facts : numbers that the receipt states

        Raises
        ------
        StorageError
            If the disk refuses; the part then has no receipt, so it is not done.
        """
        start, stop = self.bounds(part)
        shapes = {name: values.shape for name, values in columns.items()}
        for name, column in self.columns.items():
            assert shapes[name] == (stop - start, *column.shape[1:]), name
        earlier = ungrown_receipt(self, part)
        if earlier is not None:
            files = {
                each.name: encode_chunk(each, columns[each.name]) for each in self.columns.values()
            }
            return grow_part(self, earlier, files)
        chunks: dict[str, dict[str, Any]] = {}
        for name, column in self.columns.items():
            pieces, chunks[name] = encode_with_entry(column, columns[name])
            self.chunk_file(column, part).publish(*pieces)
        receipt = self.new_receipt(part, chunks, facts)
        self.publish_receipt(receipt)
        return receipt

    def receipt(self, part: int) -> Receipt | None:
        """Return the receipt of a part, or None if there is none for all its rows.

        A store that grows, or has grown since it was opened, keeps its receipts of this state.

        Raises
        ------
        IntegrityError
            If the receipt is damaged, or belongs to another store.
        """
        stored = self.stored_receipt(part)
        if stored is None:
            return None
        receipt = receipt_of_state(self, part, stored)
        if receipt is None and is_ungrown(self, part, stored):
            return None
        receipt = receipt or self._of_newer_state(part)
        if receipt is None:
            raise self.fault(
                part,
                f"its receipt is of spec {stored.job}, part {stored.part}: expected spec "
                f"{self.header.spec_digest}",
            )
        return receipt

    def _of_newer_state(self, part: int) -> Receipt | None:
        """Return the receipt of a part after the store has grown, or None if it has not."""
        with suppress(MercoreError):
            header = open_header(self.location)
            states = [state["digest"] for state in header.layout.grown_from]
            if self.header.spec_digest in states:
                newer = PartStore(self.location, header).receipt(part)
                return None if newer is None else replace(newer, stop=self.bounds(part)[1])
        return None

    def receipts(self) -> list[Receipt]:
        """Return all receipts in the order of the parts.

        Raises
        ------
        IntegrityError
            If a receipt is missing or damaged, or a chunk's file is missing or of wrong size.
        """
        receipts = []
        size_of = self.location.sizes()
        for receipt in self.location.each(self.done_receipt, range(self.layout.parts)):
            for column in self.columns.values():
                self.check_size(receipt, column, size_of(column.chunk_key(receipt.part)))
            receipts.append(receipt)
        return receipts

    def done_receipt(self, part: int) -> Receipt:
        """Return the receipt of a part.

        Raises
        ------
        IntegrityError
            If it is missing or damaged.
        """
        receipt = self.receipt(part)
        if receipt is None:
            raise self.fault(
                part, "it has no receipt, so it is not done: expected one for every part"
            )
        return receipt

    def read_chunk(
        self, receipt: Receipt, name: str, buffer: NDArray[np.uint8] | None = None
    ) -> NDArray[Any]:
        """Read a part of a column, dtype[rows of the part(, width)], checked by its receipt.

        Parameters
        ----------
        buffer : uint8[at least the file's bytes], optional
            The memory to read into; the result is a view of it, unless the column is compressed.

        Raises
        ------
        IntegrityError
            If the chunk is missing, truncated, differs by a bit, or is none of the column.
        """
        column = self.columns[name]
        return self.decode_file(receipt, column, self._read_current(receipt, column, buffer))

    def check_chunk(
        self, receipt: Receipt, name: str, buffer: NDArray[np.uint8] | None = None
    ) -> None:
        """Read a part of a column; raise ``IntegrityError`` unless its receipt agrees.

        This checks the digest too, if the receipt states one.
        """
        column = self.columns[name]
        self.check_digest(receipt, column, self._read_current(receipt, column, buffer))

    def check(
        self,
        advance: Callable[[int], None] = lambda parts: None,
        then: Callable[[int], object] = lambda part: None,
    ) -> list[str]:
        """Read every byte of every file; return one sentence per fault.

        ``then`` is called for each part that has no fault.
        """
        faults = [
            f"{self.where}: {key} is missing or damaged: expected what the header says. {self.fix}"
            for key in wrong_metadata(self.location, self.header)
        ]
        try:
            self.read_model()
        except IntegrityError as error:
            faults.append(str(error))

        def visit(part: int) -> str | None:
            fault = self.check_part(part)
            if fault is None:
                then(part)
            return fault

        for part, fault in enumerate(self.each_part(visit)):
            if fault is not None:
                undone = f"{self.where}: part {part} has no receipt: it is not done. {self.fix}"
                faults.append(fault or undone)
            advance(1)
        return faults

    def each_part(self, function: Callable[[int], Result], first: int = 0) -> Iterator[Result]:
        """Yield ``function``, which reads a chunk, of each part from ``first`` on, in order.

        See ``Location.each``.
        """
        call_bytes = max(column.chunk_bytes for column in self.columns.values())
        return self.location.each(function, range(first, self.layout.parts), call_bytes=call_bytes)

    def check_part(self, part: int) -> str | None:
        """Read every byte of a part; return its fault, "" if it is not done, or None."""
        try:
            receipt = self.receipt(part)
            if receipt is None:
                return ""
            for name in self.columns:
                self.check_chunk(receipt, name)
        except (IntegrityError, FormatError) as error:
            return str(error)
        return None

    def restore(self, model: Mapping[str, NDArray[Any]], root: bytes | None = None) -> list[str]:
        """Write missing and damaged metadata and model files again; return their keys.

        Parameters
        ----------
        model : the arrays that the store was created with
        root : the metadata of the store's root, if they have been read
        """
        expected = root_metadata(self.header)
        beside = files_beside_parts(self.header, model)
        files = beside if root == expected else chain([(ROOT, expected)], beside)
        wrong = wrong_files(self.location, files)
        publish_files(self.location, wrong)
        return [key for key, _ in wrong]

    def sweep(self) -> None:
        """Remove from the store what killed writers left."""
        self.location.sweep()

    def remove(self) -> None:
        """Remove all files of the store; its root is the last, so that it can be done again."""
        self.sweep()
        for part in range(self.layout.parts):
            for column in self.columns.values():
                self.chunk_file(column, part).remove()
            self.receipt_file(part).remove()
        for key in keys_beside_parts(self.header):
            (self.location / key).remove()
        self.location.sync_folders()
        (self.location / ROOT).remove()

    def read_model(self) -> dict[str, NDArray[Any]]:
        """Read the arrays of the model and check every byte.

        Raises
        ------
        IntegrityError
            If an array is missing or differs by a bit.
        """
        return {name: self.read_model_array(name) for name in self.layout.model}

    def read_model_array(self, name: str) -> NDArray[Any]:
        """Read one array of the model and check every byte: see ``read_model``."""
        entry = self.layout.model[name]
        column = model_column(name, entry)
        file = self.location / f"model/{column.chunk_key(0)}"
        try:
            data = file.read()
        except NotFoundError:
            data = b""
        checksum, payload = payload_checksum(data), np.frombuffer(data, np.uint8)[:-CHECKSUM_BYTES]
        if (
            checksum is None
            or f"{checksum:08x}" != entry["crc32c"]
            or len(payload) != column.chunk_bytes
            or entry.get(DIGEST) not in (None, chunk_digest(payload))
        ):
            raise IntegrityError(
                f"{self.where}: model array {name} is missing or damaged: "
                f"expected crc32c {entry['crc32c']} at {file}. {self.fix}"
            )
        return payload.view(column.dtype).reshape(column.shape)

    def done(self) -> list[Receipt]:
        """Return the receipts of the parts that are done."""
        receipts = self.location.each(self.receipt, range(self.layout.parts))
        return [receipt for receipt in receipts if receipt is not None]

    def column_bytes(self, receipts: Sequence[Receipt]) -> dict[str, int]:
        """Return the bytes on disk per column of the parts of some receipts."""
        return {
            name: sum(receipt.chunks[name]["bytes"] for receipt in receipts)
            for name in self.layout.column_names
        }

    @property
    def parts_done(self) -> int:
        """Number of parts that have a receipt."""
        return len(self.done())

    def _read_current(
        self, receipt: Receipt, column: Column, buffer: NDArray[np.uint8] | None
    ) -> NDArray[np.uint8]:
        """Read and check the file of a chunk; read it again if the part has grown meanwhile."""
        try:
            return self.read_file(receipt, column, buffer)
        except IntegrityError:
            fresh = None
            with suppress(MercoreError):
                fresh = self.receipt(receipt.part)
            if fresh is None or fresh == receipt:
                raise
            return self.read_file(fresh, column)


def create(where: Where, header: Header, model: Mapping[str, NDArray[Any]]) -> PartStore:
    """Publish an empty store: the metadata of every array and the model, all at once.

    Raises
    ------
    ExistsError
        If something is there.
    NotFoundError
        If its folder does not exist.
    StorageError
        If the disk or the object store refuses; nothing is left behind.
    """
    location = location_of(where)
    location.check_new()
    with location.draft() as draft:
        publish_files(draft.location, files_beside_parts(header, model))
        root = root_metadata(header)
        draft.finish(root)
    return PartStore(location, replace(header, text=root))
