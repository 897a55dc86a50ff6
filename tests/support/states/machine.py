"""A state machine of stores: verbs in any order, killed, raced and damaged, against the model."""

import os
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
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

import mercore
from mercore.jobs.resources import execution
from mercore.stores import vector_writer
from mercore.stores.errors import ExistsError, FormatError, MercoreError
from mercore.stores.results.hits import certificate_path, open_hits
from tests.independent import check_certificate
from tests.support.killing import Killed
from tests.support.states.asking import ASKS, Answer, Ask, Changing
from tests.support.states.disk import disturbed, kill
from tests.support.states.model import (
    BATCHES,
    ENCODERS,
    FEWEST,
    POOL,
    QUERIES,
    Derived,
    Encoder,
    Ids,
    Rows,
)
from tests.support.states.world import NAMES, Around, StoreWorld, Verb, arounds, ended, pick

VECTOR_PART, PART_ROWS = 16, 20
MOST_ROWS = 250

numbers = st.integers(0, 1 << 16)
sources = st.lists(st.sampled_from(list(BATCHES)), min_size=1, max_size=2)


class StoreStates(StoreWorld):
    """The verbs of stores, and what may happen to their files."""

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
    @rule(
        number=numbers, killed=sources, sources=sources, step=st.integers(-12, -1), around=arounds
    )
    def append_after_kill(
        self, number: int, killed: list[str], sources: list[str], step: int, around: Around
    ) -> None:
        """An append finishes or undoes one that was killed while it published its rows."""
        kill = replace(around, kind="kill", number=step)
        self.append(number, killed, repeat=False, again=False, around=kill)
        self.append(number, sources, repeat=False, again=False, around=around)

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
            after = replace(after, measured=there.measured)
            if kind == "orders":
                after = replace(after, source=there.source)
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
            if counts and self.is_whole(name) and not self.lives.get(name):
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


def run_states(
    kind: type[RuleBasedStateMachine], number: int, examples: int, *, steps: int = 40
) -> None:
    """Run a machine ``examples`` times, at most ``steps`` steps each; ``number`` is the seed.

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
