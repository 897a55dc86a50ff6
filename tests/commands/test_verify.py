"""``mercore verify`` refutes each of a thousand planted errors, and proves true neighbours."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.stores.results.hits import Hits, write_hits
from mercore.testing.stores import histograms
from tests.independent.exact_truth import TIE, _numbers, exact_score, nearest
from tests.support.running import invoke, run, succeed

ROWS, DIMS, NQ, K = 2000, 16, 400, 8
PLANTED = 340  # of each of the three kinds
HEADER = "query\tverdict\trank\tclaimed\tbetter\tscore\n"
FIND = ("--encoder", "kpca-bound", "--landmarks", 512, "--components", 64)

Ids = NDArray[np.int64]


def near_rows() -> NDArray[np.float32]:
    """Histograms with near and equal rows.

    A third of the rows differ from another row by one ulp of one value; a few equal another row.
    """
    rows: NDArray[np.float32] = histograms(ROWS, DIMS, seed=1)
    rng = np.random.default_rng(2)
    third = ROWS // 3
    rows[:third] = rows[third : 2 * third]
    at = np.arange(third - 20), rng.integers(DIMS, size=third - 20)
    rows[at] = np.nextafter(rows[at], np.float32(np.inf))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors, queries, bounds for chi2, and ``true``, the ids of nine neighbours a
    query."""
    folder = tmp_path_factory.mktemp("verify")
    rows, queries = near_rows(), histograms(NQ, DIMS, seed=3)
    np.save(folder / "base.npy", rows)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "true.npy", nearest("chi2", rows, queries, K + 1))
    succeed(f"ingest {folder}/base.npy {folder}/vectors")
    succeed(f"encode {folder}/vectors {folder}/bounds --kernel chi2", *FIND, "--part-rows", 256)
    return folder


@pytest.fixture(scope="module")
def true(folder: Path) -> Ids:
    return np.asarray(np.load(folder / "true.npy"))


def words(folder: Path, ids: Ids, *options: object, name: str = "hits.npz") -> list[object]:
    """The words that verify these ids, written to a file."""
    write_hits(str(folder / name), Hits(scores=None, ids=ids))
    return [f"verify {folder}/vectors {folder}/queries.npy {folder}/{name} --kernel chi2", *options]


def verdicts(*command: object, code: int) -> list[dict[str, Any]]:
    outcome = invoke(*command, "--json")
    assert outcome.code == code, outcome
    report = json.loads(outcome.out)
    found: list[dict[str, Any]] = report["verdicts"]
    assert [verdict["query"] for verdict in found] == list(range(report["queries"]))
    for word in ("proved", "tied", "refuted"):
        assert report[word] == sum(verdict["verdict"] == word for verdict in found)
    return found


def wrong_id(ids: Ids, rng: np.random.Generator) -> Ids:
    """One id of k is another: any, or the next nearest in the place of the last."""
    found = ids[:K].copy()
    if rng.random() < 0.5:
        found[-1] = ids[K]
    else:
        found[rng.integers(K)] = rng.choice(np.setdiff1d(np.arange(ROWS), ids))
    return found


def swapped(ids: Ids, rng: np.random.Generator) -> Ids:
    """Two neighbours, one behind the other, have changed places."""
    found, at = ids[:K].copy(), int(rng.integers(K - 1))
    found[at : at + 2] = found[at : at + 2][::-1]
    return found


def missing(ids: Ids, rng: np.random.Generator) -> Ids:
    """A neighbour is left out: those behind it move up, or -1 takes its place."""
    at = int(rng.integers(K))
    if rng.random() < 0.5:
        return np.delete(ids, at)
    found = ids[:K].copy()
    found[at] = -1
    return found


def first_wrong(rows: NDArray[Any], query: NDArray[Any], claimed: Ids, true: Ids) -> int:
    """The first rank, from 0, whose claimed row has another score in exact arithmetic than the true
    one; -1 if none."""
    x = _numbers(query, "chi2")
    for rank, (claim, right) in enumerate(zip(claimed.tolist(), true.tolist(), strict=True)):
        if claim != right:
            scores = [
                exact_score("chi2", 1.0, x, _numbers(rows[row], "chi2")) for row in (claim, right)
            ]
            if claim < 0 or abs(scores[0] - scores[1]) > TIE:
                return rank
    return -1


# --- planted errors


@pytest.mark.parametrize("plant", [wrong_id, swapped, missing])
@pytest.mark.promise("A claimed score decides no verdict")
@pytest.mark.promise("`verify` proves true neighbours, and refutes every error with its rank")
def test_planted_errors_are_refuted_and_nothing_else_is(
    plant: Any, folder: Path, true: Ids
) -> None:
    rng = np.random.default_rng(4)
    rows, queries = np.load(folder / "base.npy"), np.load(folder / "queries.npy")
    claimed, expected, near = true[:, :K].copy(), {}, 0
    for query in rng.permutation(NQ)[:PLANTED].tolist():
        rank = -1
        while rank < 0:  # what ties in exact arithmetic is no error
            claimed[query] = plant(true[query], rng)
            rank = first_wrong(rows, queries[query], claimed[query], true[query, :K])
        expected[query] = rank + 1, claimed[query, rank], true[query, rank]
        near += claimed[query, rank] >= 0 and bool(
            (np.abs(rows[claimed[query, rank]] - rows[true[query, rank]]) < 1e-6).all()
        )
    assert near > PLANTED / 20 or plant is missing
    for options in (
        (),
        ("--bounds", folder / "bounds"),
        ("--bounds", folder / "bounds", "--batch", 64),
    ):
        found = verdicts(*words(folder, claimed, *options), code=1)
        refuted = {
            verdict["query"]: (verdict["rank"], verdict["claimed"], verdict["better"])
            for verdict in found
            if verdict["verdict"] == "refuted"
        }
        assert refuted == expected


@pytest.mark.parametrize("bounds", [True, False])
@pytest.mark.promise("`verify` proves true neighbours, and refutes every error with its rank")
def test_true_neighbours_are_proved_or_tied(bounds: bool, folder: Path, true: Ids) -> None:
    options = ("--bounds", folder / "bounds") if bounds else ()
    found = verdicts(*words(folder, true[:, :K], *options), code=0)
    assert {verdict["verdict"] for verdict in found} == {"proved", "tied"}
    assert (
        sum(verdict["verdict"] == "tied" for verdict in found) < NQ / 10
    )  # of equal rows there are twenty pairs


@pytest.mark.parametrize("bounds", [True, False])
def test_claims_without_a_single_whole_one(bounds: bool, folder: Path, true: Ids) -> None:
    claimed = true[:, :K].copy()
    claimed[::2, 3], claimed[1::2, 3] = -1, claimed[1::2, 0]
    options = ("--bounds", folder / "bounds") if bounds else ()
    found = verdicts(*words(folder, claimed, *options), code=1)
    assert {(verdict["verdict"], verdict["rank"]) for verdict in found} == {("refuted", 4)}
    assert [verdict["better"] for verdict in found] == true[:, 3].tolist()


# --- what it says


@pytest.mark.slow
@pytest.mark.promise("Exit code 1: the answer is no")
def test_the_real_command_says_proved_tied_and_refuted(folder: Path, true: Ids) -> None:
    rows, queries = np.load(folder / "base.npy"), np.load(folder / "queries.npy")[:3]
    equal = ROWS // 3 - 20
    queries[1] = rows[equal]  # the row itself and its double come first
    np.save(folder / "three.npy", queries)
    ids = nearest("chi2", rows, queries, K)
    assert ids[1, :2].tolist() == [equal, equal + ROWS // 3]
    ids[1, :2] = ids[1, 1::-1]
    better = int(ids[2, 4])
    ids[2, 4] = wrong = int(np.setdiff1d(np.arange(ROWS), ids[2])[-1])
    write_hits(str(folder / "three.npz"), Hits(scores=None, ids=ids))
    command = (f"verify {folder}/vectors {folder}/three.npy {folder}/three.npz --kernel chi2",)
    outcome = run(*command, "--bounds", folder / "bounds")
    assert outcome.code == 1
    *lines, last = outcome.out.splitlines(keepends=True)
    assert "".join(lines) == f"{HEADER}1\ttied\t\t\t\t\n"
    assert last.startswith(f"2\trefuted\t5\t{wrong}\t{better}\t0.")
    assert re.fullmatch(
        rf"3 queries × {ROWS:,} rows in [0-9.]+ m?s: 1 proved, 1 tied, 1 refuted\n", outcome.err
    )
    right = run(*command, "-k", 1, "--all")
    assert (right.code, right.out[: len(HEADER) + 9]) == (0, f"{HEADER}0\tproved\t")
    refused = run(*command, "-k", 9)
    message = (
        "k is out of range: found 9, expected 1 to 8, the ids per query in "
        f"{folder / 'three.npz'}. "
    )
    assert (refused.code, refused.out, refused.err) == (
        2,
        "",
        f"mercore: {message}Fix: leave -k out.\n",
    )


def test_the_first_k_alone_are_verified(folder: Path, true: Ids) -> None:
    claimed = true[:, :K].copy()
    claimed[:, 5] = true[:, K]
    claimed[:, 6:] = -1
    for bounds in ((), ("--bounds", folder / "bounds")):
        verdicts(*words(folder, claimed, "-k", 5, *bounds), code=0)
        assert len(verdicts(*words(folder, claimed, *bounds), code=1)) == NQ


@pytest.mark.parametrize("name", ["hits.npz", "hits.parquet", "hits.ibin", "hits.ivecs"])
@pytest.mark.parametrize("scored", [True, False])
def test_every_format_of_hits(
    name: str, scored: bool, folder: Path, true: Ids, tmp_path: Path
) -> None:
    claimed = true[:, :K].copy()
    claimed[7, 2] = np.setdiff1d(np.arange(ROWS), true[7])[0]
    scores = (
        -np.sort(np.random.default_rng(5).random(claimed.shape).astype(np.float32))
        if scored
        else None
    )
    written = write_hits(str(tmp_path / name), Hits(scores=scores, ids=claimed))
    assert len(written) == 1 + (scored and name.endswith(".ivecs"))
    command = (f"verify {folder}/vectors {folder}/queries.npy {tmp_path}/{name} --kernel chi2",)
    found = verdicts(*command, "--bounds", folder / "bounds", code=1)
    (wrong,) = (verdict for verdict in found if verdict["verdict"] == "refuted")
    assert (wrong["query"], wrong["rank"], wrong["claimed"], wrong["better"]) == (
        7,
        3,
        claimed[7, 2],
        true[7, 2],
    )


@pytest.mark.parametrize("claim", [ROWS, 2**31 - 1])
def test_ids_beyond_the_rows_are_refuted(claim: int, folder: Path, true: Ids) -> None:
    claimed = true[:, :K].copy()
    claimed[0, 1] = claim
    first, *others = verdicts(*words(folder, claimed, "--bounds", folder / "bounds"), code=1)
    assert (first["rank"], first["claimed"], first["better"]) == (2, claim, true[0, 1])
    assert "refuted" not in {verdict["verdict"] for verdict in others}


def test_ids_are_those_of_the_source_and_dropped_ones_are_refuted(
    folder: Path, tmp_path: Path
) -> None:
    rows, queries = np.load(folder / "base.npy"), np.load(folder / "queries.npy")[:20]
    rows[::5] = 0
    np.save(tmp_path / "base.npy", rows)
    np.save(tmp_path / "queries.npy", queries)
    succeed(f"ingest {tmp_path}/base.npy {tmp_path}/vectors --drop-zero-rows")
    succeed(f"encode {tmp_path}/vectors {tmp_path}/bounds --kernel chi2", *FIND)
    kept = np.flatnonzero(rows.any(axis=1))
    ids = kept[nearest("chi2", rows[kept], queries, K)]
    verdicts(*words(tmp_path, ids, "--bounds", tmp_path / "bounds"), code=0)
    right, ids[3, 6] = int(ids[3, 6]), 10
    for options in ((), ("--bounds", tmp_path / "bounds")):
        found = verdicts(*words(tmp_path, ids, *options), code=1)
        (wrong,) = (verdict for verdict in found if verdict["verdict"] == "refuted")
        assert (wrong["query"], wrong["rank"], wrong["claimed"], wrong["better"]) == (
            3,
            7,
            10,
            right,
        )


def test_what_exact_search_finds_is_proved_under_a_transform(folder: Path) -> None:
    kernel = ("--kernel", "rbf", "--gamma", 0.5, "--transform", 2)
    succeed(f"encode {folder}/vectors {folder}/transformed", *kernel, *FIND)
    out = folder / "transformed.parquet"
    succeed(f"search {folder}/transformed {folder}/queries.npy -k 5 --exact --out {out}")
    command = (f"verify {folder}/vectors {folder}/queries.npy {out}", *kernel)
    for options in ((), ("--bounds", folder / "transformed")):
        assert "refuted" not in {
            verdict["verdict"] for verdict in verdicts(*command, *options, code=0)
        }
