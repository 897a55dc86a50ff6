"""``mercore.open``: the open store of what lies at a path."""

from dataclasses import replace

import psutil

from mercore.jobs.api import execution_options, file_path, kernel_options, plain_path
from mercore.jobs.face.parameters import Size, StrPath
from mercore.jobs.options import refuse_unused
from mercore.jobs.session.open_index import OpenIndex
from mercore.jobs.session.open_store import OpenStore
from mercore.stores.indexes import CellStore
from mercore.stores.rows import open_stored

FREE_SHARE = 0.5  # of the free memory, which a cache takes where no limit is given


def open(  # noqa: A001 - users call it as mercore.open
    store: StrPath,
    *,
    kernel: StrPath | None = None,
    gamma: float | str | None = None,
    transform: float | None = None,
    linear_map: StrPath | None = None,
    vectors: StrPath | None = None,
    threads: int | None = None,
    memory: Size = None,
) -> OpenStore:
    """Open a store of vectors, codes or bounds, or an index of cells, for many small searches.

    Parameters
    ----------
    store : path of vectors, codes or bounds, or of an index of cells
    kernel, gamma, transform, linear_map : the kernel of a store of vectors, as of
        ``mercore.search``; codes have theirs
    vectors : new path of the encoded vectors, if they were moved
    threads : threads per search; all cores by default
    memory : bytes of parts to keep, or a text such as ``"4GB"``; half of the free memory by default

    Raises
    ------
    MercoreError
        If the store does not exist, or an option does not fit it.

    Examples
    --------
    >>> import mercore
    >>> with mercore.open("base.zarr", kernel="chi2") as store:
    ...     ids, scores = store.search("query.npy", k=3)
    >>> ids.shape
    (5, 3)
    """
    path, moved = file_path(store), plain_path(vectors)
    given = kernel_options(kernel, gamma, transform, linear_map)
    execution = execution_options(threads, None, None, memory)
    execution.check()
    if execution.memory is None:
        execution = replace(execution, memory=_free_memory())
    stored = open_stored(path)
    if isinstance(stored, CellStore):
        refuse_unused(f"{path} has its kernel already", linear_map=given.linear_map)
        return OpenIndex(stored, kernel=given, vectors=moved, execution=execution)
    return OpenStore(path, stored, kernel=given, vectors=moved, execution=execution)


def _free_memory() -> int:
    """Return the bytes of a cache where no limit is given."""
    return int(FREE_SHARE * psutil.virtual_memory().available)
