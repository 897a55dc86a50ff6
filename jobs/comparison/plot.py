"""Curves of recall against rank, one panel per kernel, as the bytes of a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES = (4.2, 3.4)
LETTER_INCHES, HANDLE_LETTERS, LEGEND_LINE_INCHES = 0.075, 8, 0.2  # of text of 9 points
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "mercore",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
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


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Recall at each rank: its mean and its standard deviation over seeds, 0 for a single seed."""

    label: str
    ranks: Sequence[int]
    means: Sequence[float]
    deviations: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The curves of a kernel; an encoder's dashed curve follows its solid one, in its colour."""

    title: str
    curves: Sequence[Curve]


def draw_recall(panels: Sequence[Panel], form: str) -> bytes:
    """Return a picture in the format ``form``, png or svg; the same curves give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    columns = ceil(sqrt(len(panels)))
    rows = ceil(len(panels) / columns)
    width, height = columns * PANEL_INCHES[0], rows * PANEL_INCHES[1]
    abreast, lines = _legend_shape([curve.label for curve in panels[0].curves], width)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height + lines * LEGEND_LINE_INCHES), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for ax, panel in zip(axes, panels, strict=False):
            _draw_panel(ax, panel)
        for ax in axes[len(panels) :]:
            ax.remove()
        figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=abreast,
            frameon=False,
        )
        data = BytesIO()
        figure.savefig(
            data,
            format=form,
            dpi=150,
            metadata={"Date": None} if form == "svg" else {"Software": None},
        )
    return data.getvalue()


def _legend_shape(labels: Sequence[str], inches: float) -> tuple[int, int]:
    """Return the number of labels per line of a legend ``inches`` wide, and the number of lines."""
    entry = LETTER_INCHES * (max(map(len, labels)) + HANDLE_LETTERS)
    abreast = min(len(labels), max(1, int(inches / entry)))
    lines = ceil(len(labels) / abreast)
    return ceil(len(labels) / lines), lines


def _draw_panel(ax: "Axes", panel: Panel) -> None:
    """Draw the curves of one kernel with a band of one standard deviation to either side."""
    drawn = -1
    for curve in panel.curves:
        drawn += not curve.dashed
        colour, mark = COLOURS[drawn % len(COLOURS)], MARKS[drawn % len(MARKS)]
        means, deviations = np.asarray(curve.means), np.asarray(curve.deviations)
        (line,) = ax.plot(
            curve.ranks, means, color=colour, marker=mark, markersize=3.5, linewidth=1.2
        )
        line.set(label=curve.label, linestyle="--" if curve.dashed else "-")
        if curve.dashed:
            line.set_markerfacecolor("white")
        ax.fill_between(
            curve.ranks,
            means - deviations,
            means + deviations,
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
    ranks = sorted({rank for curve in panel.curves for rank in curve.ranks})
    ax.set_title(panel.title)
    ax.set_xscale("log")
    ax.set_xlim(ranks[0] * 0.93, max(2, ranks[-1]) * 1.08)
    ax.set_ylim(0, 1.02)
    ax.set_xticks([10**power for power in range(5) if 10**power <= ranks[-1]])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("rank R")
    ax.set_ylabel("recall@R")
    ax.grid(visible=True, linewidth=0.4, alpha=0.5)
