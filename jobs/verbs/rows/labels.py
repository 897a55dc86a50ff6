"""The options of labels, with which hits are evaluated as votes of a classifier."""

from dataclasses import dataclass

from mercore.jobs.options import check_whole, refuse_unused
from mercore.pipeline.measures.recognition import NEIGHBOURS, Classifier
from mercore.stores.errors import InputError
from mercore.stores.formats.labels import AnyLabels, open_labels
from mercore.stores.wording import option


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
