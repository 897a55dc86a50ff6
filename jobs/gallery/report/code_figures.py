"""What was measured of codes."""

from dataclasses import dataclass

from mercore.jobs.gallery.report.measure import PairScores, Scan, Values
from mercore.jobs.gallery.report.sample import Ids, QuerySample
from mercore.jobs.options import Report
from mercore.stores.results.hits import Hits


@dataclass(frozen=True, kw_only=True)
class CodeFigures:
    """What was measured of codes; ``hits`` and ``truth`` have ids, ``scan`` has rows of the store.

    ``query_ids`` are the numbers of the queries in their source.
    ``whole``: all rows were searched, with true neighbours that were given.
    """

    queries: QuerySample
    query_name: str | None
    query_ids: Ids
    scan: Scan
    hits: Hits
    truth: Hits
    whole: bool
    recall: list[Report]
    scored: PairScores | None
    residuals: Values | None
    threads: int
    batch: int
    queries_given: int
