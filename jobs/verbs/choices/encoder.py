"""The choice of an encode without ``--encoder``: by the kernel, the rows and the given options."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

from mercore.jobs.encoder_options import fields_of, spec_of_options, users_of
from mercore.pipeline.encode import spec_of
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.search.choices.encoder import (
    CANDIDATES,
    choose_encoder,
    filled_share,
    takers,
)
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option, setting


class ResolvedEncoder(NamedTuple):
    """An encoder, the reason why it was chosen (None if codes are begun), and a line about it."""

    spec: EncoderSpec
    why: str | None
    notice: str


@dataclass(frozen=True, kw_only=True)
class EncoderChoice:
    """The choice of an encoder, in place of one; ``given`` are options that it must have."""

    given: Mapping[str, object] = field(default_factory=dict)
    bounds: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse options that no encoder to choose from has together."""
        if not takers(self.given):
            raise self._refusal()

    def resolved(
        self, stored: CodeStore | None, vectors: Vectors, kernel: Kernel, *, scaled: bool
    ) -> ResolvedEncoder:
        """Return the encoder of existing codes, or the one that is chosen.

        The encoder of existing codes is not chosen again: another version of mercore may choose
        another. ``scaled`` tells whether a transform is to be chosen.

        Raises
        ------
        InputError
            If no encoder to choose from serves the kernel and has the given options.
        """
        spec = stored and self._begun(spec_of(stored), kernel)
        if stored and spec:
            notice = f"{stored.where} is begun with {spec.name}: going on with that"
            return ResolvedEncoder(spec, None, notice)
        rows, filled = vectors.rows, filled_share(vectors)
        choice = choose_encoder(kernel, self.given, rows=rows, filled=filled, scaled=scaled)
        if choice is None:
            for kind in takers(self.given):
                kind().check_kernel(kernel)
            raise self._refusal(kernel)
        name, why = choice.kind.name, choice.why
        spec = spec_of_options(name, {**choice.options, **self.given})
        return ResolvedEncoder(spec, why, f"encoder: {name}, as {why}")

    def _begun(self, spec: EncoderSpec, kernel: Kernel) -> EncoderSpec | None:
        """Return the spec of existing codes with the given options; None if it cannot have them.

        Then another is chosen, and the existing codes are refused because they differ.
        """
        names = fields_of(spec.name)
        if not (spec.serves(kernel) and self.given.keys() <= names.keys()):
            return None
        # a default may be a number that is refused if it is given, such as a rank of 0
        values: dict[str, Any] = {
            each.name: each.default
            for each in fields(spec)
            if getattr(spec, each.name) == each.default
        }
        values |= {names[name]: value for name, value in self.given.items()}
        return replace(spec, **values)

    def _refusal(self, kernel: Kernel | None = None) -> InputError:
        """Return the refusal of the given options, with an encoder that has them, if any."""
        found = ", ".join(f"{option(name)} of {', '.join(users_of(name))}" for name in self.given)
        having = [
            name
            for name, kind in ENCODERS.items()
            if self.given.keys() <= fields_of(name).keys() and (not kernel or kind.serves(kernel))
        ]
        left_out = "one of them" if len(self.given) > 1 else option(next(iter(self.given)))
        return InputError(
            f"no encoder is chosen{f' for kernel {kernel.name}' if kernel else ''}: found {found}; "
            f"expected options of one of {', '.join(kind.name for kind in CANDIDATES)}. "
            f"Fix: {setting(encoder=having[0]) if having else f'leave {left_out} out'}."
        )
