"""An encode without ``--encoder``: what is chosen and said, that begun codes keep their encoder, and
what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.jobs import api
from mercore.stores.errors import InputError
from tests.support.custom_kernels import INTERSECTION, returning, write
from tests.support.running import files_of, histograms, invoke, succeed

ROWS, DIMS = 300, 12
CHI2 = ("--kernel", "chi2")
SMALL = ("--components", 4, "--subquantizers", 2, "--training-rows", 256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of dense, sparse and few rows, and a custom kernel."""
    folder = tmp_path_factory.mktemp("chosen")
    rows = histograms(ROWS, DIMS, seed=1)
    sparse = np.zeros((ROWS, 8 * DIMS), rows.dtype)
    sparse[:, :DIMS] = rows
    for name, each in {"dense": rows, "sparse": sparse, "few": rows[:200]}.items():
        np.save(folder / f"{name}.npy", each)
        succeed(f"ingest {folder}/{name}.npy {folder}/{name}")
    write(folder, INTERSECTION)
    return folder


def about(codes: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(succeed("info", codes, "--json"))
    return found


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        ("dense", (*CHI2, *SMALL), "map-pq, as the kernel has a feature map"),
        (
            "dense",
            ("--kernel", "inner_product"),
            "pca-pq, as the kernel ranks by distances or products of rows",
        ),
        (
            "dense",
            ("--kernel", "mine.py", *SMALL),
            "kpca-pq, as no feature map of the kernel is known",
        ),
        ("dense", (*CHI2, "--landmarks", 8), "kpca-pq, as it has the option landmarks"),
        ("dense", (*CHI2, "--atoms", 8), "aska, as it has the option atoms"),
        ("sparse", CHI2, "aska, as rows are sparse: {}% of their numbers are not 0"),
        ("few", CHI2, "aska, as each of up to 256 rows is an atom"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.promise(
    "Without an encoder, `encode` takes the one that the guide's table says, and says why; begun codes keep theirs"
)
def test_the_choice_is_printed_and_reported(
    rows: str,
    words: tuple[object, ...],
    said: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    if "{}" in said:
        share = np.count_nonzero(np.load("sparse.npy")) / np.load("sparse.npy").size
        said = said.format(round(100 * share))
    outcome = invoke("encode", rows, tmp_path / "codes", *words, "--json")
    assert outcome.code == 0, outcome.err
    report, (name, why) = json.loads(outcome.out), said.split(", as ")
    assert outcome.err.count(f"encoder: {said}\n") == 1
    assert (report["encoder"]["name"], report["why"]) == (name, why)
    if "inner_product" in words:
        assert report["encoder"]["metric"] == "product"


def test_an_encoder_that_is_named_has_no_reason(folder: Path, tmp_path: Path) -> None:
    named = ("--encoder", "aska", "--atoms", 8)
    outcome = invoke(f"encode {folder}/dense {tmp_path}/codes", *CHI2, *named, "--json")
    assert "encoder:" not in outcome.err
    assert "why" not in json.loads(outcome.out)
    chosen = succeed(f"encode {folder}/dense {tmp_path}/chosen", *CHI2, "--atoms", 8)
    assert "aska" in chosen
    assert files_of(tmp_path / "chosen") == files_of(tmp_path / "codes")


@pytest.mark.parametrize(
    "encoder", ["aska:metric=distance", "klsh:bits=16,landmarks=32", "kpca-bound"]
)
@pytest.mark.promise(
    "Without an encoder, `encode` takes the one that the guide's table says, and says why; begun codes keep theirs"
)
def test_begun_codes_keep_their_encoder(encoder: str, folder: Path, tmp_path: Path) -> None:
    rows, codes = tmp_path / "rows", tmp_path / "codes"
    api.ingest(folder / "dense.npy", rows)
    made = api.encode(rows, codes, kernel="chi2", encoder=encoder, part_rows=100)
    whole = files_of(codes)
    next(codes.glob("receipts/c/1/0")).unlink()
    again = invoke(f"encode {rows} {codes} --part-rows 100 --json", *CHI2)
    assert again.code == 0, again.err
    assert f"{codes} is begun with {made['encoder']['name']}: going on with that\n" in again.err
    report = json.loads(again.out)
    assert (report["parts_done_now"], "why" in report) == (1, False)
    assert files_of(codes) == whole
    api.append(folder / "few.npy", rows)
    grown = api.encode(rows, codes, kernel="chi2")
    assert (grown["encoder"], grown["rows"]) == (made["encoder"], ROWS + 200)


def test_other_options_than_those_of_begun_codes_are_refused(folder: Path, tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    api.encode(folder / "dense", codes, kernel="chi2", encoder="aska:atoms=8")
    succeed(f"encode {folder}/dense {codes}", *CHI2, "--atoms", 8)
    for words, difference in (
        ((*CHI2, "--atoms", 9), "encoder n_atoms (8, not 9)"),
        ((*CHI2, "--random-state", 1), "encoder random_state (0, not 1)"),
        (("--kernel", "hellinger"), "kernel (chi2, not hellinger)"),
        ((*CHI2, *SMALL), "encoder name (aska, not map-pq)"),
        (("--kernel", "euclidean"), "encoder name (aska, not pca-pq)"),
    ):
        outcome = invoke(f"encode {folder}/dense {codes}", *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert f"mercore: {codes} is another store: it differs in " in outcome.err
        assert "going on" not in outcome.err
        assert difference in outcome.err


REFUSED: dict[tuple[object, ...], str] = {
    (*CHI2, "--bits", 64): (
        "no encoder is chosen for kernel chi2: found --bits of kpca-lsh, klsh, nystrom-lsh, rmmh, "
        "rff; expected options of one of map-pq, pca-pq, kpca-pq, aska. Fix: --encoder kpca-lsh."
    ),
    (*CHI2, "--atoms", 8, "--landmarks", 8): "Fix: --encoder kpca-aska.",
    (*CHI2, "--atoms", 8, "--bits", 8): "Fix: leave one of them out.",
    ("--kernel", "cosine", "--harmonics", 2): (
        "no encoder is chosen for kernel cosine: found --harmonics of map-pq; expected options of "
        "one of map-pq, pca-pq, kpca-pq, aska. Fix: leave --harmonics out."
    ),
    ("--kernel", "euclidean", "--atoms", 8): (
        "encoder aska needs a Mercer kernel with K(x, x) = 1: found kernel euclidean. Fix: "
        "--encoder pq, or"
    ),
}


@pytest.mark.parametrize("words", REFUSED, ids=str)
def test_options_of_no_encoder_are_refused(
    words: tuple[object, ...], folder: Path, tmp_path: Path
) -> None:
    for verb in ("encode", "plan encode"):
        outcome = invoke(f"{verb} {folder}/dense {tmp_path}/codes", *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert REFUSED[words] in outcome.err
        assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_no_encoder_serves_is_refused(folder: Path, tmp_path: Path) -> None:
    kernel = write(tmp_path, returning("np.minimum(x, y).sum()", semidefinite=False))
    with pytest.raises(InputError, match="has no codes or bounds"):
        api.encode(folder / "dense", tmp_path / "codes", kernel=kernel)


def test_a_plan_says_which_encoder_it_is_of(folder: Path, tmp_path: Path) -> None:
    outcome = invoke(f"plan encode {folder}/few {tmp_path}/codes", *CHI2)
    assert outcome.code == 0
    assert "encoder: aska, as each of up to 256 rows is an atom\n" in outcome.err


def test_a_transform_is_chosen_for_codes_that_it_changes(folder: Path, tmp_path: Path) -> None:
    size = ("--components", 4, "--subquantizers", 2, "--transform", "auto")
    outcome = invoke(f"encode {folder}/dense {tmp_path}/codes", *CHI2, *size)
    assert outcome.code == 0, outcome.err
    assert about(tmp_path / "codes")["encoder"]["name"] == "kpca-pq"
