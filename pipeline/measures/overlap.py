"""Overlap: the share of pairs at a small Hamming distance that are true neighbours."""

from dataclasses import dataclass

import numpy as np

from mercore.pipeline.measures.checks import (
    Ids,
    check_descending,
    checked_ids,
    checked_scores,
)
from mercore.pipeline.measures.counts import first_mentions
from mercore.pipeline.measures.recall import Neighbours
from mercore.stores.errors import InputError, ShapeError
from mercore.stores.wording import option, setting

NEIGHBOUR = 50  # Kulis & Grauman 2012, §6.7: the true neighbour whose distance is the threshold
ROUNDING = 1e-3  # of (1 − score) · bits for scores in float32; bits are at most 4096


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """The share of true neighbours among the ``pairs`` of a query and a hit that are near.

    ``value`` is None without a pair. ``rank`` is the number of hits per query; ``queries_cut`` are
    queries whose last hit is near, so that they may have more near rows than hits.
    """

    definition: str
    rank: int
    value: float | None
    queries: int
    pairs: int
    queries_cut: int


@dataclass(frozen=True, kw_only=True, eq=False)
class NearPairs:
    """The Hamming distances of hits, and what makes a pair near, and a hit a true neighbour.

    ``distances`` are int64[nq, k], -1 for an absent hit. A pair is near up to the distance
    ``radius``, and a hit is a true neighbour from the score ``threshold`` on. ``rows`` is the
    number of rows that were searched.
    """

    distances: Ids
    radius: int
    threshold: float
    rows: int


def hamming_distances(returned: Neighbours, bits: int) -> Ids:
    """Return the Hamming distances of hits from their scores 1 − h / bits, int64[nq, k].

    An absent hit has the distance -1.

    Parameters
    ----------
    returned : Neighbours
        Hits of a scan of binary codes: ``scores`` float32 or float64 [nq, k].
    bits : int
        Bits of a code, ≥ 1.

    Raises
    ------
    ShapeError
        If the hits are empty or not 2-D.
    InputError
        If there are no scores, or one is not 1 − h / bits for a whole h from 0 to bits.
    """
    ids = checked_ids(returned.ids, "returned")
    scores = checked_scores(returned.scores, ids, "returned")
    present = ids >= 0
    differing = np.where(present, (1 - scores.astype(np.float64)) * bits, 0)
    whole = np.rint(differing)
    wrong = (np.abs(differing - whole) > ROUNDING) | (whole < 0) | (whole > bits)
    if wrong.any():
        query, rank = np.argwhere(wrong)[0].tolist()
        raise InputError(
            f"a score is no share of equal bits: found {scores[query, rank]}, expected 1 − h / "
            f"{bits} for a whole h; query {query}, rank {rank + 1}. Fix: give hits of a search of "
            f"these codes without {option('rerank')}."
        )
    return np.where(present, whole, -1).astype(np.int64)


def threshold_score(true: Neighbours, neighbour: int = NEIGHBOUR) -> float:
    """Return the least score of a true neighbour, by the mean distance to a far one.

    The threshold is the mean over queries of the kernel distance √(2 − 2κ) to the true neighbour
    number ``neighbour``, turned back into a score. The paper (Kulis & Grauman 2012, §6.7) takes the
    mean over the rows of the database, each with its own neighbours; queries stand for them here.

    Parameters
    ----------
    true : Neighbours
        ``scores`` [nq, ≥ neighbour], values of a kernel with κ(x, x) = 1, descending.

    Raises
    ------
    ShapeError
        If there are fewer true neighbours.
    InputError
        If there are no scores, one is not finite, they rise, or a neighbour is absent.
    """
    ids = checked_ids(true.ids, "true")
    if ids.shape[1] < neighbour:
        raise ShapeError(
            f"the truth is too short: found {ids.shape[1]} neighbours of a query, expected at "
            f"least {neighbour}. Fix: search for {neighbour} true neighbours: "
            f"{setting(k=neighbour)}."
        )
    first = ids[:, :neighbour]
    if (first < 0).any():
        query = int(np.argwhere(first < 0)[0, 0])
        raise InputError(
            f"the truth is too short: found {int((first[query] >= 0).sum())} neighbours of query "
            f"{query}, expected at least {neighbour}. Fix: search for {neighbour} true neighbours: "
            f"{setting(k=neighbour)}."
        )
    scores = checked_scores(true.scores, ids, "true")[:, :neighbour].astype(np.float64)
    check_descending(scores, first >= 0, 0)
    distance = float(np.sqrt(np.maximum(0, 2 - 2 * scores[:, -1])).mean())
    return 1 - distance**2 / 2


def overlap(returned: Neighbours, near: NearPairs) -> Overlap:
    """Return the overlap score: the share of near pairs whose hit is a true neighbour.

    Kulis & Grauman 2012, Fig. 8: of the pairs of a query and a row with a Hamming distance of at
    most 3, the share whose kernel distance is at most the threshold. Scores are compared in
    float32, so that rounding loses no true neighbour.

    Parameters
    ----------
    returned : Neighbours
        ``ids`` int64[nq, k]; -1 marks an absent hit, and a repeated id counts once, where it stands
        first. ``scores`` are values of the true kernel, not of codes.
    near : NearPairs
        The distances of these hits, of the same shape.

    Raises
    ------
    ShapeError
        If the shapes differ, or the hits are empty or not 2-D.
    InputError
        If there are no scores, or the score of a present hit is not finite.
    """
    ids = checked_ids(returned.ids, "returned")
    scores = checked_scores(returned.scores, ids, "returned")
    if near.distances.shape != ids.shape:
        raise ShapeError(
            f"the distances do not fit the hits: found shape {near.distances.shape}, expected "
            f"{ids.shape}. Fix: give the distances of these hits."
        )
    within = (ids >= 0) & (near.distances <= near.radius)
    counted = within & first_mentions(ids)
    true = counted & (scores.astype(np.float32) >= np.float32(near.threshold))
    pairs, width = int(counted.sum()), ids.shape[1]
    return Overlap(
        definition=f"overlap-{near.radius}",
        rank=width,
        value=int(true.sum()) / pairs if pairs else None,
        queries=len(ids),
        pairs=pairs,
        queries_cut=int(within[:, -1].sum()) if width < near.rows else 0,
    )
