"""Hyperplanes of klsh, nystrom-lsh and rmmh against plain formulas in float64; features of rff."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.jobs.encoder_options import spec_of_text
from mercore.pipeline.encoders.hashing.klsh import KlshSpec, NystromLshSpec, WhitenedParams
from mercore.pipeline.encoders.hashing.rff import RffSpec
from mercore.pipeline.encoders.hashing.rmmh import RmmhSpec
from mercore.pipeline.encoders.hashing.signs import Hyperplanes
from mercore.stores.errors import InputError
from mercore.stores.spec import to_json
from mercore.testing.cases import in_case
from mercore.testing.stores import histograms
from tests.independent import reference
from tests.pipeline.encoders.test_kpca import (
    DIMS,
    GAMMA,
    Floats,
    kernel_of,
    model_of,
    rounding_of,
    truth,
    vectors_of,
)

P, T, BITS = 60, 12, 40
KERNELS = ["chi2", "intersection", "rbf"]
WHITENED: list[type[WhitenedParams]] = [KlshSpec, NystromLshSpec]


@pytest.fixture(scope="module")
def rows() -> NDArray[np.uint8]:
    return histograms(300, DIMS, seed=3)


def gram_of(name: str, landmarks: NDArray[np.uint8], *, centred: bool) -> Floats:
    """The Gram matrix, doubly centred if the paper says so."""
    gram = truth(name, landmarks, landmarks)
    middle = np.eye(P) - 1 / P if centred else np.eye(P)
    return np.asarray(middle @ gram @ middle)


def power(gram: Floats, exponent: float, rank: int) -> Floats:
    """A power of the best approximation of a rank, without eigenvalues next to zero."""
    values, vectors = np.linalg.eigh(gram)
    kept = (np.arange(P) >= P - rank) & (values > 1e-6)
    powers = np.where(kept, np.where(kept, values, 1) ** exponent, 0)
    return np.asarray((vectors * powers) @ vectors.T)


def subsets_of(spec: WhitenedParams, name: str, rows: NDArray[np.uint8]) -> Floats:
    """e_S of every bit, from hyperplanes of full rank: K^{1/2} w is e_S, or that without its
    mean."""
    model = model_of(spec, rows, kernel_of(name))
    centred = isinstance(spec, KlshSpec)
    root = power(gram_of(name, model["landmarks"], centred=centred), 0.5, P)
    marks = root @ model["projection"].astype(float) + (T / P if centred else 0)
    np.testing.assert_allclose(marks, np.rint(marks), atol=1e-3)
    return np.asarray(np.rint(marks))


@pytest.mark.parametrize("kind", WHITENED)
@pytest.mark.parametrize("name", KERNELS)
def test_hyperplanes_are_whitened_sums_of_a_subset(
    kind: type[WhitenedParams], name: str, rows: NDArray[np.uint8]
) -> None:
    spec = kind(n_landmarks=P, n_subset=T, n_bits=BITS)
    subsets = subsets_of(spec, name, rows)
    assert set(np.unique(subsets)) == {0, 1}
    assert (subsets.sum(axis=0) == T).all()
    assert len(np.unique(subsets, axis=1).T) == BITS
    for rank in (1, 7, 30, P):
        with in_case(rank=rank):
            model = model_of(
                kind(n_landmarks=P, n_subset=T, n_bits=BITS, rank=rank), rows, kernel_of(name)
            )
            gram = gram_of(name, model["landmarks"], centred=kind is KlshSpec)
            expected = power(gram, -0.5, rank) @ subsets
            scale = np.abs(expected).max()
            np.testing.assert_allclose(model["projection"], expected, atol=1e-5 * scale)


@pytest.mark.parametrize("name", KERNELS)
def test_a_bit_of_klsh_is_the_side_of_the_centred_row(name: str, rows: NDArray[np.uint8]) -> None:
    spec = KlshSpec(n_landmarks=P, n_subset=T, n_bits=BITS, rank=20)
    model = model_of(spec, rows, kernel_of(name))
    scores, gram = truth(name, rows, model["landmarks"]), truth(name, *[model["landmarks"]] * 2)
    centred = scores - scores.mean(axis=1, keepdims=True) - gram.mean(axis=0) + gram.mean()
    check_bits(spec, name, rows, centred @ model["projection"].astype(float))


def check_bits(spec: Hyperplanes, name: str, rows: NDArray[np.uint8], sides: Floats) -> None:
    """The codes are the signs, except where float32 may change one."""
    kernel = kernel_of(name)
    model = model_of(spec, rows, kernel)
    codes = spec.encoder(kernel, model).encode(rows)["code"]
    rounding = rounding_of(kernel, rows, model["landmarks"], model["projection"])
    sure = (np.abs(sides) > 2 * rounding).all(axis=1)
    assert sure.sum() > 200
    np.testing.assert_array_equal(codes[sure], reference.packed_signs(sides[sure]))


@pytest.mark.parametrize("penalty", [0.02, 1.0, 1000.0])
def test_margins_of_rmmh_are_the_widest(penalty: float, rows: NDArray[np.uint8]) -> None:
    """The conditions of Karush, Kuhn and Tucker for Eq. 17 and 18, which have one solution."""
    spec = RmmhSpec(n_landmarks=P, n_samples=16, n_bits=BITS, penalty=penalty)
    model = model_of(spec, rows, kernel_of("chi2"))
    weights, offset = model["projection"].astype(float), -model["thresholds"].astype(float)
    sides = truth("chi2", model["landmarks"], model["landmarks"]) @ weights + offset
    for bit in range(BITS):
        with in_case(bit=bit):
            used = weights[:, bit] != 0
            alphas, margins = np.abs(weights[used, bit]), (sides * np.sign(weights))[used, bit]
            assert 2 <= used.sum() <= 16
            assert abs(weights[:, bit].sum()) < 1e-5 * penalty
            assert (alphas <= penalty * (1 + 1e-6)).all()
            assert (margins <= 1 + 2e-3).all()
            np.testing.assert_allclose(margins[alphas < penalty * (1 - 1e-6)], 1, atol=2e-3)
    assert len(np.unique(weights, axis=1).T) == BITS
    check_bits(spec, "chi2", rows, truth("chi2", rows, model["landmarks"]) @ weights + offset)


def test_a_whole_penalty_is_the_same_spec() -> None:
    assert to_json(RmmhSpec(penalty=2)) == to_json(spec_of_text("rmmh:penalty=2"))
    assert json.dumps(to_json(RmmhSpec(penalty=2))) == json.dumps(to_json(RmmhSpec(penalty=2.0)))


def test_bits_of_rff_differ_as_often_as_the_kernel_says() -> None:
    """P(bits differ) = 8/π² Σ (1 − K(m x, m y)) / (4 m² − 1), m ≥ 1 (Raginsky & Lazebnik 2009)."""
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((40, 5)).astype(np.float32)
    spec = RffSpec(n_bits=4096)
    kernel = kernel_of("rbf")
    model = spec.fit(vectors_of(rows), kernel)
    codes = spec.encoder(kernel, model).encode(rows)["code"]
    angles = rows.astype(float) @ model["projection"].astype(float) + model["phases"]
    sides = np.cos(angles) - model["thresholds"]
    bits = np.unpackbits(codes, axis=1, bitorder="little")
    sure = np.abs(sides) > 1e-5
    np.testing.assert_array_equal(bits[sure], (sides > 0)[sure])
    assert sure.mean() > 0.999

    squares = ((rows[:, None].astype(float) - rows[None]) ** 2).sum(axis=2)
    terms = [(1 - np.exp(-GAMMA["rbf"] * m * m * squares)) / (4 * m * m - 1) for m in range(1, 200)]
    expected = 8 / np.pi**2 * np.sum(terms, axis=0)
    differing = (bits[:, None] != bits[None]).mean(axis=2)
    deviation = np.sqrt(expected * (1 - expected) / spec.n_bits)
    assert (np.abs(differing - expected) <= 5 * deviation + 1e-9).all()


def test_rff_takes_gaussian_kernels_alone(rows: NDArray[np.uint8]) -> None:
    with pytest.raises(InputError, match="rff encodes the kernel rbf only: found chi2"):
        RffSpec().check(vectors_of(rows), kernel_of("chi2"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (KlshSpec(n_landmarks=301), "landmarks is out of range: found 301, "),
        (
            KlshSpec(n_landmarks=20, n_subset=21),
            "subset is out of range: found 21, expected 1 to 20",
        ),
        (KlshSpec(n_subset=0), "subset is out of range: found 0, "),
        (KlshSpec(rank=301), "rank is out of range: found 301, expected 1 to 300, the landmarks"),
        (NystromLshSpec(rank=0), "rank is out of range: found 0, expected 1 to 300, the landmarks"),
        (NystromLshSpec(n_bits=4097), "bits is out of range: found 4097, "),
        (RmmhSpec(n_landmarks=300, n_samples=7), "samples is 7: expected an even number"),
        (RmmhSpec(n_landmarks=30), "samples is out of range: found 32, expected 2 to 30"),
        (RmmhSpec(n_landmarks=300, penalty=0.0), "penalty is 0.0: expected a number from 1e-9"),
    ],
)
def test_parameters_out_of_range_are_refused(
    spec: Hyperplanes, message: str, rows: NDArray[np.uint8]
) -> None:
    with pytest.raises(InputError) as refusal:
        spec.check(vectors_of(rows), kernel_of("chi2"))
    assert str(refusal.value).startswith(message)
