"""Recognition: classification of queries by the labels of their nearest neighbours."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from mercore.pipeline.measures.checks import Ids, checked_ids, checked_ranks, query_blocks
from mercore.pipeline.measures.counts import first_mentions
from mercore.pipeline.measures.recall import Recall
from mercore.stores.errors import InputError, ShapeError
from mercore.stores.spec import digest
from mercore.stores.wording import setting

NEIGHBOURS = 5  # Davis et al. 2014, §3.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """A classifier by K nearest neighbours, and the true labels of its queries.

    ``labels`` int64[n] has one label per row id, ``query_labels`` int64[nq] one per query, and
    ``neighbours`` is K.
    """

    labels: Ids
    query_labels: Ids
    neighbours: int = NEIGHBOURS

    def check(self, ids: Ids, side: str = "returned") -> Ids:
        """Return the first K neighbours, int64[nq, K]; refuse ids that the labels do not fit.

        ``side`` names the ids in messages.

        Raises
        ------
        ShapeError
            If there are fewer than K neighbours per query, or the queries are not as many as their
            labels.
        InputError
            If ids are not integers, below -1, or beyond the labels of the rows.
        """
        ids = checked_ids(ids, side)
        width = ids.shape[1]
        if not 1 <= self.neighbours <= width:
            raise ShapeError(
                f"neighbours is out of range: found {self.neighbours}, expected 1 to {width}, the "
                f"{side} neighbours of a query. Fix: {setting(neighbours=width)}, or search "
                "with a greater k."
            )
        if len(self.query_labels) != len(ids):
            raise ShapeError(
                f"the query labels do not fit the hits: found {len(self.query_labels)} labels, "
                f"expected {len(ids)}, one per query. Fix: give the labels of these queries."
            )
        if int(ids.max()) >= len(self.labels):
            query, rank = np.argwhere(ids >= len(self.labels))[0].tolist()
            raise InputError(
                f"a {side} id has no label: found row {ids[query, rank]}, expected a row below "
                f"{len(self.labels)}, the number of labels; query {query}, rank {rank + 1}. "
                "Fix: give one label per row of the vectors that were searched."
            )
        return ids[:, : self.neighbours]

    def fingerprint(self) -> str:
        """Return a digest of the labels and of K."""
        labels = blake2b(self.labels.tobytes() + self.query_labels.tobytes(), digest_size=16)
        return digest([len(self.labels), self.neighbours, labels.hexdigest()])


def recognition_rate(returned: Ids, classifier: Classifier, r: int) -> float:
    """Return recognitionRate@R of Davis, Balzer & Soatto (CVPR 2014, §3.2).

    It is the share of queries whose label is among the r most frequent labels of their first K
    hits. At r = 1 it is the accuracy of the k-NN classifier (Kulis & Grauman 2012, Fig. 1 and 3).
    Of equally frequent labels, the one whose first hit stands earlier comes first.

    Parameters
    ----------
    returned : int64[nq, ≥ K]
        Best first; -1 marks an absent neighbour and has no label. A repeated id counts once, where
        it stands first. Hits after the first K have no vote.
    classifier : Classifier
    r : int, 1 ≤ r ≤ K

    Raises
    ------
    ShapeError
        If ``r`` is out of range, or as ``Classifier.check`` does.
    InputError
        As ``Classifier.check`` does.
    """
    first = classifier.check(returned)
    if not 1 <= r <= classifier.neighbours:
        raise ShapeError(
            f"the rank is out of range: found {r}, expected 1 to {classifier.neighbours}, the "
            "neighbours that vote. Fix: ask for a rank within it, or let more neighbours vote."
        )
    recognised = 0
    for rows in query_blocks(*first.shape):
        places = _label_places(first[rows], classifier.labels, classifier.query_labels[rows])
        recognised += int(((places >= 1) & (places <= r)).sum())
    return recognised / len(first)


def recognition_rates(
    returned: Ids,
    classifier: Classifier,
    ranks: Iterable[int] | None = None,
    *,
    definition: str = "recognition",
) -> list[Recall]:
    """Return the recognition rate at every rank up to K; by default at 1 and 10.

    Raises
    ------
    ShapeError, InputError
        As ``recognition_rate`` does.
    """
    neighbours = classifier.neighbours
    wanted = checked_ranks(None, neighbours) if ranks is None else sorted(set(ranks))
    return [
        Recall(
            definition=definition,
            rank=rank,
            value=recognition_rate(returned, classifier, rank),
            queries=len(returned),
        )
        for rank in wanted
        if rank <= neighbours
    ]


def _label_places(ids: Ids, labels: Ids, query_labels: Ids) -> Ids:
    """Return the place of each query's label among the labels of its hits, int64[nq].

    The most frequent label has place 1. The place is 0 if no hit has the query's label.
    """
    counted = first_mentions(ids)
    of_query = np.nonzero(counted)[0]
    names, codes = np.unique(
        np.concatenate([labels[ids[counted]], query_labels]), return_inverse=True
    )
    keys, first, counts = np.unique(
        of_query * len(names) + codes[: len(of_query)], return_index=True, return_counts=True
    )
    queries = keys // len(names)
    order = np.lexsort((first, -counts, queries))
    places, own = np.empty_like(keys), np.zeros(len(ids), np.int64)
    places[order] = np.arange(len(keys)) - np.searchsorted(queries, queries) + 1
    mine = keys % len(names) == codes[len(of_query) :][queries]
    own[queries[mine]] = places[mine]
    return own
