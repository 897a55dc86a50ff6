"""Inputs of several verbs: kernels, the kind of a store, leases, and the executor of a search."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mercore.jobs.custom_kernel import checked_custom, load_custom
from mercore.jobs.notices import echo
from mercore.jobs.options import names_file, scale_of
from mercore.jobs.resources.execution import Execution, SearchSize, WorkerPaths
from mercore.pipeline.kernels import KINDS, MEDIAN, Kernel, canonical_name, make_kernel
from mercore.pipeline.kernels.transform import Transformed
from mercore.pipeline.linear_map import LinearMap
from mercore.pipeline.search.choices.gamma import median_gamma
from mercore.pipeline.search.executor import Executor
from mercore.stores.errors import InputError
from mercore.stores.formats.linear_map import read_linear_map
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option, setting


class VerbOptions:
    """The options of a verb, which a frozen dataclass holds."""

    def check(self) -> None:
        """Refuse options without opening a source; by default nothing does."""

    def check_path(self, target: str) -> None:
        """Refuse a path that the verb could not write; by default nothing does."""


class VerbTask(Protocol):
    """A verb with everything open and checked, and nothing computed."""

    def check_limits(self) -> None:
        """Refuse work that exceeds the memory or the disk; by default nothing does."""
        return

    def run(self) -> Any:  # noqa: ANN401 - each verb has its own result
        """Do the work."""


@dataclass(frozen=True, kw_only=True)
class KernelOptions:
    """The kernel that a user names: a built-in one, or a file that declares one.

    ``linear_map`` is the file of a matrix that maps all rows and queries before the kernel.
    ``gamma`` is a number, or ``median`` for 1 / the median squared distance of sampled rows.
    ``transform`` is a number, or ``auto`` for an encode that is to choose it.
    """

    name: str | None = None
    gamma: float | str | None = None
    transform: float | str | None = None
    linear_map: str | None = None

    @property
    def file(self) -> str | None:
        """The file of a custom kernel, or None."""
        return self.name if self.name and names_file(self.name) else None

    def check(self) -> None:
        """Refuse a kernel or a linear map that does not exist; no rows are read."""
        gamma = 1.0 if self._takes_median() else self.gamma
        self._make(load_custom(self.file) if self.file else None, gamma)
        self.open_map()

    def open_map(self) -> LinearMap | None:
        """Return the linear map of rows and queries, or None."""
        path = self.linear_map
        return None if path is None else LinearMap(read_linear_map(path), path)

    def open(self, vectors: Vectors) -> Kernel:
        """Return the kernel; a custom one is tested on rows of ``vectors``, which are mapped."""
        gamma = self.gamma
        if self._takes_median():
            gamma = median_gamma(vectors, str(self.name))
            echo(f"gamma: {gamma:g}, 1 / the median distance of sampled rows", err=True)
        return self._make(checked_custom(self.file, vectors) if self.file else None, gamma)

    def _takes_median(self) -> bool:
        """Return whether γ is to be measured; refuse that for a kernel without γ."""
        if gamma_of(self.gamma) != MEDIAN:
            return False
        if self.file or (self.name and not KINDS[canonical_name(self.name)].takes_gamma):
            raise InputError(
                f"kernel {self.name} takes no gamma: found {MEDIAN}. Fix: leave "
                f"{option('gamma')} out."
            )
        return bool(self.name)

    def _make(self, custom: Any, gamma: Any) -> Kernel:  # noqa: ANN401
        if not self.name:
            raise InputError(
                f"kernel is {self.name!r}: expected a name. Fix: {setting(kernel='chi2')}"
            )
        scale = scale_of(self.transform)
        return make_kernel(self.name, gamma=gamma, transform=scale, custom=custom)

    def check_same(self, kernel: Kernel, where: str) -> None:
        """Refuse a kernel, γ or transform that is not the one of the codes at ``where``.

        What is not given is not compared; a γ of ``median`` is the codes' own.

        Raises
        ------
        InputError
            If something differs.
        """
        inner = kernel.kernel if type(kernel) is Transformed else kernel
        scale = kernel.scale if type(kernel) is Transformed else None
        has = {"kernel": inner.name, "gamma": getattr(inner, "gamma", None), "transform": scale}
        given = {
            "kernel": None if self.name is None or self.file else canonical_name(self.name),
            "gamma": gamma_of(self.gamma),
            "transform": scale_of(self.transform),
        }
        if given["gamma"] == MEDIAN and has["gamma"] is not None:
            given["gamma"] = None
        for name, value in given.items():
            if value is not None and value != has[name]:
                raise InputError(
                    f"{where} has {name} {'none' if has[name] is None else has[name]}: found "
                    f"{setting(**{name: value})}. Fix: leave {option(name)} out."
                )


def gamma_of(gamma: float | str | None) -> float | str | None:
    """Return γ: a number, ``median`` or None.

    Raises
    ------
    InputError
        If it is another text.
    """
    if isinstance(gamma, str) and gamma != MEDIAN:
        raise InputError(
            f"gamma is {gamma!r}: expected a number, or {MEDIAN}. Fix: {setting(gamma=MEDIAN)}"
        )
    return gamma


def exclusive(where: Where) -> AbstractContextManager[LeaseHandle]:
    """Hold the exclusive lease of a store, which need not exist yet, for the ``with`` block."""
    return location_of(where).lease(partial(echo, err=True))


@contextmanager
def executor_for(
    execution: Execution, paths: WorkerPaths, size: SearchSize
) -> Iterator[Executor | None]:
    """Yield the executor of a search, or None for threads of this process.

    Processes share the cache of the load; each worker of a cluster has all of it.
    """
    if not execution.remote:
        yield None
        return
    from mercore.jobs.cluster.client import connect  # Dask takes half a second to load
    from mercore.jobs.cluster.search_parts import searching

    size = size._replace(cache_bytes=size.cache_bytes // (execution.processes or 1))
    with connect(execution) as client, searching(client, paths, size) as executor:
        yield executor
