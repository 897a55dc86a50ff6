"""Reports as people read them: data on stdout, remarks on stderr."""

from typing import Any

import click

from mercore.stores.results.hits import Hits

Report = dict[str, Any]


def tell_mapping(report: Report) -> None:
    """Print a report, a line a field."""
    width = max(map(len, report))
    for key, value in report.items():
        click.echo(f"{key:<{width}}  {_shown(value)}")


def tell_check(report: Report) -> None:
    """Print each fault, then the verdict."""
    for fault in report["faults"]:
        click.echo(fault)
    verdict = f"{len(report['faults'])} faults" if report["faults"] else "whole"
    click.echo(f"{report['path']}: {report['parts']} parts: {verdict}", err=True)


def tell_search(report: Report, hits: Hits) -> None:
    """Print query, rank, id and score, tab-separated, unless the hits went to a file; say on stderr what it took."""
    if "written" not in report:
        assert hits.scores is not None
        click.echo("query\trank\tid\tscore")
        for query, (ids, scores) in enumerate(zip(hits.ids.tolist(), hits.scores.tolist(), strict=True)):
            click.echo(
                "\n".join(
                    f"{query}\t{rank}\t{row}\t{score:.9g}"
                    for rank, (row, score) in enumerate(zip(ids, scores, strict=True), 1)
                )
            )
    written = f" → {', '.join(report['written'])}" if "written" in report else ""
    click.echo(
        f"{report['queries']:,} queries × {report['rows']:,} rows in {report['seconds']:.2f} s, "
        f"{report['ns_per_row_and_query']:.2f} ns a row and query{written}",
        err=True,
    )
    if "rows_scored" in report:
        click.echo(_proof(report), err=True)


def _proof(report: Report) -> str:
    """Return what an exact search proved, or a relaxed one did not, and what it took."""
    relaxed, claim = report["approximate"], "proved"
    if relaxed is not None:
        missed = f"{relaxed['failure_probability']:.3f}"
        claim = f"approximate: a neighbour is missed with an estimated probability of at most {missed}"
    shares = ", ".join(f"{name} {share:.4%}" for name, share in report["rows_scored"].items())
    return f"{claim}; rows scored by the true kernel: {shares}; {report['queries_with_ties']:,} queries with ties"


def tell_evaluation(report: Report) -> None:
    """Print the recalls as a table."""
    width = max(len(row["definition"]) for row in report["recall"])
    for row in report["recall"]:
        click.echo(f"{row['definition']:<{width}}  {row['rank']:>6}  {row['value']:.4f}")


def _shown(value: object) -> str:
    """Return a value with thousands separated, nested mappings on one line."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(entry)}" for key, entry in value.items())
    return str(value)


def hits_json(hits: Hits) -> Report:
    """Return hits as lists."""
    assert hits.scores is not None
    return {"ids": hits.ids.tolist(), "scores": hits.scores.astype(float).tolist()}
