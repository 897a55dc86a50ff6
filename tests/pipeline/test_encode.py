"""Codes depend on the spec alone, and say truthfully how far each row lies from what they hold of
it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encode import (
    EncodePlan,
    default_part_rows,
    encode_bytes,
    encode_part,
    spec_of,
)
from mercore.pipeline.encoders.aska import PURSUITS, WEIGHTS, Aska, AskaSpec, int8_scales
from mercore.pipeline.encoders.bounds.rounding import float16_above
from mercore.pipeline.encoders.encoder import draw_rows
from mercore.pipeline.kernels import UNIT_KERNELS, Kernel, make_kernel
from mercore.stores.errors import InputError
from mercore.stores.rows import SourceVectors
from mercore.stores.vectors import VectorStore
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from mercore.testing.stores import (
    Rows,
    columns_of,
    files_of,
    histograms,
    make_codes,
    make_vectors,
    plan_encode,
)
from tests.independent import reference
from tests.support.making import aska_of

Floats = NDArray[np.float64]
GAMMA = {"rbf": 0.3, "exp_chi2": 1.5}
SPEC = AskaSpec(n_atoms=40, n_nonzero_coefs=6, random_state=7)
every_kernel = pytest.mark.parametrize("name", UNIT_KERNELS)


def kernel_of(name: str) -> Kernel:
    return make_kernel(name, gamma=GAMMA.get(name))


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(600, 20, seed=1)


@pytest.fixture(scope="module")
def vectors(rows: NDArray[Any], tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    return make_vectors(tmp_path_factory.mktemp("encode") / "vectors", rows, part_rows=256)


# What codes depend on


@every_kernel
def test_codes_are_the_same_bits_whatever_the_parts_and_the_chunks_of_the_vectors(
    name: str, vectors: VectorStore, rows: NDArray[Any], tmp_path: Path
) -> None:
    wanted = columns_of(
        make_codes(tmp_path / "whole", vectors, kernel_of(name), SPEC, part_rows=600)
    )
    for part_rows, chunk_rows in ((37, 512), (300, 512), (256, 64)):
        threshold = make_vectors(tmp_path / f"vectors{part_rows}", rows, part_rows=chunk_rows)
        found = columns_of(
            make_codes(
                tmp_path / f"codes{part_rows}",
                threshold,
                kernel_of(name),
                SPEC,
                part_rows=part_rows,
            )
        )
        for column, values in wanted.items():
            np.testing.assert_array_equal(found[column], values, strict=True)


def test_another_pursuit_is_another_code_and_another_job(
    vectors: VectorStore, tmp_path: Path
) -> None:
    made = {
        pursuit: make_codes(
            tmp_path / pursuit, vectors, kernel_of("chi2"), replace(SPEC, pursuit=pursuit)
        )
        for pursuit in PURSUITS
    }
    residuals = {
        pursuit: columns_of(codes)["residual"].astype(np.float64) for pursuit, codes in made.items()
    }
    assert np.square(residuals["ormp"]).mean() < np.square(residuals["omp"]).mean()
    assert made["omp"].store.header.spec_digest != made["ormp"].store.header.spec_digest
    assert [spec_of(codes) for codes in made.values()] == [
        replace(SPEC, pursuit=pursuit) for pursuit in PURSUITS
    ]


def test_encoding_again_writes_the_same_bytes(vectors: VectorStore, tmp_path: Path) -> None:
    for name in ("one", "other"):
        make_codes(tmp_path / name, vectors, kernel_of("hellinger"), SPEC, part_rows=128)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "other")


def test_another_seed_draws_other_atoms_and_each_atom_is_a_row(
    vectors: VectorStore, rows: NDArray[Any]
) -> None:
    drawn = []
    for seed in (0, 1):
        plan = plan_encode(vectors, kernel_of("chi2"), AskaSpec(n_atoms=40, random_state=seed))
        chosen = plan.model["dictionary_rows"]
        np.testing.assert_array_equal(plan.model["dictionary"], rows[chosen])
        assert chosen.dtype == np.int64
        assert (np.diff(chosen) > 0).all()
        assert 0 <= chosen[0] < chosen[-1] < 600
        drawn.append(chosen.tolist())
    assert drawn[0] != drawn[1]
    np.testing.assert_array_equal(draw_rows(np.random.default_rng(0), 5, 5), np.arange(5))


@pytest.mark.parametrize("count", [1, 1000, 1_000_000])
def test_rows_drawn_from_a_large_store_come_from_a_bounded_number_of_runs(count: int) -> None:
    rows = 10**10
    drawn = draw_rows(np.random.default_rng(0), rows, count)
    assert drawn.dtype == np.int64
    assert len(drawn) == count
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < rows
    runs = np.unique(drawn // 2048)
    assert len(runs) <= max(1024, 8 * count // 2048)
    if count > 1:  # from all over the store
        assert np.abs(np.histogram(drawn, 8, (0, rows))[0] / count - 1 / 8).max() < 0.05


# What codes say


def pursued(name: str, rows: NDArray[Any], dictionary: NDArray[Any]) -> tuple[Floats, Floats]:
    """K(y, D) and K(D, D) by the slow truth."""
    prepared, atoms = reference.prepare(name, rows), reference.prepare(name, dictionary)
    gamma = GAMMA.get(name, 1.0)
    return reference.kernel(name, prepared, atoms, gamma), reference.kernel(
        name, atoms, atoms, gamma
    )


@every_kernel
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_residual_is_the_distance_to_what_the_stored_weights_make(
    name: str, weights: str, vectors: VectorStore, rows: NDArray[Any]
) -> None:
    """Float32 correlations leave residual² 1e-6 uncertain; float16 then rounds up, by a share of
    2⁻¹⁰ at most."""
    spec = AskaSpec(n_atoms=40, n_nonzero_coefs=6, weights=weights, random_state=7)
    plan = plan_encode(vectors, kernel_of(name), spec)
    encoder = Aska(spec, kernel_of(name), plan.model["dictionary"])
    encoder.prepare_encoding()
    code = encode_part(encoder, vectors, 0, 600)
    start, gram = pursued(name, rows, plan.model["dictionary"])
    stored = reference.aska_weights(code, 0).astype(np.float64)
    squares = [
        reference.residual(*row) ** 2
        for row in zip(start, [gram] * 600, code["atoms"], stored, strict=True)
    ]
    said = code["residual"].astype(np.float64)
    assert (said >= np.sqrt(np.maximum(np.array(squares) - 1e-6, 0))).all()
    assert (said <= np.sqrt(np.array(squares) + 1e-6) * (1 + 2.0**-10) + 2.0**-24).all()
    custom = plan.model["dictionary_rows"]
    np.testing.assert_array_equal(
        code["atoms"][custom, 0], np.arange(40)
    )  # an atom is its own code
    assert (code["residual"][custom] <= (2e-3 if weights != "int8" else 1e-2)).all()


@every_kernel
@pytest.mark.parametrize("pursuit", PURSUITS)
def test_atoms_and_weights_are_those_of_the_slow_pursuit_where_no_two_atoms_are_near_a_tie(
    pursuit: str, name: str, vectors: VectorStore, rows: NDArray[Any], tmp_path: Path
) -> None:
    spec = AskaSpec(
        n_atoms=40, n_nonzero_coefs=3, weights="float32", random_state=7, pursuit=pursuit
    )
    codes = make_codes(tmp_path / "codes", vectors, kernel_of(name), spec, part_rows=600)
    code = columns_of(codes)
    start, gram = pursued(name, rows, codes.model["dictionary"])
    alike = 0
    for row in range(100):
        atoms, weights = getattr(reference, pursuit)(start[row], gram, 3)
        if (code["atoms"][row] == atoms).all():
            alike += 1
            np.testing.assert_allclose(code["weights"][row], weights, rtol=0, atol=1e-4)
    assert alike >= 97


@pytest.mark.parametrize("pursuit", PURSUITS)
def test_a_row_gets_atoms_until_float32_cannot_tell_what_is_left_from_zero(pursuit: str) -> None:
    spec = AskaSpec(n_atoms=3, n_nonzero_coefs=3, weights="float32", pursuit=pursuit)
    encoder = Aska(spec, make_kernel("cosine"), np.eye(3, dtype=np.float32))
    encoder.prepare_encoding()
    left = np.array(
        [0.03, 0.01, 0.002, 0.0005], np.float32
    )  # by two atoms: its square is 1e-4 for the second
    rows = np.column_stack([np.full(4, 0.8, np.float32), np.full(4, 0.6, np.float32), left])
    assert (encoder.encode(rows)["weights"] != 0).sum(axis=1).tolist() == [3, 3, 3, 2]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_columns_are_of_the_dtypes_and_shapes_that_the_layout_says(
    weights: str, vectors: VectorStore, tmp_path: Path
) -> None:
    spec = AskaSpec(n_atoms=40, n_nonzero_coefs=6, weights=weights)
    code = columns_of(
        make_codes(tmp_path / "codes", vectors, kernel_of("chi2"), spec, part_rows=100)
    )
    said = {name: (values.dtype.name, values.shape) for name, values in code.items()}
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "atoms": ("uint16", (600, 6)),
        "weights": (weights, (600, 6)),
    }
    if weights == "int8":
        expected["scale"] = ("float16", (600,))
    assert said == {**expected, "residual": ("float16", (600,))}
    assert code["atoms"].max() < 40


def test_rounded_weights_are_a_unit_off_at_most_and_keep_their_sum(
    vectors: VectorStore, tmp_path: Path
) -> None:
    found = {}
    for weights in WEIGHTS:
        spec = AskaSpec(n_atoms=40, n_nonzero_coefs=6, weights=weights)
        found[weights] = columns_of(
            make_codes(tmp_path / weights, vectors, kernel_of("chi2"), spec)
        )
        np.testing.assert_array_equal(found[weights]["atoms"], found["int8"]["atoms"])
    true = found["float32"]["weights"].astype(np.float64)
    np.testing.assert_allclose(found["float16"]["weights"], true, rtol=2.0**-10, atol=1e-7)
    unit = found["int8"]["scale"].astype(np.float64)
    stored = found["int8"]["weights"] * unit[:, None]
    assert (np.abs(stored - true) <= unit[:, None] * (1 + 2.0**-4)).all()
    assert (np.abs(stored.sum(axis=1) - true.sum(axis=1)) <= unit * 0.6).all()


@given(weights=st.lists(st.floats(-50, 50), min_size=1, max_size=12))
@steady(300)
def test_a_scale_spans_the_greatest_weight_with_a_32nd_to_spare(weights: list[float]) -> None:
    least = max(np.abs(weights)) / 127
    (scale,) = int8_scales(np.array([weights])).astype(float)
    rounding = max(least * 2.0**-10, 2.0**-24)
    assert least - rounding <= scale <= least * 33 / 32 + rounding
    units = abs(sum(weights)) / scale if scale > 1e-4 else 0
    if units > 34:
        assert abs(units - round(units)) <= units * 2.0**-11 + 1e-9
    elif units < 31:
        assert scale <= least + rounding


@given(values=st.lists(st.floats(0, 6e4), min_size=1, max_size=9))
@steady(300)
def test_float16_above_is_the_least_that_is_not_below(values: list[float]) -> None:
    array = np.array(values)
    found = float16_above(array)
    assert found.dtype == np.float16
    assert (found.astype(np.float64) >= array).all()
    below = np.nextafter(found, np.float16(-np.inf)).astype(np.float64)
    assert (below < array).all()


# Plans


@loop_over("rows", [4096, 5000, 262_143, 262_144, 314_615, 10**6, 2**26 - 1, 2**26, 10**9])
def test_parts_are_powers_of_two_about_a_64th_of_the_store(rows: int) -> None:
    part_rows = default_part_rows(rows, 16)
    assert part_rows.bit_count() == 1
    assert 1 << 12 <= part_rows <= 1 << 20
    if 1 << 12 < part_rows < 1 << 20:
        assert rows / 64 < part_rows <= rows / 32
    assert default_part_rows(rows + 1, 16) >= part_rows


@loop_over("row_bytes", [1, 16, 28, 260, 100_000, 1 << 20])
def test_parts_of_a_small_store_hold_its_rows_or_64_kib(row_bytes: int) -> None:
    for rows in (0, 1, 10, 1000, 1024, 1025, 4095, 4096):
        part_rows = default_part_rows(rows, row_bytes)
        assert part_rows.bit_count() == 1
        assert rows <= part_rows <= 4096
        if part_rows // 2 >= max(1, rows):
            assert part_rows * row_bytes <= 64 << 10


def test_a_plan_lays_the_store_out(vectors: VectorStore) -> None:
    plan = plan_encode(vectors, kernel_of("rbf"), SPEC, compressor="zstd")
    assert (plan.layout.rows, plan.layout.part_rows, plan.layout.parts) == (600, 2048, 1)
    assert (plan.spec.source, plan.spec.dims) == (vectors.fingerprint, 20)
    assert plan.spec.kernel == {"name": "rbf", "configuration": {"gamma": 0.3}}
    assert {column["compressor"] for column in plan.layout.columns} == {"zstd"}
    assert list(plan.model) == ["dictionary", "dictionary_rows"]


def test_the_memory_of_a_plan_grows_with_its_workers_its_atoms_and_its_parts(
    vectors: VectorStore,
) -> None:
    def plan(atoms: int, part_rows: int) -> EncodePlan:
        return plan_encode(
            vectors,
            kernel_of("chi2"),
            AskaSpec(n_atoms=atoms, n_nonzero_coefs=6),
            part_rows=part_rows,
        )

    sizes = [(plan(40, 64), 1), (plan(40, 64), 2), (plan(40, 128), 2), (plan(80, 128), 2)]
    needed = [encode_bytes(*size) for size in sizes]
    assert needed == sorted(set(needed))


def refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        call()
    assert type(refusal.value) is InputError
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("fields", "rows", "message"),
    [
        (
            {"n_atoms": 0},
            600,
            "atoms is out of range: found 0, expected 1 to 600 rows in the store. Fix: atoms=600",
        ),
        (
            {"n_atoms": 601},
            600,
            "atoms is out of range: found 601, expected 1 to 600 rows in the store. Fix: atoms=600",
        ),
        (
            {"n_atoms": 65537},
            10**6,
            "atoms is out of range: found 65537, expected 1 to 65536, for an atom is a uint16. "
            "Fix: atoms=1024",
        ),
        (
            {"n_atoms": 4, "n_nonzero_coefs": 5},
            600,
            "sparsity is out of range: found 5, expected 1 to 4. Fix: sparsity=4",
        ),
        (
            {"n_atoms": 600, "n_nonzero_coefs": 257},
            600,
            "sparsity is out of range: found 257, expected 1 to 256. Fix: sparsity=8",
        ),
        (
            {"n_atoms": 9, "n_nonzero_coefs": 0},
            600,
            "sparsity is out of range: found 0, expected 1 to 9. Fix: sparsity=8",
        ),
        (
            {"n_atoms": 9, "weights": "int4"},
            600,
            "unknown weights: found 'int4', expected one of int8, float16, float32. Fix: "
            'weights="int8"',
        ),
        (
            {"n_atoms": 9, "pursuit": "mp"},
            600,
            "unknown pursuit: found 'mp', expected one of ormp, omp. Fix: pursuit=\"ormp\"",
        ),
        (
            {"n_atoms": 9, "norm_power": 2.5},
            600,
            "norm power is out of range: found 2.5, expected 0 to 2. Fix: norm_power=0.5",
        ),
        (
            {"n_atoms": 9, "norm_power": 0.5, "metric": "distance"},
            600,
            'norm_power divides products: found metric="distance", expected metric="product". Fix: '
            "leave one of them out.",
        ),
        (
            {"n_atoms": 9, "random_state": -1},
            600,
            "random_state must not be negative: found -1. Fix: random_state=0",
        ),
    ],
)
def test_parameters_out_of_range_are_refused(
    fields: dict[str, Any], rows: int, message: str
) -> None:
    refused(lambda: AskaSpec(**fields).check_dictionary(rows), message)


def test_parameters_at_the_ends_of_their_ranges_are_taken() -> None:
    AskaSpec(n_atoms=1, n_nonzero_coefs=1).check_dictionary(1)
    AskaSpec(n_atoms=65536, n_nonzero_coefs=256, weights="float32").check_dictionary(65536)


@pytest.mark.parametrize("part_rows", [0, (1 << 20) + 1])
def test_parts_out_of_range_are_refused(vectors: VectorStore, part_rows: int) -> None:
    message = (
        f"part_rows is out of range: found {part_rows}, expected 1 to 1048576. Fix: "
        "leave part_rows out."
    )
    refused(lambda: plan_encode(vectors, kernel_of("chi2"), SPEC, part_rows=part_rows), message)


BAD = {"NaN": np.nan, "infinite": np.inf, "negative": -1.0, "all-zero": 0.0}
REFUSED_BY = {name: set(BAD) for name in UNIT_KERNELS}
REFUSED_BY["cosine"] = {"NaN", "infinite", "all-zero"}
REFUSED_BY["rbf"] = {"NaN", "infinite"}


@every_kernel
@loop_over("what", BAD)
def test_a_store_that_ingest_saw_rows_outside_the_domain_in_is_refused(
    name: str, what: str, tmp_path: Path
) -> None:
    rows = histograms(60, 5)
    rows[[11, 30]] = BAD[what]
    vectors = make_vectors(tmp_path / "vectors", rows)
    spec = AskaSpec(n_atoms=60, n_nonzero_coefs=2)
    if what not in REFUSED_BY[name]:
        plan_encode(vectors, kernel_of(name), spec)
        return
    fix = (
        "mercore.ingest(drop_zero_rows=True)"
        if what == "all-zero"
        else "clean the source and ingest it again"
    )
    refused(
        lambda: plan_encode(vectors, kernel_of(name), spec),
        f"{vectors.where} holds 2 rows with {what} values: kernel {name} does not take them. "
        f"Fix: {fix}.",
    )


def test_zero_rows_that_were_dropped_are_no_hindrance(tmp_path: Path) -> None:
    rows = histograms(60, 5)
    rows[[0, 30]] = 0
    vectors = make_vectors(tmp_path / "vectors", rows, drop_zero_rows=True)
    plan = plan_encode(vectors, kernel_of("chi2"), AskaSpec(n_atoms=58, n_nonzero_coefs=2))
    assert plan.model["dropped"].tolist() == [0, 30]


def test_rows_that_no_ingest_counted_are_looked_at_one_by_one() -> None:
    rows = histograms(900, 5)
    rows[777, 2] = np.nan
    refused(
        lambda: plan_encode(
            SourceVectors(Rows(rows)), kernel_of("chi2"), AskaSpec(n_atoms=3, n_nonzero_coefs=1)
        ),
        "row 777 has a NaN or infinite value: found "
        f"{np.array2string(rows[777, :4], separator=', ', precision=4)[:-1]}"
        ", …], but kernel chi2 needs finite ones. Fix: clean the data.",
    )


def test_the_encoder_of_a_store_tabulates_as_the_one_that_wrote_it(
    vectors: VectorStore, tmp_path: Path
) -> None:
    kernel = make_kernel("intersection", transform=2.5)
    codes = make_codes(tmp_path / "codes", vectors, kernel, SPEC, part_rows=256)
    plan = plan_encode(vectors, kernel, SPEC, part_rows=256)
    queries = histograms(7, 20, seed=2)
    first = Aska(SPEC, kernel, plan.model["dictionary"]).table(queries)
    np.testing.assert_array_equal(aska_of(codes).table(queries), first)
    assert spec_of(codes) == SPEC


def test_learned_atoms_leave_less_of_the_rows_than_drawn_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    parts = rng.gamma(0.3, 40, (20, 24))
    mixed = rng.random((600, 20)) * (rng.random((600, 20)) < 0.15) + 1e-3
    rows = (mixed @ parts + 1).astype(np.float32)
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=64)
    left = {}
    for dictionary in ("rows", "learned"):
        spec = AskaSpec(n_atoms=60, n_nonzero_coefs=4, dictionary=dictionary)
        plan = plan_encode(vectors, kernel_of("chi2"), spec)
        encoder = spec.encoder(kernel_of("chi2"), plan.model)
        encoder.prepare_encoding()
        left[dictionary] = np.square(encoder.encode(rows)["residual"].astype(float)).mean()
    assert left["learned"] < 0.8 * left["rows"]
    atoms = plan.model["atoms"]
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, atol=1e-6)
    again = plan_encode(vectors, kernel_of("chi2"), spec).model["atoms"]
    np.testing.assert_array_equal(atoms, again)


def test_a_dictionary_is_learned_under_kernels_with_a_map(tmp_path: Path) -> None:
    vectors = make_vectors(tmp_path / "vectors", np.ones((40, 3), np.float32))
    spec = AskaSpec(n_atoms=4, n_nonzero_coefs=2, dictionary="learned")
    with pytest.raises(InputError, match=r"needs a kernel with an explicit map: found cosine"):
        plan_encode(vectors, make_kernel("cosine"), spec)
    model = plan_encode(vectors, make_kernel("chi2"), spec).model
    assert np.isfinite(model["atoms"]).all()  # of rows that are all equal
