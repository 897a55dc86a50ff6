"""The demonstration, the README's first command: small, from photographs to the page; and what it
refuses."""

import json
import re
from pathlib import Path

import pytest

from mercore.jobs.gallery import demo as demonstration
from tests.support.running import invoke, names_in, succeed

NEEDS_NONE = (
    "expected one of cosine, hellinger, chi2, intersection, jensen_shannon, exp_chi2, "
    "which need no parameter"
)


@pytest.mark.slow
def test_photographs_are_searched_and_shown(tmp_path: Path) -> None:
    report = json.loads(succeed(f"demo --out {tmp_path}/demo --tiles 3000 --json"))
    assert (report["tiles"], report["queries"]) == (3000, 500)
    assert report["encode"]["encoder"]["n_atoms"] == 750
    assert names_in(tmp_path / "demo") == "codes.zarr index.html queries.zarr vectors.zarr".split()
    recall = {
        way: {(row["definition"], row["rank"]): row["value"] for row in rows}
        for way, rows in report["recall"].items()
    }
    codes, reranked = recall["codes"], recall["codes, 500 reranked"]
    assert codes["texmex", 1] > 0.15
    assert codes["texmex", 100] > 0.7
    assert reranked["texmex", 1] > 0.9
    page = (tmp_path / "demo/index.html").read_text()
    assert len(re.findall("<img ", page)) == 24 * (1 + 2 * 5)
    by_codes, by_kernel = (re.findall(rf"<b>{way}</b> (\d) of 5<", page) for way in recall)
    assert (len(by_codes), len(by_kernel)) == (24, 24)
    assert sum(map(int, by_kernel)) > sum(map(int, by_codes))
    assert f"{reranked['texmex', 1]:.3f}" in page


@pytest.mark.parametrize(("tiles", "atoms"), [(500, 125), (3000, 750), (9000, 8192), (None, 8192)])
def test_atoms_are_as_many_as_the_tiles_allow(tiles: int | None, atoms: int) -> None:
    assert demonstration.chosen_spec("chi2", None, tiles).n_atoms == atoms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kernel", "foo"), f"unknown kernel: found 'foo', {NEEDS_NONE}. Fix: --kernel chi2"),
        (("--kernel", "rbf"), f"unknown kernel: found 'rbf', {NEEDS_NONE}. Fix: --kernel chi2"),
        (
            ("--kernel", "own.py"),
            f"unknown kernel: found 'own.py', {NEEDS_NONE}. Fix: --kernel chi2",
        ),
        (
            ("--atoms", 2001, "--tiles", 2000),
            "atoms is out of range: found 2001, expected 1 to 2000 rows in the store. Fix: "
            "--atoms 1024",
        ),
        (
            ("--tiles", 499, "--atoms", 9),
            "tiles is out of range: found 499, expected 500 to 1048576. Fix: leave --tiles out.",
        ),
    ],
)
def test_what_no_photograph_is_needed_for_is_refused_before_any_work(
    options: tuple[object, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercore.jobs.gallery.demo.load_sample_images", None)
    outcome = invoke(f"demo --out {tmp_path}/demo", *options)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"mercore: {message}\n")
    assert not (tmp_path / "demo").exists()
