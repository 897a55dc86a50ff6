"""The commands of verbs, made from their declarations."""

from collections.abc import Mapping
from inspect import Parameter
from typing import Any, get_args

import click

from mercore.jobs.encoder_options import encoder_params
from mercore.jobs.face.declaring import (
    Call,
    Verb,
    flag_of,
    given,
    is_shown,
    on_command_line,
    param_of,
    type_of,
)
from mercore.jobs.face.group import ANSWER_IS_NO
from mercore.jobs.help import BlockOption, VerbCommand
from mercore.jobs.notices import announce_first_use
from mercore.jobs.options import FINITE, JSON, echo_json

ENCODER = "encoder"  # of encode: on the command line each option of an encoder is one of its own


def command_of(verb: Verb) -> click.Command:
    """Return the command of a verb."""
    parameters = verb.parameters
    made = [
        each
        for name, parameter in parameters.items()
        if not param_of(parameter).in_python_only
        for each in _params(verb, name, parameter)
    ]
    printing = EXTRA.get(verb.name, ())

    def run(*, json: bool, **values: object) -> None:
        shown = {each.name: values.pop(str(each.name)) for each in printing}
        run_verb(verb, values, json=json, **shown)

    return VerbCommand(
        verb.name,
        callback=run,
        params=[*made, *printing, JSON],
        help=on_command_line(verb.description, parameters),
        section=verb.section,
        examples=verb.examples,
    )


# Options of what is printed, which a function has no use for.
EXTRA: dict[str, tuple[click.Option, ...]] = {
    "verify": (
        click.Option(["--all", "every"], is_flag=True, help="Print the proved queries too."),
    ),
}


def call_of(verb: Verb, values: Mapping[str, object]) -> Call[Any]:
    """Return the call of a verb with the values of its command line."""
    named = given(values, verb.parameters)
    if verb.name == "encode":
        from mercore.jobs.verbs.encode import encoder_from_values

        name = values.get(ENCODER)
        named[ENCODER] = encoder_from_values(str(name) if name else None, values)
    return verb.call(**named)


def run_verb(verb: Verb, values: Mapping[str, object], *, json: bool, **shown: object) -> None:
    """Run a verb with the values of its command line, and print its result."""
    from mercore.jobs import printing

    if verb.compiles:
        announce_first_use()
    result = call_of(verb, values).run()
    report, hits = result if isinstance(result, tuple) else (result, None)
    if json:
        written = hits is None or "written" in report
        echo_json(report if written else report | hits.json())
    elif hits is not None:
        getattr(printing, verb.printer)(report, hits)
    else:
        getattr(printing, verb.printer)(report, **shown)
    if verb.negative and report[verb.negative]:
        click.get_current_context().exit(ANSWER_IS_NO)


def _params(verb: Verb, name: str, parameter: Parameter) -> list[click.Parameter]:
    """Return the arguments or options of a command that a parameter becomes."""
    if verb.name == "encode" and name == ENCODER:
        return encoder_params()
    option = param_of(parameter)
    if parameter.kind is not Parameter.KEYWORD_ONLY:
        many = -1 if option.several else 1
        return [
            click.Argument(
                [name],
                type=option.type,
                nargs=many,
                required=parameter.default is Parameter.empty,
                metavar=option.metavar,
            )
        ]
    kind, default = type_of(parameter), parameter.default
    flag: dict[str, Any] = (
        {"is_flag": True} if kind is bool else {"type": option.type or _type_of(kind)}
    )
    text = on_command_line(verb.texts[name], verb.parameters)
    text += " May be given several times." * option.several
    return [
        BlockOption(
            [flag_of(parameter), name],
            **flag,
            help=text,
            metavar=option.metavar,
            multiple=option.several,
            required=default in (Parameter.empty, ()),
            **({"default": default, "show_default": True} if is_shown(default) else {}),
            values=option.values,
            shell_complete=option.complete,
        )
    ]


def _type_of(kind: object) -> "click.ParamType[Any]":
    """Return the type of an option's values: a whole number, a finite one, or a text."""
    kinds = get_args(kind) or (kind,)
    if float in kinds:
        return FINITE
    return click.INT if int in kinds else click.STRING
