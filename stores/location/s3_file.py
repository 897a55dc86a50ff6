"""Positional reads of an object: ranges of the version that was opened."""

from typing import TYPE_CHECKING, Any

import numpy as np
import obstore
from numpy.typing import NDArray
from obstore.exceptions import PreconditionError
from obstore.store import S3Store

from mercore.stores.errors import FormatError
from mercore.stores.location.protocol import PositionalFile
from mercore.stores.location.s3_errors import object_errors

if TYPE_CHECKING:
    from obstore import GetOptions


class S3File(PositionalFile):
    """An object read at positions; ``name`` is what messages call it."""

    def __init__(self, client: S3Store, key: str, name: str) -> None:
        self.name = name
        self._client, self._key = client, key
        with object_errors("read", name):
            meta = obstore.head(client, key)
        self.size = meta["size"]
        self._tag = meta["e_tag"]

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill the C-contiguous ``buffer`` from byte ``offset`` on: see ``PositionalFile``."""
        view = buffer.reshape(-1).view(np.uint8)
        if not view.size:
            return
        options: GetOptions = {"range": (offset, offset + view.size), "if_match": self._tag}
        with object_errors("read", self.name):
            try:
                data = obstore.get(self._client, self._key, options=options).bytes()
            except PreconditionError:
                raise FormatError(
                    f"{self.name}: it has changed since it was opened. Fix: change no file "
                    "while it is read."
                ) from None
        view[:] = np.frombuffer(memoryview(data), np.uint8)
