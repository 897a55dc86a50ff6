"""From a path or a URL to the location that it names."""

import os
import posixpath
import re
from pathlib import Path

from mercore.stores.errors import InputError
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.protocol import Location

URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
OBJECT_SCHEME = "s3"

Where = str | Path | Location


def location_of(where: Where) -> Location:
    """Return the location that a path or a URL names.

    Raises
    ------
    InputError
        If it is a URL that names no prefix of an object store, or the client of object stores is
        not installed.
    """
    if not isinstance(where, str | Path):
        return where
    if scheme := scheme_of(where):
        if scheme != OBJECT_SCHEME:
            raise InputError(
                f"{scheme}:// names no location of a store: expected a path, "
                f"or {OBJECT_SCHEME}://BUCKET/PREFIX. Fix: name one of those."
            )
        try:
            from mercore.stores.location.s3 import s3_location
        except ImportError:
            raise InputError(
                f"{OBJECT_SCHEME}:// needs the package obstore: found none. Fix: pip install "
                "'mercore[s3]'"
            ) from None
        return s3_location(str(where))
    return LocalLocation(Path(where))


def relative_path(where: Where, store: Where) -> str | None:
    """Return the path of ``where`` from the folder of a store; None if both share no root."""
    (root, path), (store_root, store_path) = map(_root_and_path, (where, store))
    return posixpath.relpath(path, posixpath.dirname(store_path)) if root == store_root else None


def beside(store: Where, relative: str) -> str:
    """Return the path or URL that ``relative`` names from the folder of a store."""
    root, path = _root_and_path(store)
    return root + posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))


def _root_and_path(where: Where) -> tuple[str, str]:
    """Return the scheme and bucket of a URL, or nothing, and the absolute path below."""
    text = str(location_of(where).resolved())
    match = URL.match(text)
    if match is None:
        return "", text
    bucket, _, key = text[match.end() :].partition("/")
    return match[0] + bucket, f"/{key}"


def scheme_of(where: str | Path) -> str | None:
    """Return the scheme of a URL, or None for a path."""
    match = URL.match(str(where))
    return match["scheme"].lower() if match else None


def refuse_url(path: str, what: str) -> None:
    """Refuse a URL where only a file of this machine will do.

    Raises
    ------
    InputError
        If ``path`` is a URL.
    """
    if scheme := scheme_of(path):
        raise InputError(
            f"{what} cannot lie at a URL: found one of {scheme}://, expected a path of this "
            "machine. Fix: name a file here."
        )


def expand_home(path: str) -> str:
    """Return a path with the home folder in place of ``~``; no other path changes."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib raises for an unknown user


def real_path(path: str) -> str:
    """Return the one path that a file has, whatever links lead to it; a URL stays as it is."""
    return path if "://" in path else os.path.realpath(path)
