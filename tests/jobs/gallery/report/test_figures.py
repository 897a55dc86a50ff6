"""Pictures of reports: what they draw, in both schemes, and nothing else in them."""

import re

import numpy as np
import pytest

from mercore.jobs.comparison.plot import Curve, Panel, draw_each
from mercore.jobs.gallery.page import Table
from mercore.jobs.gallery.report.document import Document, Plot, Section, render_document
from mercore.jobs.gallery.report.figures import (
    DARK,
    _medians,
    draw_calibration,
    draw_histograms,
    themed,
)
from mercore.stores.errors import ShapeError
from tests.support.pages import check_rules, contrast


def test_lines_and_letters_stand_out_in_both_schemes() -> None:
    """Text needs a contrast of 4.5, a line that carries a meaning 3."""
    for dark, paper in ((False, "#ffffff"), (True, DARK["#ffffff"])):
        for colour in ("#1d2126", "#000000"):
            assert contrast(DARK[colour] if dark else colour, paper) >= 4.5
        for colour in ("#0072b2", "#d55e00", "#009e73"):
            assert contrast(DARK[colour] if dark else colour, paper) >= 3
    assert DARK["#ffffff"] == "#1c2024"  # the cards of the page


def test_every_picture_follows_the_scheme_of_the_page() -> None:
    rng = np.random.default_rng(0)
    true, approximate = rng.random(500), rng.random(500)
    (curve,) = draw_each(
        Panel(title="", curves=[Curve(label="a", ranks=[1, 2], means=[0, 1], deviations=[0, 0])]),
        "svg",
    )
    pictures = [
        draw_calibration(approximate, true, ("true", "codes"), identity=True),
        draw_histograms({"near": true, "far": approximate}, "error", zero=True),
        themed(curve),
    ]
    for svg in pictures:
        text = svg.decode()
        assert text.count("prefers-color-scheme:dark") == 1
        drawn = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
        assert not {colour for colour in DARK if f": {colour}" in drawn}
        assert "var(--c0)" in drawn
    assert "<image" in pictures[0].decode()


def test_equal_scores_of_all_pairs_are_a_picture() -> None:
    one = np.full(3, 0.5)
    for svg in (
        draw_calibration(one, one, ("true", "codes"), identity=True),
        draw_histograms({"near": one}, "error"),
    ):
        assert svg.rstrip().endswith(b"</svg>")


def test_medians_are_those_of_each_column() -> None:
    edges = np.array([0.0, 1.0, 2.0, 3.0])
    true = np.array([0.5, 2.5, 0.2, 3.0, 0.9, 2.0])
    approximate = np.array([1.0, 5.0, 3.0, 7.0, 2.0, 6.0])
    middles, medians = _medians(approximate, true, edges)
    assert middles.tolist() == [0.5, 2.5]
    assert medians.tolist() == [2.0, 6.0]


def test_words_are_escaped_and_tables_are_whole() -> None:
    hostile = "<script>alert('x')</script> & {{ 7 * 7 }}"
    table = Table(title=hostile, header=(hostile, "value"), rows=((hostile, hostile),))
    plot = Plot(svg=themed(b'<svg><style type="text/css"></style></svg>'), alt=hostile, caption="c")
    section = Section(title=hostile, paragraphs=(hostile,), facts=(table,), plots=(plot,))
    document = Document(title=hostile, paragraphs=(hostile,), sections=(section, section))
    page = check_rules(render_document(document))
    assert page.titles() == [hostile, hostile]
    assert page.all("img")[0]["alt"] == hostile
    wrong = Table(title="t", header=("a", "b"), rows=(("1",),))
    with pytest.raises(ShapeError, match="found 1, expected 2"):
        render_document(
            Document(title="", paragraphs=(), sections=(Section(title="", tables=(wrong,)),))
        )
