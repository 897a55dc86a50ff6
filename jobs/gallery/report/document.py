"""The content of a report's page: sections of text, tables, pictures and a gallery."""

from base64 import b64encode
from dataclasses import dataclass

from mercore.jobs.gallery.page import GalleryRow, Table, check_table, render_page, widths_of


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A picture in SVG, its description for those who do not see it, and its caption."""

    svg: bytes
    alt: str
    caption: str

    @property
    def uri(self) -> str:
        """The picture as a ``data:`` address."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg).decode('ascii')}"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section: paragraphs, tables of words, pictures, tables of figures, rows of a gallery.

    ``legend`` has a sample of each curve in the pictures, whose caption is the name of the curve.
    ``true_neighbours`` is the number of true neighbours that the gallery marks.
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    facts: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    legend: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()
    rows: tuple[GalleryRow, ...] = ()
    true_neighbours: int | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    """A page: its title, what it is about, and its sections."""

    title: str
    paragraphs: tuple[str, ...]
    sections: tuple[Section, ...]


def render_document(document: Document) -> str:
    """Return the page as HTML with its pictures and style inside: it needs no other file.

    Raises
    ------
    ShapeError
        If a row of a table does not have one cell per column.
    """
    for section in document.sections:
        for table in (*section.facts, *section.tables):
            check_table(table)
    rows = [row for section in document.sections for row in section.rows]
    return render_page("report/report.html.j2", **widths_of(rows), **vars(document))
