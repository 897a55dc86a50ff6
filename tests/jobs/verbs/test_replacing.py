"""No verb replaces a file without --force; what is unfinished goes on without it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.jobs.background.state_folder import FOLDER
from mercore.stores.errors import ExistsError
from tests.support.running import files_of, histograms, invoke, names_in, succeed

CHI2 = ("--kernel", "chi2")
PQ = (*CHI2, "--encoder", "kpca-pq", "--landmarks", 32, "--components", 8, "--subquantizers", 4)
SPEC = ("--encoder", "kpca-pq:landmarks=32,components=8,subquantizers=4", "--ranks", "1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, codes and queries."""
    folder = tmp_path_factory.mktemp("data")
    np.save(folder / "base.npy", histograms(400, 12, seed=1))
    np.save(folder / "q.npy", histograms(9, 12, seed=2))
    succeed(f"ingest {folder}/base.npy {folder}/base")
    succeed(f"encode {folder}/base {folder}/pq", *PQ)
    return folder


def refused(path: Path, *words: object) -> None:
    """Run a verb; it must refuse to replace a file, and leave the folder as it is."""
    before = files_of(path.parent)
    outcome = invoke(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{path} exists" in outcome.err
    assert "--force" in outcome.err or "name another" in outcome.err
    assert files_of(path.parent) == before


@pytest.mark.parametrize("suffix", ["npz", "ivecs", "npy", "h5"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.promise("A file that exists is not replaced without `--force`")
def test_hits(suffix: str, exact: bool, data: Path, tmp_path: Path) -> None:
    out = tmp_path / f"hits.{suffix}"
    options = ("--exact",) * exact
    words = (f"search {data}/base {data}/q.npy", *CHI2, "-k", 3, "--out", out, *options)
    succeed(*words)
    refused(out, *words)
    assert mercore.evaluate(out, out)["queries"] == 9
    succeed(*words, "--force")
    assert invoke(f"search {data}/pq {data}/q.npy --force").code == 2  # no file is written


def test_hits_from_python(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "hits.npz"
    options: dict[str, Any] = {"kernel": "chi2", "k": 2, "out": out}
    mercore.search(data / "base", data / "q.npy", **options)
    with pytest.raises(ExistsError, match="exists: expected a new path"):
        mercore.search(data / "base", data / "q.npy", **options)
    _, hits = mercore.search(data / "base", data / "q.npy", **options, force=True)
    report = mercore.verify(data / "base", data / "q.npy", hits.ids.tolist(), kernel="chi2")
    assert report["proved"] == 9


@pytest.mark.promise("A file that exists is not replaced without `--force`")
def test_an_index_and_points(data: Path, tmp_path: Path) -> None:
    index, points = tmp_path / "index", tmp_path / "p.npy"
    words = (f"export {data}/pq {index} --queries {data}/q.npy --points {points}",)
    succeed(*words)
    before = files_of(tmp_path)
    refused(index, *words)
    np.save(points, np.zeros((1, 1)))
    index.unlink()
    refused(points, *words)
    succeed(*words, "--force")
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    "words",
    [
        ("export", "pq", "index", "--queries", "q.npy", "--points", "p.npy"),
        ("search", "pq", "q.npy", "--out", "hits.ivecs"),
        ("report", "pq", "--out", "page.html"),
    ],
    ids=lambda words: words[0],
)
def test_what_a_killed_verb_left_of_a_file_is_removed_when_the_file_is_written(
    words: tuple[str, ...], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pq", "base", "q.npy"):
        (tmp_path / name).symlink_to(data / name)
    monkeypatch.chdir(tmp_path)
    mine = {"pq", "base", "q.npy", ".other.12-0123abcd.tmp"}
    (tmp_path / ".other.12-0123abcd.tmp").touch()
    succeed(*words)
    written = set(names_in(tmp_path)) - mine
    assert written
    for name in written:
        (tmp_path / name).unlink()
        (tmp_path / f".{name}.12-0123abcd.tmp").touch()
    succeed(*words)
    assert set(names_in(tmp_path)) == mine | written


def test_pictures_that_no_comparison_drew(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "compared"
    out.mkdir()
    (out / "recall.png").write_bytes(b"a picture of mine")
    words = (f"compare {data}/base {data}/q.npy", *CHI2, *SPEC, "--out", out)
    refused(out / "recall.png", *words)
    succeed(*words, "--force")
    assert (out / "recall.png").read_bytes().startswith(b"\x89PNG")
    succeed(*words)  # runs that are kept go on


def test_a_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mercore.jobs.gallery import demo

    out = tmp_path / "demo"
    out.mkdir()
    (out / "vectors.zarr").mkdir()
    (out / "mine.txt").touch()
    refused(out, f"demo --out {out}")

    def cut(count: int | None) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_cut", cut)
    assert invoke(f"demo --out {out} --force").code == 130  # it began
    demo._remove_made(out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_two_jobs_with_one_file_of_hits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "state"))
    monkeypatch.setattr("mercore.jobs.background.submit.start_runner", lambda folder: None)
    monkeypatch.setattr("mercore.jobs.cli.start_runner_quietly", lambda: None)
    words = (f"submit search {data}/pq {data}/q.npy --out {tmp_path}/hits.npz",)
    job = succeed(*words, "-k", 3).strip()
    other = invoke(*words, "-k", 4)
    assert (other.code, other.out) == (2, "")
    assert f"hits.npz is the output of {job}, which is queued: expected a path " in other.err
    assert invoke(*words, "-k", 3, "--force").out.strip() == job  # the same job


def test_swapped_arguments_are_told(data: Path) -> None:
    outcome = invoke(f"search {data}/q.npy {data}/pq")
    assert outcome.code == 2
    assert outcome.err == (
        f"mercore: {data / 'q.npy'} is a file and {data / 'pq'} is a store of codes: expected the "
        f"store first. Fix: mercore search {data / 'pq'} {data / 'q.npy'}\n"
    )


def test_info_of_hits_and_certificates(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "hits.npz"
    succeed(f"search {data}/base {data}/q.npy", *CHI2, "-k", 3, "--exact", "--out", out)
    proof = f"{out}.certificate.npz"
    assert (
        succeed("info", out)
        == f"hits         9 queries × 3, ids and scores\ncertificate  {proof}\n"
    )
    described = succeed("info", proof)
    assert described.startswith("certificate     9 queries\n")
    assert "kernel          chi2\n" in described
    assert "fingerprint_of  all rows\n" in described


def test_a_search_says_its_speed(data: Path) -> None:
    words = (f"search {data}/pq {data}/q.npy -k 3",)
    assert " queries per second\n" in invoke(*words).err
    report = mercore.search(data / "pq", np.load(data / "q.npy")[:1])[0]
    assert report["queries_per_second"] > 0
    assert report["ns_per_row_and_query"] > 0


@pytest.mark.parametrize(
    ("verb", "kept"),
    [
        ("encode", "encode keeps the parts that are done"),
        ("search", "only a search with --exact and --out keeps its finished batches"),
        ("info", "which begins anew"),
    ],
)
def test_an_interrupted_verb_says_what_it_keeps(
    verb: str, kept: str, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mercore.jobs.face.commands.call_of", interrupted)
    words = {"encode": ("base", "x", *CHI2), "search": ("base", "q.npy"), "info": ("base",)}
    outcome = invoke(verb, *words[verb])
    assert outcome.code == 130
    assert outcome.err.endswith(f"{kept}.\n")
