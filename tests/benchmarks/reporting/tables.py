"""Tables, sections and reports: the figures of a benchmark and the text that explains them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

Row = dict[str, Any]
Setup = TypeVar("Setup")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of figures.

    Parameters
    ----------
    keys : columns that name a row
    timed : columns that depend on the processor
    shown : False for figures that only a plot needs
    """

    title: str
    rows: Sequence[Row]
    keys: Sequence[str]
    timed: Sequence[str] = ()
    shown: bool = True

    @property
    def columns(self) -> list[str]:
        """The columns of all rows, in order."""
        return list(dict.fromkeys(column for row in self.rows for column in row))


class Plot(NamedTuple):
    """A picture of a section: its caption, and the function that draws it as SVG.

    The function takes the tables of each processor by the processor's label.
    """

    caption: str
    draw: Callable[[Mapping[str, Sequence[Table]]], bytes]


@dataclass(frozen=True, kw_only=True)
class Section(Generic[Setup]):
    """One measurement: its name for ``--only``, its text, and the function that measures it.

    Without that function the section keeps the figures that were recorded.
    """

    name: str
    title: str
    text: str
    measure: Callable[[Setup], Sequence[Table]] | None = None
    plot: Plot | None = None


@dataclass(frozen=True, kw_only=True)
class Report(Generic[Setup]):
    """A report: its title, an introduction, its sections in order, and the figure that matters.

    The figure is a sentence, whose numbers are those of the tables.
    """

    title: str
    text: str
    sections: Sequence[Section[Setup]]
    figure: str = ""

    def chosen(self, only: Sequence[str]) -> list[Section[Setup]]:
        """Return the named sections, or all if none is named, of those that can be measured."""
        chosen = [each for each in self.sections if not only or each.name in only]
        return [section for section in chosen if section.measure is not None]


def timed_table(title: str, rows: Sequence[Row], *keys: str, fixed: Sequence[str] = ()) -> Table:
    """Return a table whose columns depend on the processor, except ``keys`` and ``fixed``."""
    table = Table(title=title, rows=rows, keys=list(keys))
    timed = [column for column in table.columns if column not in (*keys, *fixed)]
    return Table(title=title, rows=rows, keys=list(keys), timed=timed)


def cell(value: object) -> str:
    """Return a figure as text: about three digits of a fraction, commas in large numbers."""
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    for least, form in ((100, ",.0f"), (10, ".1f"), (1, ".2f"), (0.01, ".3f")):
        if size >= least:
            return f"{value:{form}}"
    return f"{value:.2g}"


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[cell(row.get(column)) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def side_by_side(tables: Mapping[str, Table], *, labelled: bool) -> list[Row]:
    """Return the rows of one table as measured on several processors, in the longest table's order.

    A column that depends on the processor becomes one column per processor. Of the other columns
    the last processor's figures are shown.

    Parameters
    ----------
    tables : the table by the processor's label, the most recent last
    labelled : whether columns name their processor
    """
    merged: dict[tuple[object, ...], Row] = {}
    recent = list(tables.values())[-1]
    columns = list(dict.fromkeys(column for each in tables.values() for column in each.columns))
    by_key = {label: _by_key(table) for label, table in tables.items()}
    longest_first = sorted(by_key.values(), key=len, reverse=True)
    for key in dict.fromkeys(key for rows in longest_first for key in rows):
        found = {label: rows.get(key, {}) for label, rows in by_key.items()}
        row = merged.setdefault(key, {})
        for column in columns:
            if column in recent.timed and labelled:
                row |= {f"{column}, {at}": found[at].get(column) for at in sorted(found)}
            else:
                values = [each[column] for each in found.values() if column in each]
                row[column] = values[-1] if values else None
    return list(merged.values())


def _by_key(table: Table) -> dict[tuple[object, ...], Row]:
    return {tuple(row.get(key) for key in table.keys): row for row in table.rows}
