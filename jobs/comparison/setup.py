"""The options of a comparison, what they are checked against, and the records in its folder."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mercore.jobs.comparison.candidates import parse_kernels
from mercore.jobs.options import Report, check_whole, parse_ranks, parse_reranks, refuse_unused
from mercore.jobs.resources.execution import Execution
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions
from mercore.jobs.verbs.rows.labels import LabelOptions
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.measures.checks import DEFAULT_RANKS
from mercore.pipeline.measures.recognition import Classifier
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.stores.errors import ExistsError, FormatError, InputError, StorageError
from mercore.stores.location.protocol import ROOT
from mercore.stores.location.publish import exists, storage_errors
from mercore.stores.location.resolve import refuse_url
from mercore.stores.results.hits import check_hits_path
from mercore.stores.vectors import Vectors, original_ids
from mercore.stores.wording import option, setting

RECORDS = {"name": "mercore-compare", "version": 1}
RECORDED = "compare.json"
PICTURES = ("recall.png", "recall.svg")
ZARR = (ROOT, ".zarray", ".zgroup")  # files of arrays and groups, of both versions
MAX_SEEDS = 1000
ANOTHER = f"name another with {option('out')}"


@dataclass(frozen=True, kw_only=True)
class CompareOptions(VerbOptions):
    """The options of a comparison; ``bytes`` or ``operations`` make codes of equal cost."""

    kernels: tuple[str, ...]
    encoders: tuple[str, ...]
    gamma: float | None = None
    transform: float | str | None = None
    bytes: int | None = None
    operations: int | None = None
    seeds: int = 1
    ranks: str | Iterable[int] | None = None
    rerank: int | str | Sequence[int] | None = None
    workers: int | None = None
    threads: int | None = None
    memory: int | None = None
    labelling: LabelOptions = LabelOptions()  # noqa: RUF009 - it is frozen
    out: str | None = None
    force: bool = False

    def check(self) -> None:
        """Refuse unknown kernels, counts out of range, and a folder that cannot keep runs."""
        check_whole(bytes=self.bytes, operations=self.operations, seeds=self.seeds)
        self.reranks()
        self.labelling.check()
        self.kernel_options()
        self.search_execution().check()
        self.encode_execution().check()
        check_range("seeds", self.seeds, (1, MAX_SEEDS), setting(seeds=2))
        if self.out is None:
            because = f"without {option('out')} no file is written"
            refuse_unused(because, force=self.force or None)
        else:
            check_out_folder(self.out, replace=self.force)

    def kernel_options(self) -> list[KernelOptions]:
        """Return the kernels to compare under."""
        return parse_kernels(self.kernels, gamma=self.gamma, transform=self.transform)

    def reranks(self) -> list[int]:
        """Return the numbers of hits to score again, each in a search of its own."""
        return parse_reranks(self.rerank)

    def protocol(self) -> dict[str, int]:
        """Return the cost of every code, if the user gave one."""
        given = {"bytes": self.bytes, "operations": self.operations}
        return {name: value for name, value in given.items() if value is not None}

    def search_execution(self) -> Execution:
        """Return the execution of searches."""
        return Execution(threads=self.threads, memory=self.memory)

    def encode_execution(self) -> Execution:
        """Return the execution of encodes."""
        return Execution(threads=self.workers, memory=self.memory, threads_option="workers")


def check_out_folder(out: str, *, replace: bool) -> None:
    """Refuse a folder that cannot keep a comparison, such as a store.

    Pictures beside ``compare.json`` are drawn again; others only if they may be replaced.

    Raises
    ------
    InputError
        If it is a URL.
    ExistsError
        If it is a file, a store or array of any program, or has pictures of another origin.
    StorageError
        If it cannot be written.
    """
    refuse_url(out, "a comparison")
    folder = Path(out)
    if any(exists(folder / name) for name in ZARR):
        raise ExistsError(
            f"{out} holds a Zarr store: expected a folder for a comparison. Fix: {ANOTHER}."
        )
    if exists(folder):
        if not folder.is_dir():
            raise ExistsError(
                f"{out} is a file: expected a folder for a comparison. Fix: {ANOTHER}."
            )
        check_hits_path(str(folder / "truth.npz"))
        read_records(folder / RECORDED)
        if not replace:
            _refuse_pictures(folder)
        return
    nearest = next(above for above in folder.absolute().parents if exists(above))
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise StorageError(
            f"cannot write {out}: {nearest} is no folder to write in. Fix: {ANOTHER}."
        )


def _refuse_pictures(folder: Path) -> None:
    """Refuse to draw over pictures that no comparison has drawn."""
    for picture in (folder / name for name in PICTURES):
        if exists(picture) and not exists(folder / RECORDED):
            raise ExistsError(
                f"{picture} exists and is of no comparison: expected a folder without it. Fix: "
                f"{ANOTHER}, or replace it with {setting(force=True)}."
            )


def one_or_all(values: Sequence[Any]) -> Any:  # noqa: ANN401 - a value of a record
    """Return the only value, or all of several, or None: records state reranking in this way."""
    return list(values) if len(values) > 1 else next(iter(values), None)


def read_records(path: Path) -> list[Report]:
    """Return the recorded runs of the file ``compare.json``; none if it does not exist.

    Raises
    ------
    FormatError
        If the file is not of a comparison.
    """
    if not exists(path):
        return []
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        written = json.loads(text)
        if {key: written[key] for key in RECORDS} == RECORDS:
            return [record for record in written["runs"] if record["key"]]
        content = f"{written['name']} version {written['version']}"
    except (ValueError, LookupError, TypeError):
        content = "something else"
    raise FormatError(
        f"{path}: found {content}, expected the runs of a comparison, version "
        f"{RECORDS['version']}. Fix: remove it, or name another folder with {option('out')}."
    )


def ranks_of(options: CompareOptions, rows: int) -> list[int]:
    """Return the ranks of the table; refuse ranks and numbers of reranked hits beyond the rows."""
    ranks = [rank for rank in DEFAULT_RANKS if rank <= rows] or [1]
    if options.ranks is not None:
        ranks = parse_ranks(options.ranks, rows)
    for rerank in (None, *options.reranks()):
        SearchSettings(k=ranks[-1], rerank=rerank).check(rows)
    return ranks


def open_classifier(
    labelling: LabelOptions, store: Vectors, query_count: int, k: int
) -> Classifier | None:
    """Open the labels, if there are any; refuse labels of other rows or queries, or a small k."""
    classifier = labelling.open()
    if classifier is None:
        return None
    last = int(original_ids(np.array([store.rows - 1]), store.dropped)[0])
    labelled = len(classifier.labels), len(classifier.query_labels)
    if labelled[0] <= last or labelled[1] != query_count:
        raise InputError(
            f"the labels do not fit: found {labelled[0]} of rows and {labelled[1]} of queries, "
            f"expected at least {last + 1} and {query_count}. Fix: give one label per row of the "
            "vectors, and one per query."
        )
    if k < classifier.neighbours:
        raise InputError(
            f"{option('labels')} classifies by {classifier.neighbours} neighbours: found {k}, the "
            f"greatest rank. Fix: {setting(ranks=f'1,{classifier.neighbours}')}"
        )
    return classifier
