"""Machine code on disk, in the user's cache folder, used only while its sources are unchanged.

numba's own cache checks the file of the outermost function alone: a changed helper or constant of
another file would live on in every function that inlines it, and a bound might not be a bound. It
also lies beside the sources, where it would outlive an uninstalled package.

Machine code is unpickled and run. A folder or a file that another user can write is never used.

Processes that need the same function share the work: one compiles it and holds a lock, the others
wait for the file. A first compilation that takes longer than a moment is logged.

The code of a custom kernel is not kept: modules that its file imports, and values that it computes
or reads, are constants in the code, and no digest of its text covers them.
"""

import fcntl
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import Timer
from typing import Any, ClassVar

import numba
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.runtime.nrt import rtsys

from mercore.stores.jit_cache.folder import (
    CUSTOM_NOTICE,
    NAMESPACE,
    NOTICE,
    cache_folder,
    distrust,
)

KEPT_SECONDS = 30 * 24 * 3600  # code of other sources: another installation may need it
LOGGER = logging.getLogger("mercore.jit")
MOMENT = 0.3  # seconds of compiling before it is logged
WAIT_SECONDS, POLL_SECONDS = 120, 0.01  # for another process that compiles the same function
_IMPORT = re.compile(r"^from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)


class _Locator:
    """The folder of a function's machine code, in the form that numba asks for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = function.__code__.co_filename  # numba names it in a warning

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> "_Locator":
        """Return the locator of a function."""
        return cls(function)

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(cache_folder())

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder is made with the first file."""

    def get_source_stamp(self) -> str:
        """Return nothing: the file's name holds the digest of the sources."""
        return ""

    def get_disambiguator(self) -> str:
        """Return the function's line: it separates functions of one name in one module."""
        return str(self._line)


class _Implementation(CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Locator]  # noqa: RUF012 - as numba declares it


class JitCache(FunctionCache):
    """The machine code of one function, one entry per signature and processor."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any], suffix: str = "") -> None:
        super().__init__(function)
        self._cache_file: _MachineCode
        digest = _digest(sources_digest(function.__module__) + numba.__version__)
        name = ".".join(filter(None, (self._impl.filename_base, suffix)))
        self._cache_file = _MachineCode(self.cache_path, name, digest)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the loaded machine code for a signature; None: compile it.

        numba would first register the functions that it can compile, which imports SciPy and takes
        a third of a second. Only its compiler needs these, and registers them itself.
        """
        rtsys.initialize(target)
        return self._load_overload(signature, target)

    def holds_code(self) -> bool:
        """Return whether there is machine code for any signature and constants."""
        return self._cache_file.holds_code()


class _MachineCode(IndexDataCacheFile):
    """The files of one function's machine code; their names hold the digest of its sources.

    A file that cannot be read, as after a crash of the machine, counts as missing. numba's compiler
    lock is held from the start of ``load`` to the end of ``save``.
    """

    _locks: ClassVar[dict[Path, int]] = {}  # functions that this process is compiling

    def __init__(self, folder: str, name: str, digest: str) -> None:
        super().__init__(folder, f"{name}.{digest}", digest)
        self._same_function = f"{name}.*.nb[ic]"
        self._function = name
        self._lock = Path(folder) / f"{name}.{digest}.lock"

    def load(self, key: Any) -> Any:
        """Return the machine code for a signature and a processor; None: compile it."""
        if not _is_trusted(self._cache_path):
            return None
        data = self._read(key)
        if data is None and self._claim():
            data = self._read(key)
            if data is not None:
                self._release()
        return data

    def save(self, key: Any, data: Any) -> None:
        """Write machine code, and remove old code of other sources; a full disk costs only time."""
        if not _is_trusted(self._cache_path):
            return
        with suppress(OSError):
            folder = Path(self._cache_path)
            super().save(key, data)
            for path in folder.glob(f"{self._function}.{self._source_stamp}.*nb[ic]"):
                path.chmod(0o600)  # whatever the umask: see ``_refuse_foreign``
            for path in folder.glob(self._same_function):
                if (
                    self._source_stamp not in path.name
                    and path.stat().st_mtime < time.time() - KEPT_SECONDS
                ):
                    path.unlink(missing_ok=True)
        self._release()

    def holds_code(self) -> bool:
        """Return whether there is machine code of these sources, or no folder to write it to."""
        folder = Path(self._cache_path)
        if not _is_trusted(self._cache_path) or not os.access(folder, os.W_OK):
            return True
        return any(folder.glob(f"{self._function}*{self._source_stamp}.nbi"))

    def _read(self, key: Any) -> Any:
        try:
            return super().load(key)
        except Exception:  # noqa: BLE001 - damaged bytes raise anything
            return None

    def _claim(self) -> bool:
        """Take this function's lock; return whether a process that may have compiled it had it."""
        if self._lock in self._locks:  # a function that calls itself
            return False
        waited, deadline = False, time.monotonic() + WAIT_SECONDS
        with suppress(OSError):
            file = os.open(self._lock, os.O_CREAT | os.O_RDWR, 0o600)
            _STOPWATCH.start()
            while not _locked(file) and time.monotonic() < deadline:
                waited = True
                time.sleep(POLL_SECONDS)
            _STOPWATCH.stop()
            self._locks[self._lock] = file
        return waited

    def _release(self) -> None:
        """Release the lock."""
        file = self._locks.pop(self._lock, None)
        if file is not None:
            self._lock.unlink(missing_ok=True)
            os.close(file)

    def _load_index(self) -> Any:
        try:
            _refuse_foreign(self._index_path)
            return super()._load_index()
        except Exception:  # noqa: BLE001
            return {}

    def _load_data(self, name: str) -> Any:
        _refuse_foreign(self._data_path(name))
        return super()._load_data(name)


@cache
def _is_trusted(folder: str) -> bool:
    """Return whether only this user can write the folder, which is made; else log why not."""
    with suppress(OSError):
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        if reason := distrust(Path(folder)):
            logging.getLogger("mercore.cache").warning(
                "machine code is not kept, but compiled anew: %s %s. Fix: name a folder of your "
                "own with NUMBA_CACHE_DIR.",
                folder,
                reason,
            )
            return False
    return True


def _refuse_foreign(path: str) -> None:
    """Raise ``PermissionError`` for a file that another user can write."""
    if distrust(Path(path)):
        raise PermissionError(path)


def _locked(file: int) -> bool:
    """Try to take the exclusive lock of a file; return whether it was free."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Stopwatch(event.Listener):
    """The time that this process compiles, or waits for compiled code; logged once it is long.

    Functions whose code is ``kept`` on disk have one stopwatch, and custom kernels another. Those
    of numba itself have none: they are compiled while one of ours is.
    """

    def __init__(self, notice: str, *, kept: bool) -> None:
        self._notice, self._kept = notice, kept
        self._depth, self._spent, self._began = 0, 0.0, 0.0
        self._timer: Timer | None = None
        self._logged = False

    def on_start(self, compiling: Any) -> None:
        """Start: a function, or one that it calls, begins to compile."""
        if self._times(compiling):
            self.start()

    def on_end(self, compiling: Any) -> None:
        """Stop: it is compiled."""
        if self._times(compiling):
            self.stop()

    def start(self) -> None:
        """Start, or continue."""
        self._depth += 1
        if self._depth == 1 and not self._logged:
            self._began = time.monotonic()
            self._timer = Timer(max(0.0, MOMENT - self._spent), self._log)
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Pause."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.monotonic() - self._began

    def _times(self, compiling: Any) -> bool:
        dispatcher = compiling.data["dispatcher"]
        numbas = dispatcher.py_func.__module__.startswith("numba.")
        return not numbas and isinstance(dispatcher._cache, JitCache) is self._kept

    def _log(self) -> None:
        self._logged = True
        LOGGER.info(self._notice)


_STOPWATCH = _Stopwatch(NOTICE, kept=True)
event.register("numba:compile", _STOPWATCH)
event.register("numba:compile", _Stopwatch(CUSTOM_NOTICE, kept=False))


def sources_digest(module: str) -> str:
    """Return the digest of a module and of all modules that it imports from its package or ours."""
    packages, digests, left = {NAMESPACE, module.partition(".")[0]}, dict[str, str](), [module]
    while left:
        name = left.pop()
        if name not in digests and name.partition(".")[0] in packages:
            digests[name], imported = _read(name)
            left += imported
    return _digest(str(sorted(digests.items())))


@cache
def _read(name: str) -> tuple[str, list[str]]:
    """Return the digest of a loaded module's source, and the loaded modules that it imports."""
    loader: Any = sys.modules[name].__loader__
    source = loader.get_source(name) or ""  # a namespace package has none
    imported: list[str] = []
    for module, names in _IMPORT.findall(source):
        imported += [module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))]
    return _digest(source), [each for each in imported if each in sys.modules]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
