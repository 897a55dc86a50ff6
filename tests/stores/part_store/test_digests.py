"""Rows made to have the CRC-32C of others: no two stores share a fingerprint, and check finds them."""

from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.stores.errors import FormatError, InputError, IntegrityError
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import receipt_bytes
from mercore.stores.vectors import open_vector_store

ROWS, DIMS = 64, 32


def forged(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return other rows with the same CRC-32C, by linear algebra over its 32 bits.

    Flipping a bit changes a CRC by a value that does not depend on the other bits. Among 33 such
    values some XOR to 0.
    """
    data, before = rows.reshape(-1), google_crc32c.value(rows.tobytes())
    reduced: dict[int, tuple[int, set[int]]] = {}  # by leading bit: a value, and the bytes flipped
    for place in range(33):
        flipped = data.copy()
        flipped[place] ^= 1
        value, places = google_crc32c.value(flipped.tobytes()) ^ before, {place}
        while value and value.bit_length() in reduced:
            other, of_other = reduced[value.bit_length()]
            value, places = value ^ other, places ^ of_other
        if not value:
            flipped = data.copy()
            flipped[list(places)] ^= 1
            return flipped.reshape(rows.shape)
        reduced[value.bit_length()] = value, places
    raise AssertionError("33 values of 32 bits were independent")


@pytest.fixture
def both() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    rows = np.random.default_rng(0).integers(2, 254, (ROWS, DIMS), dtype=np.uint8)
    other = forged(rows)
    assert (rows != other).any()
    assert google_crc32c.value(rows.tobytes()) == google_crc32c.value(other.tobytes())
    return rows, other


@pytest.mark.promise(
    "Rows made to have the checksums of others have another fingerprint, and `check` finds them"
)
def test_stores_of_rows_with_equal_checksums_have_other_fingerprints(
    both: tuple[NDArray[np.uint8], ...], tmp_path: Path
) -> None:
    stores = [str(tmp_path / name) for name in ("rows", "other")]
    for rows, path in zip(both, stores, strict=True):
        np.save(f"{path}.npy", rows)
        api.ingest(f"{path}.npy", path)
    entries = [open_vector_store(path).chunk_entries()[0] for path in stores]
    assert entries[0]["crc32c"] == entries[1]["crc32c"]
    assert entries[0]["blake3"] != entries[1]["blake3"]
    assert open_vector_store(stores[0]).fingerprint != open_vector_store(stores[1]).fingerprint
    codes = str(tmp_path / "codes")
    api.encode(stores[0], codes, kernel="chi2", encoder="bin-bound")
    with pytest.raises(InputError, match=r"is not what .*codes encodes: found vectors"):
        api.search(codes, both[0][:2], k=1, exact=True, vectors=stores[1])


@pytest.mark.promise(
    "Rows made to have the checksums of others have another fingerprint, and `check` finds them"
)
def test_check_finds_rows_with_the_checksums_of_others(
    both: tuple[NDArray[np.uint8], ...], tmp_path: Path
) -> None:
    rows, other = both
    path = str(tmp_path / "rows")
    np.save(f"{path}.npy", rows)
    api.ingest(f"{path}.npy", path)
    assert api.check(path)["faults"] == []
    chunk = Path(path) / "vectors/c/0/0"
    stored = chunk.read_bytes()
    assert stored.startswith(rows.tobytes())
    chunk.write_bytes(other.tobytes() + stored[rows.nbytes :])
    (fault,) = faults_of(path)
    assert "part 0: column vectors has other bytes of the same crc32c: found blake3" in fault

    store = open_vector_store(path).store
    receipt = store.done_receipt(0)
    entry = receipt.chunks["vectors"]
    entry["blake3"] = fault.split("found blake3 ")[1].split(",")[0]
    write_receipt(store, receipt)
    (fault,) = faults_of(path)
    assert f"{path}: its receipts are of other rows than its fingerprint: found content" in fault

    del entry["blake3"]
    write_receipt(store, receipt)
    with pytest.raises((FormatError, IntegrityError), match="expected blake3"):
        open_vector_store(path).read_part(0)


def test_ids_with_the_checksum_of_others_are_refused(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(1, 255, (100, 8), dtype=np.uint8)
    rows[::2] = 0
    path = str(tmp_path / "rows")
    np.save(f"{path}.npy", rows)
    api.ingest(f"{path}.npy", path, drop_zero_rows=True)
    array = Path(path) / "model/dropped/c/0"
    stored = array.read_bytes()
    other = forged(np.frombuffer(stored[:-4], np.uint8)).tobytes()
    array.write_bytes(other + stored[-4:])
    with pytest.raises(IntegrityError, match="model array dropped is missing or damaged"):
        open_vector_store(path)


def faults_of(path: str) -> list[str]:
    found: list[str] = api.check(path)["faults"]
    return found


def write_receipt(store: PartStore, receipt: Any) -> None:
    file = Path(store.where) / store.receipt_key(receipt.part)
    file.write_bytes(receipt_bytes(receipt, store.receipts_column))
