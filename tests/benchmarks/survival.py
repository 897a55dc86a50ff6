"""How often jobs ended as if nothing had happened, though what ran them was killed, or raced for
one store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from tests.soak import survival
from tests.support.running import files_of, histograms, succeed

Run = Callable[[int, Path, dict[str, bytes], Path], dict[str, Any]]


def measure(kills: int, races: int, folder: Path) -> dict[str, Any]:
    """Return what happened in so many runs with kills and in so many races; the first that ends
    otherwise raises."""
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
    return {
        "runs with a worker, the scheduler and the runner killed": len(killed),
        "races of two submitters × two runners": len(raced),
        "of them with a job killed": sum(run["seed"] % 2 for run in raced),
        "kills": killed,
        "races": raced,
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
