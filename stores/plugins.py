"""Registries: kernels, encoders and formats by name, with those that installed packages add."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from mercore.stores.errors import InputError, MercoreWarning

GROUPS = KERNELS, ENCODERS, FORMATS = "mercore.kernels", "mercore.encoders", "mercore.formats"
T = TypeVar("T")


class PluginRegistry(Mapping[str, T]):
    """Objects by name: first those of mercore, then those of entry points of other packages.

    ``group`` is the group of the entry points, and ``named`` returns the name of a plugin, given
    its package, the name of its entry point and its object. It raises an error if the plugin
    cannot be used: that one is left out with a warning.

    Plugins are loaded when the registry is first read, not when it is made: their modules import
    the modules that hold the registries.
    """

    def __init__(
        self, group: str, own: Mapping[str, T], named: Callable[[str, str, Any], str]
    ) -> None:
        self._group, self._own, self._named = group, own, named

    @cached_property
    def _all(self) -> dict[str, T]:
        found = dict(self._own)
        for point in plugin_points(self._group):
            package = package_of(point)
            try:
                plugin = point.load()
                name = self._named(package, point.name, plugin)
                if name in found:
                    raise InputError(f"there is another {name}")
            except Exception as error:  # noqa: BLE001 - the code of another package runs here
                _warn(point, package, error)
            else:
                found[name] = plugin
        return found

    def __getitem__(self, name: str) -> T:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def fix_for(self, name: object, otherwise: str) -> str:
        """Return the fix for a name that a store states: install its package, or ``otherwise``."""
        package, dot, _ = str(name).partition(".")
        if dot and package.isidentifier() and str(name) not in self._all:
            return f"Fix: install the package {package}, which adds it to mercore."
        return otherwise


def plugin_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, in the same order on every machine."""
    return sorted(entry_points(group=group), key=lambda point: (package_of(point), point.name))


def package_of(point: EntryPoint) -> str:
    """Return the name of an entry point's package, with underscores for hyphens."""
    return "" if point.dist is None else point.dist.name.replace("-", "_").lower()


def qualified_name(base: type) -> Callable[[str, str, Any], str]:
    """Return the function that names subclasses of ``base``: PACKAGE.NAME, as each is called.

    So no two packages share a name, and a store says which package it needs.
    """

    def named(package: str, word: str, plugin: Any) -> str:  # noqa: ANN401 - it may be anything
        if not (isinstance(plugin, type) and issubclass(plugin, base)):
            raise InputError(f"found {plugin!r}, expected a subclass of {base.__name__}")
        name, own = f"{package}.{word}", getattr(plugin, "name", None)
        if own != name:
            raise InputError(f"found name = {own!r}, expected {name!r}")
        return name

    return named


def _warn(point: EntryPoint, package: str, error: Exception) -> None:
    """Warn that a plugin is left out."""
    warnings.warn(
        f"{point.name}, a plugin of the package {package} for {point.group}, is left out: "
        f"{type(error).__name__}: {error}. Fix: update {package}, or uninstall it.",
        MercoreWarning,
        stacklevel=3,
    )
