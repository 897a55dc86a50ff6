"""The folder of machine code, and the notices of compiling; numba is not loaded."""

import os
from pathlib import Path

from platformdirs import user_cache_path

NAMESPACE = "mercore"
NOTICE = "compiling loops for this processor, once"
CUSTOM_NOTICE = "compiling the custom kernel, for this command alone"


def cache_folder() -> Path:
    """Return the folder of machine code: ``NUMBA_CACHE_DIR``, or the user's cache folder."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given) / NAMESPACE if given else user_cache_path(NAMESPACE, appauthor=False) / "jit"


def distrust(path: Path) -> str | None:
    """Return why another user may have written a file or folder; None if only this user can."""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid}: expected {os.geteuid()}, who you are"
    if status.st_mode & 0o022:
        return f"can be written by others: found mode {status.st_mode & 0o777:o}, expected 700"
    return None


def is_first_use() -> bool:
    """Return whether there is no machine code yet, so that any search or encode compiles."""
    return not any(cache_folder().glob("*.nbi"))
