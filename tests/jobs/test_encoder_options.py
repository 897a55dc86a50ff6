"""Options make specs: the words and defaults of the command line are those of the specs, and nothing is ignored."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from typing import Any

import click
import pytest

from mercore.jobs.cli import main
from mercore.jobs.encoder_options import spec_of_options
from mercore.jobs.encoder_parameters import CHOOSE, FIELDS, OPTIONS, PARAMETERS, WORDS
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.pipeline.encoders.aska import PURSUITS, WEIGHTS, AskaSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.encoder import METRICS
from mercore.pipeline.encoders.kpca import KpcaSpec
from mercore.pipeline.encoders.kpca_aska import KpcaAskaSpec
from mercore.pipeline.encoders.kpca_jl import KpcaJlSpec
from mercore.pipeline.encoders.kpca_lsh import AS_BITS, KpcaLshSpec
from mercore.pipeline.encoders.pq import PREPROCESSING, KpcaPqSpec, PqSpec
from mercore.stores.errors import InputError


def make_spec(options: dict[str, Any]) -> EncoderSpec:
    """Return the spec of an encoder that is named among its options."""
    return spec_of_options(options.get("encoder") or "aska", options)


every_encoder = pytest.mark.parametrize("name", ENCODERS)


def field_of(option: str) -> str:
    return FIELDS.get(option, option)


def spec_defaults(kind: type[EncoderSpec]) -> dict[str, Any]:
    """What a spec's fields are if nothing is said, all but those that name it."""
    found = {field.name: field.default for field in fields(kind) if field.name not in ("name", "version")}
    assert MISSING not in found.values()
    return found


def refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        call()
    assert type(refusal.value) is InputError
    assert str(refusal.value) == message


# Words and defaults


@every_encoder
def test_an_encoders_options_are_its_specs_fields_and_so_are_their_defaults(name: str) -> None:
    said = {field_of(option): default for option, default in PARAMETERS[name].items()}
    if name == "kpca-lsh":
        assert said["n_components"] == "bits"  # see below
        said["n_components"] = AS_BITS
    assert said == spec_defaults(ENCODERS[name])
    assert make_spec({"encoder": name}) == ENCODERS[name]()


def test_every_encoder_and_every_option_has_its_words() -> None:
    assert list(PARAMETERS) == list(ENCODERS)
    assert {option for parameters in PARAMETERS.values() for option in parameters} == set(OPTIONS)
    assert set(FIELDS) <= set(OPTIONS)
    assert len({field_of(option) for option in OPTIONS}) == len(OPTIONS)
    taken = {"weights": WEIGHTS, "pursuit": PURSUITS, "preprocessing": PREPROCESSING, "metric": METRICS}
    assert {key: set(words) for key, words in WORDS.items()} == {key: set(words) for key, words in taken.items()}
    for option, words in WORDS.items():
        defaults = {parameters[option] for parameters in PARAMETERS.values() if option in parameters}
        assert words[0] in defaults <= set(words)


def test_the_command_line_offers_them_with_their_defaults() -> None:
    encode = main.commands["encode"] if isinstance(main, click.Group) else None
    assert encode is not None
    offered = {parameter.name: parameter for parameter in encode.params}
    assert set(OPTIONS) <= set(offered)
    kind = offered["encoder"].type
    assert isinstance(kind, click.Choice)
    assert list(kind.choices) == [*ENCODERS, CHOOSE]
    parsed = encode.make_context("encode", ["vectors", "codes", "--kernel", "chi2"]).params
    assert [parsed[option] for option in OPTIONS] == [None] * len(OPTIONS)  # so that one that is given can be told
    for option, words in WORDS.items():
        choice = offered[option].type
        assert option == "weights" or (isinstance(choice, click.Choice) and list(choice.choices) == words)
    texts = {option: str(getattr(offered[option], "help", "")) for option in OPTIONS}
    assert texts["landmarks"].endswith("[kpca-aska, kpca-pq, kpca-lsh, kpca, kpca-bound: 1024; kpca-jl: 8192]")
    assert texts["components"].endswith("[kpca-aska, kpca-jl, kpca-bound: 128; kpca-pq, kpca: 64; kpca-lsh: bits]")
    assert texts["bits"].endswith("[kpca-lsh: 256]")


# Options make specs

GIVEN: dict[str, tuple[dict[str, Any], EncoderSpec]] = {
    "aska": (
        {
            "atoms": 9,
            "sparsity": 3,
            "weights": "float16",
            "pursuit": "omp",
            "metric": "distance",
            "random_state": 5,
        },
        AskaSpec(n_atoms=9, n_nonzero_coefs=3, weights="float16", pursuit="omp", metric="distance", random_state=5),
    ),
    "kpca-aska": (
        {
            "landmarks": 50,
            "components": 7,
            "atoms": 9,
            "sparsity": 3,
            "weights": "float32",
            "pursuit": "omp",
            "metric": "distance",
            "random_state": 5,
        },
        KpcaAskaSpec(
            n_landmarks=50,
            n_components=7,
            n_atoms=9,
            n_nonzero_coefs=3,
            weights="float32",
            pursuit="omp",
            metric="distance",
            random_state=5,
        ),
    ),
    "kpca-pq": (
        {
            "landmarks": 50,
            "components": 8,
            "subquantizers": 4,
            "preprocessing": "rotation",
            "metric": "product",
            "training_rows": 99,
            "random_state": 5,
        },
        KpcaPqSpec(
            n_landmarks=50,
            n_components=8,
            n_subquantizers=4,
            preprocessing="rotation",
            metric="product",
            n_training=99,
            random_state=5,
        ),
    ),
    "pq": (
        {"subquantizers": 4, "metric": "product", "training_rows": 99, "random_state": 5},
        PqSpec(n_subquantizers=4, metric="product", n_training=99, random_state=5),
    ),
    "kpca-lsh": (
        {"landmarks": 50, "components": 8, "bits": 40, "random_state": 5},
        KpcaLshSpec(n_landmarks=50, n_components=8, n_bits=40, random_state=5),
    ),
    "kpca-jl": (
        {"landmarks": 50, "components": 8, "projections": 12, "metric": "product", "random_state": 5},
        KpcaJlSpec(n_landmarks=50, n_components=8, n_projections=12, metric="product", random_state=5),
    ),
    "kpca": (
        {"landmarks": 50, "components": 8, "random_state": 5},
        KpcaSpec(n_landmarks=50, n_components=8, random_state=5),
    ),
    "kpca-bound": (
        {"landmarks": 50, "components": 8, "random_state": 5},
        KpcaBoundSpec(n_landmarks=50, n_components=8, random_state=5),
    ),
    "bin-bound": (
        {"groups": 7, "training_rows": 99, "random_state": 5},
        BinBoundSpec(n_groups=7, n_training=99, random_state=5),
    ),
}


@every_encoder
def test_options_make_the_spec_and_each_matters(name: str) -> None:
    options, spec = GIVEN[name]
    assert set(options) == set(PARAMETERS[name])
    others = dict.fromkeys(set(OPTIONS) - set(options))
    assert make_spec({"encoder": name, "kernel": "chi2", **options, **others}) == spec
    for option, value in options.items():
        alone = make_spec({"encoder": name, option: value})
        assert alone != ENCODERS[name]()
        assert getattr(alone, field_of(option)) == value


def test_the_encoder_is_aska_unless_one_is_named() -> None:
    assert make_spec({}) == make_spec({"encoder": None}) == AskaSpec()


def test_bits_have_as_many_components_as_there_are_bits_or_landmarks() -> None:
    for options, components in (
        ({}, 256),
        ({"bits": 32}, 32),
        ({"bits": 512, "landmarks": 100}, 100),
        ({"bits": 512, "components": 9}, 9),
    ):
        spec = make_spec({"encoder": "kpca-lsh", **options})
        assert isinstance(spec, KpcaLshSpec)
        assert spec.n_components == components


USERS = {
    "atoms": "aska, kpca-aska",
    "sparsity": "aska, kpca-aska",
    "pursuit": "aska, kpca-aska",
    "weights": "aska, kpca-aska",
    "landmarks": "kpca-aska, kpca-pq, kpca-lsh, kpca-jl, kpca, kpca-bound",
    "components": "kpca-aska, kpca-pq, kpca-lsh, kpca-jl, kpca, kpca-bound",
    "subquantizers": "kpca-pq, pq",
    "preprocessing": "kpca-pq",
    "metric": "aska, kpca-aska, kpca-pq, pq, kpca-jl",
    "training_rows": "kpca-pq, pq, bin-bound",
    "groups": "bin-bound",
    "bits": "kpca-lsh",
    "projections": "kpca-jl",
}


@every_encoder
def test_an_option_that_an_encoder_does_not_have_is_refused(name: str) -> None:
    for option in set(OPTIONS) - set(PARAMETERS[name]):
        shown = option.replace("_", "-")
        refused(
            partial(make_spec, {"encoder": name, option: 1}),
            f"--{shown} has no use here: it belongs to {USERS[option]}, found --encoder {name}. "
            f"Fix: leave --{shown} out.",
        )
