"""The spec of an encoder from the options of a command line."""

from collections.abc import Mapping
from typing import Any

from mercore.jobs.encoder_parameters import FIELDS, OPTIONS, PARAMETERS
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.stores.errors import InputError


def make_spec(options: Mapping[str, Any]) -> EncoderSpec:
    """Return the spec that the options name; those that are None have their defaults.

    Raises
    ------
    InputError
        If an option is given that the encoder does not have.
    """
    name = options.get("encoder") or "aska"
    given = refuse_options(options, name, tuple(PARAMETERS[name]))
    return ENCODERS[name](**{FIELDS.get(option, option): value for option, value in given.items()})


def refuse_options(options: Mapping[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any]:
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
