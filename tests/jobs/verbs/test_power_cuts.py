"""A power cut at any moment of a verb: the same command ends in the bytes of an undisturbed run."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from numpy.random import Generator, default_rng

import mercore
from mercore.jobs.resources import execution
from mercore.stores import vector_writer
from mercore.stores.errors import ExistsError, IntegrityError
from mercore.stores.vectors import open_vector_store
from mercore.testing.cases import in_case
from mercore.testing.stores import histograms
from tests.stores.part_store.test_row_lookup import without_blocks
from tests.support.forgetful import Disk, Step, Tree, cuts, lay, recorded, tree_of

DIMS, PART_ROWS = 4, 16
ROWS, MORE, ASKED = (histograms(n, DIMS, seed=n) for n in (60, 150, 6))
PQ, BINARY = "pq:subquantizers=2", "kpca-lsh:landmarks=8,bits=8"

Act = Callable[[Path], object]
Look = Callable[[Path, Tree, Tree], None]


@pytest.fixture(autouse=True)
def small_and_serial() -> Iterator[None]:
    """Small parts, one thread, and no waits for the disk."""
    with (
        patch.object(vector_writer, "CHUNK_BYTES", PART_ROWS * DIMS * 4),
        patch.object(execution, "available_cores", lambda: 1),
        patch.object(os, "fsync"),
    ):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if this machine has one: it is made again for every power cut."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it has a name of its own
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        np.save(Path(made) / "asked.npy", ASKED)
        (Path(made) / "disk").mkdir()
        yield Path(made) / "disk"


def ingest(folder: Path) -> None:
    mercore.ingest(ROWS[:40], folder / "v")


def append(folder: Path) -> None:
    mercore.append(ROWS[40:], folder / "v")


def append_parts(folder: Path) -> None:
    mercore.append(MORE, folder / "v")


def encode(folder: Path, encoder: str = PQ) -> None:
    """The codes have the name of the folders of chunks in them."""
    options: dict[str, Any] = {"kernel": "hellinger", "part_rows": PART_ROWS}
    mercore.encode(folder / "v", folder / "c", encoder=encoder, **options)


def encode_binary(folder: Path) -> None:
    encode(folder, BINARY)


def index_cells(folder: Path) -> None:
    mercore.index(folder / "c", folder / "i", cells=3, part_rows=PART_ROWS)


def index_orders(folder: Path) -> None:
    mercore.index(folder / "c", folder / "i", orders=2, part_rows=PART_ROWS)


def delete(folder: Path, *ids: int) -> None:
    mercore.delete(folder / "v", [*ids] or [1, 7])


def compact(folder: Path) -> None:
    mercore.compact(folder / "v", folder / "w")


def export(folder: Path) -> None:
    points, queries = folder / "points.npy", folder.parent / "asked.npy"
    mercore.export(folder / "c", folder / "faiss", queries=queries, points=points)


def search(folder: Path, out: str = "h.npz", *, k: int = 3, force: bool = False) -> None:
    options: dict[str, Any] = {"kernel": "hellinger", "exact": True, "batch": 2, "force": force}
    mercore.search(folder / "v", ASKED, k=k, out=folder / out, **options)


def search_ivecs(folder: Path) -> None:
    search(folder, "h.ivecs", force=True)


def graph(folder: Path, *, force: bool = False) -> None:
    options: dict[str, Any] = {"kernel": "hellinger", "batch": 16, "force": force}
    mercore.graph(folder / "v", k=3, out=folder / "h.npz", **options)


def old_store(folder: Path) -> None:
    without_blocks(open_vector_store(folder / "v"), folder / "old")


def add_blocks(folder: Path) -> None:
    mercore.check(folder / "old", add_blocks=True)


def forced(act: Callable[..., object]) -> Act:
    return lambda folder: act(folder, force=True)


def removed(name: str, act: Act) -> Act:
    """The fix of a refusal of what exists: remove it, then run the same command."""

    def fix(folder: Path) -> None:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        act(folder)

    return fix


def below(tree: Tree, name: str) -> Tree:
    return {path: tree[path] for path in tree if path == name or path.startswith(f"{name}/")}


def whole(*names: str) -> Look:
    """Files and stores are whole or absent: those of before, or those of the end."""

    def look(folder: Path, start: Tree, end: Tree) -> None:
        left = tree_of(folder)
        for name in names:
            assert below(left, name) in ({}, below(start, name), below(end, name)), name

    return look


def hits(out: str = "h.npz", scores: str = "h.npz") -> Look:
    """Hits are whole or absent, and nothing beside them is of other hits."""
    names = (out, scores, f"{out}.certificate.npz")

    def look(folder: Path, start: Tree, end: Tree) -> None:
        whole(*names)(folder, start, end)
        left = tree_of(folder)
        of = start if left.get(out) == start.get(out) else end
        assert out not in left or all(left.get(name) in (None, of[name]) for name in names)

    return look


def rows(*counts: int, store: str = "v") -> Look:
    """A store of vectors has one of these numbers of rows, all of them right."""

    def look(folder: Path, start: Tree, end: Tree) -> None:
        info = mercore.info(folder / store)
        assert info["rows"] - info.get("deleted_rows", 0) in counts
        assert mercore.check(folder / store)["faults"] == []

    return look


def neighbours(store: str, *, grows: bool = False, **options: Any) -> Look:
    """A search of codes or an index finds the rows themselves, unless a part is not done yet."""

    def look(folder: Path, start: Tree, end: Tree) -> None:
        if (folder / store).exists():
            with nullcontext() if grows else suppress(IntegrityError):
                _, found = mercore.search(folder / store, ROWS[:2], k=1, **options)
                assert found.ids.tolist() == [[0], [1]]

    return look


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command in a folder, and the commands before it.

    ``look`` checks what a power cut leaves. ``fix`` is what a refusal asks for: the command may
    have ended before the power cut. The cheaper it is, the more often the power is cut.
    """

    run: Act
    look: Look
    before: tuple[Act, ...] = (ingest,)
    fix: Act | None = None
    cheap: int = 1


CASES = {
    "ingest": Case(run=ingest, before=(), look=whole("v"), fix=removed("v", ingest)),
    "append": Case(run=append, look=rows(40, 60)),
    "append of parts": Case(run=append_parts, before=(ingest, append), look=rows(60, 210)),
    "delete": Case(run=delete, look=rows(40, 38), cheap=6),
    "second delete": Case(
        run=lambda folder: delete(folder, 3),
        before=(ingest, delete, lambda folder: delete(folder, 2), append),
        look=rows(57, 56),
        cheap=6,
    ),
    "compact": Case(
        run=compact, before=(ingest, delete), look=whole("w"), fix=removed("w", compact)
    ),
    "blocks": Case(run=add_blocks, before=(ingest, old_store), look=rows(40, store="old")),
    "encode": Case(run=encode, look=neighbours("c", rerank=40)),
    "encode of grown": Case(
        run=encode,
        before=(ingest, encode, append),
        look=neighbours("c", grows=True, rerank=40),
    ),
    "cells": Case(
        run=index_cells, before=(ingest, encode), look=neighbours("i", probes=3, rerank=40)
    ),
    "cells of grown": Case(
        run=index_cells,
        before=(ingest, encode, index_cells, append, encode),
        look=neighbours("i", grows=True, probes=3, rerank=40),
    ),
    "orders": Case(
        run=index_orders, before=(ingest, encode_binary), look=neighbours("i", neighbours=40)
    ),
    "export": Case(
        run=export,
        before=(ingest, encode),
        look=whole("faiss", "points.npy"),
        fix=removed("faiss", export),
    ),
    "search": Case(run=search, look=hits(), fix=forced(search), cheap=2),
    "search over hits": Case(
        run=forced(search),
        before=(ingest, lambda folder: search(folder, k=2)),
        look=hits(),
        cheap=2,
    ),
    "search over ivecs": Case(
        run=search_ivecs,
        before=(ingest, lambda folder: search(folder, "h.ivecs", k=2)),
        look=hits("h.ivecs", "h.fvecs"),
        cheap=2,
    ),
    "graph": Case(run=graph, look=hits(), fix=forced(graph)),
}


class Run(NamedTuple):
    """The folder before a command, and its steps; the first ones are those of a killed run."""

    start: Tree
    steps: list[Step]
    killed: int = 0

    @property
    def unsure(self) -> set[str]:
        """The chunk whose writer was killed between its rename and the fsync of its folder."""
        target = self.steps[self.killed - 1].target if self.killed else ""
        return {target} if "/c/" in target else set()

    @property
    def litter(self) -> set[str]:
        """Scratch that an earlier cut left: a second one can bring it back when it was removed."""
        return {path for path in self.start if ".tmp" in path}


class Recording:
    """A case that was run once in a folder: what lay there before and after, and its steps."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        for act in case.before:
            act(folder)
        self.start = tree_of(folder)
        with recorded(folder) as self.steps:
            case.run(folder)
        self.end = tree_of(folder)

    def again(self, left: Tree) -> list[Step]:
        """Run the command again in what is left; return its steps, none if it is refused."""
        lay(left, self.folder)
        with recorded(self.folder) as steps, suppress(ExistsError):
            self.case.run(self.folder)
        return steps

    def after_kill(self, done: int) -> Run:
        """Return the steps of a run that was killed, and of the run after it."""
        disk = Disk(self.start)
        disk.apply(*self.steps[:done])
        return Run(self.start, [*self.steps[:done], *self.again(disk.tree())], done)

    def after_cut(self, left: Tree) -> Run:
        """Return the steps of the run after a power cut."""
        return Run(left, self.again(left))

    def cut(self, left: Tree, litter: set[str]) -> None:
        """Look at what a power cut left, and run the command again, or do what it asks for."""
        lay(left, self.folder)
        self.case.look(self.folder, self.start, self.end)
        try:
            self.case.run(self.folder)
        except ExistsError:
            if self.case.fix is None:
                raise
            self.case.fix(self.folder)
        assert changed(tree_of(self.folder), self.end) <= litter

    def lost(self, left: Tree) -> set[str]:
        """Return the files that the command wrote and that are not there."""
        return changed(left, self.end) & self.end.keys()


def changed(one: Tree, other: Tree) -> set[str]:
    """Return the names that differ; without its lock, the file of a lease means nothing."""
    return {name for name, _ in one.items() ^ other.items() if not name.endswith(".lease")}


def moments_of(run: Run, count: int, rng: Generator) -> set[int]:
    """Return numbers of steps after which the power is cut: the last, and others after a kill.

    These are all, or else ``count`` after which a name is to be synced.
    """
    after = range(run.killed, len(run.steps) + 1)
    if not count:
        return set(after)
    names = [done for done in after if done and run.steps[done - 1].kind in ("rename", "remove")]
    return {len(run.steps), *rng.permutation(names)[:count].tolist()}


# Runs after a kill and after a cut, moments in a run (0: every one), and folders at each.
SOME = {"seed": 2, "kills": 1, "again": 0, "cuts": 2, "left": 3}
EVERY = {"seed": 0, "kills": 2, "again": 2, "cuts": 0, "left": 8}


@pytest.mark.parametrize(
    "numbers", [SOME, pytest.param(EVERY, marks=pytest.mark.soak)], ids=["some", "every"]
)
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.promise(
    "After a power cut at any moment, the same command ends in the bytes of an undisturbed run; of a command that had ended, nothing is lost"
)
def test_a_power_cut_at_any_moment(
    name: str,
    numbers: dict[str, int],
    folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Once the command has ended, a power cut takes nothing.

    That is so too where an earlier run was killed, or ended with a power cut. Only a chunk whose
    writer was killed between its rename and its fsync can be lost; the same command does it again.
    """
    rng, recording = default_rng(numbers["seed"]), Recording(CASES[name], folder)
    cheap = recording.case.cheap

    def cut_all(run: Run) -> list[Tree]:
        moments = moments_of(run, numbers["cuts"] * cheap, rng)
        found = [*cuts(run.start, run.steps, moments, rng, numbers["left"] * cheap)]
        for done, left in found:
            with in_case(killed=run.killed, done=done, steps=len(run.steps)):
                if done == len(run.steps) > run.killed:  # else there was nothing to do
                    assert recording.lost(left) <= run.unsure
                recording.cut(left, run.litter)
        return [left for _, left in found]

    found = cut_all(Run(recording.start, recording.steps))
    kills = rng.integers(1, len(recording.steps), numbers["kills"])
    again = rng.integers(len(found), size=numbers["again"])
    runs = [recording.after_kill(done) for done in kills]
    runs += [recording.after_cut(found[at]) for at in again]
    count = len(found) + sum(len(cut_all(run)) for run in runs)
    record_property("power cuts", count)
    assert count > 5
