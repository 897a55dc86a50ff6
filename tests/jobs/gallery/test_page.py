"""The gallery page needs no other file, escapes what it is given and shows every picture."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from mercore.jobs.gallery.page import (
    Gallery,
    GalleryHit,
    GalleryRow,
    GalleryWay,
    Mark,
    Picture,
    Table,
    marks_of,
    recall_table,
    render_gallery,
)
from mercore.stores.errors import ShapeError
from tests.support.pages import contrast

PNG = "data:image/png;base64,"
HOSTILE = "<script>alert('x')</script> \" onload=\"x & {{ 7 * 7 }}"
MARKS: tuple[Mark, ...] = ("neighbour", "nearest", "", "neighbour", "")


def picture(seed: int, text: str = "", side: int = 32) -> Picture:
    random = np.random.default_rng(seed)
    return Picture(pixels=random.integers(0, 256, (side, 32, 3), dtype=np.uint8), place=text)


def row(seed: int, text: str = "", k: int = 5) -> GalleryRow:
    hits = tuple(
        GalleryHit(
            picture=picture(100 * seed + rank, text),
            id=rank,
            score=0.9 - 0.01 * rank,
            mark=MARKS[rank],
        )
        for rank in range(k)
    )
    query = picture(100 * seed + 99, text)
    return GalleryRow(number=seed, query=query, ways=(GalleryWay(name=text, hits=hits),))


def gallery(text: str = "plain words", n_rows: int = 3) -> Gallery:
    table = Table(
        title=text, header=("encoder", text), rows=(("aska", "0.5"), (text, "0.7")), note=text
    )
    rows = tuple(row(seed, text) for seed in range(n_rows))
    return Gallery(
        title=text,
        paragraphs=(text, "second"),
        rows=rows,
        tables=(table, table),
        true_neighbours=5,
    )


def of_rows(*rows: GalleryRow, true_neighbours: int | None = 5) -> str:
    return render_gallery(
        Gallery(title="few", paragraphs=(), rows=rows, tables=(), true_neighbours=true_neighbours)
    )


class Page(HTMLParser):
    """Collect the tags and their attributes, and check that they close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page_is_well_formed() -> None:
    page = Page(render_gallery(gallery()))
    assert page.open == []
    assert page.all("html") == [{"lang": "en"}]


def test_the_page_needs_no_other_file() -> None:
    html = render_gallery(gallery())
    page = Page(html)
    assert not re.search(
        r"https?:|//[a-z]|url\(|@import", re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)
    )
    assert {tag for tag, _ in page.tags}.isdisjoint(
        {"link", "script", "iframe", "object", "embed", "base"}
    )
    for _, attributes in page.tags:
        assert "href" not in attributes
        assert re.match("data:image/(png|jpeg);base64,", attributes.get("src", PNG))
    policy = [
        meta["content"]
        for meta in page.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_letters_and_frames_stand_out_in_both_schemes() -> None:
    """Text needs a contrast of 4.5, a frame 3 (WCAG 2.2)."""
    schemes = re.findall(r":root \{(.*?)\}", render_gallery(gallery()), flags=re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        for paper in (colours["paper"], colours["card"]):
            for text in ("ink", "quiet", "neighbour", "nearest-ink"):
                assert contrast(colours[text], paper) >= 4.5
            assert contrast(colours["nearest"], paper) >= 3


def test_every_picture_is_there_unchanged_and_described() -> None:
    shown = gallery()
    images = Page(render_gallery(shown)).all("img")
    expected = [
        each.pixels
        for line in shown.rows
        for each in (line.query, *(hit.picture for way in line.ways for hit in way.hits))
    ]
    assert len(images) == len(expected) == 3 * 6
    for image, picture in zip(images, expected, strict=True):
        data = base64.b64decode(image["src"].removeprefix(PNG))
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), picture)
        assert image["alt"]


def test_hits_are_framed_by_what_is_true_of_them() -> None:
    page = Page(render_gallery(gallery(n_rows=1)))
    assert [image.get("class", "") for image in page.all("img")] == [
        "",
        "neighbour",
        "nearest",
        "",
        "neighbour",
        "",
    ]
    assert (
        page.all("img")[2]["alt"] == "Hit 2, score 0.890, the true nearest neighbour: plain words"
    )
    assert "plain words 3 of 5" in page.text
    assert "★ 0.890" in page.text


def test_without_true_neighbours_nothing_is_counted() -> None:
    hits = tuple(GalleryHit(picture=picture(seed), id=70 + seed, score=None) for seed in range(2))
    ways = tuple(GalleryWay(name=name, hits=hits) for name in ("one", "two"))
    page = Page(of_rows(GalleryRow(number=7, query=picture(9), ways=ways), true_neighbours=None))
    assert [image["alt"] for image in page.all("img")] == [
        "Query 7",
        *["Hit 1: row 70", "Hit 2: row 71"] * 2,
    ]
    assert not re.search(r"\d of \d|true|★|✓", page.text)
    assert page.text.count("row 71") == 2


def test_a_photograph_is_shown_in_few_bytes() -> None:
    smooth = np.linspace(0, 255, 192).astype(np.uint8)
    pixels = np.broadcast_to(smooth[:, None, None], (192, 100, 3))
    way = GalleryWay(name="", hits=())
    query = Picture(pixels=np.ascontiguousarray(pixels))
    page = Page(of_rows(GalleryRow(number=0, query=query, ways=(way,))))
    data = base64.b64decode(page.all("img")[0]["src"].removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(data)) as shown:
        assert shown.size == (100, 192)
        np.testing.assert_allclose(np.asarray(shown).astype(int), pixels, atol=4)


@pytest.mark.parametrize(
    ("score", "text"),
    [(0.0, "0.000"), (0.12345, "0.123"), (-85.5, "-85.500"), (1e-5, "1e-05"), (-1.5e5, "-1.5e+05")],
)
def test_scores_have_few_digits(score: float, text: str) -> None:
    hit = GalleryHit(picture=picture(0), id=0, score=score)
    way = GalleryWay(name="", hits=(hit,))
    assert text in Page(of_rows(GalleryRow(number=0, query=picture(1), ways=(way,)))).text.split()


def test_marks() -> None:
    assert marks_of([4, 3, 9], [3, 4]) == ["neighbour", "nearest", ""]
    assert marks_of([4], []) == [""]


def test_recalls_of_ways_with_other_ranks_are_one_table() -> None:
    one = [{"definition": "texmex", "rank": 1, "value": 0.5}]
    two = [*one, {"definition": "texmex", "rank": 10, "value": 1.0}]
    table = recall_table({"a": one, "b": two}, "against c")
    assert table.header == ("against c", "a", "b")
    assert table.rows == (
        ("R@1: true first among the first 1 found", "0.500", "0.500"),
        ("R@10: true first among the first 10 found", "–", "1.000"),
    )


def test_hostile_words_are_escaped() -> None:
    html = render_gallery(gallery(HOSTILE))
    page = Page(html)
    assert page.all("script") == []
    assert "{{ 7 * 7 }}" in html
    assert all("onload" not in attributes for _, attributes in page.tags)
    assert page.all("img")[0]["title"] == HOSTILE
    assert (
        page.text.count(HOSTILE) == 1 + 1 + 1 + 3 + 2 * 4
    )  # title, heading, paragraph; the way of each row; in each table title, note, two cells


def test_tables_keep_their_cells() -> None:
    page = Page(render_gallery(gallery()))
    assert len(page.all("table")) == 2
    assert [cell["scope"] for cell in page.all("th")] == ["col", "col", "row", "row"] * 2
    assert len(page.all("td")) == 4


def test_a_gallery_of_nothing_is_a_page() -> None:
    page = Page(of_rows())
    assert page.all("img") == []
    assert page.open == []


def test_rows_may_have_any_number_of_hits() -> None:
    assert len(Page(of_rows(row(0, k=0), row(1, k=2))).all("img")) == 1 + 3


def test_the_same_gallery_is_the_same_page() -> None:
    assert render_gallery(gallery()) == render_gallery(gallery())


def test_a_table_that_misses_a_cell_is_refused() -> None:
    table = Table(title="t", header=("a", "b"), rows=(("1",),))
    shown = Gallery(title="", paragraphs=(), rows=(), tables=(table,), true_neighbours=None)
    with pytest.raises(
        ShapeError,
        match=r"^row 0 of the table “t” has the wrong number of cells: found 1, expected 2, "
        r"one per column\. Fix: .*\.$",
    ):
        render_gallery(shown)
