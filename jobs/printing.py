"""Reports as text for people: data on stdout, remarks on stderr; formats of sizes and times."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mercore.jobs.notices import echo, printable
from mercore.stores.errors import counted
from mercore.stores.spec import in_words

if TYPE_CHECKING:
    from rich.table import Table

    from mercore.pipeline.search.choices.bound import Measured
    from mercore.pipeline.search.choices.transform import TransformChoice
    from mercore.stores.results.hits import Hits
    from mercore.stores.results.range_hits import RangeHits

Report = dict[str, Any]

UNBROKEN = 1 << 20  # the width of a table that no terminal shows: none of its lines is broken
PLAN_LABELS = {
    "bytes": "bytes on disk",
    "bytes_there": "already there",
    "free": "free there",
    "memory": "memory, at most",
}


def format_size(count: float) -> str:
    """Return a number of bytes with three digits and a decimal unit: 1.23 GB."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:  # what is rounded to 1000 has the next unit
            return f"{count:.3g} {unit}"
    return f"{_three_digits(count / 1000)} TB"


def format_seconds(seconds: float) -> str:
    """Return a time in the unit that suits it: 12.3 ms, 4.56 s, 34 min, 5.6 h, 3.2 days."""
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, hours = seconds / 60, seconds / 3600
    if hours < 48:
        return f"{minutes:.0f} min" if minutes < 120 else f"{hours:.1f} h"
    return f"{hours / 24:.1f} days"


def print_report(report: Report) -> None:
    """Print a report, one line per field."""
    print_fields({key: _format(value) for key, value in report.items()})


def print_check(report: Report) -> None:
    """Print each fault, then the verdict."""
    for fault in report["faults"]:
        echo(fault)
    verdict = counted(len(report["faults"]), "fault") if report["faults"] else "whole"
    echo(f"{report['path']}: {counted(report['parts'], 'part')}: {verdict}", err=True)


def print_info(report: Report) -> None:
    """Print the description of a store or file: hits and certificates in one line."""
    if report["kind"] not in ("hits", "certificate"):
        print_report(report)
        return
    if report["kind"] == "hits":
        queries = counted(report["queries"], "query", "queries")
        fields = {
            "hits": f"{queries} × {report['k']:,}, ids{' and scores' * bool(report['scores'])}"
        }
        fields |= {"certificate": report["certificate"]} if "certificate" in report else {}
        print_fields(fields)
        return
    shown = ("kind", "path", "query_count")
    queries = counted(report["query_count"] or 0, "query", "queries")
    about = {key: value for key, value in report.items() if key not in shown}
    print_report({"certificate": queries, **about})


def print_search(report: Report, hits: "Hits | RangeHits") -> None:
    """Print query, rank, id, name and score, tab-separated, unless the hits are in a file.

    There is no name if the hits are not named, and an empty one where it is missing. The cost goes
    to stderr.
    """
    if "written" not in report:
        naming = hits.naming
        named = naming.of(hits.lists()[1]).tolist() if naming else []
        names = (f"{printable('' if name is None else str(name))}\t" for name in named)
        click.echo("\t".join(("query", "rank", "id", *["name"] * bool(naming), "score")))
        for query in range(len(hits)):
            ids, scores = (values.tolist() for values in hits.of(query))
            lines = [
                f"{query}\t{rank}\t{row}\t{next(names, '')}{score:.9g}\n"
                for rank, (row, score) in enumerate(zip(ids, scores, strict=True), 1)
            ]
            click.echo("".join(lines), nl=False)
    written = f" → {', '.join(report['written'])}" if "written" in report else ""
    echo(f"{_work(report)}, {_speed(report)}{written}", err=True)
    if "rows_scored" in report:
        click.echo(_proof(report), err=True)
    if "probes" in report:
        click.echo(_probed(report), err=True)
    if "candidates_per_query" in report:
        few = f"{report['candidates_per_query']:,.1f} ({report['share_of_rows']:.4%})"
        orders = counted(report["orders"], "order")
        click.echo(f"rows scored per query: {few}, from {orders}", err=True)


def _probed(report: Report) -> str:
    """Return the line about the cells that a search probed."""
    share = f"{report['rows_per_query']:,.1f} ({report['share_of_rows']:.4%})"
    line = f"rows scanned per query: {share}, in {report['probes']:,} of {report['cells']:,} cells"
    if report["reranked"]:
        line += f"; reranked: {report['reranked']:,}"
    if report["expected_recall"] is None:
        return line
    return f"{line}; expected recall: {report['expected_recall']:.3f}, that of sampled rows"


def print_pairs(report: Report, hits: "RangeHits") -> None:
    """Print first, second and score, tab-separated, unless the pairs are in a file.

    What they say goes to stderr.
    """
    if "written" not in report:
        click.echo("first\tsecond\tscore\n" * (report["pairs"] > 0), nl=False)
        for first in range(len(hits)):
            ids, scores = (values.tolist() for values in hits.of(first))
            pairs = zip(ids, scores, strict=True)
            lines = [f"{first}\t{second}\t{score:.9g}\n" for second, score in pairs]
            click.echo("".join(lines), nl=False)
    written = f" → {', '.join(report['written'])}" if "written" in report else ""
    ended = ", and the search ended there" if report["refuted"] else ""
    found = counted(report["pairs"], "pair") if report["pairs"] else "no pair is within"
    echo(f"{_work(report)}: {found}{ended}{written}", err=True)
    click.echo(_proof(report), err=True)
    if "groups" in report:
        groups = counted(report["groups"], "group")
        drop = f"{report['rows_to_drop']:,} rows to drop"
        echo(f"{groups}, {drop} → {report['written_groups']}", err=True)


def print_verdicts(report: Report, *, every: bool = False) -> None:
    """Print the queries that are not proved, or ``every`` query, tab-separated, one per line.

    Only a refuted query has a rank, the id claimed there, a better id and the score of that. The
    numbers of verdicts go to stderr.
    """
    columns = ("query", "verdict", "rank", "claimed", "better", "score")
    click.echo("\t".join(columns))
    for verdict in report["verdicts"]:
        if verdict["verdict"] == "proved" and not every:
            continue
        click.echo("\t".join(str(verdict.get(name, "")) for name in columns))
    counts = ", ".join(f"{report[word]:,} {word}" for word in ("proved", "tied", "refuted"))
    click.echo(f"{_work(report)}: {counts}", err=True)


def print_evaluation(report: Report) -> None:
    """Print the recalls as a table: definition, rank, value; "–" stands for no value.

    The number of pairs of an overlap goes to stderr.
    """
    table = _table("definition", "rank", "value")
    for row in report["recall"]:
        value = "–" if row["value"] is None else f"{row['value']:.4f}"
        table.add_row(row["definition"], str(row["rank"]), value)
    print_table(table)
    for row in report["recall"]:
        if "pairs" in row:
            click.echo(_pairs(row), err=True)


def print_comparison(report: Report) -> None:
    """Print one table per kernel."""
    kernels = dict.fromkeys(entry["kernel"] for entry in report["summary"])
    for number, kernel in enumerate(kernels):
        queries = counted(report["query_count"], "query", "queries")
        data = f"{counted(report['rows'], 'row')}, {queries}, k = {report['ranks'][-1]}"
        click.echo("\n" * bool(number), nl=False)
        echo(f"{kernel}: {data}")
        entries = [entry for entry in report["summary"] if entry["kernel"] == kernel]
        header, *lines = comparison_table(entries, report["ranks"])
        table = _table(*header)
        for line in lines:
            table.add_row(*line)
        print_table(table)
    for path in report.get("written", []):
        echo(f"written: {path}", err=True)


def comparison_table(entries: Sequence[Report], ranks: Sequence[int]) -> list[list[str]]:
    """Return the table of encoders under one kernel: its header, and a line per encoder and search.

    Times are ns per row and query, tables included, and µs per encoded row, fitting included. The
    accuracy is shown if the comparison had labels; the shares of atoms among the rows and among the
    first hits, if an encoder has atoms: where they differ much, recall is that of atoms.
    """
    measures = [f"R@{rank}" for rank in ranks]
    measures += ["accuracy"] * any("accuracy_mean" in entry for entry in entries)
    atoms = ["atoms: rows, hits"] * any("atoms_of_rows" in entry for entry in entries)
    lines = [["encoder", "bytes per row", *measures, *atoms, "search ns", "encode µs"]]
    for entry in entries:
        recalls = zip(entry["ranks"], entry["recall_mean"], entry["recall_std"], strict=True)
        shown = [spread for rank, *spread in recalls if rank in ranks]
        if "accuracy_mean" in entry:
            shown.append([entry["accuracy_mean"], entry["accuracy_std"]])
        several = entry["seeds"] > 1
        shares = [f"{mean:.3f}" + f" ± {std:.3f}" * several for mean, std in shown]
        times = [
            f"{entry[name]:.2f}" for name in ("search_ns_per_row_and_query", "encode_us_per_row")
        ]
        missing = ["–"] * (len(measures) - len(shares))
        size, kinds = str(entry["bytes_per_row"]), ("atoms_of_rows", "atoms_of_hits")
        if "atoms_of_rows" in entry:
            own = [", ".join(f"{entry[kind]:.1%}" for kind in kinds)]
        else:
            own = ["–"] * len(atoms)
        lines.append([printable(encoder_label(entry)), size, *shares, *missing, *own, *times])
    return lines


def encoder_label(entry: Report) -> str:
    """Return the name of a line or curve: the encoder, and the number of reranked hits."""
    return (
        f"{entry['encoder']}, {entry['reranked']} reranked"
        if entry["reranked"]
        else str(entry["encoder"])
    )


def print_run(record: Report, recall: Mapping[int, float], *, known: bool) -> None:
    """Print recalls and times of one run on stderr; ``known``: the run was recorded before."""
    figures = ", ".join(f"R@{rank} {value:.3f}" for rank, value in recall.items())
    times = [
        format_seconds(seconds)
        for seconds in (record["encode_seconds"], record["search"]["seconds"])
    ]
    took = "recorded before" if known else "encoded in {}, searched in {}".format(*times)
    echo(
        f"{record['kernel_label']}: {record['label']}, seed {record['seed']}: {figures}; {took}",
        err=True,
    )


def print_bounds(measured: "Sequence[Measured]", every_row: float, *, k: int, batch: int) -> None:
    """Print the cost of exact searches on stderr: by each bound and by none, the best first.

    ``every_row`` is the cost of scoring every row, in ns per row and query.
    """
    queries = counted(batch, "query", "queries")
    setting = f"{counted(k, 'neighbour')} in batches of {queries}"
    click.echo(f"expected cost of exact searches for {setting}:", err=True)
    table = _table("bound", "size", "bytes per row", "rows scored", "ns per row and query")
    rows = [(every_row, ("every row", "", "", "100%", f"{every_row:.2f}"))]
    for bound in measured:
        fields = vars(bound.spec)
        size = str(fields.get("n_components", fields.get("n_groups")))
        words = bound.spec.name, size, str(bound.bytes), f"{bound.share:.3%}", f"{bound.cost:.2f}"
        rows.append((bound.cost, words))
    for _, words in sorted(rows):
        table.add_row(*words)
    print_table(table, err=True)


def print_transforms(choice: "TransformChoice") -> None:
    """Print on stderr the chosen s of a transform, and the recall of codes with each s."""
    recalls = ", ".join(f"{recall:.3f} with {s:g}" for s, recall in choice.recalls.items())
    queries = counted(choice.queries, "query", "queries")
    click.echo(
        f"chosen: --transform {choice.scale:g}; R@{choice.rank} of {queries} in "
        f"a sample of {counted(choice.rows, 'row')}: {recalls}",
        err=True,
    )


def print_plan(report: Report) -> None:
    """Print a plan: bytes, memory, and the time per number of cores."""
    fields = {
        label: format_size(report[name])
        for name, label in PLAN_LABELS.items()
        if report.get(name) is not None
    }
    if "bytes_of" in report:
        sizes = (f"{name} {format_size(size)}" for name, size in report["bytes_of"].items() if size)
        fields["by content"] = ", ".join(sizes)
    for name in ("rows", "parts", "parts_left", "passes", "batch"):
        if name in report:
            fields[name.replace("_", " ")] = f"{report[name]:,}"
    for entry in report["times"]:
        times = (
            f"{key.removeprefix('seconds').strip('_')} {format_seconds(value)}".lstrip()
            for key, value in entry.items()
            if key.startswith("seconds")
        )
        label = f"on {counted(entry['cores'], 'core')}"
        fields[label] = ", ".join(times) + " (extrapolated)" * (not entry["measured"])
    if any("seconds_busy" in entry for entry in report["times"]):
        fields["busy"] = "other processes slow this machine now; busy is the time if they go on"
    print_fields(fields)


def print_page(report: Report) -> None:
    """Print the path of a page; the recalls at ranks 1, 10, 100 and so on go to stderr."""
    for search, recalls in report.get("recall", {}).items():
        figures = ", ".join(
            f"{row['definition']}@{row['rank']} {row['value']:.3f}"
            for row in recalls
            if str(row["rank"]).strip("0") == "1"
        )
        echo(f"{search}: {figures}", err=True)
    click.echo("The page:", err=True)
    echo(report["page"])


def print_fields(fields: Mapping[str, str]) -> None:
    """Print one line per field, the values below each other."""
    width = max(map(len, fields))
    for key, value in fields.items():
        echo(f"{key:<{width}}  {value}")


def _table(first: str, *others: str) -> "Table":
    """Return a table without lines: a column of names, and columns of figures."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def print_table(table: "Table", *, err: bool = False) -> None:
    """Print a table; only a terminal breaks its long cells, so programs read whole lines."""
    from rich.console import Console

    console = Console(stderr=err, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = UNBROKEN
    console.print(table)


def _work(report: Report) -> str:
    """Return how many queries and rows a search had, and its time."""
    queries = counted(report["queries"], "query", "queries")
    return f"{queries} × {counted(report['rows'], 'row')} in {format_seconds(report['seconds'])}"


def _speed(report: Report) -> str:
    """Return the queries per second, or the time of the only query."""
    if report["queries"] == 1:
        return f"{_three_digits(report['seconds'] * 1e3)} ms per query"
    return f"{_three_digits(report['queries_per_second'])} queries per second"


def _three_digits(number: float) -> str:
    """Return a number with three digits, or all before the point: 0.123, 12.3, 1,234."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _pairs(row: Report) -> str:
    """Return how many pairs an overlap counts, and how many queries may have more."""
    cut = row["queries_cut"]
    queries = counted(cut, "query", "queries")
    more = f"; {queries} may have more of them: search with a greater -k" if cut else ""
    pairs = counted(row["pairs"], "pair")
    return f"{row['definition']}: {pairs} of a query and a near hit{more}"


def _proof(report: Report) -> str:
    """Return whether the hits are proved, and the shares of rows scored to find them."""
    relaxed, claim = report["approximate"], "proved"
    if relaxed is not None:
        missed = f"{relaxed['failure_probability']:.3f}"
        claim = (
            f"approximate: a neighbour is missed with an estimated probability of at most {missed}"
        )
    shares = ", ".join(f"{name} {share:.4%}" for name, share in report["rows_scored"].items())
    ties = "queries_with_ties"
    tied = f"; {counted(report[ties], 'query', 'queries')} with ties" if ties in report else ""
    return f"{claim}; rows scored by the true kernel: {shares}{tied}"


def _format(value: object) -> str:
    """Return a value with thousands separated, and a nested mapping on one line."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict) and set(value) == {"name", "configuration"}:
        return in_words(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format(entry)}" for key, entry in value.items())
    return str(value)
