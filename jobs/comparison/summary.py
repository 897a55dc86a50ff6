"""What a comparison found: means and deviations over seeds, a table a kernel, and curves."""

from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from mercore.jobs.comparison.plot import Curve, Panel

Report = dict[str, Any]


def tell(report: Report) -> None:
    """Print a table a kernel; times are ns a row and query, tables included, and µs a row, fitting included."""
    for number, kernel in enumerate(dict.fromkeys(entry["kernel"] for entry in report["summary"])):
        data = f"{report['rows']:,} rows, {report['query_count']:,} queries, k = {report['ranks'][-1]}"
        click.echo("\n" * bool(number) + f"{kernel}: {data}")
        entries = [entry for entry in report["summary"] if entry["kernel"] == kernel]
        header = ["encoder", "bytes a row", *(f"R@{rank}" for rank in report["ranks"]), "search ns", "encode µs"]
        lines = [header, *(_line(entry, report["ranks"]) for entry in entries)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for first, *others in lines:
            figures = (f"{word:>{width}}" for word, width in zip(others, widths[1:], strict=True))
            click.echo("  ".join([f"{first:<{widths[0]}}", *figures]))
    for path in report.get("written", []):
        click.echo(f"written: {path}", err=True)


def summarise(runs: Sequence[Report], ways: Sequence[str]) -> list[Report]:
    """Return the means of every encoder's runs on a kernel, for each way of searching: ``search``, ``reranked``."""
    groups: dict[tuple[str, str], list[Report]] = {}
    for record in runs:
        groups.setdefault((record["kernel_label"], record["label"]), []).append(record)
    return [_summary(group, way) for group in groups.values() for way in ways]


def recall_at(search: Report) -> dict[int, float]:
    """Return R@r by rank: the share of queries whose true first is among the first r found."""
    return {row["rank"]: row["value"] for row in search["recall"] if row["definition"] == "texmex"}


def panels(summary: Sequence[Report]) -> list[Panel]:
    """Return what is drawn: a panel a kernel, a curve a line of its table."""
    curves: dict[str, list[Curve]] = {}
    for entry in summary:
        curve = Curve(
            label=f"{_name(entry)} ({entry['bytes_per_row']} bytes)",
            ranks=entry["ranks"],
            means=entry["recall_mean"],
            deviations=entry["recall_std"],
            dashed=bool(entry["reranked"]),
        )
        curves.setdefault(entry["kernel"], []).append(curve)
    return [Panel(title=kernel, curves=drawn) for kernel, drawn in curves.items()]


def _summary(runs: Sequence[Report], way: str) -> Report:
    """Return the mean of an encoder's runs, with the standard deviation of R@r over them (of a sample: n − 1)."""
    first = runs[0]
    recalls = [recall_at(record[way]) for record in runs]
    values = np.array([list(recall.values()) for recall in recalls])
    deviations = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(values.shape[1])
    return {
        "kernel": first["kernel_label"],
        "encoder": first["label"],
        "reranked": first[way].get("rerank"),
        "seeds": len(runs),
        "bytes_per_row": first["bytes_per_row"],
        "operations": first["operations"],
        "ranks": list(recalls[0]),
        "recall_mean": values.mean(axis=0).tolist(),
        "recall_std": deviations.tolist(),
        "search_ns_per_row_and_query": float(np.mean([record[way]["ns_per_row_and_query"] for record in runs])),
        "encode_us_per_row": float(np.mean([record["encode_us_per_row"] for record in runs])),
    }


def _line(entry: Report, ranks: Sequence[int]) -> list[str]:
    """Return a line of the table."""
    figures = zip(entry["ranks"], entry["recall_mean"], entry["recall_std"], strict=True)
    spread = entry["seeds"] > 1
    recall = [f"{mean:.3f}" + f" ± {std:.3f}" * spread for rank, mean, std in figures if rank in ranks]
    speed = [f"{entry[key]:.2f}" for key in ("search_ns_per_row_and_query", "encode_us_per_row")]
    return [_name(entry), str(entry["bytes_per_row"]), *recall, *speed]


def _name(entry: Report) -> str:
    """Return what a line or a curve is called."""
    return f"{entry['encoder']}, {entry['reranked']} reranked" if entry["reranked"] else str(entry["encoder"])
