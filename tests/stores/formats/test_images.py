"""Images become GIST vectors: the raw tiny images, and folders of image files."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mercore import ingest
from mercore.pipeline.gist import gist
from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats import open_source
from mercore.stores.formats.images import Images
from mercore.stores.vectors import open_vector_store

TILES = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), np.uint8)


def tiny_images() -> bytes:
    """The file of the tiny images as MATLAB writes it: each image column by column, by colour."""
    return b"".join(tile.tobytes(order="F") for tile in TILES)


def test_tiny_images_are_described(tmp_path: Path) -> None:
    path = tmp_path / "tiny_images.bin"
    path.write_bytes(tiny_images())
    source = open_source(str(path), form="tinyimages", ingesting=True)
    assert isinstance(source, Images)
    np.testing.assert_array_equal(source.tiles(3, 30), TILES[3:])
    report = ingest(path, tmp_path / "store", format="tinyimages", rows="5:25")
    assert (report["rows"], report["dims"], report["source_dtype"]) == (20, 384, "uint8")
    stored = open_vector_store(tmp_path / "store").read_part(0)
    np.testing.assert_array_equal(stored, gist(TILES[5:25]))
    packed = tmp_path / "tiny_images.bin.gz"
    packed.write_bytes(gzip.compress(tiny_images()))
    ingest(packed, tmp_path / "other", format="tinyimages.gz")
    np.testing.assert_array_equal(open_vector_store(tmp_path / "other").read_part(0), gist(TILES))


def test_a_folder_of_images_is_described(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    for i, tile in enumerate(TILES):
        Image.fromarray(tile).save(folder / ("more" if i > 19 else ".") / f"{i:02}.png")
    (folder / "notes.txt").touch()
    Image.fromarray(np.repeat(np.repeat(TILES[0], 3, 0), 2, 1)).save(folder / "00.png")  # larger
    source = open_source(str(folder), ingesting=True)
    assert isinstance(source, Images)
    np.testing.assert_array_equal(source.tiles(0, 30), TILES)
    fingerprint = source.fingerprint()
    assert len(fingerprint) == 32
    image = (folder / "03.png").read_bytes()
    (folder / "03.png").write_bytes(image[::-1])  # of the same name and size
    assert source.fingerprint() != fingerprint
    (folder / "03.png").write_bytes(image)
    ingest(folder, tmp_path / "store")
    np.testing.assert_array_equal(open_vector_store(tmp_path / "store").read_part(0), gist(TILES))
    with pytest.raises(InputError, match=r"images become vectors \(GIST\) when they are ingested"):
        open_source(str(folder))
    (folder / "03.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    with pytest.raises(FormatError, match=r"03\.png: the image cannot be decoded .* Fix: "):
        open_source(str(folder), ingesting=True).read(0, 30)
