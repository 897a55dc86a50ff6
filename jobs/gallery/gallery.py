"""``mercore gallery``: a page of query images beside their hits, from one's own images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from mercore.jobs.gallery.page import (
    HITS,
    QUERIES,
    Section,
    check_page,
    gallery_rows,
    pictures_of,
    recall_table,
    write_page,
)
from mercore.jobs.options import Report, check_whole, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.inputs import VerbOptions, VerbTask
from mercore.pipeline.encoders.encoder import check_range
from mercore.stores.errors import InputError, NotFoundError, ShapeError, counted
from mercore.stores.formats import TINY_IMAGES, open_source
from mercore.stores.formats.images import SUFFIXES, Images, image_files
from mercore.stores.results.hits import AnyHits, Hits, open_hits
from mercore.stores.wording import option, setting

MAX_QUERIES = 1000  # more make a page that browsers open slowly
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
            check_range("shown", self.shown, (1, MAX_QUERIES), setting(shown=QUERIES))
        if self.format not in (None, TINY_IMAGES):
            raise InputError(
                f"format is {self.format!r}: expected {TINY_IMAGES}, or none for folders of "
                f"images. Fix: {setting(format=TINY_IMAGES)}, or leave {option('format')} out."
            )
        check_page(self.out, force=self.force)


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
        truth, rows, recall = self.truth, [], {}
        pictures = (pictures_of(each, SIDE) for each in (self.queries, self.images))
        with progress("gallery", self.shown, "queries") as advance:
            for row in gallery_rows(range(self.shown), self.hits, truth, *pictures):
                rows.append(row)
                advance(1)
        near = None if truth is None else min(HITS, truth.ids.shape[1])
        sections = [Section("Queries and their best hits", rows=rows, true_neighbours=near)]
        total = counted(self.queries.shape[0], "query", "queries")
        if truth is not None:
            recall = {name: recalls(found, truth) for name, found in self.hits.items()}
            given = self.options.truth
            against = PurePath(given).name if isinstance(given, str) else "the true neighbours"
            table = recall_table(recall, f"{total}, against {against}")
            sections.append(Section("Recall", tables=[table]))
        *others, last = self.hits
        shown = (
            f"The images of “{self.images.name}” that are nearest to images of "
            f"“{self.queries.name}”: the first {self.shown} of {total}, and up to {HITS} hits of "
            f"each by {', '.join(others)}{' and ' * bool(others)}{last}."
        )
        title = f"Neighbours among {counted(self.images.shape[0], 'image')}"
        size = write_page(self.options.out, title, [shown], sections)
        return {
            "page": str(Path(self.options.out).resolve()),
            "images": self.images.shape[0],
            "queries": self.queries.shape[0],
            "queries_shown": self.shown,
            "hits": list(self.hits),
            "bytes": size,
            **({"recall": recall} if recall else {}),
        }


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
        check_range("shown", options.shown, (1, total), setting(shown=total), why=" query images")
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
    """Return the names of the hits on a page: the files' names, or the paths if two are equal.

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
            f"{path} is a file: expected a folder of images. Fix: name the folder, or "
            f"{setting(format=TINY_IMAGES)} if the file holds the pixels of tiny images."
        )
    source = open_source(path, form=None if folder else form, ingesting=True)
    if not isinstance(source, Images) or source.open_ended:
        raise InputError(
            f"{path}: found rows of numbers or a stream, expected a folder of images, or a file of "
            "tiny images. Fix: name one of these."
        )
    return source


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
