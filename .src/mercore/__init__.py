"""Kernel nearest neighbours for data larger than memory: encoded, streamed, and proved exact.

Verbs of the command line are functions here: ``mercore.ingest``, ``mercore.encode``,
``mercore.search`` and so on.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mercore.jobs.api import *  # noqa: F403 - its functions, which are all that it defines
    from mercore.jobs.session.neighbors import KernelNeighbors as KernelNeighbors
    from mercore.jobs.session.opening import open as open
    from mercore.jobs.session.predictors import (
        KernelNeighborsClassifier as KernelNeighborsClassifier,
    )
    from mercore.jobs.session.predictors import KernelNeighborsRegressor as KernelNeighborsRegressor
    from mercore.jobs.session.predictors import (
        KernelNeighborsTransformer as KernelNeighborsTransformer,
    )
    from mercore.stores.errors import MercoreError as MercoreError
    from mercore.stores.errors import MercoreWarning as MercoreWarning

API = "mercore.jobs.api"
HOMES = {
    "KernelNeighbors": "mercore.jobs.session.neighbors",
    "KernelNeighborsClassifier": "mercore.jobs.session.predictors",
    "KernelNeighborsRegressor": "mercore.jobs.session.predictors",
    "KernelNeighborsTransformer": "mercore.jobs.session.predictors",
    "MercoreError": "mercore.stores.errors",
    "MercoreWarning": "mercore.stores.errors",
    "open": "mercore.jobs.session.opening",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a function or a class
    """Import the API when it is first used, so that ``import mercore`` is fast."""
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    functions = {} if name == "__path__" else _functions()
    if name == "__all__":
        return sorted([*HOMES, *functions])
    if name not in functions:
        raise AttributeError(f"module 'mercore' has no attribute {name!r}")
    return functions[name]


def _functions() -> dict[str, Any]:
    """Return the functions of the API by name."""
    api = import_module(API)
    return {name: getattr(api, name) for name in api.FUNCTIONS}


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
