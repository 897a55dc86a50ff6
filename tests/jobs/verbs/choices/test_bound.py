"""``--encoder bound``: what is chosen and said, what is refused, and that a second run goes on with
the same choice."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from mercore.jobs.encoder_options import CHOOSE, option_names, spec_of_options, users_of
from mercore.pipeline.encoders import ENCODERS
from tests.support.running import Outcome, histograms, invoke, succeed

ROWS, DIMS = 600, 16
TITLE = "expected cost of exact searches for 10 neighbours in batches of 100 queries:"
CHI2 = ("--kernel", "chi2", "--encoder", CHOOSE)
HEADINGS = "bound size bytes per row rows scored ns per row and query"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, and queries."""
    folder = tmp_path_factory.mktemp("bound")
    np.save(folder / "base.npy", histograms(ROWS, DIMS, seed=1))
    np.save(folder / "queries.npy", histograms(5, DIMS, seed=2))
    succeed(f"ingest {folder}/base.npy {folder}/vectors")
    return folder


def choose(folder: Path, codes: Path, kernel: str, *options: object) -> Outcome:
    words = ("--kernel", kernel, "--encoder", CHOOSE, "--part-rows", 200, "--workers", 1)
    return invoke(f"encode {folder}/vectors {codes}", *words, *options)


def encode(folder: Path, codes: Path, kernel: str, *options: object) -> Outcome:
    """Bounds of so few rows cost more than they save, so they are forced."""
    return choose(folder, codes, kernel, "--force", *options)


def told(outcome: Outcome) -> list[list[str]]:
    """The words of each row of the table on stderr."""
    lines = [" ".join(line.split()) for line in outcome.err.splitlines()]
    assert lines[lines.index(HEADINGS) - 1] == TITLE
    at = lines.index(HEADINGS)
    return [line.split() for line in lines[at + 1 :] if re.match(r"(kpca|bin)-bound ", line)]


def about(codes: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(succeed("info", codes, "--json"))
    return found


def test_the_choice_is_no_encoder() -> None:
    assert CHOOSE not in ENCODERS
    with pytest.raises(KeyError):
        spec_of_options(CHOOSE, {})


@pytest.mark.parametrize(
    ("kernel", "name"), [("intersection", "bin-bound"), ("cosine", "kpca-bound")]
)
def test_the_cheapest_is_encoded_and_all_are_told(
    folder: Path, tmp_path: Path, kernel: str, name: str
) -> None:
    outcome = encode(folder, tmp_path / "codes", kernel, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["encoder"]["name"] == name  # stdout is data alone
    table = told(outcome)
    assert table[0][0] == name
    assert {words[0] for words in table} == (
        {"kpca-bound", "bin-bound"} if name == "bin-bound" else {"kpca-bound"}
    )
    costs = [float(words[-1]) for words in table]
    assert costs == sorted(costs)
    size = about(tmp_path / "codes")["encoder"][
        "n_groups" if name == "bin-bound" else "n_components"
    ]
    assert table[0][1] == str(size)
    assert [int(words[2]) - int(words[1]) for words in table] == [
        6 if "bin" in words[0] else 10 for words in table
    ]


@pytest.mark.parametrize("verb", [("encode",), ("plan", "encode")], ids=" ".join)
def test_nothing_is_made_where_every_row_is_cheaper(
    verb: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    vectors, codes = folder / "vectors", tmp_path / "codes"
    words = ("--kernel", "rbf", "--gamma", 0.01, "--encoder", CHOOSE)
    outcome = invoke(*verb, vectors, codes, *words)
    assert (outcome.code, outcome.out) == (1, "")
    assert list(tmp_path.iterdir()) == []
    lines = [" ".join(line.split()) for line in outcome.err.splitlines()]
    table = lines[lines.index(HEADINGS) + 1 : -1]
    costs = [float(line.split()[-1]) for line in table if line]
    assert costs == sorted(costs)
    assert table[0].startswith("every row 100% ")
    assert (
        f"mercore: scoring every row of {vectors} under kernel rbf is cheaper than any" in lines[-1]
    )
    command = f"mercore search {vectors} QUERIES --kernel rbf --gamma 0.01 --exact"
    assert lines[-1].endswith(f"Nothing was made. Fix: {command}, or encode with --force.")
    typed = command.replace("QUERIES", str(folder / "queries.npy")).split()
    succeed(*typed[1:], "-k", 3)


def test_force_belongs_to_the_choice(folder: Path, tmp_path: Path) -> None:
    words = ("--kernel", "chi2", "--encoder", "kpca-bound", "--force")
    outcome = invoke(f"encode {folder}/vectors {tmp_path}/codes", *words)
    assert outcome.code == 2
    assert "--force has no use here: it is for --encoder bound" in outcome.err


def test_a_second_run_goes_on_with_the_same_choice(folder: Path, tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    first = encode(folder, codes, "intersection", "--json")
    assert json.loads(first.out)["parts_done_now"] == 3
    again = encode(folder, codes, "intersection", "--json")
    assert json.loads(again.out)["parts_done_now"] == 0
    assert told(first)[0][0] == "bin-bound"
    assert again.err.splitlines()[0] == f"{codes} is begun with bin-bound: going on with that"
    assert HEADINGS not in " ".join(again.err.split())
    next(codes.glob("receipts/c/1/0")).unlink()
    mended = encode(folder, codes, "intersection", "--json")
    assert json.loads(mended.out)["parts_done_now"] == 1
    assert "doing part 1 again" not in mended.err  # it was never done, for all that is known
    succeed("check", codes)


def test_the_seed_is_that_of_the_choice_and_of_what_is_chosen(folder: Path, tmp_path: Path) -> None:
    assert encode(folder, tmp_path / "codes", "intersection", "--random-state", 7).code == 0
    assert about(tmp_path / "codes")["encoder"]["random_state"] == 7


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choosing fails: what is refused is refused before."""
    monkeypatch.setattr("mercore.jobs.verbs.choices.bound.choose_bound", None)


@pytest.mark.usefixtures("no_choice")
class TestRefusedBeforeAnyChoice:
    """What would be refused of any bound is not measured first."""

    def test_rows_outside_of_the_domain(self, tmp_path: Path) -> None:
        rows = histograms(ROWS, DIMS, seed=1).astype(np.float32)
        rows[417, 3] = -1
        np.save(tmp_path / "base.npy", rows)
        succeed(f"ingest {tmp_path}/base.npy {tmp_path}/vectors")
        outcome = encode(tmp_path, tmp_path / "codes", "chi2")
        assert (outcome.code, outcome.out) == (2, "")
        assert "holds 1 row with negative values: kernel chi2 does not take them" in outcome.err
        foreign = zarr.create_array(
            str(tmp_path / "foreign.zarr"), shape=rows.shape, dtype=rows.dtype
        )
        foreign[:] = rows
        for verb in (("encode",), ("plan", "encode")):
            outcome = invoke(*verb, tmp_path / "foreign.zarr", tmp_path / "codes", *CHI2)
            assert outcome.code == 2
            assert "row 417 has a negative value" in outcome.err

    def test_places_where_no_store_can_be_made(self, folder: Path, tmp_path: Path) -> None:
        outcome = encode(folder, tmp_path / "no" / "codes", "chi2")
        assert (outcome.code, outcome.out) == (2, "")
        assert f"there is no folder {tmp_path / 'no'}" in outcome.err
        (tmp_path / "empty").mkdir()
        outcome = encode(folder, tmp_path / "empty", "chi2")
        assert (outcome.code, outcome.out) == (2, "")
        assert f"{tmp_path / 'empty'} exists" in outcome.err
        (tmp_path / "notes").write_text("kept")
        outcome = encode(folder, tmp_path / "notes", "chi2")
        assert (outcome.code, outcome.out) == (2, "")
        assert (
            "exists and is no code store: expected one that is begun, or a new path" in outcome.err
        )
        assert (tmp_path / "notes").read_text() == "kept"

    def test_other_stores_and_parts_out_of_range(self, folder: Path, tmp_path: Path) -> None:
        small = ("--landmarks", 8, "--components", 4)
        succeed(f"encode {folder}/vectors {tmp_path}/kpca --kernel chi2 --encoder kpca", *small)
        new = tmp_path / "new"
        for codes, options, code, said in (
            (
                folder / "vectors",
                (),
                2,
                "exists and is no code store: expected one that is begun, or a new path",
            ),
            (
                tmp_path / "kpca",
                (),
                2,
                "holds codes of kpca, which are no bounds: expected bounds that are begun",
            ),
            (
                new,
                ("--part-rows", 0),
                2,
                "part_rows is out of range: found 0, expected 1 to 1048576",
            ),
            (new, ("--compressor", "zip"), 2, "unknown compressor: found 'zip'"),
        ):
            outcome = invoke(f"encode {folder}/vectors {codes}", *CHI2, *options)
            assert (outcome.code, outcome.out) == (code, ""), outcome.err
            assert said in outcome.err
        assert not new.exists()

    def test_bounds_that_are_begun_are_those_of_their_kernel_and_seed(
        self, folder: Path, tmp_path: Path
    ) -> None:
        bounds, small = tmp_path / "bounds", ("--landmarks", 8, "--components", 4)
        words = ("--encoder", "kpca-bound", *small, "--part-rows", 200)
        succeed(f"encode {folder}/vectors {bounds} --kernel chi2", *words)
        assert encode(folder, bounds, "chi2").code == 0
        for kernel, options, differs in (
            ("cosine", (), "kernel ("),
            ("chi2", ("--random-state", 3), "encoder random_state (0, not 3)"),
        ):
            outcome = encode(folder, bounds, kernel, *options)
            assert (outcome.code, outcome.out) == (2, "")
            assert f"is another store: it differs in {differs}" in outcome.err


GIVEN = {"weights": "int8", "pursuit": "omp", "metric": "distance", "quantizer": "rq"}
GIVEN |= {"preprocessing": "none", "proof": "none", "length": "own", "dictionary": "rows"}


@pytest.mark.parametrize(
    "option", [option for option in option_names() if option != "random_state"]
)
def test_options_that_say_what_is_to_be_chosen_are_refused(
    folder: Path, tmp_path: Path, option: str
) -> None:
    users = ", ".join(users_of(option))
    shown = "--" + option.replace("_", "-")
    outcome = encode(folder, tmp_path / "codes", "chi2", shown, GIVEN.get(option, 4))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"mercore: {shown} has no use here: it belongs to {users}, found --encoder bound. Fix: "
        f"leave {shown} out.\n"
    )
    assert not (tmp_path / "codes").exists()


def test_bounds_that_fail_are_warned_of_and_searches_score_every_row(
    folder: Path, tmp_path: Path
) -> None:
    codes, vectors = tmp_path / "codes", folder / "vectors"
    outcome = encode(folder, codes, "rbf", "--gamma", 0.01)
    assert outcome.code == 0
    said = " ".join(outcome.err.split())
    assert re.search(
        rf"scoring every row of {vectors} under kernel rbf is cheaper than any bound: it takes "
        r"\d+\.\d ns per row and query, and the best bound, which leaves \d+\.\d% of the rows, "
        r"\d+\.\d\. The bound is made all the same, because of --force\.",
        said,
    )
    searched = invoke(f"search {codes} {folder}/queries.npy -k 3 --exact --json")
    assert searched.code == 0
    report = json.loads(searched.out)
    assert report["queries_by_every_row"] == 5
    assert f"the bounds of {codes} ruled out too few rows for 5 of 5 queries" in searched.err
    truth = json.loads(
        succeed(f"search {vectors} {folder}/queries.npy -k 3 --kernel rbf --gamma 0.01 --json")
    )
    assert report["ids"] == truth["ids"]


def test_bounds_that_hold_are_made_without_a_word(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercore.jobs.verbs.choices.bound.every_row", lambda search: 1e9)
    outcome = choose(folder, tmp_path / "codes", "hellinger")
    assert outcome.code == 0, outcome.err
    assert "cheaper" not in outcome.err


def test_a_store_of_one_row_has_a_bound(tmp_path: Path) -> None:
    np.save(tmp_path / "base.npy", histograms(1, DIMS, seed=3))
    succeed(f"ingest {tmp_path}/base.npy {tmp_path}/vectors")
    assert encode(tmp_path, tmp_path / "codes", "intersection").code == 0
    found = json.loads(succeed(f"search {tmp_path}/codes {tmp_path}/base.npy -k 1 --exact --json"))
    assert found["ids"] == [[0]]
