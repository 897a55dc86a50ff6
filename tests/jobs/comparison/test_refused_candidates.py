"""What specs refuse, with the mend; and what they take, to the ends of the ranges."""

from functools import partial
from typing import Any

import pytest

from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.hashing.kpca_lsh import KpcaLshSpec
from mercore.pipeline.encoders.kpca import KpcaSpec
from mercore.pipeline.encoders.kpca_aska import KpcaAskaSpec
from mercore.pipeline.encoders.kpca_jl import KpcaJlSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.pq import PqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import InputError
from mercore.stores.rows import SourceVectors
from tests.jobs.test_encoder_options import refused
from tests.support.cases import in_case
from tests.support.making import Rows, histograms

ROWS, DIMS = 60, 20
SMALL: dict[str, Any] = {"n_landmarks": 40, "n_components": 12}
TOO_MANY = f"expected 1 to {ROWS}, the rows of the store. Fix: --landmarks {ROWS}"
REFUSED: list[tuple[Any, str]] = [
    (KpcaSpec(n_landmarks=0), f"landmarks is out of range: found 0, {TOO_MANY}"),
    (KpcaSpec(n_landmarks=61), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaSpec(n_landmarks=40, n_components=41),
        "components is out of range: found 41, expected 1 to 40, the landmarks. Fix: "
        "--components 40",
    ),
    (
        KpcaSpec(n_landmarks=40, n_components=0),
        "components is out of range: found 0, expected 1 to 40, the landmarks. Fix: "
        "--components 40",
    ),
    (
        KpcaSpec(**SMALL, random_state=-1),
        "random_state must not be negative: found -1. Fix: --random-state 0",
    ),
    (
        KpcaAskaSpec(**SMALL),
        "atoms is out of range: found 8192, expected 1 to 60 rows in the store. Fix: --atoms 60",
    ),
    (KpcaAskaSpec(n_atoms=9, n_landmarks=61), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaAskaSpec(n_atoms=9, n_nonzero_coefs=10, **SMALL),
        "sparsity is out of range: found 10, expected 1 to 9. Fix: --sparsity 8",
    ),
    (
        KpcaAskaSpec(n_atoms=9, weights="int4", **SMALL),
        "unknown weights: found 'int4', expected one of int8, float16, float32. Fix: --weights "
        "int8",
    ),
    (
        KpcaAskaSpec(n_atoms=9, pursuit="mp", **SMALL),
        "unknown pursuit: found 'mp', expected one of ormp, omp. Fix: --pursuit ormp",
    ),
    (
        KpcaAskaSpec(n_atoms=9, **SMALL, random_state=-2),
        "random_state must not be negative: found -2. Fix: --random-state 0",
    ),
    (KpcaPqSpec(n_landmarks=61), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaPqSpec(n_landmarks=40, n_components=50),
        "components is out of range: found 50, expected 1 to 40, the landmarks. Fix: "
        "--components 40",
    ),
    (
        KpcaPqSpec(n_landmarks=40, n_components=20, n_subquantizers=3),
        "subquantizers share coordinates out evenly: found 3 for 20 coordinates. Fix: "
        "--components 18.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=13),
        "subquantizers is out of range: found 13, expected 1 to 12. Fix: --subquantizers 12",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=0),
        "subquantizers is out of range: found 0, expected 1 to 12. Fix: --subquantizers 12",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, n_training=0),
        "training rows is out of range: found 0, expected 1 to 16777216. Fix: leave "
        "--training-rows out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, n_training=(1 << 24) + 1),
        "training rows is out of range: found 16777217, expected 1 to 16777216. Fix: leave "
        "--training-rows out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, metric="cosine"),
        "unknown metric: found 'cosine', expected one of distance, product. Fix: leave --metric "
        "out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, preprocessing="pca"),
        "unknown preprocessing: found 'pca', expected one of balanced, permutation, "
        "rotation, none. Fix: leave --preprocessing out.",
    ),
    (
        KpcaPqSpec(**SMALL, n_subquantizers=4, random_state=-1),
        "random_state must not be negative: found -1. Fix: --random-state 0",
    ),
    (KpcaLshSpec(n_bits=0), "bits is out of range: found 0, expected 1 to 4096. Fix: --bits 256"),
    (
        KpcaLshSpec(n_bits=4097),
        "bits is out of range: found 4097, expected 1 to 4096. Fix: --bits 256",
    ),
    (KpcaLshSpec(n_landmarks=61, n_bits=8), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaLshSpec(n_landmarks=40, n_components=41, n_bits=8),
        "components is out of range: found 41, expected 1 to 40, the landmarks. Fix: "
        "--components 40",
    ),
    (
        KpcaLshSpec(**SMALL, random_state=-1),
        "random_state must not be negative: found -1. Fix: --random-state 0",
    ),
    (
        KpcaJlSpec(**SMALL, n_projections=0),
        "projections is out of range: found 0, expected 1 to 4096. Fix: --projections 32",
    ),
    (
        KpcaJlSpec(**SMALL, n_projections=4097),
        "projections is out of range: found 4097, expected 1 to 4096. Fix: --projections 32",
    ),
    (
        KpcaJlSpec(**SMALL, metric="cosine"),
        "unknown metric: found 'cosine', expected one of distance, product. Fix: leave --metric "
        "out.",
    ),
    (KpcaJlSpec(), f"landmarks is out of range: found 8192, {TOO_MANY}"),
    (
        KpcaJlSpec(n_landmarks=40),
        "components is out of range: found 128, expected 1 to 40, the landmarks. Fix: "
        "--components 40",
    ),
    (
        KpcaJlSpec(**SMALL, random_state=-1),
        "random_state must not be negative: found -1. Fix: --random-state 0",
    ),
    (KpcaBoundSpec(n_landmarks=61), f"landmarks is out of range: found 61, {TOO_MANY}"),
    (
        KpcaBoundSpec(n_landmarks=40, n_components=41),
        "components is out of range: found 41, expected 1 to 40, the landmarks. Fix: "
        "--components 40",
    ),
    (
        KpcaBoundSpec(**SMALL, random_state=-1),
        "random_state must not be negative: found -1. Fix: --random-state 0",
    ),
    (
        BinBoundSpec(),
        "groups is out of range: found 64, expected 1 to 20, the bins. Fix: --groups 20",
    ),
    (
        BinBoundSpec(n_groups=0),
        "groups is out of range: found 0, expected 1 to 20, the bins. Fix: --groups 20",
    ),
    (
        BinBoundSpec(n_groups=9, n_training=1),
        "training rows is out of range: found 1, expected 2 to 1048576. Fix: leave "
        "--training-rows out.",
    ),
    (
        BinBoundSpec(n_groups=9, random_state=-1),
        "random_state must not be negative: found -1. Fix: --random-state 0",
    ),
]
REFUSED_OF_KERNELS: list[tuple[str, Any, str]] = [
    (
        "chi2",
        PqSpec(n_subquantizers=4),
        "encoder pq ranks rows by their Euclidean distance: found kernel chi2, expected one of "
        "cosine, hellinger, rbf, euclidean, inner_product. "
        "Fix: --encoder kpca-pq",
    ),
    (
        "rbf",
        PqSpec(metric="product"),
        "kernel rbf is a function of the distance: found metric product. Fix: --metric distance",
    ),
    (
        "cosine",
        PqSpec(n_subquantizers=8),
        "subquantizers share coordinates out evenly: found 8 for 20 coordinates. Fix: "
        "--subquantizers 10.",
    ),
    (
        "cosine",
        PqSpec(n_subquantizers=21),
        "subquantizers is out of range: found 21, expected 1 to 20. Fix: --subquantizers 10",
    ),
    (
        "hellinger",
        PqSpec(n_subquantizers=4, metric="l1"),
        "unknown metric: found 'l1', expected one of distance, product. Fix: leave --metric out.",
    ),
    (
        "cosine",
        PqSpec(n_subquantizers=4, n_training=0),
        "training rows is out of range: found 0, expected 1 to 16777216. Fix: leave "
        "--training-rows out.",
    ),
    (
        "cosine",
        PqSpec(n_subquantizers=4, random_state=-1),
        "random_state must not be negative: found -1. Fix: --random-state 0",
    ),
    *(
        (
            name,
            BinBoundSpec(n_groups=4),
            f"bin-bound needs a sum over bins: found kernel {name}, expected hellinger, chi2, "
            "intersection, "
            "jensen_shannon, or a transform. Fix: --encoder kpca-bound",
        )
        for name in ("cosine", "rbf")
    ),
]


ALL_REFUSED = [*(("chi2", *case) for case in REFUSED), *REFUSED_OF_KERNELS]


@pytest.mark.parametrize("name", sorted({spec.name for _, spec, _ in ALL_REFUSED}))
def test_parameters_that_no_code_can_be_made_with_are_refused(name: str) -> None:
    vectors = SourceVectors(Rows(histograms(ROWS, DIMS)))
    for kernel, spec, message in (case for case in ALL_REFUSED if case[1].name == name):
        checked = partial(
            spec.check, vectors, make_kernel(kernel, gamma=1.0 if kernel == "rbf" else None)
        )
        with in_case(spec=spec):
            refused(checked, message)


@pytest.mark.parametrize(
    ("landmarks", "message"),
    [
        (
            32769,
            "landmarks is out of range: found 32769, expected 1 to 32768. Fix: --landmarks 1024",
        ),
        (0, "landmarks is out of range: found 0, expected 1 to 32768. Fix: --landmarks 1024"),
    ],
)
def test_landmarks_are_bounded_however_large_the_store(landmarks: int, message: str) -> None:
    refused(lambda: KpcaSpec(n_landmarks=landmarks).check_landmarks(10**6), message)


def test_parameters_at_the_ends_of_their_ranges_are_taken() -> None:
    KpcaSpec(n_landmarks=1 << 15, n_components=1 << 15).check_landmarks(1 << 15)
    KpcaSpec(n_landmarks=1, n_components=1).check_landmarks(1)
    vectors, chi2 = SourceVectors(Rows(histograms(ROWS, DIMS))), make_kernel("chi2")
    for spec in (
        KpcaLshSpec(n_landmarks=60, n_bits=4096),
        KpcaLshSpec(n_landmarks=1, n_bits=1),
        KpcaJlSpec(n_landmarks=1, n_components=1, n_projections=4096),
        KpcaPqSpec(n_landmarks=60, n_components=60, n_subquantizers=60),
        KpcaAskaSpec(n_landmarks=60, n_components=60, n_atoms=60, n_nonzero_coefs=60),
        PqSpec(n_subquantizers=20),
        KpcaBoundSpec(n_landmarks=60, n_components=60),
        KpcaBoundSpec(n_landmarks=1, n_components=1),
        BinBoundSpec(n_groups=20, n_training=2),
        BinBoundSpec(n_groups=1, n_training=1 << 20),
    ):
        spec.check(vectors, make_kernel("cosine") if isinstance(spec, PqSpec) else chi2)


def test_a_bound_of_bins_serves_transforms_of_sums_over_bins() -> None:
    vectors = SourceVectors(Rows(histograms(ROWS, DIMS)))
    for kernel in (make_kernel("exp_chi2"), make_kernel("intersection", transform=3.0)):
        BinBoundSpec(n_groups=4).check(vectors, kernel)


def test_a_bound_of_bins_has_no_more_groups_than_an_int32_adds() -> None:
    vectors, kernel = SourceVectors(Rows(histograms(8, 33_000))), make_kernel("chi2")
    BinBoundSpec(n_groups=32_896).check(vectors, kernel)
    with pytest.raises(
        InputError, match="groups is out of range: found 32897, expected 1 to 32896, for an int32"
    ):
        BinBoundSpec(n_groups=32_897).check(vectors, kernel)
