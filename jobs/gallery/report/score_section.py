"""The sections on scores: codes beside true scores, bounds, and the residuals of rows."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.comparison.plot import COLOURS, draw
from mercore.jobs.gallery.page import Plot, Section, Table
from mercore.jobs.gallery.report.measure import NEAR, PairScores, Values
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.hashing.signs import Bits
from mercore.pipeline.kernels import Kernel
from mercore.stores.errors import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 64
PERCENTILES = {"5th percentile": 0.05, "median": 0.5, "95th percentile": 0.95}
BLUE = np.array([0x2B, 0x8C, 0xC9]) / 255  # readable on white and on black


def score_section(spec: EncoderSpec, kernel: Kernel, scored: PairScores) -> Section:
    """Return the section on the scores of codes, and on bounds if there are any."""
    comparable, kept = not isinstance(spec, Bits), scored.kept
    approximate: Values = scored.approximate[kept].astype(np.float64)
    true = scored.true[kept]
    what = "bound" if spec.bounds else "score of the codes"
    proofs, tables = [], []
    if scored.bounds is not None:
        bounds = scored.bounds[kept].astype(np.float64)
        wrong = f"{(bounds < true).sum():,} are on the wrong side of the true score"
        proofs.append(f"Of {len(true):,} bounds, {wrong}.")
    if comparable:
        approximate, true = kernel.shown(approximate), kernel.shown(true)
        tables.append(_error_table(what, approximate - true, scored.near[kept]))
    if scored.bounds is not None and not spec.bounds:
        tables.append(_error_table("bound", kernel.shown(bounds) - true, scored.near[kept]))
    return Section(
        title="Bounds and true scores" if spec.bounds else "Scores of codes and true scores",
        paragraphs=[
            f"{counted(scored.true.shape[0], 'query', 'queries')} were scored against "
            f"{counted(scored.true.shape[1], 'row')}: their {NEAR} true nearest rows, and rows "
            "drawn by a fixed seed. The correlation of both scores is "
            f"{_correlation(approximate, true):.3f}.",
            *proofs,
        ],
        plots=[_calibration(approximate, true, (kernel.name, what), comparable=comparable)],
        tables=tables,
    )


def residual_section(residuals: Values) -> Section:
    """Return the section on the parts of rows that codes leave out."""
    shares = (
        f"{np.quantile(residuals, level):.3f} ({name})" for name, level in PERCENTILES.items()
    )
    words = (
        "A residual is the distance in feature space between a row and its code: 0 if the code is "
        "exact, 1 if it holds nothing of the row. The store holds one per row. Of "
        f"{counted(len(residuals), 'row')}: {', '.join(shares)}."
    )
    return Section("Residuals of rows", [words])


def _error_table(what: str, errors: Values, near: NDArray[np.bool_]) -> Table:
    """Return mean and spread of the errors of pairs with a true neighbour, and of other pairs."""
    header = (f"{what} − true score", "pairs", "mean", "root mean square", "95 % are within ±")
    rows = []
    for name, each in {"true neighbours": errors[near], "other rows": errors[~near]}.items():
        if each.size:
            quantiles = (_signed(np.quantile(each, level)) for level in PERCENTILES.values())
            spread = (np.sqrt(np.square(each).mean()), np.quantile(np.abs(each), 0.95))
            shown = (f"{value:.4f}" for value in spread)
            rows.append((name, f"{len(each):,}", _signed(each.mean()), *shown, *quantiles))
    title = "Slack of bounds" if what == "bound" else "Errors of scores"
    return Table((*header, *PERCENTILES), rows, title)


def _signed(value: np.floating[Any]) -> str:
    """Return a number with its sign and four decimals."""
    return f"{value:+.4f}".replace("-", "−")


def _correlation(one: Values, other: Values) -> float:
    """Return Pearson's correlation, 0 if a side is constant."""
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _calibration(
    approximate: Values, true: Values, names: tuple[str, str], *, comparable: bool
) -> Plot:
    """Return the picture of scores over true scores; ``names`` are of the kernel and the score."""
    pairs = f"{len(true):,} pairs of a query and a row"
    end = (
        "On the dashed line, both scores are equal."
        if comparable
        else "Binary codes score 1 − differing bits / bits, which ranks rows but is not a kernel "
        "value."
    )
    cell = partial(_draw_pairs, approximate=approximate, true=true, names=names, line=comparable)
    return Plot(
        svg=draw([cell], "svg"),
        alt=f"Two-dimensional histogram of the {names[1]} over the true score of {pairs}, with the "
        "median per true score.",
        caption=f"{pairs}: the stronger the blue, the more pairs. {end}",
    )


def _draw_pairs(
    ax: "Axes", *, approximate: Values, true: Values, names: tuple[str, str], line: bool
) -> None:
    """Draw a histogram of pairs, the median of each column, and perhaps the line of equality."""
    from scipy.stats import binned_statistic

    counts, x, y = np.histogram2d(true, approximate, bins=BINS)
    shades = np.empty((BINS, BINS, 4))
    shades[..., :3] = BLUE
    shades[..., 3] = np.where(counts, 0.15 + 0.85 * np.log1p(counts) / np.log1p(counts.max()), 0).T
    extent = (x[0], x[-1], y[0], y[-1])
    ax.imshow(shades, extent=extent, origin="lower", aspect="auto", interpolation="nearest")
    if line:
        ends = [max(x[0], y[0]), min(x[-1], y[-1])]
        ax.plot(ends, ends, color="#1d2126", linestyle="--", linewidth=1.2, label="equal scores")
    medians, _, _ = binned_statistic(true, approximate, "median", bins=x)
    filled, middles = ~np.isnan(medians), (x[:-1] + x[1:]) / 2
    look: dict[str, Any] = {"color": COLOURS[1], "markersize": 4, "linewidth": 1.2}
    ax.plot(middles[filled], medians[filled], ".-", label="median", **look)
    ax.set(xlabel=f"true score, {names[0]}", ylabel=names[1])
