"""Messages for callers of the Python API: options of the command line become keywords."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from inspect import isfunction, signature
from pathlib import Path
from typing import ParamSpec, TypeVar

from mercore.jobs import api
from mercore.jobs.encoder_options import option_names
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
BEGIN, END = r"(?<![^\s'\"(])", r"(?![\w-])"  # of a word
# The rest of a message stays as it is from a command on.
COMMAND = re.compile(rf"{BEGIN}mercore (?:{'|'.join(VERBS)}) .*", re.DOTALL)
DEFAULTS = dict.fromkeys(option_names()) | {
    name: keyword.default
    for function in vars(api).values()
    if isfunction(function) and function.__module__ == api.__name__
    for name, keyword in signature(function).parameters.items()
}
SWITCHES = [name for name, default in DEFAULTS.items() if isinstance(default, bool)]


def _options(names: Iterable[str]) -> str:
    """Return the pattern of options; the names are its group."""
    return rf"{BEGIN}--?({'|'.join(names).replace('_', '-')}){END}"


OPTION = _options(DEFAULTS)
# An option, where it follows one of these words: with its value.
SET = re.compile(rf"(?:Fix: |found | or )(?:{OPTION} (?!out\b|or\b|and\b|to\b)[^\s;]+ ?)+")
PAIR = re.compile(rf"{OPTION} ([^\s;]+?)([.,]?)( |$)")
SWITCHED = re.compile(rf"(?<!leave ){_options(SWITCHES)}")
NAMED = re.compile(OPTION)


def in_keywords(message: str, given: Iterable[str] = ()) -> str:
    """Return a message with ``landmarks=1024`` for ``--landmarks 1024``, and so on.

    Complete commands stay as they are, and so do texts that the caller has ``given``, as paths.
    """
    kept = sorted({text for text in given if re.search(r"-|mercore ", text)}, key=len)[::-1]
    for number, text in enumerate(kept):
        message = re.sub(rf"(?<![\w-]){re.escape(text)}{END}", f"\0{number}\0", message)
    command = COMMAND.search(message)
    text, rest = (message, "") if command is None else (message[: command.start()], command[0])
    text = SET.sub(lambda found: PAIR.sub(_keyword, found[0]), text)
    text = SWITCHED.sub(lambda found: f"{_name(found[1])}=True", text)
    text = NAMED.sub(lambda found: _name(found[1]), text) + rest
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)


def speaks_keywords(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function's errors name its keywords, not options of the command line."""

    @wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        try:
            return function(*arguments, **keywords)
        except MercoreError as error:
            if error.args and isinstance(error.args[0], str):
                own = list(getattr(arguments[0], "__dict__", {}).values()) if arguments else []
                texts = _texts([*arguments, *keywords.values(), *own])
                error.args = (in_keywords(error.args[0], texts), *error.args[1:])
            raise

    return called


def _texts(values: Iterable[object]) -> Iterator[str]:
    """Yield the texts and paths among values, and in lists among them."""
    for value in values:
        if isinstance(value, str | Path):
            yield str(api.plain_path(value))
        elif isinstance(value, list | tuple):
            yield from _texts(value)


def _keyword(found: re.Match[str]) -> str:
    """Return an option and its value as Python writes them; further ones follow after a comma."""
    name, value, end, space = found.groups()
    number = re.fullmatch(r"-?\d+(\.\d+)?", value) is not None
    shown = value if number or value[0] in "'\"" else f'"{value}"'
    more = found.string[found.end() : found.end() + 2] == "--"
    return f"{_name(name)}={shown}{',' if more else end}{space}"


def _name(option: str) -> str:
    return option.replace("-", "_")
