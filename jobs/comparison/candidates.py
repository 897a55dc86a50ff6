"""The kernels and encoders of a comparison; ``kpca-pq:components=128`` names an encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mercore.jobs.encoder_options import parse_spec
from mercore.jobs.options import names_file, refuse_unused, scale_of
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.kernels import KINDS, Kernel, canonical_name
from mercore.stores.errors import InputError
from mercore.stores.wording import option


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An encoder: the user's ``text``, its name or this text as a label, its spec without seed."""

    text: str
    label: str
    spec: EncoderSpec


@dataclass(frozen=True, kw_only=True)
class KernelChoice:
    """A kernel, with the options that name it."""

    options: KernelOptions
    kernel: Kernel

    @property
    def label(self) -> str:
        """The kernel's name, and its parameters if it has any."""
        given = {"gamma": self.options.gamma, "transform": scale_of(self.options.transform)}
        parameters = [f"{key} {value:g}" for key, value in given.items() if value is not None]
        return ", ".join([str(self.options.name), *parameters])


def parse_kernels(
    names: Sequence[str], *, gamma: float | None, transform: float | str | None
) -> list[KernelOptions]:
    """Return kernels by name or file; all get the ``transform``, those that take it the ``gamma``.

    Raises
    ------
    InputError
        If a kernel is named twice or is unknown, none takes the gamma, or the transform is no
        number.
    """
    names = [name if names_file(name) else canonical_name(name) for name in names]
    _refuse_twice("kernel", names)
    takers = [kind.name for kind in KINDS.values() if kind.takes_gamma]
    if not set(names) & set(takers):
        refuse_unused(f"it belongs to {', '.join(takers)}", gamma=gamma)
    kernels = [
        KernelOptions(name=name, gamma=gamma if name in takers else None, transform=transform)
        for name in names
    ]
    for kernel in kernels:
        kernel.check()
    return kernels


def parse_encoders(
    texts: Sequence[str], shape: tuple[int, int], protocol: Mapping[str, int]
) -> list[Candidate]:
    """Return the encoders of texts like ``kpca-pq:landmarks=512,components=64``.

    ``shape`` is that of the rows (n, d), to which defaults are fitted.
    ``protocol`` is empty, or the cost of every code per row in ``bytes`` or ``operations``.

    Raises
    ------
    InputError
        If a text is wrong, means the same as another, or sets the size or the seed of codes
        although ``bytes``, ``operations`` or ``seeds`` does.
    """
    if len(protocol) > 1:
        raise InputError(
            f"{option('bytes')} and {option('operations')} are two protocols: found both. Fix: "
            "give one of them."
        )
    _refuse_twice("encoder", texts)
    specs = {text: parse_spec(text, shape, protocol) for text in texts}
    names = [spec.name for spec in specs.values()]
    for text, spec in specs.items():
        twin = next(other for other in specs if specs[other] == spec)
        if twin != text:
            raise InputError(
                f"{option('encoder')} {text} is the same as {twin}. Fix: name it once."
            )
    return [
        Candidate(text=text, label=text if names.count(spec.name) > 1 else spec.name, spec=spec)
        for text, spec in specs.items()
    ]


def _refuse_twice(name: str, words: Sequence[str]) -> None:
    """Refuse a word that is given twice."""
    for word in words:
        if list(words).count(word) > 1:
            raise InputError(
                f"{option(name)} {word} is given twice: expected once. Fix: leave one out."
            )
