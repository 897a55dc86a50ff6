"""What ``mercore submit`` refuses before it queues anything, and what it takes: jobs here are
queued, and never run."""

import re
import shutil
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from PIL import Image

from mercore.jobs.background import submit
from mercore.jobs.background.registry import DONE, FAILED, Job
from mercore.jobs.background.state_folder import FOLDER, open_state
from mercore.jobs.cli import main
from mercore.jobs.face.declaring import Call
from mercore.stores.codes import open_code_store
from tests.support.running import histograms, invoke, names_in, succeed

ROWS, DIMS = 600, 12
CHI2 = ("--kernel", "chi2")
ASKA = (*CHI2, "--encoder", "aska", "--atoms", 32, "--sparsity", 2, "--part-rows", 100)
PQ = (*CHI2, "--encoder", "kpca-pq", "--landmarks", 32, "--components", 8, "--subquantizers", 4)
BOUNDS = (*CHI2, "--encoder", "bin-bound", "--groups", 4)
COMPARE = (
    *CHI2,
    "--encoder",
    "kpca-pq:landmarks=32,components=8,subquantizers=4",
    "--ranks",
    "1,10",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and a store of each kind, queries and hits, and things that are none of them."""
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "base.npy", histograms(ROWS, DIMS, seed=1))
    np.save(folder / "q.npy", histograms(9, DIMS, seed=2))
    np.save(folder / "wide.npy", histograms(9, DIMS + 1, seed=2))
    np.save(folder / "negative.npy", -histograms(9, DIMS, seed=2).astype(np.float32))
    np.savez(folder / "hits.npz", ids=np.zeros((9, 5), np.int64))
    np.savez(folder / "few.npz", ids=np.zeros((8, 5), np.int64))
    np.save(folder / "ids.npy", np.tile(np.arange(5), (9, 1)))
    (folder / "images").mkdir()
    for query in range(9):
        Image.new("L", (8, 8)).save(folder / f"images/{query}.png")
    succeed(f"ingest {folder}/base.npy {folder}/base")
    succeed(f"encode {folder}/base {folder}/aska", *ASKA)
    succeed(f"encode {folder}/base {folder}/pq", *PQ)
    succeed(f"encode {folder}/base {folder}/bounds", *BOUNDS)
    return folder


@pytest.fixture
def folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with links to the data, in which commands run; nothing drains its
    queue."""
    work = tmp_path / "work"
    work.mkdir()
    for path in data.iterdir():
        (work / path.name).symlink_to(path)
    monkeypatch.chdir(work)
    monkeypatch.setenv(FOLDER, str(tmp_path / "state"))
    monkeypatch.setattr(submit, "start_runner", lambda folder: None)
    monkeypatch.setattr("mercore.jobs.background.control.start_runner", lambda folder: None)
    monkeypatch.setattr("mercore.jobs.background.runner.start_runner", lambda folder: None)
    monkeypatch.setattr("mercore.jobs.cli.start_runner_quietly", lambda: None)
    return work


def queued() -> list[Job]:
    """The jobs of the queue."""
    registry = open_state().registry()
    found = registry.jobs()
    registry.close()
    return found


def ended(job: str, state: str) -> None:
    """Write down that a job ended so, now."""
    registry = open_state().registry()
    registry.change(job, state=state, ended=time.time())
    registry.close()


REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "queries of another dimension": (
        ("search", "aska", "wide.npy", "-k", 3, "--out", "h.npz"),
        "wide.npy has d = 13: expected 12, the dimension of {}/aska. Fix: name queries of the "
        "same kind.",
    ),
    "queries of another dimension than vectors": (
        ("search", "base", "wide.npy", *CHI2, "--out", "h.npz"),
        "wide.npy has d = 13: expected 12, the dimension of {}/base. Fix: name queries of the "
        "same kind.",
    ),
    "a folder for hits that is missing": (
        ("search", "aska", "q.npy", "-k", 3, "--out", "no/h.npz"),
        "h.npz: the folder {}/no does not exist. Fix: create it, or name another path.",
    ),
    "a folder for proved hits that is missing": (
        ("search", "bounds", "q.npy", "-k", 3, "--exact", "--out", "no/h.npz"),
        "h.npz: the folder {}/no does not exist. Fix: create it, or name another path.",
    ),
    "a suffix of no hits": (
        ("search", "aska", "q.npy", "-k", 3, "--out", "h.txt"),
        "h.txt: unknown suffix '.txt' for hits, expected .ivecs .ibin .npy .npz .parquet .h5 "
        ".hdf5. Fix: name its format, as --hits-format ibin, or rename the file.",
    ),
    "a folder for vectors that is missing": (
        ("ingest", "base.npy", "no/x"),
        "cannot write {}/no/x: there is no folder {}/no. Fix: create it.",
    ),
    "vectors onto a store": (
        ("ingest", "base.npy", "base"),
        "base exists: expected a new path. Fix: name another, or remove it.",
    ),
    "a compressor of vectors": (
        ("ingest", "base.npy", "x", "--compressor", "rar"),
        "unknown compressor: found 'rar', expected one of none, zstd, blosc, gzip, lz4, bz2, "
        "lzma. Fix: --compr",
    ),
    "a compressor of codes": (
        ("encode", "base", "x", *ASKA, "--compressor", "rar"),
        "unknown compressor: found 'rar', expected one of none, zstd, blosc, gzip, lz4, bz2, "
        "lzma. Fix: --compr",
    ),
    "a folder for codes that is missing": (
        ("encode", "base", "no/x", *ASKA),
        "cannot write {}/no/x: there is no folder {}/no. Fix: create it.",
    ),
    "codes onto a file": (
        ("encode", "base", "q.npy", *ASKA),
        "q.npy exists and is no code store: expected one that is begun, or a new path. Fix: name "
        "another.",
    ),
    "codes onto those of another job": (
        ("encode", "base", "aska", *PQ),
        "aska is another store: it differs in ",
    ),
    "a folder for chosen bounds that is missing": (
        ("encode", "base", "no/x", *CHI2, "--encoder", "bound"),
        "cannot write {}/no/x: there is no folder {}/no. Fix: create it.",
    ),
    "chosen bounds onto codes": (
        ("encode", "base", "aska", *CHI2, "--encoder", "bound"),
        "aska holds codes of aska, which are no bounds: expected bounds that are begun, or a "
        "new path. Fix: ",
    ),
    "vectors to verify in that are missing": (
        ("verify", "no", "q.npy", "hits.npz", *CHI2),
        "no does not exist: expected a vector store. Fix: check the path, or mercore ingest "
        "SOURCE {}/no",
    ),
    "a linear map that is missing": (
        ("encode", "base", "new", *ASKA, "--linear-map", "no.npy"),
        "{}/no.npy: no such file",
    ),
    "a linear map of whole numbers": (
        ("encode", "base", "new", *ASKA, "--linear-map", "wide.npy"),
        "wide.npy: the numbers are uint8, expected float32 or float64.",
    ),
    "a kernel to verify by that is none": (
        ("verify", "base", "q.npy", "hits.npz", "--kernel", "chi3"),
        "unknown kernel",
    ),
    "threads to verify on": (
        ("verify", "base", "q.npy", "hits.npz", *CHI2, "--threads", 0),
        "threads is out of range: found 0, expected 1 to 4096. Fix: leave --threads out.",
    ),
    "more to verify than is claimed": (
        ("verify", "base", "q.npy", "hits.npz", *CHI2, "-k", 6),
        "k is out of range: found 6, expected 1 to 5, the ids per query in ",
    ),
    "hits of other queries": (
        ("verify", "base", "q.npy", "few.npz", *CHI2),
        "few.npz holds hits of 8 queries: expected 9, as ",
    ),
    "memory to verify in": (
        ("verify", "base", "q.npy", "hits.npz", *CHI2, "--memory", "1MB"),
        "searching would take ",
    ),
    "an encoder to compare that is none": (
        ("compare", "base", "q.npy", *CHI2, "--encoder", "asca"),
        "--encoder asca: unknown encoder 'asca', expected one of ",
    ),
    "a comparison kept in a store": (
        ("compare", "base", "q.npy", *COMPARE, "--out", "aska"),
        "aska holds a Zarr store: expected a folder for a comparison. Fix: name another with "
        "--out.",
    ),
    "memory to compare in": (
        ("compare", "base", "q.npy", *COMPARE, "--memory", "1MB"),
        "searching would take ",
    ),
    "a store to check that is missing": (
        ("check", "no"),
        "no does not exist: expected a store. Fix: check the path.",
    ),
    "what has nothing to check": (
        ("check", "q.npy"),
        "q.npy has no receipts to check against. Fix: ",
    ),
    "an index that exists": (
        ("export", "pq", "q.npy"),
        "q.npy exists: expected a new path. Fix: name another, or remove it.",
    ),
    "codes that no index holds": (
        ("export", "aska", "x"),
        "aska holds codes of aska: expected kpca-pq, map-pq, pca-pq or pq, which",
    ),
    "no file for hits": (
        ("search", "aska", "q.npy"),
        "a submitted search has no terminal to print to: expected --out. Fix: --out hits.npz",
    ),
    "rows that a second run would add twice": (
        ("append", "--again", "base.npy", "base"),
        "append --again cannot be queued: a job that is killed runs once more, and would add the "
        "rows twice. Fix: run mercore append --again itself.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.promise("`submit` refuses what could not run")
def test_what_could_not_run_is_refused_and_nothing_is_queued(case: str, folder: Path) -> None:
    words, message = REFUSED[case]
    before = names_in(folder)
    outcome = invoke("submit", *words)
    assert outcome.code in (1, 2)
    assert outcome.out == ""
    assert outcome.err.startswith("mercore: ")
    assert message.format(folder, folder) in outcome.err
    assert outcome.err.splitlines()[-1].count("Fix: ") == 1
    assert queued() == []
    assert names_in(folder) == before


@pytest.mark.parametrize(
    "words",
    [
        ("ingest", "base.npy", "new"),
        ("encode", "base", "new", *ASKA),
        ("encode", "base", "aska", *ASKA),
        ("encode", "base", "new", *CHI2, "--encoder", "bound"),
        ("encode", "base", "bounds", *CHI2, "--encoder", "bound"),
        ("encode", "base", "new", *PQ, "--transform", "auto"),
        ("search", "aska", "q.npy", "-k", 3, "--out", "new.npz"),
        ("verify", "base", "q.npy", "hits.npz", *CHI2, "--bounds", "bounds"),
        ("compare", "base", "q.npy", *COMPARE, "--out", "no/new"),
        ("check", "aska"),
        ("export", "pq", "new", "--queries", "q.npy", "--points", "points.npy"),
        ("evaluate", "ids.npy", "ids.npy", "--ranks", 1),
        ("gallery", "images", "images", "ids.npy", "--out", "new.html"),
        ("report", "aska", "--out", "new.html"),
    ],
)
def test_what_can_run_is_queued(words: tuple[object, ...], folder: Path) -> None:
    before = names_in(folder)
    succeed("submit", *words)
    assert len(queued()) == 1
    assert names_in(folder) == before


def test_what_a_job_before_it_writes_may_be_missing_but_nothing_else(folder: Path) -> None:
    succeed("submit ingest base.npy new")
    refused: list[tuple[tuple[object, ...], str]] = [
        (
            ("encode", "new", "no/x", *ASKA),
            "cannot write {}/no/x: there is no folder {}/no. Fix: create it.",
        ),
        (
            ("encode", "new", "q.npy", *ASKA),
            "q.npy exists and is no code store: expected one that is begun, or a new",
        ),
        (
            ("encode", "new", "x", *CHI2, "--landmarks", 4, "--atoms", 4),
            "no encoder is chosen: found --atoms of aska, kpca-aska, --landmarks of kpca-aska, ",
        ),
        (
            ("encode", "new", "x", *CHI2, "--encoder", "bound", "--atoms", 4),
            "--atoms has no use here: it belongs to ",
        ),
        (("encode", "new", "x", "--kernel", "chi3"), "unknown kernel"),
        (
            ("encode", "new", "x", *ASKA, "--compressor", "rar"),
            "unknown compressor: found 'rar', expected one of ",
        ),
        (
            ("search", "new", "q.npy", *CHI2, "--out", "h.txt"),
            "h.txt: unknown suffix '.txt' for hits, expected ",
        ),
        (
            ("search", "new", "nowhere.npy", *CHI2, "--out", "h.npz"),
            "nowhere.npy does not exist: expected a source of search. Fix: check the path.",
        ),
        (
            ("verify", "new", "q.npy", "nowhere.npz", *CHI2),
            "nowhere.npz does not exist: expected a source of verify.",
        ),
        (
            ("compare", "new", "q.npy", *COMPARE, "--out", "aska"),
            "aska holds a Zarr store: expected a folder for a ",
        ),
        (
            ("export", "new", "x", "--points", "p.npy"),
            "--queries and --points go together: found one of them.",
        ),
        (
            ("ingest", "new", "base"),
            "base exists: expected a new path. Fix: name another, or remove it.",
        ),
    ]
    for words, message in refused:
        outcome = invoke("submit", *words)
        assert (outcome.code > 0, outcome.out) == (True, ""), words
        assert message.format(folder, folder) in outcome.err
    assert len(queued()) == 1
    accepted: list[tuple[object, ...]] = [
        ("encode", "new", "codes", *ASKA),
        ("encode", "new", "chosen", *CHI2, "--encoder", "bound"),
        ("search", "codes", "q.npy", "-k", 3, "--rerank", 9, "--out", "h.npz"),
        ("verify", "new", "q.npy", "h.npz", *CHI2),
        ("compare", "new", "q.npy", *COMPARE),
        ("check", "codes"),
        ("export", "codes", "x"),
        ("evaluate", "h.npz", "ids.npy"),
        ("gallery", "images", "images", "h.npz", "--out", "new.html"),
        ("report", "codes", "--out", "other.html"),
    ]
    for words in accepted:
        succeed("submit", *words)
    assert len(queued()) == 1 + len(accepted)


def test_the_guide_lists_the_verbs_that_can_be_submitted() -> None:
    page = (Path(__file__).parents[3] / "notebooks/guide/jobs.md").read_text()
    listed = re.search(r"It takes (.*?) with all their options", page, re.DOTALL)
    assert listed is not None
    submitted = main.commands["submit"]
    assert isinstance(submitted, click.Group)
    assert re.findall(r"`(\w+)`", listed[1]) == list(submitted.commands)


def test_a_job_that_writes_nothing_leaves_others_checked(folder: Path) -> None:
    succeed("submit check aska")
    outcome = invoke("submit search nowhere q.npy --out h.npz")
    assert (outcome.code, outcome.out) == (2, "")
    assert "nowhere does not exist: expected a store. Fix: check the path." in outcome.err


@pytest.mark.parametrize(
    "spelling", ["{}/new", "../work/new", "./x/../new", "../link/new", "alias"]
)
def test_a_job_waits_for_what_is_spelled_otherwise(spelling: str, folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    (folder / "alias").symlink_to("new")
    succeed("submit ingest base.npy", spelling.format(folder) if spelling != "alias" else "new")
    succeed(f"submit encode {spelling.format(folder)} codes", *ASKA)
    ingest, encode = queued()
    assert ingest.target == str(folder / "new")
    assert encode.sources == [ingest.target]
    registry = open_state().registry()
    claimed = [registry.claim(), registry.claim()]
    registry.close()
    assert [job and job.id for job in claimed] == [ingest.id, None]


def test_a_job_goes_on_with_its_own_store(folder: Path) -> None:
    job = succeed("submit encode base codes", *ASKA).strip()
    again = invoke("submit encode base codes", *ASKA)
    assert again.err.startswith(f"{job} queued already: nothing was queued again: ")
    succeed("encode base codes", *ASKA)
    for part in range(3, 6):
        shutil.rmtree(folder / f"codes/receipts/c/{part}")
    assert open_code_store(folder / "codes").store.parts_done == 3
    ended(job, FAILED)
    assert "was failed: goes on: " in invoke("submit encode base codes", *ASKA).err
    ended(job, DONE)
    outcome = invoke("submit encode base codes", *ASKA)
    assert "was done: is checked, and what is missing or wrong done again: " in outcome.err
    assert queued()[0].state == "queued"


@pytest.mark.promise("Two jobs for one path are not queued, however they race")
def test_a_job_that_ends_while_another_is_submitted_is_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("search", "aska", "q.npy", "--out", "h.npz")
    first = succeed("submit", *words, "-k", 3).strip()

    opened = Call.task

    def look_and_let_the_first_end(call: Call[Any]) -> Any:
        task = opened(call)
        if not Path("h.npz").exists():
            shutil.copy("hits.npz", "h.npz")
            ended(first, DONE)
        return task

    monkeypatch.setattr(Call, "task", look_and_let_the_first_end)
    outcome = invoke("submit", *words, "-k", 4)
    assert (outcome.code, outcome.out, outcome.err) == (
        2,
        "",
        f"mercore: {folder}/h.npz exists: expected a new path. Fix: name another, or replace it "
        "with --force.\n",
    )
    assert [job.id for job in queued()] == [first]


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (("ingest", "base.npy", "x"), ("x",)),
        (("gallery", "images", "images", "ids.npy", "--out", "x.html"), ("x.html",)),
        (("export", "pq", "x", "--queries", "q.npy", "--points", "p.npy"), ("x", "p.npy")),
    ],
)
@pytest.mark.promise(
    "A job that is done stays done if it is resumed, and one without its source names what to resume first"
)
def test_what_is_written_once_stays_done(
    words: tuple[object, ...], written: tuple[str, ...], folder: Path
) -> None:
    job = succeed("submit", *words).strip()
    succeed(*words)
    ended(job, DONE)
    outcome = invoke("submit", *words)
    assert (outcome.code, outcome.out.strip()) == (0, job)
    assert outcome.err.startswith(f"{job} done already: nothing was queued again: ")
    outcome = invoke("resume", job)
    assert (outcome.code, outcome.err) == (0, f"{job} done\n")
    assert queued()[0].state == DONE
    for name in written:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "was done: " in invoke("submit", *words).err


def test_a_linear_map_is_a_source_with_a_whole_path(folder: Path) -> None:
    np.save("map.npy", np.eye(4, DIMS))
    succeed("submit encode base new", *ASKA, "--linear-map", "map.npy")
    (job,) = queued()
    assert job.options["linear_map"] == str(folder / "map.npy")
    assert str(folder / "map.npy") in job.sources


def test_a_number_that_is_not_finite_ends_in_one_paragraph(folder: Path) -> None:
    for words in (
        ("encode", "base", "x", "--kernel", "rbf", "--gamma", "nan"),
        ("compare", "base", "q.npy", *COMPARE),
    ):
        outcome = invoke("submit", *words, "--transform", "inf")
        assert (outcome.code, outcome.out) == (2, "")
    (folder / "job.toml").write_text(
        'verb = "encode"\nvectors = "base"\ncodes = "x"\nkernel = "rbf"\ngamma = nan\n'
    )
    outcome = invoke("submit", "job.toml")
    message = (
        "mercore: job.toml: gamma is nan, expected text or a finite number. Fix: correct it.\n"
    )
    assert (outcome.code, outcome.out, outcome.err) == (2, "", message)
    assert queued() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("search", "aska", "wide.npy", "-k", 3),
            "wide.npy has d = 13: expected 12, the dimension of aska. Fix: ",
        ),
        (
            ("search", "base", "wide.npy", *CHI2),
            "wide.npy has d = 13: expected 12, the dimension of base. Fix: ",
        ),
        (
            ("search", "aska", "q.npy", "--out", "h.txt"),
            "h.txt: unknown suffix '.txt' for hits, expected ",
        ),
        (
            ("search", "aska", "q.npy", "--out", "no/h.npz"),
            "no/h.npz: the folder no does not exist. Fix: create it",
        ),
        (
            ("encode", "base", "no/x", *ASKA),
            "cannot write no/x: there is no folder no. Fix: create it.",
        ),
        (
            ("encode", "base", "no/x", *CHI2, "--encoder", "bound"),
            "cannot write no/x: there is no folder no. Fix: ",
        ),
        (
            ("encode", "base", "x", *ASKA, "--compressor", "rar"),
            "unknown compressor: found 'rar', expected one of ",
        ),
    ],
)
def test_a_plan_refuses_what_the_verb_would(
    words: tuple[object, ...], message: str, folder: Path
) -> None:
    outcome = invoke("plan", *words)
    assert (outcome.code > 0, outcome.out) == (True, "")
    assert outcome.err.startswith(f"mercore: {message}")
