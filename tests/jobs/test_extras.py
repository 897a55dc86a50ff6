"""Packages of extras that are not installed: the error names the extra, from both front ends."""

import sys
from pathlib import Path

import numpy as np
import pytest

import mercore
from mercore.stores.errors import INSTALLED_BY, InputError, naming_extras
from tests.support.running import finish, histograms, invoke, start_words


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


def test_verbs_need_no_package_of_an_extra(tmp_path: Path) -> None:
    """From a file to proved neighbours and an index, where no extra is installed."""
    (tmp_path / "sitecustomize.py").write_text(f"""
import sys
class Missing:
    def find_spec(name, *_):
        if name.partition(".")[0] in {sorted(INSTALLED_BY)}:
            raise ModuleNotFoundError(f"No module named {{name}}", name=name)
sys.meta_path.insert(0, Missing)
""")
    rows = histograms(300, 16, seed=1)
    np.save(tmp_path / "base.npy", rows)
    np.save(tmp_path / "more.npy", rows[:9])
    program = """
import mercore
mercore.ingest("base.npy", "v.zarr")
mercore.append("more.npy", "v.zarr")
for kernel, encoder in (("chi2", "map-pq:components=8,subquantizers=4"), ("cosine", "aska:atoms=16")):
    mercore.encode("v.zarr", kernel, kernel=kernel, encoder=encoder)
    mercore.search(kernel, "more.npy", k=3, rerank=9)
mercore.index("chi2", "cells", cells=4)
mercore.search("cells", "more.npy", k=3)
_, hits = mercore.search("chi2", "more.npy", k=3, exact=True, out="hits.npz")
print(mercore.verify("v.zarr", "more.npy", hits, kernel="chi2")["refuted"])
"""
    words = [sys.executable, "-c", program]
    outcome = finish(start_words(words, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path))
    assert (outcome.code, outcome.out) == (0, "0\n"), outcome.err
