"""The section that places rows in the plane of their first two kernel principal components."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.gallery.page import HITS, MAP_SIZE, Scatter, ScatterQuery, Section
from mercore.jobs.gallery.report.sample import MAP_SEED, Ids, QuerySample, SampledVectors
from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import draw_rows
from mercore.pipeline.kernels import Kernel
from mercore.stores.errors import counted
from mercore.stores.vectors import gather

ROUNDING = 1e-12  # an axis of a smaller share of the scores is rounding: rows are at its origin
SHOWN, DOTS, LANDMARKS = 24, 1500, 512  # queries, rows drawn, and those that the axes are made of


def map_section(
    kernel: Kernel, vectors: SampledVectors, queries: QuerySample, asked: Ids, near: tuple[Ids, Any]
) -> Section:
    """Return the section of a sample's rows, and of some queries with their true neighbours.

    Parameters
    ----------
    asked : the numbers of the queries in their source, int64[nq]
    near : the true nearest rows of each query, rows of the store int64[nq, k], and their scores
    """
    rng = np.random.default_rng(MAP_SEED)
    drawn = vectors.stored(draw_rows(rng, vectors.rows, min(DOTS, vectors.rows)))
    landmarks = gather(vectors.vectors, np.sort(rng.permutation(drawn)[:LANDMARKS]))
    ids, scores = near[0][:SHOWN, :HITS], kernel.shown(near[1][:SHOWN, :HITS])
    rows = np.unique(np.concatenate([drawn, ids[ids >= 0]]))
    raw = [gather(vectors.vectors, rows), queries.values[:SHOWN]]
    axes = principal_axes(kernel, landmarks, np.concatenate(raw))
    places = [(int(x), int(y)) for x, y in np.rint(_spread(axes)).tolist()]
    of_row = dict(zip(rows.tolist(), places, strict=False))
    listed = [
        ScatterQuery(
            number,
            places[len(rows) + line],
            [(row, score, of_row[row]) for row, score in _pairs(ids[line], scores[line])],
        )
        for line, number in enumerate(asked[:SHOWN].tolist())
    ]
    what = (
        f"{counted(len(drawn), 'row')} drawn by a fixed seed, in the plane of the first two kernel "
        f"principal components of {len(landmarks):,} of them."
    )
    return Section(
        title="Map of the rows",
        paragraphs=[
            what,
            f"A ring is a query. Choose one to see its {ids.shape[1]} true nearest rows of the "
            "sample: near in the kernel's space, which has more than two dimensions.",
        ],
        scatter=Scatter([of_row[row] for row in drawn.tolist()], listed),
    )


def principal_axes(kernel: Kernel, landmarks: NDArray[Any], rows: NDArray[Any]) -> Float64:
    """Return rows on the first two kernel principal components of landmarks, float64[n, 2].

    Scores are centred in the feature space (Schölkopf, Smola & Müller 1998, Eq. 20). Of −‖x − y‖²
    the components are those of the rows themselves, but for their length.
    """
    from scipy.linalg import eigh

    prepared = kernel.prepare(landmarks)
    columns = np.ascontiguousarray(prepared.T)
    gram = kernel.exact(prepared, columns)
    means = gram.mean(axis=0)
    centred = gram - means - means[:, None] + means.mean()
    last = len(gram) - 1
    values, vectors = eigh(centred, subset_by_index=[max(0, last - 1), last])
    scores = kernel.exact(kernel.prepare(rows), columns)
    scores -= scores.mean(axis=1, keepdims=True) + means - means.mean()
    lengths = np.sqrt(np.where(values > ROUNDING * np.abs(gram).max(), values, np.inf))
    axes = np.zeros((len(rows), 2))
    axes[:, : len(values)] = (scores @ (vectors / lengths))[:, ::-1]
    return axes


def _spread(axes: Float64) -> Float64:
    """Return places within the picture, float64[n, 2]: rows far from all others go to its edge."""
    low, high = np.quantile(axes, [0.005, 0.995], axis=0)
    share = np.clip((axes - low) / np.where(high > low, high - low, 1), 0, 1)
    return np.asarray(20 + share * (np.array(MAP_SIZE) - 40))


def _pairs(ids: Ids, scores: NDArray[Any]) -> list[tuple[int, float]]:
    """Return the rows that a query has, and their scores."""
    pairs = zip(ids.tolist(), scores.tolist(), strict=True)
    return [pair for pair in pairs if pair[0] >= 0]
