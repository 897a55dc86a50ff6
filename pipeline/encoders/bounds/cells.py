"""Cells: boxes of the plane of two numbers per row, (e, R), learned from a sample.

R is cut into slabs that hold equally many rows of the sample, and e within each slab likewise. The
last cell holds what lies outside of all boxes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import Model

SLABS = 15  # of 17 steps each: 255 boxes
CELLS = 256
OUTSIDE = 255
WIDER = 1.25  # outer boxes reach beyond the sample by this factor


def learn_cells(errors: Float64, apart: Float64 | None) -> dict[str, NDArray[Any]]:
    """Return the cells of a sample as model arrays.

    Parameters
    ----------
    errors : float64[n], e
    apart : float64[n] or None, R; without it the cells are steps of e

    Returns
    -------
    dict
        ``slabs`` float64[S + 1], the ends of R, and ``steps`` float64[S, 255 / S], the greatest e.
    """
    if apart is None:
        apart, slabs = np.zeros(len(errors)), 1
    else:
        slabs = SLABS
    ends = np.quantile(apart, np.linspace(0, 1, slabs + 1))
    number = slab_of(ends, apart)
    levels = np.linspace(0, 1, OUTSIDE // slabs + 1)[1:]
    steps = np.array([np.quantile(errors[_some(number == slab)], levels) for slab in range(slabs)])
    ends[0], ends[-1] = 0, ends[-1] * WIDER  # so that few rows lie outside
    steps[:, -1] *= WIDER
    return {"slabs": ends, "steps": steps}


def cells_of(model: Model, errors: Float64, apart: Float64) -> NDArray[np.uint8]:
    """Return the cell of each row, uint8[n]."""
    slabs, steps = model["slabs"], model["steps"]
    slab = slab_of(slabs, apart)
    step = np.empty(len(errors), np.int64)
    for number, edges in enumerate(steps):
        in_slab = slab == number
        step[in_slab] = np.searchsorted(edges, errors[in_slab])
    inside = (apart >= slabs[0]) & (apart <= slabs[-1]) & (step < steps.shape[1])
    return np.where(inside, slab * steps.shape[1] + step, OUTSIDE).astype(np.uint8)


def boxes_of(model: Model) -> tuple[Float64, Float64, Float64]:
    """Return the greatest e, the least and the greatest R of each cell, float64[256] each.

    A number without a box has no limit: its greatest e is ∞.
    """
    slabs, steps = model["slabs"], model["steps"]
    error = np.full(CELLS, np.inf)
    least, greatest = np.zeros(CELLS), np.full(CELLS, np.inf)
    width = steps.shape[1]
    error[: steps.size] = steps.reshape(-1)
    least[: steps.size] = np.repeat(slabs[:-1], width)
    greatest[: steps.size] = np.repeat(slabs[1:], width)
    return error, least, greatest


def slab_of(ends: Float64, apart: Float64) -> NDArray[np.int64]:
    """Return the number of the slab of each R, the nearest if it lies in none."""
    return np.asarray(np.searchsorted(ends[1:-1], apart, side="right"), np.int64)


def _some(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows of a slab, or all rows if it has none."""
    return mask if mask.any() else np.ones_like(mask)
