"""How often jobs ended as if nothing had happened, though what ran them was killed, or raced for
one store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from tests.benchmarks.reporting.tables import Row
from tests.soak import survival
from tests.support.running import files_of, histograms, succeed

Run = Callable[[int, Path, dict[str, bytes], Path], dict[str, Any]]


def measure(kills: int, races: int, folder: Path) -> list[Row]:
    """Return a row per kind of trial; the first trial that ends otherwise raises."""
    np.save(folder / "base.npy", histograms(survival.PARTS * survival.PART_ROWS, 24, seed=1))
    vectors = folder / "vectors"
    succeed("ingest", folder / "base.npy", vectors)
    succeed("encode", vectors, folder / "undisturbed", *survival.OPTIONS)
    undisturbed = files_of(folder / "undisturbed")

    def runs(name: str, count: int, run: Run) -> list[dict[str, Any]]:
        found = []
        for seed in range(count):
            found.append(run(seed, vectors, undisturbed, _made(folder / f"{name}-{seed}")))
            click.echo(f"{name} {seed + 1} of {count}: {found[-1]}", err=True)
        return found

    killed, raced = runs("kills", kills, survival.survive), runs("races", races, survival.race)
    harmed = sum(run["seed"] % 2 for run in raced)
    return [
        {"trial": name, "runs": count, "done, with the undisturbed bytes": count}
        for name, count in (
            ("kill -9 of a worker, then the scheduler, then the runner", len(killed)),
            ("race of two submitters and two runners on each of two queues", len(raced) - harmed),
            ("the same race, one of the two jobs killed -9", harmed),
        )
    ]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
