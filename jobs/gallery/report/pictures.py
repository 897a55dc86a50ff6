"""The images that vectors were made of, if their source is there: for the gallery of a report."""

from mercore.stores.errors import MercoreError
from mercore.stores.formats import open_source
from mercore.stores.formats.images import Images
from mercore.stores.formats.source import Source
from mercore.stores.rows import is_store
from mercore.stores.vector_views import store_of
from mercore.stores.vectors import Vectors, VectorStore, open_vector_store


def open_pictures(vectors: Vectors | None, queries: Source | None) -> tuple[Images, Images] | None:
    """Return the images that rows and queries are made of; None if some are not there.

    Without queries, rows are the queries.
    """
    rows = None if vectors is None else _images_of(store_of(vectors))
    asked = rows
    if queries is not None:
        asked = _images_of(open_vector_store(queries.name)) if is_store(queries.name) else None
    return None if rows is None or asked is None else (rows, asked)


def _images_of(vectors: VectorStore | None) -> Images | None:
    """Return the images that a store was made of, if they are there and as many as then."""
    if vectors is None:
        return None
    try:
        source = open_source(vectors.source, ingesting=True)
        fits = source.shape[0] == vectors.spec.source_rows and not vectors.spec.appended
    except MercoreError:
        return None
    return source if isinstance(source, Images) and fits else None
