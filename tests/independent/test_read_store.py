"""A reader that follows the page of the format alone reads stores of every version."""

import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from mercore.pipeline.encoders import ENCODERS
from mercore.stores.codes import open_code_store
from mercore.stores.part_store.column import encode_chunk
from mercore.stores.part_store.growth import begin_growth, grow_part, publish_growth
from mercore.stores.part_store.part_files import PartFiles
from mercore.stores.vectors import open_vector_store
from mercore.testing.stores import histograms
from tests.independent.read_store import Store
from tests.support.running import succeed

ROOT = Path(__file__).parents[2]
V1 = ROOT / "tests/formats/v1"
PAGE = ROOT / "notebooks/guide/format.md"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors that were compressed, dropped, appended and deleted, and their codes."""
    folder = tmp_path_factory.mktemp("grown")
    rows = histograms(300, 16, seed=1)
    rows[[5, 250]] = 0
    np.save(folder / "first.npy", rows[:200])
    np.save(folder / "second.npy", rows[200:])
    succeed(f"ingest {folder}/first.npy {folder}/vectors --drop-zero-rows --compressor gzip")
    codes = f"encode {folder}/vectors {folder}/codes --kernel chi2 --encoder aska --atoms 32"
    succeed(f"{codes} --part-rows 64")
    succeed(f"append {folder}/second.npy {folder}/vectors --drop-zero-rows")
    succeed(f"encode {folder}/vectors {folder}/codes --kernel chi2")
    succeed(f"delete {folder}/vectors 3:7")
    np.save(folder / "rows.npy", rows)
    return folder


@pytest.mark.promise("Any language can read the stores: their files are specified")
def test_a_store_of_the_first_version() -> None:
    vectors, codes = Store(V1 / "vectors"), Store(V1 / "codes")
    rows = np.load(V1 / "rows.npy")
    kept = np.flatnonzero(rows.any(axis=1))
    np.testing.assert_array_equal(vectors.column("vectors"), rows[kept], strict=True)
    assert vectors.ids().tolist() == codes.ids().tolist() == kept.tolist()
    assert vectors.content() == vectors.spec["content"]
    assert codes.spec["source"] == vectors.state
    chosen = codes.model("dictionary_rows")
    np.testing.assert_array_equal(codes.model("dictionary"), rows[kept][chosen], strict=True)


@pytest.mark.promise("Any language can read the stores: their files are specified")
def test_a_store_of_today(grown: Path) -> None:
    vectors, codes = Store(grown / "vectors"), Store(grown / "codes")
    rows = np.load(grown / "rows.npy")
    kept = np.flatnonzero(rows.any(axis=1))
    np.testing.assert_array_equal(vectors.column("vectors"), rows[kept], strict=True)
    assert vectors.ids().tolist() == codes.ids().tolist() == kept.tolist()
    assert vectors.ids()[vectors.deleted()].tolist() == [3, 4, 6]
    assert vectors.content() == vectors.spec["content"]
    assert codes.spec["source"] == vectors.state == open_vector_store(grown / "vectors").fingerprint
    assert any("blocks" in each["chunks"]["atoms"] for each in codes.receipts)
    ours = open_code_store(grown / "codes")
    for column in codes.layout["columns"]:
        name = column["name"]
        parts = [ours.store.read_chunk(each, name) for each in ours.receipts]
        np.testing.assert_array_equal(codes.column(name), np.concatenate(parts), strict=True)


def test_a_store_at_every_step_of_its_growth(tmp_path: Path) -> None:
    shutil.copytree(V1 / "vectors", tmp_path / "vectors")
    before = Store(tmp_path / "vectors").column("vectors")
    after = np.concatenate([before, before[:1]])
    old = open_vector_store(tmp_path / "vectors")
    header = begin_growth(old.store, old.spec, len(after), {})
    new = PartFiles(tmp_path / "vectors", header)
    receipt, column = old.receipt(2), new.columns["vectors"]
    grow_part(new, receipt, {"vectors": encode_chunk(column, after[8:])})
    np.testing.assert_array_equal(Store(tmp_path / "vectors").column("vectors"), before)
    old.store.chunk_file(column, 2).publish(encode_chunk(old.store.columns["vectors"], before[8:]))
    np.testing.assert_array_equal(Store(tmp_path / "vectors").column("vectors"), before)
    new.chunk_file(column, 2).publish(encode_chunk(column, after[8:]))
    publish_growth(new)
    np.testing.assert_array_equal(Store(tmp_path / "vectors").column("vectors"), after)


@pytest.mark.parametrize("store", ["vectors", "codes"])
def test_no_flipped_bit_goes_unseen(grown: Path, store: str) -> None:
    for file in (path for path in (grown / store).rglob("*") if path.is_file()):
        if file.name == "zarr.json" and file.parent != grown / store:
            continue  # of arrays: the header says all that is in them
        before = file.read_bytes()
        flipped = before[:-9] + bytes([before[-9] ^ 4]) + before[-8:]
        file.write_bytes(before.replace(b"rows", b"r0ws") if file.name == "zarr.json" else flipped)
        with pytest.raises((ValueError, zlib.error)):
            read_all(grown / store)
        file.write_bytes(before)
    read_all(grown / store)


def read_all(folder: Path) -> None:
    """Read every array of a store."""
    store = Store(folder)
    for column in store.layout["columns"]:
        store.column(column["name"])
    for name in store.layout["model"]:
        store.model(name)
    store.deleted()


def test_the_page_names_the_columns_of_every_encoder() -> None:
    rows = re.findall(r"^\| (`[a-z].+?) \| (`.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    named = {
        encoder: re.findall(r"`(\w+)` (\w+)", columns)
        for encoders, columns in rows
        for encoder in re.findall(r"`([\w-]+)`", encoders)
    }
    for name, kind in ENCODERS.items():
        assert named[name] == [(column, dtype) for column, dtype, _ in kind().code_columns()], name
