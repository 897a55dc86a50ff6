"""The declaration of a verb: one Python function, from which its command is made too.

    @verb(section=SEARCH)
    def search(
        store: Annotated[StrPath, Param(type=READ)],
        *,
        k: int | None = None,
        memory: SearchMemory = None,
    ) -> Call[Hits]:
        '''Find the k nearest rows of each query.

Parameters
----------
        store : A store of vectors.
        k : Neighbours per query. By default 100, fewer if ``memory`` needs it.
        '''
        return Call(open_search, (store,), SearchOptions(k=k, memory=memory))

Python users call ``search``, which opens the call and runs it; ``commands.py`` makes the command of
the same parameters. A parameter that several verbs share carries its text in its type, as
``memory`` does, and the docstring gets it from there. Double backticks in a text name a parameter,
or hold a value: a docstring shows them as they are, the help of a command shows ``memory`` as
--memory.
"""

import re
import textwrap
from ast import literal_eval
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, Generic, ParamSpec, Protocol, TypeVar, get_args, get_origin

import click

from mercore.jobs.notices import flag
from mercore.stores.errors import naming_extras

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
BEGINS_ANEW = "run the same command again, which begins anew"
MARKED = re.compile(r"``(.+?)``")
DEFAULT = re.compile(r" By default (.+)\.$")
SECTION = re.compile(r"^(Raises|Examples|Notes|Parameters)\n-+$", re.MULTILINE)
PARAMETER = re.compile(r"^(\w+) : (.+(?:\n    .+)*)", re.MULTILINE)
FILL: dict[str, Any] = {"width": 96, "break_on_hyphens": False, "break_long_words": False}


class Task(Protocol[Result_co]):
    """A verb with everything open and checked, and nothing computed."""

    def check_limits(self) -> None:
        """Refuse work that exceeds the memory or the disk."""

    def run(self) -> Result_co:
        """Do the work."""


class Checked(Protocol):
    """The options of a verb."""

    def check(self) -> None:
        """Refuse options without opening a source."""

    def check_path(self, target: str) -> None:
        """Refuse a path that the verb could not write."""


@dataclass(frozen=True)
class Call(Generic[Result]):
    """A verb with its arguments and its options, which nothing has read or checked yet."""

    open: Callable[..., Task[Result]]
    arguments: Sequence[object]
    options: Checked | None = None

    def task(self) -> Task[Result]:
        """Open the inputs, and check them and the options."""
        with naming_extras():
            return self.open(*self.arguments, *([self.options] if self.options else []))

    def run(self) -> Result:
        """Open the verb and do its work."""
        with naming_extras():
            return self.task().run()


@dataclass(frozen=True)
class Param:
    """How the command line shows a parameter, and its text, if several verbs share it.

    ``several`` lets it be given more than once. ``values`` are the title and the rows of a block of
    the help about its values.
    """

    text: str = ""
    type: "click.ParamType[Any] | None" = None
    metavar: str | None = None
    several: bool = False
    values: tuple[str, Sequence[tuple[str, str]]] | None = None
    complete: Callable[..., Any] | None = None
    in_python_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb: its call, and everything that its front ends know of it.

    ``compiles`` tells whether it runs jitted functions for long, ``queued`` whether it can be
    submitted as a job, ``plan`` the module of ``jobs.planning`` that predicts it, ``writes_once``
    whether it refuses what its own finished run has written, ``replaces`` whether it has an option
    that lets it.
    ``again`` is what to do after an interrupt, ``printer`` the name of the function that prints its
    result, ``negative`` the entry of the report that, if it is not empty, is the answer no.
    """

    call: Callable[..., Call[Any]]
    section: str
    examples: tuple[str, ...] = ()
    compiles: bool = False
    queued: bool = True
    plan: str | None = None
    writes_once: bool = False
    replaces: bool = False
    again: str = BEGINS_ANEW
    printer: str = "print_report"
    negative: str | None = None

    @property
    def name(self) -> str:
        """The name of the verb."""
        return self.call.__name__

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters of the function, by name."""
        return signature(self.call).parameters

    @property
    def description(self) -> str:
        """The text of the docstring before its sections."""
        return SECTION.split(cleandoc(self.call.__doc__ or ""))[0].strip()

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each parameter."""
        return texts_of(self.call)


VERBS: dict[str, Verb] = {}


def verb(
    **traits: Any,  # noqa: ANN401 - the fields of Verb
) -> Callable[[Callable[Parameters, Call[Result]]], Callable[Parameters, Result]]:
    """Declare a verb with the traits of ``Verb``; the function that it becomes runs the verb."""

    def declare(call: Callable[Parameters, Call[Result]]) -> Callable[Parameters, Result]:
        VERBS[call.__name__] = Verb(call=call, **traits)

        @wraps(call)
        def run(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
            return call(*arguments, **keywords).run()

        run.__signature__ = plain_signature(call)  # type: ignore[attr-defined]
        run.__doc__ = documented(call)
        return run

    return declare


def plain_signature(call: Callable[..., Call[Any]]) -> Signature:
    """Return the signature of the function that a call becomes, with types alone."""
    shown = signature(call)
    (result,) = get_args(shown.return_annotation)
    plain = [each.replace(annotation=type_of(each)) for each in shown.parameters.values()]
    return shown.replace(parameters=plain, return_annotation=result)


def param_of(parameter: Parameter) -> Param:
    """Return how the command line shows a parameter."""
    stated = [each for each in get_args(parameter.annotation) if isinstance(each, Param)]
    return stated[0] if stated else Param()


def type_of(parameter: Parameter) -> Any:  # noqa: ANN401 - a type, or a union of types
    """Return the type of a parameter."""
    stated = get_origin(parameter.annotation) is Annotated
    return get_args(parameter.annotation)[0] if stated else parameter.annotation


def texts_of(function: Callable[..., object]) -> dict[str, str]:
    """Return the text of each parameter: of the docstring, or else of its type."""
    own = {
        found[1]: " ".join(found[2].split())
        for found in PARAMETER.finditer(cleandoc(function.__doc__ or ""))
    }
    return {
        name: own.get(name) or param_of(parameter).text
        for name, parameter in signature(function).parameters.items()
    }


def documented(function: Callable[..., object]) -> str:
    """Return the docstring of a function, with all its parameters in their order."""
    lines = []
    for name, text in texts_of(function).items():
        default = signature(function).parameters[name].default
        shown = f"``{default!r}``".replace("'", '"')
        whole = f"{text} By default {shown}." if is_shown(default) else text
        lines.append(textwrap.fill(f"{name} : {whole}", subsequent_indent="    ", **FILL))
    before, *rest = SECTION.split(cleandoc(function.__doc__ or ""))
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    sections = {"Parameters": "\n" + "\n".join(lines) + "\n\n"} | {
        title: text for title, text in sections.items() if title != "Parameters"
    }
    return (
        before.rstrip()
        + "\n\n"
        + "".join(f"{title}\n{'-' * len(title)}{text}" for title, text in sections.items())
    )


def on_command_line(text: str, parameters: Mapping[str, Parameter]) -> str:
    """Return a text as a command's help shows it: -k for ``k``, and [default: 5] at the end."""

    def shown(found: re.Match[str]) -> str:
        name, equals, value = found[1].partition("=")
        if name in parameters:
            return f"{flag_of(parameters[name])}{f' {literal_eval(value)}' if equals else ''}"
        return found[1].strip('"')

    return MARKED.sub(shown, DEFAULT.sub(r" [default: \1]", text))


def is_shown(default: object) -> bool:
    """Return whether a default says more than that the option is not given."""
    return default not in (None, (), Parameter.empty) and default is not False


def flag_of(parameter: Parameter) -> str:
    """Return a parameter as the command line names it: an option, or an argument in capitals."""
    if parameter.kind is not Parameter.KEYWORD_ONLY:
        return param_of(parameter).metavar or parameter.name.upper()
    return flag(parameter.name)


def given(values: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """Return those of the values that are given: not None, nor several of none."""
    return {name: values[name] for name in names if values.get(name) not in (None, ())}
