"""Certificates: the arrays that prove an answer, and their description, in one ``.npz``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.npz import publish_npz, read_npz
from mercore.stores.location.scratch import sweep
from mercore.stores.spec import canonical_json, parse_json

ABOUT = "about"


def write_certificate(
    path: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]
) -> None:
    """Write ``arrays`` and their JSON-able description ``about``; equal contents give equal bytes.

    Raises
    ------
    InputError
        If the suffix is not ``.npz``, an array is called ``about``, or ``about`` is not JSON-able
        (NaN is not).
    StorageError
        If the path cannot be written.
    """
    _check_suffix(path)
    if ABOUT in arrays:
        raise InputError(
            f"{path}: an array is called {ABOUT}, expected any other name. Fix: rename it."
        )
    try:
        text = canonical_json(dict(about))
    except (TypeError, ValueError) as error:
        fix = "Fix: pass texts, finite numbers, lists and mappings."
        raise InputError(f"{path}: {ABOUT} is no JSON: {error}. {fix}") from error
    sweep(Path(path).parent, Path(path).name)
    publish_npz(Path(path), {**arrays, ABOUT: np.array(text)})


def read_certificate(path: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays of a certificate, read-only, and their description.

    Raises
    ------
    InputError
        If the suffix is not ``.npz``.
    FormatError
        If the file is damaged, or has no description.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    _check_suffix(path)
    arrays = read_npz(path)
    text = arrays.pop(ABOUT, None)
    if text is None or text.shape or text.dtype.kind != "U":
        kind = "no array" if text is None else f"{text.dtype}{list(text.shape)}"
        raise FormatError(
            f"{path}: {kind} {ABOUT}, expected a text that describes the arrays. Fix: name a "
            "certificate."
        )
    with damage_refused(path, f"{ABOUT} is no JSON"):
        about = parse_json(str(text))
    if not isinstance(about, dict):
        raise FormatError(
            f"{path}: {ABOUT} is {about!r:.100}, expected a JSON mapping. Fix: name a certificate."
        )
    return arrays, about


def _check_suffix(path: str) -> None:
    """Refuse a suffix that is not ``.npz``."""
    suffix = Path(path).suffix
    if suffix.lower() != ".npz":
        raise InputError(
            f"{path}: unknown suffix {suffix!r} for a certificate, expected .npz. Fix: "
            "rename the file."
        )
