"""An exact search that is killed goes on behind its last batch, and writes the bytes that an
undisturbed one does."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.running import (
    Outcome,
    finish,
    histograms,
    invoke,
    kill_after,
    names_in,
    run,
    start,
    succeed,
    wait_until,
)
from tests.support.tiers import slow_then_soak

NQ, BATCH = 240, 3
OPTIONS = ("-k", 5, "--exact", "--batch", BATCH, "--threads", 2)
FILES = ["hits.npz", "hits.npz.certificate.npz"]


@pytest.fixture(scope="module")
def folder(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bounds, 300 queries, and the hits and certificate of a search that nothing
    disturbed."""
    folder = tmp_path_factory.mktemp("killed")
    np.save(folder / "queries.npy", histograms(NQ, 24, seed=5))
    bounds = ("--encoder", "kpca-bound", "--landmarks", 512, "--components", 64)
    succeed(f"encode {vectors} {folder}/bounds --kernel chi2", *bounds, "--part-rows", 500)
    (folder / "undisturbed").mkdir()
    succeed(*search(folder, folder / "undisturbed/hits.npz"))
    assert names_in(folder / "undisturbed") == FILES
    return folder


def search(folder: Path, out: Path, *options: object) -> list[object]:
    return ["search", folder / "bounds", folder / "queries.npy", *OPTIONS, "--out", out, *options]


def batches(out: Path) -> int:
    """How many batches are kept beside."""
    return sum(1 for _ in Path(f"{out}.parts").glob("batch-*.npz"))


def same(folder: Path, out: Path) -> bool:
    """Whether nothing but the undisturbed hits and certificate lie where hits are written."""
    return names_in(out.parent) == FILES and all(
        (out.parent / name).read_bytes() == (folder / "undisturbed" / name).read_bytes()
        for name in FILES
    )


def stopped(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Search to the end of the last batch, and be interrupted there."""

    def interrupt(*arguments: object, **keywords: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mercore.jobs.verbs.searches.task.write_hits", interrupt)
        return invoke(*search(folder, out))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", slow_then_soak([3, 10]))
@pytest.mark.promise("A killed exact search resumes to the same hits and certificate")
def test_kills_at_random_moments_leave_the_undisturbed_hits_and_certificate(
    kills: int, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "hits.npz"
    rng = np.random.default_rng(6)
    done: list[int] = []
    for _ in range(kills):
        process = start(*search(folder, out))
        wanted = batches(out) + int(rng.integers(1, 6))
        wait_until(lambda wanted=wanted: batches(out) >= wanted, process)  # type: ignore[misc]
        kill_after(process, int(rng.integers(0, 4_000)))
        assert not out.exists()
        done.append(batches(out))
    assert all(
        before < after < NQ // BATCH for before, after in zip([0, *done], done, strict=False)
    ), done
    last = run(*search(folder, out))
    assert last.code == 0, last.err
    assert same(folder, out)


@pytest.mark.slow
def test_killed_once_the_hits_are_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "hits.npz"
    stopped(folder, out, monkeypatch)
    process = start(*search(folder, out))
    wait_until(out.exists, process)
    process.kill()  # while the certificate is written or the batches are removed
    finish(process)
    for name in FILES:
        (tmp_path / f".{name}.4242-01234567.tmp").write_bytes(
            b"what a kill in the midst of it leaves"
        )
    unfinished = (tmp_path / "hits.npz.parts").exists()
    for force in ((), ("--force",)) if unfinished else (("--force",),):
        succeed(*search(folder, out, *force))
        assert same(folder, out), names_in(tmp_path)


def test_an_interrupted_search_keeps_every_batch(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "hits.npz"
    outcome = stopped(folder, out, monkeypatch)
    assert (outcome.code, outcome.out) == (130, "")
    assert names_in(tmp_path) == ["hits.npz.parts"]
    assert batches(out) == NQ // BATCH
    with monkeypatch.context() as patch:
        patch.setattr(
            "mercore.pipeline.search.exact.ExactSearch.prove",
            lambda *arguments: pytest.fail("it searched again"),
        )
        succeed(*search(folder, out))
    assert same(folder, out)


@pytest.mark.promise("A killed exact search resumes to the same hits and certificate")
def test_damaged_missing_and_misplaced_batches_are_done_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "hits.npz"
    stopped(folder, out, monkeypatch)
    kept = sorted((tmp_path / "hits.npz.parts").glob("batch-*.npz"))
    rng = np.random.default_rng(7)
    for path in kept[:40:2]:
        data = bytearray(path.read_bytes())
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
    kept[50].unlink()
    kept[51].write_bytes(kept[52].read_bytes())
    kept[53].write_bytes(kept[53].read_bytes()[:100])
    succeed(*search(folder, out))
    assert same(folder, out)


@pytest.mark.parametrize(
    ("differs", "change"),
    [
        ("k (5, not 4)", ("-k", 4)),
        ("batch (3, not 4)", ("--batch", 4)),
        ("exact (True, not False), relaxed (None, not 0.5)", ("--relaxed", 0.5)),
        ("queries", ()),
    ],
)
def test_batches_of_another_search_are_refused_and_stay(
    differs: str,
    change: tuple[object, ...],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "hits.npz"
    stopped(folder, out, monkeypatch)
    words = search(folder, out, *change)
    if "--relaxed" in change:
        words.remove("--exact")
    if differs == "queries":
        queries = np.load(folder / "queries.npy")
        queries[2, 0] += 1  # one that no sample of the rows need hold
        np.save(tmp_path / "queries.npy", queries)
        words[2] = tmp_path / "queries.npy"
    outcome = invoke(*words)
    message = (
        f"{out}.parts keeps the batches of another search, which differs in {differs}: expected "
        "those of this one. "
        "Fix: remove the folder, or name another --out."
    )
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"mercore: {message}\n")
    assert batches(out) == NQ // BATCH
    assert not out.exists()


def test_a_folder_of_somebody_else_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "hits.npz"
    (tmp_path / "hits.npz.parts").mkdir()
    (tmp_path / "hits.npz.parts/thesis.txt").write_text("mine")
    outcome = invoke(*search(folder, out))
    message = (
        f"{out}.parts exists without a search.json: expected the batches of this search, or "
        "nothing. "
        "Fix: move it away, or name another --out."
    )
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"mercore: {message}\n")
    assert (tmp_path / "hits.npz.parts/thesis.txt").read_text() == "mine"
    assert not out.exists()
