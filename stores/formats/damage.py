"""Damaged files: what other libraries raise for them becomes a ``FormatError``."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from mercore.stores.errors import FormatError, MercoreError
from mercore.stores.location.publish import storage_errors

MOST_SHOWN = 200  # characters of another library's text


@contextmanager
def damage_refused(
    name: str, wrong: str, fix: str = "fetch or write the file again"
) -> Iterator[None]:
    """Turn errors of a library that reads the file ``name`` into a ``FormatError``.

    Libraries raise anything for damaged bytes. Errors of the operating system become ours.

    Parameters
    ----------
    wrong : the sentence of the error, such as "the zip is damaged"
    """
    with storage_errors("read", name):
        try:
            yield
        except MercoreError:
            raise
        except Exception as error:
            # Libraries raise OSError too: without a number, or for a seek that damage asked for.
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            raise FormatError(f"{name}: {wrong} ({first_line(error)}). Fix: {fix}.") from error


def first_line(error: BaseException) -> str:
    """Return the first line of the text of an error, or its kind if it has none."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return " ".join(line.split())[:MOST_SHOWN].rstrip(". ")
