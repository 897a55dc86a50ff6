"""``mercore kernels`` and ``mercore encoders``: what there is, read from the classes."""

import click

from mercore.jobs.encoder_options import fields_of
from mercore.jobs.help import DATA, VerbCommand
from mercore.jobs.options import Report, as_json, echo_json
from mercore.pipeline.encoders import ENCODERS
from mercore.pipeline.kernels import KINDS, Kernel, make_kernel


def listed_kernels() -> list[Report]:
    """Return name, formula, domain, score, parameters, aliases and source of every kernel."""
    return [
        {
            "name": kind.name,
            "formula": kind.description,
            "rows": domain_of(kind),
            "score": kind.score,
            "gamma": gamma_of(kind),
            "transform": kind.normalised,
            "aliases": list(kind.aliases),
            "source": kind.source,
        }
        for kind in KINDS.values()
    ]


def listed_encoders() -> list[Report]:
    """Return name, meaning, kernels, options and source of every encoder."""
    kernels = [
        make_kernel(name, gamma=1.0 if kind.takes_gamma else None) for name, kind in KINDS.items()
    ]
    return [
        {
            "name": name,
            "code": spec.description,
            "needs": spec.needs,
            "kernels": [kernel.name for kernel in kernels if spec.serves(kernel)],
            "bounds": spec().proves,
            "options": [option.replace("_", "-") for option in fields_of(name)],
            "source": spec.source,
        }
        for name, spec in ENCODERS.items()
    ]


def domain_of(kind: type[Kernel]) -> str:
    """Return the rows that a kernel takes, in words."""
    if kind.signed:
        return "any finite values" if kind.zero_rows else "any finite values, not all zero"
    return "values ≥ 0, not all zero"


def gamma_of(kind: type[Kernel]) -> str | None:
    """Return whether a kernel needs γ, or its default; None if it takes none."""
    if not kind.takes_gamma:
        return None
    return "needed" if kind.default_gamma is None else f"{kind.default_gamma:g} by default"


@click.command(
    cls=VerbCommand, section=DATA, examples=("mercore kernels", "mercore kernels --json")
)
@as_json
def kernels(*, json: bool) -> None:
    """List the kernels: the formula, the rows that it takes, its score, and its source.

    An alias is another name, of this kernel or of one that ranks rows in the same order. Capitals
    and hyphens make no difference: Chi-Square is chi_square.
    """
    listed = listed_kernels()
    if json:
        echo_json(listed)
        return
    for kernel in listed:
        click.echo(kernel["name"])
        _print_fields(
            {
                "formula": kernel["formula"],
                "rows": kernel["rows"],
                "score": kernel["score"],
                "γ": kernel["gamma"],
                "aliases": ", ".join(kernel["aliases"]),
                "source": kernel["source"],
            }
        )


@click.command(
    cls=VerbCommand, section=DATA, examples=("mercore encoders", "mercore encoders --json")
)
@as_json
def encoders(*, json: bool) -> None:
    """List the encoders: what a code holds, the kernels that it serves, its options, its source.

    mercore encode --help explains the options.
    """
    listed = listed_encoders()
    if json:
        echo_json(listed)
        return
    for encoder in listed:
        click.echo(encoder["name"])
        _print_fields(
            {
                "code": encoder["code"],
                "needs": encoder["needs"],
                "kernels": ", ".join(encoder["kernels"]),
                "options": ", ".join(encoder["options"]),
                "source": encoder["source"],
            }
        )


def _print_fields(fields: Report) -> None:
    """Print the fields that have a value, indented, in two columns, and an empty line."""
    given = {name: value for name, value in fields.items() if value}
    width = max(map(len, given))
    for name, value in given.items():
        click.echo(f"  {name:{width}}  {value}")
    click.echo()
