"""Counts of ids that measures share: a repeated id counts once, and −1 never."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.measures.checks import Ids


def first_mentions(ids: Ids) -> NDArray[np.bool_]:
    """Return where each present id of a row stands first, bool[nq, k] for int64[nq, k]."""
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(ids, order, axis=1)
    counted = ordered >= 0
    counted[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    mentions = np.empty_like(counted)
    np.put_along_axis(mentions, order, counted, axis=1)
    return mentions


def count_shared(returned: Ids, true: Ids) -> int:
    """Count the distinct ids that the rows of one side share with those of the other."""
    merged = np.sort(np.concatenate([_distinct(returned), _distinct(true)], axis=1), axis=1)
    return int(((merged[:, 1:] == merged[:, :-1]) & (merged[:, 1:] >= 0)).sum())


def _distinct(ids: Ids) -> Ids:
    """Return each row sorted, with −1 in place of repeated ids."""
    ordered = np.sort(ids, axis=1)
    repeated = ordered[:, 1:] == ordered[:, :-1]
    ordered[:, 1:][repeated] = -1
    return ordered
