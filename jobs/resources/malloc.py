"""What the C library does with blocks of memory that are freed."""

import ctypes
import os
from contextlib import suppress

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # as mallopt numbers them
KEPT = {  # what is set instead by the environment, and the most that glibc comes to by itself
    "MALLOC_MMAP_THRESHOLD_": (MMAP_THRESHOLD, 1 << 25),
    "MALLOC_TRIM_THRESHOLD_": (TRIM_THRESHOLD, 1 << 26),
}


def keep_freed_blocks() -> None:
    """Have blocks of up to 32 MiB kept for the next when they are freed, unless the environment says otherwise.

    Else those of megabytes, such as searches need again and again, may each come from the system, which clears every
    page anew: exact search of bags of words took 1.6 times as long. Libraries other than glibc are left as they are.
    """
    if not KEPT.keys() & os.environ.keys():
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            for parameter, size in KEPT.values():
                mallopt(parameter, size)
