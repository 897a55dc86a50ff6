"""Beginning and resuming a store that a verb writes part by part."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

from mercore.jobs.notices import echo
from mercore.stores.codes import open_code_store
from mercore.stores.derived import DerivedStore
from mercore.stores.errors import ExistsError, FormatError, NotFoundError
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.growth import finish_growth, is_finished
from mercore.stores.vectors import State, Vectors

Store = TypeVar("Store", bound=DerivedStore)


def open_begun(
    path: str, open_store: Callable[[Where], Store], holds: str, wanted: str | None = None
) -> Store | None:
    """Open the store of a kind at ``path``, or return None if nothing exists there.

    Parameters
    ----------
    open_store : opens a store of the kind
    holds, wanted : what such a store holds, and what the verb would go on with, for the message

    Raises
    ------
    ExistsError
        If something else exists there.
    """
    try:
        return open_store(path)
    except NotFoundError:
        return None
    except FormatError:
        raise ExistsError(
            f"{path} exists and holds no {holds}: expected {wanted or holds} that are begun, or "
            "a new path. Fix: name another."
        ) from None


def check_target(path: str, open_store: Callable[[Where], Store], holds: str) -> None:
    """Refuse a path that holds no store of a kind, or at which no store can be made."""
    if open_begun(path, open_store, holds) is None:
        location_of(path).check_new()


def begun(path: Where, resume: Callable[[], Store | None]) -> Store | None:
    """Return the store at ``path`` that can be resumed, or None if a new one can be made there.

    Parameters
    ----------
    resume : opens a store of the wanted spec, or returns None if nothing exists

    Raises
    ------
    ExistsError
        If something else exists there; the message names the difference.
    StorageError
        If no store can be made there.
    """
    store = resume()
    if store is None:
        try:
            location_of(path).check_new()
        except ExistsError:  # another process has just made it
            store = resume()
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


def code_states(path: Where, vectors: Vectors) -> CodeStates:
    """Return the states of ``vectors`` that codes at ``path`` went through; none if there are none.

    Codes of other vectors have none: ``resume`` refuses them.
    """
    try:
        codes = open_code_store(path)
    except (NotFoundError, FormatError):
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


def restored(store: DerivedStore, fit: Callable[[], dict[str, NDArray[Any]]]) -> list[int]:
    """Restore the files beside the parts, print what is wrong, and return the parts to do.

    Parameters
    ----------
    fit : makes the model, if the stored one is damaged
    """
    store.store.sweep()
    if not is_finished(store.store):
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
