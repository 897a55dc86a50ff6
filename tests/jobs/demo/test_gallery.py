"""The gallery page needs no other file, escapes what it is given and shows every picture."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from mercore.jobs.demo.gallery import Gallery, GalleryRow, Table, render_gallery
from mercore.stores.errors import ShapeError

HOSTILE = "<script>alert('x')</script> \" onload=\"x & {{ 7 * 7 }}"


def pixels(n: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def row(seed: int, text: str = "", k: int = 5) -> GalleryRow:
    return GalleryRow(
        query=pixels(1, seed)[0],
        hits=pixels(k, seed + 100),
        scores=tuple(0.9 - 0.01 * rank for rank in range(k)),
        neighbours=tuple(rank in (0, 1, 3) for rank in range(k)),
        nearest=tuple(rank == 1 for rank in range(k)),
        place=text,
        hit_places=(text,) * k if text else (),
    )


def gallery(text: str = "plain words", n_rows: int = 3) -> Gallery:
    table = Table(
        title=text, header=("encoder", text), rows=(("aska", "0.5"), (text, "0.7")), note=text
    )
    rows = tuple(row(seed, text) for seed in range(n_rows))
    return Gallery(title=text, paragraphs=(text, "second"), rows=rows, tables=(table, table))


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
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
    policy = [
        meta["content"]
        for meta in page.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_every_picture_is_there_unchanged_and_described() -> None:
    shown = gallery()
    images = Page(render_gallery(shown)).all("img")
    expected = [picture for line in shown.rows for picture in (line.query, *line.hits)]
    assert len(images) == len(expected) == 3 * 6
    for image, picture in zip(images, expected, strict=True):
        data = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
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
    assert "3 of 5" in page.text
    assert "★ 0.890" in page.text


def test_hostile_words_are_escaped() -> None:
    html = render_gallery(gallery(HOSTILE))
    page = Page(html)
    assert page.all("script") == []
    assert "{{ 7 * 7 }}" in html
    assert all("onload" not in attributes for _, attributes in page.tags)
    assert page.all("img")[0]["title"] == HOSTILE
    assert (
        page.text.count(HOSTILE) == 1 + 1 + 1 + 2 * 4
    )  # title, heading, paragraph; in each table title, note, two cells


def test_tables_keep_their_cells() -> None:
    page = Page(render_gallery(gallery()))
    assert len(page.all("table")) == 2
    assert [cell["scope"] for cell in page.all("th")] == ["col", "col", "row", "row"] * 2
    assert len(page.all("td")) == 4


def test_a_gallery_of_nothing_is_a_page() -> None:
    page = Page(render_gallery(Gallery(title="nothing", paragraphs=(), rows=(), tables=())))
    assert page.all("img") == []
    assert page.open == []


def test_rows_may_have_any_number_of_hits() -> None:
    shown = Gallery(title="few", paragraphs=(), rows=(row(0, k=0), row(1, k=2)), tables=())
    assert len(Page(render_gallery(shown)).all("img")) == 1 + 3


def test_the_same_gallery_is_the_same_page() -> None:
    assert render_gallery(gallery()) == render_gallery(gallery())


def test_lists_that_do_not_match_are_refused() -> None:
    wrong = GalleryRow(
        query=pixels(1, 0)[0],
        hits=pixels(2, 1),
        scores=(1.0,),
        neighbours=(True, True),
        nearest=(True, False),
    )
    with pytest.raises(
        ShapeError,
        match=r"^row 0 of the gallery has the wrong number of scores: found 1, expected 2, "
        r"one per hit\. Fix: .*\.$",
    ):
        render_gallery(Gallery(title="", paragraphs=(), rows=(wrong,), tables=()))
    table = Table(title="t", header=("a", "b"), rows=(("1",),))
    with pytest.raises(
        ShapeError,
        match=r"^row 0 of the table “t” has the wrong number of cells: found 1, expected 2, "
        r"one per column\. Fix: .*\.$",
    ):
        render_gallery(Gallery(title="", paragraphs=(), rows=(), tables=(table,)))
