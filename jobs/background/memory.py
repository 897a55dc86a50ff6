"""Peak memory of a process and its children, as the system counts it."""

from contextlib import suppress
from pathlib import Path

PEAK = "VmHWM:"  # psutil knows no peak, and reads every process to find the children of one


def peak_bytes(pid: int) -> int:
    """Return the sum of the peak resident memory of a process and of its living descendants.

    It is 0 if the system does not say.
    """
    return _own_peak(pid) + sum(map(peak_bytes, _children(pid)))


def _own_peak(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(PEAK):
                return int(line.split()[1]) << 10
    return 0


def _children(pid: int) -> list[int]:
    """Return the children of a process, which any of its threads may have started."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found
