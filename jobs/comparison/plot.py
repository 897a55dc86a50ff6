"""Pictures of recall against rank, speed and bytes, with a line of panels per kernel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import zip_longest
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cell = Callable[["Axes"], None]  # draws into axes of its own

PANEL_INCHES = (4.2, 3.4)
LETTER_INCHES, HANDLE_LETTERS, LEGEND_LINE_INCHES = 0.075, 8, 0.2  # of text of 9 points
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "mercore",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), "white"),
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#1d2126"
    ),
}
# Okabe & Ito's
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKS = "os^Dvp*"
COMPARED_RANK = 10  # R at most, of recall against speed and bytes
CAPTION_INCHES = 0.25


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Recall at each rank: its mean and its standard deviation over seeds, 0 for a single seed.

    ``speed`` is in queries per second, ``size`` in bytes per row; None draws no panels of them. A
    curve ``between`` others of its encoder is drawn as a point of recall and speed alone.
    """

    label: str
    ranks: Sequence[int]
    means: Sequence[float]
    deviations: Sequence[float]
    speed: float | None = None
    size: float | None = None
    dashed: bool = False
    between: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The curves of a kernel; an encoder's dashed curves follow its solid one, in its colour."""

    title: str
    curves: Sequence[Curve]

    @property
    def compared_rank(self) -> int:
        """The greatest recorded rank up to 10, or the first one."""
        ranks = self.curves[0].ranks
        return max([rank for rank in ranks if rank <= COMPARED_RANK], default=ranks[0])


def draw_recall(panels: Sequence[Panel], form: str, caption: str = "") -> bytes:
    """Return a picture in the format ``form``, png or svg; the same curves give the same bytes.

    A panel is a line of cells: recall by rank, and by speed and bytes per row if these are known.
    """
    cells = [cell for panel in panels for cell in _cells(panel)]
    columns = len(cells) // len(panels)
    return draw(cells, form, columns if columns > 1 else ceil(sqrt(len(panels))), caption)


def draw(cells: Sequence[Cell], form: str, columns: int = 1, caption: str = "") -> bytes:
    """Return a picture of cells, without a date; the legend of the first one stands below all."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows, width = ceil(len(cells) / columns), columns * PANEL_INCHES[0]
    data, metadata = BytesIO(), {"Date": None} if form == "svg" else {"Software": None}
    with mpl.rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for ax, cell in zip_longest(axes.flat, cells):
            if cell is None:
                ax.remove()
            else:
                cell(ax)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        abreast, lines = _legend_shape(labels, width)
        height = rows * PANEL_INCHES[1] + CAPTION_INCHES * bool(caption)
        figure.set_size_inches(width, height + lines * LEGEND_LINE_INCHES)
        if caption:
            figure.suptitle(caption, fontsize=9)
        figure.legend(handles, labels, loc="outside lower center", ncols=abreast, frameon=False)
        figure.savefig(data, format=form, dpi=150, metadata=metadata)
    return data.getvalue()


def _cells(panel: Panel) -> list[Cell]:
    """Return the cells of a kernel: its curves by rank, and by known speeds and sizes."""
    points = (("speed", "queries per second"), ("size", "bytes per row"))
    return [
        partial(_draw_ranks, panel=panel),
        *(
            partial(_draw_points, panel=panel, name=name, label=label)
            for name, label in points
            if getattr(panel.curves[0], name) is not None
        ),
    ]


def _legend_shape(labels: Sequence[str], inches: float) -> tuple[int, int]:
    """Return the number of labels per line of a legend ``inches`` wide, and the number of lines."""
    entry = LETTER_INCHES * (max(map(len, labels)) + HANDLE_LETTERS)
    abreast = min(len(labels), max(1, int(inches / entry)))
    lines = ceil(len(labels) / abreast)
    return ceil(len(labels) / lines), lines


def _draw_ranks(ax: "Axes", panel: Panel) -> None:
    """Draw the curves of one kernel with a band of one standard deviation to either side."""
    lows = list[float]()
    for curves, colour, mark in _encoders(panel):
        for curve in curves:
            if curve.between:
                continue
            means, deviations = np.asarray(curve.means), np.asarray(curve.deviations)
            low, high = means - deviations, means + deviations
            lows += low.tolist()
            ax.plot(curve.ranks, means, label=curve.label, **_look(curve, colour, mark))
            ax.fill_between(curve.ranks, low, high, color=colour, alpha=0.2, linewidth=0)
    ranks = sorted({rank for curve in panel.curves for rank in curve.ranks})
    _set_axes(ax, panel.title, lows, "rank R", "recall@R")
    ax.set_xlim(ranks[0] * 0.93, max(2, ranks[-1]) * 1.08)
    ax.set_xticks([10**power for power in range(5) if 10**power <= ranks[-1]])
    ax.xaxis.set_major_formatter("{x:g}")


def _draw_points(ax: "Axes", panel: Panel, name: str, label: str) -> None:
    """Draw one point per curve, its recall over its ``speed`` or ``size``, on a logarithmic axis.

    A line joins the speeds of an encoder, from codes alone to the most reranked hits.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    at, taken, lows = panel.compared_rank, list[float](), list[float]()
    for curves, colour, mark in _encoders(panel):
        shown = [curve for curve in curves if name == "speed" or not curve.between]
        ranks = [list(curve.ranks).index(at) for curve in shown]
        places = [getattr(curve, name) for curve in shown]
        means = [curve.means[rank] for curve, rank in zip(shown, ranks, strict=True)]
        if name == "speed":
            ax.plot(places, means, color=colour, linewidth=1)
        for curve, rank, place, mean in zip(shown, ranks, places, means, strict=True):
            look = {**_look(curve, colour, mark), "linestyle": "", "markersize": 6}
            ax.errorbar([place], [mean], yerr=[curve.deviations[rank]], **look)
            lows.append(mean - curve.deviations[rank])
        taken += places
    _set_axes(ax, panel.title, lows, label, f"recall@{at}")
    ax.set_xlim(min(taken) / 1.5, max(taken) * 1.5)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    ax.xaxis.set_minor_locator(NullLocator())


def _set_axes(ax: "Axes", title: str, lows: Sequence[float], xlabel: str, ylabel: str) -> None:
    """Set title and axes of a cell of recall: below the least one, but not below 0, and above 1."""
    span = min(1.0, 1.1 * max(0.05, 1 - min(lows)))
    ax.set(
        title=title, xlabel=xlabel, ylabel=ylabel, xscale="log", ylim=(1 - span, 1 + 0.02 * span)
    )
    ax.grid(visible=True, linewidth=0.4, alpha=0.5)


def _encoders(panel: Panel) -> list[tuple[list[Curve], str, str]]:
    """Return the curves of each encoder, their colour and their mark."""
    encoders: list[list[Curve]] = []
    for curve in panel.curves:
        if not curve.dashed or not encoders:
            encoders.append([])
        encoders[-1].append(curve)
    return [
        (curves, COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)])
        for place, curves in enumerate(encoders)
    ]


def _look(curve: Curve, colour: str, mark: str) -> dict[str, Any]:
    """Return the options of matplotlib for the line of a curve."""
    return {
        "color": colour,
        "marker": mark,
        "markersize": 3.5,
        "markerfacecolor": "white" if curve.dashed else colour,
        "linewidth": 1.2,
        "linestyle": "--" if curve.dashed else "-",
    }
