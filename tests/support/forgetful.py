"""A folder that forgets: what a power cut can leave of it, at any moment.

``recorded`` lists what a block writes to a folder, and ``Disk`` is a model of the folder. As POSIX
has it, an fsync of a file keeps its bytes but not its name, and an fsync of a folder keeps the
names in it. Until then, each change of a name is kept or lost, whatever becomes of the others, and
of the bytes of a file all, none, or some sectors are there.
"""

import builtins
import io
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from math import prod
from operator import itemgetter
from pathlib import Path
from threading import RLock, local
from typing import Any, NamedTuple, Union
from unittest.mock import patch

from numpy.random import Generator, default_rng

Tree = dict[str, bytes | None]  # by path below the folder: the bytes of a file, None of a folder
SECTOR = 512
LOST, KEPT, ZEROS, TORN = range(4)  # fates; the last two are of bytes alone
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
ROOT = "."


class Step(NamedTuple):
    """A change of a folder: ``make`` a file, ``mkdir``, ``remove``, ``rename``, ``write``,
    ``sync``."""

    kind: str
    path: str
    target: str = ""
    data: bytes = b""


@dataclass(eq=False)
class File:
    """A file: the bytes that programs see, and those that an fsync has kept."""

    live: bytes = b""
    sure: bytes = b""

    def sync(self) -> None:
        self.sure = self.live

    def left(self, fate: int, rng: Generator) -> bytes:
        """The bytes that a power cut leaves."""
        if fate in (LOST, KEPT):
            return self.live if fate == KEPT else self.sure
        old = self.sure.ljust(len(self.live), b"\0") if fate == TORN else bytes(len(self.live))
        starts = range(0, len(self.live), SECTOR)
        torn = ((old, self.live)[rng.integers(2)] if fate == TORN else old for _ in starts)
        return b"".join(
            each[start : start + SECTOR] for each, start in zip(torn, starts, strict=True)
        )


@dataclass(eq=False)
class Change:
    """A change of the names in a folder, in one piece: a name that goes, a name that comes."""

    gone: str | None
    come: str | None
    node: Union[File, "Folder"]

    def apply(self, names: dict[str, Any]) -> None:
        if self.gone is not None:
            names.pop(self.gone, None)
        if self.come is not None:
            names[self.come] = self.node


@dataclass(eq=False)
class Folder:
    """A folder: the names that programs see, those that an fsync has kept, and changes since."""

    live: dict[str, Union[File, "Folder"]] = field(default_factory=dict)
    sure: dict[str, Union[File, "Folder"]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, gone: str | None, come: str | None, node: Union[File, "Folder"]) -> None:
        self.changes.append(Change(gone, come, node))
        self.changes[-1].apply(self.live)

    def sync(self) -> None:
        self.sure, self.changes = dict(self.live), []


class Disk:
    """A model of a folder, which begins with a tree that is surely on the disk."""

    def __init__(self, tree: Tree) -> None:
        self.root = Folder()
        for path in sorted(tree):
            data = tree[path]
            folder, name = self._folder_of(path)
            node = Folder() if data is None else File(data, data)
            folder.live[name] = folder.sure[name] = node

    def apply(self, *steps: Step) -> None:
        """Do steps that were recorded."""
        for kind, path, target, data in steps:
            if kind == "sync":
                self._node(path).sync()
                continue
            folder, name = self._folder_of(path)
            if kind in ("make", "mkdir"):
                folder.change(None, name, File() if kind == "make" else Folder())
                continue
            node = folder.live[name]
            if kind == "write":
                assert isinstance(node, File)
                node.live = data
            elif kind == "remove":
                folder.change(name, None, node)
            else:
                other, new = self._folder_of(target)
                assert other is folder, f"{path} moves to another folder, which is not modelled"
                folder.change(name, new, node)

    def tree(self) -> Tree:
        """The folder as programs see it."""
        return self._tree(dict.fromkeys(self._unsure(), KEPT), default_rng(0))

    def left(self, rng: Generator, most: int) -> Iterator[Tree]:
        """Yield folders that a power cut can leave now: all, or ``most`` that differ widely."""
        unsure = self._unsure()
        counts = [4 if isinstance(each, File) else 2 for each in unsure]
        every: Iterator[Sequence[int]] = product(*map(range, counts))
        if prod(counts) > most:
            every = iter(_some_fates(counts, rng, most))
        for fates in every:
            yield self._tree(dict(zip(unsure, fates, strict=True)), rng)

    def _tree(self, fates: dict[File | Change, int], rng: Generator) -> Tree:
        """The folder that is left if changes and bytes have these fates."""
        tree: Tree = {}

        def visit(folder: Folder, where: str) -> None:
            names = dict(folder.sure)
            for change in folder.changes:
                if fates[change] == KEPT:
                    change.apply(names)
            for name, node in names.items():
                if isinstance(node, File):
                    tree[where + name] = node.left(fates.get(node, KEPT), rng)
                else:
                    tree[where + name] = None
                    visit(node, f"{where}{name}/")

        visit(self.root, "")
        return tree

    def _unsure(self) -> list[File | Change]:
        """The changes and the files that no fsync has kept."""
        found: dict[File | Change, None] = {}
        seen: set[File | Folder] = set()

        def visit(node: File | Folder) -> None:
            if node in seen:
                return
            seen.add(node)
            if isinstance(node, File):
                if node.live != node.sure:
                    found[node] = None
                return
            found.update(dict.fromkeys(node.changes))
            changed = (change.node for change in node.changes)
            for each in (*node.sure.values(), *changed):
                visit(each)

        visit(self.root)
        return list(found)

    def _folder_of(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        folder = self._node(parent or ROOT)
        assert isinstance(folder, Folder)
        return folder, name

    def _node(self, path: str) -> File | Folder:
        node: File | Folder = self.root
        for name in path.split("/") if path != ROOT else []:
            assert isinstance(node, Folder)
            node = node.live[name]
        return node


def _some_fates(counts: Sequence[int], rng: Generator, most: int) -> list[tuple[int, ...]]:
    """Fates, ``most`` of them: all kept or lost, in order, all but one, and any."""
    every = len(counts)
    fates = [tuple(KEPT if at < end else LOST for at in range(every)) for end in range(every + 1)]
    for one, others in ((KEPT, LOST), (LOST, KEPT)):
        fates += [
            tuple(one if at == only else others for at in range(every)) for only in range(every)
        ]
    fates += [tuple(int(rng.integers(count)) for count in counts) for _ in range(most)]
    rng.shuffle(fates)
    ends = [(LOST,) * every, (KEPT,) * every]
    return list(dict.fromkeys([*ends, *fates]))[:most]


def cuts(
    start: Tree, steps: Sequence[Step], moments: Collection[int], rng: Generator, most: int
) -> Iterator[tuple[int, Tree]]:
    """Yield what power cuts leave after some numbers of steps: each folder once, and at the end."""
    disk, seen = Disk(start), set[int]()
    for done in range(len(steps) + 1):
        disk.apply(*steps[done - 1 : done] if done else [])
        for tree in disk.left(rng, most) if done in moments else ():
            key = hash(frozenset(tree.items()))
            if key not in seen or done == len(steps):
                seen.add(key)
                yield done, tree


def tree_of(folder: Path) -> Tree:
    """Return the files and folders below a folder."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def lay(tree: Tree, folder: Path) -> None:
    """Make a folder hold a tree and nothing else; what is right there stays."""
    there = tree_of(folder)
    for path, data in sorted(there.items() - tree.items(), reverse=True, key=itemgetter(0)):
        (folder / path).rmdir() if data is None else (folder / path).unlink()
    for path, data in sorted(tree.items() - there.items(), key=itemgetter(0)):
        (folder / path).mkdir() if data is None else (folder / path).write_bytes(data)


class Recorder:
    """Lists the steps of this process in a folder; its own methods stand in for those of ``os``.

    ``unseen`` are calls that it does not stand in for.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.steps, self.unseen = root, list[Step](), list[str]()
        self._written: dict[str, bytes] = {}  # files that may be written: the bytes last seen
        self._lock, self._here = RLock(), local()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Stand in for the functions that change a folder, for the block."""
        own = {
            "mkdir": self._noted(os.mkdir, lambda path: [Step("mkdir", path)]),
            "rmdir": self._noted(os.rmdir, self._remove),
            "unlink": self._noted(os.unlink, self._remove),
            "remove": self._noted(os.remove, self._remove),
            "rename": self._noted(os.rename, self._rename, paths=2),
            "replace": self._noted(os.replace, self._rename, paths=2),
            "open": self._opened(os.open),
            "fsync": self._sync,
            "fdatasync": self._sync,
        }
        files = self._opened(builtins.open)
        with ExitStack() as stack:
            for name, function in own.items():
                stack.enter_context(patch.object(os, name, function))
            for module in (io, builtins):
                stack.enter_context(patch.object(module, "open", files))
            yield
        self._look()

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Note a change of the folder that no method of this class makes."""
        changes = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink")
        opens = event == "open" and args[2] & WRITING
        if (opens or event in changes) and not getattr(self._here, "inside", False):
            self.unseen += [f"{event} {path}" for path in args[:2] if self._where(path)]

    def _where(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the folder, if it lies there; of a descriptor, that of its file."""
        if not isinstance(path, int | str | bytes | os.PathLike):
            return None
        if isinstance(path, int):
            named = Path(f"/proc/self/fd/{path}").readlink()
        else:
            base = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
            named = base / os.fsdecode(path)
        return named.relative_to(self.root).as_posix() if named.is_relative_to(self.root) else None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other thread change the folder, and look at what was written to files."""
        with self._lock:
            outer, self._here.inside = getattr(self._here, "inside", False), True
            try:
                self._look()
                yield
            finally:
                self._here.inside = outer

    def _look(self) -> None:
        for path, known in self._written.items():
            data = (self.root / path).read_bytes()
            if data != known:
                self.steps.append(Step("write", path, data=data))
                self._written[path] = data

    def _noted(
        self, function: Callable[..., Any], steps: Callable[..., list[Step]], paths: int = 1
    ) -> Callable[..., Any]:
        """Wrap a function of ``os`` that changes names: those in its first arguments."""

        def run(*args: Any, **more: Any) -> Any:
            found = [self._where(path, more.get("dir_fd")) for path in args[:paths]]
            if None in found:
                return function(*args, **more)
            with self._alone():
                result = function(*args, **more)
                self.steps += steps(*found)
            return result

        return run

    def _remove(self, path: str) -> list[Step]:
        self._written.pop(path, None)
        return [Step("remove", path)]

    def _rename(self, path: str, target: str) -> list[Step]:
        for each in list(self._written):
            if each == target:
                del self._written[each]
            elif each == path or each.startswith(f"{path}/"):
                self._written[target + each.removeprefix(path)] = self._written.pop(each)
        return [Step("rename", path, target)]

    def _opened(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``os.open`` or ``open``."""

        def run(path: Any, how: int | str = "r", *args: Any, **more: Any) -> Any:
            how = more.pop("mode", how) if isinstance(how, str) else how
            writes = how & WRITING if isinstance(how, int) else set(how) & set("wax+")
            where = self._where(path, more.get("dir_fd")) if writes else None
            if where is None:
                return function(path, how, *args, **more)
            with self._alone():
                file = self.root / where
                there = file.exists()
                known = file.read_bytes() if file.is_file() else b""
                result = function(path, how, *args, **more)
                if not there:
                    self.steps.append(Step("make", where))
                if file.is_file():
                    self._written.setdefault(where, known)
            return result

        return run

    def _sync(self, file: Any) -> None:
        """Note an fsync; none is done."""
        where = self._where(file if isinstance(file, int) else file.fileno())
        if where is None or not (self.root / where).exists():
            return
        with self._alone():
            self.steps.append(Step("sync", where))
            self._written.pop(where, None)


_recorders: list[Recorder] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    for recorder in _recorders:
        with suppress(OSError):
            recorder.audit(event, args)


@contextmanager
def recorded(root: Path) -> Iterator[list[Step]]:
    """Record the steps of a block in a folder; no byte and no name may change unseen."""
    if not hasattr(_audit, "installed"):  # an audit hook stays for good
        sys.addaudithook(_audit)
        _audit.installed = True  # type: ignore[attr-defined]
    disk, recorder = Disk(tree_of(root)), Recorder(root)
    _recorders.append(recorder)
    try:
        with recorder.patched():
            yield recorder.steps
    finally:
        _recorders.remove(recorder)
    disk.apply(*recorder.steps)
    assert recorder.unseen == []
    assert disk.tree() == tree_of(root), "something was written that the recorder did not see"
