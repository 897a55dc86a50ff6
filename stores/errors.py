"""The tree of errors; a message says what is wrong, found, expected, where, and the fix."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from mercore.stores.wording import render

# Packages that one feature alone needs, and what pip installs to have each.
INSTALLED_BY = {
    "PIL": "'mercore[images]'",
    "h5py": "'mercore[hdf5]'",
    "jinja2": "'mercore[report]'",
    "matplotlib": "'mercore[report]'",
    "obstore": "'mercore[s3]'",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "'mercore[arrow]'",
}


class MercoreError(Exception):
    """The base of every error that mercore raises for its user.

    Its text names options as Python's keywords; ``message`` has them as data (``wording.py``).
    """

    code: ClassVar[str] = "error"

    @property
    def message(self) -> str:
        """The text with its options as data, for another front end or another error's text."""
        return super().__str__()

    def __str__(self) -> str:
        """Return the text with options as keywords."""
        return render(self.message)


class MercoreWarning(UserWarning):
    """A result that is right, and may not be the one that was meant."""


class InputError(MercoreError, ValueError):
    """Values or options of the input are not usable."""

    code = "input"


class ShapeError(InputError):
    """An array has the wrong shape, or a count is out of range."""

    code = "shape"


class NotFoundError(MercoreError):
    """A path does not exist."""

    code = "not-found"


class ExistsError(MercoreError):
    """A path to write to exists and holds something else."""

    code = "exists"


class FormatError(MercoreError):
    """A file's header, size or version does not fit its format."""

    code = "format"


class IntegrityError(MercoreError):
    """Bytes on disk are missing, or differ from their receipt."""

    code = "integrity"


class BudgetError(MercoreError):
    """The work does not fit the memory or disk that it may use."""

    code = "budget"


class CostError(MercoreError):
    """The work would cost more than it saves, so nothing was made."""

    code = "cost"


class LeaseError(MercoreError):
    """The lease of a store was lost: another process may write to it."""

    code = "lease"


class ClusterError(MercoreError):
    """The Dask cluster cannot be reached, or lost the work."""

    code = "cluster"


class StorageError(MercoreError):
    """The operating system or object store refused to read or write (disk full, no permission)."""

    code = "storage"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number and its noun: 1 part, 2,000 parts; ``many`` is a plural without -s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


@contextmanager
def naming_extras() -> Iterator[None]:
    """Say what to install, if the block needs a package of ``INSTALLED_BY`` that is not there.

    Raises
    ------
    InputError
        If it does.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in INSTALLED_BY:
            raise
        raise InputError(
            f"this needs the package {package}: found none. Fix: pip install "
            f"{INSTALLED_BY[package]}"
        ) from None
