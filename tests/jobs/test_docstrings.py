"""Docstrings of the public names: examples run, in a folder with a few files, and name parameters."""

import doctest
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import mercore
from mercore.jobs.face.declaring import VERBS
from mercore.jobs.session.open_store import OpenStore
from mercore.testing.stores import histograms

WITHOUT = {"MercoreError", "MercoreWarning"}  # these need no example


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows, queries, and a store of the rows."""
    folder = tmp_path_factory.mktemp("examples")
    np.save(folder / "base.npy", histograms(200, 16, seed=1))
    np.save(folder / "query.npy", histograms(5, 16, seed=2))
    mercore.ingest(folder / "base.npy", folder / "base.zarr")
    return folder


@pytest.mark.parametrize("name", sorted({*mercore.__all__} - WITHOUT))
def test_examples_run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = getattr(mercore, name)
    (test,) = (each for each in doctest.DocTestFinder(recurse=False).find(found, name))
    assert test.examples, f"mercore.{name} has no example"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize("name", sorted({*mercore.__all__} - WITHOUT))
@pytest.mark.promise("Every parameter of every function is described")
@pytest.mark.promise("Every parameter of a public function is documented")
def test_every_parameter_is_documented(name: str) -> None:
    found = getattr(mercore, name)
    owner = OpenStore if name == "open" else found
    methods = [getattr(owner, each) for each in vars(owner) if not each.startswith("_")]
    for function in (found, *filter(inspect.isfunction, methods)):
        lines = re.findall(r"^([\w, ]+) :", inspect.getdoc(function) or "", re.MULTILINE)
        documented = {each.strip() for line in lines for each in line.split(",")}
        given = {*inspect.signature(function).parameters} - {"self"}
        assert given <= documented, (function.__qualname__, given - documented)


def test_every_parameter_of_a_verb_has_a_text() -> None:
    said = {name: verb.texts for name, verb in VERBS.items()}
    assert {
        name: [each for each, text in texts.items() if not text] for name, texts in said.items()
    } == {name: [] for name in said}
