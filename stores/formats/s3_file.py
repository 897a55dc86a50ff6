"""Positional reads of an object of equal rows: ranges of the very version that was opened."""

from typing import TYPE_CHECKING, Any

import numpy as np
import obstore
from numpy.typing import NDArray
from obstore.exceptions import PreconditionError

from mercore.stores.errors import FormatError
from mercore.stores.location.s3 import S3Location
from mercore.stores.location.s3_errors import object_errors

if TYPE_CHECKING:
    from obstore import GetOptions


class S3File:
    """An object read at positions, as a ``BinaryFile`` is."""

    def __init__(self, at: S3Location) -> None:
        self.name = at.url
        self._at = at
        with object_errors("read", at.url):
            found = obstore.head(at.store, at.key)
        self.size = found["size"]
        self._tag = found["e_tag"]

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill ``buffer``, which is C-contiguous, with the bytes from ``offset`` on.

        Raises
        ------
        FormatError
            If the object has been replaced since it was opened.
        StorageError
            If the object store refuses.
        """
        view = buffer.reshape(-1).view(np.uint8)
        if not view.size:
            return
        options: GetOptions = {"range": (offset, offset + view.size), "if_match": self._tag}
        with object_errors("read", self.name):
            try:
                found = obstore.get(self._at.store, self._at.key, options=options).bytes()
            except PreconditionError:
                message = f"{self.name}: it has changed since it was opened. Fix: change no file while it is read."
                raise FormatError(message) from None
        view[:] = np.frombuffer(memoryview(found), np.uint8)

    def read_prefix(self, count: int) -> bytes:
        """Return the first ``count`` bytes, or all of a shorter object."""
        buffer = np.empty(min(count, self.size), np.uint8)
        self.read_into(buffer, 0)
        return buffer.tobytes()
