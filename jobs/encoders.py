"""The spec of an encoder from the options of a command line."""

from collections.abc import Mapping
from typing import Any

from jobs.parameters import FIELDS, OPTIONS, PARAMETERS
from pipeline.encoders import ENCODERS, EncoderSpec
from stores.errors import InputError


def make_spec(options: Mapping[str, Any]) -> EncoderSpec:
    """Return the spec that the options name; those that are None have their defaults.

    Raises
    ------
    InputError
        If an option is given that the encoder does not have.
    """
    name = options.get("encoder") or "aska"
    given = {option: options[option] for option in OPTIONS if options.get(option) is not None}
    for option in given:
        if option not in PARAMETERS[name]:
            users = ", ".join(encoder for encoder, parameters in PARAMETERS.items() if option in parameters)
            shown = option.replace("_", "-")
            raise InputError(
                f"--{shown} has no use here: it belongs to {users}, found --encoder {name}. Mend: leave --{shown} out."
            )
    return ENCODERS[name](**{FIELDS.get(option, option): value for option, value in given.items()})
