"""Sorting codes by cell on workers: part by part, then a span of parts at a time."""

from collections.abc import Callable, Sequence
from functools import partial

from mercore.jobs.cluster.workers import Work, Workers
from mercore.jobs.resources.execution import resolved
from mercore.pipeline.cells.build import PartSorter, PlaceSorter
from mercore.stores.codes import open_code_store
from mercore.stores.indexes.cells import CellStore, SortedParts
from mercore.stores.part_store.header import Header
from mercore.stores.part_store.part_store import PartStore

Advance = Callable[[int], None]  # is called with the number of parts written


def open_part_sorter(codes: str, parts: str) -> PartSorter:
    """Return a writer of sorted parts, with both stores open."""
    return PartSorter(open_code_store(codes), SortedParts.open(parts))


def open_place_sorter(parts: str, cells: str, header: Header) -> PlaceSorter:
    """Return a writer of an index in the state of a header, with both stores open."""
    stored, wanted = CellStore.open(cells), CellStore(PartStore(cells, header))
    earlier = stored if stored.rows < wanted.rows else None
    return PlaceSorter(SortedParts.open(parts), wanted, earlier)


def sort_parts(
    workers: Workers, stores: tuple[str, str], undone: Sequence[int], advance: Advance
) -> None:
    """Sort parts of codes by cell.

    Parameters
    ----------
    stores : the paths of the codes and of the sorted parts

    Raises
    ------
    ClusterError
        If the workers go away, or keep dying of one part.
    """
    codes, parts = map(resolved, stores)
    workers.run(
        Work(parts, partial(open_part_sorter, codes, parts)), PartSorter.write, undone, advance
    )


def sort_places(
    workers: Workers,
    stores: tuple[str, str, Header],
    spans: Sequence[list[int]],
    advance: Advance,
) -> None:
    """Sort spans of parts, and write them.

    Parameters
    ----------
    stores : the paths of the sorted parts and of the index, and its header, which may be that of
        a state to which it grows

    Raises
    ------
    ClusterError
        If the workers go away, or keep dying of one span.
    """
    parts, cells = map(resolved, stores[:2])
    work = Work(cells, partial(open_place_sorter, parts, cells, stores[2]))
    workers.run(work, PlaceSorter.write, spans, advance)
