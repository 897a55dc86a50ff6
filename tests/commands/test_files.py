"""Files that people have, typed as they have them: home folders, streams, ranges, int8."""

import gzip
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import mercore
from mercore.jobs.cli import main
from mercore.stores.vectors import open_vector_store
from tests.independent import reference
from tests.stores.formats.test_formats import bigann, texmex
from tests.support.running import histograms, invoke, succeed

ROWS = histograms(300, 12, seed=3)


def true_hits(
    kernel: str, queries: NDArray[Any], base: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The scores and ids of the five nearest rows, by the reference."""
    x, y = (reference.prepare(kernel, rows) for rows in (queries, base))
    return reference.top_k(reference.kernel(kernel, x, y), 5)


def refused(*words: object) -> str:
    """Run a command that must refuse; return its words."""
    outcome = invoke(*words)
    assert outcome.code == 2, outcome
    return outcome.err


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "rows.npy", ROWS)
    succeed("ingest ~/rows.npy ~/one.zarr")
    mercore.ingest("~/rows.npy", Path("~/two.zarr"))
    mercore.append(["~/rows.npy"], "~/two.zarr")
    one, two = (mercore.info(f"~/{name}.zarr") for name in ("one", "two"))
    assert (one["rows"], two["rows"]) == (300, 600)
    _, hits = mercore.search("~/one.zarr", "~/rows.npy", kernel="chi2", exact=True, k=3)
    assert (hits.ids >= 0).all()


def test_stdin_and_gzip_give_the_store_of_the_file(tmp_path: Path) -> None:
    data = texmex(ROWS)
    (tmp_path / "a.bvecs").write_bytes(data)
    (tmp_path / "a.bvecs.gz").write_bytes(gzip.compress(data))
    succeed(f"ingest {tmp_path}/a.bvecs {tmp_path}/file")
    succeed(f"ingest {tmp_path}/a.bvecs.gz {tmp_path}/gzip")
    words = ["ingest", "-", str(tmp_path / "stdin"), "--format", "bvecs"]
    piped = CliRunner().invoke(main, words, input=data)
    assert piped.exit_code == 0, piped.output
    stores = [open_vector_store(tmp_path / name) for name in ("file", "gzip", "stdin")]
    assert {store.spec.content for store in stores} == {stores[0].spec.content}
    assert [store.spec.source_rows for store in stores] == [300] * 3


def test_rows_of_a_source(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    succeed(f"ingest {tmp_path}/a.npy {tmp_path}/part --rows 100:250")
    np.testing.assert_array_equal(open_vector_store(tmp_path / "part").read_part(0), ROWS[100:250])
    assert "a.npy has 300 rows. Fix: --rows 0:300" in refused(
        f"ingest {tmp_path}/a.npy {tmp_path}/more --rows 100:301"
    )
    assert not (tmp_path / "more").exists()


def test_float64_is_said_to_be_rounded_once(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS.astype(np.float64))
    outcome = invoke(f"ingest {tmp_path}/a.npy {tmp_path}/store --json")
    assert outcome.err.count("holds float64: the store keeps its numbers rounded to float32") == 1
    assert json.loads(outcome.out)["source_dtype"] == "float64"
    np.save(tmp_path / "b.npy", ROWS.astype(np.float32))
    assert "rounded" not in invoke(f"ingest {tmp_path}/b.npy {tmp_path}/other").err


def test_int8_from_file_to_neighbours(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base, queries = (rng.integers(-128, 128, (n, 40)).astype(np.int8) for n in (500, 20))
    (tmp_path / "a.i8bin").write_bytes(bigann(base))
    (tmp_path / "q.i8bin").write_bytes(bigann(queries))
    report = json.loads(succeed(f"ingest {tmp_path}/a.i8bin {tmp_path}/base --json"))
    assert (report["dtype"], report["negative_rows"]) == ("int8", 500)
    scores, ids = true_hits("cosine", queries.astype(np.float64), base.astype(np.float64))
    _, hits = mercore.search(
        tmp_path / "base", tmp_path / "q.i8bin", kernel="cosine", exact=True, k=5
    )
    np.testing.assert_array_equal(hits.ids, ids)
    assert hits.scores is not None
    assert np.abs(hits.scores - scores).max() < 1e-12
    verdict = mercore.verify(tmp_path / "base", queries, hits, kernel="cosine")
    assert verdict["proved"] == 20
    told = refused(f"search {tmp_path}/base {tmp_path}/q.i8bin --kernel chi2")
    assert "negative" in told


def test_ann_benchmarks_layout(tmp_path: Path) -> None:
    path = tmp_path / "glove.hdf5"
    with h5py.File(path, "w") as file:
        file["train"], file["test"] = ROWS[:290], ROWS[290:]
        file["neighbors"], file["distances"] = np.zeros((10, 5), "i4"), np.zeros((10, 5), "f4")
    assert "Fix: name one, as" in refused(f"ingest {path} {tmp_path}/base")
    succeed(f"ingest {path}::train {tmp_path}/base")
    assert json.loads(succeed(f"info {path}::test --json"))["rows"] == 10
    _, hits = mercore.search(tmp_path / "base", f"{path}::test", kernel="chi2", exact=True, k=5)
    np.testing.assert_array_equal(hits.ids, true_hits("chi2", ROWS[290:], ROWS[:290])[1])


def test_what_reads_only_forward_is_refused_where_rows_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.bvecs.gz"
    path.write_bytes(gzip.compress(texmex(ROWS)))
    succeed(f"ingest {path} {tmp_path}/base")
    assert "a stream is read forward once. Fix: mercore ingest" in refused(
        f"search {tmp_path}/base {path} --kernel chi2"
    )
    assert "so no sample of it can be taken" in refused(f"plan ingest {path} {tmp_path}/x")
    assert "a job has no stdin" in refused(f"submit ingest - {tmp_path}/x --format bvecs")
