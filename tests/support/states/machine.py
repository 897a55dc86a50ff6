"""A state machine of stores: verbs in any order, killed, raced and damaged, against the model."""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

import mercore
from mercore.jobs.resources import execution
from mercore.stores import vector_writer
from mercore.stores.errors import ExistsError, FormatError, MercoreError
from mercore.stores.results.hits import certificate_path, open_hits
from tests.independent import check_certificate
from tests.support.killing import Killed
from tests.support.states.asking import ASKS, Answer, Ask, Changing
from tests.support.states.disk import Bucket, Files, Folder, disturbed, kill
from tests.support.states.model import (
    BATCHES,
    ENCODERS,
    FEWEST,
    POOL,
    QUERIES,
    Derived,
    Encoder,
    Ids,
    Model,
    Rows,
)

Snapshot: TypeAlias = tuple[Files, Files]  # a store, and the sorted parts beside it
Verb: TypeAlias = Callable[[], Any]

NAMES = {"vectors": "vw", "codes": "cde", "indexes": "ij"}
VECTOR_PART, PART_ROWS = 16, 20
MOST_ROWS = 250
LONGEST_WAIT = 20.0  # seconds, of a test that fails

numbers = st.integers(0, 1 << 16)
sources = st.lists(st.sampled_from(list(BATCHES)), min_size=1, max_size=2)


@dataclass(frozen=True)
class Around:
    """What disturbs a verb that writes, before which change of a file, and what is asked then."""

    kind: str  # "", "kill", "resume" after a kill, "read" or "rival"
    number: int
    ask: Ask


arounds = st.builds(
    Around,
    kind=st.sampled_from(["", "", "kill", "resume", "read", "rival"]),
    number=st.integers(0, 45),
    ask=ASKS,
)


def pick(names: Iterable[str], number: int) -> str:
    """Return one of the names."""
    every = sorted(names)
    return every[number % len(every)]


class StoreStates(RuleBasedStateMachine):
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

    # Verbs that write

    @precondition(lambda self: self.shelf("vectors", free=True))
    @rule(number=numbers, sources=sources, around=arounds)
    def ingest(self, number: int, sources: list[str], around: Around) -> None:
        name = pick(self.shelf("vectors", free=True), number)
        rows = [POOL[BATCHES[each]] for each in sources]
        run = partial(mercore.ingest, rows, self.place(name), drop_zero_rows=True)
        self.write(name, run, Rows.ingested(sources), around)

    @precondition(lambda self: self.shelf("vectors"))
    @rule(
        number=numbers, sources=sources, repeat=st.booleans(), again=st.booleans(), around=arounds
    )
    def append(
        self, number: int, sources: list[str], repeat: bool, again: bool, around: Around
    ) -> None:
        name = pick(self.shelf("vectors"), number)
        again = again and not around.kind
        if repeat and self.rows(name).history[1:]:
            sources = list(self.rows(name).history[-1])
        after = self.rows(name).appended(sources, again=again)
        if len(after.numbers) < MOST_ROWS:
            rows = [POOL[BATCHES[each]] for each in sources]
            options = {"drop_zero_rows": True, "again": again}
            run = partial(mercore.append, rows, self.place(name), **options)
            self.write(name, run, after, around)

    @precondition(lambda self: self.shelf("vectors"))
    @rule(number=numbers, drawn=st.integers(0, 99), around=arounds)
    def delete(self, number: int, drawn: int, around: Around) -> None:
        name = pick(self.shelf("vectors"), number)
        rows = self.rows(name)
        rng = np.random.default_rng(drawn)
        ids: Ids = rng.integers(0, len(rows.numbers), rng.integers(1, 12))
        run, after = partial(mercore.delete, self.place(name), ids), rows.without(ids)
        if after.live.any():
            self.write(name, run, after, around, sweeps=False)
        else:
            self.refuse(name, run)

    @precondition(lambda self: self.shelf("vectors") and self.shelf("vectors", free=True))
    @rule(number=numbers, around=arounds)
    def compact(self, number: int, around: Around) -> None:
        name, new = pick(self.shelf("vectors"), number), self.shelf("vectors", free=True)[0]
        run = partial(mercore.compact, self.place(name), self.place(new))
        if self.rows(name).deleted.any():
            self.write(new, run, self.rows(name).compacted(), around)
        else:
            self.refuse(new, run)

    @precondition(lambda self: self.shelf("vectors"))
    @rule(
        number=numbers,
        other=numbers,
        encoder=st.sampled_from(ENCODERS),
        begun=st.booleans(),
        around=arounds,
    )
    def encode(
        self, number: int, other: int, encoder: Encoder, begun: bool, around: Around
    ) -> None:
        name, codes = pick(self.shelf("vectors"), number), pick(NAMES["codes"], other)
        there = self.models.get(codes)
        if isinstance(there, Derived) and begun:
            encoder = there.encoder
        after = Derived(self.rows(name), encoder, name)
        if after.rows.count >= FEWEST:
            run = self.encoding(codes, after)
            refused = isinstance(there, Derived) and not after.follows(there)
            self.refuse(codes, run) if refused else self.write(codes, run, after, around)

    def encoding(self, name: str, codes: Derived) -> Verb:
        """Return the encode that makes codes."""
        options: Any = {"kernel": codes.encoder.kernel, "encoder": codes.encoder.name}
        stores = self.place(codes.source), self.place(name)
        return partial(mercore.encode, *stores, **options, part_rows=PART_ROWS, workers=1)

    @precondition(lambda self: self.shelf("codes"))
    @rule(number=numbers, other=numbers, around=arounds)
    def index(self, number: int, other: int, around: Around) -> None:
        name, new = pick(self.shelf("codes"), number), pick(NAMES["indexes"], other)
        codes, there = self.models[name], self.models.get(new)
        assert isinstance(codes, Derived)
        kind, found = codes.encoder.indexed, self.models.get(codes.source)
        size: Any = {"orders": 2} if kind == "orders" else {"cells": 4, "part_rows": 16}
        run = partial(mercore.index, self.place(name), self.place(new), workers=1, **size)
        after = replace(codes, index=kind, measured=found is not None)
        refused = kind is None
        if kind == "cells":  # their vectors measure recall
            refused = isinstance(found, Rows) and not found.continues(codes.rows)
        if isinstance(there, Derived):
            after = replace(after, source=there.source, measured=there.measured)
            grows = there.rows.history != codes.rows.history
            refused |= not codes.follows(there) or (grows and kind == "orders")
            if grows and not there.whole:
                return  # refused, unless it is whole
        if refused:
            self.refuse(new, run)
        elif codes.whole:
            self.write(new, run, after, around)

    # Verbs that read

    @precondition(lambda self: self.models)
    @rule(number=numbers, ask=ASKS)
    def search(self, number: int, ask: Ask) -> None:
        self.judge(pick(self.models, number), ask)

    @precondition(lambda self: self.models)
    @rule(number=numbers)
    def check(self, number: int) -> None:
        name = pick(self.models, number)
        model, report = self.models[name], mercore.info(self.place(name))
        rows = model if isinstance(model, Rows) else model.rows
        assert report["rows"] == rows.count
        if isinstance(model, Rows):
            assert report.get("deleted_rows", 0) == model.deleted.sum()
        if isinstance(model, Rows) or model.whole:
            assert mercore.check(self.place(name))["faults"] == []

    @precondition(lambda self: self.models)
    @rule(number=numbers, ask=ASKS)
    def open_store(self, number: int, ask: Ask) -> None:
        name = pick(self.models, number)
        answer = self.answer(name, ask, self.models)
        if answer.kind != "orders" and not answer.refused and self.is_whole(name):
            kernel: Any = {"kernel": ask.kernel} if isinstance(answer.model, Rows) else {}
            with redirect_stderr(StringIO()):
                store = mercore.open(self.place(name), **kernel)
                answer.assert_right(answer.run_open(store))
            self.opened = store, answer, {**self.models, "": self.place("")}

    @precondition(lambda self: self.opened)
    @rule(ask=ASKS, close=st.booleans())
    def ask_open_store(self, ask: Ask, close: bool) -> None:
        """Whatever became of its files, it keeps the rows that it began with, or is refused."""
        assert self.opened
        store, first, models = self.opened
        answer = Answer(replace(ask, kernel=first.kernel), first.model, first.vectors)
        if close:
            store.close()
        found = ended(partial(answer.run_open, store))
        now = {**self.models, "": self.place("")}
        same = all(
            now.get(name) is model or now.get(name) == model for name, model in models.items()
        )
        self.assert_one([answer], found, may_fail=not same)

    @precondition(lambda self: self.models)
    @rule(number=numbers, ask=ASKS, stop=st.integers(0, 60), steady=st.booleans())
    def write_hits(self, number: int, ask: Ask, stop: int, steady: bool) -> None:
        """An exact search that is killed and run again writes hits that a certificate proves."""
        name = pick(self.models, number)
        answer = self.answer(name, replace(ask, kind="exact"), self.models)
        if answer.kind != "exact" or answer.refused or not self.is_whole(name):
            return
        out = Path(self.folder.name) / "hits.npz"
        certificate = certificate_path(str(out))
        run = partial(answer.run, self.place(name), out=out)
        if not steady:
            assert isinstance(ended(partial(run, Changing())), FormatError)
            assert not out.exists()
        with suppress(Killed), disturbed(stop, kill):
            run()
        if isinstance(ended(run), ExistsError):
            assert Path(certificate).exists()
        hits = open_hits(str(out))
        answer.assert_right(hits)
        source = answer.model.source or name
        files = [self.place(source), self.saved("queries.npy", QUERIES), str(out)]
        taking = self.saved("taking.npy", np.flatnonzero(answer.taking))
        selected = ask.chosen or (answer.taking != answer.rows.kept).any()
        with redirect_stdout(StringIO()) as told:
            words = [*files, certificate, *([taking] if selected else [])]
            if self.place.here and not self.lives.get(source):  # nor one that is about to grow
                assert check_certificate.main(words) == 0, told.getvalue()
        with suppress(FileNotFoundError):
            Path(f"{out}.parts").rmdir()  # an empty one is left by a kill right before this
        for path in Path(self.folder.name).glob("*hits.npz*"):
            path.unlink()

    @precondition(lambda self: self.shelf("vectors"))
    @rule(number=numbers, ask=ASKS, wrong=st.integers(0, 12))
    def verify(self, number: int, ask: Ask, wrong: int) -> None:
        name = pick(self.shelf("vectors"), number)
        answer = self.answer(name, ask, self.models)
        if not answer.taking.any():
            return
        truth = answer.truth()
        claimed = truth[:, : answer.k].copy()
        if wrong < truth.shape[1] and wrong >= answer.k:  # in place of the last hit
            claimed[:, -1] = truth[:, wrong]
        bounds = [
            self.place(each)
            for each, model in self.models.items()
            if isinstance(model, Derived) and model.proves(answer.rows, answer.kernel)
        ]
        options = {**ask.selection(answer.rows), "kernel": answer.kernel, "threads": ask.threads}
        report = mercore.verify(
            self.place(name), QUERIES, claimed, **options, bounds=next(iter(bounds), None)
        )
        found = [each["verdict"] == "refuted" for each in report["verdicts"]]
        assert found == answer.refuted(claimed)

    # What happens to files

    @precondition(lambda self: self.models)
    @rule(
        number=numbers,
        file=numbers,
        byte=numbers,
        how=st.sampled_from(["flip", "cut", "remove"]),
        asked=numbers,
        ask=ASKS,
    )
    def damage(self, number: int, file: int, byte: int, how: str, asked: int, ask: Ask) -> None:
        """One wrong file: each search is right or refused, and a check names it; it is mended."""
        name = pick(self.models, number)
        files = self.snapshot(name)
        key = pick(files[0], file)
        data = bytearray(files[0][key])
        if how == "flip" and data:
            data[byte % len(data)] ^= 1 << (byte % 8)
        wrong = {**files[0], key: bytes(data[: byte % max(1, len(data))] if how == "cut" else data)}
        if how == "remove":
            del wrong[key]
        if wrong != files[0]:
            self.restore(name, (wrong, files[1]))
            self.judge(pick(self.models, asked), ask, damaged=True)
            report = ended(partial(mercore.check, self.place(name)))
            # metadata of an array may say the same in other words, and old deletions do not count
            counts = not key.endswith("/zarr.json") and not key.startswith("deleted/")
            if counts and self.is_whole(name) and name not in self.lives:
                assert isinstance(report, MercoreError) or report["faults"], (name, key, how)
            self.restore(name, files)

    @precondition(lambda self: self.models)
    @rule(number=numbers)
    def remove(self, number: int) -> None:
        name = pick(self.models, number)
        self.restore(name, ({}, {}))
        del self.models[name]
        self.lives.pop(name, None)

    @precondition(lambda self: self.models)
    @rule(number=numbers, other=numbers)
    def rename(self, number: int, other: int) -> None:
        name = pick(self.models, number)
        kind = next(kind for kind, names in NAMES.items() if name in names)
        if free := self.shelf(kind, free=True):
            new = pick(free, other)
            files = self.snapshot(name)
            self.restore(name, ({}, {}))
            self.restore(new, files)
            self.models[new] = self.models.pop(name)
            self.lives[new] = self.lives.pop(name, [])

    @rule()
    def move_all(self) -> None:
        self.place.move()

    # How a verb is run and judged

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
        try:
            with redirect_stderr(StringIO()), disturbed(around.number, calls[around.kind]):
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
            self.assert_one(answers, found, may_fail=not made)

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
            with suppress(AssertionError):
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


def run_states(
    kind: type[RuleBasedStateMachine], number: int, examples: int, *, steps: int = 40
) -> None:
    """Run so many times up to so many steps, which the seed ``number`` decides.

    Stores have several small parts, and one thread writes: a kill comes at the same change again.
    """
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with (
        patch.object(vector_writer, "CHUNK_BYTES", VECTOR_PART * POOL[0].nbytes),
        patch.object(vector_writer, "WRITERS", 1),
        patch.object(execution, "available_cores", lambda: 1),
        patch.object(os, "fsync"),
    ):
        run_state_machine_as_test(seed(number)(kind), settings=chosen)
