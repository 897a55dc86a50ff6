"""The real command compares encoders: what it prints is what encode, search and evaluate print one
after another."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.support.running import names_in, run, succeed

ENCODERS = {
    "aska": ("--atoms", 64, "--sparsity", 8),
    "kpca-pq": ("--landmarks", 64, "--components", 16, "--subquantizers", 8),
}
WORDS = ("--kernel", "chi2", "--operations", 8, "--ranks", "1,10", "--threads", 2)
SPECS = ("--encoder", "aska:atoms=64", "--encoder", "kpca-pq:landmarks=64,components=16")


@pytest.mark.slow
@pytest.mark.promise("`compare` gives the recall of encode, search and evaluate done by hand")
def test_compare_resumes_and_agrees_with_the_single_verbs(
    data: Path, vectors: Path, tmp_path: Path
) -> None:
    queries, out = data / "queries.npy", tmp_path / "out"
    first = run(f"compare {vectors} {queries}", *WORDS, *SPECS, "--out", out)
    assert first.code == 0, first.err
    assert first.out.splitlines()[0] == "chi2: 3,000 rows, 12 queries, k = 10"
    (truth,) = out.glob("truth-*.npz")
    assert names_in(out) == ["compare.json", "recall.png", "recall.svg", truth.name]
    assert Image.open(out / "recall.png").size > (400, 400)

    again = run(f"compare {vectors} {queries}", *WORDS, *SPECS, "--out", out, "--json")
    report = json.loads(again.out)
    assert again.err.count("recorded before") == len(report["runs"]) == 2
    for record in report["runs"]:
        codes, hits = tmp_path / record["label"], tmp_path / f"{record['label']}.npz"
        succeed(
            f"encode {vectors} {codes} --kernel chi2 --encoder {record['label']}",
            *ENCODERS[record["label"]],
        )
        succeed(f"search {codes} {queries} -k 10 --out {hits} --force")
        expected = json.loads(succeed(f"evaluate {hits} {truth} --ranks 1,2,5,10 --json"))["recall"]
        assert record["search"]["recall"] == expected
    for line, entry in zip(first.out.splitlines()[2:], report["summary"], strict=True):
        shown = [f"{entry['recall_mean'][entry['ranks'].index(rank)]:.3f}" for rank in (1, 10)]
        assert line.split()[:4] == [entry["encoder"], str(entry["bytes_per_row"]), *shown]


def test_a_wrong_encoder_ends_in_one_paragraph(data: Path, vectors: Path) -> None:
    outcome = run(f"compare {vectors} {data}/queries.npy --kernel chi2 --encoder aska:atoms=x")
    message = (
        "mercore: --encoder aska:atoms=x: atoms is 'x', expected a whole number. Fix: "
        "leave it out.\n"
    )
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message)
