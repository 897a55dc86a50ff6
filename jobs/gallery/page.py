"""A self-contained HTML page: queries beside their hits, above tables of figures."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal

import jinja2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mercore.jobs.options import Report
from mercore.stores.errors import ExistsError, InputError, ShapeError
from mercore.stores.location.publish import check_folder, storage_errors
from mercore.stores.location.resolve import refuse_url

Mark = Literal["nearest", "neighbour", ""]

PAGES = (".html", ".htm")
QUERIES, HITS = 24, 5  # queries on a page, and hits of each
LOSSLESS = 32  # the longest side of a picture that is kept to the bit
QUALITY = 85  # of JPEG
DEFINITIONS = {
    "k-recall": "k-recall@{}: share of the true {} among the first {} found",
    "texmex": "R@{}: true first among the first {} found",
    "aska": "Recall@{} of the ASKA paper: first found among the true {}",
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture, uint8[h, w, 3], and its origin in words."""

    pixels: NDArray[np.uint8]
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class GalleryHit:
    """One hit: its picture, id and score, and whether it is a true neighbour or the nearest."""

    picture: Picture
    id: int
    score: float | None
    mark: Mark = ""


@dataclass(frozen=True, kw_only=True)
class GalleryWay:
    """The best hits of one query, best first, by a way of searching that ``name`` names."""

    name: str
    hits: tuple[GalleryHit, ...]

    @property
    def true_hits(self) -> int:
        """The number of hits that are true neighbours."""
        return sum(bool(hit.mark) for hit in self.hits)


@dataclass(frozen=True, kw_only=True)
class GalleryRow:
    """One query with its number, and its hits by each way of searching."""

    number: int
    query: Picture
    ways: tuple[GalleryWay, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of strings with a title: names of rows in the first column, figures in the others."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The content of the page: a title, paragraphs of explanation, rows of pictures, tables.

    ``true_neighbours`` is the number of true neighbours per query, or None if they are not known.
    """

    title: str
    paragraphs: tuple[str, ...]
    rows: tuple[GalleryRow, ...]
    tables: tuple[Table, ...]
    true_neighbours: int | None


def render_gallery(gallery: Gallery) -> str:
    """Return the page as HTML with its pictures and style inside: it needs no other file.

    Raises
    ------
    ShapeError
        If a row of a table does not have one cell per column.
    """
    for table in gallery.tables:
        check_table(table)
    return render_page("page.html.j2", **widths_of(gallery.rows), **vars(gallery))


def widths_of(rows: Sequence[GalleryRow]) -> dict[str, int]:
    """Return what the style of galleries needs: the most hits of a way, and the most ways."""
    ways = [way for row in rows for way in row.ways]
    return {
        "widest": max([1, *(len(way.hits) for way in ways)]),
        "most_ways": max([1, *(len(row.ways) for row in rows)]),
    }


def render_page(template: str, **content: object) -> str:
    """Return the HTML of a template beside this module."""
    return _environment().get_template(template).render(**content)


def check_page(out: str, *, force: bool, example: str) -> None:
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
        raise InputError(
            f"{out}: found the suffix {page.suffix!r}, expected .html, which browsers "
            f"open. Fix: --out {page.with_suffix('.html') if page.name else example}"
        )
    check_folder(page)
    with storage_errors("write", page):
        if page.is_dir():
            raise ExistsError(
                f"{out} is a folder: expected a file to write. Fix: name another path."
            )
        if page.exists() and not force:
            raise ExistsError(
                f"{out} exists: expected a new path. Fix: name another, or replace it with --force."
            )


def marks_of(ids: Sequence[int], true: Sequence[int]) -> list[Mark]:
    """Return the mark of each hit; ``true`` are the ids of the true neighbours, best first."""
    return ["nearest" if row in true[:1] else "neighbour" if row in true else "" for row in ids]


def recall_table(recall: Mapping[str, Sequence[Report]], against: str) -> Table:
    """Return the table of recall: a row per definition and rank, a column per way of searching.

    ``recall`` are the recalls by way of searching; ``against`` says what the true neighbours are.
    """
    values = {
        way: {(row["definition"], row["rank"]): row["value"] for row in rows}
        for way, rows in recall.items()
    }
    keys = dict.fromkeys(key for each in values.values() for key in each)
    rows = tuple(
        (
            DEFINITIONS[definition].format(*[rank] * 3),
            *(
                f"{each[definition, rank]:.3f}" if (definition, rank) in each else "–"
                for each in values.values()
            ),
        )
        for definition, rank in keys
    )
    return Table(title="Recall", header=(against, *values), rows=rows)


def _data_uri(pixels: NDArray[np.uint8]) -> str:
    """Return a picture as a ``data:`` address: PNG if it is tiny, else JPEG."""
    file, picture = io.BytesIO(), Image.fromarray(pixels)
    form = "png" if max(pixels.shape[:2]) <= LOSSLESS else "jpeg"
    picture.save(file, format=form, optimize=True, quality=QUALITY)
    return f"data:image/{form};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _score(score: float) -> str:
    """Return a score with three decimals, or with four digits if these do not fit it."""
    return f"{score:.3f}" if score == 0 or 1e-3 <= abs(score) < 1e4 else f"{score:.4g}"


def check_table(table: Table) -> None:
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
def _environment() -> jinja2.Environment:
    """Return the environment of the templates beside this module; it escapes every value."""
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(_template),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(data_uri=_data_uri, score=_score)
    return environment


def _template(name: str) -> str:
    """Return the text of a template."""
    files = resources.files("mercore.jobs.gallery")
    return files.joinpath(name).read_text(encoding="utf-8")
