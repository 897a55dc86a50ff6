"""The options of encoders on the command line and in texts, read from their specs' fields."""

from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from mercore.jobs.help import OPTIONS, BlockOption, unbroken
from mercore.jobs.notices import flag
from mercore.jobs.options import FINITE, Completions
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.pipeline.encoders.encoder import OPTION, Option, options_of
from mercore.pipeline.encoders.equal_cost import equal_bytes, equal_operations
from mercore.stores.errors import InputError
from mercore.stores.wording import option, setting

CHOOSE = "bound"  # in place of an encoder: the bound with the cheapest exact search
SEED = "random_state"


def fields_of(name: str) -> dict[str, str]:
    """Return the field of the spec per option of an encoder."""
    return {option: field.name for option, field in options_of(ENCODERS[name]).items()}


def option_names() -> tuple[str, ...]:
    """Return the options of all encoders, the seed last."""
    names = dict.fromkeys(option for name in ENCODERS for option in fields_of(name))
    return (*(name for name in names if name != SEED), SEED)


def users_of(option: str) -> list[str]:
    """Return the encoders that have an option."""
    return [name for name in ENCODERS if option in fields_of(name)]


def spec_of_options(name: str, given: Mapping[str, object]) -> EncoderSpec:
    """Return the spec of an encoder; an option that is None has its default.

    Raises
    ------
    InputError
        If an option is given that the encoder does not have.
    """
    of_name = fields_of(name)
    values: dict[str, Any] = refuse_options(given, name, tuple(of_name))
    return ENCODERS[name](**{of_name[option]: value for option, value in values.items()})


def refuse_options(
    options: Mapping[str, object], name: str, known: tuple[str, ...]
) -> dict[str, Any]:
    """Return the given options of encoders; refuse one that ``name`` does not have.

    Raises
    ------
    InputError
        If there is one; the message names the encoders that have it.
    """
    given = {
        option: options[option] for option in option_names() if options.get(option) is not None
    }
    for each in given:
        if each not in known:
            raise InputError(
                f"{option(each)} has no use here: it belongs to {', '.join(users_of(each))}, found "
                f"{setting(encoder=name)}. Fix: leave {option(each)} out."
            )
    return given


def parse_spec(text: str, shape: tuple[int, int], protocol: Mapping[str, int]) -> EncoderSpec:
    """Return the spec of a text like ``kpca-pq:landmarks=512,components=64``.

    Defaults fit rows of the ``shape`` (n, d); those that shrink are printed.

    Parameters
    ----------
    protocol : the cost of every code per row, as ``bytes`` or ``operations``, or nothing; it sets
        the size of the code, which the text must then leave out

    Raises
    ------
    InputError
        If the encoder, an option or a value is unknown, an option is given twice or set by another
        option of ``mercore compare``, or no code fits the protocol.
    """
    rows, dims = shape
    kind, given = _parsed(text)
    set_by = {SEED: "seeds"}
    for cost in protocol:
        set_by[kind.size.field] = cost
    for name, field in fields_of(kind.name).items():
        if field in given and field in set_by:
            raise InputError(
                f"{option('encoder')} {text}: {option(set_by[field])} sets "
                f"{name.replace('_', '-')}. Fix: leave one of them out."
            )
    try:
        if "bytes" in protocol:
            return equal_bytes(kind, given, protocol["bytes"], rows=rows, dims=dims)
        if "operations" in protocol:
            return equal_operations(kind, given, protocol["operations"]).with_defaults_for(
                rows, dims
            )
    except InputError as error:
        raise InputError(f"{option('encoder')} {text}: {error.message}") from None
    return spec_within(kind(**given), rows, dims)


def spec_within(spec: EncoderSpec, rows: int, dims: int) -> EncoderSpec:
    """Return a spec with defaults that fit ``rows`` rows of ``dims`` numbers; print those."""
    used = spec.with_defaults_for(rows, dims)
    changed = [
        f"{flag(option)} is {getattr(used, field)}"
        for option, field in fields_of(spec.name).items()
        if getattr(used, field) != getattr(spec, field)
    ]
    if changed:
        held = f"{rows:,} row{'s' * (rows != 1)} of {dims:,} number{'s' * (dims != 1)}"
        click.echo(f"{spec.name}: defaults fit {held}: {', '.join(changed)}", err=True)
    return used


def spec_of_text(text: str) -> EncoderSpec:
    """Return the spec of a text like ``kpca-pq:landmarks=512,components=64``.

    Raises
    ------
    InputError
        If the encoder, an option or a value is unknown, or an option is given twice.
    """
    kind, given = _parsed(text)
    return kind(**given)


def encoder_params() -> list[click.Parameter]:
    """Return ``--encoder`` and the options of all encoders."""
    choice = BlockOption(
        ["--encoder"],
        values=("Encoders, with their options and defaults", _described()),
        type=click.Choice([*ENCODERS, CHOOSE]),
        metavar="ENCODER",
        help="The encoder, which decides what a code is. [default: by kernel and rows]",
    )
    others = (
        BlockOption(
            [flag(name)],
            block=OPTIONS if _is_shared(name) else "Options of encoders",
            type=_type_of(name),
            help=_help_of(name),
        )
        for name in option_names()
    )
    return [choice, *others]


def complete_encoders(_: click.Context, __: click.Parameter, incomplete: str) -> Completions:
    """Return the encoders whose names begin so."""
    return [CompletionItem(name) for name in ENCODERS if name.startswith(incomplete)]


def _type_of(option: str) -> "click.ParamType[Any]":
    """Return the type of an option's values."""
    field = options_of(ENCODERS[users_of(option)[0]])[option]
    stated: Option = field.metadata[OPTION]
    if stated.choices:
        return click.Choice(stated.choices)
    if field.type is float:
        return FINITE
    return click.INT if field.type is int else click.STRING


def _help_of(option: str) -> str:
    """Return the help text of an option, with the default if all encoders share the option."""
    user = users_of(option)[0]
    text = str(options_of(ENCODERS[user])[option].metadata[OPTION].help)
    return f"{text} [default: {_default_of(user, option)}]" if _is_shared(option) else text


def _default_of(name: str, option: str) -> object:
    """Return the default of an encoder's option as texts show it."""
    field = options_of(ENCODERS[name])[option]
    return field.metadata[OPTION].shown_default or field.default


def _is_shared(option: str) -> bool:
    """Return whether all encoders have an option."""
    return len(users_of(option)) == len(ENCODERS)


def _described() -> list[tuple[str, str]]:
    """Return the rows of the help about encoders: what a code is, then options and defaults."""
    rows, bounds = [], [name for name, kind in ENCODERS.items() if kind.bounds]
    for name, kind in ENCODERS.items():
        rows.append((name, kind.description))
        own = [option for option in fields_of(name) if not _is_shared(option)]
        pairs = [unbroken(f"{flag(option)} {_default_of(name, option)}") for option in own]
        rows.append(("", " ".join(pairs)))
    named = f"{', '.join(bounds[:-1])} and {bounds[-1]}"
    chosen = f"A sample decides between {named}: the cheapest exact search wins."
    return [*rows, (CHOOSE, chosen)]


def _parsed(text: str) -> tuple[type[EncoderSpec], dict[str, Any]]:
    """Return the class and the fields of the spec that a text describes."""
    name, _, listed = text.partition(":")
    if name not in ENCODERS:
        raise InputError(
            f"{option('encoder')} {text}: unknown encoder {name!r}, expected one of "
            f"{', '.join(ENCODERS)}. Fix: {setting(encoder='aska')}"
        )
    known, given = fields_of(name), dict[str, Any]()
    for word in listed.split(",") if listed else []:
        shown, equals, value = word.partition("=")
        named = shown.replace("-", "_")
        if not equals or named not in known:
            expected = ", ".join(other.replace("_", "-") for other in known if other != SEED)
            raise InputError(
                f"{option('encoder')} {text}: found {word!r}, expected option=value with an "
                f"option of {name}: {expected}. "
                "Fix: leave it out."
            )
        if known[named] in given:
            raise InputError(
                f"{option('encoder')} {text}: {shown} is given twice. Fix: leave one out."
            )
        given[known[named]] = _value(text, named, value)
    return ENCODERS[name], given


def _value(text: str, name: str, value: str) -> Any:  # noqa: ANN401 - each option has its own type
    """Return an option's value, of the type that ``mercore encode`` gives it."""
    kind = _type_of(name)
    try:
        return kind.convert(value, None, None)
    except click.BadParameter:
        expected = "a number" if kind is FINITE else "a whole number"
        if isinstance(kind, click.Choice):
            expected = f"one of {', '.join(kind.choices)}"
        raise InputError(
            f"{option('encoder')} {text}: {name.replace('_', '-')} is {value!r}, expected "
            f"{expected}. Fix: leave it out."
        ) from None
