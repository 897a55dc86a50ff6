"""What the command makes of streams that are closed or full, empty words, and files that it reads
itself."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.custom_kernels import INTERSECTION, write
from tests.support.running import command, histograms, invoke, run, start, succeed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors, queries (as big-ann's file too, and too wide ones), codes and
    bounds."""
    folder = tmp_path_factory.mktemp("streams")
    np.save(folder / "base.npy", histograms(300, 16, seed=1))
    queries = histograms(4, 16, seed=2)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "wide.npy", np.hstack([queries, queries]))
    header = np.array(queries.shape, np.uint32)
    (folder / "queries.fbin").write_bytes(header.tobytes() + queries.astype(np.float32).tobytes())
    (folder / "queries.ibin").write_bytes(header.tobytes() + queries.astype(np.int32).tobytes())
    succeed(f"ingest {folder}/base.npy {folder}/vectors")
    for store, options in (
        ("codes", "--atoms 32 --sparsity 2"),
        ("bounds", "--encoder bin-bound --groups 8"),
    ):
        words = (f"encode {folder}/vectors {folder}/{store} --kernel chi2",)
        succeed(*words, *options.split())
    return folder


def search(folder: Path, *options: object, store: str = "codes") -> list[object]:
    """Return the words that search a store for three neighbours per query."""
    return ["search", folder / store, folder / "queries.npy", "-k", 3, *options]


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.promise("Exit code 141: the reader of stdout closed it")
def test_a_reader_that_leaves_is_no_error(unbuffered: str, folder: Path) -> None:
    words = search(folder, "-k", 300)
    environment = {"PYTHONUNBUFFERED": unbuffered}
    with start(*words, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before anything is printed, as a quick head does
        err = process.stderr.read()
    assert (process.returncode, err) == (141, "")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_stdout_is_said_in_one_paragraph(unbuffered: str, folder: Path) -> None:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    for words, fix in (
        (("info", folder / "codes"), "free space."),
        (search(folder, "--json"), "free space, or use --out."),
    ):
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(
                command(*words),
                stdout=full,
                stderr=subprocess.PIPE,
                env=environment,
                text=True,
                check=False,
            )
        assert ended.returncode == 1
        assert ended.stderr.splitlines()[-1] == (
            f"mercore: cannot write the answer: No space left on device. Fix: {fix}"
        )
        assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.promise("stdout holds data only")
def test_a_closed_stderr_costs_no_answer(folder: Path) -> None:
    words = search(folder)
    closed = run(*words, preexec_fn=lambda: os.close(2))
    assert (closed.code, closed.out) == (0, succeed(*words))


@pytest.mark.parametrize("word", ["", "--out="])
def test_an_empty_word_is_refused(word: str, folder: Path) -> None:
    outcome = invoke(*search(folder, *([] if word else ["--out"]), word))
    assert (outcome.code, outcome.out) == (2, "")
    assert "a word of the command is empty" in outcome.err


@pytest.mark.parametrize(
    "words", [("search", "--relaxed"), ("encode", "--gamma"), ("encode", "--transform")]
)
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_numbers_are_finite(words: tuple[str, str], number: str, folder: Path) -> None:
    verb, option = words
    rest = (folder / "queries.npy",) if verb == "search" else (folder / "new", "--kernel", "rbf")
    outcome = invoke(verb, folder / "vectors", *rest, option, number)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"'{number}' is not a finite number" in outcome.err


@pytest.mark.parametrize("count", ["0", "5000", str(10**27)])
def test_as_many_threads_as_nothing_has_are_refused(count: str, folder: Path) -> None:
    for option in ("--threads", "--processes"):
        outcome = invoke(*search(folder, option, count))
        assert (outcome.code, outcome.out) == (2, "")


def test_hits_do_not_replace_the_queries(folder: Path, tmp_path: Path) -> None:
    queries, link = tmp_path / "queries.ibin", tmp_path / "link.ibin"
    queries.write_bytes((folder / "queries.ibin").read_bytes())
    link.symlink_to(queries)
    for store, options in (
        ("codes", ()),
        ("bounds", ("--exact",)),
        ("vectors", ("--kernel", "chi2")),
    ):
        for out in (queries, link):
            outcome = invoke(
                f"search {folder}/{store} {queries} -k 3", *options, "--out", out, "--force"
            )
            assert (outcome.code, outcome.out) == (2, "")
            assert outcome.err == (
                f"mercore: {out} is an input of this search: its hits would replace it. Fix: "
                "name another path.\n"
            )
    assert queries.read_bytes() == (folder / "queries.ibin").read_bytes()


@pytest.mark.promise("A certificate does not outlive its hits")
def test_a_certificate_does_not_outlive_its_hits(folder: Path, tmp_path: Path) -> None:
    out, certificate = tmp_path / "hits.ivecs", tmp_path / "hits.ivecs.certificate.npz"
    succeed(*search(folder, "--exact", "--out", out, store="bounds"))
    proof = certificate.read_bytes()
    succeed(*search(folder, "--out", tmp_path / "hits.parquet"))
    assert certificate.read_bytes() == proof  # those hits replaced none
    succeed(*search(folder, "--out", out, "--force"))
    assert not certificate.exists()


def test_hits_are_not_scored_by_queries_of_another_dimension(folder: Path, tmp_path: Path) -> None:
    succeed(*search(folder, "--out", tmp_path / "hits.npz"))
    scored = ("--vectors", folder / "vectors", "--queries", folder / "wide.npy", "--kernel", "chi2")
    outcome = invoke(f"evaluate {tmp_path}/hits.npz {tmp_path}/hits.npz", *scored)
    assert (outcome.code, outcome.out) == (2, "")
    assert "wide.npy has d = 32: expected 16" in outcome.err


@pytest.mark.slow
@pytest.mark.promise("stdout holds data only")
def test_what_a_kernel_prints_is_no_part_of_the_answer(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, f"print('mine')\n{INTERSECTION}")
    words = search(folder, "--kernel", tmp_path / "mine.py", "--json", store="vectors")
    outcome = run(*words)
    assert (outcome.code, outcome.err) == (0, "mine\n")
    assert np.array(json.loads(outcome.out)["ids"]).shape == (4, 3)
    write(tmp_path, "raise SystemExit(3)\n")
    outcome = run(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert "mine.py does not run: SystemExit: 3. Fix" in outcome.err


def test_a_table_that_is_drawn_anew_is_no_json() -> None:
    outcome = invoke("jobs --watch --json")
    assert (outcome.code, outcome.out) == (2, "")
