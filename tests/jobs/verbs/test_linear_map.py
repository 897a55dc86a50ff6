"""``--linear-map``: every verb answers as it does of a copy of the mapped rows, codes need the
option once, and a map that does not fit is refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.pipeline.linear_map import LinearMap
from mercore.stores.errors import (
    ExistsError,
    FormatError,
    InputError,
    MercoreError,
    NotFoundError,
    ShapeError,
)
from mercore.stores.results.hits import Hits
from tests.independent.exact_truth import nearest
from tests.support.running import files_of, invoke, succeed

ROWS, DIMS, MAPPED, NQ, K = 700, 12, 5, 9, 4
RBF = ("--kernel", "rbf", "--gamma", 0.02)
PQ = ("--encoder", "kpca-pq", "--landmarks", 64, "--components", 16, "--subquantizers", 4)
BOUND = ("--encoder", "kpca-bound", "--landmarks", 64, "--components", 16)
PARTS = ("--part-rows", 200, "--workers", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors and queries, a map, copies of the mapped rows and queries, and codes of all."""
    folder = tmp_path_factory.mktemp("map")
    rng = np.random.default_rng(0)
    rows, queries = (rng.standard_normal((n, DIMS)).astype(np.float32) for n in (ROWS, NQ))
    rows[600:] = rows[:100]  # mapped rows tie
    matrix = rng.standard_normal((MAPPED, DIMS))
    linear_map = LinearMap(matrix.astype(np.float32), "map.npy")
    np.save(folder / "map.npy", matrix)
    for name, values in (("base", rows), ("queries", queries)):
        np.save(folder / f"{name}.npy", values)
        np.save(folder / f"mapped-{name}.npy", linear_map.apply(values))
    for name in ("base", "mapped-base"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 6 << 10)
            succeed(f"ingest {folder}/{name}.npy {folder}/{name}")
        option = ("--linear-map", folder / "map.npy") if name == "base" else ()
        for encoder in (PQ, BOUND):
            codes = folder / f"{name}-{encoder[1]}"
            succeed(f"encode {folder}/{name} {codes}", *RBF, *encoder, *PARTS, *option)
    return folder


def hits_of(folder: Path, store: str, **options: Any) -> Hits:
    """The hits of a search of a store, by the queries that suit it."""
    queries = folder / ("mapped-queries.npy" if store.startswith("mapped") else "queries.npy")
    return api.search(folder / store, queries, k=K, **options)[1]


def check_equal(mapped: Hits, copy: Hits) -> None:
    assert mapped.scores is not None
    assert copy.scores is not None
    np.testing.assert_array_equal(mapped.ids, copy.ids, strict=True)
    np.testing.assert_array_equal(mapped.scores, copy.scores, strict=True)


OF_VECTORS: dict[str, Any] = {"kernel": "rbf", "gamma": 0.02}


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"batch": 2, "threads": 2}], ids=str)
@pytest.mark.promise("Under a linear map, answers and codes are those of a copy of the mapped rows")
def test_a_search_of_vectors_is_that_of_mapped_rows(folder: Path, options: dict[str, Any]) -> None:
    linear_map = folder / "map.npy"
    found = hits_of(folder, "base", **OF_VECTORS, **options, linear_map=linear_map)
    check_equal(found, hits_of(folder, "mapped-base", **OF_VECTORS, **options))
    rows, queries = (np.load(folder / f"mapped-{name}.npy") for name in ("base", "queries"))
    np.testing.assert_array_equal(found.ids, nearest("rbf", rows, queries, K, gamma=0.02))


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("kpca-pq", {}),
        ("kpca-pq", {"rerank": 40}),
        ("kpca-bound", {"exact": True}),
        ("kpca-bound", {"relaxed": 0.9, "batch": 2}),
    ],
)
@pytest.mark.promise("Under a linear map, answers and codes are those of a copy of the mapped rows")
def test_a_search_of_codes_needs_no_option(
    folder: Path, encoder: str, options: dict[str, Any]
) -> None:
    found = hits_of(folder, f"base-{encoder}", **options)
    check_equal(found, hits_of(folder, f"mapped-base-{encoder}", **options))


def test_sorted_orders_hold_the_map_of_their_codes(folder: Path, tmp_path: Path) -> None:
    klsh = ("--encoder", "klsh", "--landmarks", 64, "--subset", 9, "--bits", 64)
    option = ("--linear-map", folder / "map.npy")
    succeed(f"encode {folder}/base {tmp_path}/codes", *RBF, *klsh, *PARTS, *option)
    succeed(f"index {tmp_path}/codes {tmp_path}/orders --orders 2")
    described = json.loads(succeed(f"info {tmp_path}/orders --json"))
    assert described["linear_map"]["shape"] == [MAPPED, DIMS]
    words = (tmp_path / "orders", folder / "queries.npy", "-k", K, "--neighbours", ROWS, "--json")
    found = json.loads(succeed("search", *words))
    assert found["ids"] == hits_of(folder, "mapped-base", **OF_VECTORS).ids.tolist()
    refused = invoke("search", *words, *option)
    assert (refused.code, refused.out) == (2, "")
    assert "--linear-map has no use here" in refused.err


def test_reranking_finds_vectors_that_moved(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "moved").symlink_to(folder / "base")
    moved = hits_of(folder, "base-kpca-pq", rerank=40, vectors=tmp_path / "moved")
    check_equal(moved, hits_of(folder, "base-kpca-pq", rerank=40))
    with pytest.raises(ShapeError, match=r"base-kpca-pq has shape \(5, 12\): expected 5 columns"):
        hits_of(folder, "base-kpca-pq", rerank=40, vectors=folder / "mapped-base")


def test_verify_proves_and_refutes_neighbours_of_mapped_rows(folder: Path) -> None:
    true = hits_of(folder, "mapped-base", **OF_VECTORS).ids
    wrong = true.copy()
    wrong[3, 1] = next(row for row in range(ROWS) if row not in true[3])
    for bounds in (None, folder / "base-kpca-bound"):
        given: Any = {**OF_VECTORS, "linear_map": folder / "map.npy", "bounds": bounds}
        report = api.verify(folder / "base", folder / "queries.npy", true, **given)
        assert (report["proved"] + report["tied"], report["refuted"]) == (NQ, 0)
        report = api.verify(folder / "base", folder / "queries.npy", wrong, **given)
        assert [each["query"] for each in report["verdicts"] if each["verdict"] == "refuted"] == [3]


def test_evaluate_scores_hits_by_mapped_rows(folder: Path) -> None:
    truth = hits_of(folder, "mapped-base", **OF_VECTORS)
    hits = hits_of(folder, "base-kpca-pq")
    given: Any = {"vectors": folder / "base", "queries": folder / "queries.npy", **OF_VECTORS}
    report = api.evaluate(hits, truth, **given, linear_map=folder / "map.npy")
    given = {"vectors": folder / "mapped-base", "queries": folder / "mapped-queries.npy"}
    assert report == api.evaluate(hits, truth, **given, **OF_VECTORS)
    assert "tie-aware" in {row["definition"] for row in report["recall"]}


def test_an_export_writes_the_coordinates_of_mapped_queries(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    for name, queries in (("base", "queries.npy"), ("mapped-base", "mapped-queries.npy")):
        api.export(
            folder / f"{name}-kpca-pq",
            tmp_path / f"{name}.faiss",
            queries=folder / queries,
            points=tmp_path / f"{name}.npy",
        )
    for suffix in ("npy", "faiss"):
        copy = (tmp_path / f"mapped-base.{suffix}").read_bytes()
        assert (tmp_path / f"base.{suffix}").read_bytes() == copy


def test_info_shows_the_map(folder: Path) -> None:
    matrix = np.load(folder / "map.npy").astype(np.float32)
    expected = {"shape": [MAPPED, DIMS], "digest": LinearMap(matrix, "").digest}
    assert api.info(folder / "base-kpca-pq")["linear_map"] == expected
    assert "linear_map" not in api.info(folder / "mapped-base-kpca-pq")
    shown = succeed("info", folder / "base-kpca-pq")
    assert re.search(rf"^linear_map +shape \[5, 12\], digest {expected['digest']}$", shown, re.M)


def encode(folder: Path, codes: Path, *options: object) -> dict[str, Any]:
    words = ("encode", folder / "base", codes, *RBF, *PQ, "--json", *options)
    report: dict[str, Any] = json.loads(succeed(*words))
    return report


def test_codes_depend_on_neither_workers_nor_parts(folder: Path, tmp_path: Path) -> None:
    option = ("--linear-map", folder / "map.npy")
    encode(folder, tmp_path / "threads", *option, "--part-rows", 200, "--workers", 3)
    assert files_of(tmp_path / "threads") == files_of(folder / "base-kpca-pq")
    encode(folder, tmp_path / "parts", *option, "--part-rows", 37, "--workers", 2)
    queries = folder / "queries.npy"
    expected = api.search(folder / "base-kpca-pq", queries, k=K)[1]
    check_equal(api.search(tmp_path / "parts", queries, k=K)[1], expected)


def test_an_encode_resumes_under_the_same_map_alone(folder: Path, tmp_path: Path) -> None:
    codes, option = tmp_path / "codes", ("--linear-map", folder / "map.npy")
    assert encode(folder, codes, *option, *PARTS)["parts_done_now"] == 4
    (codes / "receipts" / "c" / "2" / "0").unlink()
    (codes / "model" / "linear_map" / "c" / "0" / "0").unlink()
    assert encode(folder, codes, *option, *PARTS)["parts_done_now"] == 1
    assert files_of(codes) == files_of(folder / "base-kpca-pq")
    np.save(tmp_path / "other.npy", np.eye(MAPPED, DIMS))
    for other in (None, tmp_path / "other.npy"):
        with pytest.raises(ExistsError, match=r"is another store: it differs in source \("):
            api.encode(
                folder / "base",
                codes,
                **OF_VECTORS,
                encoder="kpca-pq:landmarks=64,components=16,subquantizers=4",
                part_rows=200,
                linear_map=other,
            )


def test_a_plan_takes_the_map(folder: Path, tmp_path: Path) -> None:
    option = ("--linear-map", folder / "map.npy")
    words = (f"plan encode {folder}/base {tmp_path}/codes", *RBF, *PQ, *option, "--json")
    report = json.loads(succeed(*words))
    assert (report["rows"], report["bytes"] > 0) == (ROWS, True)
    search = (f"plan search {folder}/base {folder}/queries.npy -k {K}", *RBF, *option)
    assert json.loads(succeed(*search, "--json"))["rows"] == ROWS
    assert not (tmp_path / "codes").exists()


def saved(folder: Path, name: str, values: NDArray[Any]) -> Path:
    np.save(folder / name, values)
    return folder / name


def test_maps_that_do_not_fit_are_refused_before_any_work(folder: Path, tmp_path: Path) -> None:
    eye = np.eye(DIMS)
    cases: dict[Path, tuple[type[MercoreError], str]] = {
        tmp_path / "absent.npy": (NotFoundError, "absent.npy"),
        saved(tmp_path, "flat.npy", eye[0]): (FormatError, "expected a matrix of two dimensions"),
        saved(tmp_path, "whole.npy", eye.astype(int)): (FormatError, "expected float32 or float64"),
        saved(tmp_path, "nan.npy", eye * np.nan): (InputError, "expected a finite float32"),
        saved(tmp_path, "narrow.npy", eye[:, 1:]): (
            ShapeError,
            r"narrow\.npy has shape \(12, 11\): expected 12 columns, the dimension of .*base\. Fix:",
        ),
    }
    base, queries, codes = folder / "base", folder / "queries.npy", tmp_path / "codes"
    hits, given = np.zeros((NQ, 1), np.int64), OF_VECTORS
    for path, (error, message) in cases.items():
        with pytest.raises(error, match=message):
            api.encode(base, codes, **given, linear_map=path)
        with pytest.raises(error, match=message):
            api.search(base, queries, k=K, **given, linear_map=path)
        with pytest.raises(error, match=message):
            api.verify(base, queries, hits, **given, linear_map=path)
        with pytest.raises(error, match=message):
            api.evaluate(hits, hits, vectors=base, queries=queries, **given, linear_map=path)
    assert not codes.exists()


def test_queries_of_another_dimension_are_refused(folder: Path) -> None:
    queries, linear_map = folder / "mapped-queries.npy", folder / "map.npy"
    message = rf"queries\.npy has d = 5: expected 12, the columns of {linear_map}\. Fix: "
    with pytest.raises(ShapeError, match=message):
        api.search(folder / "base", queries, k=K, **OF_VECTORS, linear_map=linear_map)
    message = r"queries\.npy has d = 5: expected 12, the columns of the linear map of .*-kpca-pq\. "
    with pytest.raises(ShapeError, match=message):
        api.search(folder / "base-kpca-pq", queries, k=K)


def test_the_option_is_refused_where_it_has_no_use(folder: Path) -> None:
    codes, queries, option = (
        folder / "base-kpca-pq",
        folder / "queries.npy",
        ("--linear-map", folder / "map.npy"),
    )
    outcome = invoke(f"search {codes} {queries}", *option)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"mercore: --linear-map has no use here: {codes} has its kernel already. "
        "Fix: leave --linear-map out.\n"
    )
    hits = np.zeros((NQ, 1), np.int64)
    with pytest.raises(InputError, match="linear_map has no use here: it says how to re-score"):
        api.evaluate(hits, hits, linear_map=folder / "map.npy")


def test_rows_that_a_kernel_does_not_take_once_mapped_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    """They are mapped first: ingest's counts of rows before the map decide nothing."""
    np.save(tmp_path / "one.npy", np.abs(np.load(folder / "base.npy")))
    succeed(f"ingest {tmp_path}/one.npy {tmp_path}/one")
    given: Any = {"kernel": "chi2", "encoder": "aska:atoms=16,sparsity=2"}
    with pytest.raises(InputError, match="has a negative value"):
        api.encode(tmp_path / "one", tmp_path / "codes", **given, linear_map=folder / "map.npy")
    assert not (tmp_path / "codes").exists()
    positive = saved(tmp_path, "positive.npy", np.abs(np.load(folder / "map.npy")))
    report = api.encode(tmp_path / "one", tmp_path / "codes", **given, linear_map=positive)
    assert report["parts_done"] == 1
