"""Mapped rows: near L x in real numbers, the same bits in any block, part and thread, and rows like
any others to encoders."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encode import encode_bytes
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.hashing.klsh import KlshSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.linear_map import LinearMap, MappedSource, MappedVectors, map_of
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import InputError, IntegrityError, ShapeError
from mercore.stores.rows import SourceVectors
from mercore.stores.vector_views import VectorCache, WatchedVectors, store_of
from mercore.stores.vectors import VectorStore, gather
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors, plan_encode

N, D, MAPPED = 300, 19, 7
SHAPES = [(1, 1), (1, 40), (64, 1), (65, 33), (130, 7)]


def made_map(mapped: int = MAPPED, dims: int = D, seed: int = 0) -> LinearMap:
    matrix = np.random.default_rng(seed).standard_normal((mapped, dims)).astype(np.float32)
    return LinearMap(matrix, "map.npy")


LINEAR_MAP = made_map()


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(N, D, seed=1)


@pytest.fixture(scope="module")
def vectors(rows: NDArray[Any], tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    return make_vectors(tmp_path_factory.mktemp("mapped") / "vectors", rows, part_rows=64)


@loop_over(
    ("shape", "dtype"),
    [(shape, dtype) for shape in SHAPES for dtype in ("uint8", "float16", "float32")],
)
def test_a_mapped_row_is_near_the_product_in_float64(shape: tuple[int, int], dtype: str) -> None:
    mapped, dims = shape
    linear_map, given_rows = made_map(mapped, dims), histograms(9, dims, dtype=dtype)
    found = linear_map.apply(given_rows)
    assert (found.dtype.name, found.shape) == ("float32", (9, mapped))
    matrix, values = linear_map.matrix.astype(np.float64), given_rows.astype(np.float64)
    error = dims * 2.0**-24 * 1.01 * (np.abs(values) @ np.abs(matrix).T)
    assert (np.abs(found - values @ matrix.T) <= error).all()


@given(start=st.integers(0, N - 1), length=st.integers(0, N))
@steady(40)
@pytest.mark.promise("A mapped row has the same bits in any block, part, thread or process")
def test_a_mapped_row_does_not_depend_on_its_block(
    rows: NDArray[Any], start: int, length: int
) -> None:
    block = rows[start : start + length]
    np.testing.assert_array_equal(
        LINEAR_MAP.apply(block), LINEAR_MAP.apply(rows)[start : start + length], strict=True
    )


@pytest.mark.promise("A mapped row has the same bits in any block, part, thread or process")
def test_parts_sources_and_threads_give_the_same_rows(
    rows: NDArray[Any], vectors: VectorStore, tmp_path: Path
) -> None:
    expected = LINEAR_MAP.apply(rows)
    for store in (
        vectors,
        make_vectors(tmp_path / "other", rows, part_rows=16),
        SourceVectors(Rows(rows)),
    ):
        mapped = MappedVectors(store, LINEAR_MAP)
        assert (mapped.rows, mapped.dims, mapped.dtype.name) == (N, MAPPED, "float32")
        assert (mapped.part_rows, mapped.where) == (store.part_rows, store.where)
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(mapped.read_part, range(mapped.parts)))
        np.testing.assert_array_equal(np.concatenate(parts), expected, strict=True)
    source = MappedSource(Rows(rows), LINEAR_MAP)
    assert (source.name, source.shape, source.dtype.name) == ("rows", (N, MAPPED), "float32")
    np.testing.assert_array_equal(source.read(17, 290), expected[17:290], strict=True)
    assert source.read(3, 3).shape == (0, MAPPED)


def test_mapped_vectors_are_watched_cached_and_gathered_like_others(
    rows: NDArray[Any], vectors: VectorStore
) -> None:
    watched = WatchedVectors(MappedVectors(vectors, LINEAR_MAP))
    cached = VectorCache(watched, cache_bytes=64 * MAPPED * 4)
    chosen = np.array([250, 3, 77, 3])
    expected = LINEAR_MAP.apply(rows)[chosen]
    np.testing.assert_array_equal(gather(cached, chosen), expected, strict=True)
    assert watched.seen == [0, 1, 3]
    assert store_of(cached) is vectors
    assert store_of(MappedVectors(SourceVectors(Rows(rows)), LINEAR_MAP)) is None


def test_the_fingerprint_names_the_rows_and_the_matrix(vectors: VectorStore) -> None:
    fingerprint = MappedVectors(vectors, LINEAR_MAP).fingerprint
    assert fingerprint == MappedVectors(vectors, made_map()).fingerprint
    changed = LINEAR_MAP.matrix.copy()
    changed[6, 18] = np.nextafter(changed[6, 18], np.float32(9))
    others = [
        MappedVectors(vectors, LinearMap(changed, "map.npy")).fingerprint,
        MappedVectors(SourceVectors(Rows(histograms(N, D))), LINEAR_MAP).fingerprint,
        vectors.fingerprint,
    ]
    assert len({fingerprint, *others}) == 4
    square = LINEAR_MAP.matrix.reshape(D, MAPPED)
    assert LinearMap(square, "map.npy").digest != LINEAR_MAP.digest


SPECS: dict[str, EncoderSpec] = {
    spec.name: spec
    for spec in (
        AskaSpec(n_atoms=32, n_nonzero_coefs=3),
        KpcaPqSpec(n_landmarks=40, n_components=12, n_subquantizers=4),
        KlshSpec(n_landmarks=30, n_subset=8, n_bits=64),
        KpcaBoundSpec(n_landmarks=40, n_components=8),
    )
}


def columns_of(codes: CodeStore) -> dict[str, list[bytes]]:
    store = codes.store
    return {
        name: [store.read_chunk(receipt, name).tobytes() for receipt in codes.receipts]
        for name in store.layout.column_names
    }


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.promise("Under a linear map, answers and codes are those of a copy of the mapped rows")
def test_codes_are_those_of_an_ingested_copy_of_the_mapped_rows(
    name: str, rows: NDArray[Any], vectors: VectorStore, tmp_path: Path
) -> None:
    kernel, spec = make_kernel("rbf", gamma=0.01), SPECS[name]
    mapped = make_codes(tmp_path / "mapped", MappedVectors(vectors, LINEAR_MAP), kernel, spec)
    copy = make_vectors(tmp_path / "copy", LINEAR_MAP.apply(rows), part_rows=32)
    expected = make_codes(tmp_path / "expected", copy, kernel, spec)
    assert columns_of(mapped) == columns_of(expected)
    model = dict(mapped.model)
    np.testing.assert_array_equal(model.pop("linear_map"), LINEAR_MAP.matrix, strict=True)
    assert {key: array.tobytes() for key, array in model.items()} == {
        key: array.tobytes() for key, array in expected.model.items()
    }


def test_codes_hold_their_map_and_its_bytes_are_checked(
    vectors: VectorStore, tmp_path: Path
) -> None:
    kernel, spec = make_kernel("rbf", gamma=0.01), SPECS["kpca-pq"]
    make_codes(tmp_path / "codes", MappedVectors(vectors, LINEAR_MAP), kernel, spec)
    held = map_of(open_code_store(tmp_path / "codes"))
    assert held is not None
    assert (held.digest, held.name) == (LINEAR_MAP.digest, f"the linear map of {tmp_path}/codes")
    plain = make_codes(tmp_path / "plain", vectors, kernel, spec)
    assert map_of(plain) is None
    assert "linear_map" not in plain.model
    chunk = tmp_path / "codes" / "model" / "linear_map" / "c" / "0" / "0"
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(IntegrityError, match="model array linear_map is missing or damaged"):
        map_of(open_code_store(tmp_path / "codes"))


def test_a_map_of_another_dimension_is_refused(vectors: VectorStore) -> None:
    wide = made_map(4, D + 1)
    message = (
        f"map.npy has shape (4, 20): expected 19 columns, the dimension of {vectors.where}. "
        "Fix: name the map and the vectors that belong together."
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        MappedVectors(vectors, wide)
    message = (
        "rows has d = 19: expected 20, the columns of map.npy. Fix: name queries of the same kind "
        "as the vectors."
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        MappedSource(Rows(histograms(2, D)), wide)


def test_every_mapped_row_is_checked_against_the_domain(rows: NDArray[Any], tmp_path: Path) -> None:
    """Ingest counted the rows before the map: its counts say nothing of mapped rows."""
    vectors = make_vectors(tmp_path / "vectors", rows)
    matrix = np.zeros((2, D), np.float32)
    matrix[:, 3] = 1
    zero = int(np.argmax(rows[:, 3] == 0))
    spec, linear_map = SPECS["aska"], LinearMap(matrix, "map.npy")
    with pytest.raises(InputError, match=f"^row {zero} is all zero: "):
        plan_encode(MappedVectors(vectors, linear_map), make_kernel("chi2"), spec)
    with pytest.raises(InputError, match=r"^row \d+ has a negative value: "):
        plan_encode(MappedVectors(vectors, LINEAR_MAP), make_kernel("chi2"), spec)
    huge = LinearMap(np.full((2, D), 3e38, np.float32), "map.npy")
    with pytest.raises(InputError, match=r"^row \d+ has a NaN or infinite value: "):
        plan_encode(MappedVectors(vectors, huge), make_kernel("cosine"), spec)


def test_the_memory_of_mapping_counts(vectors: VectorStore) -> None:
    kernel, spec = make_kernel("rbf", gamma=0.01), SPECS["kpca-pq"]
    mapped = MappedVectors(vectors, LINEAR_MAP)
    assert mapped.open_bytes >= LINEAR_MAP.matrix.nbytes
    assert mapped.read_bytes >= 64 * D * 4
    copy = SourceVectors(Rows(LINEAR_MAP.apply(histograms(N, D, seed=1))))
    copy.part_rows = mapped.part_rows
    needed, plain = (
        encode_bytes(plan_encode(each, kernel, spec), workers=100) for each in (mapped, copy)
    )
    assert needed == plain + mapped.open_bytes + 100 * mapped.read_bytes
