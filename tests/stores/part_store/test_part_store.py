"""A part is done when its receipt is there and every byte is the one that the receipt vouches
for."""

import errno
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.codes import create_or_resume
from mercore.stores.errors import (
    ExistsError,
    FormatError,
    IntegrityError,
    MercoreError,
    NotFoundError,
    StorageError,
)
from mercore.stores.location.scratch import scratch_folder
from mercore.stores.part_store.column import encode_chunk, payload_checksum
from mercore.stores.part_store.header import (
    Header,
    Layout,
    column_fields,
    model_entries,
    open_header,
)
from mercore.stores.part_store.part_reader import PartReader
from mercore.stores.part_store.part_store import PartStore, create
from mercore.stores.part_store.receipts import (
    Receipt,
    parse_receipt,
    receipt_bytes,
    receipts_column,
    stated,
)
from mercore.stores.vectors import VectorStore
from mercore.testing.cases import loop_over
from mercore.testing.stores import files_of, histograms, make_codes, make_vectors, plan_encode

MEND = "Fix: run the same mercore encode again: it redoes what is wrong, and only that."
MODEL: dict[str, NDArray[Any]] = {
    "dictionary": np.eye(3, 2, dtype=np.float32),
    "dropped": np.array([4, 9]),
}
LAYOUT = Layout(
    rows=10,
    part_rows=4,
    columns=[column_fields("atoms", "uint16", 3), column_fields("scale", "float16", None, "gzip")],
    model=model_entries(MODEL),
)
HEADER = Header(kind="codes", spec={"name": "test"}, layout=LAYOUT)
ATOMS = np.arange(30, dtype=np.uint16).reshape(10, 3)
SCALE = np.linspace(0, 1, 10).astype(np.float16)


def values_of(part: int) -> dict[str, NDArray[Any]]:
    rows = slice(4 * part, 4 * part + 4)
    return {"atoms": ATOMS[rows], "scale": SCALE[rows]}


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    """A whole store: parts of 4, 4 and 2 rows, written last first."""
    with patch.object(os, "fsync"):
        made = create(tmp_path / "store", HEADER, MODEL)
        for part in (2, 0, 1):
            made.write_part(part, values_of(part))
    return made


def refused(call: Callable[[], object], kind: type[MercoreError], message: str) -> None:
    with pytest.raises(MercoreError) as refusal:
        call()
    assert type(refusal.value) is kind
    assert str(refusal.value) == message


# Whole stores


def test_parts_come_back_as_they_were_written(store: PartStore) -> None:
    receipts = store.receipts()
    assert [(receipt.part, receipt.start, receipt.stop) for receipt in receipts] == [
        (0, 0, 4),
        (1, 4, 8),
        (2, 8, 10),
    ]
    for receipt in receipts:
        for name, values in values_of(receipt.part).items():
            np.testing.assert_array_equal(store.read_chunk(receipt, name), values, strict=True)
    assert store.check() == []
    for name, values in MODEL.items():
        np.testing.assert_array_equal(store.read_model()[name], values, strict=True)


def test_a_receipt_states_what_lies_on_disk(store: PartStore) -> None:
    for receipt in store.receipts():
        assert receipt.job == HEADER.spec_digest
        for name, told in receipt.chunks.items():
            data = Path(str(store.chunk_file(LAYOUT.column(name), receipt.part))).read_bytes()
            assert stated(told) == {"bytes": len(data), "crc32c": f"{payload_checksum(data):08x}"}
    assert store.column_bytes(store.receipts()) == {
        name: sum(
            path.stat().st_size
            for path in (Path(store.where) / name / "c").rglob("*")
            if path.is_file()
        )
        for name in ("atoms", "scale")
    }


def test_writing_a_part_again_changes_nothing(store: PartStore) -> None:
    before = files_of(Path(store.where))
    assert store.write_part(1, values_of(1)) == store.receipt(1)
    assert files_of(Path(store.where)) == before


def test_a_store_opened_again_is_the_same(store: PartStore) -> None:
    again = PartStore(store.location, open_header(store.location))
    assert again.header == HEADER
    assert again.receipts() == store.receipts()


def test_a_chunk_is_read_to_a_buffer_if_one_is_given_whatever_it_holds(store: PartStore) -> None:
    buffer = np.full(999, 255, np.uint8)
    for part in (2, 0, 1):
        receipt = store.receipts()[part]
        atoms = store.read_chunk(receipt, "atoms", buffer)
        assert np.shares_memory(atoms, buffer)
        np.testing.assert_array_equal(atoms, values_of(part)["atoms"], strict=True)
        np.testing.assert_array_equal(
            store.read_chunk(receipt, "scale", buffer), values_of(part)["scale"], strict=True
        )


def test_a_reader_reads_part_after_part_to_the_same_memory(store: PartStore) -> None:
    reader = PartReader(store, store.receipts(), ["atoms", "scale", "absent"])
    first = reader.read(0)
    assert list(first) == ["atoms", "scale"]
    atoms = first["atoms"]
    for part in (1, 2, 0):
        for name, values in reader.read(part).items():
            np.testing.assert_array_equal(values, values_of(part)[name], strict=True)
        np.testing.assert_array_equal(
            atoms[:2], values_of(part)["atoms"][:2]
        )  # the first view shows the new part


# Faults


def damage(path: Path, change: Callable[[bytes], bytes | None]) -> None:
    data = change(path.read_bytes())
    path.unlink() if data is None else path.write_bytes(data)


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


def other_chunk(column: str) -> bytes:
    """The chunk of part 1 with zeros for values: whole, its own checksum right."""
    return encode_chunk(LAYOUT.column(column), np.zeros_like(values_of(1)[column]))


@pytest.mark.parametrize("column", ["atoms", "scale"])
@pytest.mark.parametrize(
    "kind", ["missing", "short", "long", "flipped", "flipped_checksum", "other"]
)
def test_a_chunk_that_is_not_the_one_written_is_told(
    store: PartStore, column: str, kind: str
) -> None:
    path = Path(str(store.chunk_file(LAYOUT.column(column), 1)))
    receipt = store.receipts()[1]
    told = receipt.chunks[column]
    size, crc = told["bytes"], told["crc32c"]
    changes: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
        "missing": (lambda data: None, f"is missing: expected {size} bytes at {path}"),
        "short": (lambda data: data[:-1], f"has {size - 1} bytes: its receipt says {size}"),
        "long": (lambda data: data + b"\0", f"has {size + 1} bytes: its receipt says {size}"),
        "flipped": (
            flip(7),
            f"has no checksum of its own bytes: its receipt says {crc} over {size} bytes",
        ),
        "flipped_checksum": (
            flip(-1),
            f"has no checksum of its own bytes: its receipt says {crc} over {size} bytes",
        ),
        "other": (lambda data: other_chunk(column), ""),
    }
    change, what = changes[kind]
    damage(path, change)
    if kind == "other":
        data = other_chunk(column)
        found = f"has crc32c {payload_checksum(data):08x}: its receipt says {crc} over {size} bytes"
        what = found if len(data) == size else f"has {len(data)} bytes: its receipt says {size}"
    message = f"{store.where}: part 1: column {column} {what}. {MEND}"
    refused(lambda: store.read_chunk(receipt, column), IntegrityError, message)
    assert store.check() == [message]
    assert store.check_part(0) is None
    if kind in ("missing", "short", "long"):
        refused(store.receipts, IntegrityError, message)


def test_a_receipt_that_is_missing_says_that_the_part_is_not_done(store: PartStore) -> None:
    Path(str(store.receipt_file(2))).unlink()
    assert store.receipt(2) is None
    message = (
        f"{store.where}: part 2: it has no receipt, so it is not done: expected one for "
        f"every part. {MEND}"
    )
    refused(store.receipts, IntegrityError, message)
    assert store.check() == [f"{store.where}: part 2 has no receipt: it is not done. {MEND}"]


@pytest.mark.parametrize(
    "change",
    [flip(30), flip(-2), lambda data: data[:-1], lambda data: b"", lambda data: b"x" * 1028],
)
def test_a_receipt_that_is_damaged_is_told(
    store: PartStore, change: Callable[[bytes], bytes]
) -> None:
    damage(Path(str(store.receipt_file(0))), change)
    message = (
        f"{store.where}: part 0: its receipt is damaged: found bytes that fail their own checksum, "
        f"expected the ones published. {MEND}"
    )
    refused(lambda: store.receipt(0), IntegrityError, message)
    assert store.check() == [message]


def test_a_receipt_of_another_job_or_part_is_told(store: PartStore) -> None:
    receipt = store.receipts()[0]
    Path(str(store.receipt_file(1))).write_bytes(receipt_bytes(receipt, store.receipts_column))
    digest = HEADER.spec_digest
    message = (
        f"{store.where}: part 1: its receipt is of spec {digest}, part 0: expected spec "
        f"{digest}. {MEND}"
    )
    refused(lambda: store.receipt(1), IntegrityError, message)
    Path(str(store.receipt_file(0))).write_bytes(
        receipt_bytes(replace(receipt, job="ab" * 16), store.receipts_column)
    )
    message = (
        f"{store.where}: part 0: its receipt is of spec {'ab' * 16}, part 0: expected "
        f"spec {digest}. {MEND}"
    )
    refused(lambda: store.receipt(0), IntegrityError, message)


def test_a_receipt_of_a_newer_version_is_told(store: PartStore) -> None:
    newer = replace(store.receipts()[0], version=2)
    Path(str(store.receipt_file(0))).write_bytes(receipt_bytes(newer, store.receipts_column))
    message = (
        f"{store.receipt_file(0)}: version is 2, expected 1. "
        "Fix: read it with the version of mercore that wrote it, or write it anew."
    )
    refused(store.receipts, FormatError, message)
    assert store.check_part(0) == message


@pytest.mark.parametrize("names", [["atoms"], ["atoms", "scale", "other"]])
def test_a_receipt_of_other_columns_is_told(store: PartStore, names: list[str]) -> None:
    receipt = store.receipts()[0]
    chunks = dict.fromkeys(names, receipt.chunks["atoms"])
    data = receipt_bytes(replace(receipt, chunks=chunks), store.receipts_column)
    Path(str(store.receipt_file(0))).write_bytes(data)
    with pytest.raises(FormatError, match=r"expected atoms, scale"):
        store.receipt(0)


def test_receipts_are_json_text_in_an_array_of_bytes(store: PartStore) -> None:
    data = Path(str(store.receipt_file(1))).read_bytes()
    width = store.receipts_column.row_bytes
    assert len(data) == width + 4
    receipt = store.receipt(1)
    assert receipt is not None
    stated = {name: value for name, value in vars(receipt).items() if value != {}}
    assert json.loads(data[:width]) == stated  # no facts take no bytes
    assert parse_receipt(data, "here") == receipt
    known = replace(receipt, facts={"first_key": 2**64 - 1})
    assert parse_receipt(receipt_bytes(known, store.receipts_column), "here") == known
    for text in (b"no json", b"[]", b"\xff"):
        row = np.frombuffer(text.ljust(width), np.uint8)[None]
        data = encode_chunk(store.receipts_column, row)
        if text == b"[]":
            with pytest.raises(
                FormatError, match=r"^here: found \[\], expected the fields of mercore-receipt\."
            ):
                parse_receipt(data, "here")
        else:
            assert parse_receipt(data, "here") is None


def test_a_receipt_too_long_for_its_room_is_refused() -> None:
    receipt = Receipt(
        part=7, start=0, stop=1, job="", chunks={str(i): {"bytes": 1} for i in range(99)}
    )
    with pytest.raises(
        FormatError, match=r"^receipt of part 7 takes \d+ bytes: expected at most 1032\. Fix: "
    ):
        receipt_bytes(receipt, receipts_column(HEADER))


@pytest.mark.parametrize(
    "change", [lambda data: None, flip(3), lambda data: data[:-1], lambda data: bytes(len(data))]
)
def test_a_model_that_is_not_the_one_written_is_told_and_restored(
    store: PartStore, change: Callable[[bytes], bytes | None]
) -> None:
    whole = files_of(Path(store.where))
    path = Path(store.where) / "model" / "dictionary" / "c" / "0" / "0"
    damage(path, change)
    message = (
        f"{store.where}: model array dictionary is missing or damaged: "
        f"expected crc32c {LAYOUT.model['dictionary']['crc32c']} at {path}. {MEND}"
    )
    refused(store.read_model, IntegrityError, message)
    assert store.check() == [message]
    assert store.restore(MODEL) == ["model/dictionary/c/0/0"]
    assert files_of(Path(store.where)) == whole


@pytest.mark.parametrize(
    "key", ["zarr.json", "atoms/zarr.json", "receipts/zarr.json", "model/zarr.json"]
)
@pytest.mark.parametrize("change", [lambda data: None, lambda data: b"{}", lambda data: data[:40]])
def test_metadata_that_says_something_else_is_told_and_restored(
    store: PartStore, key: str, change: Callable[[bytes], bytes | None]
) -> None:
    whole = files_of(Path(store.where))
    damage(Path(store.where) / key, change)
    assert store.check() == [
        f"{store.where}: {key} is missing or damaged: expected what the header says. {MEND}"
    ]
    assert store.restore(MODEL) == [key]
    assert files_of(Path(store.where)) == whole


def test_metadata_in_other_words_is_no_fault(store: PartStore) -> None:
    path = Path(store.where) / "atoms" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert store.check() == []
    assert store.restore(MODEL) == []


def test_a_check_counts_its_parts(store: PartStore) -> None:
    told: list[int] = []
    Path(str(store.receipt_file(1))).unlink()
    assert len(store.check(told.append)) == 1
    assert told == [1, 1, 1]


# Creating


def test_a_store_is_published_whole_and_empty(tmp_path: Path) -> None:
    store = create(tmp_path / "store", HEADER, MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert (
        sorted(files_of(Path(store.where)))
        == (
            "atoms/zarr.json model/dictionary/c/0/0 model/dictionary/zarr.json model/dropped/c/0 "
            "model/dropped/zarr.json model/zarr.json receipts/zarr.json scale/zarr.json zarr.json"
        ).split()
    )
    assert [store.receipt(part) for part in range(3)] == [None] * 3


@pytest.mark.parametrize("there", ["file", "folder", "link"])
def test_a_store_is_made_at_a_new_path_alone(there: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    if there == "link":
        path.symlink_to("nowhere")
    else:
        (path.touch if there == "file" else path.mkdir)()
    message = f"{path} exists: expected a new path. Fix: name another, or remove it."
    refused(lambda: create(path, HEADER, MODEL), ExistsError, message)
    below = tmp_path / "absent" / "store"
    message = f"cannot write {below}: there is no folder {below.parent}. Fix: create it."
    refused(lambda: create(below, HEADER, MODEL), NotFoundError, message)


def test_of_creators_at_once_one_wins_and_nothing_of_the_others_is_left(tmp_path: Path) -> None:
    together = Barrier(5)

    def attempt(path: Path) -> str:
        together.wait()
        try:
            create(path, HEADER, MODEL)
        except ExistsError as error:
            return str(error).removeprefix(f"{path} ")
        return "made"

    with patch.object(os, "fsync"), ThreadPoolExecutor(5) as pool:
        for turn in range(20):
            folder = tmp_path / str(turn)
            folder.mkdir()
            told = list(pool.map(attempt, [folder / "store"] * 5))
            assert told.count("made") == 1
            assert set(told) <= {
                "made",
                "exists: expected a new path. Fix: name another, or remove it.",
                "appeared a moment ago: expected a new path. Fix: name another.",
            }
            assert [path.name for path in folder.iterdir()] == ["store"]
            store = PartStore(folder / "store", open_header(folder / "store"))
            assert store.restore(MODEL) == []


def test_what_a_killed_creator_left_is_swept_and_what_a_living_one_holds_is_not(
    tmp_path: Path,
) -> None:
    left = tmp_path / f".store.{os.getpid()}-0123abcd.tmp"
    of_another = tmp_path / ".other.1-0123abcd.tmp"
    for folder in (left, of_another):
        (folder / "atoms").mkdir(parents=True)
    with scratch_folder(tmp_path / "store") as held:
        create(tmp_path / "store", HEADER, MODEL)
        assert held.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.1-0123abcd.tmp", "store"]


def failing_after(count: int, error: BaseException) -> Callable[[int], None]:
    """An fsync whose calls after the first ``count`` fail."""
    calls = iter(range(count))

    def fsync(_: int) -> None:
        if next(calls, None) is None:
            raise error

    return fsync


@loop_over("count", range(0, 18, 4))
def test_a_creation_that_fails_leaves_nothing_behind(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        os, "fsync", failing_after(count, OSError(errno.ENOSPC, "No space left on device"))
    )
    with pytest.raises(StorageError, match="No space left on device"):
        create(tmp_path / "store", HEADER, MODEL)
    assert list(tmp_path.iterdir()) == []


@loop_over("count", range(6))
def test_a_part_whose_writing_fails_is_not_done_and_is_done_the_next_time(
    count: int, store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files_of(Path(store.where))
    Path(str(store.receipt_file(1))).unlink()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing_after(count, OSError(errno.EIO, "Input/output error")))
        with pytest.raises(StorageError, match="Input/output error"):
            store.write_part(1, values_of(1))
    if count < 5:  # the sixth is the folder's, after the rename
        assert store.receipt(1) is None
    store.write_part(1, values_of(1))
    assert files_of(Path(store.where)) == whole


# Jobs


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    return make_vectors(tmp_path_factory.mktemp("parts") / "vectors", histograms(40, 5))


SPEC = AskaSpec(n_atoms=8, n_nonzero_coefs=2)


def test_the_same_job_again_is_resumed_and_what_is_wrong_is_named(
    vectors: VectorStore, tmp_path: Path
) -> None:
    path = tmp_path / "codes"
    made = make_codes(path, vectors, make_kernel("chi2"), SPEC, part_rows=10)
    plan = plan_encode(vectors, make_kernel("chi2"), SPEC, part_rows=10)

    def resume() -> dict[int, str]:
        return create_or_resume(
            path, plan.spec, plan.layout, plan.model, source_path=Path("moved")
        ).undone_parts()

    assert resume() == {}
    Path(str(made.store.receipt_file(3))).unlink()
    damage(path / "weights" / "c" / "1" / "0", flip(0))
    undone = resume()
    assert undone == {1: undone[1], 3: ""}
    assert undone[1].startswith(
        f"{path}: part 1: column weights has no checksum of its own bytes: its receipt says "
    )
    assert undone[1].endswith(
        ". Fix: run the same mercore encode again: it redoes what is wrong, and only that."
    )
    assert made.source_path == vectors.where


@pytest.mark.parametrize(
    ("kernel", "spec", "options", "differs"),
    [
        ("cosine", SPEC, {}, "kernel (chi2, not cosine)"),
        (
            "chi2",
            replace(SPEC, n_atoms=9, random_state=2),
            {},
            "encoder n_atoms (8, not 9), encoder random_state (0, not 2)",
        ),
        ("chi2", SPEC, {"part_rows": 11}, "part_rows (10, not 11)"),
        ("chi2", SPEC, {"compressor": "zstd"}, "compressor (none, not zstd)"),
    ],
)
def test_another_job_at_the_path_is_refused_by_what_differs(
    kernel: str,
    spec: AskaSpec,
    options: dict[str, Any],
    differs: str,
    vectors: VectorStore,
    tmp_path: Path,
) -> None:
    path = tmp_path / "codes"
    make_codes(path, vectors, make_kernel("chi2"), SPEC, part_rows=10)
    plan = plan_encode(vectors, make_kernel(kernel), spec, **{"part_rows": 10, **options})
    fix = "Fix: give the options it was made with, or name another path."
    message = f"{path} is another store: it differs in {differs}. {fix}"
    refused(
        lambda: create_or_resume(path, plan.spec, plan.layout, plan.model, source_path=path),
        ExistsError,
        message,
    )


def test_something_else_at_the_path_is_refused(vectors: VectorStore, tmp_path: Path) -> None:
    plan = plan_encode(vectors, make_kernel("chi2"), SPEC)
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file", tmp_path / "folder", Path(vectors.where)):
        message = (
            f"{path} exists and is no code store: expected one that is begun, or a new path. "
            "Fix: name another."
        )
        refused(
            partial(create_or_resume, path, plan.spec, plan.layout, plan.model, source_path=path),
            ExistsError,
            message,
        )
