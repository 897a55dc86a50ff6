"""A page needs no other file, escapes what it is given and shows every picture, in both schemes."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mercore.jobs.comparison.plot import Curve, Panel, draw_recall
from mercore.jobs.gallery.page import (
    DARK,
    Picture,
    Plot,
    Section,
    Table,
    gallery_rows,
    recall_table,
    write_page,
)
from mercore.stores.results.hits import Hits
from tests.support.pages import ParsedPage, check_rules, contrast

PNG = "data:image/png;base64,"
HOSTILE = "<script>alert('x')</script> \" onload=\"x & {{ 7 * 7 }}"
IDS, TRUE = np.array([[4, 3, 9, 5, 8]]), np.array([[3, 4, 1, 5, 2]])
SCORES = np.array([[0.9, 0.89, 0.88, 0.87, 0.86]])


def pixels(seed: int, *, tall: int = 32) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (tall, 32, 3), dtype=np.uint8)


def gallery(
    ways: Mapping[str, Hits], truth: Hits | None, *, numbers: Sequence[int] = (7,), place: str = ""
) -> Section:
    """Queries whose pictures are those of seeds below 0, beside hits with those of their ids."""
    rows = gallery_rows(
        numbers,
        ways,
        truth,
        lambda number: Picture(pixels(100 + number), place),
        lambda row: Picture(pixels(row), place),
    )
    return Section("hits", rows=list(rows), true_neighbours=None if truth is None else 5)


def page_of(folder: Path, *sections: Section, title: str = "title") -> ParsedPage:
    size = write_page(str(folder / "page.html"), title, (title, "second"), sections)
    assert size == (folder / "page.html").stat().st_size
    return check_rules((folder / "page.html").read_text())


def scored(ids: Any, scores: Any = None) -> Hits:
    return Hits(scores=scores, ids=np.array(ids))


def test_letters_frames_and_lines_stand_out_in_both_schemes(tmp_path: Path) -> None:
    """Text needs a contrast of 4.5, a frame or line that carries a meaning 3 (WCAG 2.2)."""
    page_of(tmp_path)
    html = (tmp_path / "page.html").read_text()
    schemes = re.findall(r":root \{(.*?)\}", html, flags=re.DOTALL)
    assert len(schemes) == 2
    for scheme, drawn in zip(schemes, ({each: each for each in DARK}, DARK), strict=True):
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        for paper in (colours["paper"], colours["card"]):
            for text in ("ink", "quiet", "neighbour", "nearest-ink"):
                assert contrast(colours[text], paper) >= 4.5
            assert contrast(colours["nearest"], paper) >= 3
            assert contrast(drawn["#1d2126"], paper) >= 4.5
            for line in ("#0072b2", "#d55e00", "#009e73"):
                assert contrast(drawn[line], paper) >= 3
        assert drawn["#ffffff"] == colours["card"]


def test_a_page_allows_itself_nothing_else_and_is_the_same_each_time(tmp_path: Path) -> None:
    page = page_of(tmp_path, gallery({"a": scored(IDS)}, None))
    (policy,) = (meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    first = (tmp_path / "page.html").read_bytes()
    page_of(tmp_path, gallery({"a": scored(IDS)}, None))
    assert (tmp_path / "page.html").read_bytes() == first


def test_hits_are_shown_unchanged_and_framed_by_what_is_true_of_them(tmp_path: Path) -> None:
    page = page_of(tmp_path, gallery({"codes": scored(IDS, SCORES)}, scored(TRUE), place="a word"))
    images = page.all("img")
    for image, seed in zip(images, (107, *IDS[0]), strict=True):
        data = base64.b64decode(image["src"].removeprefix(PNG))
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), pixels(seed))
    marks = ["", "neighbour", "nearest", "", "neighbour", ""]
    assert [image.get("class", "") for image in images] == marks
    assert images[0]["alt"] == "Query 7: a word"
    assert images[2]["alt"] == "Hit 2, score 0.890, the true nearest neighbour: a word"
    assert "codes 3 of 5" in page.text
    assert "★ 0.890" in page.text


def test_without_true_neighbours_nothing_is_counted(tmp_path: Path) -> None:
    ways = {"one": scored([[70, 71, -1]]), "two": scored([[70, 71]])}  # an id of -1 is no hit
    page = page_of(tmp_path, gallery(ways, None))
    alts = ["Query 7", *["Hit 1: row 70", "Hit 2: row 71"] * 2]
    assert [image["alt"] for image in page.all("img")] == alts
    assert not re.search(r"\d of \d|true|★|✓", page.text)
    assert page.text.count("row 71") == 2


def test_a_photograph_is_shown_in_few_bytes(tmp_path: Path) -> None:
    smooth = np.linspace(0, 255, 192).astype(np.uint8)
    tall = np.ascontiguousarray(np.broadcast_to(smooth[:, None, None], (192, 100, 3)))
    rows = list(
        gallery_rows([0], {}, None, lambda _: Picture(tall, ""), lambda _: Picture(tall, ""))
    )
    page = page_of(tmp_path, Section("", rows=rows))
    data = base64.b64decode(page.all("img")[0]["src"].removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(data)) as shown:
        np.testing.assert_allclose(np.asarray(shown).astype(int), tall, atol=4)


def test_scores_have_few_digits(tmp_path: Path) -> None:
    scores = {0.0: "0.000", 0.12345: "0.123", -85.5: "-85.500", 1e-5: "1e-05", -1.5e5: "-1.5e+05"}
    hits = scored([[*range(5)]], np.array([list(scores)]))
    assert set(scores.values()) <= set(page_of(tmp_path, gallery({"": hits}, None)).text.split())


def test_recalls_are_one_table() -> None:
    one = [{"definition": "texmex", "rank": 1, "value": 0.5}]
    two = [*one, {"definition": "texmex", "rank": 10, "value": 1.0}]
    table = recall_table({"a": one, "b": two}, "against c")
    assert table.header == ("against c", "R\xa0=\xa01", "R\xa0=\xa010")
    assert [row for row in table.rows if row[0].startswith("R@R")] == [
        ("R@R of a: true first among the first R found", "0.500", "–"),
        ("R@R of b: true first among the first R found", "0.500", "1.000"),
    ]
    alone = recall_table({"a": one}, "against c").rows
    assert ("R@R: true first among the first R found", "0.500") in alone


def test_hostile_words_are_escaped(tmp_path: Path) -> None:
    table = Table((HOSTILE, "b"), [(HOSTILE, HOSTILE)], HOSTILE, HOSTILE, words=True)
    curve = Curve(label="a", ranks=[1, 2], means=[0, 1], deviations=[0, 0])
    svg = draw_recall([Panel(title=HOSTILE, curves=[curve])], "svg")
    plots = [Plot(svg, HOSTILE, HOSTILE, wide=True)]
    section = Section(HOSTILE, [HOSTILE], plots, [table])
    shown = gallery({HOSTILE: scored(IDS)}, None, place=HOSTILE)
    page = page_of(tmp_path, section, shown, title=HOSTILE)
    assert page.all("script") == []
    assert all("onload" not in attributes for _, attributes in page.tags)
    assert page.all("img")[0]["alt"] == page.all("img")[1]["title"] == HOSTILE
    # two titles, two paragraphs; a heading, a caption, title, note and cells; the way of the hits
    assert page.text.count(HOSTILE) == 3 + 2 + 1 + 2 + 3 + 1
    assert [cell["scope"] for cell in page.all("th")] == ["col", "col", "row"]
    (drawn,) = page.svgs()
    colours = re.sub(r"<style.*?</style>", "", drawn, flags=re.DOTALL)
    assert not {colour for colour in DARK if f": {colour}" in colours}
    assert "var(--c0)" in colours
