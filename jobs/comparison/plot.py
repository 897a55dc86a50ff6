"""Pictures of recall against rank, speed and bytes, with a line of panels per kernel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

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
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#000000",
)  # Okabe & Ito's
MARKS = "os^Dvp*"
COMPARED_RANK = 10  # R at most, of recall against speed and bytes
CAPTION_INCHES = 0.25
SAMPLE_INCHES = (0.4, 0.12)


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

    def looks(self) -> list[tuple[Curve, dict[str, Any]]]:
        """Return each curve that is drawn against rank, with the look of its line."""
        return [
            (curve, _look(curve, *colour_and_mark))
            for curves, *colour_and_mark in _encoders(self)
            for curve in curves
            if not curve.between
        ]


def draw_recall(panels: Sequence[Panel], form: str, caption: str = "") -> bytes:
    """Return a picture in the format ``form``, png or svg; the same curves give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    cells = [cell for panel in panels for cell in _cells(panel)]
    columns = len(cells) // len(panels)
    if columns == 1:
        columns = ceil(sqrt(len(panels)))
    rows = ceil(len(cells) / columns)
    width = columns * PANEL_INCHES[0]
    height = rows * PANEL_INCHES[1] + (CAPTION_INCHES if caption else 0)
    abreast, lines = _legend_shape([curve.label for curve, _ in panels[0].looks()], width)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height + lines * LEGEND_LINE_INCHES), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for ax, draw in zip(axes, cells, strict=False):
            draw(ax)
        for ax in axes[len(cells) :]:
            ax.remove()
        if caption:
            figure.suptitle(caption, fontsize=9)
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=abreast,
            frameon=False,
        )
        return picture_of(figure, form)


def draw_each(panel: Panel, form: str, *, legend: bool = True) -> list[bytes]:
    """Return the pictures of one kernel one by one, each with its legend if it is to have one.

    They are recall by rank, and by speed and bytes per row if these are known.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    handles = _handles(panel) if legend else []
    abreast, lines = _legend_shape([curve.label for curve, _ in panel.looks()], width)
    pictures = []
    for draw in _cells(panel):
        with mpl.rc_context(STYLE):
            size = width, height + legend * lines * LEGEND_LINE_INCHES
            figure = Figure(figsize=size, layout="constrained")
            draw(figure.subplots())
            if legend:
                figure.legend(
                    handles=handles, loc="outside lower center", ncols=abreast, frameon=False
                )
            pictures.append(picture_of(figure, form))
    return pictures


def draw_samples(panel: Panel, form: str) -> list[bytes]:
    """Return a short piece of each curve that is drawn against rank, for a legend elsewhere."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    pictures = []
    for _, look in panel.looks():
        with mpl.rc_context({**STYLE, "savefig.facecolor": "none"}):
            figure = Figure(figsize=SAMPLE_INCHES)
            figure.add_artist(Line2D([0, 0.5, 1], [0.5] * 3, markevery=[1], **look))
            pictures.append(picture_of(figure, form))
    return pictures


def picture_of(figure: "Figure", form: str) -> bytes:
    """Return a figure as a picture in a format, without a date."""
    data = BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    figure.savefig(data, format=form, dpi=150, metadata=metadata)
    return data.getvalue()


def _handles(panel: Panel) -> list["Line2D"]:
    """Return the entries of a legend: line and mark of each curve."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=curve.label, **look) for curve, look in panel.looks()]


def _cells(panel: Panel) -> list[Callable[["Axes"], None]]:
    """Return what draws the curves of a kernel: by rank, and by speed and size if these are known.

    Each function draws into its own axes.
    """
    cells: list[Callable[[Axes], None]] = [partial(_draw_panel, panel=panel)]
    for name, label in (("speed", "queries per second"), ("size", "bytes per row")):
        if getattr(panel.curves[0], name) is not None:
            cells.append(partial(_draw_points, panel=panel, name=name, label=label))
    return cells


def _legend_shape(labels: Sequence[str], inches: float) -> tuple[int, int]:
    """Return the number of labels per line of a legend ``inches`` wide, and the number of lines."""
    entry = LETTER_INCHES * (max(map(len, labels)) + HANDLE_LETTERS)
    abreast = min(len(labels), max(1, int(inches / entry)))
    lines = ceil(len(labels) / abreast)
    return ceil(len(labels) / lines), lines


def _draw_panel(ax: "Axes", panel: Panel) -> None:
    """Draw the curves of one kernel with a band of one standard deviation to either side."""
    lows = list[float]()
    for curve, look in panel.looks():
        means, deviations = np.asarray(curve.means), np.asarray(curve.deviations)
        lows += (means - deviations).tolist()
        ax.plot(curve.ranks, means, label=curve.label, **look)
        ax.fill_between(
            curve.ranks,
            means - deviations,
            means + deviations,
            color=look["color"],
            alpha=0.2,
            linewidth=0,
        )
    ranks = sorted({rank for curve in panel.curves for rank in curve.ranks})
    ax.set_title(panel.title)
    ax.set_xscale("log")
    ax.set_xlim(ranks[0] * 0.93, max(2, ranks[-1]) * 1.08)
    ax.set_ylim(_limits(lows))
    ax.set_xticks([10**power for power in range(5) if 10**power <= ranks[-1]])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("rank R")
    ax.set_ylabel("recall@R")
    ax.grid(visible=True, linewidth=0.4, alpha=0.5)


def _draw_points(ax: "Axes", panel: Panel, name: str, label: str) -> None:
    """Draw one point per curve, its recall over its ``speed`` or ``size``, on a logarithmic axis.

    A line joins the speeds of an encoder, from codes alone to the most reranked hits.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    at, taken, lows = _compared_rank(panel), list[float](), list[float]()
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
    ax.set_title(panel.title)
    ax.set_xscale("log")
    ax.set_xlim(min(taken) / 1.5, max(taken) * 1.5)
    ax.set_ylim(_limits(lows))
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(label)
    ax.set_ylabel(f"recall@{at}")
    ax.grid(visible=True, linewidth=0.4, alpha=0.5)


def _limits(recalls: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis of recall: below the least one, but not below 0, and above 1."""
    span = min(1.0, 1.1 * max(0.05, 1 - min(recalls)))
    return 1 - span, 1 + 0.02 * span


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
    """Return how matplotlib draws the line of a curve."""
    return {
        "color": colour,
        "marker": mark,
        "markersize": 3.5,
        "markerfacecolor": "white" if curve.dashed else colour,
        "linewidth": 1.2,
        "linestyle": "--" if curve.dashed else "-",
    }


def _compared_rank(panel: Panel) -> int:
    """Return the greatest recorded rank up to 10, or the first one."""
    ranks = panel.curves[0].ranks
    return max([rank for rank in ranks if rank <= COMPARED_RANK], default=ranks[0])
