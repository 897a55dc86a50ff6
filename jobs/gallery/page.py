"""The kit of every page of HTML: sections of text, pictures, tables and rows of images."""

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple

import jinja2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mercore.jobs.options import Report
from mercore.stores.errors import ExistsError, InputError
from mercore.stores.formats.images import Images
from mercore.stores.location.publish import check_folder, publish_output, storage_errors
from mercore.stores.location.resolve import refuse_url
from mercore.stores.results.hits import Hits
from mercore.stores.wording import setting

Mark = Literal["nearest", "neighbour", ""]

PAGES = (".html", ".htm")
QUERIES, HITS = 24, 5  # queries on a page, and hits of each
LOSSLESS = 32  # the longest side of a picture that is kept to the bit
QUALITY = 85  # of JPEG
MAP_SIZE = 1000, 640
DEFINITIONS = {
    "k-recall": "k-recall@R{}: share of the true R among the first R found",
    "texmex": "R@R{}: true first among the first R found",
    "aska": "ASKA’s Recall@R{}: first found among the true R",
}
# Colours of matplotlib, and in the dark scheme: those of the page, and lighter ones of Okabe & Ito.
DARK = {
    "#1d2126": "#e7e9ea",
    "#ffffff": "#1c2024",
    "#b0b0b0": "#4a525a",
    "#000000": "#e7e9ea",
    "#0072b2": "#4da6e0",
    "#d55e00": "#ff8f4d",
    "#009e73": "#2ec99c",
    "#cc79a7": "#e39cc4",
}


class Picture(NamedTuple):
    """A picture, uint8[h, w, 3], and its origin in words."""

    pixels: NDArray[np.uint8]
    place: str


class GalleryHit(NamedTuple):
    """One hit: its picture, id and score, and whether it is a true neighbour or the nearest."""

    picture: Picture
    id: int
    score: float | None
    mark: Mark


class GalleryRow(NamedTuple):
    """One query with its number, and its hits, best first, by each way of searching."""

    number: int
    query: Picture
    ways: Mapping[str, Sequence[GalleryHit]]


class Table(NamedTuple):
    """A table: names of rows in the first column, figures in the others, or ``words``."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    words: bool = False


class Plot(NamedTuple):
    """A picture of matplotlib in SVG, its description for those who do not see it, and its caption.

    A ``wide`` one is not shrunk to a narrow screen, but scrolls.
    """

    svg: bytes
    alt: str
    caption: str
    wide: bool = False


class ScatterQuery(NamedTuple):
    """A query's number and place, and its neighbours: id, score and place of each, best first."""

    number: int
    place: tuple[int, int]
    near: Sequence[tuple[int, float, tuple[int, int]]]


class Scatter(NamedTuple):
    """Rows in the plane, each as its place, and queries whose neighbours a click shows.

    Places lie within ``MAP_SIZE``. It needs no script: each query is a link to its
    neighbours, and the page's style shows the target of a link.
    """

    rows: Sequence[tuple[int, int]]
    queries: Sequence[ScatterQuery]


class Section(NamedTuple):
    """A section: paragraphs, a map, pictures, tables, rows of a gallery.

    ``true_neighbours`` is the number of true neighbours that the gallery marks, or None.
    """

    title: str
    paragraphs: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    rows: Sequence[GalleryRow] = ()
    true_neighbours: int | None = None
    scatter: Scatter | None = None


def facts_table(facts: Mapping[str, str], title: str = "") -> Table:
    """Return a table of one fact per row."""
    return Table(("fact", "value"), list(facts.items()), title, words=True)


def write_page(out: str, title: str, paragraphs: Sequence[str], sections: Sequence[Section]) -> int:
    """Write a page with its pictures and style inside; return its bytes."""
    page = (
        _template()
        .render(title=title, paragraphs=paragraphs, sections=sections, map_size=MAP_SIZE)
        .encode()
    )
    publish_output(Path(out), page)
    return len(page)


def check_page(out: str, *, force: bool) -> None:
    """Refuse a page that cannot be written.

    Raises
    ------
    InputError
        If its name is none of a page, or a URL.
    NotFoundError, ExistsError, StorageError
        If it cannot be written, or exists and is not to be replaced.
    """
    refuse_url(out, "a page")
    page = Path(out)
    if page.suffix.lower() not in PAGES:
        fix = setting(out=str(page.with_suffix(".html") if page.name else "page.html"))
        raise InputError(
            f"{out}: found the suffix {page.suffix!r}, expected .html, which browsers open. "
            f"Fix: {fix}"
        )
    check_folder(page)
    with storage_errors("write", page):
        if page.is_dir():
            raise ExistsError(
                f"{out} is a folder: expected a file to write. Fix: name another path."
            )
        if page.exists() and not force:
            raise ExistsError(
                f"{out} exists: expected a new path. Fix: name another, or replace it with "
                f"{setting(force=True)}."
            )


def gallery_rows(
    numbers: Sequence[int],
    ways: Mapping[str, Hits],
    truth: Hits | None,
    query: Callable[[int], Picture],
    hit: Callable[[int], Picture],
) -> Iterator[GalleryRow]:
    """Yield queries by their numbers, and the best hits of each by every way of searching.

    Line i of the hits, and of the ``truth`` that marks them, is that of the i-th number; an id of
    −1 is no hit. ``query`` and ``hit`` return the picture of a number and of an id.
    """

    def best(found: Hits, line: int) -> Iterator[GalleryHit]:
        ids = found.ids[line, :HITS].tolist()
        scores = [None] * len(ids) if found.scores is None else found.scores[line, :HITS].tolist()
        true = [] if truth is None else truth.ids[line, :HITS].tolist()
        for row, score in zip(ids, scores, strict=True):
            if row >= 0:
                mark: Mark = "nearest" if row in true[:1] else "neighbour" if row in true else ""
                yield GalleryHit(hit(row), row, score, mark)

    for line, number in enumerate(numbers):
        found = {name: tuple(best(hits, line)) for name, hits in ways.items()}
        yield GalleryRow(number, query(number), found)


def pictures_of(images: Images, side: int) -> Callable[[int], Picture]:
    """Return the reader of single images, shrunk to ``side`` pixels, and of their paths."""
    return lambda row: Picture(images.picture(row, side), images.file(row) or "")


def recall_table(recall: Mapping[str, Sequence[Report]], against: str) -> Table:
    """Return the table of recall: a row per definition and way of searching, a column per rank.

    ``against`` says what the true neighbours are. The name of the only way is left out.
    """
    values = {
        (row["definition"], way, row["rank"]): f"{row['value']:.3f}"
        for way, rows in recall.items()
        for row in rows
    }
    ranks = sorted({rank for *_, rank in values})
    rows = [
        (
            words.format(f" of {way}" if len(recall) > 1 else ""),
            *(values.get((name, way, rank), "–") for rank in ranks),
        )
        for name, words in DEFINITIONS.items()
        for way in recall
    ]
    columns = (f"R\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{rank:,}" for rank in ranks)
    return Table((against, *columns), rows)


def _data_uri(pixels: NDArray[np.uint8]) -> str:
    """Return a picture as a ``data:`` address: PNG if it is tiny, else JPEG."""
    file = io.BytesIO()
    form = "png" if max(pixels.shape[:2]) <= LOSSLESS else "jpeg"
    Image.fromarray(pixels).save(file, format=form, optimize=True, quality=QUALITY)
    return f"data:image/{form};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _svg_uri(svg: bytes) -> str:
    """Return a picture of matplotlib as an address; its colours follow the light or dark scheme."""
    text, names = svg.decode(), {colour: f"--c{place}" for place, colour in enumerate(DARK)}
    for colour, name in names.items():
        text = text.replace(f": {colour}", f": var({name})")
    light = ";".join(f"{name}:{colour}" for colour, name in names.items())
    dark = ";".join(f"{name}:{DARK[colour]}" for colour, name in names.items())
    style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    opening = '<style type="text/css">'
    themed = text.replace(opening, opening + style, 1).encode()
    return f"data:image/svg+xml;base64,{base64.b64encode(themed).decode('ascii')}"


def _score(score: float) -> str:
    """Return a score with three decimals, or with four digits if these do not fit it."""
    return f"{score:.3f}" if score == 0 or 1e-3 <= abs(score) < 1e4 else f"{score:.4g}"


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    """Return the template beside this module; it escapes every value."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(data_uri=_data_uri, svg_uri=_svg_uri, score=_score)
    file = resources.files("mercore.jobs.gallery").joinpath("page.html.j2")
    return environment.from_string(file.read_text(encoding="utf-8"))
