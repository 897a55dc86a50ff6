"""Appended rows are what one ingest would have stored, and a kill at any moment loses no row."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Zstd
from numpy.typing import NDArray

import mercore
from mercore.stores import vector_writer
from mercore.stores.errors import FormatError, InputError, MercoreError, ShapeError, StorageError
from mercore.stores.location.local import LocalLocation
from mercore.stores.part_store import column
from mercore.stores.vectors import VectorStore, open_vector_store, original_ids
from mercore.testing.cases import in_case
from mercore.testing.rows import steady
from tests.support.killing import Killed, kills
from tests.support.running import files_of

PART_ROWS, DIMS = 8, 3


@pytest.fixture(autouse=True)
def small_parts() -> Iterator[None]:
    """Parts of eight rows of float32, and no waits for the disk."""
    with (
        patch.object(vector_writer, "CHUNK_BYTES", PART_ROWS * DIMS * 4),
        patch.object(os, "fsync"),
    ):
        yield


def rows_of(count: int, seed: int) -> NDArray[np.float32]:
    """Rows: about every fifth is all zero, and every seventh holds a NaN."""
    rng = np.random.default_rng(seed)
    rows = rng.random((count, DIMS), np.float32)
    rows[rng.random(count) < 0.2] = 0
    rows[rng.random(count) < 0.15, 1] = np.nan
    return rows


def stored(vectors: VectorStore) -> NDArray[Any]:
    return np.concatenate([vectors.read_part(part) for part in range(vectors.parts)])


def rows_and_ids(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    vectors = open_vector_store(path)
    return stored(vectors), original_ids(np.arange(vectors.rows), vectors.dropped)


def assert_same(path: Path, other: Path) -> None:
    """Assert that two stores hold the same rows under the same ids, and state the same counts."""
    for found, expected in zip(rows_and_ids(path), rows_and_ids(other), strict=True):
        np.testing.assert_array_equal(found, expected)
    one, two = (vars(open_vector_store(each).spec) for each in (path, other))
    about_sources = ("source", "appended", "duplicate_rows")
    assert {key: one[key] for key in one if key not in about_sources} == {
        key: two[key] for key in two if key not in about_sources
    }


DROPS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "zero": {"drop_zero_rows": True},
    "all": {"drop_zero_rows": True, "drop_bad_rows": True},
}


@given(
    counts=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3), min_size=1, max_size=4),
    drop=st.sampled_from(list(DROPS)),
    compressor=st.sampled_from(["none", "zstd"]),
)
@steady(4)
@pytest.mark.promise("Appended rows are found as rows of one ingest are")
def test_ingest_and_appends_store_what_one_ingest_stores(
    tmp_path_factory: pytest.TempPathFactory, counts: list[list[int]], drop: str, compressor: str
) -> None:
    folder = tmp_path_factory.mktemp("stores")
    sources = [
        [rows_of(count, seed=10 * at + of) for of, count in enumerate(each, 1)]
        for at, each in enumerate(counts)
    ]
    sources[0][0][0] = 0.5  # no source of an ingest or append is dropped as a whole
    for each in sources:
        each[0][0] = 0.5
    every = [rows for each in sources for rows in each]
    options = DROPS[drop]
    mercore.ingest(np.concatenate(every), folder / "one", compressor=compressor, **options)
    mercore.ingest(sources[0], folder / "grown", compressor=compressor, **options)
    for each in sources[1:]:
        report = mercore.append(each, folder / "grown", **options)
        assert report["rows"] == open_vector_store(folder / "grown").rows
    assert_same(folder / "grown", folder / "one")
    assert mercore.check(folder / "grown")["faults"] == []
    array = zarr.open_array(folder / "grown" / "vectors", mode="r")
    np.testing.assert_array_equal(array[:], rows_and_ids(folder / "one")[0])


@pytest.fixture(params=["none", pytest.param("zstd", marks=pytest.mark.slow)])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store whose last part is ragged; its ingest dropped no row."""
    rows = rows_of(21, 1)
    rows[:] = np.nan_to_num(rows, nan=0.5) + 1
    mercore.ingest(rows, tmp_path / "base", compressor=request.param)
    return tmp_path / "base"


def copy_of(store: Path, name: str) -> Path:
    """Copy a store into a new folder of its own."""
    target = store.with_name(name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(store, target)
    return target


FIRST, SECOND = rows_of(30, 2), rows_of(9, 3)
OPTIONS = DROPS["all"]


@pytest.mark.promise(
    "A killed append leaves the old rows or all new ones; the same command ends in the undisturbed bytes"
)
def test_a_kill_at_any_moment_leaves_old_rows_or_new_ones(base: Path) -> None:
    undisturbed = copy_of(base, "undisturbed")
    mercore.append(FIRST, undisturbed, **OPTIONS)
    old, new = stored(open_vector_store(base)), stored(open_vector_store(undisturbed))
    readers: dict[int, VectorStore] = {}

    def run(number: int) -> None:
        store = copy_of(base, f"killed{number}")
        readers[number] = open_vector_store(store)
        mercore.append(FIRST, store, **OPTIONS)

    seen: list[int] = []
    for number in kills(run):
        store = base.with_name(f"killed{number}")
        vectors = open_vector_store(store)
        expected = new if vectors.rows == len(new) else old
        np.testing.assert_array_equal(stored(vectors), expected)
        np.testing.assert_array_equal(stored(readers[number]), old)
        assert mercore.check(store)["faults"] == []
        array = np.asarray(zarr.open_array(store / "vectors", mode="r")[:])
        np.testing.assert_array_equal(array, new[: len(array)])
        seen.append(vectors.rows)
        report = mercore.append(FIRST, store, **OPTIONS)
        assert report["rows_appended"] == len(new) - vectors.rows
        assert files_of(store) == files_of(undisturbed)
        np.testing.assert_array_equal(stored(readers[number]), old)
    assert sorted(set(seen)) == [len(old), len(new)]
    assert len(seen) > 10
    assert seen == sorted(seen)


@pytest.mark.promise("A row that is looked up is the one that was written, or is refused")
def test_rows_are_looked_up_right_whenever_an_append_is_killed(tmp_path: Path) -> None:
    rows = np.random.default_rng(5).random((30_000, DIMS), np.float32)
    with patch.object(vector_writer, "CHUNK_BYTES", 8192 * DIMS * 4):  # six blocks per part
        mercore.ingest(rows[:20_000], tmp_path / "base")
        readers: dict[int, VectorStore] = {}

        def run(number: int) -> None:
            store = copy_of(tmp_path / "base", f"killed{number}")
            readers[number] = open_vector_store(store)
            mercore.append(rows[20_000:], store)

        chosen = np.array([7, 16_390, 19_999])  # two of the part that grows, one in its last block
        assert_looked_up(open_vector_store(tmp_path / "base"), rows, chosen)
        for number in kills(run):
            vectors = open_vector_store(tmp_path / f"killed{number}")
            grown = np.array([20_000, 29_999]) if vectors.rows == 30_000 else chosen
            assert_looked_up(vectors, rows, np.concatenate([chosen, grown[grown >= 20_000]]))
            assert_looked_up(readers[number], rows, chosen)
            mercore.append(rows[20_000:], tmp_path / f"killed{number}")
            assert_looked_up(readers[number], rows, chosen)
            later = open_vector_store(tmp_path / f"killed{number}")
            with patch.object(LocalLocation, "read_into", side_effect=AssertionError):
                assert_looked_up(later, rows, np.array([7, 16_390, 20_000, 29_999]))


def assert_looked_up(vectors: VectorStore, rows: NDArray[Any], chosen: NDArray[np.int64]) -> None:
    lookup = vectors.look_up(chosen)
    found = [lookup.read(step) for step in lookup.steps]
    np.testing.assert_array_equal(np.concatenate(found), rows[chosen])


@pytest.mark.promise(
    "A killed append leaves the old rows or all new ones; the same command ends in the undisturbed bytes"
)
def test_another_append_after_a_kill_takes_nothing_of_the_killed_one(base: Path) -> None:
    only = copy_of(base, "only")
    mercore.append(SECOND, only, **OPTIONS)
    both = copy_of(base, "both")
    for rows in (FIRST, SECOND):
        mercore.append(rows, both, **OPTIONS)
    ends = [files_of(only), files_of(both)]
    for number in kills(
        lambda number: mercore.append(FIRST, copy_of(base, f"killed{number}"), **OPTIONS)
    ):
        store = base.with_name(f"killed{number}")
        reader = open_vector_store(store)
        rows = stored(reader)
        mercore.append(SECOND, store, **OPTIONS)
        assert files_of(store) in ends
        np.testing.assert_array_equal(stored(reader), rows)


def test_kills_of_the_append_that_clears_up_after_a_kill_lose_nothing(base: Path) -> None:
    """A second append is killed at each publication, also while it undoes the first."""
    only = copy_of(base, "only")
    mercore.append(SECOND, only, **OPTIONS)
    old = stored(open_vector_store(base))
    half = copy_of(base, "half")
    kill = kills(lambda _: mercore.append(FIRST, copy_of(base, "half"), **OPTIONS))
    before = base.with_name("half-before")
    for _ in kill:  # the last kill before the store has grown
        if open_vector_store(half).rows != len(old):
            break
        copy_of(half, before.name)
    for number in kills(
        lambda number: mercore.append(SECOND, copy_of(before, f"again{number}"), **OPTIONS)
    ):
        store = base.with_name(f"again{number}")
        vectors = open_vector_store(store)
        np.testing.assert_array_equal(stored(vectors)[: len(old)], old)
        assert mercore.check(store)["faults"] == []
        mercore.append(SECOND, store, **OPTIONS)
        assert files_of(store) == files_of(only)


@contextmanager
def another_zstd() -> Iterator[None]:
    """A version that writes the same rows in other bytes, which all versions read."""

    def compress(text: str, data: bytes | memoryview, item_bytes: int) -> bytes:
        return bytes(Zstd(level=3, checksum=True).encode(data))

    with patch.object(column, "compress", compress):
        yield


def test_another_version_of_a_compressor_undoes_a_killed_append(tmp_path: Path) -> None:
    """It may be killed too: all rows can be read at any moment."""
    rows = np.arange(21 * DIMS, dtype=np.float32).reshape(21, DIMS)
    base, again = tmp_path / "base", tmp_path / "again"
    mercore.ingest(rows, base, compressor="zstd")
    begun: list[Path] = []
    for number in kills(lambda number: mercore.append(rows + 1, copy_of(base, f"killed{number}"))):
        killed = open_vector_store(tmp_path / f"killed{number}")
        receipt = killed.store.stored_receipt(2)
        if receipt is not None and receipt.grown and killed.rows == len(rows):
            begun.append(tmp_path / f"killed{number}")
    assert len(begun) == 2  # before and after the new chunk of the part that grows
    for store in begun:

        def run(number: int, store: Path = store) -> None:
            mercore.append(rows + 2, copy_of(store, again.name))

        with another_zstd():
            for _ in kills(run):
                np.testing.assert_array_equal(stored(open_vector_store(again))[:21], rows)
                mercore.append(rows + 2, again)
                assert mercore.check(again)["faults"] == []
                np.testing.assert_array_equal(stored(open_vector_store(again))[21:], rows + 2)


def append_disturbed(store: Path, failing: int | None, error: BaseException) -> list[str]:
    """Append the first rows; return the calls for the disk. Call number ``failing`` fails."""
    calls: list[str] = []

    def counted(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            calls.append(f"{name} {arguments[-1]}")
            if len(calls) - 1 == failing:
                raise error
            return call(*arguments)

        return run

    with (
        patch.object(os, "fsync", counted(os.fsync, "fsync")),
        patch.object(Path, "rename", counted(Path.rename, "rename")),
    ):
        mercore.append(FIRST, store, **OPTIONS)
    return calls


def refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    "error",
    [
        Killed("killed"),
        refusal(errno.EIO),
        pytest.param(refusal(errno.EACCES), marks=pytest.mark.slow),
        pytest.param(refusal(errno.ENOSPC), marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.promise(
    "An append that is repeated adds no rows, whatever failed after the first had added them"
)
def test_whatever_fails_from_the_new_header_on_the_same_append_adds_no_row_twice(
    base: Path, error: BaseException
) -> None:
    undisturbed = copy_of(base, "undisturbed")
    calls = append_disturbed(undisturbed, None, error)
    header = calls.index(f"rename {undisturbed / 'zarr.json'}")
    old = open_vector_store(base).rows
    seen = []
    for number in range(header - 1, len(calls)):
        store = copy_of(base, "disturbed")
        with pytest.raises((Killed, StorageError)):
            append_disturbed(store, number, error)
        seen.append(open_vector_store(store).rows > old)
        report = mercore.append(FIRST, store, **OPTIONS)
        assert (report["rows_appended"] == 0) == seen[-1]
        assert files_of(store) == files_of(undisturbed)
    assert seen == [False] * 2 + [True] * (len(seen) - 2)
    assert len(seen) > 8


@pytest.mark.promise(
    "An append that is repeated adds no rows, whatever failed after the first had added them"
)
def test_an_append_that_is_repeated_adds_no_row_unless_that_is_asked_for(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("more.npy", "moved.npy"):
        np.save(tmp_path / name, FIRST)
    first = mercore.append([tmp_path / "more.npy", SECOND], base, **OPTIONS)
    files = files_of(base)
    repeated = mercore.append([tmp_path / "moved.npy", SECOND], base)  # rows are left out or not
    assert repeated | {"rows_appended": 22, "seconds": 0} == first | {"seconds": 0}
    assert (repeated["rows_appended"], files_of(base)) == (0, files)
    told = (
        f"{base} has these rows already, as ids 21 to 59 from {tmp_path}/more.npy, the array. "
        "Nothing is appended; --again appends them once more.\n"
    )
    assert capsys.readouterr().err == told
    for sources in ([SECOND, tmp_path / "more.npy"], SECOND):  # another order, and fewer
        added = mercore.append(sources, base, **OPTIONS)
        assert added["rows_appended"] > 0
    mercore.append([tmp_path / "more.npy", SECOND], base)
    assert capsys.readouterr().err == told
    again = mercore.append(SECOND, base, **OPTIONS, again=True)
    assert (again["rows_appended"], again["duplicate_rows"]) == (6, added["duplicate_rows"])


def test_other_rows_of_the_same_fingerprint_are_appended(base: Path) -> None:
    rows = rows_of(200, 4)
    mercore.append(rows, base, **OPTIONS)
    for row in (1, 198):  # no fingerprint covers them
        other = rows.copy()
        other[row] = 0.25
        report = mercore.append(other, base, **OPTIONS)
        assert report["rows_appended"] > 0
        assert mercore.append(other, base)["rows_appended"] == 0
    first, second, third = open_vector_store(base).spec.appended
    assert first == second == third


def test_an_error_on_the_way_leaves_the_files_as_they_were(base: Path) -> None:
    before = files_of(base)
    publish, count = LocalLocation.publish, iter(range(100))

    def full(at: LocalLocation, *pieces: Any) -> None:
        if next(count) == 3:
            raise FormatError("the disk is full")
        publish(at, *pieces)

    with (
        patch.object(LocalLocation, "publish", full),
        pytest.raises(FormatError, match="the disk is full"),
    ):
        mercore.append(FIRST, base, **OPTIONS)
    assert files_of(base) == before


@contextmanager
def told_by_the_disk() -> Iterator[list[tuple[str, Path]]]:
    """Yield the list of the folders that are made and synchronised, and of the new names."""
    told: list[tuple[str, Path]] = []
    mkdir, rename = os.mkdir, Path.rename

    def made(path: str | Path, *arguments: Any) -> None:
        mkdir(path, *arguments)
        told.append(("made", Path(path)))

    def renamed(path: Path, target: Path) -> Path:
        told.append(("renamed", target))
        return rename(path, target)

    def synced(descriptor: int) -> None:
        told.append(("synced", Path(f"/proc/self/fd/{descriptor}").readlink()))

    with (
        patch.object(os, "mkdir", made),
        patch.object(Path, "rename", renamed),
        patch.object(os, "fsync", synced),
    ):
        yield told


def assert_names_last(told: list[tuple[str, Path]], times: int = 1) -> None:
    """Assert that the names of made folders were synchronised, each in the folder above it.

    The folders of chunks were synchronised so many times, and not per chunk.
    """
    made = [(number, path) for number, (what, path) in enumerate(told) if what == "made"]
    of_chunks = {path.parent for _, path in made if path.name.isdecimal()}
    assert len(of_chunks) >= 2  # of rows or codes, and of receipts
    assert {told.count(("synced", folder)) for folder in of_chunks} == {times}
    for number, path in made:
        with in_case(folder=path):
            assert ("synced", path.parent) in told[number:]


@pytest.mark.promise("A file is whole or absent, after a power cut too")
def test_the_folders_of_a_store_are_durable_before_it_appears_or_grows(tmp_path: Path) -> None:
    store, rows = tmp_path / "store", rows_of(40, 1)
    for verb, new, appears, times in (
        (mercore.ingest, rows, store, 1),
        (mercore.append, FIRST, store / "zarr.json", 2),  # also before: an append may be killed
    ):
        with told_by_the_disk() as told:
            verb(new, store)
        end = told.index(("renamed", appears))
        assert_names_last([*told[:end], ("synced", tmp_path)], times)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["encode", "index"])
def test_the_folders_of_codes_and_orders_are_durable_at_the_end(verb: str, tmp_path: Path) -> None:
    vectors, codes = tmp_path / "vectors", tmp_path / "codes"
    mercore.ingest(rows_of(99, 1) + 1, vectors, drop_bad_rows=True)
    options: dict[str, Any] = {"kernel": "chi2", "encoder": "kpca-lsh:landmarks=9,bits=8"}
    with told_by_the_disk() as told:
        mercore.encode(vectors, codes, **options, part_rows=8)
    if verb == "index":
        with told_by_the_disk() as told:
            mercore.index(codes, tmp_path / "orders", orders=2, part_rows=8)
    assert_names_last([entry for entry in told if entry[1].is_relative_to(tmp_path)])


def refused(sources: Sequence[NDArray[Any]] | NDArray[Any], store: Path) -> MercoreError:
    with pytest.raises(MercoreError) as caught:
        mercore.append(sources, store)
    return caught.value


def test_rows_of_another_kind_are_refused_before_any_work(base: Path) -> None:
    before = files_of(base)
    cases: list[tuple[Any, type[MercoreError], str]] = [
        (np.ones((4, 2), np.float32), ShapeError, "d = 2: expected 3"),
        (np.ones((4, 3), np.uint8), FormatError, "rows of uint8: expected float32"),
        ([FIRST, np.ones((4, 4), np.float32)], ShapeError, "d = 4: expected 3"),
        (np.ones((0, 3), np.float32), InputError, "no row to store: found 0 rows"),
    ]
    for rows, kind, words in cases:
        with in_case(words=words):
            error = refused(rows, base)
            assert isinstance(error, kind)
            assert words in str(error)
            assert "Fix: " in str(error)
    assert files_of(base) == before


def test_bad_rows_are_told_with_their_fix(
    base: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = np.array([[1, np.nan, 1], [np.inf, np.nan, 0], [1, 1, 1]], np.float32)
    mercore.append(rows, base)
    mercore.ingest(rows, tmp_path / "new")
    told = "2 of the new rows hold NaN and 1 hold infinity, which no kernel takes"
    err = capsys.readouterr().err
    assert err.count(told) == 2
    assert err.count("Fix: ingest the source into a new store with --drop-bad-rows.") == 2
    report = mercore.ingest(rows, tmp_path / "clean", drop_bad_rows=True)
    assert (report["rows"], report["dropped_rows"], report["nan_rows"]) == (1, 2, 2)
    np.testing.assert_array_equal(rows_and_ids(tmp_path / "clean")[1], [2])
    assert capsys.readouterr().err == ""
