"""The commands of the page on the papers' data sets, on small files that are laid out as those
are."""

import gzip
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from mercore.jobs import api
from tests.support.documents import run_blocks

PAGE = Path(__file__).parents[2] / "notebooks/guide/data-sets.md"
ROWS = 120


def texmex(values: NDArray[np.generic]) -> bytes:
    """The bytes of TEXMEX: each row behind its dimension, int32."""
    dims = np.int32(values.shape[1]).tobytes()
    return b"".join(dims + row.tobytes() for row in values)


def lay_out(folder: Path) -> None:
    """Write small files with the names and the layouts of the published ones."""
    rng = np.random.default_rng(0)
    for name, d in (("sift", 128), ("gist", 960)):
        (folder / name).mkdir()
        for kind in ("base", "query"):
            values = rng.random((ROWS, d), np.float32)
            (folder / name / f"{name}_{kind}.fvecs").write_bytes(texmex(values))
    sift = rng.integers(1, 200, (ROWS, 128), np.uint8)
    (folder / "bigann_base.bvecs").write_bytes(texmex(sift))
    for kind in ("base", "query"):
        (folder / f"bigann_{kind}.bvecs.gz").write_bytes(gzip.compress(texmex(sift)))
    header = np.array([ROWS, 128], np.uint32).tobytes()
    (folder / "base.1B.u8bin").write_bytes(header + sift.tobytes())
    gist = rng.random((ROWS, 384), np.float32)
    gist[3] = 0
    (folder / "tinygist80million.bin").write_bytes(gist.tobytes())
    pixels = rng.integers(0, 256, (ROWS, 3072), np.uint8)
    pixels[5] = 128
    (folder / "tiny_images.bin").write_bytes(pixels.tobytes())
    (folder / "train").mkdir()
    for number, name in enumerate(("n01440764", "n01443537")):
        words = [rng.integers(0, 1000, 50 + number) for _ in range(3)]
        images = [{"ind": i + 1, "sbow": {"word": found}} for i, found in enumerate(words)]
        savemat(folder / "train" / f"{name}.sbow.mat", {"image_sbow": images})
    mosaic = Image.fromarray(rng.integers(0, 256, (1024, 1024), np.uint8))
    mosaic.save(folder / "patches0000.bmp")
    (folder / "info.txt").write_text("".join(f"{i // 2} 0\n" for i in range(ROWS)))


def opencv() -> ModuleType:
    """A stand-in for OpenCV, which the tests do not install: the calls of the page alone."""
    module = ModuleType("cv2")

    class Sift:
        def compute(self, tile: NDArray[np.uint8], points: list[float]) -> tuple[object, object]:
            assert tile.shape == (64, 64)
            return points, np.bincount(tile.ravel() // 2, minlength=128)[None].astype(np.float32)

    def imread(path: str, mode: int) -> NDArray[np.uint8]:
        assert mode == 0
        return np.asarray(Image.open(path))

    module.__dict__.update(
        SIFT_create=Sift, KeyPoint=lambda x, y, size: size, imread=imread, IMREAD_GRAYSCALE=0
    )
    return module


def test_every_set_is_read_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "cv2", opencv())
    run_blocks(PAGE, lambda line: line.replace("0:10000000", "0:10"))
    stored = {path.name: api.info(path) for path in tmp_path.glob("*.zarr")}
    assert {path: (info["rows"], info["dims"]) for path, info in stored.items()} == {
        "sift1m.zarr": (ROWS, 128),
        "gist1m.zarr": (ROWS, 960),
        "bigann.zarr": (ROWS, 128),
        "bigann-queries.zarr": (ROWS, 128),
        "bigann10m.zarr": (10, 128),
        "bigann-u8.zarr": (ROWS, 128),
        "tinygist.zarr": (ROWS - 1, 384),
        "tinyimages.zarr": (ROWS - 1, 384),
        "imagenet.zarr": (6, 1000),
        "patches.zarr": (ROWS, 128),
    }
    assert Path("sift-chi2.npz.certificate.npz").exists()
    assert np.load("imagenet-labels.npy").tolist() == [0, 0, 0, 1, 1, 1]
    assert np.load("patches-labels.npy").tolist() == [i // 2 for i in range(ROWS)]
