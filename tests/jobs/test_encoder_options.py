"""Options make specs: they are read from the specs' fields, and none that is given is ignored."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import click
import pytest

from mercore.jobs.cli import main
from mercore.jobs.encoder_options import (
    CHOOSE,
    SEED,
    fields_of,
    option_names,
    parse_spec,
    spec_of_options,
    users_of,
)
from mercore.jobs.options import FINITE
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.pipeline.encoders.aska import DICTIONARIES, PURSUITS, AskaSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.bounds.pca_bound import PcaBoundSpec
from mercore.pipeline.encoders.encoder import METRICS
from mercore.pipeline.encoders.hashing.klsh import KlshSpec, NystromLshSpec
from mercore.pipeline.encoders.hashing.kpca_lsh import KpcaLshSpec
from mercore.pipeline.encoders.hashing.rff import RffSpec
from mercore.pipeline.encoders.hashing.rmmh import RmmhSpec
from mercore.pipeline.encoders.kpca import KpcaSpec
from mercore.pipeline.encoders.kpca_aska import KpcaAskaSpec
from mercore.pipeline.encoders.kpca_jl import KpcaJlSpec
from mercore.pipeline.encoders.kpca_pq import LENGTHS, KpcaPqSpec
from mercore.pipeline.encoders.map_pq import MapPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.encoders.pq import PREPROCESSING, PROOFS, QUANTIZERS, PqSpec
from mercore.stores.errors import InputError
from tests.support.running import on_command_line


def make_spec(options: dict[str, Any]) -> EncoderSpec:
    """Return the spec of an encoder that is named among its options."""
    return spec_of_options(options["encoder"], options)


every_encoder = pytest.mark.parametrize("name", ENCODERS)
OPTIONS = option_names()
WORDS = {
    "pursuit": PURSUITS,
    "preprocessing": PREPROCESSING,
    "length": LENGTHS,
    "dictionary": DICTIONARIES,
    "metric": METRICS,
    "proof": PROOFS,
    "quantizer": QUANTIZERS,
}


def refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        call()
    assert type(refusal.value) is InputError
    assert on_command_line(refusal.value) == message


# Words and defaults


@every_encoder
def test_every_field_of_a_spec_is_an_option(name: str) -> None:
    stated = {field.name for field in fields(ENCODERS[name])} - {"name", "version"}
    assert set(fields_of(name).values()) == stated
    assert spec_of_options(name, {}) == make_spec({"encoder": name}) == ENCODERS[name]()
    assert (
        spec_of_options(
            name,
            {option: getattr(ENCODERS[name](), field) for option, field in fields_of(name).items()},
        )
        == ENCODERS[name]()
    )


def test_an_option_means_one_field() -> None:
    pairs = {pair for name in ENCODERS for pair in fields_of(name).items()}
    assert len(pairs) == len(OPTIONS) == len(set(OPTIONS))
    assert {option for option, _ in pairs} == set(OPTIONS)
    assert OPTIONS[-1] == SEED


def test_the_command_line_offers_them_with_their_defaults() -> None:
    encode = main.commands["encode"] if isinstance(main, click.Group) else None
    assert encode is not None
    offered = {parameter.name: parameter for parameter in encode.params}
    assert set(OPTIONS) <= set(offered)
    kind = offered["encoder"].type
    assert isinstance(kind, click.Choice)
    assert list(kind.choices) == [*ENCODERS, CHOOSE]
    parsed = encode.make_context("encode", ["vectors", "codes", "--kernel", "chi2"]).params
    assert [parsed[option] for option in OPTIONS] == [None] * len(
        OPTIONS
    )  # so that one that is given can be told
    for option in OPTIONS:
        choice = offered[option].type
        if option in WORDS:
            assert isinstance(choice, click.Choice)
            assert tuple(choice.choices) == WORDS[option]
        else:
            kinds = {"weights": click.STRING, "penalty": FINITE, "norm_power": FINITE}
            assert choice is kinds.get(option, click.INT)
    texts = {option: str(getattr(offered[option], "help", "")) for option in OPTIONS}
    assert texts["landmarks"] == "Rows M that kernel PCA learns from."
    assert texts[SEED] == "Seed of every random choice. [default: 0]"


def test_a_text_describes_a_spec() -> None:
    spec = parse_spec("kpca-pq:landmarks=512,components=64,preprocessing=none", (1 << 20, 12), {})
    assert spec == KpcaPqSpec(n_landmarks=512, n_components=64, preprocessing="none")
    assert parse_spec("kpca-lsh", (1 << 20, 12), {"operations": 8}) == KpcaLshSpec(n_bits=300)
    assert parse_spec("pq", (1 << 20, 12), {"bytes": 8}) == PqSpec(n_subquantizers=6, proof="none")


# Options make specs

GIVEN: dict[str, tuple[dict[str, Any], EncoderSpec]] = {
    "aska": (
        {
            "atoms": 9,
            "sparsity": 3,
            "weights": "float16",
            "pursuit": "omp",
            "metric": "distance",
            "norm_power": 0.25,
            "dictionary": "learned",
            "random_state": 5,
        },
        AskaSpec(
            n_atoms=9,
            n_nonzero_coefs=3,
            weights="float16",
            pursuit="omp",
            metric="distance",
            norm_power=0.25,
            dictionary="learned",
            random_state=5,
        ),
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
            "norm_power": 1.0,
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
            norm_power=1.0,
            random_state=5,
        ),
    ),
    "kpca-pq": (
        {
            "landmarks": 50,
            "components": 8,
            "length": "own",
            "subquantizers": 4,
            "preprocessing": "rotation",
            "quantizer": "prq",
            "proof": "none",
            "metric": "product",
            "training_rows": 99,
            "random_state": 5,
        },
        KpcaPqSpec(
            n_landmarks=50,
            length="own",
            n_components=8,
            n_subquantizers=4,
            preprocessing="rotation",
            quantizer="prq",
            proof="none",
            metric="product",
            n_training=99,
            random_state=5,
        ),
    ),
    "map-pq": (
        {
            "components": 8,
            "harmonics": 3,
            "subquantizers": 4,
            "preprocessing": "rotation",
            "quantizer": "rq",
            "proof": "none",
            "metric": "product",
            "training_rows": 99,
            "random_state": 5,
        },
        MapPqSpec(
            n_components=8,
            n_harmonics=3,
            n_subquantizers=4,
            preprocessing="rotation",
            quantizer="rq",
            proof="none",
            metric="product",
            n_training=99,
            random_state=5,
        ),
    ),
    "pq": (
        {
            "subquantizers": 4,
            "metric": "product",
            "quantizer": "prq",
            "proof": "none",
            "training_rows": 99,
            "random_state": 5,
        },
        PqSpec(
            n_subquantizers=4,
            metric="product",
            quantizer="prq",
            proof="none",
            n_training=99,
            random_state=5,
        ),
    ),
    "pca-pq": (
        {
            "components": 8,
            "subquantizers": 4,
            "preprocessing": "rotation",
            "quantizer": "prq",
            "proof": "none",
            "metric": "product",
            "training_rows": 99,
            "random_state": 5,
        },
        PcaPqSpec(
            n_components=8,
            n_subquantizers=4,
            preprocessing="rotation",
            quantizer="prq",
            proof="none",
            metric="product",
            n_training=99,
            random_state=5,
        ),
    ),
    "kpca-lsh": (
        {"landmarks": 50, "components": 8, "bits": 40, "random_state": 5},
        KpcaLshSpec(n_landmarks=50, n_components=8, n_bits=40, random_state=5),
    ),
    "klsh": (
        {"landmarks": 50, "subset": 9, "rank": 8, "bits": 40, "random_state": 5},
        KlshSpec(n_landmarks=50, n_subset=9, rank=8, n_bits=40, random_state=5),
    ),
    "nystrom-lsh": (
        {"landmarks": 50, "subset": 9, "rank": 8, "bits": 40, "random_state": 5},
        NystromLshSpec(n_landmarks=50, n_subset=9, rank=8, n_bits=40, random_state=5),
    ),
    "rmmh": (
        {"landmarks": 50, "samples": 8, "penalty": 2.5, "bits": 40, "random_state": 5},
        RmmhSpec(n_landmarks=50, n_samples=8, penalty=2.5, n_bits=40, random_state=5),
    ),
    "rff": ({"bits": 40, "random_state": 5}, RffSpec(n_bits=40, random_state=5)),
    "kpca-jl": (
        {
            "landmarks": 50,
            "components": 8,
            "projections": 12,
            "metric": "product",
            "random_state": 5,
        },
        KpcaJlSpec(
            n_landmarks=50, n_components=8, n_projections=12, metric="product", random_state=5
        ),
    ),
    "kpca": (
        {"landmarks": 50, "components": 8, "random_state": 5},
        KpcaSpec(n_landmarks=50, n_components=8, random_state=5),
    ),
    "kpca-bound": (
        {"landmarks": 50, "components": 8, "random_state": 5},
        KpcaBoundSpec(n_landmarks=50, n_components=8, random_state=5),
    ),
    "pca-bound": (
        {"components": 8, "training_rows": 99, "random_state": 5},
        PcaBoundSpec(n_components=8, n_training=99, random_state=5),
    ),
    "bin-bound": (
        {"groups": 7, "training_rows": 99, "random_state": 5},
        BinBoundSpec(n_groups=7, n_training=99, random_state=5),
    ),
}


@every_encoder
def test_options_make_the_spec_and_each_matters(name: str) -> None:
    options, spec = GIVEN[name]
    assert set(options) == set(fields_of(name))
    others = dict.fromkeys(set(OPTIONS) - set(options))
    assert make_spec({"encoder": name, "kernel": "chi2", **options, **others}) == spec
    for option, value in options.items():
        alone = make_spec({"encoder": name, option: value})
        assert alone != ENCODERS[name]()
        assert getattr(alone, fields_of(name)[option]) == value


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
    "norm_power": "aska, kpca-aska",
    "dictionary": "aska",
    "pursuit": "aska, kpca-aska",
    "weights": "aska, kpca-aska",
    "landmarks": "kpca-aska, kpca-pq, kpca-lsh, klsh, nystrom-lsh, rmmh, kpca-jl, kpca, kpca-bound",
    "components": "kpca-aska, kpca-pq, map-pq, pca-pq, kpca-lsh, kpca-jl, kpca, kpca-bound, pca-bound",
    "harmonics": "map-pq",
    "subquantizers": "kpca-pq, map-pq, pq, pca-pq",
    "length": "kpca-pq",
    "preprocessing": "kpca-pq, map-pq, pca-pq",
    "quantizer": "kpca-pq, map-pq, pq, pca-pq",
    "proof": "kpca-pq, map-pq, pq, pca-pq",
    "metric": "aska, kpca-aska, kpca-pq, map-pq, pq, pca-pq, kpca-jl",
    "training_rows": "kpca-pq, map-pq, pq, pca-pq, pca-bound, bin-bound",
    "groups": "bin-bound",
    "bits": "kpca-lsh, klsh, nystrom-lsh, rmmh, rff",
    "subset": "klsh, nystrom-lsh",
    "rank": "klsh, nystrom-lsh",
    "samples": "rmmh",
    "penalty": "rmmh",
    "projections": "kpca-jl",
}


def test_users_of_options() -> None:
    assert {option: ", ".join(users_of(option)) for option in USERS} == USERS


@every_encoder
@pytest.mark.promise("An option without effect is refused")
def test_an_option_that_an_encoder_does_not_have_is_refused(name: str) -> None:
    for option in set(OPTIONS) - set(fields_of(name)):
        shown = option.replace("_", "-")
        refused(
            partial(make_spec, {"encoder": name, option: 1}),
            f"--{shown} has no use here: it belongs to {USERS[option]}, found --encoder {name}. "
            f"Fix: leave --{shown} out.",
        )
