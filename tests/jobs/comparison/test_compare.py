"""A comparison's figures are those of encoding, searching and evaluating by hand; what is recorded
is not redone."""

import io
import json
import re
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from PIL import Image

import mercore
from mercore.jobs.comparison import compare
from mercore.jobs.comparison import setup as compared
from mercore.jobs.comparison.candidates import parse_encoders
from mercore.jobs.comparison.plot import COLOURS, Curve, Panel, draw_recall
from mercore.jobs.comparison.setup import CompareOptions
from mercore.jobs.comparison.summary import recall_panels, searches_of
from mercore.jobs.printing import comparison_table, print_comparison
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.evaluate import recalls
from mercore.pipeline.kernels import make_kernel
from mercore.stores.codes import open_code_store
from mercore.stores.errors import BudgetError, FormatError, InputError, MercoreError
from mercore.stores.location.local import LocalLocation
from mercore.stores.results.hits import read_hits
from mercore.testing.cases import in_case, loop_over
from mercore.testing.stores import histograms, make_vectors
from tests.independent import measures, reference
from tests.support.pages import texts_outside

ROWS, QUERIES, DIMS = 600, 40, 12
ASKA, LSH = "aska:atoms=64,sparsity=3", "kpca-lsh:landmarks=64,bits=48"
OPTIONS: dict[str, Any] = {
    "kernels": ["chi2"],
    "encoders": [ASKA, LSH],
    "ranks": "1,5,30",
    "threads": 2,
    "workers": 2,
}
RECORDED = [1, 2, 5, 10, 20, 30]
Run = Callable[..., dict[str, Any]]
Encoded = Callable[[], list[tuple[str, int]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    make_vectors(folder / "vectors", histograms(ROWS, DIMS))
    np.save(folder / "queries.npy", histograms(QUERIES, DIMS, seed=1))
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a comparison of the module's data without drawing it, which takes most of the time."""
    monkeypatch.setattr(compare, "draw_recall", lambda *_: b"not drawn")

    def run(queries: Path = folder / "queries.npy", **options: Any) -> dict[str, Any]:
        return mercore.compare(folder / "vectors", queries, **{**OPTIONS, **options})

    return run


@pytest.fixture(scope="module")
def whole(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A comparison of two encoders with two seeds, reranked too, and where it is recorded."""
    out = folder / "whole"
    options = {**OPTIONS, "seeds": 2, "rerank": 60, "out": str(out)}
    return out, mercore.compare(folder / "vectors", folder / "queries.npy", **options)


@pytest.fixture
def encoded(capsys: pytest.CaptureFixture[str]) -> Encoded:
    """What returns the encoder and seed of every run that was done since the last call."""

    def encoded() -> list[tuple[str, int]]:
        found = re.findall(r": (\S+), seed (\d+): .*; encoded in", capsys.readouterr().err)
        return [(label, int(seed)) for label, seed in found]

    return encoded


def recalls_of(report: dict[str, Any]) -> list[Any]:
    """What another comparison of the same would repeat: all but times."""
    return [
        (run["key"], *(search["recall"] for search in searches_of(run))) for run in report["runs"]
    ]


@pytest.mark.promise("`compare` gives the recall of encode, search and evaluate done by hand")
def test_every_recall_is_that_of_a_search_by_hand(
    folder: Path, whole: tuple[Path, dict[str, Any]]
) -> None:
    out, report = whole
    vectors, queries = folder / "vectors", folder / "queries.npy"
    base = reference.prepare("chi2", histograms(ROWS, DIMS))
    asked = reference.prepare("chi2", histograms(QUERIES, DIMS, seed=1))
    scores = reference.kernel("chi2", asked, base)
    (truth,) = out.glob("truth-*.npz")
    assert np.array_equal(read_hits(str(truth)).ids, reference.top_k(scores, 30)[1])
    expected = [(name, seed) for name in ("aska", "kpca-lsh") for seed in (0, 1)]
    assert [(record["label"], record["seed"]) for record in report["runs"]] == expected
    for record in report["runs"]:
        codes = folder / f"{record['label']}-{record['seed']}"
        encoder = f"{record['text']},random-state={record['seed']}"
        mercore.encode(vectors, codes, kernel="chi2", encoder=encoder)
        by_kernel: Any = {"vectors": vectors, "queries": queries, "kernel": "chi2"}
        for way, rerank, rescored in (("search", None, {}), ("reranked", 60, by_kernel)):
            _, hits = mercore.search(codes, queries, k=30, rerank=rerank)
            by_hand = mercore.evaluate(hits, truth, ranks=RECORDED, **rescored)
            assert record[way]["recall"] == by_hand["recall"]
        assert record["bytes_per_row"] == {"aska": 13, "kpca-lsh": 6}[record["label"]]
        definitions = {row["definition"] for row in record["reranked"]["recall"]}
        assert definitions == {"k-recall", "texmex", "aska", "tie-aware"}


def test_means_and_deviations_are_those_over_the_seeds(whole: tuple[Path, dict[str, Any]]) -> None:
    _, report = whole
    ways = [(entry["encoder"], entry["reranked"]) for entry in report["summary"]]
    assert ways == [("aska", None), ("aska", 60), ("kpca-lsh", None), ("kpca-lsh", 60)]
    for entry in report["summary"]:
        way = "reranked" if entry["reranked"] else "search"
        runs = [record for record in report["runs"] if record["label"] == entry["encoder"]]
        assert entry["ranks"] == RECORDED
        for place, rank in enumerate(RECORDED):
            values = [
                row["value"]
                for record in runs
                for row in record[way]["recall"]
                if (row["definition"], row["rank"]) == ("texmex", rank)
            ]
            assert entry["recall_mean"][place] == pytest.approx(statistics.mean(values))
            assert entry["recall_std"][place] == pytest.approx(statistics.stdev(values))
        assert entry["seeds"] == 2
    assert any(std for entry in report["summary"] for std in entry["recall_std"])


def test_the_table_shows_the_summary(
    whole: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, report = whole
    print_comparison(report)
    title, header, *lines = capsys.readouterr().out.splitlines()
    assert title == "chi2: 600 rows, 40 queries, k = 30"
    words = "encoder bytes per row R@1 R@5 R@30 atoms: rows, hits search ns encode µs"
    assert " ".join(header.split()) == words
    for line, entry in zip(lines, report["summary"], strict=True):
        shown = [(entry["recall_mean"][place], entry["recall_std"][place]) for place in (0, 2, 5)]
        recall = "  ".join(f"{mean:.3f} ± {std:.3f}" for mean, std in shown)
        name = entry["encoder"] + ", 60 reranked" * (entry["reranked"] is not None)
        speed = [
            f"{entry[key]:.2f}" for key in ("search_ns_per_row_and_query", "encode_us_per_row")
        ]
        atoms = "–"
        if entry["encoder"] == "aska":
            assert entry["atoms_of_rows"] == 64 / ROWS
            atoms = f"{entry['atoms_of_rows']:.1%}, {entry['atoms_of_hits']:.1%}"
        expected = f"{name} {entry['bytes_per_row']} {recall} {atoms} {' '.join(speed)}"
        assert line.split() == expected.split()


def test_first_hits_that_are_atoms_are_counted(run: Run, folder: Path) -> None:
    (entry,) = run(encoders=["aska:atoms=64,sparsity=3"])["summary"][:1]
    codes = folder / "with atoms"
    mercore.encode(folder / "vectors", codes, kernel="chi2", encoder="aska:atoms=64,sparsity=3")
    _, hits = mercore.search(codes, folder / "queries.npy", k=1)
    atoms = open_code_store(codes).model["dictionary_rows"]
    assert entry["atoms_of_hits"] == np.isin(hits.ids[:, 0], atoms).mean()


def test_labels_add_the_accuracy(run: Run, folder: Path, tmp_path: Path, encoded: Encoded) -> None:
    labels, query_labels = np.arange(ROWS) % 3, np.arange(QUERIES) % 3
    options = {"encoders": [LSH], "rerank": 60, "labels": labels, "query_labels": query_labels}
    report = run(**options, out=str(tmp_path / "out"))
    codes, queries = folder / "labelled", folder / "queries.npy"
    mercore.encode(folder / "vectors", codes, kernel="chi2", encoder=LSH)
    sides, accuracies = (labels.tolist(), query_labels.tolist()), []
    for entry, rerank in zip(report["summary"], (None, 60), strict=True):
        _, hits = mercore.search(codes, queries, k=30, rerank=rerank)
        accuracies.append(measures.recognition_rate(hits.ids.tolist(), *sides, k=5, r=1))
        assert entry["accuracy_mean"] == pytest.approx(accuracies[-1])
        assert entry["accuracy_std"] == 0
    header, *lines = comparison_table(report["summary"], report["ranks"])
    assert header[-3:] == ["accuracy", "search ns", "encode µs"]
    assert [line[-3] for line in lines] == [f"{each:.3f}" for each in accuracies]
    run(**options, out=str(tmp_path / "out"))
    assert len(encoded()) == 1
    run(**{**options, "labels": labels + 1}, out=str(tmp_path / "out"))
    assert len(encoded()) == 1


def test_what_is_recorded_is_not_done_again(
    run: Run, whole: tuple[Path, dict[str, Any]], encoded: Encoded, tmp_path: Path
) -> None:
    recorded, report = whole
    options = {"rerank": 60, "out": str(shutil.copytree(recorded, tmp_path / "out"))}
    again = run(seeds=2, **options)
    assert {**again, "written": None} == {**report, "written": None}
    run(seeds=2, encoders=[LSH, ASKA], ranks="1,20,30", **options)  # 20 is recorded in any case
    assert not encoded()
    more = run(seeds=3, encoders=[LSH], **options)["runs"]
    assert [record["seed"] for record in more] == [0, 1, 2]
    assert encoded() == [("kpca-lsh", 2)]


@pytest.mark.promise("An interrupted comparison goes on where it stopped")
def test_an_interrupted_comparison_goes_on_where_it_stopped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: Encoded
) -> None:
    first = iter([recalls])  # the first run is measured, and the second interrupted

    def interrupted(*sides: Any, **options: Any) -> Any:
        for original in first:
            return original(*sides, **options)
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(compare, "recalls", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(seeds=2, out=str(out))
    (truth_file,) = out.glob("truth-*.npz")
    assert sorted(path.name for path in out.iterdir()) == ["compare.json", truth_file.name]
    assert [record["seed"] for record in compared.read_records(out / "compare.json")] == [0]
    assert encoded() == [("aska", 0)]
    report = run(seeds=2, out=str(out))
    assert encoded() == [("aska", 1), ("kpca-lsh", 0), ("kpca-lsh", 1)]
    assert recalls_of(report) == recalls_of(run(seeds=2))


def test_what_a_killed_run_left_is_removed(run: Run, tmp_path: Path) -> None:
    left = tmp_path / ".codes.123-0badcafe.tmp"
    left.mkdir()
    run(encoders=[LSH], out=str(tmp_path))
    assert not left.exists()
    assert not list(tmp_path.glob(".*"))


def test_other_queries_are_another_comparison(run: Run, tmp_path: Path, encoded: Encoded) -> None:
    path, rows = tmp_path / "queries.npy", histograms(QUERIES, DIMS, seed=1)
    for row in (0, 33):  # of which a fingerprint would read neither
        rows[row] = rows[row][::-1]
        np.save(path, rows)
        run(path, encoders=[LSH], out=str(tmp_path / "out"))
    assert len(encoded()) == 2
    assert len(list((tmp_path / "out").glob("truth-*.npz"))) == 2


@pytest.mark.promise(
    "Queries, or rows of a foreign array, that change while they are read are refused"
)
def test_queries_that_change_before_a_run_are_refused(folder: Path, tmp_path: Path) -> None:
    path, rows = tmp_path / "queries.npy", histograms(QUERIES, DIMS, seed=1)
    np.save(path, rows)
    options = CompareOptions(kernels=("chi2",), encoders=(LSH,))
    task = compare.open_compare(str(folder / "vectors"), str(path), options)
    np.save(path, rows[::-1])
    with pytest.raises(FormatError, match=f"^{path}: rows .* have changed since they were first"):
        task.run()


def test_other_ranks_and_another_rerank_are_another_run(
    run: Run, tmp_path: Path, encoded: Encoded
) -> None:
    asked: list[dict[str, Any]] = [
        {"ranks": "1,5"},
        *({"ranks": "1,30", "rerank": rerank} for rerank in (None, 60, 30)),
    ]
    reports = [run(encoders=[LSH], out=str(tmp_path / "out"), **options) for options in asked]
    assert len(encoded()) == 4
    assert len(list((tmp_path / "out").glob("truth-*.npz"))) == 2
    assert recalls_of(reports[-1]) == recalls_of(run(encoders=[LSH], **asked[-1]))


def test_several_numbers_of_reranked_hits_are_a_curve_per_encoder(
    run: Run, whole: tuple[Path, dict[str, Any]], tmp_path: Path, encoded: Encoded
) -> None:
    given: dict[str, Any] = {"seeds": 2, "out": str(tmp_path / "out")}
    report = run(rerank="120,0,60", **given)
    for record, single in zip(report["runs"], whole[1]["runs"], strict=True):
        assert [search["rerank"] for search in record["reranked"]] == [60, 120]
        assert record["search"]["recall"] == single["search"]["recall"]
        assert record["reranked"][0]["recall"] == single["reranked"]["recall"]
    ways = [(entry["encoder"], entry["reranked"]) for entry in report["summary"]]
    assert ways == [(name, way) for name in ("aska", "kpca-lsh") for way in (None, 60, 120)]
    (panel,) = recall_panels(report["summary"], ROWS)
    assert [curve.between for curve in panel.curves] == [False, True, False] * 2
    assert [curve.label for curve in panel.curves if not curve.between] == [
        f"{name}{way} ({size} bytes)"
        for name, size in (("aska", 13), ("kpca-lsh", 6))
        for way in ("", ", 120 reranked")
    ]
    assert len(encoded()) == 4
    assert run(rerank=[60, 120], **given)["runs"] == report["runs"]
    assert not encoded()
    assert run(rerank=0, encoders=[LSH])["summary"][0]["reranked"] is None


def test_without_a_folder_nothing_stays(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report = run(encoders=[LSH])
    assert "written" not in report
    assert not list(tmp_path.glob("mercore*"))


def test_equal_bytes_and_equal_operations(run: Run) -> None:
    encoders = ["aska:atoms=64", "kpca-lsh:landmarks=64", "kpca-jl:landmarks=64,components=32"]
    by_bytes, by_operations = run(encoders=encoders, bytes=17), run(encoders=encoders, operations=2)
    assert [entry["bytes_per_row"] for entry in by_bytes["summary"]] == [16, 17, 16]
    counted = [entry["operations"] for entry in by_operations["summary"]]
    assert counted == ["2 look-ups", "75 bits", "8 multiply-adds"]
    assert (by_bytes["bytes"], by_operations["operations"]) == (17, 2)


def test_kernels_share_the_encoders_and_take_the_parameters_they_have(folder: Path) -> None:
    options = {**OPTIONS, "kernels": ["chi2", "rbf"], "gamma": 0.5, "transform": 3.0}
    options |= {"encoders": ["kpca:landmarks=8,components=2"], "ranks": "1"}
    report = mercore.compare(folder / "vectors", folder / "queries.npy", **options)
    labels = [entry["kernel"] for entry in report["summary"]]
    assert labels == ["chi2, transform 3", "rbf, gamma 0.5, transform 3"]
    assert report["runs"][0]["kernel"] == make_kernel("chi2", transform=3.0).spec()


def test_encoders_of_one_name_are_told_apart_by_their_texts() -> None:
    texts = ["aska", "aska:atoms=64", "kpca:components=8"]
    labels = [candidate.label for candidate in parse_encoders(texts, (1 << 20, 12), {})]
    assert labels == ["aska", "aska:atoms=64", "kpca"]


LABELS = {"labels": np.zeros(ROWS, int), "query_labels": np.zeros(QUERIES, int)}
BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"encoders": [ASKA, ASKA]},
        f"encoder {ASKA} is given twice: expected once. Fix: leave one out.",
    ),
    (
        {"encoders": ["kpca", "kpca:components=64"]},
        "encoder kpca:components=64 is the same as kpca. Fix: name it once.",
    ),
    (
        {"kernels": ["chi2", "chi2"]},
        "kernel chi2 is given twice: expected once. Fix: leave one out.",
    ),
    ({"gamma": 2.0}, "gamma has no use here: it belongs to exp_chi2, rbf. Fix: leave gamma out."),
    (
        {"bytes": 8, "operations": 8},
        "bytes and operations are two protocols: found both. Fix: give one of them.",
    ),
    (
        {"encoders": [ASKA], "operations": 8},
        f"encoder {ASKA}: operations sets sparsity. Fix: leave one of them out.",
    ),
    (
        {"ranks": "1,601"},
        "ranks are numbers from 1 to 600, the rows of the store, with commas: found '1,601'. "
        'Fix: ranks="1,10,100"',
    ),
    (
        {"rerank": "0,x"},
        "rerank takes whole numbers from 0 on, with commas: found '0,x'. Fix: "
        'rerank="0,100,1000"',
    ),
    (
        {"threads": 0},
        "threads is out of range: found 0, expected 1 to 4096. Fix: leave threads out.",
    ),
    (
        {"workers": -1},
        "workers is out of range: found -1, expected 1 to 4096. Fix: leave workers out.",
    ),
    (
        {**LABELS, "labels": np.zeros(ROWS - 1, int)},
        "the labels do not fit: found 599 of rows and 40 of queries, expected at least 600 and 40. "
        "Fix: give one label per row of the vectors, and one per query.",
    ),
    (
        {**LABELS, "ranks": "1,4"},
        'labels classifies by 5 neighbours: found 4, the greatest rank. Fix: ranks="1,5"',
    ),
    ({"seeds": 0}, "seeds is out of range: found 0, expected 1 to 1000. Fix: seeds=2"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input_is_refused_before_anything_is_written(
    options: dict[str, Any], message: str, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        run(**options, out=str(tmp_path / "out"))
    assert str(error.value) == message
    assert not (tmp_path / "out").exists()


def test_queries_that_a_later_kernel_does_not_take_are_refused_before_the_first_run(
    run: Run, tmp_path: Path, encoded: Encoded
) -> None:
    queries, out = tmp_path / "negative.npy", tmp_path / "out"
    np.save(queries, -histograms(QUERIES, DIMS, seed=1).astype(np.float32))
    options = {"kernels": ["cosine", "chi2"], "out": str(out)}
    with pytest.raises(InputError, match=r"^query 0 has a negative value: "):
        run(queries, **options)
    np.save(queries, histograms(QUERIES, DIMS + 1))
    with pytest.raises(
        InputError,
        match=r"negative\.npy has d = 13: expected 12, the dimension of .*vectors\. Fix: ",
    ):
        run(queries, **options)
    assert not encoded()
    assert not out.exists()


def test_rows_that_a_later_kernel_does_not_take_are_refused_before_the_first_run(
    folder: Path, tmp_path: Path, encoded: Encoded
) -> None:
    rows = zarr.create_array(
        tmp_path / "foreign", shape=(ROWS, DIMS), chunks=(100, DIMS), dtype="float32"
    )
    rows[:] = histograms(ROWS, DIMS, seed=3)
    rows[500] = -1
    options = {**OPTIONS, "kernels": ["cosine", "chi2"], "out": str(tmp_path / "out")}
    with pytest.raises(InputError, match=r"^row 500 has a negative value: "):
        mercore.compare(tmp_path / "foreign", folder / "queries.npy", **options)
    assert not encoded()


def test_memory_and_disk_are_refused_before_the_first_run_but_not_where_all_is_recorded(
    run: Run, tmp_path: Path, encoded: Encoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with pytest.raises(
        BudgetError, match=r"^searching would take \d+ MB: .* Fix: fewer threads\.$"
    ):
        run(memory=1 << 20, out=str(out))
    large = ["kpca-lsh:landmarks=600,bits=4096"]
    with pytest.raises(BudgetError, match=r"^encoding would take "):
        run(encoders=[LSH, *large], memory=INTERPRETER_BYTES + (12 << 20), out=str(out))
    with monkeypatch.context() as patch:
        patch.setattr(LocalLocation, "free_bytes", lambda self: 1000)
        with pytest.raises(BudgetError, match=r"^encoding would write .*, which is free for "):
            run(encoders=[LSH], out=str(out))
    assert not encoded()
    assert not out.exists()
    run(encoders=[LSH], out=str(out))
    again = run(encoders=[LSH], memory=1 << 20, out=str(out))
    assert (len(encoded()), len(again["runs"])) == (1, 1)


A_STORE = "{} holds a Zarr store: expected a folder for a comparison. Fix: name another with out."


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        *((name, A_STORE) for name in ("vectors", "v2/.zarray", "v2/.zgroup", "v3/zarr.json")),
        ("queries.npy", "{} is a file: expected a folder for a comparison. Fix: name another with out."),
        ("queries.npy/x", "cannot write {}: {parent} is no folder to write in. Fix: name another with out."),
    ],
)  # fmt: skip
def test_no_comparison_is_kept_in_a_store_or_a_file(
    run: Run, folder: Path, tmp_path: Path, kept: str, message: str
) -> None:
    target = folder / kept
    if kept.startswith("v") and "/" in kept:
        (tmp_path / kept).parent.mkdir()
        (tmp_path / kept).write_text("{}")
        target = (tmp_path / kept).parent
    before = sorted(target.glob("*"))
    with pytest.raises(MercoreError) as error:
        run(out=str(target))
    assert str(error.value) == message.format(target, parent=target.parent)
    assert sorted(target.glob("*")) == before


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "something else"),
        ('{"name": "mercore-compare", "version": 1, "runs": [3]}', "something else"),
        ('{"name": "mercore-compare", "version": 2, "runs": []}', "mercore-compare version 2"),
    ],
)
def test_a_file_that_is_no_record_is_refused(
    run: Run, tmp_path: Path, content: str, found: str
) -> None:
    path = tmp_path / "compare.json"
    path.write_text(content)
    with pytest.raises(FormatError) as error:
        run(out=str(tmp_path))
    assert str(error.value) == (
        f"{path}: found {found}, expected the runs of a comparison, version 1. "
        "Fix: remove it, or name another folder with out."
    )
    assert path.read_text() == content


def test_the_record_is_json_that_others_can_read(whole: tuple[Path, dict[str, Any]]) -> None:
    out, report = whole
    written = json.loads((out / "compare.json").read_text())
    keys = {record["key"] for record in report["runs"]}
    assert (written["name"], written["version"]) == ("mercore-compare", 1)
    assert keys <= {record["key"] for record in written["runs"]}


def shows(png: bytes, colour: str) -> bool:
    """Whether a picture has pixels of a colour, but for rounding."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    red_green_blue = list(bytes.fromhex(colour.removeprefix("#")))
    return bool((np.abs(pixels - red_green_blue).max(axis=2) <= 2).sum() > 50)


def test_recall_is_drawn_against_rank_speed_and_bytes(whole: tuple[Path, dict[str, Any]]) -> None:
    out, report = whole
    files = ("compare.json", "recall.png", "recall.svg")
    assert report["written"] == [str(out / name) for name in files]
    drawn, text = (out / "recall.png").read_bytes(), (out / "recall.svg").read_text()
    assert [shows(drawn, colour) for colour in COLOURS[:4]] == [True, True, False, False]
    for label in ("rank R", "recall@R", "recall@10", "queries per second", "bytes per row"):
        assert f"<!-- {label} -->" in text
    assert f"<!-- {ROWS} rows, {QUERIES} queries" in text
    (panel, *_) = recall_panels(report["summary"], ROWS)
    for curve, entry in zip(panel.curves, report["summary"], strict=False):
        assert curve.speed == pytest.approx(1e9 / entry["search_ns_per_row_and_query"] / ROWS)
        assert curve.size == entry["bytes_per_row"]


def curve(means: list[float], label: str = "one", **options: Any) -> Curve:
    ranks = [1, 10, 100][: len(means)]
    return Curve(label=label, ranks=ranks, means=means, deviations=[0.05] * len(means), **options)


def test_an_axis_of_recall_begins_below_the_least_one() -> None:
    """The labels of the ticks, and all letters inside the picture."""
    label = "pca-pq:components=128,subquantizers=64,preprocessing=none, 1000 reranked (64 bytes)"
    for least, lowest in ((0.95, 0.895), (0.05, 0)):
        solid = curve([least, 0.99], label, speed=900.0)
        dashed = curve([least, 0.99], label, speed=90.0, dashed=True)
        svg = draw_recall([Panel(title="", curves=[solid, dashed])], "svg").decode()
        ticks = [float(tick) for tick in re.findall(r"<!-- ([01]\.\d+) -->", svg)]
        with in_case(least=least):
            assert lowest - 0.011 <= min(ticks) < (lowest + 1) / 2
            assert max(ticks) <= 1
            assert texts_outside(svg) == []


@pytest.mark.parametrize("form", ["png", "svg"])
@loop_over("panels", [1, 3])  # three leave a place of their grid empty
def test_the_same_curves_are_the_same_bytes(panels: int, form: str) -> None:
    lone = curve([0.2], "two" * 30, dashed=True)
    first, other = (
        [Panel(title=str(number), curves=[curve(means), lone]) for number in range(panels)]
        for means in ([0.2, 0.5, 0.9], [0.3, 0.5, 0.9])
    )
    drawn = draw_recall(first, form)
    assert len(drawn) > 10_000
    assert draw_recall(first, form) == drawn != draw_recall(other, form)
