"""The choice of an encode without ``--encoder``: by the kernel, the rows and the given options."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from mercore.jobs.encoder_options import fields_of, spec_of_options, users_of
from mercore.jobs.notices import echo
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


@dataclass(frozen=True, kw_only=True)
class EncoderChoice:
    """The choice of an encoder, in place of one; ``given`` are options that it must have."""

    given: Mapping[str, object] = field(default_factory=dict)
    bounds: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse options that no encoder to choose from has together."""
        if not takers(self.given):
            raise self._refusal()

    def begun(self, store: CodeStore | None, kernel: Kernel) -> EncoderSpec | None:
        """Return the spec of existing codes with the given options, or None if it has not all.

        The encoder is not chosen again: another version of mercore may choose another.
        """
        if store is None:
            return None
        spec = spec_of(store)
        names = fields_of(spec.name)
        if not (spec.serves(kernel) and self.given.keys() <= names.keys()):
            return None  # codes of the encoder that is chosen differ from these, and are refused
        echo(f"{store.where} is begun with {spec.name}: going on with that", err=True)
        # a default may be a number that is refused if it is given, such as a rank of 0
        values: dict[str, Any] = {
            each.name: each.default
            for each in fields(spec)
            if getattr(spec, each.name) == each.default
        }
        values |= {names[name]: value for name, value in self.given.items()}
        return replace(spec, **values)

    def chosen(self, vectors: Vectors, kernel: Kernel, *, scaled: bool) -> tuple[EncoderSpec, str]:
        """Return the spec that is chosen, and the reason, which is printed.

        ``scaled`` tells whether a transform is to be chosen.

        Raises
        ------
        InputError
            If no encoder to choose from serves the kernel and has the given options.
        """
        rows, filled = vectors.rows, filled_share(vectors)
        choice = choose_encoder(kernel, self.given, rows=rows, filled=filled, scaled=scaled)
        if choice is None:
            for kind in takers(self.given):
                kind().check_kernel(kernel)
            raise self._refusal(kernel)
        echo(f"encoder: {choice.kind.name}, as {choice.why}", err=True)
        return spec_of_options(choice.kind.name, {**choice.options, **self.given}), choice.why

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
