"""The options of ``mercore report``."""

from dataclasses import dataclass

from mercore.jobs.gallery.page import check_page
from mercore.jobs.resources.execution import Execution
from mercore.jobs.verbs.inputs import VerbOptions
from mercore.stores.errors import InputError
from mercore.stores.formats import Sliced
from mercore.stores.results.hits import AnyHits
from mercore.stores.wording import option


@dataclass(frozen=True, kw_only=True)
class ReportOptions(VerbOptions):
    """Options of report; all but ``out`` and ``force`` say how codes are measured."""

    out: str
    vectors: str | None = None
    queries: str | Sliced | None = None
    truth: AnyHits | None = None
    kernel: str | None = None
    execution: Execution = Execution()  # noqa: RUF009 - it is frozen
    force: bool = False

    def check(self) -> None:
        """Refuse a page that cannot be written, true neighbours without queries, and threads.

        Raises
        ------
        InputError, NotFoundError, ExistsError, StorageError
            If there is such an option.
        """
        self.execution.check()
        if self.truth is not None and self.queries is None:
            raise InputError(
                f"{option('truth')} names the true neighbours of {option('queries')}: found no "
                f"queries. Fix: name the queries with {option('queries')}, or leave "
                f"{option('truth')} out."
            )
        check_page(self.out, force=self.force)
