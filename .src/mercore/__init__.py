"""Kernel nearest neighbours for data larger than memory: encoded, streamed, and proved exact.

Verbs of the command line are functions here: ``mercore.ingest``, ``mercore.encode``,
``mercore.search`` and so on.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mercore.jobs.api import (
        append,
        check,
        compare,
        encode,
        encoders,
        evaluate,
        export,
        gallery,
        index,
        info,
        ingest,
        kernels,
        report,
        search,
        verify,
    )
    from mercore.jobs.session.neighbors import KernelNeighbors
    from mercore.jobs.session.open_store import open
    from mercore.stores.errors import MercoreError, MercoreWarning

HOMES = {
    "KernelNeighbors": "mercore.jobs.session.neighbors",
    "MercoreError": "mercore.stores.errors",
    "MercoreWarning": "mercore.stores.errors",
    "open": "mercore.jobs.session.open_store",
}
__all__ = [
    "KernelNeighbors",
    "MercoreError",
    "MercoreWarning",
    "append",
    "check",
    "compare",
    "encode",
    "encoders",
    "evaluate",
    "export",
    "gallery",
    "index",
    "info",
    "ingest",
    "kernels",
    "open",
    "report",
    "search",
    "verify",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a function or a class
    """Import the API when it is first used, so that ``import mercore`` is fast."""
    if name not in __all__:
        raise AttributeError(f"module 'mercore' has no attribute {name!r}")
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    speaks_keywords = import_module("mercore.jobs.session.keywords").speaks_keywords
    verb = speaks_keywords(getattr(import_module("mercore.jobs.api"), name))
    globals()[name] = verb  # one function, however often it is asked for
    return verb


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
