"""Two halves of a set: one to choose defaults by, and one to measure."""

from pathlib import Path

import numpy as np

from mercore.stores.rows import open_rows


def write_halves(base: str, queries: str, labels: str | None, out: Path) -> list[tuple[int, int]]:
    """Write ``base-0.npy``, ``queries-0.npy`` and those of half 1; return the rows of each.

    Rows with every second label are of half 0, or every second row without ``labels``, .npy. So are
    every second query.
    """
    rows, asked = (_every(path) for path in (base, queries))
    groups = np.arange(len(rows)) if labels is None else np.load(labels)
    numbers = np.unique(groups, return_inverse=True)[1]
    out.mkdir(parents=True, exist_ok=True)
    counts = []
    for half in (0, 1):
        chosen = rows[numbers % 2 == half], asked[half::2]
        for name, values in zip(("base", "queries"), chosen, strict=True):
            np.save(out / f"{name}-{half}.npy", values)
        counts.append((len(chosen[0]), len(chosen[1])))
    return counts


def _every(path: str) -> np.ndarray[tuple[int, int], np.dtype[np.number]]:
    source = open_rows(path)
    return source.read(0, source.shape[0])
