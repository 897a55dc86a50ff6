"""Raw files: rows of numbers without any header, such as those of the 80 million tiny images."""

from typing import Any

import numpy as np

from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats.binary import RowLayout
from mercore.stores.formats.source import check_shape

PREFIX = "raw:"
EXAMPLE = "raw:float32:384"
# The GIST of the tiny images, and their pixels: 32 × 32 × 3 bytes per image.
STORED: dict[str, tuple[np.dtype[Any], int]] = {
    "tinygist": (np.dtype("<f4"), 384),
    "tinyimages": (np.dtype("u1"), 3072),
}


def raw_format(text: str) -> tuple[np.dtype[Any], int]:
    """Return the dtype and d of a format such as ``raw:float32:384``.

    Raises
    ------
    InputError
        If it names no dtype of numbers, or no number of dimensions.
    """
    words = text.removeprefix(PREFIX).split(":")
    try:
        stored, d = np.dtype(words[0]), int(words[1])
        good = len(words) == 2 and d > 0 and stored.kind in "biuf"
    except (TypeError, ValueError, IndexError, SyntaxError):
        good = False
    if not good:
        raise InputError(
            f"format is {text!r}: expected raw, a dtype and the numbers per row. "
            f"Fix: --format {EXAMPLE}"
        )
    return stored.newbyteorder("<") if words[0][:1] not in "<>" else stored, d


def raw_layout(
    stored: np.dtype[Any], d: int, prefix: bytes, name: str, size: int | None
) -> RowLayout:
    """Return the layout of a raw file of rows of ``d`` numbers.

    Raises
    ------
    FormatError
        If the size is not a whole number of rows.
    """
    check_shape(name, 0, d)
    n, rest = divmod(size or 0, d * stored.itemsize)
    if rest:
        raise FormatError(
            f"{name}: {size} bytes, expected a multiple of {d * stored.itemsize} (d = {d} of "
            f"{stored.itemsize} bytes). Fix: fetch the file again, or check its format."
        )
    return RowLayout(kind="raw", n=n, d=d, stored=stored, open_ended=size is None)
