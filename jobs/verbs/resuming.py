"""Beginning and resuming a store that a verb writes part by part."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from numpy.typing import NDArray

from mercore.stores.derived import DerivedStore
from mercore.stores.errors import ExistsError, FormatError, NotFoundError
from mercore.stores.location.resolve import Where, location_of

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


def restored(store: DerivedStore, fit: Callable[[], dict[str, NDArray[Any]]]) -> list[int]:
    """Restore the files beside the parts, print what is wrong, and return the parts to do.

    Parameters
    ----------
    fit : makes the model, if the stored one is damaged
    """
    store.store.sweep()
    for key in store.restore(fit):
        click.echo(f"writing {key} again: it was missing or damaged", err=True)
    undone = store.undone_parts()
    for part, reason in undone.items():
        if reason:
            click.echo(f"doing part {part} again: {reason}", err=True)
    wrong = sum(map(bool, undone.values()))
    if 0 < len(undone) < store.parts:
        done = store.parts - len(undone)
        click.echo(
            f"parts: {done} of {store.parts} done, {len(undone) - wrong} missing, {wrong} wrong",
            err=True,
        )
    return list(undone)
