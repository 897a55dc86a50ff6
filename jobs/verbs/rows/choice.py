"""The options of a selection: among which rows, and without which."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.options import RANGE
from mercore.stores.codes import CodeStore, SelectedCodes
from mercore.stores.errors import InputError
from mercore.stores.formats.labels import open_row_set
from mercore.stores.indexes import CellStore
from mercore.stores.selection import Selection, pack_range, pack_rows, selection_of
from mercore.stores.vector_views import selected_vectors
from mercore.stores.vectors import Vectors, stored_rows
from mercore.stores.wording import option

RowSet: TypeAlias = str | slice | range | Sequence[int] | NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class RowChoice:
    """The rows that take part: all, or those of ``among``, and none of ``without``.

    Deleted rows take no part, unless ``with_deleted``. A set of rows is a range of ids such as
    ``1000:2000``, or the ids or the mask of a file or of an array.
    """

    among: RowSet | None = None
    without: RowSet | None = None
    with_deleted: bool = False

    @property
    def names_rows(self) -> bool:
        """Whether rows are named that take part, or that do not."""
        return self.among is not None or self.without is not None

    def select_codes(self, codes: CodeStore, vectors: str | None = None) -> CodeStore:
        """Return the codes of the rows that take part; ``vectors`` were moved to this path."""
        chosen = self.selection(codes, codes.deleted(vectors))
        return codes if chosen is None else SelectedCodes(codes, chosen)

    def select_vectors(self, vectors: Vectors) -> Vectors:
        """Return the vectors of the rows that take part."""
        return selected_vectors(vectors, self.selection(vectors, vectors.deleted))

    def selection(
        self, store: CodeStore | CellStore | Vectors, deleted: NDArray[np.uint8] | None = None
    ) -> Selection | None:
        """Return the selection of the rows of a store, or None if all take part.

        Parameters
        ----------
        deleted : a bit for each row, set if it is deleted

        Raises
        ------
        MercoreError
            If a set cannot be read or has ids that the store lacks, or no row takes part.
        """
        if self.with_deleted:
            deleted = None
        if not self.names_rows and deleted is None:
            return None
        bits = pack_range(0, store.rows, store.rows)
        if self.among is not None:
            bits = bits_of(self.among, "among", store)
        if self.without is not None:
            bits &= ~bits_of(self.without, "without", store)
        if deleted is not None:
            shared = min(len(bits), len(deleted))
            bits[:shared] &= ~deleted[:shared]
        if not bits.any():
            raise InputError(
                f"no row of {store.where} takes part: found none that {option('among')}, "
                f"{option('without')} and deletions leave, expected one or more. Fix: name other "
                "rows."
            )
        return selection_of(bits)


def bits_of(given: RowSet, name: str, store: CodeStore | CellStore | Vectors) -> NDArray[np.uint8]:
    """Return a bit for each row of a store, set for the rows of a set.

    Parameters
    ----------
    name : of the option, for messages

    Raises
    ------
    MercoreError
        If the set cannot be read, or has ids that the store lacks.
    """
    rows, dropped, ids = store.rows, store.dropped, store.id_count
    span = _range(given)
    if span is not None:
        start, stop = span[0], ids if span[1] is None else span[1]
        _check_ids(np.array([start, stop - 1]), ids, f"{name} {start}:{stop}", store.where)
        first, behind = np.array([start, stop]) - np.searchsorted(dropped, [start, stop])
        return pack_range(int(first), int(behind), rows)
    assert not isinstance(given, slice)
    found = open_row_set(given, name)
    called = given if isinstance(given, str) else name
    if found.dtype != np.bool_:
        wanted = found.astype(np.int64, copy=False)
        _check_ids(wanted, ids, called, store.where)
        kept = stored_rows(wanted, dropped)
        return pack_rows(kept[kept >= 0], rows)
    if len(found) != ids:
        raise InputError(
            f"{called} is a mask of {len(found):,}: expected {ids:,}, one per id of "
            f"{store.where}. Fix: name the mask of these rows."
        )
    return np.packbits(np.delete(found, dropped), bitorder="little")


def _range(given: RowSet) -> tuple[int, int | None] | None:
    """Return the first id of a range, and the id behind its last, None for the end."""
    if isinstance(given, str):
        match = RANGE.fullmatch(given)
        given = slice(*(int(text) if text else None for text in match.groups())) if match else given
    if isinstance(given, slice | range) and given.step in (None, 1):
        return given.start or 0, given.stop
    if isinstance(given, slice):
        raise InputError(f"{given} has a step: expected a range of ids. Fix: name the ids.")
    return None


def _check_ids(ids: NDArray[np.int64], count: int, name: str, where: str) -> None:
    """Refuse ids that a store never had."""
    wrong = np.flatnonzero((ids < 0) | (ids >= count))
    if len(wrong):
        raise InputError(
            f"{name}: id {ids[wrong[0]]} is not one of {where}: expected 0 to {count - 1}. Fix: "
            "name the ids of this store."
        )
