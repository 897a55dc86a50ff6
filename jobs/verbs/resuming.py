"""Beginning and resuming a store that a verb writes part by part."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

from mercore.jobs.notices import echo
from mercore.stores.codes import CodeStore
from mercore.stores.errors import ExistsError
from mercore.stores.location.resolve import location_of
from mercore.stores.part_backed_store import PartBackedStore
from mercore.stores.part_store.growth import finish_growth
from mercore.stores.vectors import State, Vectors

Store = TypeVar("Store", bound=PartBackedStore)


def begun(path: str, kind: type[Store]) -> Store | None:
    """Open the store of a kind that is begun at ``path``; None if a new one can be made there.

    Raises
    ------
    ExistsError
        If something else exists there.
    StorageError
        If no store can be made there.
    """
    store = kind.begun(path)
    if store is None:
        try:
            location_of(path).check_new()
        except ExistsError:  # another process has just made it
            store = kind.begun(path)
            if store is None:
                raise
    return store


class CodeStates(NamedTuple):
    """The earlier states of vectors that existing codes encoded, and what the codes keep.

    ``grow`` tells whether the last of the states is the one that the codes encode now.
    """

    states: tuple[State, ...] = ()
    grow: bool = False
    part_rows: int | None = None


def code_states(codes: CodeStore | None, vectors: Vectors) -> CodeStates:
    """Return the states of ``vectors`` that codes went through.

    Codes of other vectors have none: ``resumed`` refuses them.
    """
    if codes is None:
        return CodeStates()
    rows = [state["rows"] for state in codes.store.layout.grown_from]
    grow = codes.spec.source != vectors.fingerprint
    known = {state.rows: state for state in vectors.history}
    if grow:
        rows.append(codes.rows)
        if codes.spec.source not in {state.fingerprint for state in vectors.history}:
            return CodeStates()
    if not rows or not known.keys() >= set(rows):
        return CodeStates()
    return CodeStates(tuple(known[each] for each in rows), grow, codes.store.layout.part_rows)


def restored(store: PartBackedStore, fit: Callable[[], dict[str, NDArray[Any]]]) -> list[int]:
    """Restore the files beside the parts, print what is wrong, and return the parts to do.

    Parameters
    ----------
    fit : makes the model, if the stored one is damaged
    """
    store.store.sweep()
    finish_growth(store.store)
    for key in store.restore(fit):
        echo(f"writing {key} again: it was missing or damaged", err=True)
    undone = store.undone_parts()
    for part, reason in undone.items():
        if reason:
            echo(f"doing part {part} again: {reason}", err=True)
    wrong = sum(map(bool, undone.values()))
    if 0 < len(undone) < store.parts:
        done = store.parts - len(undone)
        echo(
            f"parts: {done} of {store.parts} done, {len(undone) - wrong} missing, {wrong} wrong",
            err=True,
        )
    return list(undone)
