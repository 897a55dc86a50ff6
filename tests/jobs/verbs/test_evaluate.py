"""The measures of the papers through the Python API: their values, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.jobs import api
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.hashing.klsh import KlshSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import FormatError, InputError, MercoreError, ShapeError
from mercore.stores.results.hits import Hits, read_hits
from mercore.testing.cases import in_case, loop_over
from mercore.testing.stores import histograms, make_codes, make_vectors
from tests.independent import measures as slow_forms
from tests.independent import reference
from tests.support.running import invoke, on_command_line

ROWS, QUERIES, DIMS, BITS, K = histograms(90, 12), histograms(7, 12, seed=1), 12, 16, 40
LABELS = np.arange(len(ROWS)) % 4 - 1
QUERY_LABELS = np.arange(len(QUERIES), dtype=np.int32) % 3
DEFAULTS = {"k-recall", "texmex", "aska"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, binary codes, queries, labels, hits and true neighbours."""
    folder = tmp_path_factory.mktemp("evaluated")
    vectors = make_vectors(folder / "vectors", ROWS)
    kernel = make_kernel("chi2")
    make_codes(folder / "codes", vectors, kernel, KlshSpec(n_landmarks=30, n_subset=8, n_bits=BITS))
    make_codes(folder / "aska", vectors, kernel, AskaSpec(n_atoms=8, n_nonzero_coefs=2))
    other = make_vectors(folder / "other", histograms(90, 12, seed=2))
    make_codes(folder / "strange", other, kernel, KlshSpec(n_landmarks=30, n_subset=8, n_bits=BITS))
    for name, array in (("queries", QUERIES), ("labels", LABELS), ("query_labels", QUERY_LABELS)):
        np.save(folder / f"{name}.npy", array)
    api.search(folder / "codes", folder / "queries.npy", k=K, out=folder / "hits.npz")
    truth = folder / "truth.npz"
    api.search(folder / "vectors", folder / "queries.npy", k=50, kernel="chi2", out=truth)
    return folder


def evaluate(folder: Path, **options: Any) -> list[dict[str, Any]]:
    """The entries of a report."""
    report = api.evaluate(folder / "hits.npz", folder / "truth.npz", **options)
    assert report["queries"] == len(QUERIES)
    rows: list[dict[str, Any]] = report["recall"]
    return rows


def scoring(folder: Path, **options: Any) -> dict[str, Any]:
    """The options of an overlap."""
    inputs = {"vectors": folder / "vectors", "queries": QUERIES, "kernel": "chi2"}
    return {**inputs, "codes": folder / "codes", "overlap": 5, **options}


def values_of(rows: list[dict[str, Any]], definition: str) -> dict[int, float]:
    """The values of a definition by their ranks."""
    return {row["rank"]: row["value"] for row in rows if row["definition"] == definition}


def test_no_measure_is_added_unless_it_is_asked_for(folder: Path) -> None:
    assert {row["definition"] for row in evaluate(folder)} == DEFAULTS


def test_recognition_of_the_hits_and_of_the_truth(folder: Path) -> None:
    hits, truth = (read_hits(str(folder / name)).ids for name in ("hits.npz", "truth.npz"))
    paths = {"labels": folder / "labels.npy", "query_labels": folder / "query_labels.npy"}
    arrays = {"labels": LABELS, "query_labels": QUERY_LABELS}
    for neighbours, ranks in ((None, [1, 3]), (7, [1, 3, 7])):
        rows = evaluate(folder, ranks=[1, 3, 7, 50], neighbours=neighbours, **paths)
        assert rows == evaluate(folder, ranks=[1, 3, 7, 50], neighbours=neighbours, **arrays)
        for definition, ids in (("recognition", hits), ("recognition-of-truth", truth)):
            slow = {
                r: slow_forms.recognition_rate(
                    ids.tolist(), LABELS.tolist(), QUERY_LABELS.tolist(), k=neighbours or 5, r=r
                )
                for r in ranks
            }
            with in_case(definition=definition, neighbours=neighbours):
                assert values_of(rows, definition) == pytest.approx(slow)


def test_a_truth_that_is_narrower_than_the_votes_is_not_classified(folder: Path) -> None:
    ids = read_hits(str(folder / "hits.npz")).ids
    rows = api.evaluate(ids, ids[:, :4], labels=LABELS, query_labels=QUERY_LABELS)["recall"]
    assert {row["definition"] for row in rows} == {*DEFAULTS, "recognition"}


def test_coverage(folder: Path) -> None:
    hits, truth = (read_hits(str(folder / name)).ids for name in ("hits.npz", "truth.npz"))
    for given in ("10,30", [30, 10]):
        rows = evaluate(folder, ranks="1,20,50", coverage=given)
        for n in (10, 30):
            slow = {
                r: slow_forms.coverage(hits.tolist(), truth.tolist(), n, r) for r in (1, 20, 50)
            }
            assert values_of(rows, f"coverage-{n}") == pytest.approx(slow)


@pytest.mark.promise("Recognition, coverage and overlap follow the papers")
def test_overlap(folder: Path) -> None:
    hits, truth = (read_hits(str(folder / name)) for name in ("hits.npz", "truth.npz"))
    assert hits.scores is not None
    assert truth.scores is not None
    rows, queries = (reference.prepare("chi2", values) for values in (ROWS, QUERIES))
    scores = np.take_along_axis(reference.kernel("chi2", queries, rows), hits.ids, axis=1)
    threshold = 1 - np.sqrt(2 - 2 * truth.scores[:, 49]).mean() ** 2 / 2
    distances = np.rint((1 - hits.scores) * BITS).astype(int)
    values = []
    for radius in (0, 3, 5, BITS):
        found = evaluate(folder, **scoring(folder, overlap=radius))[-1]
        true, near, cut = slow_forms.overlap(
            hits.ids.tolist(),
            distances.tolist(),
            scores.tolist(),
            radius=radius,
            threshold=float(threshold),
        )
        value = true / near if near else None
        assert found == {
            "definition": f"overlap-{radius}",
            "rank": K,
            "value": value,
            "queries": len(QUERIES),
            "pairs": near,
            "queries_cut": cut,
        }
        values.append(value)
    assert len(set(values)) > 2
    assert cut == len(QUERIES)


def test_no_query_is_cut_whose_hits_are_all_rows(folder: Path) -> None:
    _, every = api.search(folder / "codes", QUERIES, k=len(ROWS))
    options = scoring(folder, overlap=BITS)
    found = api.evaluate(every, folder / "truth.npz", **options)["recall"][-1]
    assert (found["pairs"], found["queries_cut"]) == (len(ROWS) * len(QUERIES), 0)


def test_the_command_prints_an_overlap_without_pairs(folder: Path) -> None:
    far = Hits(scores=np.full((7, 1), 0.25, np.float32), ids=np.zeros((7, 1), np.int64))
    options = {**scoring(folder), "queries": folder / "queries.npy"}
    assert api.evaluate(far, folder / "truth.npz", **options)["recall"][-1]["value"] is None
    np.savez(folder / "far.npz", ids=far.ids, scores=np.full((7, 1), 0.25, np.float32))
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    outcome = invoke(f"evaluate {folder}/far.npz {folder}/truth.npz", *words)
    assert outcome.out.splitlines()[-1].split() == ["overlap-5", "1", "–"]
    assert outcome.err == "overlap-5: 0 pairs of a query and a near hit\n"
    outcome = invoke(f"evaluate {folder}/far.npz {folder}/truth.npz", *words, "--json")
    assert json.loads(outcome.out)["recall"][-1]["value"] is None


BAD: list[tuple[dict[str, Any], type[MercoreError], str]] = [
    (
        {"labels": LABELS},
        InputError,
        "--labels and --query-labels go together: found one of them. Fix: name both, or neither.",
    ),
    (
        {"query_labels": QUERY_LABELS},
        InputError,
        "--labels and --query-labels go together: found one of them. Fix: name both, or neither.",
    ),
    (
        {"labels": LABELS.astype(float), "query_labels": QUERY_LABELS},
        FormatError,
        "labels: float64[90], expected labels, int64[n]. Fix: save one whole number per row as a "
        "one-dimensional array.",
    ),
    (
        {"labels": LABELS, "query_labels": QUERY_LABELS[None]},
        FormatError,
        "query labels: int32[1, 7], expected labels, int64[n]. Fix: save one whole number per row "
        "as a one-dimensional array.",
    ),
    (
        {"labels": LABELS, "query_labels": QUERY_LABELS.astype(np.uint64)},
        FormatError,
        "query labels: uint64[7], expected labels, int64[n]. Fix: save one whole number per row "
        "as a one-dimensional array.",
    ),
    (
        {"labels": LABELS, "query_labels": QUERY_LABELS[:6]},
        ShapeError,
        "the query labels do not fit the hits: found 6 labels, expected 7, one per query. Fix: "
        "give the labels of these queries.",
    ),
    (
        {"labels": LABELS, "query_labels": QUERY_LABELS, "neighbours": 41},
        ShapeError,
        "neighbours is out of range: found 41, expected 1 to 40, the returned neighbours of a "
        "query. Fix: --neighbours 40, or search with a greater k.",
    ),
    (
        {"labels": LABELS, "query_labels": QUERY_LABELS, "neighbours": 2.5},
        InputError,
        "neighbours is 2.5: expected a whole number. Fix: --neighbours 10.",
    ),
    (
        {"labels": LABELS, "query_labels": QUERY_LABELS, "ranks": [10, 20]},
        InputError,
        "--labels has no use here: the least rank is 10, expected at most 5, the neighbours that "
        "vote. Fix: --ranks 1,10",
    ),
    (
        {"coverage": "10,41"},
        InputError,
        "coverage takes numbers from 1 to 40, the hits of a query, with commas: found '10,41'. "
        "Fix: --coverage 40",
    ),
    (
        {"coverage": "10,ten"},
        InputError,
        "coverage takes numbers from 1 to 40, the hits of a query, with commas: found '10,ten'. "
        "Fix: --coverage 40",
    ),
    (
        {"overlap": 3},
        InputError,
        "--overlap compares codes with the true kernel: it needs --codes, --vectors, --queries and "
        "--kernel. Fix: name all four.",
    ),
]


@loop_over(("options", "error", "message"), BAD)
def test_bad_options_are_refused(
    folder: Path, options: dict[str, Any], error: type[MercoreError], message: str
) -> None:
    with pytest.raises(error) as raised:
        evaluate(folder, **options)
    assert on_command_line(raised.value) == message


@loop_over(
    ("options", "message"),
    [
        (
            {"overlap": 17},
            "overlap is out of range: found 17, expected 0 to 16, the bits of a code",
        ),
        (
            {"overlap": -1},
            "overlap is out of range: found -1, expected 0 to 16, the bits of a code",
        ),
        ({"codes": None}, "it needs --codes, --vectors, --queries and --kernel. Fix: name all"),
        ({"codes": "aska"}, "holds codes of aska: expected binary codes, which have a Hamming"),
        ({"codes": "strange"}, "strange encodes: found vectors"),
    ],
)
def test_an_overlap_that_cannot_be_is_refused(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    given = scoring(folder, **options)
    if given["codes"] is not None:
        given["codes"] = folder / given["codes"]
    with pytest.raises(InputError) as raised:
        evaluate(folder, **given)
    assert message in on_command_line(raised.value)


def test_hits_and_truth_without_the_scores_of_an_overlap_are_refused(folder: Path) -> None:
    hits, truth = (read_hits(str(folder / name)) for name in ("hits.npz", "truth.npz"))
    reranked = Hits(scores=np.full((7, 40), 0.93), ids=hits.ids)
    short = Hits(scores=np.ones((7, 49)), ids=truth.ids[:, :49])
    for returned, true, message in (
        (hits.ids, truth, "the returned neighbours have no scores"),
        (hits, truth.ids, "the true neighbours have no scores"),
        (reranked, truth, "a score is no share of equal bits: found 0.93, expected 1 − h / 16"),
        (hits, short, "the truth is too short: found 49 neighbours of a query"),
    ):
        with pytest.raises(InputError, match=message):
            api.evaluate(returned, true, **scoring(folder))
