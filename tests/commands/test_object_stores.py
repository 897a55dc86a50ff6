"""Stores on an object store: the same bytes, the same answers, the same refusals, on a real S3
server."""

import gzip
import json
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mercore.jobs import api
from mercore.stores.codes import open_code_store
from mercore.stores.errors import FormatError, IntegrityError
from mercore.stores.formats import open_source
from mercore.stores.rows import open_vectors
from mercore.stores.vectors import open_vector_store
from tests.commands.test_faults import DAMAGES
from tests.support.object_server import BUCKET, CREDENTIALS, ObjectServer, object_server
from tests.support.running import (
    ENCODE,
    KERNEL,
    Cluster,
    files_of,
    finish,
    histograms,
    invoke,
    run,
    start,
    succeed,
)

pytestmark = pytest.mark.slow

URL = f"s3://{BUCKET}"
KERNEL_OPTION = ("--kernel", KERNEL)
OPTIONS = (*ENCODE, "--part-rows", 250)
PARTS = 12
SMALL, SMALL_PARTS = (*ENCODE, "--part-rows", 50), 60


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[ObjectServer]:
    """A server whose environment every test and command of this module has."""
    with object_server() as running:
        yield running


@pytest.fixture(scope="module")
def here(vectors: Path, data: Path) -> Path:
    """A folder with ``base.npy``, ``queries.npy``, the store ``vectors`` of one and ``coarse``,
    codes of that."""
    succeed(f"encode {vectors} {data}/coarse", *OPTIONS)
    return data


@pytest.fixture(scope="module")
def there(server: ObjectServer, here: Path) -> str:
    """The prefix of the same stores, made there: ``vectors`` from a file, ``coarse`` from the
    vectors that lie here."""
    succeed(f"ingest {here}/base.npy {URL}/there/vectors")
    succeed(f"encode {here}/vectors {URL}/there/coarse", *OPTIONS)
    return f"{URL}/there"


# The same bytes and answers


@pytest.mark.parametrize("name", ["vectors", "coarse"])
@pytest.mark.promise("Objects are the files of a local store, and searches answer alike")
def test_the_objects_are_the_files_of_a_local_store(
    name: str, server: ObjectServer, there: str, here: Path, tmp_path: Path
) -> None:
    copied = server.copy_to(f"there/{name}", tmp_path / name)
    assert files_of(copied) == files_of(here / name)
    assert json.loads(succeed(f"check {copied} --json"))["faults"] == []


def test_codes_of_vectors_that_lie_there_remember_the_url(
    server: ObjectServer, there: str, here: Path
) -> None:
    succeed(f"encode {there}/vectors {URL}/of-there", *OPTIONS)
    made, expected = server.objects("of-there"), files_of(here / "coarse")
    header = made.pop("zarr.json")
    expected.pop("zarr.json")
    assert made == expected
    assert json.loads(header)["attributes"]["mercore"]["notes"]["source_path"] == f"{there}/vectors"
    reranked = succeed(f"search {URL}/of-there {here}/queries.npy -k 5 --rerank 30")
    assert reranked == succeed(f"search {here}/coarse {here}/queries.npy -k 5 --rerank 30")


def test_base_and_codes_that_are_copied_to_another_prefix_keep_working(
    server: ObjectServer, there: str, here: Path
) -> None:
    succeed(f"encode {there}/vectors {URL}/first/deep/codes", *OPTIONS)
    words = (here / "queries.npy", "-k", 5, "--rerank", 30)
    before = succeed("search", f"{URL}/first/deep/codes", *words)
    for old, new in (("there/vectors", "again/there/vectors"), ("first", "again/first")):
        for key in server.keys(old):
            server.put(f"{new}/{key}", server.get(f"{old}/{key}"))
    header = json.loads(server.get("again/first/deep/codes/zarr.json"))
    assert header["attributes"]["mercore"]["notes"]["source_relative"] == "../../there/vectors"
    codes = open_code_store(f"{URL}/again/first/deep/codes")
    assert codes.source_paths == [f"{there}/vectors", f"{URL}/again/there/vectors"]
    assert open_vectors(codes.source_paths[1]).fingerprint == codes.spec.source
    assert succeed("search", codes.where, *words) == before


@pytest.mark.parametrize(
    ("words", "reads"),
    [
        (("search", "coarse", "queries.npy", "-k", 5), {"coarse": 1, "vectors": 1}),
        (("search", "coarse", "queries.npy", "-k", 5, "--rerank", 30), {"coarse": 1, "vectors": 1}),
        (("search", "vectors", "queries.npy", "-k", 5, *KERNEL_OPTION, "--exact"), {"vectors": 1}),
        (("verify", "vectors", "queries.npy", "truth.npz", *KERNEL_OPTION), {"vectors": 1}),
        (("encode", "vectors", "coarse", *OPTIONS), {"coarse": 2}),
    ],
    ids=["codes", "rerank", "exact", "verify", "encode"],
)
@pytest.mark.promise(
    "A search, an exact search and a verify read each header once, an encode the header of its codes twice"
)
def test_each_header_there_is_read_once_and_twice_by_an_encode(
    words: tuple[object, ...], reads: dict[str, int], server: ObjectServer, here: Path
) -> None:
    prefix = "once"
    if not server.keys(prefix):
        succeed(f"ingest {here}/base.npy {URL}/{prefix}/vectors")
        succeed(f"encode {URL}/{prefix}/vectors {URL}/{prefix}/coarse", *OPTIONS)
        succeed(
            f"search {here}/vectors {here}/queries.npy -k 5",
            *KERNEL_OPTION,
            "--out",
            here / "truth.npz",
            "--force",  # the server may be another one than before, and the folder the same
        )
    named = {name: f"{URL}/{prefix}/{name}" for name in ("vectors", "coarse")}
    named |= {name: str(here / name) for name in ("queries.npy", "truth.npz")}
    before = {name: server.reads(f"{prefix}/{name}/zarr.json") for name in reads}
    succeed(*(named.get(str(word), word) for word in words))
    after = {name: server.reads(f"{prefix}/{name}/zarr.json") for name in reads}
    assert {name: after[name] - before[name] for name in reads} == reads


def test_a_store_there_can_be_encoded_to_a_folder_here(
    there: str, here: Path, tmp_path: Path
) -> None:
    succeed(f"encode {there}/vectors {tmp_path}/codes", *OPTIONS)
    made, expected = files_of(tmp_path / "codes"), files_of(here / "coarse")
    assert json.loads(made.pop("zarr.json")) != json.loads(expected.pop("zarr.json"))
    assert made == expected


def test_sorted_orders_there_are_those_made_here(
    server: ObjectServer, here: Path, tmp_path: Path
) -> None:
    klsh = ("--kernel", KERNEL, "--encoder", "klsh", "--landmarks", 64, "--subset", 9, "--bits", 64)
    orders = ("--orders", 2, "--part-rows", 1000)
    found = []
    for place in (f"{URL}/orders", str(tmp_path)):
        succeed(f"encode {here}/vectors {place}/hashed", *klsh, "--part-rows", 1000)
        succeed(f"index {place}/hashed {place}/sorted", *orders)
        words = (f"{place}/sorted", here / "queries.npy", "-k", 5, "--neighbours", 20)
        found.append(succeed("search", *words))
    assert found[0] == found[1]
    copied = server.copy_to("orders/sorted", tmp_path / "copied")
    assert files_of(copied) == files_of(tmp_path / "sorted")


def test_cells_there_are_those_made_here(server: ObjectServer, here: Path, tmp_path: Path) -> None:
    found = []
    for place in (f"{URL}/cells", str(tmp_path)):
        coded = ("--kernel", KERNEL, "--encoder", "map-pq", "--part-rows", 1000)
        succeed(f"encode {here}/vectors {place}/coded", *coded)
        succeed(f"index {place}/coded {place}/index --cells 16 --part-rows 700")
        found.append(succeed(f"search {place}/index {here}/queries.npy -k 5 --probes 3"))
        found.append(succeed(f"search {place}/index {here}/queries.npy -k 5 --recall 0.9"))
    assert found[:2] == found[2:]
    copied = server.copy_to("cells/index", tmp_path / "copied")
    assert files_of(copied) == files_of(tmp_path / "index")
    assert not server.keys("cells/index.sorted")


@pytest.mark.parametrize("options", [("--compressor", "zstd"), ("--drop-zero-rows",)])
def test_ingest_keeps_its_options(
    options: tuple[str, ...], server: ObjectServer, tmp_path: Path
) -> None:
    rows = histograms(700, 24, seed=5)
    rows[::7] = 0
    np.save(tmp_path / "rows.npy", rows)
    prefix = "ingested" + options[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 3 << 10)
        for store in (tmp_path / "store", f"{URL}/{prefix}"):
            succeed(f"ingest {tmp_path}/rows.npy {store}", *options)
    assert server.objects(prefix) == files_of(tmp_path / "store")


@pytest.mark.parametrize(
    ("store", "options"),
    [
        ("coarse", ()),
        ("coarse", ("--batch", "5", "--memory", "2GB")),
        ("coarse", ("--rerank", "40")),
        ("vectors", ("--kernel", KERNEL)),
        ("vectors", ("--kernel", KERNEL, "--exact")),
    ],
)
@pytest.mark.promise("Objects are the files of a local store, and searches answer alike")
def test_searches_answer_as_they_do_here(
    store: str, options: tuple[str, ...], there: str, here: Path
) -> None:
    words = (here / "queries.npy", "-k", 5, *options)
    assert succeed("search", f"{there}/{store}", *words) == succeed("search", here / store, *words)


@pytest.mark.promise("Objects are the files of a local store, and searches answer alike")
def test_proofs_by_bounds_are_those_of_stores_here(there: str, here: Path, tmp_path: Path) -> None:
    written = {}
    for name, folder in (("here", str(here)), ("there", there)):
        bounds = f"{tmp_path}/bounds" if name == "here" else f"{URL}/bounds"
        succeed(
            f"encode {folder}/vectors {bounds} --kernel {KERNEL} --encoder bin-bound --groups 16"
        )
        (tmp_path / name).mkdir()
        hits = tmp_path / name / "hits.npz"
        succeed(f"search {bounds} {here}/queries.npy -k 5 --exact --out {hits}")
        written[name] = files_of(tmp_path / name)
        assert written[name]
        verified = (
            f"verify {folder}/vectors {here}/queries.npy {hits} --kernel {KERNEL} "
            f"--bounds {bounds}",
        )
        assert json.loads(succeed(*verified, "--json"))["proved"] == 12
    assert written["here"]["hits.npz"] == written["there"]["hits.npz"]
    certificates = [np.load(tmp_path / name / "hits.npz.certificate.npz") for name in written]
    for name in certificates[0].files:
        np.testing.assert_array_equal(certificates[0][name], certificates[1][name])


@pytest.mark.parametrize("store", ["vectors", "coarse"])
def test_info_and_check_say_the_same(store: str, there: str, here: Path) -> None:
    def said(folder: object) -> dict[str, object]:
        report = {**json.loads(succeed(f"info {folder}/{store} --json"))}
        checked = json.loads(succeed(f"check {folder}/{store} --json"))
        assert (report.pop("path"), checked.pop("path")) == (f"{folder}/{store}",) * 2
        return {**report, **checked}

    assert said(there) == said(here)


def test_vectors_there_serve_as_queries(there: str, here: Path) -> None:
    words = ("-k", 3, "--batch", 512, "--json")
    found, expected = (
        json.loads(succeed(f"search {here}/coarse {folder}/vectors", *words))
        for folder in (there, here)
    )
    assert found["ids"] == expected["ids"]


def test_workers_of_a_cluster_open_the_url(
    server: ObjectServer, there: str, here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), workers=1)
    try:
        succeed(f"encode {here}/vectors {URL}/clustered", *OPTIONS, "--scheduler", cluster.address)
    finally:
        cluster.end()
    assert server.objects("clustered") == files_of(here / "coarse")


@pytest.mark.parametrize("suffix", [".npy", ".bvecs", ".u8bin"])
def test_foreign_files_there_are_ingested(
    suffix: str, server: ObjectServer, tmp_path: Path
) -> None:
    rows = histograms(500, 24, seed=6)
    with BytesIO() as saved:
        np.save(saved, rows)
        files = {
            ".npy": saved.getvalue(),
            ".bvecs": np.hstack(
                [np.tile(np.array([24], "<i4").view(np.uint8), (500, 1)), rows]
            ).tobytes(),
            ".u8bin": np.array([500, 24], "<u4").tobytes() + rows.tobytes(),
        }
    server.put(f"foreign/rows{suffix}", files[suffix])
    (tmp_path / f"rows{suffix}").write_bytes(files[suffix])
    for folder, store in ((tmp_path, "here"), (f"{URL}/foreign", "there")):
        succeed(f"ingest {folder}/rows{suffix} {tmp_path}/{store}")
        told = json.loads(succeed(f"info {folder}/rows{suffix} --json"))
        assert (told["rows"], told["dims"]) == (500, 24)
    made = [json.loads(succeed(f"info {tmp_path}/{store} --json")) for store in ("here", "there")]
    for report in made:
        del report["path"], report["source"]
    assert made[0] == made[1]
    chunks = [(tmp_path / store / "vectors/c/0/0").read_bytes() for store in ("here", "there")]
    assert chunks[0] == chunks[1]
    server.put(f"foreign/rows{suffix}", files[suffix][:-1])
    outcome = invoke(f"ingest {URL}/foreign/rows{suffix} {tmp_path}/cut")
    assert (outcome.code, outcome.err.startswith(f"mercore: {URL}/foreign/rows{suffix}: ")) == (
        2,
        True,
    )


def test_tables_archives_and_streams_there_are_ingested(
    server: ObjectServer, tmp_path: Path
) -> None:
    rows = histograms(500, 24, seed=6)
    with BytesIO() as table, BytesIO() as archive:
        pq.write_table(pa.table({"row": list(rows)}), table, row_group_size=99)
        np.savez_compressed(archive, rows=rows)
        server.put("rows.parquet", table.getvalue())
        server.put("rows.npz", archive.getvalue())
    packed = gzip.compress(np.array([500, 24], "<u4").tobytes() + rows.tobytes())
    server.put("rows.u8bin.gz", packed)
    for name in ("rows.parquet", "rows.npz::rows", "rows.u8bin.gz"):
        store = tmp_path / name
        succeed(f"ingest {URL}/{name} {store}")
        np.testing.assert_array_equal(open_vector_store(store).read_part(0), rows, strict=True)
    outcome = invoke(f"ingest {URL}/rows.h5::train {tmp_path}/other")
    assert (outcome.code, "no such file" in outcome.err) == (2, True)


def test_a_foreign_file_that_changes_while_it_is_read_is_refused(server: ObjectServer) -> None:
    rows = histograms(500, 24, seed=6)
    for data in (rows, rows[::-1]):
        if data is not rows:
            source = open_source(f"{URL}/changing.u8bin")
        server.put("changing.u8bin", np.array([500, 24], "<u4").tobytes() + data.tobytes())
    with pytest.raises(
        FormatError, match=f"{URL}/changing.u8bin: it has changed since it was opened. Fix: "
    ):
        source.read(0, 10)


# Interrupted


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Look until something is true; a process that ends before, or nothing for two minutes, fails
    the test."""
    give_up = time.monotonic() + 120
    while not true():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < give_up
        time.sleep(0.005)


@pytest.fixture
def quick_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow an owner that was killed after one second."""
    monkeypatch.setattr("mercore.stores.location.s3_lease.SILENT_SECONDS", 1)


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9 a command."""
    process.send_signal(signal.SIGKILL)
    assert finish(process).code == -signal.SIGKILL


def receipts(server: ObjectServer, prefix: str) -> list[str]:
    """Return the keys of a store's receipts."""
    return [key for key in server.keys(f"{prefix}/receipts") if key.startswith("c/")]


@pytest.mark.usefixtures("quick_to_follow")
@pytest.mark.promise("A killed run resumes to the same objects")
def test_a_killed_encode_is_resumed_to_the_undisturbed_objects(
    server: ObjectServer, vectors: Path, codes: Path
) -> None:
    process = start(f"encode {vectors} {URL}/killed", *SMALL, "--workers", 2)
    wait_until(lambda: len(receipts(server, "killed")) >= 7, process)
    kill(process)
    done = len(receipts(server, "killed"))
    assert 7 <= done < SMALL_PARTS
    report = json.loads(succeed(f"encode {vectors} {URL}/killed", *SMALL, "--json"))
    assert (
        SMALL_PARTS - done - 2 <= report["parts_done_now"] <= SMALL_PARTS - done
    )  # what was on its way has arrived
    assert server.objects("killed") == files_of(codes)


@pytest.mark.usefixtures("quick_to_follow")
@pytest.mark.promise("A killed run resumes to the same objects")
def test_a_killed_ingest_leaves_no_store_and_the_next_one_tidies_up(
    server: ObjectServer, tmp_path: Path
) -> None:
    rows = np.lib.format.open_memmap(
        str(tmp_path / "rows.npy"), mode="w+", dtype=np.uint8, shape=(250_000, 128)
    )
    rows[:] = np.arange(128, dtype=np.uint8)
    process = start(f"ingest rows.npy {URL}/cut", cwd=tmp_path)
    wait_until(lambda: len(server.keys("cut")) >= 3, process)
    kill(process)
    left = server.keys("cut")
    assert ".mercore-draft" in left
    assert "zarr.json" not in left
    for verb in ("info", "check"):
        outcome = invoke(verb, f"{URL}/cut")
        assert (outcome.code, outcome.err) == (
            2,
            f"mercore: {URL}/cut does not exist: expected a store. Fix: check the path.\n",
        )
    np.save(tmp_path / "few.npy", histograms(100, 128, seed=1))
    for store in (tmp_path / "store", f"{URL}/cut"):
        succeed(f"ingest {tmp_path}/few.npy {store}")
    assert server.objects("cut") == files_of(tmp_path / "store")


@pytest.mark.usefixtures("quick_to_follow")
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.promise("A server that goes away ends the command with one paragraph")
def test_a_server_that_goes_away_ends_the_command_with_one_paragraph_and_a_resumable_store(
    how: signal.Signals, vectors: Path, codes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercore.stores.location.s3.RETRY_SECONDS", 0.5)
    monkeypatch.setenv("AWS_TIMEOUT", "2 seconds")
    with object_server() as server:

        def end_it() -> None:
            give_up = time.monotonic() + 60
            while len(receipts(server, "job")) < 5 and time.monotonic() < give_up:
                time.sleep(0.005)
            server.process.send_signal(how)

        watching = threading.Thread(target=end_it)
        watching.start()
        outcome = invoke(f"encode {vectors} {URL}/job", *SMALL)
        watching.join()
        assert (outcome.code, outcome.out) == (1, "")
        assert re.fullmatch(
            rf"mercore: cannot (write|read) {URL}/job\S+: the server does not answer, or broke "
            rf"off. Fix: check the "
            "network and AWS_ENDPOINT_URL, then run the same command again: what is done stays "
            "done.\n",
            outcome.err,
        )
        if how == signal.SIGKILL:
            return
        server.process.send_signal(signal.SIGCONT)
        report = json.loads(succeed(f"encode {vectors} {URL}/job", *SMALL, "--json"))
        assert 0 < report["parts_done_now"] <= SMALL_PARTS - 5
        assert server.objects("job") == files_of(codes)


# Damaged


@pytest.fixture(scope="module")
def parted(server: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The prefix of a vector store of many parts that remembers dropped rows."""
    folder = tmp_path_factory.mktemp("parted")
    rows = histograms(600, 24, seed=3)
    rows[::100] = 0
    np.save(folder / "rows.npy", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 3 << 10)
        succeed(f"ingest {folder}/rows.npy {URL}/parted --drop-zero-rows")
    return f"{URL}/parted"


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.promise("Damaged objects are refused by part")
def test_damaged_objects_are_refused_by_part(
    kind: str, server: ObjectServer, there: str, parted: str, here: Path
) -> None:
    rng = np.random.default_rng(list(DAMAGES).index(kind))
    for prefix, key, names, kernel in (
        ("there/coarse", "atoms/c/3/0", ": part 3: ", None),
        ("there/coarse", "residual/c/11", ": part 11: ", None),
        ("there/coarse", "receipts/c/0/0", ": part 0:? ", None),
        ("there/coarse", "model/dictionary/c/0/0", ": model array dictionary ", None),
        ("parted", "vectors/c/2/0", ": part 2: ", KERNEL),
        ("parted", "receipts/c/4/0", ": part 4:? ", KERNEL),
        ("parted", "model/dropped/c/0", ": model array dropped ", KERNEL),
    ):
        whole = server.get(f"{prefix}/{key}")
        wrong = DAMAGES[kind](whole, rng)
        server.delete(f"{prefix}/{key}") if wrong is None else server.put(f"{prefix}/{key}", wrong)
        try:
            (fault,) = api.check(f"{URL}/{prefix}")["faults"]
            assert re.match(re.escape(f"{URL}/{prefix}") + names, fault)
            with pytest.raises(IntegrityError, match=names):
                api.search(
                    f"{URL}/{prefix}", str(here / "queries.npy"), k=5, kernel=kernel, threads=2
                )
        finally:
            server.put(f"{prefix}/{key}", whole)


@pytest.mark.promise("Damaged objects are refused by part")
def test_an_object_that_grew_is_refused(server: ObjectServer, there: str) -> None:
    key = "there/coarse/scale/c/5"
    whole = server.get(key)
    server.put(key, whole + b"\0")
    try:
        (fault,) = api.check(f"{there}/coarse")["faults"]
        found = f"column scale has {len(whole) + 1} bytes: its receipt says {len(whole)}"
        assert fault.startswith(f"{there}/coarse: part 5: {found}. Fix: ")
    finally:
        server.put(key, whole)


def test_what_is_wrong_is_done_again_and_nothing_else(server: ObjectServer, here: Path) -> None:
    server.copy_from(here / "coarse", "mended")
    server.delete("mended/weights/c/2/0")
    server.delete("mended/model/zarr.json")
    server.put("mended/atoms/c/7/0", bytes(len(server.get("mended/atoms/c/7/0"))))
    outcome = invoke(f"encode {here}/vectors {URL}/mended", *OPTIONS, "--json")
    assert (outcome.code, json.loads(outcome.out)["parts_done_now"]) == (0, 2)
    told = outcome.err.splitlines()
    assert told[0] == "writing model/zarr.json again: it was missing or damaged"
    assert told[1].startswith(
        f"doing part 2 again: {URL}/mended: part 2: column weights is missing: expected "
    )
    assert told[2].startswith(
        f"doing part 7 again: {URL}/mended: part 7: column atoms has no checksum"
    )
    assert told[3:] == [f"parts: {PARTS - 2} of {PARTS} done, 0 missing, 2 wrong"]
    assert server.objects("mended") == files_of(here / "coarse")


# Refused


def refused(code: int, message: str, *words: object, **options: dict[str, str]) -> None:
    outcome = run(*words, **options) if options else invoke(*words)
    assert (outcome.code, outcome.out, outcome.err) == (code, "", f"mercore: {message}\n")


AGAIN = "then run the same command again: what is done stays done."
ABSENT = (
    "there is no bucket absent, expected one. Fix: create it, or check its name and "
    "AWS_ENDPOINT_URL."
)


@pytest.mark.promise("Nothing is deleted that is not of a store's layout")
def test_what_is_in_the_way_is_refused_and_stays(
    server: ObjectServer, there: str, here: Path
) -> None:
    before = server.objects("there")
    server.put("precious/photograph.jpg", b"precious")
    server.put("precious/vectors/c/0/0", b"as a chunk is called")
    for target in (f"{there}/vectors", there, f"{URL}/precious", f"{URL}/precious/photograph.jpg"):
        message = f"{target} exists: expected a new path. Fix: name another, or remove it."
        refused(2, message, f"ingest {here}/base.npy {target}")
    for target in (there, f"{URL}/precious", f"{there}/vectors"):
        message = (
            f"{target} exists and is no code store: expected one that is begun, or a new path. "
            "Fix: name another."
        )
        refused(2, message, f"encode {here}/vectors {target}", *OPTIONS)
    assert server.objects("there") == before
    assert server.keys("precious") == ["photograph.jpg", "vectors/c/0/0"]


def test_what_is_not_there_is_named(server: ObjectServer, there: str, here: Path) -> None:
    nothing = f"{URL}/nothing"
    for verb in ("info", "check"):
        refused(
            2, f"{nothing} does not exist: expected a store. Fix: check the path.", verb, nothing
        )
    message = (
        f"{nothing} does not exist: expected a vector store. Fix: check the path, or "
        "mercore ingest SOURCE"
    )
    refused(2, f"{message} {nothing}", f"encode {nothing} {URL}/codes", *OPTIONS)
    refused(2, f"s3://absent/codes: {ABSENT}", "info", "s3://absent/codes")
    refused(2, f"s3://absent/vectors: {ABSENT}", f"ingest {here}/base.npy s3://absent/vectors")
    assert server.keys("codes") == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "s3://AKIA:secret@bucket/vectors",
            "a URL with a name or a password in it would show in lists of processes and in "
            "stores: found one, expected "
            "s3://BUCKET/PREFIX. Fix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and "
            "leave them out of the URL.",
        ),
        *(
            (
                url,
                f"{url} names no prefix of a bucket: expected s3://BUCKET/PREFIX. Fix: correct it.",
            )
            for url in (
                "s3://bucket",
                "s3://bucket/",
                "s3:///x",
                "s3://bucket/a//b",
                "s3://bucket/../b",
                "s3://-/x",
            )
        ),
        (
            "gs://bucket/vectors",
            "gs:// names no location of a store: expected a path, or s3://BUCKET/PREFIX. Fix: "
            "name one of those.",
        ),
    ],
)
@pytest.mark.promise("A URL or an endpoint with a password is refused without being repeated")
def test_urls_that_name_no_location_are_refused(url: str, message: str, here: Path) -> None:
    refused(2, message, "info", url)
    refused(2, message, f"ingest {here}/base.npy {url}")


@pytest.mark.promise("Hits and comparisons are files of this machine")
def test_files_stay_here(there: str, here: Path, tmp_path: Path) -> None:
    def message(what: str) -> str:
        return (
            f"{what} cannot lie at a URL: found one of s3://, expected a path of this "
            "machine. Fix: name a file here."
        )

    hits = (f"search {here}/coarse {here}/queries.npy --out {URL}/hits.npz",)
    refused(2, message("hits"), *hits)
    refused(2, message("hits"), f"evaluate {URL}/hits.npz {URL}/truth.npz")
    refused(
        2,
        message("a Zarr array of another tool"),
        f"ingest {there}/vectors/vectors {tmp_path}/vectors",
    )
    refused(2, message("a comparison"), *_comparison(here), "--out", f"{URL}/compared")
    refused(2, message("a demonstration"), f"demo --out {URL}/demo")
    assert list(tmp_path.iterdir()) == []


def _comparison(here: Path) -> tuple[object, ...]:
    return (
        "compare",
        here / "vectors",
        here / "queries.npy",
        "--kernel",
        KERNEL,
        "--encoder",
        "aska:atoms=64",
    )


def test_without_the_client_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "obstore.py").write_text("raise ImportError('not installed')\n")
    message = "s3:// needs the package obstore: found none. Fix: pip install 'mercore[s3]'"
    refused(2, message, "info", f"{URL}/store", env={"PYTHONPATH": str(tmp_path)})


class Denying(BaseHTTPRequestHandler):
    """A server that lets nobody do anything, and repeats what it was sent, as servers may."""

    def deny(self) -> None:
        """Say no."""
        said = f"<Error><Code>AccessDenied</Code><Message>{self.headers['Authorization']}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_PUT = do_HEAD = deny  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.promise("A server's refusal is printed without what it was sent")
def test_a_server_that_denies_is_quoted_without_what_it_was_sent(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HTTPServer(("127.0.0.1", 0), Denying) as denying:
        threading.Thread(target=denying.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{denying.server_port}")
        fix = "Fix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may"
        message = (
            f"cannot read {URL}/x/zarr.json: access is denied (AccessDenied). {fix} read "
            f"there, {AGAIN}"
        )
        refused(1, message, "info", f"{URL}/x")
        outcome = invoke(f"ingest {here}/base.npy {URL}/x")
        denying.shutdown()
    assert outcome.code == 1
    assert outcome.err.startswith(
        f"mercore: cannot read {URL}/x: access is denied (403 Forbidden). {fix} read there"
    )
    assert not any(secret in outcome.err for secret in CREDENTIALS.values())


def test_no_credentials_are_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercore.stores.location.s3.RETRY_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = listening.getsockname()[1]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(
        "AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{closed}"
    )  # where a machine would ask for its role
    message = f"cannot read {URL}/x/zarr.json: no credentials were found. Fix: "
    refused(
        1, f"{message}set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, {AGAIN}", "info", f"{URL}/x"
    )


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"AWS_ALLOW_HTTP": ""},
            "AWS_ENDPOINT_URL is of plain http://, which anyone on the way can read and change: "
            "expected https://. "
            "Fix: name an https:// endpoint, or set AWS_ALLOW_HTTP=true if the network may be "
            "trusted.",
        ),
        *(
            (
                {"AWS_ENDPOINT_URL": endpoint},
                "AWS_ENDPOINT_URL is not usable: expected http://HOST:PORT or https://HOST, "
                "without a name or a "
                "password. Fix: correct it, or unset it to use Amazon's own.",
            )
            for endpoint in (
                "not a url",
                "ftp://127.0.0.1",
                "https://key:secret@127.0.0.1",
                "http://",
            )
        ),
        (
            {"AWS_TIMEOUT": "a while"},
            "the environment's AWS_ variables are not usable for s3://bucket: GenericError. "
            "Fix: correct AWS_REGION, AWS_ENDPOINT_URL and the credentials.",
        ),
    ],
)
@pytest.mark.promise("A URL or an endpoint with a password is refused without being repeated")
def test_an_environment_that_is_not_to_be_used_is_refused(
    variables: dict[str, str], message: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    refused(2, message, "info", f"{URL}/x")


def test_rows_are_looked_up_by_ranges_of_objects(server: ObjectServer, tmp_path: Path) -> None:
    np.save(tmp_path / "base.npy", histograms(30_000, 256, seed=1))
    np.save(tmp_path / "one.npy", histograms(1, 256, seed=2))
    codes = f"{URL}/wide-codes"
    succeed(f"ingest {tmp_path}/base.npy {URL}/wide")
    succeed(f"encode {URL}/wide {codes}", *KERNEL_OPTION, "--encoder", "klsh", "--bits", 64)
    _, flat = api.search(codes, tmp_path / "one.npy", k=10)
    report, hits = api.search(codes, tmp_path / "one.npy", k=3, rerank=10)
    _, truth = api.search(f"{URL}/wide", tmp_path / "one.npy", k=30_000, kernel=KERNEL)
    expected = [row for row in truth.ids[0].tolist() if row in flat.ids[0]]
    assert hits.ids[0].tolist() == expected[:3]
    scanned, _ = api.search(codes, tmp_path / "one.npy", k=10)
    looked_up = report["read_bytes"] - scanned["read_bytes"]
    assert 0 < looked_up < 10 * (16 << 10) + 9 * (256 << 10)  # of 30 MB; blocks, and small gaps


def test_questions_of_rows_there_are_answered_as_here(
    there: str, here: Path, tmp_path: Path
) -> None:
    """Among, within, pairs and the graph; deleted and compacted rows."""
    queries, bounds = here / "queries.npy", ("--encoder", "bin-bound", "--groups", 8)
    np.save(tmp_path / "gone.npy", np.arange(0, 3000, 7))
    answers: dict[str, list[str]] = {"here": [], "there": []}
    for name, folder in (("here", str(tmp_path)), ("there", f"{URL}/questions")):
        succeed(f"ingest {here}/base.npy {folder}/v")
        succeed(f"encode {folder}/v {folder}/b", *KERNEL_OPTION, *bounds)
        for _ in range(2):
            for line in (
                f"search {folder}/b {queries} -k 5 --exact --among 100:2000",
                f"search {folder}/b {queries} --within top:0.05% --exact",
                f"pairs {folder}/b {queries} --within 0.8 --without {tmp_path}/gone.npy",
                f"graph {folder}/b -k 2 --among 0:300",
            ):
                answers[name].append(succeed(line))
            succeed(f"delete {folder}/v {tmp_path}/gone.npy")
        succeed(f"compact {folder}/v {folder}/w")
        answers[name].append(succeed(f"search {folder}/w {queries} -k 5", *KERNEL_OPTION))
    assert answers["there"] == answers["here"]
    assert answers["here"][0] != answers["here"][4]
