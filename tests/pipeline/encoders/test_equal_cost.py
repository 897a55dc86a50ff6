"""Specs of equal cost: the numbers of the paper's protocol, and codes as large as the bytes allow,
never larger."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercore.pipeline.encoders import ENCODERS
from mercore.pipeline.encoders.equal_cost import (
    code_bytes,
    equal_bytes,
    equal_operations,
    operations,
)
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import InputError
from mercore.stores.rows import SourceVectors
from mercore.testing.stores import Rows

SMALL: dict[str, dict[str, Any]] = {
    "aska": {"n_atoms": 16, "n_nonzero_coefs": 3},
    "kpca-aska": {"n_atoms": 16, "n_nonzero_coefs": 3, "n_landmarks": 16, "n_components": 4},
    "kpca-pq": {"n_landmarks": 16, "n_components": 6, "n_subquantizers": 3},
    "map-pq": {"n_components": 6, "n_subquantizers": 3},
    "pq": {"n_subquantizers": 4},
    "pca-pq": {"n_components": 6, "n_subquantizers": 3},
    "kpca-lsh": {"n_landmarks": 16, "n_bits": 13},
    "kpca-jl": {"n_landmarks": 16, "n_components": 6, "n_projections": 5},
    "kpca": {"n_landmarks": 16, "n_components": 6},
    "kpca-bound": {"n_landmarks": 16, "n_components": 6},
    "pca-bound": {"n_components": 6},
    "bin-bound": {"n_groups": 5},
}


def spec_fields(spec: Any) -> dict[str, Any]:
    return {field: vars(spec)[field] for field in vars(spec) if field.startswith("n_")}


@pytest.mark.parametrize("name", SMALL)
def test_the_bytes_of_a_row_are_those_of_its_encoded_columns(name: str) -> None:
    spec = ENCODERS[name](**SMALL[name])
    kernel = make_kernel("euclidean" if name == "pca-bound" else "hellinger")
    rows = np.random.default_rng(0).gamma(1, size=(40, 8)).astype(np.float32)
    model = spec.fit(SourceVectors(Rows(rows)), kernel)
    encoder = spec.encoder(kernel, model)
    encoder.prepare_encoding()
    columns = encoder.encode(rows)
    assert code_bytes(spec) == sum(values.nbytes for values in columns.values()) / len(rows)


@pytest.mark.parametrize(
    ("name", "count", "size"),
    [
        ("aska", 8, {"n_nonzero_coefs": 8}),
        ("aska", 16, {"n_nonzero_coefs": 16, "n_atoms": 8192}),
        ("kpca-aska", 8, {"n_nonzero_coefs": 8, "n_components": 128}),
        ("pq", 16, {"n_subquantizers": 16}),
        ("kpca-pq", 8, {"n_subquantizers": 8, "n_components": 64}),
        ("kpca-pq", 24, {"n_subquantizers": 24, "n_components": 96}),
        ("kpca-pq", 100, {"n_subquantizers": 100, "n_components": 400}),
        ("map-pq", 8, {"n_subquantizers": 8, "n_components": 64}),
        ("map-pq", 28, {"n_subquantizers": 28, "n_components": 84}),
        ("kpca-lsh", 8, {"n_bits": 300, "n_components": 300}),
        ("kpca-lsh", 3, {"n_bits": 113, "n_components": 113}),  # 112.5
        ("kpca-jl", 8, {"n_projections": 32, "n_components": 128}),
        ("kpca", 8, {"n_components": 8}),
        ("kpca-bound", 8, {"n_components": 8}),
        ("bin-bound", 8, {"n_groups": 8}),
    ],
)
@pytest.mark.promise("The protocols of `compare` give codes of equal work or bytes")
def test_equal_operations(name: str, count: int, size: dict[str, int]) -> None:
    fields = spec_fields(equal_operations(ENCODERS[name], {}, count))
    assert {field: fields[field] for field in size} == size


@pytest.mark.parametrize(
    ("name", "budget", "size"),
    [
        ("aska", 28, {"n_nonzero_coefs": 8}),  # 3 bytes each, 2 of the scale, 2 of the residual
        ("aska", 30, {"n_nonzero_coefs": 8}),
        ("aska", 31, {"n_nonzero_coefs": 9}),
        ("aska", 10_000, {"n_nonzero_coefs": 256}),
        ("kpca-aska", 64, {"n_nonzero_coefs": 20}),
        ("pq", 28, {"n_subquantizers": 16}),  # shares 128 dimensions out evenly
        ("kpca-pq", 28, {"n_subquantizers": 28, "n_components": 112}),
        ("kpca-pq", 64, {"n_subquantizers": 64, "n_components": 256}),
        ("kpca-lsh", 28, {"n_bits": 224, "n_components": 224}),
        ("kpca-jl", 28, {"n_projections": 6, "n_components": 128}),
        ("kpca-jl", 31, {"n_projections": 6}),
        ("kpca", 28, {"n_components": 6}),  # 4 bytes are the residual's
        ("kpca-bound", 28, {"n_components": 18}),  # 10 are the five terms'
        ("bin-bound", 28, {"n_groups": 22}),  # 6 are the three terms'
    ],
)
def test_equal_bytes(name: str, budget: int, size: dict[str, int]) -> None:
    fields = spec_fields(equal_bytes(ENCODERS[name], {}, budget, rows=1 << 20, dims=128))
    assert {field: fields[field] for field in size} == size


def test_what_is_given_is_kept() -> None:
    given: dict[str, Any] = {"n_components": 50, "n_landmarks": 60, "metric": "product"}
    spec = spec_fields(equal_bytes(ENCODERS["kpca-pq"], given, 28, rows=1 << 20, dims=128))
    assert (spec["n_components"], spec["n_landmarks"], spec["n_subquantizers"]) == (50, 60, 25)
    assert (
        spec_fields(equal_operations(ENCODERS["kpca-lsh"], {"n_components": 70}, 8))["n_components"]
        == 70
    )
    float32 = equal_bytes(ENCODERS["aska"], {"weights": "float32"}, 28, rows=1 << 20, dims=128)
    assert spec_fields(float32)["n_nonzero_coefs"] == 4
    assert (
        spec_fields(equal_bytes(ENCODERS["aska"], {"n_atoms": 5}, 28, rows=9, dims=128))[
            "n_nonzero_coefs"
        ]
        == 5
    )


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(list(SMALL)), budget=st.integers(21, 700), dims=st.integers(1, 400))
@pytest.mark.promise("The protocols of `compare` give codes of equal work or bytes")
def test_no_code_is_too_large_and_none_larger_would_fit(name: str, budget: int, dims: int) -> None:
    kind = ENCODERS[name]
    spec = equal_bytes(kind, {}, budget, rows=1 << 20, dims=dims)
    assert code_bytes(spec) <= budget
    size = kind.size
    for value in range(getattr(spec, size.field) + 1, size.most + 1):
        shares = dims if name == "pq" else value  # kpca-pq's components are raised to a multiple
        larger = code_bytes(kind.of_size(value, {}))
        # there are no more components than dimensions of a row, or of its map
        fits = value <= {"pca-pq": dims, "map-pq": 3 * dims}.get(name, value)
        assert larger > budget or shares % value or not fits, (value, larger)


@pytest.mark.parametrize(
    ("name", "least"),
    [("aska", 7), ("kpca-jl", 8), ("kpca", 8), ("kpca-bound", 11), ("bin-bound", 7)],
)
def test_a_budget_below_the_smallest_code_is_refused(name: str, least: int) -> None:
    assert code_bytes(equal_bytes(ENCODERS[name], {}, least, rows=1 << 20, dims=8)) == least
    with pytest.raises(InputError) as error:
        equal_bytes(ENCODERS[name], {}, least - 1, rows=1 << 20, dims=8)
    expected = (
        f"no code fits: found at least {least} bytes a row, expected at most "
        f"{least - 1}. Fix: bytes={least}"
    )
    assert str(error.value) == expected


def test_operations_are_counted_from_one() -> None:
    with pytest.raises(InputError) as error:
        equal_operations(ENCODERS["kpca-pq"], {}, 0)
    assert (
        str(error.value)
        == "operations is out of range: found 0, expected 1 to 32768. Fix: operations=8"
    )


def test_operations_in_words() -> None:
    words = {
        name: operations(equal_operations(kind, {}, 8))
        for name, kind in ENCODERS.items()
        if name in SMALL
    }
    assert words == {
        "aska": "8 look-ups",
        "kpca-aska": "8 look-ups",
        "kpca-pq": "8 look-ups",
        "map-pq": "8 look-ups",
        "pq": "8 look-ups",
        "pca-pq": "8 look-ups",
        "kpca-lsh": "300 bits",
        "kpca-jl": "32 multiply-adds",
        "kpca": "8 multiply-adds",
        "kpca-bound": "8 multiply-adds",
        "pca-bound": "8 multiply-adds",
        "bin-bound": "8 byte operations",
    }


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_has_a_size_that_its_bytes_grow_with(name: str) -> None:
    few, many = (equal_operations(ENCODERS[name], {}, count) for count in (8, 64))
    assert code_bytes(few) < code_bytes(many)
