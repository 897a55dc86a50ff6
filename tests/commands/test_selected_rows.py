"""Searches among some rows, on the command line and from Python: every kind of search, against the
nearest of these rows by brute force, with certificates and verdicts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mercore
from mercore.stores.errors import InputError
from mercore.stores.results.certificates import read_certificate
from mercore.stores.results.hits import read_hits
from mercore.testing.cases import loop_over
from tests.independent import check_certificate
from tests.independent.exact_truth import nearest
from tests.support.running import histograms, invoke, succeed

N, D, NQ, K = 900, 16, 6, 5
ROWS, QUERIES = histograms(N, D, seed=1), histograms(NQ, D, seed=2)
ROWS[10:40] = ROWS[400:430]  # ties between rows that take part and others
ROWS[[0, 3, 500]] = 0  # left out by ingest
STORED = np.flatnonzero(ROWS.any(axis=1))
IDS = np.flatnonzero(np.random.default_rng(3).random(N) < 0.3)
LEFT_OUT = np.arange(380, 420)
TRAINED = "--kernel chi2 --encoder"
CODES = {
    "codes": f"{TRAINED} kpca-pq --landmarks 128 --components 32 --subquantizers 16",
    "bounds": f"{TRAINED} bin-bound --groups 16",
    "bits": f"{TRAINED} klsh --landmarks 64 --subset 8 --bits 32",
}
CHOICES = {
    "ids": (("--among", "ids.npy"), IDS),
    "mask": (("--among", "mask.npy"), IDS),
    "range": (("--among", "200:700"), np.arange(200, 700)),
    "some left out": (
        ("--among", "100:", "--without", "left_out.npy"),
        np.setdiff1d(np.arange(100, N), LEFT_OUT),
    ),
    "few": (("--among", "390:400"), np.arange(390, 400)),
}
Ids = NDArray[np.int64]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, three kinds of codes, sorted orders, queries, and files of ids."""
    folder = tmp_path_factory.mktemp("among")
    np.save(folder / "rows.npy", ROWS)
    np.save(folder / "queries.npy", QUERIES)
    np.save(folder / "ids.npy", IDS)
    np.save(folder / "mask.npy", np.isin(np.arange(N), IDS))
    np.save(folder / "left_out.npy", LEFT_OUT)
    succeed(f"ingest {folder}/rows.npy {folder}/v.zarr --drop-zero-rows")
    for name, options in CODES.items():
        succeed(f"encode {folder}/v.zarr {folder}/{name} {options} --part-rows 128")
    succeed(f"index {folder}/bits {folder}/orders --orders 4")
    return folder


def words_of(folder: Path, name: str) -> str:
    """The options of a choice, with whole paths."""
    words, _ = CHOICES[name]
    return " ".join(f"{folder}/{word}" if word.endswith(".npy") else word for word in words)


def true_ids(name: str) -> Ids:
    ids = np.intersect1d(CHOICES[name][1], STORED)
    return ids[nearest("chi2", ROWS[ids], QUERIES, K)]


@loop_over("name", CHOICES)
@pytest.mark.parametrize("store", ["v.zarr --kernel chi2", "codes", "bounds"])
@pytest.mark.promise(
    "A search among some rows finds their nearest, in every kind of search, and its certificate names them"
)
def test_exact_answers_and_their_certificates(
    store: str, name: str, folder: Path, tmp_path: Path
) -> None:
    words, out = words_of(folder, name), tmp_path / f"{name.replace(' ', '-')}.npz"
    store, *kernel = store.split(" ", 1)
    query = f"{folder}/{store} {folder}/queries.npy {' '.join(kernel)}"
    succeed(f"search {query} -k {K} --exact --check-all --out {out} {words}")
    found = read_hits(str(out)).ids
    np.testing.assert_array_equal(found, true_ids(name))

    ids = tmp_path / "ids.npy"
    np.save(ids, CHOICES[name][1])
    proof = f"{out}.certificate.npz"
    checked = [f"{folder}/v.zarr", f"{folder}/queries.npy", str(out), proof]
    assert check_certificate.main([*checked, str(ids)]) == 0
    with pytest.raises(SystemExit, match="it is of some rows"):
        check_certificate.main(checked)
    np.save(ids, CHOICES[name][1][5:])
    with pytest.raises(SystemExit, match="other rows took part"):
        check_certificate.main([*checked, str(ids)])
    assert read_certificate(proof)[1]["selected"]["rows"] == read_certificate(proof)[0]["rows"]

    given = f"verify {folder}/v.zarr {folder}/queries.npy {out} --kernel chi2"
    bounds = "" if store == "v.zarr" else f"--bounds {folder}/{store}"
    succeed(f"{given} {words} {bounds}")
    assert invoke(f"{given} {bounds}").code == 1  # not the nearest of all rows


@loop_over("name", CHOICES)
@pytest.mark.promise(
    "A search among some rows finds their nearest, in every kind of search, and its certificate names them"
)
def test_codes_reranked_and_sorted_orders(name: str, folder: Path) -> None:
    """With as many rows reranked as take part, codes give the true hits."""
    words, rows = words_of(folder, name), len(np.intersect1d(CHOICES[name][1], STORED))
    for options in (f"codes --rerank {rows}", "orders --neighbours 900"):
        store, *more = options.split(" ", 1)
        line = f"search {folder}/{store} {folder}/queries.npy -k {K} {' '.join(more)}"
        found = json.loads(succeed(f"{line} {words} --json"))
        assert found["ids"] == true_ids(name).tolist()
        assert found["rows"] == rows
    found = json.loads(succeed(f"search {folder}/codes {folder}/queries.npy -k {K} {words} --json"))
    assert set(np.ravel(found["ids"])) <= set(CHOICES[name][1])


def test_an_open_store_searches_among_any_rows(folder: Path) -> None:
    """Parts in memory serve every selection."""
    for store, kernel in [("v.zarr", "chi2"), ("codes", None)]:
        with mercore.open(folder / store, kernel=kernel) as opened:
            opened.search(QUERIES, k=K, exact=True)
            opened.prefetch()
            read = opened.stats()
            for name, (_, ids) in CHOICES.items():
                choice: Any = {"among": ids}
                for found in (
                    opened.search(QUERIES, k=K, exact=True, **choice),
                    opened.search(QUERIES, k=K, **choice)
                    if store == "v.zarr"
                    else opened.search(
                        QUERIES, k=K, rerank=len(np.intersect1d(ids, STORED)), **choice
                    ),
                ):
                    np.testing.assert_array_equal(found.ids, true_ids(name))
            for part, counts in opened.stats().items():
                assert counts["bytes"] == read[part]["bytes"]
            with pytest.raises(InputError, match="k is out of range"):
                opened.search(QUERIES, k=11, among="390:400")
            assert opened.search(QUERIES, among="390:400").ids.shape == (NQ, 10)
    ids = np.arange(390, 400)
    for choice in ({"among": ids}, {"among": ids.tolist()}, {"among": np.isin(np.arange(N), ids)}):
        assert mercore.search(folder / "codes", QUERIES, **choice)[1].ids.shape == (NQ, 10)
    assert mercore.search(folder / "codes", QUERIES, without=ids)[1].ids.shape == (NQ, 100)


@pytest.mark.slow
def test_processes_and_arrays_in_memory(folder: Path) -> None:
    choice: Any = {"among": IDS, "without": slice(380, 420)}
    ids = np.intersect1d(np.setdiff1d(IDS, LEFT_OUT), STORED)
    true = ids[nearest("chi2", ROWS[ids], QUERIES, K)]
    for options in ({"exact": True}, {"rerank": len(ids)}):
        more: Any = {**options, **choice, "processes": 2}
        report, hits = mercore.search(folder / "codes", QUERIES, k=K, **more)
        np.testing.assert_array_equal(hits.ids, true)
        assert report["rows"] == len(ids)


def test_rows_appended_since_take_no_part(folder: Path, tmp_path: Path) -> None:
    rows = ROWS[STORED]
    mercore.ingest(rows, tmp_path / "v.zarr")
    mercore.encode(
        tmp_path / "v.zarr", tmp_path / "codes", kernel="chi2", encoder="bin-bound:groups=16"
    )
    mercore.append(rows[::-1], tmp_path / "v.zarr")
    _, hits = mercore.search(tmp_path / "codes", QUERIES, k=K, rerank=100, among="50:150")
    few = np.arange(50, 150)
    np.testing.assert_array_equal(hits.ids, few[nearest("chi2", rows[few], QUERIES, K)])
    with pytest.raises(InputError, match=r"made of the first 897"):
        mercore.search(tmp_path / "codes", QUERIES, k=K, exact=True, among="50:150")
    with pytest.raises(InputError, match=r"among 50:1000: id 999 is not one of"):
        mercore.search(tmp_path / "codes", QUERIES, k=K, rerank=100, among="50:1000")


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    line = f"search {folder}/codes {folder}/queries.npy"
    for options, message in {
        "-k 11 --among 390:400": "k is out of range: found 11, expected 1 to 10",
        "--among 5:5": "no row of",
        f"--among {folder}/queries.npy": "expected ids, int64[any], or a mask",
        "--without nothing.npy": "nothing.npy",
    }.items():
        outcome = invoke(f"{line} {options}")
        assert outcome.code == 2
        assert message in outcome.err
    outcome = invoke(f"{line} --among 390:400")
    assert outcome.code == 0
    assert "-k is 10, as no more rows take part" in outcome.err
