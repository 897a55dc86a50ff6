"""A gallery of one's own images: by the real verbs from folders to the page, and what it refuses."""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import mercore
from mercore.jobs.gallery.gallery import names_of, several_hits
from mercore.stores.errors import ExistsError, InputError, MercoreError, NotFoundError, ShapeError
from mercore.stores.results.hits import Hits
from tests.support.running import invoke, succeed

ROWS, QUERIES, SIDE = 40, 6, 32


def made_images() -> NDArray[np.uint8]:
    """Stripes of 40 directions and colours, uint8[40, 32, 32, 3]."""
    y, x = np.mgrid[:SIDE, :SIDE]
    angles = np.linspace(0, np.pi, ROWS, endpoint=False)[:, None, None]
    waves = 0.5 + 0.5 * np.sin((x * np.cos(angles) + y * np.sin(angles)) / 2)
    colours = np.random.default_rng(0).integers(80, 256, (ROWS, 1, 1, 3))
    images: NDArray[np.uint8] = (waves[..., None] * colours).astype(np.uint8)
    return images


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 64 × 48, the file of the same as tiny images, stores, and three files of hits."""
    folder = tmp_path_factory.mktemp("gallery")
    images = made_images()
    (folder / "images" / "more").mkdir(parents=True)
    (folder / "queries").mkdir()
    for row, pixels in enumerate(images):
        name = f"{'more/' if row > 20 else ''}{row:02}.png"
        Image.fromarray(pixels).resize((64, 48)).save(folder / "images" / name)
    for row, pixels in enumerate(images[::7]):
        Image.fromarray(pixels).save(folder / "queries" / f"{row}.jpg", quality=95)
    (folder / "tiny.bin").write_bytes(b"".join(each.tobytes(order="F") for each in images))
    succeed(f"ingest {folder}/images {folder}/base.zarr")
    succeed(f"ingest {folder}/queries {folder}/queries.zarr")
    chi2 = ("--kernel", "chi2")
    succeed(f"encode {folder}/base.zarr {folder}/codes.zarr", *chi2, "--atoms", 8)
    codes, truth = folder / "codes.npz", folder / "truth.npz"
    queries = folder / "queries.zarr"
    succeed(f"search {folder}/codes.zarr {queries} -k 7 --out {codes}")
    succeed(f"search {folder}/base.zarr {queries}", *chi2, "-k", 7, "--out", truth)
    np.save(folder / "ids.npy", np.load(truth)["ids"][:, :3])
    return folder


def made(folder: Path, *hits: Any, **options: Any) -> dict[str, Any]:
    """The report of a gallery, by the Python API."""
    given = {"out": folder / "page.html", "force": True, **options}
    return mercore.gallery(folder / "images", folder / "queries", list(hits), **given)


def page_of(folder: Path) -> str:
    return (folder / "page.html").read_text()


def names_shown(page: str) -> list[str]:
    """The names of the pictures in the alternative texts, in order."""
    return [alt.rpartition(": ")[2] for alt in re.findall(r'<img[^>]* alt="([^"]*)"', page)]


@pytest.mark.promise(
    "A gallery shows exactly the images that the ids name, and refuses ids beyond them"
)
def test_images_and_hits_become_a_page(folder: Path, tmp_path: Path) -> None:
    hits = (folder / "codes.npz", folder / "truth.npz")
    words = (f"gallery {folder}/images {folder}/queries", *hits, "--truth", hits[1])
    page = tmp_path / "page.html"
    report = json.loads(succeed(*words, "--out", page, "--shown", 4, "--json"))
    assert report["page"] == str(page)
    assert (report["images"], report["queries"], report["queries_shown"]) == (ROWS, QUERIES, 4)
    assert report["hits"] == list(report["recall"]) == ["codes.npz", "truth.npz"]
    assert all(row["value"] == 1 for row in report["recall"]["truth.npz"])
    text = page.read_text()
    assert report["bytes"] == len(text.encode())
    files = sorted(
        str(path.relative_to(folder / "images")) for path in (folder / "images").rglob("*.png")
    )
    expected = []
    for query in range(4):
        found = [np.load(each)["ids"][query, :5] for each in hits]
        expected += [f"{query}.jpg", *(files[row] for ids in found for row in ids)]
    assert names_shown(text) == expected
    assert re.findall(r"<b>truth.npz</b> (\d) of 5<", text) == ["5"] * 4
    assert text.count('class="nearest"') >= 4
    assert "against truth.npz" in text
    assert invoke(*words, "--out", page).code == 2  # it exists
    assert succeed(*words, "--out", page, "--force").strip() == str(page)


def test_ids_without_scores_and_without_truth(folder: Path) -> None:
    report = made(folder, folder / "ids.npy")
    assert "recall" not in report
    assert report["queries_shown"] == QUERIES  # all, as there are fewer than 24
    page = page_of(folder)
    assert len(re.findall("<img ", page)) == QUERIES * (1 + 3)
    shown = [f"row {row}" for row in np.load(folder / "ids.npy").ravel()]
    assert re.findall(r"<figcaption>(row \d+)<", page) == shown
    assert not re.search(r"true|<table", page.partition("</style>")[2])
    first = re.findall(r'src="data:image/\w+;base64,([^"]+)"', page)[1]
    with Image.open(io.BytesIO(base64.b64decode(first))) as picture:
        assert picture.size == (64, 48)  # pictures keep their shape


def test_a_single_true_neighbour(folder: Path) -> None:
    ids = np.load(folder / "ids.npy")
    made(folder, ids, ids[:, :1], truth=ids[:, :1])
    page = page_of(folder)
    assert re.findall(r"<b>(hits \d)</b> 1 of 1<", page) == ["hits 1", "hits 2"] * QUERIES
    assert "★ the true nearest neighbour" in page
    assert "✓ another of" not in page


def test_tiny_images_are_shown_to_the_bit(folder: Path) -> None:
    out = folder / "tiny.html"
    words = (folder / "tiny.bin", folder / "queries", folder / "ids.npy")
    mercore.gallery(*words, out=out, format="tinyimages", shown=1, force=True)
    page = out.read_text()
    data = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    shown = [np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in data]
    expected = made_images()[np.load(folder / "ids.npy")[0]]
    np.testing.assert_array_equal(shown[-3:], expected)
    assert "Hit 1: row 0" in page


@pytest.mark.parametrize(
    ("hits", "options", "kind", "message"),
    [
        (
            np.full((QUERIES, 2), ROWS),
            {},
            ShapeError,
            r"^hits 1: query 0 has the id 40, expected ids below 40, the number of images in "
            r"\S+images\. Fix: name the images that were ingested\.$",
        ),
        (
            np.zeros((5, 2), int),
            {},
            ShapeError,
            r"^hits 1: found hits of 5 queries, expected 6, one per image of \S+queries\. Fix: ",
        ),
        (
            np.zeros((QUERIES, 2), int),
            {"truth": np.full((QUERIES, 1), 99)},
            ShapeError,
            "^the truth: query 0 has the id 99, expected ids below 40",
        ),
        (
            np.zeros((QUERIES, 2), int),
            {"shown": 7},
            InputError,
            "^shown is out of range: found 7, expected 1 to 6 query images. Fix: shown=6$",
        ),
    ],
)
@pytest.mark.promise(
    "A gallery shows exactly the images that the ids name, and refuses ids beyond them"
)
def test_hits_of_other_images_are_refused(
    folder: Path, hits: Any, options: Any, kind: type[MercoreError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        made(folder, hits, **options, out=folder / "never.html")
    assert not (folder / "never.html").exists()


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"shown": 0}, InputError, "^shown is out of range: found 0, expected 1 to 1000. Fix: "),
        ({"shown": 2.5}, InputError, "^shown is 2.5: expected a whole number"),
        ({"out": "page.png"}, InputError, r"found the suffix '\.png', expected \.html.*page\.html"),
        ({"out": "s3://bucket/page.html"}, InputError, "page"),
        ({"out": "none/page.html"}, NotFoundError, "there is no folder none. Fix: create it"),
        ({"out": "folder.html", "force": True}, ExistsError, "is a folder: expected a file to"),
        ({"format": "fvecs"}, InputError, "^format is 'fvecs': expected tinyimages, or none"),
        ({"format": "tinyimages"}, InputError, "^format has no use here: both IMAGES and"),
        ({"images": "empty"}, NotFoundError, "found no images, expected files that end in .jpg"),
        ({"images": "none"}, MercoreError, "none"),
        ({"images": "ids.npy"}, InputError, "^ids.npy is a file: expected a folder of images. Fix"),
        ({"images": "base.zarr"}, NotFoundError, "found no images"),
        ({"images": "damaged", "hits": "ids.npy"}, MercoreError, "0.png: the image cannot be deco"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    folder: Path,
    options: dict[str, Any],
    kind: type[MercoreError],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    for name in ("empty", "damaged", "folder.html"):
        Path(name).mkdir(exist_ok=True)
    for row in range(ROWS):
        Path(f"damaged/{row}.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    given = {"images": "images", "hits": "none.npz", "out": "new.html", **options}
    with pytest.raises(kind, match=message):
        mercore.gallery(given.pop("images"), "queries", given.pop("hits"), **given)
    assert not Path("new.html").exists()


def test_hits_are_called_by_the_names_of_their_files() -> None:
    assert names_of(["a/codes.npz", "b/truth.npz"]) == ["codes.npz", "truth.npz"]
    assert names_of(["a/hits.npz", "b/hits.npz"]) == ["a/hits.npz", "b/hits.npz"]
    with pytest.raises(InputError, match=r"^a\.npz is named twice: expected different hits"):
        names_of(["a.npz", "b.npz", "a.npz"])


def test_a_list_holds_several_hits_or_ids() -> None:
    ids = np.zeros((2, 3), np.int64)
    hits = Hits(scores=None, ids=ids)
    assert several_hits("a.npz") == ["a.npz"]
    assert several_hits(("a.npz", Path("b"))) == ["a.npz", Path("b")]
    assert several_hits([hits, ids])[0] is hits
    assert several_hits([[1, 2], [3, 4]]) == [[[1, 2], [3, 4]]]
    assert several_hits(ids)[0] is ids
