"""The options of labels: by which rows take part, and with which hits vote on a class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.options import check_whole, refuse_unused
from mercore.pipeline.measures.recognition import NEIGHBOURS, Classifier
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError
from mercore.stores.formats.labels import AnyLabels, open_labels
from mercore.stores.formats.source import Source
from mercore.stores.selection import RowsByLabel
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option, setting


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The labels of rows and of queries, both or neither, and how many neighbours vote."""

    labels: AnyLabels | None = None
    query_labels: AnyLabels | None = None
    neighbours: int | None = None

    def check(self) -> None:
        """Refuse labels of rows or queries alone, and neighbours without labels."""
        check_whole(neighbours=self.neighbours)
        if (self.labels is None) != (self.query_labels is None):
            raise InputError(
                f"{option('labels')} and {option('query_labels')} go together: found one of "
                "them. Fix: name both, or "
                "neither."
            )
        if self.labels is None:
            refuse_unused("it says how many hits vote on a label", neighbours=self.neighbours)

    def open(self) -> Classifier | None:
        """Return the classifier, or None without labels."""
        if self.labels is None or self.query_labels is None:
            return None
        return Classifier(
            labels=open_labels(self.labels, "labels"),
            query_labels=open_labels(self.query_labels, "query labels"),
            neighbours=NEIGHBOURS if self.neighbours is None else self.neighbours,
        )


@dataclass(frozen=True, kw_only=True)
class LabelChoice:
    """The labels of rows, by which the ``same`` or all ``other`` ones take part for a query.

    Without ``query_labels``, the rows are the queries: ``itself``.
    """

    same: AnyLabels | None = None
    other: AnyLabels | None = None
    query_labels: AnyLabels | None = None
    itself: bool = False

    @property
    def given(self) -> bool:
        """Whether labels decide which rows take part."""
        return self.same is not None or self.other is not None

    def check(self) -> None:
        """Refuse both kinds, and labels of rows or of queries alone."""
        if self.same is not None and self.other is not None:
            raise InputError(
                f"{option('same')} and {option('other')} leave no row: found both. Fix: leave one "
                "out."
            )
        if not self.given:
            refuse_unused(
                f"it goes with {option('same')} or {option('other')}",
                query_labels=self.query_labels,
            )
        elif self.itself:
            refuse_unused("the rows are the queries", query_labels=self.query_labels)
        elif self.query_labels is None:
            raise InputError(
                f"{option('query_labels')} is missing: expected the labels of the queries, as "
                f"those of the rows are given. Fix: {setting(query_labels='FILE.npy')}"
            )

    def open(self, store: CodeStore | Vectors, queries: Source) -> RowsByLabel | None:
        """Return the rows that take part for each query, None if labels do not decide.

        Raises
        ------
        MercoreError
            If labels cannot be read, or are more or fewer than ids or queries.
        """
        given, name = (self.other, "other") if self.same is None else (self.same, "same")
        if given is None:
            return None
        by_id = _labels_of(given, name, store.id_count, f"id of {store.where}")
        every = store.rows == store.id_count  # then nothing is copied
        rows = by_id if every else by_id[store.ids_of(np.arange(store.rows))]
        asked = None
        if self.query_labels is not None:
            count = queries.shape[0]
            asked = _labels_of(self.query_labels, "query_labels", count, f"row of {queries.name}")
        return RowsByLabel.of(rows, asked, same=self.same is not None)


def _labels_of(given: AnyLabels, name: str, count: int, each: str) -> NDArray[np.int64]:
    """Read labels; refuse another number of them than ``count``, one per ``each``."""
    labels = open_labels(given, name)
    if len(labels) != count:
        called = given if isinstance(given, str) else name
        raise InputError(
            f"{called} has {len(labels):,} labels: expected {count:,}, one per {each}. Fix: name "
            "the labels of these rows."
        )
    return labels
