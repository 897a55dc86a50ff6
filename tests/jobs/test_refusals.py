"""One table of refusals: the command line and Python refuse the same, each in its own words."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.stores.errors import MercoreError
from mercore.testing.stores import histograms
from tests.support.running import invoke

HERE = Path(__file__).parents[2]
CHI2 = {"kernel": "chi2"}

# A verb, its arguments, its options, and what both say, where options are {named}.
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any], str]] = {
    "a k above the rows": (
        "search",
        ("base", "query.npy"),
        {**CHI2, "k": 61},
        "k is out of range: found 61, expected 1 to 60, the rows of the store. Fix: {k=60}",
    ),
    "a rerank of vectors": (
        "search",
        ("base", "query.npy"),
        {**CHI2, "k": 3, "rerank": 9},
        "base holds vectors, which have true scores already. Fix: leave {rerank} out.",
    ),
    "a search of vectors without a kernel": (
        "search",
        ("base", "query.npy"),
        {},
        'base holds vectors, and a search of vectors needs a kernel: found none. Fix: {kernel="chi2"}',
    ),
    "no file for a format": (
        "search",
        ("base", "query.npy"),
        {**CHI2, "hits_format": "ibin"},
        "{hits_format} has no use here: without {out} no file is written. Fix: leave "
        "{hits_format} out.",
    ),
    "a path that looks like an option": (
        "info",
        ("runs--old/data-k--set.zarr",),
        {},
        "runs--old/data-k--set.zarr does not exist: expected a store. Fix: check the path.",
    ),
    "a kernel without gamma": (
        "encode",
        ("base", "new"),
        {"kernel": "chi2", "gamma": 2.0},
        "kernel chi2 takes no gamma: found 2.0. Fix: leave {gamma} out, or use exp_chi2 or rbf.",
    ),
    "too many workers": (
        "encode",
        ("base", "new"),
        {**CHI2, "workers": 5000},
        "workers is out of range: found 5000, expected 1 to 4096. Fix: leave {workers} out.",
    ),
    "workers and processes": (
        "encode",
        ("base", "new"),
        {**CHI2, "workers": 2, "processes": 2},
        "{workers} has no use here: {processes} is the number of workers, and each has one thread. "
        "Fix: leave {workers} out.",
    ),
    "codes that bound nothing": (
        "search",
        ("codes", "query.npy"),
        {"k": 3, "exact": True},
        "codes holds codes of aska, which bound no score: expected codes of kpca-pq, map-pq, pca-pq or pq "
        'with proofs, a store of bounds, or vectors. Fix: {encode(VECTORS, CODES, encoder="kpca-pq")}',
    ),
    "ranks of no number": (
        "evaluate",
        ("hits.npy", "hits.npy"),
        {"ranks": "0"},
        "ranks are numbers above 0 with commas: found '0'. Fix: {ranks=\"1,10,100\"}",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of 60 rows, codes of them, queries and hits."""
    folder = tmp_path_factory.mktemp("refusals")
    np.save(folder / "base.npy", histograms(60, 12))
    np.save(folder / "query.npy", histograms(4, 12, seed=1))
    np.save(folder / "hits.npy", np.zeros((4, 3), np.int64))
    mercore.ingest(folder / "base.npy", folder / "base")
    mercore.encode(folder / "base", folder / "codes", kernel="chi2", encoder="aska:atoms=16")
    return folder


def in_words(message: str, *, python: bool) -> str:
    """Return a message with its options as one of the two front ends writes them."""
    for piece in message.replace("}", "{").split("{")[1::2]:
        name, equals, value = piece.partition("=")
        if "(" in piece:
            verb, _, arguments = piece.rstrip(")").partition("(")
            listed = [in_words(f"{{{each}}}", python=python) for each in arguments.split(", ")]
            shown = f"mercore.{piece}" if python else f"mercore {verb} {' '.join(listed)}"
        elif name.isupper() or python:
            shown = piece
        else:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            shown = flag + (f" {json.loads(value)}" if equals else "")
        message = message.replace(f"{{{piece}}}", shown)
    return message


@pytest.mark.parametrize("name", CASES)
@pytest.mark.promise(
    "The command line and Python refuse the same, each in its own words, and show a path as it was given"
)
def test_both_front_ends_refuse_the_same_each_in_its_own_words(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb, arguments, options, message = CASES[name]
    monkeypatch.chdir(folder)
    words = []
    for option, value in options.items():
        flag = f"-{option}" if len(option) == 1 else f"--{option.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    outcome = invoke(verb, *arguments, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"mercore: {in_words(message, python=False)}\n"
    with pytest.raises(MercoreError) as refusal:
        getattr(mercore, verb)(*arguments, **options)
    assert str(refusal.value) == in_words(message, python=True)
    assert not (folder / "new").exists()


def test_no_message_below_the_front_ends_names_a_flag() -> None:
    found = []
    for package in ("pipeline", "stores"):
        for path in sorted((HERE / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            documents = {
                id(node.body[0].value)
                for node in ast.walk(tree)
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            found += [
                f"{path.relative_to(HERE)}:{node.lineno}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in documents
                and re.search(r"(^|[\s('\"])--[a-z]|\s-[a-z]\b", node.value)
            ]
    assert found == []
