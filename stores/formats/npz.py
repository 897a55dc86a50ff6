"""NumPy's ``.npz`` files in memory: equal arrays give equal bytes; nothing is unpickled."""

import errno
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.npy import PREFIX_BYTES, parse_npy_header
from mercore.stores.location.local_file import path_status
from mercore.stores.location.publish import storage_errors

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
BAD_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, LookupError, RuntimeError)


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the ``.npz`` of ``arrays``: uncompressed, in their order, without times."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            member = BytesIO()
            npy_format.write_array(
                member, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False
            )
            entry = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            entry.create_system = 3  # Unix, whatever the machine
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, member.getbuffer())
    return stream.getvalue()


def read_npz(path: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a ``.npz`` by name, read-only.

    Raises
    ------
    FormatError
        If the zip is damaged, or the size of a member is not that of its header.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    path_status(path)
    with storage_errors("read", path):
        try:
            with zipfile.ZipFile(path) as archive:
                return {
                    entry.filename.removesuffix(".npy"): _read_member(
                        archive, entry, f"{path}[{entry.filename}]"
                    )
                    for entry in archive.infolist()
                }
        except (*BAD_ZIP, OSError) as error:
            if (
                isinstance(error, OSError) and error.errno != errno.EINVAL
            ):  # EINVAL: a damaged zip made it seek to a negative position
                raise
            message = f"{path}: the zip is damaged ({error}). Fix: fetch or write the file again."
            raise FormatError(message) from error


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    """Check the size of an array against its header; then read its numbers."""
    with archive.open(entry) as stream:
        header = parse_npy_header(stream.read(PREFIX_BYTES), where)
    count = 1
    for extent in header.shape:
        count *= extent
    expected = header.offset + count * header.dtype.itemsize
    if entry.file_size != expected:
        message = (
            f"{where}: {entry.file_size} bytes, expected {expected} for {header.shape}. "
            "Fix: fetch it again."
        )
        raise FormatError(message)
    flat = np.frombuffer(archive.read(entry), header.dtype, count, header.offset)
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")
