"""Errors of the Python API name keywords; commands in them stay commands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.jobs import cli
from mercore.jobs.session.keywords import VERBS, in_keywords
from tests.support.cases import loop_over
from tests.support.making import histograms


@loop_over(
    ("message", "expected"),
    [
        ("landmarks is wrong. Fix: --landmarks 1024", "landmarks is wrong. Fix: landmarks=1024"),
        ("Fix: --samples 7.", "Fix: samples=7."),
        ("Fix: --kernel rbf --gamma median, which", 'Fix: kernel="rbf", gamma="median", which'),
        ("Fix: leave --rerank out.", "Fix: leave rerank out."),
        ("Fix: --rows 0:1000, or leave --rows out.", 'Fix: rows="0:1000", or leave rows out.'),
        (
            "found --encoder pq. Fix: leave --part-rows out.",
            'found encoder="pq". Fix: leave part_rows out.',
        ),
        ("Fix: a larger --memory, fewer --workers", "Fix: a larger memory, fewer workers"),
        ("Fix: name another with --out.", "Fix: name another with out."),
        ("replace it with --force.", "replace it with force=True."),
        ("Fix: leave --force out.", "Fix: leave force out."),
        ("--random-state must not be", "random_state must not be"),
        ("Fix: mercore encode A B --encoder pq", "Fix: mercore encode A B --encoder pq"),
        ("k is 7. Fix: leave -k out.", "k is 7. Fix: leave k out."),
        ("k is 7. Fix: -k 5", "k is 7. Fix: k=5"),
        ("'runs--old/a' holds --x-y", "'runs--old/a' holds --x-y"),
    ],
)
def test_options_become_keywords(message: str, expected: str) -> None:
    assert in_keywords(message) == expected


def test_every_command_is_known() -> None:
    assert set(VERBS) == set(cli.main.commands)


@loop_over(
    "name", ["runs--old/a-b", "a --exact b", "leave --out out", "mercore search a", "--k", "-"]
)
def test_a_path_stays_as_the_caller_wrote_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(mercore.MercoreError) as missing:
        mercore.info(name)
    assert str(missing.value) == f"{name} does not exist: expected a store. Fix: check the path."
    rows, hits = histograms(40, 8, seed=1), tmp_path / name / "hits.npy"
    hits.parent.mkdir(parents=True)
    np.save(hits, np.zeros((1, 2), np.int64))
    mercore.ingest(rows, tmp_path / "rows")
    with pytest.raises(mercore.MercoreError) as refusal:
        mercore.verify(tmp_path / "rows", rows[:1], hits, kernel="chi2", k=9)
    assert str(refusal.value) == (
        f"k is out of range: found 9, expected 1 to 2, the ids per query in {hits}. "
        "Fix: leave k out."
    )


def test_a_function_is_no_kernel(tmp_path: Path) -> None:
    rows = histograms(40, 8, seed=1)
    mercore.ingest(rows, tmp_path / "rows")
    kernel: Any = lambda x, y: x @ y  # noqa: E731
    nearest = mercore.KernelNeighbors(kernel=kernel)
    for call in (
        lambda: mercore.search(tmp_path / "rows", rows[:1], kernel=kernel),
        lambda: nearest.fit(rows),
    ):
        with pytest.raises(mercore.MercoreError) as refusal:
            call()
        assert str(refusal.value) == (
            "kernel is of type function: expected a name, or the path of a FILE.py that declares "
            'a kernel. Fix: kernel="chi2", or write the function into such a file.'
        )


def test_errors_of_python_name_keywords(tmp_path: Path) -> None:
    rows = histograms(40, 8, seed=1)
    mercore.ingest(rows, tmp_path / "rows")
    np.save(tmp_path / "hits.npy", np.zeros((1, 1), np.int64))
    for call in (
        lambda: mercore.encode(tmp_path / "rows", tmp_path / "codes", kernel="rbf"),
        lambda: mercore.search(tmp_path / "rows", rows[:1], kernel="chi2", rerank=5),
        lambda: mercore.search(
            tmp_path / "rows", rows[:1], kernel="chi2", k=1, out=tmp_path / "hits.npy"
        ),
        lambda: mercore.open(tmp_path / "rows"),
    ):
        with pytest.raises(mercore.MercoreError) as refusal:
            call()
        assert "--" not in str(refusal.value).partition("mercore ")[0]
