"""Messages for callers of the Python API: options of the command line become keywords."""

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from mercore.stores.errors import MercoreError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

VERBS = (
    *("demo", "ingest", "append", "plan", "encode", "index", "search", "verify", "evaluate"),
    *(
        "compare",
        "gallery",
        "report",
        "export",
        "info",
        "check",
        "kernels",
        "encoders",
        "completion",
    ),
    *("submit", "jobs", "status", "logs", "wait", "cancel", "resume", "runner"),
)
COMMAND = re.compile(rf"mercore (?:{'|'.join(VERBS)}) .*", re.DOTALL)  # stays as it is
SWITCHES = ("force", "exact", "drop-zero-rows", "drop-bad-rows")
# An option, where it follows one of these words: with its value.
SET = re.compile(r"(?:Fix: |found | or )(?:--[a-z-]+ (?!out\b|or\b|and\b|to\b)[^\s;]+ ?)+")
PAIR = re.compile(r"--([a-z-]+) ([^\s;]+?)([.,]?)( |$)")
SWITCHED = re.compile(rf"(?<!leave )--({'|'.join(SWITCHES)})\b")
NAMED = re.compile(r"--([a-z][a-z-]*)")


def in_keywords(message: str) -> str:
    """Return a message with ``landmarks=1024`` for ``--landmarks 1024``, and so on.

    Whole commands stay as they are.
    """
    command = COMMAND.search(message)
    text, rest = (message, "") if command is None else (message[: command.start()], command[0])
    text = SET.sub(lambda found: PAIR.sub(_keyword, found[0]), text)
    text = SWITCHED.sub(lambda found: f"{_name(found[1])}=True", text)
    return NAMED.sub(lambda found: _name(found[1]), text) + rest


def speaks_keywords(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function's errors name its keywords, not options of the command line."""

    @wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        try:
            return function(*arguments, **keywords)
        except MercoreError as error:
            if error.args and isinstance(error.args[0], str):
                error.args = (in_keywords(error.args[0]), *error.args[1:])
            raise

    return called


def _keyword(found: re.Match[str]) -> str:
    """Return an option and its value as Python writes them; further ones follow after a comma."""
    name, value, end, space = found.groups()
    number = re.fullmatch(r"-?\d+(\.\d+)?", value) is not None
    shown = value if number or value[0] in "'\"" else f'"{value}"'
    more = found.string[found.end() : found.end() + 2] == "--"
    return f"{_name(name)}={shown}{',' if more else end}{space}"


def _name(option: str) -> str:
    return option.replace("-", "_")
