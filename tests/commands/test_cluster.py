"""Searches on real clusters: the bytes that threads give, whatever is killed on the way, and
nothing open to others."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, Security

import mercore
from mercore.jobs.cluster.encode_parts import Sources, encode_parts
from mercore.jobs.cluster.search_parts import searching
from mercore.jobs.cluster.sort_orders import sort_orders
from mercore.jobs.cluster.tasks import DaskWorkers
from mercore.jobs.resources.execution import SearchSize, WorkerPaths
from mercore.pipeline.orders.build import Run
from mercore.pipeline.topk import TopK
from mercore.stores.errors import NotFoundError
from mercore.stores.selection import RangeSelection
from tests.commands.test_faults import DAMAGES, damaged
from tests.jobs.cluster.test_search_parts import check_selected, random_rows
from tests.support.custom_kernels import INTERSECTION, write
from tests.support.running import (
    Cluster,
    Outcome,
    count_receipts,
    files_of,
    finish,
    histograms,
    invoke,
    run,
    start,
    succeed,
    wait_until,
)

ROWS, DIMS, QUERIES = 3000, 24, 40
BATCH = 8  # so that three workers take a batch each by themselves, and share out the parts of two
AT = r"tcp://127\.0\.0\.1:\d+"
ENCODERS = {
    "aska": ("chi2", "--atoms", 64, "--sparsity", 4),
    "kpca-pq": ("chi2", "--landmarks", 256, "--components", 64, "--subquantizers", 32),
    "kpca-lsh": ("chi2", "--landmarks", 64, "--components", 16, "--bits", 64),
    "kpca-bound": ("chi2", "--landmarks", 512, "--components", 64),
    "bin-bound": ("intersection", "--groups", 12),
}
ASKA = "chi2", "--encoder", "aska", *ENCODERS["aska"][1:]
SEARCHES: dict[str, tuple[Any, ...]] = {
    "aska": ("aska",),
    "aska reranked": ("aska", "--rerank", 60),
    "kpca-pq": ("kpca-pq",),
    "kpca-pq reranked": ("kpca-pq", "--rerank", 60),
    "kpca-lsh": ("kpca-lsh",),
    "exhaustive": ("vectors", "--kernel", "chi2"),
    "kpca-bound": ("kpca-bound", "--exact"),
    "kpca-pq exact": ("kpca-pq", "--exact"),
    "kpca-pq relaxed": ("kpca-pq", "--relaxed", 0.9),
    "kpca-bound relaxed": ("kpca-bound", "--relaxed", 0.9),
    "bin-bound": ("bin-bound", "--exact"),
    "exact without bounds": ("vectors", "--exact", "--kernel", "chi2"),
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors in 24 parts, their codes in 12, and queries."""
    folder = tmp_path_factory.mktemp("stores")
    np.save(folder / "base.npy", histograms(ROWS, DIMS, seed=1))
    np.save(folder / "queries.npy", histograms(QUERIES, DIMS, seed=2))
    np.save(folder / "many.npy", histograms(2000, DIMS, seed=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 3 << 10)
        succeed(f"ingest {folder}/base.npy {folder}/vectors")
    for name, (kernel, *options) in ENCODERS.items():
        words = ("--kernel", kernel, "--encoder", name, *options, "--part-rows", 256)
        succeed(f"encode {folder}/vectors {folder}/{name}", *words)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of three workers that no test harms."""
    made = Cluster(tmp_path_factory.mktemp("cluster"), workers=3)
    yield made
    made.end()


@pytest.fixture
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of three workers that a test may kill."""
    made = Cluster(tmp_path_factory.mktemp("cluster"), workers=3)
    yield made
    made.end()


def search(
    folder: Path, out: Path, name: str, *options: object, queries: str = "queries.npy"
) -> Outcome:
    store, *words = SEARCHES[name]
    return invoke(
        f"search {folder}/{store} {folder}/{queries} -k 7", *words, "--out", out, *options
    )


def answers(folder: Path, out: Path, name: str, *options: object) -> dict[str, bytes]:
    """Return every file that a search writes."""
    out.mkdir()
    outcome = search(folder, out / "hits.npz", name, "--batch", BATCH, *options)
    assert outcome.code == 0, outcome.err
    return files_of(out)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.promise("Processes and clusters answer as threads do, certificates included")
def test_three_workers_answer_as_threads_do(
    name: str, folder: Path, cluster: Cluster, tmp_path: Path
) -> None:
    expected = answers(folder, tmp_path / "threads", name, "--threads", 2)
    assert answers(folder, tmp_path / "workers", name, "--scheduler", cluster.address) == expected
    assert len(expected) == 1 + (name not in list(SEARCHES)[:6])  # a certificate


@pytest.mark.parametrize("codes", ["aska", "kpca-lsh", "kpca-pq", "kpca-bound", None])
def test_workers_search_selected_rows(codes: str | None, folder: Path, cluster: Cluster) -> None:
    with Client(cluster.address) as client:
        for selection in (RangeSelection(700, 2000), random_rows(ROWS)):
            check_selected(DaskWorkers(client), folder, codes, selection)


@pytest.mark.promise("Processes and clusters answer as threads do, certificates included")
def test_verdicts_are_the_same(folder: Path, cluster: Cluster, tmp_path: Path) -> None:
    claims = np.load(folder / "queries.npy")[:, :7].astype(
        np.int32
    )  # wrong, and some name a row twice
    assert search(folder, tmp_path / "true.npz", "kpca-bound").code == 0
    with np.load(tmp_path / "true.npz") as found:
        claims[::2] = found["ids"][::2]
    claims[4, 3] = (claims[4, 3] + 1) % ROWS
    rows = np.concatenate([np.full((QUERIES, 1), 7, np.int32), claims], axis=1)
    rows.tofile(tmp_path / "claims.ivecs")
    words = (f"verify {folder}/vectors {folder}/queries.npy {tmp_path}/claims.ivecs --kernel chi2",)
    options = ("--bounds", folder / "kpca-bound", "--batch", BATCH, "--json")
    both = [
        invoke(*words, *options, *where)
        for where in (("--threads", 2), ("--scheduler", cluster.address))
    ]
    assert [outcome.code for outcome in both] == [1, 1], both
    here, there = ({**json.loads(outcome.out), "seconds": 0} for outcome in both)
    assert here == there
    assert 0 < here["proved"] < QUERIES


@pytest.mark.promise("Processes and clusters answer as threads do, certificates included")
def test_processes_of_this_machine_do_as_threads_do(folder: Path, tmp_path: Path) -> None:
    expected = answers(folder, tmp_path / "threads", "kpca-bound")
    assert answers(folder, tmp_path / "processes", "kpca-bound", "--processes", 2) == expected
    encode = (
        f"encode {folder}/vectors {tmp_path}/codes --kernel",
        *ASKA,
        "--part-rows",
        256,
    )
    succeed(*encode, "--processes", 2)
    assert files_of(tmp_path / "codes") == files_of(folder / "aska")


def test_a_kernel_of_the_users_own(folder: Path, cluster: Cluster, tmp_path: Path) -> None:
    write(tmp_path, INTERSECTION)
    mine, at = ("--kernel", tmp_path / "mine.py"), ("--scheduler", cluster.address)
    bounds = tmp_path / "bounds"
    words = ("--encoder", "kpca-bound", "--landmarks", 512, "--components", 64, "--part-rows", 500)
    succeed(f"encode {folder}/vectors {bounds}", *mine, *words, *at)
    for store, options in (
        (bounds, ("--exact",)),
        (bounds, ("--rerank", 20)),
        (folder / "vectors", ()),
    ):
        for where in ((), at):
            out = tmp_path / ("there.npz" if where else "here.npz")
            succeed(
                f"search {store} {folder}/queries.npy -k 5",
                *mine,
                *options,
                "--force",
                "--out",
                out,
                *where,
            )
        assert (tmp_path / "here.npz").read_bytes() == (tmp_path / "there.npz").read_bytes()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("aska", "weights/c/{}/0"),
        ("aska", "residual/c/{}"),  # which the search does not use
        ("kpca-bound", "terms/c/{}/0"),
        ("exhaustive", "vectors/c/{}/0"),
    ],
)
def test_a_wrong_byte_is_told_as_threads_tell_it(
    name: str, key: str, folder: Path, cluster: Cluster, tmp_path: Path
) -> None:
    store = folder / SEARCHES[name][0]
    for part in (0, 7, 11):
        with damaged(
            store / key.format(part), DAMAGES["a bit flipped"], np.random.default_rng(part)
        ):
            outcome = search(folder, tmp_path / "hits.npz", name, "--scheduler", cluster.address)
            assert (outcome.code, outcome.out) == (1, ""), outcome
            here = search(folder, tmp_path / "hits.npz", name, "--threads", 2)
            assert re.sub(f"worker {AT}: ", "", outcome.err, count=1) == here.err
            assert f": {store}: part {part}: " in outcome.err


@pytest.mark.promise("With `--check-all`, bytes that no query needs are checked too")
def test_a_wrong_byte_that_no_query_needs_is_found_too(
    folder: Path, cluster: Cluster, tmp_path: Path
) -> None:
    np.save(tmp_path / "one.npy", np.load(folder / "queries.npy")[:1])
    words = (f"search {folder}/kpca-bound {tmp_path}/one.npy -k 1 --exact --check-all --json",)
    for part in range(0, 24, 5):
        with damaged(
            folder / f"vectors/vectors/c/{part}/0",
            DAMAGES["a bit flipped"],
            np.random.default_rng(part),
        ):
            outcome = invoke(*words, "--scheduler", cluster.address)
        assert (outcome.code, outcome.out) == (1, ""), outcome
        assert re.match(f"mercore: worker {AT}: {folder / 'vectors'}: part {part}: ", outcome.err)


def when(
    true: Callable[[], bool], act: Callable[[], object], process: subprocess.Popen[str]
) -> threading.Thread:
    """Do something once something is true, on a thread."""

    def watch() -> None:
        wait_until(true, process)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def batches_in(folder: Path) -> int:
    return len(list(folder.glob("hits.npz.parts/batch-*")))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.promise("A killed worker costs its parts alone")
def test_killed_workers_cost_their_parts_only(
    shared: bool, folder: Path, mortal: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared:  # the parts of every batch, one a task
        monkeypatch.setattr("mercore.jobs.cluster.search_parts.PAIRS_PER_RUN", 1)
    assert (
        search(folder, tmp_path / "true.npz", "kpca-bound", "--batch", 20, queries="many.npy").code
        == 0
    )
    words = ("--batch", 20, "--scheduler", mortal.address)
    kills = [
        when(
            lambda count=3 + 30 * number: batches_in(tmp_path) >= count,  # type: ignore[misc]
            worker.kill,
            mortal.scheduler,
        )
        for number, worker in enumerate(mortal.workers[:2])
    ]
    outcome = search(folder, tmp_path / "hits.npz", "kpca-bound", *words, queries="many.npy")
    assert outcome.code == 0, outcome.err
    for kill in kills:
        kill.join()
    assert [worker.poll() is None for worker in mortal.workers] == [False, False, True]
    for suffix in (".npz", ".npz.certificate.npz"):
        assert (tmp_path / f"hits{suffix}").read_bytes() == (
            tmp_path / f"true{suffix}"
        ).read_bytes()


def test_a_search_whose_scheduler_is_killed_ends_in_one_paragraph(
    folder: Path, mortal: Cluster, tmp_path: Path
) -> None:
    kill = when(lambda: batches_in(tmp_path) >= 3, mortal.scheduler.kill, mortal.workers[0])
    words = ("--batch", 20, "--scheduler", mortal.address)
    outcome = search(folder, tmp_path / "hits.npz", "kpca-bound", *words, queries="many.npy")
    kill.join()
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(
        f"mercore: the cluster lost a part of {folder / 'kpca-bound'}: "
    ), outcome.err
    assert outcome.err.count("\n") == 1


FIX = "Fix: install the mercore of this command on every worker, and start the workers again."


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of another mercore, whose sources differ in a comment."""
    folder = tmp_path_factory.mktemp("other")
    shutil.copytree(Path(mercore.__file__).parent, folder / "mercore")
    with (folder / "mercore/pipeline/search/exact.py").open("a") as file:
        file.write("# other\n")
    return folder


@pytest.fixture(scope="module")
def none(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that hides mercore from the processes that have it in PYTHONPATH."""
    folder = tmp_path_factory.mktemp("none")
    (folder / "mercore").mkdir()
    (folder / "mercore/__init__.py").touch()
    return folder


@pytest.mark.parametrize("verb", ["search", "encode", "index"])
@pytest.mark.promise(
    "Workers with other sources of mercore are refused by name, whenever they join"
)
def test_workers_of_another_mercore_are_refused_by_name(
    verb: str, folder: Path, mortal: Cluster, other: Path, none: Path, tmp_path: Path
) -> None:
    words: dict[str, tuple[object, ...]] = {
        "search": (
            folder / "vectors",
            folder / "queries.npy",
            "-k",
            7,
            "--kernel",
            "chi2",
            "--exact",
        ),
        "encode": (folder / "vectors", tmp_path / "new", "--kernel", *ASKA),
        "index": (folder / "kpca-lsh", tmp_path / "new"),
    }
    mortal.join(PYTHONPATH=str(other))
    mortal.join(PYTHONPATH=str(none))
    with Client(mortal.address) as client:
        client.wait_for_workers(5, timeout=60)
    outcome = invoke(verb, *words[verb], "--scheduler", mortal.address)
    assert (outcome.code, outcome.out) == (1, "")
    assert re.fullmatch(
        "mercore: workers of the cluster have another version of mercore, or none: found "
        rf"(sources [0-9a-f]{{16}} on {AT}, |ModuleNotFoundError.* on {AT}, ){{2}}"
        rf"expected sources [0-9a-f]{{16}}\. {FIX}\n",
        outcome.err,
    ), outcome.err


@pytest.mark.promise(
    "Workers with other sources of mercore are refused by name, whenever they join"
)
def test_a_worker_of_another_mercore_that_joins_a_search_ends_it(
    folder: Path, mortal: Cluster, other: Path, tmp_path: Path
) -> None:
    joins = when(
        lambda: batches_in(tmp_path) >= 3,
        lambda: mortal.join(PYTHONPATH=str(other)),
        mortal.scheduler,
    )
    words = ("--batch", 2, "--scheduler", mortal.address)
    outcome = search(folder, tmp_path / "hits.npz", "kpca-bound", *words, queries="many.npy")
    joins.join()
    assert (outcome.code, outcome.out) == (1, "")
    assert re.fullmatch(
        rf"mercore: worker {AT}: another version of mercore: found sources [0-9a-f]{{16}}, "
        rf"expected [0-9a-f]{{16}}\. {FIX}\n",
        outcome.err,
    ), outcome.err


@pytest.mark.parametrize("verb", ["search", "encode", "index"])
@pytest.mark.promise("An error on a worker names it, and leaves no plugin on the scheduler")
def test_a_worker_that_finds_no_file_is_named_and_no_plugin_stays(
    verb: str, folder: Path, cluster: Cluster
) -> None:
    """A plugin that stays is given to every worker that starts later, with mercore or without."""
    nowhere, queries = "/nowhere/store", np.load(folder / "queries.npy")

    def search(workers: DaskWorkers) -> None:
        stores = WorkerPaths(kernel={}, vectors=str(folder / "vectors"), custom="/nowhere/store.py")
        with searching(workers, stores, SearchSize(QUERIES, QUERIES)) as executor:
            executor.batch(queries).score_every_row(partial(TopK, QUERIES, 3, np.float64))

    fails: dict[str, Callable[[DaskWorkers], None]] = {
        "search": search,
        "encode": lambda workers: encode_parts(workers, nowhere, Sources(nowhere), [0]),
        "index": lambda workers: sort_orders(workers, (nowhere, nowhere), [Run(0, [0])]),
    }
    words = f"worker {AT}, which must find files at the paths that this machine has: {nowhere}"
    with Client(cluster.address) as client:
        with pytest.raises(NotFoundError, match=f"^{words}"):
            fails[verb](DaskWorkers(client))
        kept = client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.worker_plugins])
    assert not [name for name in kept if name.startswith("mercore")]


def test_a_cluster_without_a_worker_is_told_how_to_start_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercore.jobs.cluster.client.CONNECT_SECONDS", 3)
    empty = Cluster(tmp_path, workers=0)
    try:
        outcome = search(folder, tmp_path / "hits.npz", "aska", "--scheduler", empty.address)
    finally:
        empty.end()
    assert outcome.code == 1
    assert outcome.err == (
        f"mercore: the cluster at {empty.address} has no worker: expected at least one. "
        f"Fix: dask worker {empty.address} --no-nanny\n"
    )


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> str:
    """Wait for a worker for no more than half a second; return what is said then."""
    monkeypatch.setattr("mercore.jobs.cluster.tasks.NO_WORKER_SECONDS", 0.5)
    monkeypatch.setattr("mercore.jobs.cluster.tasks.POLL_SECONDS", 0.1)
    return (
        "mercore: the cluster has lost its workers: found none for 0.5 s, expected at least "
        "one. Fix: "
    )


@pytest.mark.promise("A lost cluster ends the command with one paragraph, and the work resumes")
def test_a_search_that_loses_its_last_worker_ends_and_resumes(
    folder: Path, impatient: str, mortal: Cluster, tmp_path: Path
) -> None:
    kill = when(lambda: batches_in(tmp_path) >= 3, lambda: end(mortal.workers), mortal.scheduler)
    words = ("--batch", 20, "--scheduler", mortal.address)
    outcome = search(folder, tmp_path / "hits.npz", "kpca-bound", *words, queries="many.npy")
    kill.join()
    assert (outcome.code, outcome.out) == (1, ""), outcome
    assert outcome.err.startswith(impatient)
    assert outcome.err.count("\n") == 1
    done = batches_in(tmp_path)
    assert 3 <= done < 100
    assert (
        search(folder, tmp_path / "hits.npz", "kpca-bound", "--batch", 20, queries="many.npy").code
        == 0
    )
    assert batches_in(tmp_path) == 0


def test_encoding_that_loses_its_last_worker_keeps_what_is_done(
    folder: Path, impatient: str, mortal: Cluster, tmp_path: Path
) -> None:
    words = (
        f"encode {folder}/vectors {tmp_path}/codes --kernel",
        *ASKA,
        "--part-rows",
        5,
    )
    kill = when(
        lambda: count_receipts(tmp_path / "codes") >= 5,
        lambda: end(mortal.workers),
        mortal.scheduler,
    )
    outcome = invoke(*words, "--scheduler", mortal.address)
    kill.join()
    assert (outcome.code, outcome.out) == (1, ""), outcome
    assert outcome.err.startswith(impatient)
    done = count_receipts(tmp_path / "codes")
    assert 5 <= done < 600
    assert json.loads(succeed(*words, "--json"))["parts_done_now"] == 600 - done


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()


@pytest.mark.promise("Clusters behind TLS work with certificates, and only with them")
def test_a_cluster_behind_tls(folder: Path, tmp_path: Path) -> None:
    made = Security.temporary()
    files = {
        name: tmp_path / f"{name}.pem" for name in ("ca-file", "scheduler-cert", "scheduler-key")
    }
    for path, text in zip(
        files.values(),
        (made.tls_ca_file, made.tls_scheduler_cert, made.tls_scheduler_key),
        strict=True,
    ):
        path.write_text(text)
    ca, cert, key = map(str, files.values())
    both = ("--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key)
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    known = {f"{tls}CA_FILE": ca, f"{tls}CLIENT__CERT": cert, f"{tls}CLIENT__KEY": key}
    cluster = Cluster(
        tmp_path, workers=1, options=("--no-dashboard", "--protocol", "tls"), both=both
    )
    try:
        assert cluster.address.startswith("tls://127.0.0.1:")
        words = (
            "search",
            folder / "aska",
            folder / "queries.npy",
            "-k",
            7,
            "--scheduler",
            cluster.address,
        )
        outcome = run(*words, "--out", tmp_path / "there.npz", env=known)
        assert outcome.code == 0, outcome.err
        stranger = run(*words)
    finally:
        cluster.end()
    succeed(*words[:-2], "--out", tmp_path / "here.npz")
    assert (tmp_path / "here.npz").read_bytes() == (tmp_path / "there.npz").read_bytes()
    assert (stranger.code, stranger.out) == (1, "")
    assert stranger.err.startswith(f"mercore: no Dask scheduler answers at {cluster.address}: "), (
        stranger.err
    )
    assert stranger.err.count("\n") == 1


def test_the_dashboard_is_named_where_there_is_one(
    folder: Path, cluster: Cluster, tmp_path: Path
) -> None:
    words = (f"search {folder}/aska {folder}/queries.npy -k 7 --json --scheduler",)
    shown = Cluster(tmp_path, workers=1, options=())
    try:
        outcome = invoke(*words, shown.address)
    finally:
        shown.end()
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith("dashboard: http://127.0.0.1:")
    assert outcome.err.count("\n") == 1
    assert invoke(*words, cluster.address).err == ""


@pytest.mark.parametrize("verb", ["search", "encode"])
@pytest.mark.promise("Processes listen on loopback alone, and end with the command")
def test_processes_listen_on_loopback_alone_and_end_with_the_command(
    verb: str, folder: Path, tmp_path: Path
) -> None:
    words = {
        "search": (
            "search",
            folder / "kpca-bound",
            folder / "many.npy",
            "--exact",
            "--batch",
            4,
            "--out",
            tmp_path / "hits.npz",
        ),
        "encode": (
            "encode",
            folder / "vectors",
            tmp_path / "codes",
            "--kernel",
            *ASKA,
            "--part-rows",
            2,
        ),
    }
    done = {
        "search": lambda: batches_in(tmp_path),
        "encode": lambda: count_receipts(tmp_path / "codes"),
    }
    process = start(*words[verb], "--processes", 2)
    wait_until(lambda: done[verb]() >= 3, process)
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    listening = [
        socket.laddr
        for each in tree
        for socket in each.net_connections("inet")
        if socket.status == "LISTEN"
    ]
    served = [port for _, port in listening if serves_pages(port)]
    process.kill()
    finish(process)
    assert {address for address, _ in listening} == {"127.0.0.1"}
    assert len(listening) == 8  # a scheduler, two nannies, two workers; three serve no page
    assert served == []
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert alive == []
    assert os.getpid() not in [each.pid for each in tree]


def serves_pages(port: int) -> bool:
    """Return whether a port answers plain HTTP with anything but 404."""
    with suppress(OSError, HTTPException):
        for page in ("/", "/health", "/metrics", "/info/main/workers.html", "/json/counts.json"):
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", page)
            if connection.getresponse().status != HTTPStatus.NOT_FOUND:
                return True
    return False
