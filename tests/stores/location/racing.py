"""A process that races others for stores: ``python -m tests.stores.location.racing FOLDER LOG``.

It takes the lease of every store in turn, makes it or goes on with it, and logs when it was sure to
be the owner.
"""

import sys
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import numpy as np

from mercore.stores.location.lease import lease
from mercore.stores.part_store.header import Header, Layout, column_fields, open_header
from mercore.stores.part_store.part_store import PartStore, create

RACES, PARTS = 200, 4
LAYOUT = Layout(
    rows=4 * PARTS, part_rows=4, columns=[column_fields("atoms", "uint16", 3)], model={}
)
HEADER = Header(kind="codes", spec={"name": "test"}, layout=LAYOUT)
ATOMS = np.arange(12 * PARTS, dtype=np.uint16).reshape(-1, 3)


def race(folder: Path, log: Path) -> None:
    """Do what is left to do of every store, in the order of their numbers."""
    with log.open("ab", buffering=0) as file:
        for number in range(RACES):
            _take_a_turn(folder / str(number) / "codes", number, file)


def finish(path: Path, still_ours: Callable[[], None]) -> None:
    """Make the store if it is not there, and write every part that is not done."""
    store = PartStore(path, open_header(path)) if path.exists() else create(path, HEADER, {})
    store.sweep()
    for part in range(PARTS):
        if store.check_part(part) is not None:
            still_ours()
            store.write_part(part, {"atoms": ATOMS[4 * part : 4 * part + 4]})
    still_ours()


def _take_a_turn(path: Path, number: int, log: FileIO) -> None:
    """Finish a store that this process has the lease of, and log when it was the owner."""
    with lease(path) as handle:
        turn = time.monotonic_ns()

        def still_ours() -> None:
            moment = time.monotonic_ns()
            handle.check()  # it is ours after that moment, so it was at that moment
            log.write(f"{number} {turn} {moment}\n".encode())

        still_ours()
        finish(path, still_ours)


if __name__ == "__main__":
    race(Path(sys.argv[1]), Path(sys.argv[2]))
