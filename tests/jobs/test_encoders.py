"""Options make specs: the words and defaults of the command line are those of the specs, and nothing is ignored."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from typing import Any

import click
import pytest

from jobs.cli import main
from jobs.encoders import make_spec
from jobs.parameters import FIELDS, OPTIONS, PARAMETERS, WORDS
from pipeline.encoders import ENCODERS, EncoderSpec
from pipeline.encoders.aska import PURSUITS, WEIGHTS, AskaSpec
from pipeline.encoders.encoder import METRICS
from pipeline.encoders.kpca import KpcaSpec, Landmarks
from pipeline.encoders.kpca_aska import KpcaAskaSpec
from pipeline.encoders.kpca_jl import KpcaJlSpec
from pipeline.encoders.kpca_lsh import AS_BITS, KpcaLshSpec
from pipeline.encoders.pq import PREPROCESSING, KpcaPqSpec, PqSpec
from pipeline.kernels import make_kernel
from stores.errors import InputError
from stores.foreign import SourceVectors
from tests.making import Rows, histograms

ROWS, DIMS = 60, 20
SMALL: dict[str, Any] = {"n_landmarks": 40, "n_components": 12}
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
    assert list(kind.choices) == list(ENCODERS)
    parsed = encode.make_context("encode", ["vectors", "codes", "--kernel", "chi2"]).params
    assert [parsed[option] for option in OPTIONS] == [None] * len(OPTIONS)  # so that one that is given can be told
    for option, words in WORDS.items():
        choice = offered[option].type
        assert option == "weights" or (isinstance(choice, click.Choice) and list(choice.choices) == words)
    texts = {option: str(getattr(offered[option], "help", "")) for option in OPTIONS}
    assert texts["landmarks"].endswith("[kpca-aska, kpca-pq, kpca-lsh, kpca: 1024; kpca-jl: 8192]")
    assert texts["components"].endswith("[kpca-aska, kpca-jl: 128; kpca-pq, kpca: 64; kpca-lsh: bits]")
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
    "landmarks": "kpca-aska, kpca-pq, kpca-lsh, kpca-jl, kpca",
    "components": "kpca-aska, kpca-pq, kpca-lsh, kpca-jl, kpca",
    "subquantizers": "kpca-pq, pq",
    "preprocessing": "kpca-pq",
    "metric": "aska, kpca-aska, kpca-pq, pq, kpca-jl",
    "training_rows": "kpca-pq, pq",
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
            f"Mend: leave --{shown} out.",
        )


# What specs refuse

TOO_MANY = f"expected 1 to {ROWS}, the rows of the store. Mend: --landmarks {ROWS}"
REFUSED: list[tuple[Any, str]] = [
    (KpcaSpec(n_landmarks=0), f"landmarks is out of range: found 0, {TOO_MANY}"),
    (KpcaSpec(n_landmarks=61), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaSpec(n_landmarks=40, n_components=41),
        "components is out of range: found 41, expected 1 to 40, the landmarks. Mend: --components 40",
    ),
    (
        KpcaSpec(n_landmarks=40, n_components=0),
        "components is out of range: found 0, expected 1 to 40, the landmarks. Mend: --components 40",
    ),
    (KpcaSpec(**SMALL, random_state=-1), "random_state must not be negative: found -1. Mend: --random-state 0"),
    (KpcaAskaSpec(**SMALL), "atoms is out of range: found 8192, expected 1 to 60 rows in the store. Mend: --atoms 60"),
    (KpcaAskaSpec(n_atoms=9, n_landmarks=61), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaAskaSpec(n_atoms=9, n_nonzero_coefs=10, **SMALL),
        "sparsity is out of range: found 10, expected 1 to 9. Mend: --sparsity 8",
    ),
    (
        KpcaAskaSpec(n_atoms=9, weights="int4", **SMALL),
        "unknown weights: found 'int4', expected one of int8, float16, float32. Mend: --weights int8",
    ),
    (
        KpcaAskaSpec(n_atoms=9, pursuit="mp", **SMALL),
        "unknown pursuit: found 'mp', expected one of omp, ormp. Mend: --pursuit ormp",
    ),
    (
        KpcaAskaSpec(n_atoms=9, **SMALL, random_state=-2),
        "random_state must not be negative: found -2. Mend: --random-state 0",
    ),
    (KpcaPqSpec(n_landmarks=61), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaPqSpec(n_landmarks=40, n_components=50),
        "components is out of range: found 50, expected 1 to 40, the landmarks. Mend: --components 40",
    ),
    (
        KpcaPqSpec(n_landmarks=40, n_components=20, n_subquantizers=3),
        "subquantizers share coordinates out evenly: found 3 for 20 coordinates. Mend: --components 18.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=13),
        "subquantizers is out of range: found 13, expected 1 to 12. Mend: --subquantizers 12",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=0),
        "subquantizers is out of range: found 0, expected 1 to 12. Mend: --subquantizers 12",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, n_training=0),
        "training rows is out of range: found 0, expected 1 to 16777216. Mend: leave --training-rows out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, n_training=(1 << 24) + 1),
        "training rows is out of range: found 16777217, expected 1 to 16777216. Mend: leave --training-rows out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, metric="cosine"),
        "unknown metric: found 'cosine', expected one of distance, product. Mend: leave --metric out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, preprocessing="pca"),
        "unknown preprocessing: found 'pca', expected one of none, rotation, permutation. "
        "Mend: leave --preprocessing out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, random_state=-1),
        "random_state must not be negative: found -1. Mend: --random-state 0",
    ),
    (KpcaLshSpec(n_bits=0), "bits is out of range: found 0, expected 1 to 4096. Mend: --bits 256"),
    (KpcaLshSpec(n_bits=4097), "bits is out of range: found 4097, expected 1 to 4096. Mend: --bits 256"),
    (KpcaLshSpec(n_landmarks=61, n_bits=8), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaLshSpec(n_landmarks=40, n_components=41, n_bits=8),
        "components is out of range: found 41, expected 1 to 40, the landmarks. Mend: --components 40",
    ),
    (KpcaLshSpec(**SMALL, random_state=-1), "random_state must not be negative: found -1. Mend: --random-state 0"),
    (
        KpcaJlSpec(**SMALL, n_projections=0),
        "projections is out of range: found 0, expected 1 to 4096. Mend: --projections 32",
    ),
    (
        KpcaJlSpec(**SMALL, n_projections=4097),
        "projections is out of range: found 4097, expected 1 to 4096. Mend: --projections 32",
    ),
    (
        KpcaJlSpec(**SMALL, metric="cosine"),
        "unknown metric: found 'cosine', expected one of distance, product. Mend: leave --metric out.",
    ),
    (KpcaJlSpec(), f"landmarks is out of range: found 8192, {TOO_MANY}"),
    (
        KpcaJlSpec(n_landmarks=40),
        "components is out of range: found 128, expected 1 to 40, the landmarks. Mend: --components 40",
    ),
    (KpcaJlSpec(**SMALL, random_state=-1), "random_state must not be negative: found -1. Mend: --random-state 0"),
]
REFUSED_BY_PQ: list[tuple[str, Any, str]] = [
    (
        "chi2",
        PqSpec(n_subquantizers=4),
        "encoder pq ranks rows by their Euclidean distance: found kernel chi2, expected one of cosine, hellinger, rbf. "
        "Mend: --encoder kpca-pq",
    ),
    ("rbf", PqSpec(metric="product"), "kernel rbf is a distance's: found metric product. Mend: --metric distance"),
    (
        "cosine",
        PqSpec(),
        "subquantizers share coordinates out evenly: found 8 for 20 coordinates. Mend: --subquantizers 10.",
    ),
    (
        "cosine",
        PqSpec(n_subquantizers=21),
        "subquantizers is out of range: found 21, expected 1 to 20. Mend: --subquantizers 10",
    ),
    (
        "hellinger",
        PqSpec(n_subquantizers=4, metric="l1"),
        "unknown metric: found 'l1', expected one of distance, product. Mend: leave --metric out.",
    ),
    (
        "cosine",
        PqSpec(n_subquantizers=4, n_training=0),
        "training rows is out of range: found 0, expected 1 to 16777216. Mend: leave --training-rows out.",
    ),
    (
        "cosine",
        PqSpec(n_subquantizers=4, random_state=-1),
        "random_state must not be negative: found -1. Mend: --random-state 0",
    ),
]


@pytest.mark.parametrize(
    ("kernel", "spec", "message"),
    [*(("chi2", *case) for case in REFUSED), *REFUSED_BY_PQ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_parameters_that_no_code_can_be_made_with_are_refused(kernel: str, spec: EncoderSpec, message: str) -> None:
    vectors = SourceVectors(Rows(histograms(ROWS, DIMS)))
    refused(lambda: spec.check(vectors, make_kernel(kernel, gamma=1.0 if kernel == "rbf" else None)), message)


@pytest.mark.parametrize(
    ("landmarks", "message"),
    [
        (32769, "landmarks is out of range: found 32769, expected 1 to 32768. Mend: --landmarks 1024"),
        (0, "landmarks is out of range: found 0, expected 1 to 32768. Mend: --landmarks 1024"),
    ],
)
def test_landmarks_are_bounded_however_large_the_store(landmarks: int, message: str) -> None:
    refused(lambda: Landmarks(n_landmarks=landmarks).check_landmarks(10**6), message)


def test_parameters_at_the_ends_of_their_ranges_are_taken() -> None:
    Landmarks(n_landmarks=1 << 15, n_components=1 << 15).check_landmarks(1 << 15)
    Landmarks(n_landmarks=1, n_components=1).check_landmarks(1)
    vectors, chi2 = SourceVectors(Rows(histograms(ROWS, DIMS))), make_kernel("chi2")
    for spec in (
        KpcaLshSpec(n_landmarks=60, n_bits=4096),
        KpcaLshSpec(n_landmarks=1, n_bits=1),
        KpcaJlSpec(n_landmarks=1, n_components=1, n_projections=4096),
        KpcaPqSpec(n_landmarks=60, n_components=60, n_subquantizers=60),
        KpcaAskaSpec(n_landmarks=60, n_components=60, n_atoms=60, n_nonzero_coefs=60),
        PqSpec(n_subquantizers=20),
    ):
        spec.check(vectors, make_kernel("cosine") if isinstance(spec, PqSpec) else chi2)
