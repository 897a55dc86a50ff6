"""The results of a comparison: means and deviations over seeds, and the curves of a picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.comparison.plot import Curve, Panel
from mercore.jobs.options import Report
from mercore.jobs.printing import encoder_label


def summarise(runs: Sequence[Report]) -> list[Report]:
    """Return means and deviations over the seeds per kernel, encoder and search."""
    groups: dict[tuple[str, str], list[Report]] = {}
    for record in runs:
        groups.setdefault((record["kernel_label"], record["label"]), []).append(record)
    return [
        _summary(group, searches)
        for group in groups.values()
        for searches in zip(*map(searches_of, group), strict=True)
    ]


def searches_of(record: Report) -> list[Report]:
    """Return the searches of a run: of the codes alone, then with more and more hits reranked."""
    reranked = record.get("reranked", [])
    return [record["search"], *(reranked if isinstance(reranked, list) else [reranked])]


def recall_at(search: Report) -> dict[int, float]:
    """Return R@r per rank r: the share of queries whose true nearest is among the first r found."""
    return {row["rank"]: row["value"] for row in search["recall"] if row["definition"] == "texmex"}


def recall_panels(summary: Sequence[Report], rows: int | None) -> list[Panel]:
    """Return one panel per kernel, with one curve per line of its table.

    ``rows`` are those of the store; if they are None, no curve has a speed.
    """
    curves: dict[str, list[Curve]] = {}
    for entry, following in zip(summary, [*summary[1:], {"reranked": None}], strict=True):
        each = entry["search_ns_per_row_and_query"]
        curve = Curve(
            label=f"{encoder_label(entry)} ({entry['bytes_per_row']} bytes)",
            ranks=entry["ranks"],
            means=entry["recall_mean"],
            deviations=entry["recall_std"],
            speed=1e9 / (each * rows) if rows else None,
            size=entry["bytes_per_row"],
            dashed=bool(entry["reranked"]),
            between=bool(entry["reranked"] and following["reranked"]),
        )
        curves.setdefault(entry["kernel"], []).append(curve)
    return [Panel(title=kernel, curves=drawn) for kernel, drawn in curves.items()]


def _summary(runs: Sequence[Report], searches: Sequence[Report]) -> Report:
    """Return the means of an encoder's runs, and the sample standard deviation of R@r.

    ``searches`` holds one search per run, all with the same number of reranked hits.
    """
    first, recalls = runs[0], [recall_at(search) for search in searches]
    accuracies = [search["accuracy"] for search in searches if "accuracy" in search]
    return {
        "kernel": first["kernel_label"],
        "encoder": first["label"],
        "reranked": searches[0].get("rerank"),
        "seeds": len(runs),
        "bytes_per_row": first["bytes_per_row"],
        "operations": first["operations"],
        "ranks": list(recalls[0]),
        **_spread("recall", np.array([list(recall.values()) for recall in recalls])),
        **(_spread("accuracy", np.array(accuracies)) if accuracies else {}),
        **_atoms(runs, searches),
        "search_ns_per_row_and_query": float(
            np.mean([search["ns_per_row_and_query"] for search in searches])
        ),
        "encode_us_per_row": float(np.mean([record["encode_us_per_row"] for record in runs])),
    }


def _atoms(runs: Sequence[Report], searches: Sequence[Report]) -> Report:
    """Return the mean shares of atoms among the rows and among the first hits, if there are any."""
    if not all("atoms" in each for each in (*runs, *searches)):  # older records have none
        return {}
    of_rows, of_hits = (np.mean([each["atoms"] for each in some]) for some in (runs, searches))
    return {"atoms_of_rows": float(of_rows), "atoms_of_hits": float(of_hits)}


def _spread(name: str, values: NDArray[Any]) -> Report:
    """Return the mean and the sample standard deviation over the runs, 0 for a single one."""
    several = len(values) > 1
    deviation = values.std(axis=0, ddof=1) if several else np.zeros_like(values[0])
    return {f"{name}_mean": values.mean(axis=0).tolist(), f"{name}_std": deviation.tolist()}
