"""The images that vectors were made of, if their source is there: for the gallery of a report."""

from typing import NamedTuple

from mercore.jobs.gallery.page import Picture
from mercore.stores.errors import MercoreError
from mercore.stores.formats import open_source
from mercore.stores.formats.images import Images
from mercore.stores.formats.source import Source
from mercore.stores.rows import is_store
from mercore.stores.vectors import Vectors, VectorStore, open_vector_store, store_of

SIDE = 96  # pixels of a picture, as the page shows it


class SourcePictures(NamedTuple):
    """The images of the rows and of the queries."""

    rows: Images
    queries: Images

    def of_row(self, row: int) -> Picture:
        """Return the image of a row, by its id."""
        return _picture(self.rows, row)

    def of_query(self, query: int) -> Picture:
        """Return the image of a query."""
        return _picture(self.queries, query)


def open_pictures(vectors: Vectors | None, queries: Source | None) -> SourcePictures | None:
    """Return the images that rows and queries are made of; None if some are not there.

    Without queries, rows are the queries.
    """
    stored = None if vectors is None else store_of(vectors)
    rows = None if stored is None else _images_of(stored)
    if rows is None or queries is None:
        return None if rows is None else SourcePictures(rows, rows)
    asked = None
    if is_store(queries.name):
        asked = _images_of(open_vector_store(queries.name))
    return None if asked is None else SourcePictures(rows, asked)


def _images_of(vectors: VectorStore) -> Images | None:
    """Return the images that a store was made of, if they are there and as many as then."""
    try:
        source = open_source(vectors.source, ingesting=True)
        fits = source.shape[0] == vectors.spec.source_rows and not vectors.spec.appended
    except MercoreError:
        return None
    return source if isinstance(source, Images) and fits else None


def _picture(images: Images, row: int) -> Picture:
    return Picture(pixels=images.picture(row, SIDE), place=images.file(row) or "")
