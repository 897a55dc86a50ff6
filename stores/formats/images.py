"""Images as rows of pixels, 32 × 32 × 3 bytes each: folders of image files, and tiny images."""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.source import Source, StoredSource, spaced_rows
from mercore.stores.formats.streams import is_open_ended
from mercore.stores.location.local_file import LocalFile, check_regular
from mercore.stores.location.publish import storage_errors

SIDE = 32
PIXELS = SIDE * SIDE * 3
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")


class ImageFolder(StoredSource):
    """A ``Source`` of the pixels of all images below a folder, in the order of their paths.

    An image is turned upright, and shrunk to 32 × 32 pixels whatever its shape. A row holds the
    colours of a pixel together, line by line.
    """

    def __init__(self, path: str, files: list[str]) -> None:
        super().__init__(path, (len(files), PIXELS), np.dtype(np.uint8))
        self._files = files

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        rows = np.empty((stop - start, PIXELS), np.uint8)
        with ThreadPoolExecutor() as threads:
            for row, pixels in enumerate(threads.map(_pixels, self._files[start:stop])):
                rows[row] = pixels
        return rows

    def picture(self, row: int, side: int) -> NDArray[np.uint8]:
        """Return one image, no side above ``side`` pixels, uint8[h, w, 3].

        Raises
        ------
        FormatError
            If the image cannot be decoded.
        """
        with _upright(self._files[row], side) as image:
            image.thumbnail((side, side), Image.Resampling.LANCZOS)
            return np.asarray(image, np.uint8)

    def file(self, row: int) -> str:
        """Return the path of one image below the folder."""
        return str(Path(self._files[row]).relative_to(self.name))

    def fingerprint(self) -> str:
        """Return a digest of the names and sizes of the images, and of 64 evenly spaced files."""
        digest = blake2b(digest_size=16)
        for file in self._files:
            name = Path(file).relative_to(self.name)
            digest.update(f"{name}\0{Path(file).stat().st_size}\0".encode())
        for row in spaced_rows(len(self._files)):
            image = LocalFile(self._files[row])
            digest.update(image.read_prefix(image.size))
        return digest.hexdigest()


def image_files(folder: str) -> list[str]:
    """Return the paths of all images below a folder, in order."""
    with storage_errors("read", folder):
        return sorted(
            str(path) for path in Path(folder).rglob("*") if path.suffix.lower() in SUFFIXES
        )


class Images:
    """A ``Source`` of pixels that are to be described before they are stored.

    ``by_colour``: a row holds the colours one after the other, each column by column, as in the
    files of the 80 million tiny images.
    """

    def __init__(self, pixels: Source, *, by_colour: bool) -> None:
        self.name, self.source_dtype = pixels.name, pixels.source_dtype
        self.dtype = pixels.dtype
        self._pixels, self._by_colour = pixels, by_colour

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, 3072)``."""
        return self._pixels.shape

    @property
    def open_ended(self) -> bool:
        """Whether the number of images is not known."""
        return is_open_ended(self._pixels)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return pixels as they are stored, uint8[stop − start, 3072]."""
        return self._pixels.read(start, stop)

    def tiles(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return images, uint8[stop − start, 32, 32, 3]."""
        rows = self.read(start, stop)
        if self._by_colour:
            return rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 3, 2, 1)
        return rows.reshape(-1, SIDE, SIDE, 3)

    def picture(self, row: int, side: int) -> NDArray[np.uint8]:
        """Return one image, no side above ``side`` pixels; a tiny image stays as it is.

        Raises
        ------
        FormatError
            If the image cannot be decoded.
        """
        if isinstance(self._pixels, ImageFolder):
            return self._pixels.picture(row, side)
        tile: NDArray[np.uint8] = self.tiles(row, row + 1)[0]
        return tile

    def file(self, row: int) -> str | None:
        """Return the path of one image below its folder, or None if all are in one file."""
        return self._pixels.file(row) if isinstance(self._pixels, ImageFolder) else None

    def fingerprint(self) -> str:
        """Return the fingerprint of the pixels."""
        return self._pixels.fingerprint()


def _pixels(path: str) -> NDArray[np.uint8]:
    """Return the pixels of an image, uint8[3072]."""
    with _upright(path, SIDE) as image:
        small = image.resize((SIDE, SIDE), Image.Resampling.BOX)
        return np.asarray(small, np.uint8).reshape(-1)


@contextmanager
def _upright(path: str, side: int) -> Iterator[Image.Image]:
    """Yield an image upright and in RGB, which the ``with`` block shrinks to about ``side``."""
    again = "fetch it again, or take it out of the folder"
    with damage_refused(path, "the image cannot be decoded", again), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        check_regular(path)
        with Image.open(path) as image:
            image.draft("RGB", (4 * side, 4 * side))  # JPEG decodes small sizes faster
            yield ImageOps.exif_transpose(image).convert("RGB")
