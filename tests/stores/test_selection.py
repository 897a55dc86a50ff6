"""Selections against arrays of row numbers: ranks, rows, numbers, and the positions in parts."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.stores.selection import (
    BitSelection,
    RangeSelection,
    RowsByLabel,
    SelectedParts,
    Selection,
    pack_range,
    pack_rows,
    select_rows,
    selection_of,
)
from mercore.testing.cases import loop_over

BEYOND = 300  # rows behind the last that has a bit


def mask_of(rows: int, share: float) -> NDArray[np.bool_]:
    return np.random.default_rng(rows).random(rows) < share


def bits_of(mask: NDArray[np.bool_]) -> BitSelection:
    return BitSelection(np.packbits(mask, bitorder="little"))


def check(selection: Selection, selected: NDArray[np.int64], rows: int) -> None:
    every, rng = np.arange(rows + BEYOND), np.random.default_rng(0)
    numbers = np.full(rows + BEYOND + 1, -1)
    numbers[selected + 1] = np.arange(len(selected))
    np.testing.assert_array_equal(selection.rank(every), np.searchsorted(selected, every))
    np.testing.assert_array_equal(selection.numbers_of(np.append(-1, every)), numbers)
    np.testing.assert_array_equal(
        selection.rows_of(np.arange(-1, len(selected))), np.append(-1, selected)
    )
    for first, stop in np.sort(rng.integers(0, rows + 1, (20, 2)), axis=1).tolist():
        inside = selected[(selected >= first) & (selected < stop)]
        found = select_rows(np.arange(first, stop), selection.positions(first, stop))
        np.testing.assert_array_equal(found, inside)


@loop_over("share", [0.0, 0.01, 0.5, 1.0])
@loop_over("rows", [1, 7, 8, 63, 64, 65, 128, 1001])
def test_bits_are_the_rows_that_they_name(rows: int, share: float) -> None:
    mask = mask_of(rows, share)
    selection = bits_of(mask)
    check(selection, np.flatnonzero(mask), rows)
    sent = copy.copy(copy.copy(selection))  # as pickle does it
    check(sent, np.flatnonzero(mask), rows)
    assert len(pickle.dumps(sent)) < rows / 8 + 250


@loop_over(("start", "stop"), [(0, 500), (0, 1), (17, 400), (499, 500), (30, 30)])
def test_ranges_are_the_rows_that_they_name(start: int, stop: int) -> None:
    check(RangeSelection(start, stop), np.arange(start, stop), 500)


def test_bits_take_less_than_two_bits_of_memory_per_row() -> None:
    assert bits_of(mask_of(100_000, 0.3)).nbytes * 8 < 1.6 * 100_000


@loop_over("count", [1, 8, 19, 64, 130])
def test_rows_are_packed_to_a_bit_each_and_found_again(count: int) -> None:
    """Rows that follow one another are a range, and others are bits of the same digest."""
    rng = np.random.default_rng(0)
    bounds = [(0, 0), (0, count), *np.sort(rng.integers(0, count + 1, (40, 2)), axis=1).tolist()]
    for start, stop in bounds:
        rows = np.arange(start, stop)
        packed = np.packbits(np.isin(np.arange(count), rows), bitorder="little")
        np.testing.assert_array_equal(pack_range(start, stop, count), packed)
        np.testing.assert_array_equal(pack_rows(np.append(rows, rows[::-1]), count), packed)
        found = selection_of(packed)
        assert isinstance(found, RangeSelection)
        assert (found.start, found.stop) == ((start, stop) if start < stop else (0, 0))
        assert found.digest == RangeSelection(start, stop).digest == BitSelection(packed).digest
        assert len(found.digest) == 32
        if stop - start > 2:
            holed = np.delete(rows, rng.integers(1, len(rows) - 1))
            packed = pack_rows(rng.permutation(holed), count)
            others = selection_of(packed)
            assert isinstance(others, BitSelection)
            np.testing.assert_array_equal(others.rows_of(np.arange(len(holed))), holed)
            assert others.digest != found.digest


@loop_over("share", [0.0, 0.002, 0.1, 1.0])
@loop_over("starts", [[0, 64, 128, 192, 250], [0, 1, 200, 250], [0, 250]])
def test_parts_without_a_selected_row_are_left_out(starts: list[int], share: float) -> None:
    mask, values = mask_of(250, share), np.arange(250)
    parts = SelectedParts(bits_of(mask), np.array(starts))
    found: list[Any] = [np.empty(0)]
    for part, stored in enumerate(parts.stored.tolist()):
        of_part = values[starts[stored] : starts[stored + 1]]
        rows = select_rows(of_part, parts.positions(part))
        assert len(rows) == parts.starts[part + 1] - parts.starts[part] > 0
        assert (len(rows) == len(of_part)) == np.shares_memory(rows, of_part)
        found.append(rows)
    np.testing.assert_array_equal(np.concatenate(found), np.flatnonzero(mask))


@pytest.mark.parametrize("selection", [RangeSelection(3, 40), bits_of(np.arange(64) % 3 == 0)])
def test_a_range_is_a_view_and_bits_are_a_copy(selection: Selection) -> None:
    values = np.arange(64)
    rows = select_rows(values, selection.positions(0, 64))
    assert np.shares_memory(rows, values) == (not selection.copies)


@loop_over("same", [True, False])
@loop_over("values", [[3], [0, 1, 2], [-128, 127, 5], [-1, 200], [-1, 1 << 40], [7, 1 << 31]])
def test_labels_group_queries_and_name_the_rows_that_they_meet(
    values: list[int], same: bool
) -> None:
    """A query may have a label that no row has, and that the dtype of the rows does not hold."""
    rng = np.random.default_rng(0)
    rows, queries = rng.choice(values, 300), rng.choice([*values, 300, -(1 << 50)], 40)
    by_label = RowsByLabel.of(rows, queries, same=same)
    met = (queries[:, None] == rows) == same
    np.testing.assert_array_equal(by_label.counts, met.sum(axis=1))
    for first, count, *start in [(0, 40), (7, 9), (30, 10, 290)]:
        found = np.zeros((count, 300), np.bool_)
        for some, selection in by_label.groups(first, count, *start):
            found[some[:, None], selection.rows_of(np.arange(selection.count))] = True
        met_from = met[first : first + count] & (np.arange(300) >= sum(start))
        np.testing.assert_array_equal(found, met_from)
    itself = RowsByLabel.of(rows, None, same=same)
    np.testing.assert_array_equal(itself.queries, rows)
    assert itself.about["rows"] == itself.about["queries"] == by_label.about["rows"]
    assert itself.bytes_with(2) > itself.bytes_with(1) > 300
