"""Settings of the C library for freed blocks of memory."""

import ctypes
import os
from contextlib import suppress

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # as mallopt numbers them
# Per environment variable: the parameter of mallopt, and the most that glibc adapts it to.
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": (MMAP_THRESHOLD, 1 << 25),
    "MALLOC_TRIM_THRESHOLD_": (TRIM_THRESHOLD, 1 << 26),
}


def keep_freed_blocks() -> None:
    """Let glibc keep freed blocks of up to 32 MiB for reuse, unless the environment sets this.

    Without this, large blocks are returned to the system and cleared again at each use: exact
    search of bags of words takes 1.6 times as long. Other C libraries are left as they are.
    """
    if not KEPT.keys() & os.environ.keys():
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            for parameter, size in KEPT.values():
                mallopt(parameter, size)
