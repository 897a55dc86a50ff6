"""A folder and a prefix of a bucket are the same to a store: one is made at once, or is not
there."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import ExistsError, InputError, NotFoundError, StorageError
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.protocol import Location
from mercore.stores.location.resolve import location_of, refuse_url
from mercore.stores.location.s3 import BUFFER_BYTES, MARKER
from mercore.stores.part_store.part_store import PartStore, create
from mercore.stores.rows import open_vectors
from mercore.testing.stores import files_of, histograms, make_codes, make_vectors
from tests.stores.part_store.test_part_store import HEADER, MODEL, values_of
from tests.support.object_server import BUCKET, ObjectServer, object_server

ROOT = b'{"zarr_format": 3, "node_type": "group"}'


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    """A server that this process finds by its environment."""
    with object_server() as running:
        yield running


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A prefix of the bucket that no other test has."""
    return tmp_path.name


@pytest.fixture
def there(server: ObjectServer, prefix: str) -> str:
    """The URL of that prefix."""
    return f"s3://{BUCKET}/{prefix}"


@pytest.fixture(params=["folder", "bucket"])
def at(request: pytest.FixtureRequest, tmp_path: Path, there: str) -> Location:
    """A place where there is nothing yet."""
    return location_of(tmp_path / "store" if request.param == "folder" else f"{there}/store")


class TestPlace:
    """What holds wherever it is."""

    def test_nothing_is_there(self, at: Location) -> None:
        assert not at.exists()
        assert not at.is_folder()
        with pytest.raises(
            NotFoundError,
            match=re.escape(f"{at} does not exist: cannot read it. Fix: check the path."),
        ):
            at.read()
        with pytest.raises(NotFoundError):
            at.read_into(np.empty(3, np.uint8))
        at.check_new()

    def test_files_come_back_and_are_replaced(self, at: Location) -> None:
        file = at / "atoms/c/3/0"
        for data in (b"first", b"", b"other"):
            file.publish(data)
            assert file.read() == data
        assert file.exists()
        assert not file.is_folder()
        assert at.exists()
        assert at.is_folder()
        assert str(file) == f"{at}/atoms/c/3/0"
        with pytest.raises(NotFoundError):
            (file / "below").read()
        with pytest.raises(ExistsError, match=re.escape(f"{at} exists: expected a new path.")):
            at.check_new()

    @pytest.mark.parametrize("size", [0, 5, 12_000_000])
    def test_a_buffer_is_filled_if_it_has_the_files_size(self, size: int, at: Location) -> None:
        data = np.random.default_rng(1).integers(0, 256, size, np.uint8)
        (at / "file").publish(data.tobytes())
        buffer: NDArray[np.uint8] = np.zeros(size + 3, np.uint8)
        assert (at / "file").read_into(buffer[:size]) == size
        np.testing.assert_array_equal(buffer[:size], data)
        np.testing.assert_array_equal(buffer[size:], 0)
        assert (at / "file").read_into(buffer) == size

    def test_ranges_of_a_file_are_read_one_behind_the_other(self, at: Location) -> None:
        data = np.random.default_rng(1).integers(0, 256, 100_000, np.uint8)
        (at / "file").publish(data.tobytes())
        ranges = [(0, 1), (5, 70_000), (99_999, 100_000)]
        buffer = np.zeros(69_997, np.uint8)
        assert (at / "file").read_ranges(ranges, buffer, wait=False) in (0, buffer.size)
        buffer[:] = 0
        assert (at / "file").read_ranges(ranges, buffer) == buffer.size
        expected = np.concatenate([data[start:stop] for start, stop in ranges])
        np.testing.assert_array_equal(buffer, expected)
        assert (at / "file").read_ranges([(99_990, 100_010)], buffer[:20]) == 10
        with pytest.raises(NotFoundError):
            (at / "other").read_ranges(ranges, buffer)

    def test_sizes_are_told_by_key(self, at: Location) -> None:
        for number in range(3):
            (at / f"column/c/{number}").publish(bytes(number))
        (at / "columns").publish(b"of a like name")
        size_of = at.sizes()
        assert [size_of(f"column/c/{number}") for number in range(4)] == [0, 1, 2, None]

    @pytest.mark.parametrize("call_bytes", [0, BUFFER_BYTES // 3, 10 * BUFFER_BYTES])
    def test_each_keeps_the_order_and_raises(self, call_bytes: int, at: Location) -> None:
        def seventh(number: int) -> int:
            if number == 7:
                raise StorageError("the seventh")
            return number

        results = at.each(seventh, range(20), call_bytes=call_bytes)
        assert [next(results) for _ in range(7)] == list(range(7))
        with pytest.raises(StorageError, match="the seventh"):
            list(results)

    def test_a_draft_is_nothing_before_it_is_finished_and_nothing_if_it_is_not(
        self, at: Location
    ) -> None:
        def interrupted() -> None:
            with at.draft() as draft:
                (draft.location / "atoms/c/0/0").publish(b"chunk")
                assert not at.exists()
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert not (at / "atoms/c/0/0").exists()
        with at.draft() as draft:
            (draft.location / "atoms/c/0/0").publish(b"chunk")
        assert not (at / "atoms/c/0/0").exists()
        with at.draft() as draft:
            (draft.location / "atoms/c/1/0").publish(b"chunk")
            draft.finish(ROOT)
            assert at.exists()
        assert (at / "atoms/c/1/0").read() == b"chunk"
        assert not (at / "atoms/c/0/0").exists()

    def test_the_first_to_finish_has_the_name(self, at: Location) -> None:
        def overtaken() -> None:
            with at.draft() as slow:
                with at.draft() as quick:
                    (quick.location / "zarr/zarr.json").publish(b"{}")
                    quick.finish(ROOT)
                slow.finish(ROOT + b" ")

        with pytest.raises(
            ExistsError, match=re.escape(f"{at} appeared a moment ago: expected a new path.")
        ):
            overtaken()
        assert (at / "zarr.json").read() == ROOT
        assert (at / "zarr/zarr.json").read() == b"{}"

    def test_a_store_is_what_it_is_in_a_folder(self, at: Location, tmp_path: Path) -> None:
        stores = [create(where, HEADER, MODEL) for where in (at, tmp_path / "other")]
        for store in stores:
            for part in (2, 0, 1):
                store.write_part(part, values_of(part))
            assert store.check() == []
            store.sweep()
        here, other = stores
        files = files_of(tmp_path / "other")
        assert {key: (at / key).read() for key in files} == files
        assert here.done() == other.done()
        assert here.parts_done == 3
        with pytest.raises(ExistsError):
            create(at, HEADER, MODEL)

    def test_threads_write_and_read_at_once(self, at: Location) -> None:
        store = create(at, HEADER, MODEL)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.fsync", lambda descriptor: None)
            with ThreadPoolExecutor(12) as pool:
                list(pool.map(lambda part: store.write_part(part, values_of(part)), (0, 1, 2) * 4))
        assert PartStore(at, HEADER).check() == []


def test_what_a_killed_creation_left_is_deleted_by_the_next(
    server: ObjectServer, prefix: str, there: str
) -> None:
    at = location_of(there)
    for key in (MARKER, "vectors/c/7/0", "model/zarr.json", "model/dropped/c/0"):
        server.put(f"{prefix}/{key}", b"left")
    assert not at.exists()
    create(at, HEADER, MODEL)
    assert not {MARKER, "vectors/c/7/0", "model/dropped/c/0/0"} & set(server.keys(prefix))
    assert "zarr.json" in server.keys(prefix)


@pytest.mark.promise("Nothing is deleted that is not of a store's layout")
def test_nothing_is_deleted_that_is_not_of_a_stores_layout(
    server: ObjectServer, prefix: str, there: str
) -> None:
    for key in (MARKER, "vectors/c/7/0", "thesis.tex"):
        server.put(f"{prefix}/{key}", b"left")
    message = (
        f"{there} holds thesis.tex, which is no part of a store: expected a new path. "
        "Fix: name another."
    )
    with pytest.raises(ExistsError, match=re.escape(message)):
        create(there, HEADER, MODEL)
    assert server.keys(prefix) == [MARKER, "thesis.tex", "vectors/c/7/0"]


@pytest.mark.promise("Nothing is deleted that is not of a store's layout")
def test_a_neighbours_objects_are_left_alone(server: ObjectServer, prefix: str, there: str) -> None:
    for key in (f"{prefix}/codes2/zarr.json", f"{prefix}/codes.old", f"{prefix}/cod"):
        server.put(key, b"a neighbour's")
    with location_of(f"{there}/codes").draft() as draft:
        (draft.location / "zarr/zarr.json").publish(b"{}")
    assert server.keys(prefix) == ["cod", "codes.old", "codes2/zarr.json"]


def test_a_root_that_is_our_own_is_no_other(server: ObjectServer, prefix: str, there: str) -> None:
    with location_of(there).draft() as draft:
        server.put(f"{prefix}/zarr.json", ROOT)  # as if the answer to our request had been lost
        draft.finish(ROOT)
    assert server.keys(prefix) == ["zarr.json"]


def test_a_creator_killed_after_the_root_is_tidied_up_after(
    server: ObjectServer, prefix: str, there: str
) -> None:
    store = create(there, HEADER, MODEL)
    whole = server.keys(prefix)
    server.put(f"{prefix}/{MARKER}", b"")
    assert store.location.exists()
    store.sweep()
    assert server.keys(prefix) == whole


def test_a_server_that_does_not_answer_is_not_asked_to_tidy_up(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "2 seconds")
    monkeypatch.setattr("mercore.stores.location.s3.RETRY_SECONDS", 0.1)
    with object_server() as stopping:

        def left_alone() -> None:
            with location_of(f"s3://{BUCKET}/{prefix}").draft() as draft:
                (draft.location / "vectors/c/0/0").publish(b"chunk")
                stopping.process.send_signal(signal.SIGSTOP)
                draft.finish(ROOT)

        with pytest.raises(StorageError, match="the server does not answer"):
            left_alone()
        stopping.process.send_signal(signal.SIGCONT)
        assert {MARKER, "vectors/c/0/0"} <= set(stopping.keys(prefix))


def test_other_tools_read_it_as_zarr(
    server: ObjectServer, there: str, prefix: str, tmp_path: Path
) -> None:
    rows = histograms(100, 5)
    vectors = make_vectors(tmp_path / "vectors", rows)
    make_codes(
        tmp_path / "codes", vectors, make_kernel("chi2"), AskaSpec(n_atoms=8, n_nonzero_coefs=2)
    )
    server.copy_from(tmp_path, prefix)
    group = zarr.open_group(
        ObjectStore(server.bucket, read_only=True), path=f"{prefix}/vectors", mode="r"
    )
    np.testing.assert_array_equal(np.asarray(group["vectors"]), rows)
    read = open_vectors(f"{there}/vectors")
    np.testing.assert_array_equal(
        np.concatenate([read.read_part(part) for part in range(read.parts)]), rows
    )
    assert read.fingerprint == vectors.fingerprint


@pytest.mark.parametrize(
    "key", ["a b/ü", "p%20q", "h#a", "w?x", "til~de", "a\\b", "star*", "br{ace}", 'quo"te']
)
def test_any_printable_prefix_will_do(
    key: str, server: ObjectServer, there: str, prefix: str
) -> None:
    at = location_of(f"{there}/{key}/")
    (at / "zarr.json").publish(ROOT)
    assert (at / "zarr.json").read() == ROOT
    assert at.sizes()("zarr.json") == len(ROOT)
    assert server.keys(f"{prefix}/{key}") == ["zarr.json"]


def test_a_path_stays_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(location_of("store").resolved()) == str(tmp_path / "store")
    assert location_of(location_of("store")) == location_of(Path("store"))
    assert location_of(tmp_path / "store").spill_folder() == tmp_path
    refuse_url("hits.npz", "hits")
    with pytest.raises(InputError, match=r"hits cannot lie at a URL: found one of http://"):
        refuse_url("http://127.0.0.1/hits.npz", "hits")


def test_bytes_are_counted_though_files_vanish_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/stays").write_bytes(bytes(7))
    (tmp_path / "store/goes").write_bytes(bytes(5))
    walk = os.walk

    def walked(folder: Path) -> Any:
        for found in walk(folder):
            (tmp_path / "store/goes").unlink(missing_ok=True)
            yield found

    monkeypatch.setattr("mercore.stores.location.local.os.walk", walked)
    assert LocalLocation(tmp_path / "store").stored_bytes() == 7
