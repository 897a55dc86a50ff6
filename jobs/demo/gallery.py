"""A self-contained HTML page: queries beside their hits, above tables of figures."""

import base64
import io
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import jinja2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mercore.stores.errors import ShapeError


@dataclass(frozen=True, kw_only=True)
class GalleryRow:
    """One query and its k best hits, best first.

    ``query`` is uint8[h, w, 3], ``hits`` uint8[k, h, w, 3]; ``scores`` are k numbers.
    ``neighbours``, k booleans: the hit is among the true nearest neighbours. ``nearest``, k
    booleans: the hit is the true nearest neighbour. ``place`` and ``hit_places`` (k strings, or
    none) are the origins of the pictures. ``way`` is the way of searching, in a word.
    """

    query: NDArray[np.uint8]
    hits: NDArray[np.uint8]
    scores: tuple[float, ...]
    neighbours: tuple[bool, ...]
    nearest: tuple[bool, ...]
    place: str = ""
    hit_places: tuple[str, ...] = ()
    way: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of strings with a title: names of rows in the first column, figures in the others."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The content of the page: a title, paragraphs of explanation, rows of pictures, tables."""

    title: str
    paragraphs: tuple[str, ...]
    rows: tuple[GalleryRow, ...]
    tables: tuple[Table, ...]


def render_gallery(gallery: Gallery) -> str:
    """Return the page as HTML with its pictures and style inside: it needs no other file.

    Raises
    ------
    ShapeError
        If a row does not have one score, mark and place per hit, or one cell per column.
    """
    for number, row in enumerate(gallery.rows):
        _check_row(number, row)
    for table in gallery.tables:
        _check_table(table)
    widest = max([1, *(len(row.hits) for row in gallery.rows)])
    return _template().render(
        gallery=gallery, rows=[_shown(row) for row in gallery.rows], widest=widest
    )


@dataclass(frozen=True, kw_only=True)
class _Hit:
    """One hit as the template shows it."""

    rank: int
    source: str
    score: str
    mark: str
    place: str


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """One row as the template shows it."""

    query: str
    place: str
    way: str
    hits: list[_Hit]
    n_correct: int


def _shown(row: GalleryRow) -> _Shown:
    """Return one row with its pictures encoded and its marks in words."""
    places = row.hit_places or ("",) * len(row.hits)
    marks = [
        "nearest" if first else "neighbour" if near else ""
        for first, near in zip(row.nearest, row.neighbours, strict=True)
    ]
    hits = [
        _Hit(rank=rank, source=_data_uri(pixels), score=f"{score:.3f}", mark=mark, place=place)
        for rank, (pixels, score, mark, place) in enumerate(
            zip(row.hits, row.scores, marks, places, strict=True), start=1
        )
    ]
    return _Shown(
        query=_data_uri(row.query),
        place=row.place,
        way=row.way,
        hits=hits,
        n_correct=sum(map(bool, marks)),
    )


def _data_uri(pixels: NDArray[np.uint8]) -> str:
    """Return a picture as a ``data:`` address that holds its PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _check_row(number: int, row: GalleryRow) -> None:
    """Refuse a row whose lists are not as long as its hits."""
    found = {
        "scores": len(row.scores),
        "neighbours": len(row.neighbours),
        "nearest": len(row.nearest),
    }
    if row.hit_places:
        found["hit_places"] = len(row.hit_places)
    for name, length in found.items():
        if length != len(row.hits):
            raise ShapeError(
                f"row {number} of the gallery has the wrong number of {name}: found {length}, "
                f"expected {len(row.hits)}, one per hit. Fix: give every hit one."
            )


def _check_table(table: Table) -> None:
    """Refuse a table whose rows do not match its header."""
    for number, row in enumerate(table.rows):
        if len(row) != len(table.header):
            raise ShapeError(
                f"row {number} of the table “{table.title}” has the wrong number of cells: "
                f"found {len(row)}, "
                f"expected {len(table.header)}, one per column. "
                "Fix: fill the empty cells with an empty string."
            )


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    """Load the template of the page from beside this module; it escapes every value."""
    source = (
        resources.files("mercore.jobs.demo").joinpath("gallery.html.j2").read_text(encoding="utf-8")
    )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source)
