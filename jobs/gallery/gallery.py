"""``mercore gallery``: a page of query images beside their hits, from one's own images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from mercore.jobs.gallery.page import (
    HITS,
    QUERIES,
    Gallery,
    GalleryHit,
    GalleryRow,
    GalleryWay,
    Picture,
    Table,
    check_page,
    marks_of,
    recall_table,
    render_gallery,
)
from mercore.jobs.options import Report, check_whole, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.inputs import VerbOptions, VerbTask
from mercore.pipeline.encoders.encoder import check_range
from mercore.stores.errors import InputError, NotFoundError, ShapeError, counted
from mercore.stores.formats import TINY_IMAGES, open_source
from mercore.stores.formats.images import SUFFIXES, Images, image_files
from mercore.stores.location.publish import publish_output
from mercore.stores.results.hits import AnyHits, Hits, open_hits

MOST_QUERIES = 1000  # more make a page that browsers open slowly
SIDE = 192  # pixels of a picture, which the page shows at half the size or less


@dataclass(frozen=True, kw_only=True)
class GalleryOptions(VerbOptions):
    """Options of gallery; ``truth`` are the hits that the page marks as true neighbours."""

    out: str
    shown: int | None = None
    truth: AnyHits | None = None
    format: str | None = None
    force: bool = False

    def check(self) -> None:
        """Refuse a number, a format, or a page that cannot be written.

        Raises
        ------
        InputError
            If the number of queries or the format is none, or the page's name is none of a page.
        NotFoundError, ExistsError, StorageError
            If the page cannot be written, or exists and is not to be replaced.
        """
        check_whole(shown=self.shown)
        if self.shown is not None:
            check_range("shown", self.shown, (1, MOST_QUERIES), f"--shown {QUERIES}")
        if self.format not in (None, TINY_IMAGES):
            raise InputError(
                f"format is {self.format!r}: expected {TINY_IMAGES}, or none for folders of "
                f"images. Fix: --format {TINY_IMAGES}, or leave --format out."
            )
        check_page(self.out, force=self.force, example="gallery.html")


@dataclass(frozen=True, kw_only=True)
class GalleryTask(VerbTask):
    """A page with its images and hits open and checked."""

    images: Images
    queries: Images
    hits: Mapping[str, Hits]
    truth: Hits | None
    options: GalleryOptions
    shown: int

    def run(self) -> Report:
        """Write the page; return its path, the numbers of images, and recalls if truth is known."""
        recall = {}
        if self.truth is not None:
            recall = {name: recalls(found, self.truth) for name, found in self.hits.items()}
        page = render_gallery(self._gallery(recall)).encode()
        publish_output(Path(self.options.out), page)
        return {
            "page": str(Path(self.options.out).resolve()),
            "images": self.images.shape[0],
            "queries": self.queries.shape[0],
            "queries_shown": self.shown,
            "hits": list(self.hits),
            "bytes": len(page),
            **({"recall": recall} if recall else {}),
        }

    def _gallery(self, recall: Mapping[str, Sequence[Report]]) -> Gallery:
        """Return the content of the page."""
        tables: tuple[Table, ...] = ()
        if recall:
            queries = counted(self.queries.shape[0], "query", "queries")
            tables = (recall_table(recall, f"{queries}, against {self._truth_name}"),)
        with progress("gallery", self.shown, "queries") as advance:
            rows = []
            for query in range(self.shown):
                rows.append(self._row(query))
                advance(1)
        return Gallery(
            title=f"Neighbours among {counted(self.images.shape[0], 'image')}",
            paragraphs=self._paragraphs(),
            rows=tuple(rows),
            tables=tables,
            true_neighbours=self._true_neighbours,
        )

    @property
    def _true_neighbours(self) -> int | None:
        """The number of true neighbours that are marked, or None without truth."""
        return None if self.truth is None else min(HITS, self.truth.ids.shape[1])

    @property
    def _truth_name(self) -> str:
        """The name of the truth in a sentence."""
        truth = self.options.truth
        return PurePath(truth).name if isinstance(truth, str) else "the true neighbours"

    def _paragraphs(self) -> tuple[str, ...]:
        """Return what the page shows, in words."""
        total = counted(self.queries.shape[0], "query", "queries")
        *others, last = self.hits
        ways = f"{', '.join(others)} and {last}" if others else last
        shown = (
            f"The images of “{self.images.name}” that are nearest to images of "
            f"“{self.queries.name}”: the first {self.shown} of {total}, and up to {HITS} hits of "
            f"each by {ways}."
        )
        if self._true_neighbours is None:
            return (shown,)
        near = self._true_neighbours
        if near == 1:
            return shown, f"A gold frame marks the true nearest image, by {self._truth_name}."
        return (
            shown,
            f"A green frame marks one of the true {near} nearest images, by {self._truth_name}; a "
            "gold frame marks the true nearest.",
        )

    def _row(self, query: int) -> GalleryRow:
        """Return the pictures of one query and its hits."""
        return GalleryRow(
            number=query,
            query=_picture(self.queries, query),
            ways=tuple(
                GalleryWay(name=name, hits=self._hits(found, query))
                for name, found in self.hits.items()
            ),
        )

    def _hits(self, found: Hits, query: int) -> tuple[GalleryHit, ...]:
        """Return the pictures of the first hits of one query; an id of -1 is none."""
        ids = found.ids[query, :HITS].tolist()
        scores = [None] * len(ids) if found.scores is None else found.scores[query].tolist()
        true = [] if self.truth is None else self.truth.ids[query, :HITS].tolist()
        return tuple(
            GalleryHit(picture=_picture(self.images, row), id=row, score=score, mark=mark)
            for row, score, mark in zip(ids, scores, marks_of(ids, true), strict=False)
            if row >= 0
        )


def open_gallery(
    images: str, query_images: str, hits: Sequence[AnyHits], options: GalleryOptions
) -> GalleryTask:
    """Open images and hits; refuse hits of other images or queries.

    Raises
    ------
    MercoreError
        If an input does not exist, cannot be read, or does not fit the others, or the page cannot
        be written.
    """
    options.check()
    if Path(images).is_dir() and Path(query_images).is_dir():
        refuse_unused("both IMAGES and QUERY_IMAGES are folders", format=options.format)
    opened = [_open_images(path, options.format) for path in (images, query_images)]
    named = {name: open_hits(each) for name, each in zip(names_of(hits), hits, strict=True)}
    truth = None if options.truth is None else open_hits(options.truth)
    for name, found in {**named, **({} if truth is None else {"the truth": truth})}.items():
        _check_fit(name, found, *opened)
    total = opened[1].shape[0]
    if options.shown is not None:
        check_range("shown", options.shown, (1, total), f"--shown {total}", why=" query images")
    return GalleryTask(
        images=opened[0],
        queries=opened[1],
        hits=named,
        truth=truth,
        options=options,
        shown=options.shown or min(QUERIES, total),
    )


def several_hits(given: Any) -> list[Any]:  # noqa: ANN401 - hits, or a list of these
    """Return the hits in a list of paths, of hits or of 2-D arrays; anything else is one."""
    are_hits = isinstance(given, list | tuple) and all(
        isinstance(each, str | Path | Hits) or len(getattr(each, "shape", ())) == 2
        for each in given
    )
    return list(given) if are_hits and given else [given]


def names_of(hits: Sequence[AnyHits]) -> list[str]:
    """Return what the page calls each of the hits: the file's name, or its path if two are equal.

    Raises
    ------
    InputError
        If one file is named twice.
    """
    paths = [
        each if isinstance(each, str) else f"hits {number}" for number, each in enumerate(hits, 1)
    ]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise InputError(f"{path} is named twice: expected different hits. Fix: name it once.")
    short = [PurePath(path).name for path in paths]
    return short if len(set(short)) == len(short) else paths


def _open_images(path: str, form: str | None) -> Images:
    """Open a folder of images, or a file of tiny images."""
    folder = Path(path).is_dir()
    if folder and not image_files(path):
        raise NotFoundError(
            f"{path}: found no images, expected files that end in {' '.join(SUFFIXES)}. Fix: name "
            "the folder of the images."
        )
    if form is None and Path(path).is_file():
        raise InputError(
            f"{path} is a file: expected a folder of images. Fix: name the folder, or --format "
            f"{TINY_IMAGES} if the file holds the pixels of tiny images."
        )
    source = open_source(path, form=None if folder else form, ingesting=True)
    if not isinstance(source, Images) or source.open_ended:
        raise InputError(
            f"{path}: found rows of numbers or a stream, expected a folder of images, or a file of "
            "tiny images. Fix: name one of these."
        )
    return source


def _picture(images: Images, row: int) -> Picture:
    """Return one image, shrunk, with its path below the folder."""
    return Picture(pixels=images.picture(row, SIDE), place=images.file(row) or "")


def _check_fit(name: str, hits: Hits, images: Images, queries: Images) -> None:
    """Refuse hits of another number of queries, and ids beyond the images."""
    rows, total = images.shape[0], queries.shape[0]
    if len(hits) != total:
        raise ShapeError(
            f"{name}: found hits of {counted(len(hits), 'query', 'queries')}, expected {total:,}, "
            f"one per image of {queries.name}. Fix: name the images that were searched for."
        )
    if hits.ids.size and int(hits.ids.max()) >= rows:
        query, rank = (int(each) for each in np.argwhere(hits.ids >= rows)[0])
        raise ShapeError(
            f"{name}: query {query} has the id {hits.ids[query, rank]}, expected ids below "
            f"{rows:,}, the number of images in {images.name}. Fix: name the images that were "
            "ingested."
        )
