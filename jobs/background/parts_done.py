"""How far a job is, by the receipts in the store that it writes: nothing else is believed."""

import json
from typing import Any

from mercore.jobs.background.registry import Job
from mercore.stores.errors import MercoreError


def parts_done(job: Job) -> tuple[int, int] | None:
    """Return how many parts of a job's store have a receipt, and how many there are; None where none can be counted."""
    if job.verb != "encode" or job.target is None:
        return None
    from mercore.stores.location.resolve import location_of

    try:
        store = location_of(job.target)
        layout: dict[str, Any] = json.loads((store / "zarr.json").read())["attributes"]["mercore"]["layout"]
        parts = -(-layout["rows"] // layout["part_rows"])
        size_of = store.sizes()
        return sum(size_of(f"receipts/c/{part}/0") is not None for part in range(parts)), parts
    except (MercoreError, ValueError, KeyError, TypeError):  # no store yet, or another's
        return None
