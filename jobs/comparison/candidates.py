"""What a comparison compares: kernels, and encoders described by texts like ``kpca-pq:components=128``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from mercore.jobs.encoder_parameters import FIELDS, OPTIONS, PARAMETERS
from mercore.jobs.options import names_file
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.pipeline.encoders.equal_cost import equal_bytes, equal_operations, size_of
from mercore.pipeline.kernels import KERNELS, Kernel, make_kernel
from mercore.pipeline.kernels.sums import Rbf
from mercore.pipeline.kernels.transform import ExpChi2
from mercore.stores.errors import InputError

WITH_GAMMA = (Rbf.name, ExpChi2.name)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An encoder as the user named it, and its spec; the seed is still to be set."""

    label: str
    spec: EncoderSpec


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """A kernel, with the options that name it."""

    options: KernelOptions
    kernel: Kernel

    @property
    def label(self) -> str:
        """The kernel's name, and its parameters if it has any."""
        given = {"gamma": self.options.gamma, "transform": self.options.transform}
        parameters = [f"{key} {value:g}" for key, value in given.items() if value is not None]
        return ", ".join([str(self.options.name), *parameters])


def parse_kernels(names: Sequence[str], *, gamma: float | None, transform: float | None) -> list[Similarity]:
    """Return the kernels by name; ``gamma`` goes to those that take one, ``transform`` to all.

    Raises
    ------
    InputError
        If a kernel is named twice or is unknown, or none takes the gamma.
    """
    _refuse_twice("--kernel", names)
    for name in filter(names_file, names):
        raise InputError(
            f"--kernel {name} has no use here: compare takes the kernels that have a name, {', '.join(KERNELS)}. "
            "Fix: give the file to encode, search and evaluate."
        )
    if gamma is not None and not set(names) & set(WITH_GAMMA):
        raise InputError(f"--gamma has no use here: it belongs to {', '.join(WITH_GAMMA)}. Fix: leave --gamma out.")
    return [_similarity(name, gamma if name in WITH_GAMMA else None, transform) for name in names]


def parse_encoders(texts: Sequence[str], dims: int, protocol: Mapping[str, int]) -> list[Candidate]:
    """Return the encoders that texts like ``kpca-pq:landmarks=512,components=64`` describe.

    ``protocol`` is empty, or states what every code may cost: ``bytes`` or ``operations``, a row.

    Raises
    ------
    InputError
        If a text is not right, describes what another does too, or gives what ``--bytes``, ``--operations`` or
        ``--seeds`` sets.
    """
    if len(protocol) > 1:
        raise InputError("--bytes and --operations are two protocols: found both. Fix: give one of them.")
    _refuse_twice("--encoder", texts)
    specs = {text: _spec(text, dims, protocol) for text in texts}
    names = [spec.name for spec in specs.values()]
    for text, spec in specs.items():
        twin = next(other for other in specs if specs[other] == spec)
        if twin != text:
            raise InputError(f"--encoder {text} is the same as {twin}. Fix: name it once.")
    return [
        Candidate(label=text if names.count(spec.name) > 1 else spec.name, spec=spec) for text, spec in specs.items()
    ]


def parse_options(text: str) -> tuple[str, dict[str, Any]]:
    """Return the encoder's name and its options, which have the names of ``mercore encode``.

    Raises
    ------
    InputError
        If the encoder, an option or a value is unknown, or an option stands twice.
    """
    name, _, listed = text.partition(":")
    if name not in PARAMETERS:
        raise InputError(
            f"--encoder {text}: unknown encoder {name!r}, expected one of {', '.join(PARAMETERS)}. Fix: --encoder aska"
        )
    given: dict[str, Any] = {}
    for word in listed.split(",") if listed else []:
        shown, equals, value = word.partition("=")
        option = shown.replace("-", "_")
        if not equals or option not in PARAMETERS[name]:
            known = ", ".join(known.replace("_", "-") for known in PARAMETERS[name] if known != "random_state")
            raise InputError(
                f"--encoder {text}: found {word!r}, expected option=value with an option of {name}: {known}. "
                "Fix: leave it out."
            )
        if option in given:
            raise InputError(f"--encoder {text}: {shown} stands there twice. Fix: leave one out.")
        given[option] = _value(text, option, value)
    return name, given


def _similarity(name: str, gamma: float | None, transform: float | None) -> Similarity:
    """Return a kernel with its options."""
    kernel = make_kernel(name, gamma=gamma, transform=transform)
    return Similarity(options=KernelOptions(name=name, gamma=gamma, transform=transform), kernel=kernel)


def _spec(text: str, dims: int, protocol: Mapping[str, int]) -> EncoderSpec:
    """Return the spec that a text describes, of the size that the protocol gives it."""
    name, given = parse_options(text)
    kind = ENCODERS[name]
    set_by = {"random_state": "seeds", **{size_of(kind).field: option for option in protocol}}
    for option in given:
        if FIELDS.get(option, option) in set_by:
            shown, setter = option.replace("_", "-"), set_by[FIELDS.get(option, option)]
            raise InputError(f"--encoder {text}: --{setter} sets {shown}. Fix: leave one of them out.")
    fields = {FIELDS.get(option, option): value for option, value in given.items()}
    try:
        if "bytes" in protocol:
            return equal_bytes(kind, fields, protocol["bytes"], dims=dims)
        if "operations" in protocol:
            return equal_operations(kind, fields, protocol["operations"])
    except InputError as error:
        raise InputError(f"--encoder {text}: {error}") from None
    return kind(**fields)


def _value(text: str, option: str, value: str) -> Any:  # noqa: ANN401 - as its option has it
    """Return an option's value, of the type that ``mercore encode`` gives it."""
    kind = OPTIONS[option][0]
    try:
        return kind.convert(value, None, None)
    except click.BadParameter:
        expected = f"one of {', '.join(kind.choices)}" if isinstance(kind, click.Choice) else "a whole number"
        raise InputError(
            f"--encoder {text}: {option.replace('_', '-')} is {value!r}, expected {expected}. Fix: leave it out."
        ) from None


def _refuse_twice(option: str, words: Sequence[str]) -> None:
    """Refuse a word that is given twice."""
    for word in words:
        if list(words).count(word) > 1:
            raise InputError(f"{option} {word} is given twice: expected once. Fix: leave one out.")
