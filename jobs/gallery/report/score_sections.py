"""The sections on scores: their errors, bounds, and the residuals of rows."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.gallery.page import Table
from mercore.jobs.gallery.report.code_figures import CodeFigures
from mercore.jobs.gallery.report.document import Plot, Section
from mercore.jobs.gallery.report.figures import draw_calibration, draw_histograms
from mercore.jobs.gallery.report.measure import NEAR, Values
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.hashing.signs import Bits
from mercore.pipeline.kernels import Kernel
from mercore.stores.errors import counted

PERCENTILES = ("5th percentile", "median", "95th percentile")


def score_section(spec: EncoderSpec, kernel: Kernel, measured: CodeFigures) -> Section:
    """Return how scores of codes, and their bounds if they have any, relate to true scores."""
    scored, comparable = measured.scored, not isinstance(spec, Bits)
    assert scored is not None
    approximate: Values = scored.approximate[scored.kept].astype(np.float64)
    true, near = scored.true[scored.kept], scored.near[scored.kept]
    if comparable:
        approximate, true = kernel.shown(approximate), kernel.shown(true)
    correlation = _correlation(approximate, true)
    what = "bound" if spec.bounds else "score of the codes"
    plots = [_calibration(approximate, true, (kernel.name, what), identity=comparable)]
    tables, proofs = [], []
    if comparable:
        errors = _by_nearness(approximate - true, near)
        plots.append(_histogram(errors, what))
        tables.append(_error_table(errors, what))
    if scored.bounds is not None:
        bounds = scored.bounds[scored.kept].astype(np.float64)
        below = int((bounds < scored.true[scored.kept]).sum())
        proofs.append(
            f"Of {len(true):,} bounds, {below:,} are on the wrong side of the true score."
        )
        if not spec.bounds:
            slacks = _by_nearness(kernel.shown(bounds) - true, near)
            plots.append(_histogram(slacks, "bound"))
            tables.append(_error_table(slacks, "bound"))
    return Section(
        title="Bounds and true scores" if spec.bounds else "Scores of codes and true scores",
        paragraphs=(
            f"{counted(scored.true.shape[0], 'query', 'queries')} were scored against "
            f"{counted(scored.true.shape[1], 'row')}: their {NEAR} true nearest rows, and rows "
            f"drawn by a fixed seed. The correlation of both scores is {correlation:.3f}.",
            *proofs,
        ),
        plots=tuple(plots),
        tables=tuple(tables),
    )


def _calibration(
    approximate: Values, true: Values, names: tuple[str, str], *, identity: bool
) -> Plot:
    """Return the picture of scores over true scores; ``names`` are of the kernel and the score."""
    kernel, what = names
    return Plot(
        svg=draw_calibration(approximate, true, (f"true score, {kernel}", what), identity=identity),
        alt=f"Two-dimensional histogram of the {what} over the true score of {len(true):,} pairs, "
        f"with the median per true score. Correlation {_correlation(approximate, true):.3f}.",
        caption=f"{len(true):,} pairs of a query and a row: the stronger the blue, the more pairs. "
        + ("On the dashed line, both scores are equal." if identity else _BITS),
    )


def _by_nearness(values: Values, near: NDArray[np.bool_]) -> dict[str, Values]:
    """Return values of pairs with a true neighbour, and of other pairs, if there are any."""
    both = {"true neighbours": values[near], "other rows": values[~near]}
    return {name: each for name, each in both.items() if each.size}


def _histogram(errors: Mapping[str, Values], what: str) -> Plot:
    """Return the picture of errors of scores, or of bounds."""
    means = ", ".join(f"{name} {_signed(each.mean())}" for name, each in errors.items())
    return Plot(
        svg=draw_histograms(errors, f"{what} − true score", zero=True),
        alt=f"Histogram of the {what} less the true score. Means: {means}.",
        caption=f"The {what} less the true score: of each query’s {NEAR} true nearest rows, and of "
        "other rows.",
    )


_BITS = "Binary codes score 1 − differing bits / bits, which ranks rows but is not a kernel value."


def residual_section(residuals: Values) -> Section:
    """Return the norms of what codes leave out of a row."""
    quartiles = np.quantile(residuals, [0.05, 0.5, 0.95])
    words = ", ".join(
        f"{value:.3f} ({name})"
        for name, value in zip(
            ("5th percentile", "median", "95th percentile"), quartiles, strict=True
        )
    )
    return Section(
        title="Residuals of rows",
        paragraphs=(
            "A residual is the distance in feature space between a row and its code: 0 if the code "
            f"is exact, 1 if it holds nothing of the row. Of {counted(len(residuals), 'row')}: "
            f"{words}.",
        ),
        plots=(
            Plot(
                svg=draw_histograms({"rows": residuals}, "residual"),
                alt=f"Histogram of residuals: {words}.",
                caption="Residuals as the store holds them.",
            ),
        ),
    )


def _error_table(errors: Mapping[str, Values], what: str) -> Table:
    """Return mean, spread and range of errors."""
    rows = tuple(
        (
            name,
            f"{len(each):,}",
            _signed(each.mean()),
            f"{np.sqrt(np.square(each).mean()):.4f}",
            f"{np.quantile(np.abs(each), 0.95):.4f}",
        )
        for name, each in errors.items()
    )
    header = (f"{what} − true score", "pairs", "mean", "root mean square", "95 % are within ±")
    title = "Slack of bounds" if what == "bound" else "Errors of scores"
    return Table(title=title, header=header, rows=rows)


def _signed(value: float) -> str:
    """Return a number with its sign and four decimals."""
    return f"{value:+.4f}".replace("-", "−")


def _correlation(one: Values, other: Values) -> float:
    """Return Pearson's correlation, 0 if a side is constant."""
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
