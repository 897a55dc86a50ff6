"""Pictures of a report, in SVG: they follow the light or dark scheme of the page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.comparison.plot import COLOURS, PANEL_INCHES, STYLE, picture_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 64
Values = NDArray[np.floating]
# Colours in the dark scheme: those of the page, and lighter ones of Okabe & Ito's hues.
DARK = {
    "#1d2126": "#e7e9ea",
    "#ffffff": "#1c2024",
    "#b0b0b0": "#4a525a",
    "#000000": "#e7e9ea",
    "#0072b2": "#4da6e0",
    "#d55e00": "#ff8f4d",
    "#009e73": "#2ec99c",
    "#cc79a7": "#e39cc4",
}


def themed(svg: bytes) -> bytes:
    """Return a picture of matplotlib whose colours follow the light or dark scheme."""
    text, names = svg.decode(), {colour: f"--c{place}" for place, colour in enumerate(DARK)}
    for colour, name in names.items():
        text = text.replace(f": {colour}", f": var({name})")
    light = ";".join(f"{name}:{colour}" for colour, name in names.items())
    dark = ";".join(f"{name}:{DARK[colour]}" for colour, name in names.items())
    style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    opening = '<style type="text/css">'
    return text.replace(opening, opening + style, 1).encode()


def draw_calibration(
    approximate: Values, true: Values, labels: tuple[str, str], *, identity: bool
) -> bytes:
    """Return a 2-D histogram of scores of codes over true ones, with the median of each column.

    ``labels`` are those of the true scores and of the codes' scores. ``identity`` draws the line
    of equal scores.
    """
    figure, ax = _axes()
    counts, x_edges, y_edges = np.histogram2d(true, approximate, bins=BINS)
    _draw_counts(ax, counts, (x_edges, y_edges))
    if identity:
        ends = [max(x_edges[0], y_edges[0]), min(x_edges[-1], y_edges[-1])]
        ax.plot(ends, ends, color="#1d2126", linestyle="--", linewidth=1.2, label="equal scores")
    middles, medians = _medians(approximate, true, x_edges)
    ax.plot(
        middles, medians, color=COLOURS[1], marker=".", markersize=4, linewidth=1.2, label="median"
    )
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    return _finished(figure, ax)


def draw_histograms(series: Mapping[str, Values], label: str, *, zero: bool = False) -> bytes:
    """Return histograms of several series as steps, each as shares of its values.

    ``zero`` draws a line at 0.
    """
    from matplotlib.ticker import MaxNLocator

    figure, ax = _axes()
    values = np.concatenate(list(series.values()))
    edges = np.histogram_bin_edges(values, BINS)
    for (name, each), colour, line in zip(series.items(), COLOURS, ("-", "--", ":"), strict=False):
        shares = np.histogram(each, edges)[0] / max(1, len(each))
        ax.stairs(shares, edges, color=colour, linestyle=line, linewidth=1.4, label=name)
    if zero:
        ax.axvline(0, color="#1d2126", linewidth=0.8)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    ax.set_xlabel(label)
    ax.set_ylabel("share")
    ax.grid(visible=True, linewidth=0.4, alpha=0.5)
    return _finished(figure, ax)


def _axes() -> tuple["Figure", "Axes"]:
    """Return an empty figure with the style of all pictures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        return figure, figure.subplots()


def _finished(figure: "Figure", ax: "Axes") -> bytes:
    """Return the picture with its legend below."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        handles = ax.get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
        return themed(picture_of(figure, "svg"))


def _draw_counts(ax: "Axes", counts: Values, edges: tuple[Values, Values]) -> None:
    """Draw the numbers of pairs in blue: the more pairs, the less transparent."""
    (x, y), most = edges, np.log1p(counts.max())
    shades = np.zeros((*counts.T.shape, 4))
    shades[..., :3] = np.array([0x2B, 0x8C, 0xC9]) / 255  # readable on white and on black
    shown = counts.T > 0
    shades[..., 3] = np.where(shown, 0.15 + 0.85 * np.log1p(counts.T) / most, 0)
    extent = (float(x[0]), float(x[-1]), float(y[0]), float(y[-1]))
    ax.imshow(shades, extent=extent, origin="lower", aspect="auto", interpolation="nearest")


def _medians(approximate: Values, true: Values, edges: Values) -> tuple[Values, Values]:
    """Return the middles of the columns that hold pairs, and their medians."""
    columns = np.clip(np.searchsorted(edges, true, side="right") - 1, 0, len(edges) - 2)
    order = np.argsort(columns, kind="stable")
    filled, starts = np.unique(columns[order], return_index=True)
    medians = np.array([np.median(part) for part in np.split(approximate[order], starts[1:])])
    return (edges[filled] + edges[filled + 1]) / 2, medians
