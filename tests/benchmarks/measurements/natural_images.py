"""GIST of tiles of photographs: natural images, where data sets of objects are the usual choice."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mercore.pipeline.gist import SIDE, gist

SIDES = (256, 512)  # to which the shorter side of a photograph is scaled
QUERIES = 8  # every eighth photograph gives the queries
LEAST_DEVIATION = 8  # of the grey levels of a tile: others are sky
THUMBNAIL, ALIKE = 16, 0.95  # photographs with such a correlation of thumbnails are one


def describe_photographs(folder: Path, out: Path, most: int) -> tuple[int, int]:
    """Write ``base.npy`` and ``queries.npy``, float32[n, 384]; return the rows of each.

    ``labels.npy`` has the number of each base row's photograph.

    Parameters
    ----------
    folder : with ``.jpg`` files, in folders below too
    most : queries
    """
    tiles = [
        np.concatenate([_tiles(photograph, side) for side in SIDES])
        for photograph in _distinct(sorted(folder.rglob("*.jpg")))
    ]
    labels = np.repeat(np.arange(len(tiles)), [len(each) for each in tiles])
    described = gist(np.concatenate(tiles), workers=2)
    asked, whole = labels % QUERIES == 0, described.any(axis=1)
    queries = np.random.default_rng(0).permutation(described[asked & whole])[:most]
    base = described[~asked & whole]
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "base.npy", base)
    np.save(out / "labels.npy", labels[~asked & whole])
    np.save(out / "queries.npy", queries)
    return len(base), len(queries)


def _distinct(paths: list[Path]) -> Iterator[Image.Image]:
    """Yield photographs that resemble no earlier one: packages hold several sizes of one."""
    seen: list[NDArray[np.float64]] = []
    for path in paths:
        photograph = Image.open(path).convert("RGB")
        small = photograph.convert("L").resize((THUMBNAIL, THUMBNAIL))
        thumbnail = np.asarray(small, np.float64).ravel()
        thumbnail -= thumbnail.mean()
        thumbnail /= np.linalg.norm(thumbnail) + 1e-9
        if all(abs(thumbnail @ other) <= ALIKE for other in seen):
            seen.append(thumbnail)
            yield photograph


def _tiles(photograph: Image.Image, side: int) -> NDArray[np.uint8]:
    """Return the tiles of a photograph, uint8[n, 32, 32, 3], without flat ones."""
    scale = side / min(photograph.size)
    width, height = (round(length * scale) for length in photograph.size)
    pixels = np.asarray(photograph.resize((width, height), Image.Resampling.LANCZOS))
    down, across = (length // SIDE for length in pixels.shape[:2])
    whole = pixels[: down * SIDE, : across * SIDE].reshape(down, SIDE, across, SIDE, 3)
    tiles = whole.swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)
    return np.asarray(tiles[tiles.std(axis=(1, 2, 3)) > LEAST_DEVIATION])
