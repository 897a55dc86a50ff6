"""Stores whose metadata says something else, with all digests right: refused, or answered rightly."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mercore.stores.part_store.column import CHECKSUM_BYTES, Column, encode_chunk
from mercore.stores.spec import digest
from tests.support.running import histograms, invoke, succeed

Place = tuple[str | int, ...]
Case = tuple[str, str, Place, Any]
LOST = object()  # the value that stands for a field that is left out
WRONG: tuple[Any, ...] = (
    *(LOST, None, True, -1, 0, 3, 10**30, 2**40, 2**63, 0.5, 1e300, "", "x", "../x", "float64"),
    *([], [1], {}, {"a": 1}),
)
CODES = {
    "aska": ("--encoder", "aska", "--atoms", 8, "--sparsity", 2),
    "kpca-pq": ("--encoder", "kpca-pq", "--landmarks", 16, "--components", 4),
    "kpca-bound": ("--encoder", "kpca-bound", "--landmarks", 16),
}


def make_stores(folder: Path, *names: str) -> None:
    """Make small stores of vectors, which were appended to, and of their codes by these encoders."""
    np.save(folder / "rows.npy", histograms(60, 8, seed=1))
    np.save(folder / "queries.npy", histograms(3, 8, seed=2))
    succeed(f"ingest {folder}/rows.npy {folder}/vectors")
    np.save(folder / "more.npy", histograms(20, 8, seed=3))
    succeed(f"append {folder}/more.npy {folder}/vectors")
    for name in names:
        succeed(f"encode {folder}/vectors {folder}/{name} --kernel chi2", *CODES[name])


def cases(folder: Path) -> list[Case]:
    """Return every wrong value of every field: the store, the file, the place, and the value."""
    return [
        (store, file, place, value)
        for store in ("vectors", *CODES)
        if (folder / store).exists()
        for file, mapping in zip(("header", "receipt"), _read(folder / store), strict=True)
        for place in _places(mapping)
        for value in WRONG
        if place or value is not LOST
    ]


def run_case(folder: Path, case: Case) -> None:
    """Describe, check and search a store with a wrong value: each command ends in an exit code."""
    store, file, place, value = case
    header, receipt = _read(folder / store)
    if file == "header":
        header = _changed(header, place, value)
        if isinstance(header, dict):
            told = {key: header.get(key) for key in ("kind", "spec", "layout")}
            receipt["job"] = _digest(told)
    else:
        receipt = _changed(receipt, place, value)
    bad = folder / "bad"
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(folder / store, bad)
    _write(bad, header, receipt)
    kernel = ("--kernel", "chi2") if store == "vectors" else ()
    search = [f"search {bad} {folder}/queries.npy -k 3", *kernel]
    exact = [[*search, "--exact"]] if store == "kpca-bound" else []
    for words in (["info", bad], ["check", bad], search, *exact):
        outcome = invoke(*words)
        assert outcome.code in (0, 1, 2), outcome
        assert outcome.code == 0 or "Fix: " in outcome.err + outcome.out, outcome


def _read(store: Path) -> tuple[Any, Any]:
    """Return the header of a store without its digest, and the receipt of its first part."""
    header = json.loads((store / "zarr.json").read_text())["attributes"]["mercore"]
    del header["digest"]
    return header, json.loads((store / "receipts/c/0/0").read_bytes()[:-CHECKSUM_BYTES])


def _write(store: Path, header: Any, receipt: Any) -> None:
    """Write a header and the receipt of the first part, with right digests."""
    stated = {**header, "digest": _digest(header)} if isinstance(header, dict) else header
    group = json.loads((store / "zarr.json").read_text()) | {"attributes": {"mercore": stated}}
    (store / "zarr.json").write_text(json.dumps(group))
    path = store / "receipts/c/0/0"
    width = path.stat().st_size - CHECKSUM_BYTES
    text = np.frombuffer(json.dumps(receipt).encode().ljust(width)[:width], np.uint8)
    column = Column(name="receipts", dtype="uint8", width=width, rows=1, part_rows=1)
    path.write_bytes(encode_chunk(column, text[None]))


def _digest(mapping: Any) -> str:
    try:
        return digest(mapping)
    except ValueError:  # as of NaN, which has none
        return "0" * 32


def _places(mapping: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of all values, containers too."""
    yield place
    pairs = mapping.items() if isinstance(mapping, dict) else ()
    for key, value in enumerate(mapping) if isinstance(mapping, list) else pairs:
        yield from _places(value, (*place, key))


def _changed(mapping: Any, place: Place, value: Any) -> Any:
    """Return a copy with another value at a place, or without it."""
    if not place:
        return value
    changed = inner = copy.deepcopy(mapping)
    for key in place[:-1]:
        inner = inner[key]
    if value is LOST:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return changed
