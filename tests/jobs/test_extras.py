"""Packages of extras that are not installed: the error names the extra, from both front ends."""

import sys
from pathlib import Path

import numpy as np
import pytest

import mercore
from mercore.stores.errors import INSTALLED_BY, InputError, naming_extras
from tests.support.running import invoke


@pytest.mark.parametrize("package", INSTALLED_BY)
def test_the_extra_of_a_package_is_named(package: str) -> None:
    with pytest.raises(InputError) as refusal, naming_extras():
        raise ModuleNotFoundError(f"No module named '{package}.part'", name=f"{package}.part")
    assert str(refusal.value) == (
        f"this needs the package {package}: found none. Fix: pip install {INSTALLED_BY[package]}"
    )


def test_another_missing_module_is_no_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="numpi"), naming_extras():
        raise ModuleNotFoundError("No module named 'numpi'", name="numpi")


def test_a_verb_that_needs_one_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "base.npy", np.ones((9, 4), np.float32))
    mercore.ingest(tmp_path / "base.npy", tmp_path / "base")
    for name in [each for each in sys.modules if each.partition(".")[0] == "h5py"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h5py", None)
    message = "this needs the package h5py: found none. Fix: pip install 'mercore[hdf5]'"
    words = (tmp_path / "base", tmp_path / "base.npy", "-k", 1, "--kernel", "cosine")
    outcome = invoke("search", *words, "--out", tmp_path / "hits.h5")
    assert (outcome.code, outcome.err) == (2, f"mercore: {message}\n")
