"""``mercore report``: a page about a store of codes, or about the folder of a comparison."""

from pathlib import Path

from mercore.jobs.comparison.setup import RECORDED
from mercore.jobs.gallery.report.codes import CodesReportTask, open_codes_report
from mercore.jobs.gallery.report.compared import ComparedReportTask, open_compared_report
from mercore.jobs.gallery.report.report_options import ReportOptions
from mercore.jobs.options import refuse_unused
from mercore.stores.codes import CodeStore
from mercore.stores.errors import FormatError
from mercore.stores.indexes.orders import KIND as ORDERS
from mercore.stores.rows import open_stored
from mercore.stores.vectors import KIND as VECTORS
from mercore.stores.wording import command

__all__ = ["ReportOptions", "open_report"]


def open_report(store: str, options: ReportOptions) -> CodesReportTask | ComparedReportTask:
    """Open a store of codes and what it is measured with, or the runs of a comparison.

    Raises
    ------
    MercoreError
        If it is neither, an input does not fit the others, or the page cannot be written.
    """
    options.check()
    if (Path(store) / RECORDED).is_file():
        refuse_unused(
            f"{store} is a comparison, whose figures are there already",
            vectors=options.vectors,
            queries=options.queries,
            truth=options.truth,
            kernel=options.kernel,
            threads=options.execution.threads,
            memory=options.execution.memory,
        )
        return open_compared_report(store, options.out)
    stored = open_stored(store)
    if not isinstance(stored, CodeStore):
        kind = None if stored is None else stored.kind
        found = "neither" if kind is None else f"a store of {kind}"
        encode = command("encode", store, "CODES", kernel="chi2")
        fixes = {
            VECTORS: f"{encode}, then report CODES.",
            ORDERS: "name the codes that were sorted.",
        }
        raise FormatError(
            f"{store}: found {found}, expected a store of codes, or a folder that mercore compare "
            f"wrote. Fix: {fixes.get(str(kind), 'check the path.')}"
        )
    return open_codes_report(stored, options)
