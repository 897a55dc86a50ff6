"""NumPy's ``.npz`` files: written and read in memory, or opened as a source of rows.

Equal arrays give equal bytes; nothing is unpickled.
"""

import io
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import (
    BinarySource,
    FileReader,
    MemberFile,
    RowLayout,
    open_binary,
)
from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.dtypes import convert
from mercore.stores.formats.npy import (
    PREFIX_BYTES,
    npy_bytes,
    npy_header_bytes,
    npy_layout,
    read_npy,
    read_npy_header,
)
from mercore.stores.formats.source import Source, StoredSource
from mercore.stores.location.local_file import LocalFile
from mercore.stores.location.protocol import PositionalFile
from mercore.stores.location.publish import publish_by

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
ENCRYPTED = 1  # a flag of a zip's member
STEP_BYTES = 1 << 20
SMALL = 4096  # bytes of an array of a few numbers
CSR_MEMBERS = {"data", "indices", "indptr", "format", "shape"}
DAMAGED = "the zip is damaged"


@dataclass(frozen=True, eq=False)
class ArrayInPieces:
    """An array of one dimension that is never in memory at once; ``pieces`` yields it in order."""

    dtype: np.dtype[Any]
    count: int
    pieces: Callable[[], Iterable[NDArray[Any]]]

    def npy_pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the ``.npy`` of the array."""
        yield npy_header_bytes(self.dtype, self.count)
        for piece in self.pieces():
            yield piece.astype(self.dtype, copy=False).tobytes()


Arrays = Mapping[str, NDArray[Any] | ArrayInPieces]


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the ``.npz`` of ``arrays``: uncompressed, in their order, without times."""
    stream = BytesIO()
    write_npz(stream, arrays)
    return stream.getvalue()


def write_npz(stream: BinaryIO, arrays: Arrays) -> None:
    """Write what ``npz_bytes`` returns to a stream that can seek, an array at a time."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            entry.create_system = 3  # Unix, whatever the machine
            entry.external_attr = 0o644 << 16
            if isinstance(array, ArrayInPieces):
                header = len(npy_header_bytes(array.dtype, array.count))
                entry.file_size = header + array.count * array.dtype.itemsize
                with archive.open(entry, "w") as member:
                    for piece in array.npy_pieces():
                        member.write(piece)
            else:
                archive.writestr(entry, npy_bytes(np.asarray(array, order="C")))


def publish_npz(path: Path, arrays: Arrays) -> None:
    """Publish a ``.npz`` that is written an array at a time."""
    publish_by(path, lambda file: write_npz(file, arrays))


def read_npz(path: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a ``.npz`` by name, read-only.

    Raises
    ------
    FormatError
        If the zip is damaged, or the size of a member is not that of its header.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    files = _members(LocalFile(path), checked=True)
    return {name: read_npy(file) for name, file in files.items()}


def member_names(path: str) -> list[str]:
    """Return the names of the arrays of a ``.npz``; raises as ``read_npz`` does."""
    with damage_refused(path, DAMAGED):
        return [name.removesuffix(".npy") for name in _open_zip(LocalFile(path)).namelist()]


def open_npz(path: str, member: str | None) -> Source:
    """Open an array of a ``.npz``, or the sparse rows that ``scipy.sparse.save_npz`` saved.

    An uncompressed array is read in place. A compressed one is decoded forward; going back decodes
    it from its first byte.

    Raises
    ------
    FormatError
        If the zip is damaged, has several arrays of two dimensions and no ``member`` names one, or
        holds a sparse matrix that is not CSR.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    files = _members(open_binary(path), checked=False)
    if member is None and set(files) >= CSR_MEMBERS:
        return _open_csr(path, files)
    name = member if member is not None else _only_matrix(path, files)
    if name not in files:
        raise FormatError(
            f"{path}: no array {name!r}, expected one of {', '.join(files) or 'none'}. "
            f"Fix: name one, as {path}::ARRAY"
        )
    chosen = files[name]
    layout = npy_layout(chosen.read_prefix(PREFIX_BYTES), chosen.name, chosen.size)
    if layout.by_column and isinstance(chosen, InflatedFile):
        raise FormatError(
            f"{chosen.name}: a compressed array in Fortran order, expected C order. Fix: "
            "numpy.savez(path, numpy.ascontiguousarray(array))."
        )
    return BinarySource(chosen, layout)


class InflatedFile(PositionalFile):
    """A member of a zip as a file, decoded forward: reading on is fast, going back is slow."""

    def __init__(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> None:
        self.name, self.size = name, entry.file_size
        self._archive, self._entry, self._lock = archive, entry, Lock()
        self._stream, self._at = archive.open(entry), 0

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill ``buffer`` with the bytes from ``offset`` on: see ``PositionalFile``."""
        view = buffer.reshape(-1).view(np.uint8).data
        end = offset + len(view)
        with self._lock, damage_refused(self.name, DAMAGED):
            at, self._at = self._at, self.size + 1  # after an error, the next call begins anew
            if offset < at:
                self._stream, at = self._archive.open(self._entry), 0
            while at < end:
                data = self._stream.read(min((offset if at < offset else end) - at, STEP_BYTES))
                if not data:
                    raise EOFError(f"it ends at byte {at}")
                if at >= offset:
                    view[at - offset : at - offset + len(data)] = data
                at += len(data)
            self._at = end


class CsrSource(StoredSource):
    """A ``Source`` over the three arrays of a CSR matrix; a block of rows is dense at a time.

    ``data`` and ``indices`` have nnz numbers and ``indptr`` n + 1; every source has d = 1.
    """

    kind = "csr"

    def __init__(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        data: BinarySource,
        indices: BinarySource,
        indptr: BinarySource,
    ) -> None:
        super().__init__(name, shape, data.source_dtype)
        if indptr.shape[0] != shape[0] + 1 or indices.shape != data.shape:
            raise FormatError(
                f"{name}: {indptr.shape[0]} indptr, {indices.shape[0]} indices and "
                f"{data.shape[0]} data, expected {shape[0] + 1} indptr, and as many indices as "
                "data. Fix: save it again with scipy.sparse.save_npz."
            )
        if "f" in (indptr.source_dtype.kind, indices.source_dtype.kind):
            raise self._damaged("indices are no whole numbers")
        self._data, self._indices, self._indptr = data, indices, indptr

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        from scipy.sparse import csr_array  # SciPy takes a while to load

        ends = self._indptr.read_stored(start, stop + 1)[:, 0].astype(np.int64)
        lengths = np.diff(ends)
        d = self.shape[1]
        if ends[0] < 0 or ends[-1] > self._data.shape[0] or (lengths < 0).any():
            raise self._damaged(f"indptr of rows [{start}, {stop}) is out of order")
        if (lengths > d).any():
            raise self._damaged(f"among rows [{start}, {stop}), one has over {d} numbers")
        columns = self._indices.read_stored(int(ends[0]), int(ends[-1]))[:, 0]
        if columns.size and not 0 <= int(columns.min()) <= int(columns.max()) < d:
            wrong = f"among rows [{start}, {stop}), one has a column that is not in [0, {d})"
            raise self._damaged(wrong)
        numbers = self._data.read_stored(int(ends[0]), int(ends[-1]))[:, 0]
        # SciPy adds up no float16, and bytes that are no bool may be in a damaged file.
        plain = {"?": np.uint8, "e": np.float32}.get(numbers.dtype.char, numbers.dtype)
        values = numbers.view(np.uint8) if numbers.dtype.kind == "b" else numbers.astype(plain)
        parts = (values, columns.astype(np.int64), ends - ends[0])
        dense = csr_array(parts, shape=(stop - start, d)).toarray()
        return convert(dense, self.dtype, name=self.name, first=start)

    @property
    def source_bytes(self) -> int:
        """Bytes of the stored numbers."""
        return self._data.shape[0] * self.source_dtype.itemsize

    def _damaged(self, what: str) -> FormatError:
        return FormatError(
            f"{self.name}: {what}, expected a CSR matrix. Fix: call sum_duplicates(), and save it "
            "again with scipy.sparse.save_npz."
        )


def _open_zip(file: PositionalFile) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BufferedReader(FileReader(file)))


def _members(file: PositionalFile, *, checked: bool) -> dict[str, PositionalFile]:
    """Return the arrays of a zip as files by name.

    With ``checked``, all members have to be arrays, and the zip's checksums cover their numbers.
    """
    with damage_refused(file.name, DAMAGED):
        archive = _open_zip(file)
        return {
            entry.filename.removesuffix(".npy"): _member_file(file, archive, entry, checked)
            for entry in archive.infolist()
            if checked or entry.filename.endswith(".npy")
        }


def _member_file(
    file: PositionalFile, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, checked: bool
) -> PositionalFile:
    """Return a member of a zip as a file; in place if neither compressed nor ``checked``."""
    name = f"{file.name}::{entry.filename.removesuffix('.npy')}"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile would decompress it in pieces of any size
        raise FormatError(
            f"{name}: compressed by method {entry.compress_type} of zip, expected 8, deflate. Fix: "
            "save it again with numpy.savez_compressed."
        )
    if checked or entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & ENCRYPTED:
        return InflatedFile(archive, entry, name)
    head = np.empty(LOCAL_HEADER.size, np.uint8)
    file.read_into(head, entry.header_offset)
    signature, *_, name_bytes, extra_bytes = LOCAL_HEADER.unpack(head.tobytes())
    if signature != b"PK\3\4":
        raise zipfile.BadZipFile(f"{entry.filename} has no local header")
    offset = entry.header_offset + LOCAL_HEADER.size + name_bytes + extra_bytes
    if offset + entry.file_size > file.size:
        raise zipfile.BadZipFile(f"{entry.filename} ends behind the file")
    return MemberFile(file, name=name, offset=offset, size=entry.file_size)


def _only_matrix(path: str, files: Mapping[str, PositionalFile]) -> str:
    """Return the name of the only array of two dimensions."""
    shapes = {name: read_npy_header(each).shape for name, each in files.items()}
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    if len(matrices) != 1:
        found = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "none"
        raise FormatError(
            f"{path}: arrays {found}, expected one of two dimensions. Fix: name one, as "
            f"{path}::{matrices[0] if matrices else 'ARRAY'}"
        )
    return matrices[0]


def _open_csr(path: str, files: Mapping[str, PositionalFile]) -> Source:
    """Open the sparse rows of a ``.npz`` of SciPy."""
    kind = _small(files["format"]).tobytes().replace(b"\0", b"").decode("ascii", "replace")
    if kind != "csr":
        raise FormatError(
            f"{path}: a sparse matrix of format {kind[:8]!r}, expected csr. Fix: "
            "scipy.sparse.save_npz(path, matrix.tocsr())."
        )
    shape = _small(files["shape"])
    if shape.dtype.kind not in "iu" or shape.shape != (2,):
        raise FormatError(
            f"{path}: the shape is {shape.dtype}{list(shape.shape)}, expected two whole numbers. "
            "Fix: save it again with scipy.sparse.save_npz."
        )
    arrays = {name: _vector(files[name]) for name in ("data", "indices", "indptr")}
    return CsrSource(path, (int(shape[0]), int(shape[1])), **arrays)


def _vector(file: PositionalFile) -> BinarySource:
    """Open an array of one dimension, as rows of one number."""
    header = read_npy_header(file)
    if len(header.shape) != 1:
        raise FormatError(
            f"{file.name}: an array of shape {header.shape}, expected one dimension. Fix: save it "
            "again with scipy.sparse.save_npz."
        )
    layout = RowLayout(
        kind="npy", n=header.shape[0], d=1, stored=header.dtype, offset=header.offset
    )
    return BinarySource(file, layout)


def _small(file: PositionalFile) -> NDArray[Any]:
    """Return an array of a few numbers or a text."""
    if file.size > SMALL:
        raise FormatError(f"{file.name}: {file.size} bytes, expected a few. Fix: save it again.")
    return read_npy(file)
