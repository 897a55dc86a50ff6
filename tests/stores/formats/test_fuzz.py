"""Mutated headers and bodies over all readers: rows of the announced shape, or a clear error."""

from pathlib import Path

import pytest

from mercore.stores.errors import MercoreError
from mercore.stores.results.hits import read_hits
from tests.soak.guided import kept
from tests.support.fuzzing import (
    HDF5,
    HIT_MAKERS,
    HITS,
    IN_PROCESS,
    MAKERS,
    ROWS,
    original,
    read_file,
    read_some,
    run_case,
)


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in HIT_MAKERS])
def test_what_is_not_mutated_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".zarr"):
        path.mkdir()
        (path / "zarr.json").write_bytes(original(name))
    else:
        path.write_bytes(original(name))
    rows = read_some(str(path))
    assert rows.shape == ROWS.shape
    assert name.startswith(("csr", "a.zarr")) or (rows == ROWS).all()


@pytest.mark.parametrize("name", HIT_MAKERS)
def test_hits_that_are_not_mutated_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(original(name))
    assert (read_hits(str(tmp_path / name)).ids == HITS.ids).all()


@pytest.mark.promise(
    "A damaged file of rows or hits gives rows of its announced shape, or one error"
)
def test_a_thousand_mutated_files(tmp_path: Path) -> None:
    outcomes = [run_case(case, tmp_path) for case in range(1_000)]
    assert outcomes.count("read") > 100
    assert outcomes.count("refused") > 100


@pytest.mark.parametrize("name", IN_PROCESS)
def test_files_that_reached_new_code_when_they_were_found(tmp_path: Path, name: str) -> None:
    files = kept()[name]
    outcomes = [read_file(name, data, tmp_path) for data in files]
    assert "refused" in outcomes


@pytest.mark.slow
def test_mutated_hdf5(tmp_path: Path) -> None:
    outcomes = [run_case(case, tmp_path, HDF5) for case in range(40)]
    assert {*outcomes} == {"read", "refused"}


def test_a_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise IndexError

    monkeypatch.setattr("tests.support.fuzzing.open_source", broken)
    with pytest.raises(IndexError):
        run_case(0, tmp_path, IN_PROCESS)
    assert not issubclass(IndexError, MercoreError)
