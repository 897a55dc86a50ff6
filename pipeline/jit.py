"""Machine code of loops, kept on disk between runs for as long as no source that it is made of changes.

numba's own cache looks at the file of the outermost function alone. A helper in another file, or a constant, that was
changed since would live on in all loops that have it inlined: after an update in place, a bound might not be one.
"""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, overload

from numba import njit
from numba.core.caching import IndexDataCacheFile

Loop = TypeVar("Loop", bound=Callable[..., Any])
PACKAGES = {"mercore"}
_IMPORT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)


@overload
def loop(function: Loop) -> Loop: ...
@overload
def loop(**options: Any) -> Callable[[Loop], Loop]: ...
def loop(function: Any = None, **options: Any) -> Any:
    """Compile a function by ``numba.njit``, to run without the interpreter's lock, and keep the machine code on disk.

    Parameters
    ----------
    options : of ``njit``
    """
    if function is None:
        return lambda function: loop(function, **options)
    compiled: Any = njit(nogil=True, cache=True, **options)(function)
    if compiled is not function:  # which it is where the JIT is off
        kept = compiled._cache
        kept._cache_file = _MachineCode(kept.cache_path, kept._impl.filename_base, sources_digest(function.__module__))
    return compiled


class _MachineCode(IndexDataCacheFile):
    """The files of one function's machine code: their names tell of what sources it was made.

    A file that cannot be read, for a machine that went down while it was written, counts as none.
    """

    def __init__(self, folder: str, name: str, digest: str) -> None:
        super().__init__(folder, f"{name}.{digest}", digest)
        self._former = f"{name}.*.nb[ic]"

    def load(self, key: Any) -> Any:
        """Return the machine code for a signature and a processor, or None."""
        try:
            return super().load(key)
        except Exception:  # noqa: BLE001 - whatever bytes that are not what was written make of themselves
            return None

    def save(self, key: Any, data: Any) -> None:
        """Keep machine code, and remove that of other sources; where the disk is full, it is made again each time."""
        with suppress(OSError):
            super().save(key, data)
            for path in Path(self._cache_path).glob(self._former):
                if self._source_stamp not in path.name:
                    path.unlink(missing_ok=True)

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except Exception:  # noqa: BLE001
            return {}


def sources_digest(module: str) -> str:
    """Return the digest of a module's source, and of those that it imports from our packages or its own, and so on."""
    packages, digests, left = PACKAGES | {module.partition(".")[0]}, dict[str, str](), [module]
    while left:
        name = left.pop()
        if name not in digests and name.partition(".")[0] in packages:
            digests[name], imported = _read(name)
            left += imported
    return _digest(str(sorted(digests.items())))


@cache
def _read(name: str) -> tuple[str, list[str]]:
    """Return the digest of a loaded module's source, and the loaded modules that it imports from."""
    loader: Any = sys.modules[name].__loader__
    source = loader.get_source(name)
    imported: list[str] = []
    for module, names in _IMPORT.findall(source):
        imported += [module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))]
    return _digest(source), [each for each in imported if each in sys.modules]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
