"""The script that checks certificates: it passes right ones and refuses each kind of wrong one."""

import json
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from numpy.typing import NDArray

import mercore
from mercore.stores.vectors import VectorStore, open_vector_store, original_ids
from mercore.testing.stores import histograms, make_vectors
from tests.independent import check_certificate, reference
from tests.independent.check_certificate import crc32c
from tests.support.killing import kills

Arrays = dict[str, NDArray[Any]]

SCRIPT = check_certificate.__file__
KERNELS: list[tuple[str, dict[str, float]]] = [
    ("cosine", {}),
    ("hellinger", {}),
    ("chi2", {}),
    ("intersection", {}),
    ("rbf", {"gamma": 0.5}),
]
N, NQ, D, K = 40, 3, 6, 4
SLACK = 1e-13


def rows_and_queries(dtype: str = "float32") -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows whose last four repeat the first four, and queries near the first three."""
    rows = histograms(N, D, dtype=dtype)
    rows[-4:] = rows[:4]
    return rows, rows[:NQ].copy()


def true_scores(
    name: str, rows: NDArray[Any], queries: NDArray[Any], configuration: dict[str, float]
) -> Any:
    """The scores of all rows, float64[nq, n]."""
    return reference.kernel(
        name, reference.prepare(name, queries), reference.prepare(name, rows), **configuration
    )


def certified(
    store: VectorStore,
    name: str,
    data: tuple[NDArray[Any], NDArray[Any]],
    configuration: dict[str, float] | None = None,
    k: int = K,
) -> tuple[Arrays, Arrays]:
    """Right hits and their certificate, as if half of the rows beyond the k-th had been
    evaluated."""
    rows, queries = data
    S = true_scores(name, rows, queries, configuration or {})
    scores, at = reference.top_k(S, k)
    ranked = -np.sort(-S, axis=1)
    evaluated = k + (len(rows) - k) // 2
    about = {
        "kernel": {"name": name, "configuration": configuration or {}},
        "vectors": store.fingerprint,
        "bounds": None,
        "queries": "queries",
        "bound": None,
        "exact": True,
    }
    last = scores[:, -1:]
    tied = (last == S).sum(axis=1) - (last == scores).sum(axis=1)
    certificate = {
        "kth": scores[:, -1].copy(),
        "greatest_unevaluated": ranked[:, evaluated],
        "slack": np.full(len(queries), SLACK),
        "evaluated": np.full(len(queries), evaluated, np.int64),
        "ties": tied.astype(np.int64),
        "rows": np.array(len(rows), np.int64),
        "about": np.array(json.dumps(about, sort_keys=True, separators=(",", ":"))),
    }
    return {"ids": original_ids(at, store.dropped), "scores": scores}, certificate


def files_of(store: VectorStore, queries: Path, hits: Arrays, certificate: Arrays) -> list[str]:
    """The words of the command line, after the files are written."""
    folder = queries.parent
    np.savez(folder / "gt.npz", **hits)  # type: ignore[arg-type]
    np.savez(folder / "gt.certificate.npz", **certificate)  # type: ignore[arg-type]
    paths = (store.where, queries, folder / "gt.npz", folder / "gt.certificate.npz")
    return [str(path) for path in paths]


def check(store: VectorStore, queries: Path, hits: Arrays, certificate: Arrays) -> tuple[int, str]:
    """The exit code of the script, and all that it says."""
    said = StringIO()
    try:
        with redirect_stdout(said):
            code = check_certificate.main(files_of(store, queries, hits, certificate))
    except SystemExit as refused:
        return 1, f"{refused}\n"
    return code, said.getvalue()


def saved(folder: Path, queries: NDArray[Any]) -> Path:
    np.save(folder / "queries.npy", queries)
    return folder / "queries.npy"


def test_the_script_starts_without_mercore(tmp_path: Path) -> None:
    data = rows_and_queries()
    store, queries = make_vectors(tmp_path / "v.zarr", data[0]), saved(tmp_path, data[1])
    hits, certificate = certified(store, "chi2", data)
    proved, refused = (
        f"proved: {NQ} queries against {N} rows by chi2\n",
        "query 1: ties are others\n",
    )
    for code, expected in ((0, proved), (1, refused)):
        words = [sys.executable, "-I", SCRIPT, *files_of(store, queries, hits, certificate)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (code, expected, "")
        certificate["ties"][1] = -1
    assert "mercore." not in Path(SCRIPT).read_text()


@pytest.mark.parametrize(("name", "configuration"), KERNELS)
@pytest.mark.promise("An independent script accepts right certificates")
def test_right_hits_are_proved(name: str, configuration: dict[str, float], tmp_path: Path) -> None:
    data = rows_and_queries()
    store = make_vectors(tmp_path / "v.zarr", data[0])
    hits, certificate = certified(store, name, data, configuration)
    expected = f"proved: {NQ} queries against {N} rows by {name}\n"
    assert check(store, saved(tmp_path, data[1]), hits, certificate) == (0, expected)


def written(folder: Path, suffix: str, queries: NDArray[Any]) -> Path:
    """The queries as a TEXMEX or a big-ann file."""
    path = folder / f"queries{suffix}"
    head = np.array(queries.shape, "<i4")
    rows = [head[1:].tobytes() + row.tobytes() for row in queries]
    path.write_bytes(
        b"".join(rows) if suffix.endswith("vecs") else head.tobytes() + queries.tobytes()
    )
    return path


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [
        (".bvecs", "uint8"),
        (".u8bin", "uint8"),
        (".fvecs", "float32"),
        (".fbin", "float32"),
        (".ivecs", "int32"),
        (".ibin", "int32"),
        (".i8bin", "int8"),
    ],
)
def test_queries_of_any_file_and_every_row_evaluated(
    suffix: str, dtype: str, tmp_path: Path
) -> None:
    rows, queries = rows_and_queries("uint8")
    if dtype == "int8":
        rows, queries = rows // 2, queries // 2
    store = make_vectors(tmp_path / "v.zarr", rows)
    hits, certificate = certified(store, "chi2", (rows, queries), k=1)
    certificate["evaluated"][:], certificate["greatest_unevaluated"][:] = N, -np.inf
    assert certificate["ties"].tolist() == [1, 1, 1]
    path = written(tmp_path, suffix, queries.astype(dtype))
    assert check(store, path, hits, certificate)[0] == 0


def test_what_the_script_cannot_read_is_named(tmp_path: Path) -> None:
    data = rows_and_queries()
    store, queries = make_vectors(tmp_path / "v.zarr", data[0]), saved(tmp_path, data[1])
    hits, certificate = certified(store, "chi2", data)
    table = queries.rename(tmp_path / "queries.parquet")
    files = ".npy .bvecs .fvecs .ivecs .u8bin .i8bin .fbin .ibin"
    assert check(store, table, hits, certificate) == (1, f"refused: {table} is none of {files}\n")
    narrow = saved(tmp_path, data[1][:, 1:])
    said = f"refused: {narrow} has shape (3, 5), expected 6 columns\n"
    assert check(store, narrow, hits, certificate) == (1, said)
    about = json.loads(str(certificate["about"]))
    about["kernel"]["name"] = "jensen_shannon"
    certificate["about"] = np.array(json.dumps(about))
    said = "refused: kernel jensen_shannon is none of cosine, hellinger, chi2, intersection, rbf, "
    assert check(store, saved(tmp_path, data[1]), hits, certificate)[1].startswith(said)
    for words, said in {
        ("v", "q"): "expected VECTORS.zarr QUERIES HITS.npz CERTIFICATE.npz",
        (str(store.where), "q", "gt.ivecs", "c.npz"): "gt.ivecs is no .npz, which hits and",
    }.items():
        with pytest.raises(SystemExit, match=said):
            check_certificate.main(words)


def test_ids_are_those_of_the_source_where_rows_were_dropped(tmp_path: Path) -> None:
    rows, queries = rows_and_queries()
    source = np.insert(rows, [0, 5, 5, 30], 0, axis=0)
    store = make_vectors(tmp_path / "v.zarr", source, drop_zero_rows=True)
    hits, certificate = certified(store, "chi2", (rows, queries))
    assert hits["ids"][0, 0] == 1
    assert check(store, saved(tmp_path, queries), hits, certificate)[0] == 0
    hits["ids"][2, 1] = 0
    assert check(store, saved(tmp_path, queries), hits, certificate) == (
        1,
        "query 2: ids are not distinct rows\n",
    )


def test_a_store_that_has_grown_and_that_a_killed_append_has_left(tmp_path: Path) -> None:
    rows, queries = rows_and_queries()
    path = tmp_path / "v.zarr"
    make_vectors(path, rows[:30])
    mercore.append(np.insert(rows[30:], 4, 0, axis=0), path, drop_zero_rows=True)
    store = open_vector_store(path)
    hits, certificate = certified(store, "chi2", (rows, queries))
    words = store, saved(tmp_path, queries), hits, certificate
    assert check(*words)[0] == 0
    for _ in kills(lambda _: mercore.append(rows[:20], path)):
        if len(list(path.glob("vectors/c/*"))) > store.parts:
            break
    assert open_vector_store(path).rows == store.rows
    assert check(*words)[0] == 0


def wrongly(hits: Arrays, certificate: Arrays, what: str) -> None:
    """Make query 1 of a right answer wrong in one way."""
    ids, scores, about = hits["ids"], hits["scores"], json.loads(str(certificate["about"]))
    if what == "two ids swapped":
        ids[1, 1:3] = ids[1, 2:0:-1]
    elif what in ("one id wrong", "id out of range", "id repeated"):
        ids[1, 2] = {"one id wrong": 39, "id out of range": N, "id repeated": ids[1, 0]}[what]
    elif what == "a score":
        scores[1, 1] += 1e-9
    elif what == "not a number":
        scores[1, 1] = np.nan
    elif what in ("a digest", "approximate"):
        about |= {"vectors": "0" * 32} if what == "a digest" else {"exact": False}
        certificate["about"] = np.array(json.dumps(about))
    elif what == "rows":
        certificate["rows"] = np.array(N + 1)
    else:
        name, value = what.split(" = ")
        certificate[name][1] = float(value) if certificate[name].dtype.kind == "f" else int(value)


WRONG = {
    "two ids swapped": "scores are others",
    "one id wrong": "scores are others",
    "id out of range": "ids are not distinct rows",
    "id repeated": "ids are not distinct rows",
    "a score": "scores are others",
    "not a number": "scores are others",
    "a digest": "of other vectors, or not exact",
    "approximate": "of other vectors, or not exact",
    "rows": "of other vectors, or not exact",
    "kth = 0.1": "scores ascend, or end not at kth",
    "kth = nan": "scores ascend, or end not at kth",
    "slack = 0.1": "slack is out of range, or greatest_unevaluated above kth",
    "slack = nan": "scores are others",
    "greatest_unevaluated = 1.5": "slack is out of range, or greatest_unevaluated above kth",
    "greatest_unevaluated = nan": "slack is out of range, or greatest_unevaluated above kth",
    "greatest_unevaluated = -inf": "too few rows are evaluated",
    f"evaluated = {K - 1}": "too few rows are evaluated",
    f"evaluated = {N + 1}": "too few rows are evaluated",
    "evaluated = 5": "too few rows are evaluated",
    "ties = 1": "ties are others",
    "ties = -1": "ties are others",
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.promise("The script refuses one wrong figure or id")
def test_one_thing_wrong_is_refused(what: str, tmp_path: Path) -> None:
    data = rows_and_queries()
    store = make_vectors(tmp_path / "v.zarr", data[0])
    hits, certificate = certified(store, "chi2", data)
    wrongly(hits, certificate, what)
    code, said = check(store, saved(tmp_path, data[1]), hits, certificate)
    assert code == 1
    assert f"query 1: {WRONG[what]}\n" in said


@pytest.mark.promise("The script refuses one wrong figure or id")
def test_a_missing_neighbour_is_refused(tmp_path: Path) -> None:
    rows, queries = rows_and_queries()
    store = make_vectors(tmp_path / "v.zarr", rows)
    hits, certificate = certified(store, "chi2", (rows, queries), k=K + 1)
    for name in hits:
        hits[name] = np.delete(hits[name], 2, axis=1)
    said = "".join(f"query {q}: a row not listed is nearer\n" for q in range(NQ))
    assert check(store, saved(tmp_path, queries), hits, certificate) == (1, said)


def test_of_equal_rows_the_lower_id_is_expected_and_ties_are_counted(tmp_path: Path) -> None:
    data = rows_and_queries()
    store, queries = make_vectors(tmp_path / "v.zarr", data[0]), saved(tmp_path, data[1])
    hits, certificate = certified(store, "chi2", data, k=1)
    assert check(store, queries, hits, certificate)[0] == 0
    hits["ids"][1, 0] = N - 3
    assert check(store, queries, hits, certificate) == (
        1,
        "query 1: an equal row of lower id is not listed\n",
    )
    hits["ids"][1, 0] = 1
    certificate["ties"][1] = 0
    assert check(store, queries, hits, certificate) == (1, "query 1: ties are others\n")


@pytest.mark.parametrize("key", ["kth", "slack", "greatest_unevaluated", "evaluated", "ties"])
def test_an_array_of_another_length_is_refused(key: str, tmp_path: Path) -> None:
    data = rows_and_queries()
    store = make_vectors(tmp_path / "v.zarr", data[0])
    hits, certificate = certified(store, "chi2", data)
    certificate[key] = certificate[key][:-1]
    said = f"refused: {key} has shape (2,), expected 3 queries\n"
    assert check(store, saved(tmp_path, data[1]), hits, certificate) == (1, said)


def test_a_flipped_bit_and_a_compressed_store_are_refused(tmp_path: Path) -> None:
    data = rows_and_queries()
    store = make_vectors(tmp_path / "v.zarr", data[0])
    hits, certificate = certified(store, "chi2", data)
    chunk = Path(store.where) / "vectors/c/1/0"
    chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    queries = saved(tmp_path, data[1])
    refusal = f"refused: {store.where} holds other rows than its digest names\n"
    assert check(store, queries, hits, certificate) == (1, refusal)
    packed = make_vectors(tmp_path / "packed.zarr", data[0], compressor="zstd")
    refusal = f"refused: {packed.where} is compressed (zstd), which this script cannot read\n"
    assert check(packed, queries, hits, certificate) == (1, refusal)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 17, 1000, 65_536, 65_537])
def test_checksums_are_those_of_the_stores(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == google_crc32c.value(data)
