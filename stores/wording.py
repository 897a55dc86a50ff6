"""Options and commands inside messages: data, which each front end writes in its own words.

A message below the front ends names an option by its keyword of the Python function:

    InputError(f"{store} holds vectors. Fix: leave {option('part_rows')} out.")
    InputError(f"k is 0: expected 1 or more. Fix: {setting(k=10)}.")

A Python caller reads *leave part_rows out* and *k=10*, a user of the command line *leave
--part-rows out* and *-k 10*. Text around the marks, such as paths, is never searched or changed.
"""

import json
from collections.abc import Callable, Mapping, Sequence

# Unicode reserves these two for a program's own use: the texts of others do not hold them.
BEGIN, END = "\ufdd0", "\ufdd1"
Writer = Callable[[str, Sequence[str], Mapping[str, object]], str]


def option(name: str) -> str:
    """Return the mark of an option: ``part_rows``, or ``--part-rows``."""
    return _mark("", [name], {})


def setting(**options: object) -> str:
    """Return the mark of options and their values: ``k=10, exact=True``, or ``-k 10 --exact``."""
    return _mark("", [], options)


def command(verb: str, *arguments: str, **options: object) -> str:
    """Return the mark of a call of a verb; an argument in capitals stands for any value."""
    return _mark(verb, arguments, options)


def _mark(verb: str, arguments: Sequence[str], options: Mapping[str, object]) -> str:
    return f"{BEGIN}{json.dumps([verb, arguments, options])}{END}"


def in_keywords(verb: str, arguments: Sequence[str], options: Mapping[str, object]) -> str:
    """Write one mark as Python: ``k``, ``k=10``, or ``mercore.search(STORE, QUERIES, k=10)``."""
    if not verb and arguments:
        return arguments[0]
    given = [each if each.isupper() else json.dumps(each) for each in arguments]
    given += [f"{name}={_literal(value)}" for name, value in options.items()]
    return f"mercore.{verb}({', '.join(given)})" if verb else ", ".join(given)


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def render(message: str, write: Writer = in_keywords) -> str:
    """Return a message with its marks written out."""
    text, *rest = message.split(BEGIN)
    for piece in rest:
        mark, end, after = piece.partition(END)
        text += write(*json.loads(mark)) + after if end else BEGIN + piece
    return text
