"""Options and tasks of verbs by name, for the command line, ``submit`` and ``plan``."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Protocol, cast

from mercore.jobs.verbs.inputs import VerbTask

# Verbs whose module has another name, or lies in another folder.
MODULES = {
    "append": "mercore.jobs.verbs.ingest",
    "compare": "mercore.jobs.comparison.compare",
    "gallery": "mercore.jobs.gallery.gallery",
    "report": "mercore.jobs.gallery.report.report",
}


# Verbs that refuse what their own finished run has written, or would add it once more.
WRITING_ONCE = ("ingest", "append", "search", "export", "gallery", "report")


class Options(Protocol):
    """The options of a verb."""

    def check(self) -> None:
        """Refuse options without opening a source."""

    def check_path(self, target: str) -> None:
        """Refuse a path that the verb could not write."""


def options_of(verb: str, values: Mapping[str, object]) -> Options | None:
    """Return the options of a verb from its command line, or None if the verb has none."""
    kind = getattr(_module(verb), f"{verb.title()}Options", None)
    return None if kind is None else cast("Options", kind.from_values(values))


def open_task(verb: str, arguments: Sequence[object], values: Mapping[str, object]) -> VerbTask:
    """Open a verb with the arguments and options of its command line."""
    options = options_of(verb, values)
    given = arguments if options is None else [*arguments, options]
    return cast("VerbTask", getattr(_module(verb), f"open_{verb}")(*given))


def _module(verb: str) -> ModuleType:
    return import_module(MODULES.get(verb, f"mercore.jobs.verbs.{verb}"))
