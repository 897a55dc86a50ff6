"""Stores of a state machine beside their models: how a verb that writes is run, killed, raced and
compared with an undisturbed one, and how answers are judged."""

import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from numpy.typing import NDArray

import mercore
from mercore.stores.errors import MercoreError
from tests.support.killing import Killed
from tests.support.states.asking import ASKS, Answer, Ask
from tests.support.states.disk import Bucket, Files, Folder, disturbed, kill
from tests.support.states.model import Derived, Model, Rows

Snapshot: TypeAlias = tuple[Files, Files]  # a store, and the sorted parts beside it
Verb: TypeAlias = Callable[[], Any]

NAMES = {"vectors": "vw", "codes": "cde", "indexes": "ij"}
LONGEST_WAIT = 20.0  # seconds, of a test that fails


@dataclass(frozen=True)
class Around:
    """What disturbs a verb that writes, before which change of a file, and what is asked then.

    A negative number counts from the last change: a verb publishes what it wrote at its end.
    """

    kind: str  # "", "kill", "resume" after a kill, "read" or "rival"
    number: int
    ask: Ask


arounds = st.builds(
    Around,
    kind=st.sampled_from(["", "", "kill", "resume", "read", "rival"]),
    number=st.integers(0, 45) | st.integers(-12, -1),
    ask=ASKS,
)


def pick(names: Iterable[str], number: int) -> str:
    """Return one of the names."""
    every = sorted(names)
    return every[number % len(every)]


class StoreWorld(RuleBasedStateMachine):
    """Stores in one place, and the models of them by name.

    ``lives`` are the files that a killed store could have if nothing had been killed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.place = self.new_place()
        self.models: dict[str, Model] = {}
        self.lives: dict[str, list[Snapshot]] = {}
        self.opened: tuple[Any, Answer, dict[str, Any]] | None = None

    def new_place(self) -> Folder | Bucket:
        """Return where the stores are to lie."""
        return Folder(Path(self.folder.name) / "stores")

    def teardown(self) -> None:
        """Remove all files."""
        self.folder.cleanup()

    def shelf(self, kind: str, *, free: bool = False) -> list[str]:
        """Return the names of one kind that stores have, or that are free."""
        return [name for name in NAMES[kind] if (name not in self.models) == free]

    def saved(self, name: str, rows: NDArray[Any]) -> str:
        """Save an array; return its path."""
        path = Path(self.folder.name) / name
        np.save(path, rows)
        return str(path)

    def rows(self, name: str) -> Rows:
        """Return the rows of a vector store."""
        rows = self.models[name]
        assert isinstance(rows, Rows)
        return rows

    def is_whole(self, name: str) -> bool:
        """Return whether no part of a store is left to do."""
        model = self.models[name]
        return isinstance(model, Rows) or model.whole

    def snapshot(self, name: str) -> Snapshot:
        """Return all files of a store."""
        return self.place.files(name), self.place.files(f"{name}.sorted")

    def restore(self, name: str, files: Snapshot) -> None:
        """Put the files of a store in place of those that are there."""
        for each, data in zip((name, f"{name}.sorted"), files, strict=True):
            self.place.put(each, data)

    def refuse(self, name: str, run: Verb) -> None:
        """Run a verb that is to be refused, and to change nothing."""
        files, error = self.snapshot(name), ended(run)
        assert isinstance(error, MercoreError), "it was not refused"
        assert "Fix: " in str(error)
        assert self.snapshot(name) == files

    def write(
        self, name: str, run: Verb, after: Model, around: Around, *, sweeps: bool = True
    ) -> None:
        """Run a verb that writes a store.

        Before the n-th change of a file it is killed, or a search asks for the old or the new rows,
        or the same command is started once more and has to wait.

        Parameters
        ----------
        sweeps : whether the verb clears up what a killed one has left
        """
        made_once = name not in self.models and isinstance(after, Rows)
        files = self.snapshot(name)
        lives = self.lives.pop(name, [])
        rivals: list[Rival] = []
        calls: dict[str, Verb] = {
            "": lambda: None,
            "kill": kill,
            "resume": kill,
            "read": lambda: self.read(name, after, around),
            "rival": lambda: rivals.append(Rival(run)),
        }
        number = around.number
        if number < 0:
            number += self.changes(name, run, files)
        try:
            with redirect_stderr(StringIO()), disturbed(number, calls[around.kind]):
                first = ended(run)
                every = [first, *(rival.end() for rival in rivals)]
        except Killed:
            self.place.free(name)
            self.settle(name, run, after, lives or [files])
            if name in self.models:
                self.judge(name, around.ask)
            if around.kind == "resume" and not (made_once and name in self.models):
                self.write(name, run, after, replace(around, kind=""), sweeps=sweeps)
            return
        refused = [each for each in every if isinstance(each, MercoreError)]
        assert len(refused) == (len(rivals) if made_once else 0), refused
        self.models[name] = after
        if lives or rivals:
            end = self.snapshot(name)
            ends = self.replayed(name, run, lives or [files])
            faults = [differing(end, each) for each in ends]
            assert not sweeps or [] in faults, faults
            self.restore(name, end)
            if not sweeps:
                self.lives[name] = ends
        self.judge(name, around.ask)

    def changes(self, name: str, run: Verb, files: Snapshot) -> int:
        """Return the number of changes of an undisturbed verb, which are undone."""
        with disturbed(-1, kill) as counted, redirect_stderr(StringIO()):
            ended(run)
        self.restore(name, files)
        return counted.changes

    def replayed(self, name: str, run: Verb, lives: list[Snapshot]) -> list[Snapshot]:
        """Return the files that an undisturbed verb leaves of each of some stores."""
        ends = []
        for files in lives:
            self.restore(name, files)
            with suppress(MercoreError), redirect_stderr(StringIO()):  # it may have to be made anew
                run()
                ends.append(self.snapshot(name))
        return ends

    def settle(self, name: str, run: Verb, after: Model, lives: list[Snapshot]) -> None:
        """Find the state that a killed verb has left: the old one, or the new one."""
        left, before = self.snapshot(name), self.models.get(name)
        ends = self.replayed(name, run, lives)
        self.restore(name, left)
        self.lives[name] = [*lives, *(each for each in ends if each not in lives)]
        if "zarr.json" not in left[0]:
            assert before is None, "the store is gone"
            return
        report = mercore.info(self.place(name))
        states = [each for each in (before, after) if each is not None and each.fits(report)]
        assert states, report
        self.models[name] = states[-1].killed(before, report)
        if isinstance(after, Rows):
            root = left[0]["zarr.json"]
            self.lives[name] = [
                each for each in self.lives[name] if each[0].get("zarr.json") == root
            ]

    def read(self, name: str, after: Model, around: Around) -> None:
        """Search a store while it is written, or codes of it: hits are those of before or after."""
        later, made = {**self.models, name: after}, name in self.models
        derived = [each for each, model in self.models.items() if model.source == name]
        asked = pick([name, *derived], around.number)
        if made or asked == name:
            kind = {"rerank": "plain"}.get(around.ask.kind, around.ask.kind)
            ask = replace(around.ask, chosen=0, kind=kind)
            states = [self.models, later] if made else [later]
            answers = [self.answer(asked, ask, each) for each in states]
            least = min(answers, key=lambda each: each.k)
            for each in answers:
                each.k = least.k
            found = ended(partial(least.run, self.place(asked)))
            self.assert_one(answers, found, may_fail=not (made and self.is_whole(asked)))

    def answer(self, name: str, ask: Ask, models: dict[str, Model]) -> Answer:
        """Return the answer of a store."""
        vectors = models.get(models[name].source)
        assert vectors is None or isinstance(vectors, Rows)
        return Answer(ask, models[name], vectors)

    def judge(self, name: str, ask: Ask, *, damaged: bool = False) -> None:
        """Search a store, and compare the hits with the model; a damaged one may be refused."""
        answer = self.answer(name, ask, self.models)
        with redirect_stderr(StringIO()):
            found = ended(partial(answer.run, self.place(name)))
        model = self.models[name]
        may_fail = damaged or (isinstance(model, Derived) and not model.whole)
        self.assert_one([answer], found, may_fail=may_fail)

    def assert_one(self, answers: list[Answer], found: Any, *, may_fail: bool) -> None:
        """Assert that a search ended as one of the answers says."""
        if isinstance(found, MercoreError):
            assert "Fix: " in str(found)
            assert may_fail or any(each.refused for each in answers), found
            return
        right = [each for each in answers if not each.refused]
        assert right, "it was not refused"
        for each in right[:-1]:
            with suppress(AssertionError, IndexError):  # of rows that were not there before
                each.assert_right(found)
                return
        right[-1].assert_right(found)


class Rival:
    """The same command in another process, which waits for the lease of the first one."""

    def __init__(self, run: Verb) -> None:
        self._ended: Any = None
        self._thread = Thread(target=self._run, args=(run,))
        self._thread.start()
        give_up = monotonic() + LONGEST_WAIT
        while self._thread.is_alive() and not self._waits():
            assert monotonic() < give_up
            sleep(0.001)

    def _waits(self) -> bool:
        assert isinstance(sys.stderr, StringIO)
        return "waiting for" in sys.stderr.getvalue()

    def _run(self, run: Verb) -> None:
        self._ended = ended(run)

    def end(self) -> Any:
        """Wait for the end; return the result of the command, or its error."""
        self._thread.join(LONGEST_WAIT)
        assert not self._thread.is_alive()
        return self._ended


def ended(run: Verb) -> Any:
    """Run a verb; return its result, or the error that it ended with."""
    try:
        return run()
    except MercoreError as error:
        return error


def differing(one: Snapshot, other: Snapshot) -> list[str]:
    """Return the keys of the files in which two stores differ.

    The bits of earlier deletions, and of killed ones, may lie there or not.
    """
    pairs = zip(one, other, strict=True)
    keys = {key for each in pairs for key, _ in set(each[0].items()) ^ set(each[1].items())}
    named = one[0].get("zarr.json", b"") + other[0].get("zarr.json", b"")
    return sorted(
        key
        for key in keys
        if not key.startswith("deleted/") or f'"digest": "{key[8:]}"'.encode() in named
    )
