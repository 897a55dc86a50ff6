"""Machine code on disk, in the user's cache folder: used again only while no source that it was made of has changed.

numba's own cache looks at the file of the outermost function alone. A helper in another file, or a constant, that was
changed since would live on in every function that has it inlined: after an update in place, a bound might not be one.
numba's cache also lies beside the sources, where it would outlive an uninstalled package.
"""

import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from platformdirs import user_cache_path

NAMESPACE = "mercore"
KEPT_SECONDS = 30 * 24 * 3600  # machine code of other sources may belong to another installation: it stays so long
_IMPORT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)


def cache_folder() -> Path:
    """Return the folder of machine code: ``NUMBA_CACHE_DIR`` if it is set, else the user's cache folder."""
    given: str = getattr(numba.config, "CACHE_DIR")  # noqa: B009 - numba sets it by setattr
    return Path(given) / NAMESPACE if given else user_cache_path(NAMESPACE, appauthor=False) / "jit"


class _Locator:
    """Where numba is to keep a function's machine code: as numba asks for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = function.__code__.co_filename  # numba names it in a warning

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> "_Locator":
        """Return the place for a function."""
        return cls(function)

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(cache_folder())

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder is made when something is written."""

    def get_source_stamp(self) -> str:
        """Return nothing: the digest of the sources is in the file's name."""
        return ""

    def get_disambiguator(self) -> str:
        """Return what tells functions of one name in one module apart."""
        return str(self._line)


class _Implementation(CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Locator]  # noqa: RUF012 - as numba declares it


class JitCache(FunctionCache):
    """The machine code of one function, for every signature and processor that it was compiled for."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        digest = _digest(sources_digest(function.__module__) + numba.__version__)
        self._cache_file = _MachineCode(self.cache_path, self._impl.filename_base, digest)


class _MachineCode(IndexDataCacheFile):
    """The files of one function's machine code; their names hold the digest of its sources.

    A file that cannot be read, because the machine went down while it was written, counts as missing.
    """

    def __init__(self, folder: str, name: str, digest: str) -> None:
        super().__init__(folder, f"{name}.{digest}", digest)
        self._same_function = f"{name}.*.nb[ic]"

    def load(self, key: Any) -> Any:
        """Return the machine code for a signature and a processor, or None."""
        try:
            return super().load(key)
        except Exception:  # noqa: BLE001 - damaged bytes raise anything
            return None

    def save(self, key: Any, data: Any) -> None:
        """Write machine code, and remove old code of other sources; a full disk costs only time."""
        with suppress(OSError):
            folder = Path(self._cache_path)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            super().save(key, data)
            for path in folder.glob(self._same_function):
                if self._source_stamp not in path.name and path.stat().st_mtime < time.time() - KEPT_SECONDS:
                    path.unlink(missing_ok=True)

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except Exception:  # noqa: BLE001
            return {}


def sources_digest(module: str) -> str:
    """Return the digest of a module's source and of all modules of our namespace or its own that it imports from."""
    packages, digests, left = {NAMESPACE, module.partition(".")[0]}, dict[str, str](), [module]
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
    source = loader.get_source(name) or ""  # a namespace has none
    imported: list[str] = []
    for module, names in _IMPORT.findall(source):
        imported += [module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))]
    return _digest(source), [each for each in imported if each in sys.modules]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
