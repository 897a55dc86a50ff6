"""``--transform auto``: what is chosen and printed, what is refused, and that a second run goes on
with the same choice."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from mercore.jobs import api
from mercore.pipeline.linear_map import LinearMap
from mercore.stores.errors import BudgetError, InputError
from tests.support.running import Outcome, files_of, histograms, invoke, succeed

ROWS, DIMS = 600, 16
ENCODER = ("--encoder", "klsh", "--bits", 24, "--landmarks", 40, "--subset", 8)
SPEC = "klsh:bits=24,landmarks=40,subset=8"
PARTS = ("--part-rows", 200, "--workers", 1)
AUTO = ("--kernel", "chi2", "--transform", "auto")
CHOSEN = re.compile(
    r"^chosen: --transform (\d); R@100 of 300 queries in a sample of 300 rows: "
    r"(0|1)\.\d{3} with 1(, (0|1)\.\d{3} with [3579]){4}$",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, queries, and hits."""
    folder = tmp_path_factory.mktemp("transform")
    np.save(folder / "base.npy", histograms(ROWS, DIMS, seed=1))
    np.save(folder / "queries.npy", histograms(5, DIMS, seed=2))
    np.savez(folder / "hits.npz", ids=np.zeros((5, 1), np.int64))
    succeed(f"ingest {folder}/base.npy {folder}/vectors")
    return folder


def encode(folder: Path, codes: Path, *options: object) -> Outcome:
    return invoke(f"encode {folder}/vectors {codes}", *AUTO, *ENCODER, *PARTS, *options)


def begun(folder: Path, codes: Path, scale: float) -> None:
    words = ("--kernel", "chi2", "--transform", scale, *ENCODER, *PARTS)
    succeed(f"encode {folder}/vectors {codes}", *words)


@pytest.mark.promise(
    "`--transform auto` takes the transform of the greatest recall on a sample; begun codes keep theirs"
)
def test_the_chosen_transform_is_that_of_the_store(folder: Path, tmp_path: Path) -> None:
    outcome = encode(folder, tmp_path / "codes", "--json")
    assert outcome.code == 0, outcome.err
    told = CHOSEN.search(outcome.err)
    assert told is not None, outcome.err
    scale = float(told[1])
    kernel = {"scale": scale, "kernel": {"name": "chi2", "configuration": {}}}
    expected = {"name": "transformed", "configuration": kernel}
    assert json.loads(outcome.out)["kernel"] == expected
    begun(folder, tmp_path / "given", scale)
    assert files_of(tmp_path / "codes") == files_of(tmp_path / "given")
    searched = json.loads(succeed(f"search {tmp_path}/codes {folder}/queries.npy -k 3 --json"))
    assert np.array(searched["ids"]).shape == (5, 3)


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choosing fails: what is refused is refused before, and begun codes keep their transform."""
    monkeypatch.setattr("mercore.jobs.verbs.choices.transform.choose_transform", None)


@pytest.mark.usefixtures("no_choice")
@pytest.mark.promise(
    "`--transform auto` takes the transform of the greatest recall on a sample; begun codes keep theirs"
)
def test_a_second_run_goes_on_with_the_transform_of_the_store(folder: Path, tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    begun(folder, codes, 2.5)
    whole = files_of(codes)
    next(codes.glob("receipts/c/1/0")).unlink()
    again = encode(folder, codes, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["parts_done_now"] == 1
    assert again.err.splitlines()[0] == (
        f"{codes} is begun with --transform 2.5: going on with that"
    )
    assert files_of(codes) == whole
    outcome = encode(folder, codes, "--random-state", 3)
    assert (outcome.code, outcome.out) == (2, "")
    assert "is another store: it differs in encoder random_state (0, not 3)" in outcome.err


@pytest.mark.usefixtures("no_choice")
class TestRefusedBeforeAnyChoice:
    """What would be refused of any transform is not measured first."""

    def test_other_stores_and_options_out_of_range(self, folder: Path, tmp_path: Path) -> None:
        plain, new = tmp_path / "plain", tmp_path / "new"
        succeed(f"encode {folder}/vectors {plain} --kernel chi2", *ENCODER, *PARTS)
        cases: list[tuple[Path, tuple[object, ...], str]] = [
            (folder / "vectors", (), "exists and is no code store: expected one that is begun"),
            (
                plain,
                (),
                "holds codes of kernel chi2 without a transform: expected codes that are begun with",
            ),
            (new, ("--part-rows", 0), "part_rows is out of range: found 0, expected 1 to 1048576"),
            (new, ("--landmarks", ROWS + 1), "landmarks is out of range: found 601"),
            (new / "x", (), f"there is no folder {new}"),
        ]
        for codes, options, message in cases:
            outcome = encode(folder, codes, *options)
            assert (outcome.code, outcome.out) == (2, "")
            assert message in outcome.err
        assert not new.exists()

    def test_rows_outside_of_the_domain(self, tmp_path: Path) -> None:
        rows = histograms(ROWS, DIMS, seed=1).astype(np.float32)
        rows[417, 3] = -1
        foreign = zarr.create_array(str(tmp_path / "foreign"), shape=rows.shape, dtype=rows.dtype)
        foreign[:] = rows
        for verb in (("encode",), ("plan", "encode")):
            outcome = invoke(*verb, tmp_path / "foreign", tmp_path / "codes", *AUTO, *ENCODER)
            assert outcome.code == 2
            assert "row 417 has a negative value" in outcome.err

    @pytest.mark.parametrize("encoder", ["bound", "kpca-bound", "bin-bound"])
    def test_bounds(self, folder: Path, tmp_path: Path, encoder: str) -> None:
        words = (folder / "vectors", tmp_path / "codes", *AUTO, "--encoder", encoder)
        outcome = invoke("encode", *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == (
            "mercore: --transform has no use here: bounds are the same under any transform. "
            "Fix: leave --transform out.\n"
        )

    def test_memory_that_does_not_suffice(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(
            BudgetError, match=r"^choosing a transform would take .* Fix: transform=1"
        ):
            api.encode(
                folder / "vectors",
                tmp_path / "codes",
                kernel="chi2",
                transform="auto",
                encoder=SPEC,
                memory="357MB",
            )


NEEDS_A_NUMBER = (
    "transform is 'auto': expected a number here, as only mercore encode chooses one. "
    "Fix: --transform 1, or leave --transform out."
)


def test_other_verbs_need_a_number(folder: Path) -> None:
    vectors, queries, hits = (folder / name for name in ("vectors", "queries.npy", "hits.npz"))
    for words in (
        (f"search {vectors} {queries} -k 3", *AUTO),
        (f"search {vectors} {queries} -k 3 --exact", *AUTO),
        (f"verify {vectors} {queries} {hits}", *AUTO),
        (f"evaluate {hits} {hits} --vectors {vectors} --queries {queries}", *AUTO),
        (f"compare {vectors} {queries}", *AUTO, "--encoder", SPEC),
    ):
        outcome = invoke(*words)
        assert (outcome.code, outcome.out) == (2, ""), words
        assert outcome.err == f"mercore: {NEEDS_A_NUMBER}\n"


def test_another_word_is_refused(folder: Path, tmp_path: Path) -> None:
    outcome = invoke(f"encode {folder}/vectors {tmp_path}/codes", *AUTO[:3], "best", *ENCODER)
    assert (outcome.code, outcome.out) == (2, "")
    assert "'best' is not a valid float" in outcome.err
    given: Any = {"kernel": "chi2", "transform": "best"}
    with pytest.raises(InputError, match=r"^transform is 'best': expected a number\. Fix: "):
        api.encode(folder / "vectors", tmp_path / "codes", **given)


def test_a_plan_chooses_and_writes_nothing(folder: Path, tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    outcome = invoke(f"plan encode {folder}/vectors {codes}", *AUTO, *ENCODER, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["rows"] == ROWS
    assert CHOSEN.search(outcome.err)
    assert not codes.exists()


def test_the_choice_under_a_linear_map_is_that_of_mapped_rows(folder: Path, tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).random((6, DIMS)).astype(np.float32)
    np.save(tmp_path / "map.npy", matrix)
    np.save(tmp_path / "mapped.npy", LinearMap(matrix, "").apply(np.load(folder / "base.npy")))
    succeed(f"ingest {tmp_path}/mapped.npy {tmp_path}/mapped")
    mapped = encode(folder, tmp_path / "codes", "--linear-map", tmp_path / "map.npy")
    copy = invoke(f"encode {tmp_path}/mapped {tmp_path}/other", *AUTO, *ENCODER, *PARTS)
    assert (mapped.code, copy.code) == (0, 0)
    assert mapped.err == copy.err
    assert CHOSEN.search(mapped.err)
