"""Verbs as functions: what a command takes by options they take by keywords, with the same defaults."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from numbers import Integral
from typing import Any, TypeVar

import click

from mercore.jobs.cli import main
from mercore.stores.errors import InputError

R = TypeVar("R")
PRINTED = "json"  # it says how to print, which a function does not


def called(name: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a function of a verb's ``**options`` take those of the command ``name``; paths may be ``pathlib`` ones.

    Options that are not given have the command's defaults; text is read as the command reads it.

    Raises
    ------
    TypeError
        Of the function, if the command has no such option, or needs one that is not given.
    InputError
        Of the function, if an option's text is none that the command takes.
    """

    def decorated(verb: Callable[..., R]) -> Callable[..., R]:
        options = {str(option.name): option for option in main.commands[name].params if _is_keyword(option)}

        signed = _signed(verb, options)

        @wraps(verb)
        def call(*arguments: Any, **given: Any) -> R:  # noqa: ANN401 - as the signature says
            bound = signed.bind(*arguments, **given)
            bound.apply_defaults()
            paths = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in bound.args]
            return verb(*paths, **{word: _value(options[word], value) for word, value in bound.kwargs.items()})

        call.__signature__ = signed  # type: ignore[attr-defined]
        return call

    return decorated


def _is_keyword(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.name != PRINTED


def _default(option: click.Parameter) -> Any:  # noqa: ANN401 - each option has its own type
    """Return what a command's option is when it is not given: None for most."""
    value = option.get_default(_context(option))
    return None if option.value_is_missing(value) else value


def _value(option: click.Parameter, given: Any) -> Any:  # noqa: ANN401
    """Return what is given as the command would have it: a size in words as bytes, a path as text."""
    if isinstance(given, os.PathLike):
        return os.fspath(given)
    if isinstance(option, click.Option) and option.multiple:
        return (given,) if isinstance(given, str) else tuple(given)
    if given is None and not option.required:
        return _default(option)
    if given is None or given == "":
        raise InputError(f"{option.name} is {given!r}: expected a value. Fix: name one, or leave {option.name} out.")
    if given is None or (not isinstance(given, str) and not isinstance(option.type, click.types.IntParamType)):
        return given
    if not isinstance(given, str | Integral) or isinstance(given, bool):
        raise InputError(f"{option.name} is {given!r}: expected a whole number. Fix: {option.name}=10.")
    try:
        return option.type_cast_value(_context(option), given)
    except click.BadParameter as error:
        raise InputError(f"{option.name}: {error.message}") from None


def _context(option: click.Parameter) -> click.Context:
    return click.Context(click.Command(str(option.name)))


def _signed(verb: Callable[..., object], options: Mapping[str, click.Parameter]) -> Signature:
    """Return the signature that a notebook shows: every option with its default."""
    shown = signature(verb)
    fixed = [each for each in shown.parameters.values() if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    keywords = [
        Parameter(word, Parameter.KEYWORD_ONLY, default=Parameter.empty if option.required else _default(option))
        for word, option in options.items()
    ]
    return shown.replace(parameters=[*fixed, *keywords])
