"""The examples in docstrings of the public names run, in a folder with a few files."""

import doctest
from pathlib import Path

import numpy as np
import pytest

import mercore
from tests.support.making import histograms

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
