"""Packages that one feature alone needs, and the extra of mercore that installs each."""

from collections.abc import Iterator
from contextlib import contextmanager

from mercore.stores.errors import InputError

EXTRAS = {
    "PIL": "images",
    "h5py": "hdf5",
    "jinja2": "report",
    "matplotlib": "report",
    "obstore": "s3",
    "pyarrow": "arrow",
}


@contextmanager
def naming_extras() -> Iterator[None]:
    """Name the extra to install, if the block needs a package of one that is not installed.

    Raises
    ------
    InputError
        If it does.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise InputError(
            f"this needs the package {package}: found none. Fix: pip install "
            f"'mercore[{EXTRAS[package]}]'"
        ) from None
