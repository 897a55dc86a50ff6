"""The spec of an encoder from the options of a command line."""

from collections.abc import Mapping
from typing import Any

from mercore.jobs.encoder_parameters import CHOOSE, FIELDS, OPTIONS, PARAMETERS
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.stores.errors import InputError

__all__ = ["CHOOSE", "option_names", "parse_spec", "spec_of_options"]


def option_names() -> tuple[str, ...]:
    """Return the options of all encoders."""
    return tuple(OPTIONS)


def spec_of_options(name: str, given: Mapping[str, object]) -> EncoderSpec:
    """Return the spec that the options name; those that are None have their defaults.

    Raises
    ------
    InputError
        If an option is given that the encoder does not have.
    """
    options = refuse_options(given, name, tuple(PARAMETERS.get(name, ())))
    return ENCODERS[name](**{FIELDS.get(option, option): value for option, value in options.items()})


def refuse_options(options: Mapping[str, object], name: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the encoders' options that are given, or refuse one that ``name`` does not have.

    Raises
    ------
    InputError
        Naming the encoders that have it.
    """
    given = {option: options[option] for option in OPTIONS if options.get(option) is not None}
    for option in given:
        if option not in known:
            users = ", ".join(encoder for encoder, parameters in PARAMETERS.items() if option in parameters)
            shown = option.replace("_", "-")
            raise InputError(
                f"--{shown} has no use here: it belongs to {users}, found --encoder {name}. Fix: leave --{shown} out."
            )
    return given


def parse_spec(text: str) -> EncoderSpec:
    """Return the spec that a text such as ``kpca-pq:landmarks=512,components=64`` describes."""
    from mercore.jobs.comparison.candidates import parse_options

    name, options = parse_options(text)
    return spec_of_options(name, options)
