"""The contract of every encoder: codes that depend on the row alone, stores that mend themselves,
an honest search."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encode import EncodePlan, encode_part, encoder_of, spec_of
from mercore.pipeline.encoders import Encoder, EncoderSpec, encoder_spec
from mercore.pipeline.encoders.encoder import BoundEncoder
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.pipeline.topk import TopK
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import FormatError, IntegrityError
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.spec import to_json
from mercore.stores.vectors import VectorStore
from mercore.testing.bounds import check_bounds
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_rows
from mercore.testing.stores import (
    columns_of,
    files_of,
    histograms,
    make_codes,
    make_vectors,
    plan_encode,
)

Arrays = Mapping[str, NDArray[Any]]
ROWS, DIMS, COPIES, NQ = 300, 20, 40, 9


@dataclass(frozen=True)
class EncoderCase:
    """A spec with small parameters, a kernel, and the slow truth of what its codes score.

    ``truth`` takes the kernel's name, the spec, the columns of a code store, its model and raw
    queries [nq, d], and returns the scores of all rows, float64[nq, n]. It computes them from
    these alone, by other means than the encoder.
    """

    spec: Any
    kernel: Kernel
    truth: Callable[[str, Any, Arrays, Arrays, NDArray[Any]], NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A case's store of five parts."""

    case: EncoderCase
    vectors: VectorStore
    codes: CodeStore

    @property
    def spec(self) -> Any:
        return self.case.spec

    def encoder(self) -> Encoder:
        encoder = encoder_of(self.codes)
        encoder.prepare_encoding()
        return encoder

    def plan(self, **changed: Any) -> EncodePlan:
        return plan_encode(
            self.vectors, self.case.kernel, replace(self.spec, **changed), part_rows=64
        )

    @cached_property
    def fitted(self) -> dict[str, NDArray[Any]]:
        """The model, which is fitted for a second time."""
        return dict(self.plan().model)


def same(found: Arrays, expected: Arrays) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes(), name


def same_hits(found: TopK, expected: TopK) -> None:
    np.testing.assert_array_equal(found.ids, expected.ids, strict=True)
    np.testing.assert_array_equal(found.scores, expected.scores, strict=True)


def search(
    codes: CodeStore, queries: NDArray[Any], k: int, *, threads: int = 1, held: int = 0
) -> TopK:
    return scan_codes(
        OpenCodes(codes, encoder_of(codes), PartCache(held)), queries, k, threads=threads
    )


def every_score(codes: CodeStore, queries: NDArray[Any]) -> NDArray[np.float32]:
    """The scores [nq, n] that a search for all rows returns."""
    best = search(codes, queries, codes.rows)
    scores = np.full((len(queries), codes.rows), np.nan, np.float32)
    np.put_along_axis(scores, best.ids, best.scores, axis=1)
    return scores


NEXT_TO_NOTHING = {"n_nonzero_coefs", "n_subset", "n_samples"}  # parameters that take no memory


class Fits:
    """What fits the model, and how often it was asked to."""

    def __init__(
        self, made: Made, change: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    ) -> None:
        self.made, self.change, self.calls = made, change, 0

    def __call__(self) -> dict[str, NDArray[Any]]:
        self.calls += 1
        model = dict(self.made.fitted)
        if self.change is not None:
            last = list(model)[-1]
            model[last] = self.change(model[last])
        return model


def model_arrays(made: Made) -> list[str]:
    return list(made.codes.store.layout.model)


def chunk_of(copy: Path, name: str) -> Path:
    """The one file of a model array's values."""
    (path,) = (
        path
        for path in (copy / "model" / name).rglob("*")
        if path.is_file() and path.name != "zarr.json"
    )
    return path


class EncoderContract:
    """The tests of an encoder; a subclass has the fixture ``case``, an ``EncoderCase``."""

    @pytest.fixture(scope="module")
    @classmethod
    def rows(
        cls,
    ) -> NDArray[Any]:
        """Histograms, the last of which are the first again, so that scores tie."""
        values = histograms(ROWS, DIMS, seed=1)
        values[-COPIES:] = values[:COPIES]
        return values

    @pytest.fixture(scope="module")
    @classmethod
    def queries(cls, rows: NDArray[Any]) -> NDArray[Any]:
        """Other histograms, and two that are rows."""
        return np.concatenate([histograms(NQ - 2, DIMS, seed=2), rows[[3, 100]]])

    @pytest.fixture(scope="module")
    @classmethod
    def vectors(cls, rows: NDArray[Any], tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
        return make_vectors(tmp_path_factory.mktemp("encoders") / "vectors", rows, part_rows=128)

    @pytest.fixture(scope="module")
    @classmethod
    def made(
        cls,
        case: EncoderCase,
        vectors: VectorStore,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Made:
        """The case's store of five parts."""
        path = tmp_path_factory.mktemp("encoders") / "codes"
        codes = make_codes(path, vectors, case.kernel, case.spec, part_rows=64)
        return Made(case=case, vectors=vectors, codes=codes)

    @pytest.fixture
    def copy(self, made: Made, tmp_path: Path) -> Path:
        """A copy of the store that a test may damage."""
        return Path(shutil.copytree(made.codes.where, tmp_path / "copy"))

    # What codes are

    def test_columns_are_those_that_encode_returns(self, made: Made, rows: NDArray[Any]) -> None:
        for compressor in ("none", "zstd"):
            columns = made.spec.columns(compressor)
            assert {column["compressor"] for column in columns} == {compressor}
            said = [(column["name"], column["dtype"], column["width"]) for column in columns]
            for count in (1, 50):
                code = made.encoder().encode(rows[:count])
                assert [len(values) for values in code.values()] == [count] * len(said)
                shapes = [
                    (name, values.dtype.name, *(values.shape[1:] or [None]))
                    for name, values in code.items()
                ]
                assert shapes == said

    @loop_over("size", [1, 7])
    def test_a_code_is_the_same_bits_whatever_block_its_row_comes_in(
        self, made: Made, size: int, rows: NDArray[Any]
    ) -> None:
        encoder = made.encoder()
        whole = encoder.encode(rows)
        blocks = [encoder.encode(rows[at : at + size], first=at) for at in range(0, ROWS, size)]
        same({name: np.concatenate([block[name] for block in blocks]) for name in whole}, whole)

    def test_equal_rows_have_equal_codes(self, made: Made, rows: NDArray[Any]) -> None:
        code = made.encoder().encode(rows)
        same(
            {name: values[-COPIES:] for name, values in code.items()},
            {n: v[:COPIES] for n, v in code.items()},
        )

    def test_a_store_holds_what_encode_returns(self, made: Made, rows: NDArray[Any]) -> None:
        encoder = made.encoder()
        direct = encoder.encode(rows)
        same(columns_of(made.codes), direct)
        same(encode_part(encoder, made.vectors, 0, ROWS), direct)
        middle = encode_part(encoder, made.vectors, 17, 211)
        same(middle, {name: values[17:211] for name, values in direct.items()})

    def test_parts_and_compressors_change_no_code_and_no_hit(
        self, made: Made, queries: NDArray[Any], tmp_path: Path
    ) -> None:
        expected = search(made.codes, queries, 10)
        for part_rows, compressor in ((37, "none"), (300, "zstd")):
            path, case = tmp_path / f"codes{part_rows}", made.case
            codes = make_codes(
                path,
                made.vectors,
                case.kernel,
                case.spec,
                part_rows=part_rows,
                compressor=compressor,
            )
            same(columns_of(codes), columns_of(made.codes))
            same_hits(search(codes, queries, 10, threads=2), expected)

    def test_a_row_outside_the_domain_is_named(self, made: Made) -> None:
        rows = histograms(5, DIMS)
        rows[3, 2] = np.nan
        with pytest.raises(ValueError, match=r"^row 1003 has a NaN or infinite value: "):
            made.encoder().encode(rows, first=1000)
        with pytest.raises(ValueError, match=r"^query 3 has a NaN or infinite value: "):
            made.encoder().scanner(rows)

    # What is on disk makes the encoder again

    def test_the_spec_goes_through_json(self, made: Made) -> None:
        said = json.loads(json.dumps(to_json(made.spec)))
        again: EncoderSpec = encoder_spec(said, "here")
        assert again == made.spec
        assert spec_of(made.codes) == made.spec
        for newer in ({"version": made.spec.version + 1}, {"n_more": 1}):
            with pytest.raises(FormatError, match=r"^here: "):
                encoder_spec({**said, **newer}, "here")
        missing = {key: value for key, value in said.items() if key != "random_state"}
        with pytest.raises(FormatError, match=r"missing \['random_state'\], unknown \[\]"):
            encoder_spec(missing, "here")

    def test_the_encoder_of_a_store_is_the_one_that_wrote_it(
        self, made: Made, rows: NDArray[Any], queries: NDArray[Any]
    ) -> None:
        fresh = made.spec.encoder(made.case.kernel, made.plan().model)
        fresh.prepare_encoding()
        code = fresh.encode(rows)
        same(code, columns_of(made.codes))
        k, lists = 20, []
        for encoder in (fresh, encoder_of(open_code_store(Path(made.codes.where)))):
            scanner, best = encoder.scanner(queries), TopK(NQ, k, np.float32)
            read = {name: code[name] for name in scanner.names if name in code}
            scanner.scan(encoder.unpacked(read), 0, best)
            lists.append(best)
        same_hits(*lists)
        same_hits(search(made.codes, queries, k), lists[0])

    def test_fitting_twice_gives_the_same_job_and_another_seed_another(
        self, made: Made, tmp_path: Path
    ) -> None:
        one, other = made.plan(), made.plan(random_state=made.spec.random_state + 1)
        same(one.model, made.codes.model)
        assert one.layout.model != other.layout.model
        assert set(one.layout.model) == set(other.layout.model)
        again = make_codes(
            tmp_path / "again", made.vectors, made.case.kernel, made.spec, part_rows=64
        )
        assert again.store.header.spec_digest == made.codes.store.header.spec_digest
        assert files_of(tmp_path / "again") == files_of(Path(made.codes.where))
        reseeded = replace(made.spec, random_state=made.spec.random_state + 1)
        made_other = make_codes(
            tmp_path / "other", made.vectors, made.case.kernel, reseeded, part_rows=64
        )
        assert made_other.store.header.spec_digest != made.codes.store.header.spec_digest

    # What a search finds

    def test_scores_are_those_of_what_lies_on_disk(self, made: Made, queries: NDArray[Any]) -> None:
        codes = open_code_store(Path(made.codes.where))
        true = made.case.truth(
            made.case.kernel.name, made.spec, columns_of(codes), codes.model, queries
        )
        np.testing.assert_allclose(every_score(codes, queries), true, rtol=1e-5, atol=1e-5)

    @loop_over("k", [1, 10, ROWS])
    def test_a_search_returns_the_greatest_scores_and_of_equals_the_lower_ids(
        self, made: Made, k: int, queries: NDArray[Any]
    ) -> None:
        every = every_score(made.codes, queries)
        ids = np.argsort(-every, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(every, ids, axis=1)
        best = search(made.codes, queries, k)
        np.testing.assert_array_equal(best.ids, ids)
        np.testing.assert_array_equal(best.scores, scores, strict=True)
        if k == ROWS:
            order = np.argsort(ids, axis=1)
            assert (order[:, :COPIES] < order[:, -COPIES:]).all()  # a row before its copy
            assert (np.diff(best.scores) == 0).sum() >= NQ * COPIES // 2

    def test_threads_batches_and_parts_kept_in_memory_change_nothing(
        self, made: Made, queries: NDArray[Any]
    ) -> None:
        expected = search(made.codes, queries, 25)
        same_hits(search(made.codes, queries, 25, threads=3), expected)
        held = OpenCodes(made.codes, encoder_of(made.codes), PartCache(1 << 20))
        for _ in range(2):
            same_hits(scan_codes(held, queries, 25, threads=2), expected)
        for size in (1, 2, 4):
            lists = [search(made.codes, queries[at : at + size], 25) for at in range(0, NQ, size)]
            np.testing.assert_array_equal(
                np.concatenate([best.ids for best in lists]), expected.ids
            )
            np.testing.assert_array_equal(
                np.concatenate([best.scores for best in lists]), expected.scores
            )

    def test_no_bound_is_below_the_score(self, made: Made, queries: NDArray[Any]) -> None:
        encoder, kernel = made.encoder(), made.case.kernel
        assert isinstance(encoder, BoundEncoder) or not made.spec.proves
        if not isinstance(encoder, BoundEncoder) or not made.spec.proves:
            return
        for seed, style in enumerate(STYLES):
            rows = kernel_rows(style, "float32", (30, DIMS), signed=False, seed=seed)
            check_bounds(kernel, encoder, rows, np.concatenate([rows[:5], queries]))

    # What it takes

    def test_memory_is_positive_and_grows_with_the_dimensions_and_the_parameters(
        self, made: Made
    ) -> None:
        rows = 1 << 20
        figures = made.spec.memory(DIMS, rows)
        assert all(isinstance(figure, int) for figure in figures)
        assert min(figures) > 0
        assert all(
            more >= less
            for more, less in zip(made.spec.memory(2 * DIMS, rows), figures, strict=True)
        )
        assert sum(made.spec.memory(2 * DIMS, rows)) > sum(figures)
        for parameter in (field.name for field in fields(made.spec) if field.name.startswith("n_")):
            doubled = replace(made.spec, **{parameter: 2 * getattr(made.spec, parameter)}).memory(
                DIMS, rows
            )
            assert all(more >= less for more, less in zip(doubled, figures, strict=True)), parameter
            if parameter not in NEXT_TO_NOTHING:
                assert sum(doubled) > sum(figures), parameter

    def test_the_model_and_a_block_fit_the_memory_that_is_stated(
        self, made: Made, rows: NDArray[Any]
    ) -> None:
        model = sum(
            values.nbytes for name, values in made.codes.model.items() if not name.endswith("_rows")
        )
        memory = made.spec.memory(DIMS, made.vectors.rows)
        assert memory.shared + memory.fit >= model
        assert made.spec.block_rows == made.encoder().block_rows > 0

    @loop_over("damage", ["deleted", "flipped", "truncated"])
    def test_a_damaged_model_is_fitted_again(self, made: Made, damage: str, copy: Path) -> None:
        whole = files_of(copy)
        for count, name in enumerate(model_arrays(made), 1):
            path = chunk_of(copy, name)
            data = bytearray(path.read_bytes())
            path.unlink()
            if damage != "deleted":
                data[len(data) // 2] ^= 4
                path.write_bytes(data if damage == "flipped" else data[:-9])
            with pytest.raises(IntegrityError):
                encoder_of(open_code_store(copy))
            fits = Fits(made)
            with patch.object(os, "fsync"):
                written = open_code_store(copy).restore(fits)
            assert (fits.calls, written) == (1, [str(path.relative_to(copy))]), count
            assert files_of(copy) == whole

    def test_a_whole_model_is_not_fitted_again(self, made: Made, copy: Path) -> None:
        whole, fits = files_of(copy), Fits(made)
        assert open_code_store(copy).restore(fits) == []
        name = made.codes.store.layout.column_names[0]
        lost = [f"{name}/zarr.json", "model/zarr.json", f"model/{model_arrays(made)[0]}/zarr.json"]
        for key in lost:
            (copy / key).unlink()
        with patch.object(os, "fsync"):
            assert sorted(open_code_store(copy).restore(fits)) == sorted(lost)
        assert files_of(copy) == whole
        assert fits.calls == 0

    def test_a_model_that_comes_out_differently_is_refused(self, made: Made, copy: Path) -> None:
        chunk_of(copy, model_arrays(made)[0]).unlink()
        damaged = files_of(copy)
        for change in (
            lambda values: values + values.dtype.type(1),
            lambda values: np.concatenate([values, values[:1]]),
        ):
            fits = Fits(made, change)
            with pytest.raises(IntegrityError) as refusal:
                open_code_store(copy).restore(fits)
            assert fits.calls == 1
            assert str(refusal.value) == (
                f"{copy}: its model is damaged, and fitted again it is another: found different "
                "checksums, "
                "expected those of its header. Fix: restore the model from a copy, or write the "
                "store to a new path."
            )
            assert files_of(copy) == damaged
