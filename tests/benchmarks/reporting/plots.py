"""Plots of reports as SVG on a white ground; the same figures give the same bytes."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mercore.jobs.comparison.plot import COLOURS, MARKS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES = (4.8, 3.2)
LEGEND_INCHES = 0.25  # per line
BAR_WIDTH = 0.8
ABREAST = 2  # labels per panel in a line of the legend
TICKS = (1, 2, 5)


class Bars(NamedTuple):
    """Bars of one panel: their labels, and the heights of each series, None for no bar."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float | None]]


class Lines(NamedTuple):
    """Lines of one panel: the points (x, y) of each series."""

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]


def draw_bars(panels: Sequence[Bars], unit: str, *, stacked: bool = False) -> bytes:
    """Return bars on top of each other, or side by side with a line at 1: they are ratios."""
    return _picture(len(panels), lambda at, ax: _bars(ax, panels[at], unit, stacked=stacked))


def draw_lines(panels: Sequence[Lines], x_unit: str, unit: str, *, linear: bool = False) -> bytes:
    """Return lines over logarithmic axes; with ``linear`` the upright axis begins at 0."""

    def draw(at: int, ax: "Axes") -> None:
        _lines(ax, panels[at], x_unit, unit)
        if linear:
            ax.set_yscale("linear")
            ax.set_ylim(bottom=0)

    return _picture(len(panels), draw)


def _picture(count: int, draw: "Callable[[int, Axes], None]") -> bytes:
    """Return a picture with panels in columns of two, and one legend below."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = min(2, count)
    rows = -(-count // columns)
    with mpl.rc_context({**STYLE, "savefig.facecolor": "white"}):
        figure = Figure(figsize=(1, 1), layout="constrained", facecolor="white")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for at, ax in enumerate(axes[:count]):
            draw(at, ax)
        for ax in axes[count:]:
            ax.remove()
        handles, labels = axes[0].get_legend_handles_labels()
        abreast = min(ABREAST * columns, len(labels))
        lines = -(-len(labels) // abreast)
        height = rows * PANEL_INCHES[1] + lines * LEGEND_INCHES
        figure.set_size_inches(columns * PANEL_INCHES[0], height)
        if len(labels) > 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=abreast, frameon=False)
        data = BytesIO()
        figure.savefig(data, format="svg", metadata={"Date": None})
    return data.getvalue()


def _bars(ax: "Axes", panel: Bars, unit: str, *, stacked: bool) -> None:
    """Draw the bars of one panel."""
    places, below = np.arange(len(panel.labels), dtype=float), np.zeros(len(panel.labels))
    width = BAR_WIDTH if stacked else BAR_WIDTH / len(panel.series)
    for number, (name, values) in enumerate(panel.series.items()):
        heights = np.array([value or 0.0 for value in values])
        shift = 0.0 if stacked else (number - (len(panel.series) - 1) / 2) * width
        colour = COLOURS[number % len(COLOURS)]
        ax.bar(places + shift, heights, width, bottom=below, label=name, color=colour)
        if stacked:
            below = below + heights
    if not stacked:
        ax.axhline(1, color="black", linewidth=0.8)
    ax.set_xticks(places, panel.labels, rotation=30, ha="right")
    ax.set_title(panel.title)
    ax.set_ylabel(unit)
    ax.grid(visible=True, axis="y", linewidth=0.4, alpha=0.5)
    ax.set_axisbelow(True)


def _lines(ax: "Axes", panel: Lines, x_unit: str, unit: str) -> None:
    """Draw the lines of one panel."""
    for number, (name, points) in enumerate(panel.series.items()):
        x, y = zip(*sorted(points), strict=True)
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        ax.plot(x, y, color=colour, marker=mark, markersize=4, linewidth=1.2, label=name)
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    ticks = sorted({x for points in panel.series.values() for x, _ in points})
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(LogLocator(subs=TICKS))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_title(panel.title)
    ax.set_xlabel(x_unit)
    ax.set_ylabel(unit)
    ax.grid(visible=True, linewidth=0.4, alpha=0.5)
