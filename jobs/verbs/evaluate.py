"""``mercore evaluate``: the recall of hits by each definition in use, and the papers' measures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mercore.jobs.options import Report, check_whole, parse_counts, parse_ranks, refuse_unused
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions, VerbTask
from mercore.jobs.verbs.rescoring import Rescoring, open_near_pairs, open_rescoring
from mercore.jobs.verbs.rows.labels import LabelOptions
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.measures import recall as definitions
from mercore.pipeline.measures.checks import checked_pair
from mercore.pipeline.measures.coverage import coverages
from mercore.pipeline.measures.overlap import NearPairs, overlap
from mercore.pipeline.measures.recall import Recall
from mercore.pipeline.measures.recognition import Classifier, recognition_rates
from mercore.stores.errors import InputError
from mercore.stores.formats import Sliced
from mercore.stores.results.hits import AnyHits, Hits, check_format, open_hits
from mercore.stores.wording import option, setting

TRUTH = "recognition-of-truth"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(VerbOptions):
    """Options of evaluate; ``vectors``, ``queries`` and ``kernel`` score both sides again."""

    hits_format: str | None = None
    truth_format: str | None = None
    ranks: str | Iterable[int] | None = None
    vectors: str | None = None
    queries: str | Sliced | None = None
    kernel: KernelOptions = KernelOptions()  # noqa: RUF009 - it is frozen
    labelling: LabelOptions = LabelOptions()  # noqa: RUF009 - it is frozen
    coverage: str | Iterable[int] | None = None
    overlap: int | None = None
    codes: str | None = None

    def check(self) -> None:
        """Refuse options of scoring again, of labels or of overlap if one of them is missing."""
        kernel = self.kernel
        for called in (self.hits_format, self.truth_format):
            check_format(called)
        if self.vectors is None:
            unused = {"kernel": kernel.name, "gamma": kernel.gamma, "transform": kernel.transform}
            because = f"it says how to re-score the hits from {option('vectors')}"
            if self.overlap is None:
                unused["linear_map"] = kernel.linear_map
                refuse_unused(because, queries=self.queries, **unused)
        elif self.queries is None or kernel.name is None:
            raise InputError(
                f"{option('vectors')} re-scores the hits: it needs {option('queries')} and "
                f"{option('kernel')} too. Fix: name both."
            )
        self.labelling.check()
        check_whole(overlap=self.overlap)
        if self.overlap is None:
            refuse_unused(f"it gives the bits of codes for {option('overlap')}", codes=self.codes)
        elif self.codes is None or self.vectors is None:
            raise InputError(
                f"{option('overlap')} compares codes with the true kernel: it needs "
                f"{option('codes')}, {option('vectors')}, "
                f"{option('queries')} and {option('kernel')}. Fix: name all four."
            )


@dataclass(frozen=True, kw_only=True)
class EvaluateTask(VerbTask):
    """An evaluation with both sets of hits open, and the labels and codes if there are any."""

    returned: Hits
    truth: Hits
    ranks: list[int] | None
    rescoring: Rescoring | None
    classifier: Classifier | None
    coverage: list[int]
    near: NearPairs | None
    names: Report

    def run(self) -> Report:
        """Return every definition of recall at every rank, and the measures that were asked for."""
        returned, truth = self.returned, self.truth
        if self.rescoring is not None:
            returned, truth = self.rescoring.scored()
        kernel = None if self.rescoring is None else self.rescoring.kernel
        recall = recalls(returned, truth, self.ranks, kernel=kernel)
        recall += [vars(row) for row in [*self._coverages(), *self._recognition_rates()]]
        if self.near is not None:
            recall.append(vars(overlap(returned, self.near)))
        return {**self.names, "queries": len(returned.ids), "recall": recall}

    def _coverages(self) -> list[Recall]:
        """Return how deep the truth covers the first hits."""
        return coverages(self.returned.ids, self.truth.ids, self.coverage, self.ranks)

    def _recognition_rates(self) -> list[Recall]:
        """Return the recognition rates of the hits, and of the truth if it is wide enough."""
        classifier = self.classifier
        if classifier is None:
            return []
        rates = recognition_rates(self.returned.ids, classifier, self.ranks)
        if self.truth.ids.shape[1] >= classifier.neighbours:
            rates += recognition_rates(self.truth.ids, classifier, self.ranks, definition=TRUTH)
        return rates


def open_evaluate(hits: AnyHits, truth: AnyHits, options: EvaluateOptions) -> EvaluateTask:
    """Open both sets of hits, the inputs to score them again, labels and codes.

    Raises
    ------
    MercoreError
        If an input does not exist, or does not fit the others.
    """
    options.check()
    returned = open_hits(hits, options.hits_format)
    true = open_hits(truth, options.truth_format)
    checked_pair(returned.ids, true.ids)
    ranks = None if options.ranks is None else parse_ranks(options.ranks)
    rescoring = _open_rescoring(returned, true, options)
    named = {"hits": hits, "truth": truth}
    return EvaluateTask(
        returned=returned,
        truth=true,
        ranks=ranks,
        rescoring=rescoring,
        classifier=_open_classifier(options.labelling, returned, true, ranks),
        coverage=_open_coverage(options, returned, true, ranks),
        near=_open_near_pairs(options, returned, true, rescoring),
        names={name: value for name, value in named.items() if isinstance(value, str)},
    )


def recalls(
    returned: Hits, truth: Hits, ranks: list[int] | None = None, *, kernel: Kernel | None = None
) -> list[Report]:
    """Return one mapping per definition of recall and rank.

    With ``kernel``, the scores of both are those that its users see: its values, or distances.
    """
    if kernel is not None and kernel.ascending:
        returned, truth = _negative(returned), _negative(truth)
    result = definitions.evaluate(returned, truth, ranks, exact_scores=kernel is not None)
    return [vars(row) for row in result.recalls]


def _negative(hits: Hits) -> Hits:
    """Return hits with their distances negated, so that the larger score is the nearer row."""
    return hits if hits.scores is None else Hits(scores=np.negative(hits.scores), ids=hits.ids)


def _open_rescoring(hits: Hits, truth: Hits, options: EvaluateOptions) -> Rescoring | None:
    """Open the inputs that score hits and truth again, if there are any."""
    vectors, queries = options.vectors, options.queries
    if vectors is None or queries is None:
        return None
    return open_rescoring(hits, truth, vectors=vectors, queries=queries, kernel=options.kernel)


def _open_classifier(
    labelling: LabelOptions, returned: Hits, truth: Hits, ranks: Sequence[int] | None
) -> Classifier | None:
    """Open the labels, if there are any; refuse labels of other rows or queries."""
    classifier = labelling.open()
    if classifier is not None:
        classifier.check(returned.ids)
        if truth.ids.shape[1] >= classifier.neighbours:
            classifier.check(truth.ids, "true")
        _refuse_ranks("labels", ranks, classifier.neighbours, "the neighbours that vote")
    return classifier


def _open_coverage(
    options: EvaluateOptions, returned: Hits, truth: Hits, ranks: Sequence[int] | None
) -> list[int]:
    """Return the numbers of hits to cover; refuse those that the hits or the ranks do not have."""
    if options.coverage is None:
        return []
    width = returned.ids.shape[1]
    counts = parse_counts("coverage", options.coverage, most=width, why="the hits of a query")
    _refuse_ranks("coverage", ranks, truth.ids.shape[1], "the true neighbours of a query")
    return counts


def _open_near_pairs(
    options: EvaluateOptions, returned: Hits, truth: Hits, rescoring: Rescoring | None
) -> NearPairs | None:
    """Open the codes, if there are any."""
    if options.codes is None or options.overlap is None or rescoring is None:
        return None
    vectors = rescoring.vectors
    return open_near_pairs(
        returned, truth, codes=options.codes, radius=options.overlap, vectors=vectors
    )


def _refuse_ranks(name: str, ranks: Sequence[int] | None, most: int, why: str) -> None:
    """Refuse ranks that are all too great for the measure of an option."""
    if ranks is not None and ranks[0] > most:
        raise InputError(
            f"{option(name)} has no use here: the least rank is {ranks[0]}, expected at most "
            f"{most}, {why}. Fix: {setting(ranks=f'1,{ranks[0]}')}"
        )
