"""Sets of rows: ranges, ids and masks, of files and arrays, against sets of ids."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mercore.jobs.verbs.rows.choice import RowChoice
from mercore.stores.errors import FormatError, InputError
from mercore.stores.selection import RangeSelection
from mercore.stores.vectors import VectorStore
from mercore.testing.stores import histograms, make_vectors

N = 50
DROPPED = (0, 7, 8, 30, 49)
MASK = np.arange(N) % 3 == 0
IDS = np.array([40, 3, 3, 8, 12])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    rows = histograms(N, 4)
    rows[list(DROPPED)] = 0
    folder = tmp_path_factory.mktemp("rows")
    return make_vectors(folder / "v.zarr", rows, drop_zero_rows=True, part_rows=8)


def ids_of(store: VectorStore, **options: Any) -> list[int]:
    """The ids that take part, which a digest and a count tell too."""
    selection = RowChoice(**options).selection(store)
    assert selection is not None
    rows = selection.rows_of(np.arange(selection.count))
    other = RowChoice(among=store.ids_of(rows)).selection(store)
    assert other is not None
    assert selection.digest == other.digest
    ids: list[int] = store.ids_of(rows).tolist()
    return ids


def test_sets_of_rows_name_ids(store: VectorStore, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", IDS)
    np.save(tmp_path / "mask.npy", MASK)
    pq.write_table(pa.table({"keep": MASK, "id": np.arange(N) // 2}), tmp_path / "rows.parquet")
    in_range, masked, every = set(range(5, 31)), set(np.flatnonzero(MASK).tolist()), set(range(N))
    sets: list[tuple[Any, set[int]]] = [
        ("5:31", in_range),
        (range(5, 31), in_range),
        (slice(5, 31), in_range),
        (":31", set(range(31))),
        ("31:", every - set(range(31))),
        (" 0 : 50 ", every),
        (range(2, 40, 9), set(range(2, 40, 9))),
        (IDS, {3, 8, 12, 40}),
        (IDS.tolist(), {3, 8, 12, 40}),
        (IDS.astype(np.uint16), {3, 8, 12, 40}),
        (str(tmp_path / "ids.npy"), {3, 8, 12, 40}),
        (MASK, masked),
        (str(tmp_path / "mask.npy"), masked),
        (f"{tmp_path}/rows.parquet::keep", masked),
        (f"{tmp_path}/rows.parquet::id", set(range(25))),
    ]
    stored = every - set(DROPPED)
    for given, ids in sets:
        assert ids_of(store, among=given) == sorted(ids & stored)
        for other, left_out in sets[:9:4]:
            if (ids - left_out) & stored:
                wanted = sorted((ids - left_out) & stored)
                assert ids_of(store, among=given, without=other) == wanted
        if stored - ids:
            assert ids_of(store, without=given) == sorted(stored - ids)
    assert ids_of(store, without=[]) == sorted(stored)
    assert RowChoice().selection(store) is None


def test_rows_that_follow_one_another_are_a_range(store: VectorStore) -> None:
    """So their parts are read without a copy."""
    mask = (np.arange(N) >= 9) & (np.arange(N) < 33)
    for given in ("9:33", mask, np.flatnonzero(mask)):
        selection = RowChoice(among=given).selection(store)
        assert isinstance(selection, RangeSelection)
        assert (selection.start, selection.stop) == (6, 29)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("5:51", "among 5:51: id 50 is not one of"),
        ("60:70", "id 60 is not one of"),
        (slice(-3, None), "id -3 is not one of"),
        (slice(0, 9, 2), "has a step: expected a range of ids"),
        ([3, -1], "among: id -1 is not one of"),
        ([50], "expected 0 to 49"),
        (MASK[:-1], "among is a mask of 49: expected 50, one per id of"),
        ("7:9", "no row of"),
        ("5:5", "no row of"),
        ([], "no row of"),
        (~np.ones(N, np.bool_), "no row of"),
    ],
)
def test_other_sets_are_refused(given: Any, message: str, store: VectorStore) -> None:
    with pytest.raises(InputError, match=message):
        RowChoice(among=given).selection(store)


@pytest.mark.parametrize("given", [[[1, 2]], [0.5], ["a"], np.array([2**63], np.uint64)])
def test_what_is_no_set_is_refused(given: Any, store: VectorStore) -> None:
    with pytest.raises(FormatError, match=r"without: .*expected ids, int64\[any\], or a mask"):
        RowChoice(without=given).selection(store)


def test_a_column_must_be_named_and_complete(store: VectorStore, tmp_path: Path) -> None:
    file = f"{tmp_path}/rows.parquet"
    pq.write_table(pa.table({"a": [1, None], "b": [1.0, 2.0]}), file)
    for path, message in {
        file: "expected one",
        f"{file}::c": "0 columns 'c'",
        f"{file}::a": "a number is missing",
        f"{file}::b": "expected ids",
    }.items():
        with pytest.raises(FormatError, match=message):
            RowChoice(among=path).selection(store)
