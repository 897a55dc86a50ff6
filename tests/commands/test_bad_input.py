"""Bad input ends in one paragraph and exit code 1 or 2: no traceback, nothing on stdout, nothing
half-written."""

import errno
import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from mercore.stores.part_store.header import open_header
from mercore.stores.part_store.receipts import RECEIPT_BYTES, Receipt, receipt_bytes
from mercore.stores.spec import digest
from tests.support import mutated_stores
from tests.support.cases import in_case, loop_over
from tests.support.running import (
    ENCODE,
    Outcome,
    command,
    files_of,
    finish,
    histograms,
    invoke,
    names_in,
    run,
    scratch_in,
    start_words,
    succeed,
)

Words = list[object]
Rows = NDArray[Any]
Case = Callable[[Path], Words]
CASES: dict[str, tuple[int, str, Case]] = {}
WIDE = np.full((8, 3), 7, np.float32)


def case(code: int, says: str) -> Callable[[Case], Case]:
    """Add a kind of bad input: a function that makes it in a folder of its own, and returns the
    command's words."""

    def add(make: Case) -> Case:
        CASES[make.__name__.replace("_", " ")] = (code, says, make)
        return make

    return add


def ingest(folder: Path, name: str, data: bytes) -> Words:
    """Return the words that ingest a file of these bytes."""
    (folder / name).write_bytes(data)
    return ["ingest", folder / name, folder / "new"]


def ingest_array(folder: Path, values: Any, name: str = "rows.npy") -> Words:
    """Return the words that ingest a ``.npy`` of this array."""
    np.save(folder / name, values)
    return ["ingest", folder / name, folder / "new"]


def save_zarr(path: Path, values: Rows) -> None:
    """Write a Zarr array in one chunk."""
    zarr.create_array(path, shape=values.shape, chunks=values.shape, dtype=values.dtype)[...] = (
        values
    )


def encode_array(folder: Path, values: Any, *options: object) -> Words:
    """Return the words that encode a vector store of this array."""
    succeed(*ingest_array(folder, values))
    return ["encode", folder / "new", folder / "codes", "--atoms", 4, "--sparsity", 2, *options]


def search_for(folder: Path, values: Any) -> Words:
    """Return the words that search the good codes for these queries."""
    np.save(folder / "rows.npy", values)
    return ["search", folder / "good/codes", folder / "rows.npy", "-k", 5]


def encode_good(folder: Path, *options: object) -> Words:
    """Return the words that encode the good vectors, options that come later counting."""
    return ["encode", folder / "good/vectors", folder / "codes", *ENCODE, *options]


def search_good(folder: Path, *options: object, store: str = "codes") -> Words:
    """Return the words that search a good store for the good queries."""
    return ["search", folder / "good" / store, folder / "good/queries.npy", "-k", 5, *options]


def with_header(folder: Path, store: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a good store whose header says something else, all digests being right."""
    copy = Path(shutil.copytree(folder / "good" / store, folder / store))
    group = json.loads((copy / "zarr.json").read_text())
    mapping = group["attributes"]["mercore"]
    del mapping["digest"]
    change(mapping)
    group["attributes"]["mercore"] = {**mapping, "digest": digest(mapping)}
    (copy / "zarr.json").write_text(json.dumps(group, indent=2, sort_keys=True))
    job = digest({key: mapping[key] for key in ("kind", "spec", "layout")})
    parts = mapping["layout"]["rows"] // mapping["layout"]["part_rows"] + 1
    for path in copy.glob("receipts/c/*/0"):
        fields = {**json.loads(path.read_bytes()[:RECEIPT_BYTES]), "job": job}
        path.write_bytes(receipt_bytes(Receipt(**fields), parts))
    return copy


# --- ingest: the source


@case(2, "no such file or folder")
def absent_source(folder: Path) -> Words:
    return ["ingest", folder / "nothing.npy", folder / "new"]


@case(2, "unknown suffix '.csv'")
def unknown_suffix(folder: Path) -> Words:
    return ingest(folder, "rows.csv", b"1,2,3\n")


@case(2, "expected 228 for the header's")
def truncated_npy(folder: Path) -> Words:
    words = ingest_array(folder, np.ones((25, 4), np.uint8))
    os.truncate(folder / "rows.npy", 200)
    return words


@case(2, "no .npy header")
def npy_that_is_none(folder: Path) -> Words:
    return ingest(folder, "rows.npy", b"not a header at all, just some text " * 10)


@case(2, "no .npy header")
def empty_npy(folder: Path) -> Words:
    return ingest(folder, "rows.npy", b"")


@case(2, "expected two dimensions")
def npy_of_one_dimension(folder: Path) -> Words:
    return ingest_array(folder, np.ones(9))


@case(2, "expected two dimensions")
def npy_of_three_dimensions(folder: Path) -> Words:
    return ingest_array(folder, np.ones((3, 3, 3)))


@case(2, "an array of shape (2, 3, 4), expected two dimensions")
def npy_in_fortran_order_of_three_dimensions(folder: Path) -> Words:
    return ingest_array(folder, np.asfortranarray(np.zeros((2, 3, 4))))


@case(2, "expected one of fvecs, bvecs")
def unknown_format(folder: Path) -> Words:
    return [*ingest_array(folder, np.ones((3, 4))), "--format", "csv"]


@case(2, "expected first:last")
def rows_that_are_no_range(folder: Path) -> Words:
    return [*ingest_array(folder, np.ones((3, 4))), "--rows", "3"]


@case(2, "Python objects")
def npy_of_pickles(folder: Path) -> Words:
    return ingest_array(folder, np.array([[{}, []]], dtype=object))


@case(2, "expected bool, integers, float16, float32 or float64")
def npy_of_complex_numbers(folder: Path) -> Words:
    return ingest_array(folder, np.ones((3, 4), np.complex64))


@case(2, "has no row to store")
def npy_without_rows(folder: Path) -> Words:
    return ingest_array(folder, np.ones((0, 4), np.float32))


@case(2, "d = 0")
def npy_of_width_zero(folder: Path) -> Words:
    return ingest_array(folder, np.ones((4, 0), np.float32))


@case(2, "beyond float32's range")
def float64_too_large(folder: Path) -> Words:
    return ingest_array(folder, np.array([[1.0, 1e300]]))


@case(2, "not exact in float32")
def integer_too_large(folder: Path) -> Words:
    return ingest_array(folder, np.array([[1, 2**24 + 1]]))


@case(2, "5 of them all zero")
def only_zero_rows_and_all_dropped(folder: Path) -> Words:
    return [*ingest_array(folder, np.zeros((5, 4), np.uint8)), "--drop-zero-rows"]


@case(2, "expected a multiple of 20")
def truncated_fvecs(folder: Path) -> Words:
    return ingest(folder, "rows.fvecs", (struct.pack("<i", 4) + bytes(16)) * 3 + b"\4\0")


@case(2, "row 1 says d = 5, expected 4")
def bvecs_whose_rows_differ(folder: Path) -> Words:
    return ingest(
        folder, "rows.bvecs", struct.pack("<i4s", 4, b"aaaa") + struct.pack("<i4s", 5, b"aaaa")
    )


@case(2, "d = -1")
def fvecs_of_negative_width(folder: Path) -> Words:
    return ingest(folder, "rows.fvecs", struct.pack("<i", -1) * 8)


@case(2, "expected at least the 4 that say d")
def empty_ivecs(folder: Path) -> Words:
    return ingest(folder, "rows.ivecs", b"")


@case(2, "expected 1608 for the header's n = 100, d = 4")
def fbin_that_promises_more(folder: Path) -> Words:
    return ingest(folder, "rows.fbin", struct.pack("<II", 100, 4) + bytes(16))


@case(2, "expected a header of 8")
def u8bin_shorter_than_its_header(folder: Path) -> Words:
    return ingest(folder, "rows.u8bin", b"\1\0\0")


@case(2, "expected 12 for the header's n = 2, d = 2")
def i8bin_with_bytes_left_over(folder: Path) -> Words:
    return ingest(folder, "rows.i8bin", struct.pack("<II", 2, 2) + bytes(9))


@case(2, "expected n ≥ 0 and 1 ≤ d")
def ibin_whose_header_is_of_another_format(folder: Path) -> Words:
    return ingest(folder, "rows.ibin", struct.pack("<II", 1, 2**32 - 1) + bytes(64))


@case(2, "a folder without Zarr metadata")
def folder_that_is_no_array(folder: Path) -> Words:
    (folder / "rows").mkdir()
    return ["ingest", folder / "rows", folder / "new"]


@case(2, "a Zarr group, expected an array")
def zarr_group(folder: Path) -> Words:
    zarr.open_group(folder / "rows", mode="w").create_array("x", shape=(2, 2), dtype="u1")
    return ["ingest", folder / "rows", folder / "new"]


@case(2, "expected two dimensions")
def zarr_of_one_dimension(folder: Path) -> Words:
    save_zarr(folder / "rows", np.ones(3))
    return ["ingest", folder / "rows", folder / "new"]


@case(2, "the Zarr metadata cannot be read")
def zarr_with_broken_metadata(folder: Path) -> Words:
    save_zarr(folder / "rows", WIDE)
    (folder / "rows/zarr.json").write_text('{"zarr_format": 3, "node_type": "array"')
    return ["ingest", folder / "rows", folder / "new"]


@case(2, "cannot be decoded")
def zarr_with_a_broken_chunk(folder: Path) -> Words:
    save_zarr(folder / "rows", WIDE)
    (folder / "rows/c/0/0").write_bytes(b"nonsense")
    return ["ingest", folder / "rows", folder / "new"]


@case(2, "not a regular file")
def named_pipe(folder: Path) -> Words:
    os.mkfifo(folder / "rows.npy")
    return ["ingest", folder / "rows.npy", folder / "new"]


def pipe_at(path: Path) -> Path:
    """Return a path at which there is a named pipe, in a new folder."""
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    return path


@case(2, "zarr.json: not a regular file")
def named_pipe_as_metadata(folder: Path) -> Words:
    return ["info", pipe_at(folder / "store/zarr.json").parent]


@case(2, ".zarray: not a regular file")
def named_pipe_as_metadata_of_zarr_v2(folder: Path) -> Words:
    return ["ingest", pipe_at(folder / "rows/.zarray").parent, folder / "new"]


@case(2, "zarr.json: not a regular file")
def folder_as_metadata(folder: Path) -> Words:
    (folder / "store/zarr.json").mkdir(parents=True)
    return ["info", folder / "store"]


@case(2, "a.png: not a regular file")
def named_pipe_as_image(folder: Path) -> Words:
    return ["ingest", pipe_at(folder / "images/a.png").parent, folder / "new"]


@case(2, "mine.py: not a regular file")
def named_pipe_as_kernel(folder: Path) -> Words:
    return encode_good(folder, "--kernel", pipe_at(folder / "mine.py"))


# --- ingest: the target


@case(2, "exists: expected a new path")
def ingest_onto_a_store(folder: Path) -> Words:
    return ["ingest", folder / "good/queries.npy", folder / "good/vectors"]


@case(2, "there is no folder")
def ingest_into_no_folder(folder: Path) -> Words:
    return ["ingest", folder / "good/queries.npy", folder / "no/such/store"]


@case(2, "unknown compressor: found 'rar'")
def unknown_compressor(folder: Path) -> Words:
    return ["ingest", folder / "good/queries.npy", folder / "new", "--compressor", "rar"]


@case(2, "a level from -7 to 22: found '99'")
def compressor_level_out_of_range(folder: Path) -> Words:
    return ["ingest", folder / "good/queries.npy", folder / "new", "--compressor", "zstd:99"]


# --- encode


@case(2, "does not exist: expected a vector store")
def absent_vectors(folder: Path) -> Words:
    return ["encode", folder / "nothing", folder / "codes", *ENCODE]


@case(2, "is a file: expected a vector store")
def file_for_vectors(folder: Path) -> Words:
    return ["encode", folder / "good/queries.npy", folder / "codes", *ENCODE]


@case(2, "is a store of codes: expected one of vectors")
def codes_for_vectors(folder: Path) -> Words:
    return ["encode", folder / "good/codes", folder / "codes", *ENCODE]


@case(1, "it has no receipt")
def vectors_that_are_not_whole(folder: Path) -> Words:
    shutil.copytree(folder / "good/vectors", folder / "vectors")
    (folder / "vectors/receipts/c/0/0").unlink()
    return ["encode", folder / "vectors", folder / "codes", *ENCODE]


@case(2, "unknown kernel: found 'cubic'")
def unknown_kernel(folder: Path) -> Words:
    return encode_good(folder, "--kernel", "cubic")


@case(2, "gamma")
def rbf_without_gamma(folder: Path) -> Words:
    return encode_good(folder, "--kernel", "rbf")


@case(2, "'nan' is not a finite number")
def gamma_that_is_no_number(folder: Path) -> Words:
    return encode_good(folder, "--kernel", "rbf", "--gamma", "nan")


@case(2, "gamma")
def gamma_for_a_kernel_without_one(folder: Path) -> Words:
    return encode_good(folder, "--kernel", "chi2", "--gamma", 2)


@case(2, "transform is out of range: found -1.0")
def negative_transform(folder: Path) -> Words:
    return encode_good(folder, "--transform", -1)


@case(2, "atoms is out of range: found 3001, expected 1 to 3000 rows")
def more_atoms_than_rows(folder: Path) -> Words:
    return encode_good(folder, "--atoms", 3001)


@case(2, "atoms is out of range: found 0")
def no_atoms(folder: Path) -> Words:
    return encode_good(folder, "--atoms", 0)


@case(2, "sparsity is out of range: found 65, expected 1 to 64")
def sparsity_above_atoms(folder: Path) -> Words:
    return encode_good(folder, "--sparsity", 65)


@case(2, "unknown weights: found 'int4'")
def unknown_weights(folder: Path) -> Words:
    return encode_good(folder, "--weights", "int4")


@case(2, "random_state must not be negative")
def negative_seed(folder: Path) -> Words:
    return encode_good(folder, "--random-state", -1)


@case(2, "part_rows is out of range: found 0")
def parts_of_no_rows(folder: Path) -> Words:
    return encode_good(folder, "--part-rows", 0)


@case(2, "holds 1 row with NaN values")
def nan_in_vectors(folder: Path) -> Words:
    return encode_array(folder, np.vstack([WIDE, [[1, np.nan, 1]]]), "--kernel", "chi2")


@case(2, "holds 1 row with infinite values")
def infinity_in_vectors(folder: Path) -> Words:
    return encode_array(folder, np.vstack([WIDE, [[1, np.inf, 1]]]), "--kernel", "cosine")


@case(2, "holds 1 row with negative values")
def negative_values_in_vectors(folder: Path) -> Words:
    return encode_array(folder, np.vstack([WIDE, [[1, -1, 1]]]), "--kernel", "intersection")


@case(2, "holds 1 row with all-zero values")
def zero_row_in_vectors(folder: Path) -> Words:
    return encode_array(folder, np.vstack([WIDE, [[0, 0, 0]]]), "--kernel", "hellinger")


@case(2, "row 5 has a NaN or infinite value")
def nan_in_a_zarr_array_that_nobody_ingested(folder: Path) -> Words:
    values = WIDE.copy()
    values[5, 1] = np.nan
    save_zarr(folder / "rows", values)
    return [
        "encode",
        folder / "rows",
        folder / "codes",
        "--kernel",
        "chi2",
        "--atoms",
        2,
        "--sparsity",
        1,
    ]


@case(2, "differs in encoder n_atoms (64, not 32)")
def codes_of_another_job(folder: Path) -> Words:
    return [
        "encode",
        folder / "good/vectors",
        folder / "good/codes",
        *ENCODE,
        "--atoms",
        32,
        "--part-rows",
        50,
    ]


@case(2, "exists and is no code store")
def folder_in_the_codes_place(folder: Path) -> Words:
    (folder / "codes").mkdir()
    return encode_good(folder)


@case(2, "exists and is no code store")
def file_in_the_codes_place(folder: Path) -> Words:
    (folder / "codes").write_text("mine")
    return encode_good(folder)


@case(2, "exists and is no code store")
def vectors_in_the_codes_place(folder: Path) -> Words:
    return ["encode", folder / "good/vectors", folder / "good/vectors", *ENCODE]


@case(2, "there is no folder")
def encode_into_no_folder(folder: Path) -> Words:
    return ["encode", folder / "good/vectors", folder / "no/such/codes", *ENCODE]


@case(1, "encoding would take")
def encode_over_budget(folder: Path) -> Words:
    return encode_good(folder, "--memory", "100MB")


@case(2, "is not a size")
def budget_that_is_no_size(folder: Path) -> Words:
    return encode_good(folder, "--memory", "plenty")


@case(1, "no Dask scheduler answers at nowhere")
def scheduler_without_a_port(folder: Path) -> Words:
    return encode_good(folder, "--scheduler", "nowhere")


@case(1, "no Dask scheduler answers at tcp://127.0.0.1:1")
def scheduler_that_is_not_there(folder: Path) -> Words:
    return encode_good(folder, "--scheduler", "tcp://127.0.0.1:1")


# --- search


@case(2, "does not exist: expected a store")
def search_no_store(folder: Path) -> Words:
    return ["search", folder / "nothing", folder / "good/queries.npy"]


@case(2, "is a file: expected a vector store")
def search_a_file(folder: Path) -> Words:
    return ["search", folder / "good/base.npy", folder / "good/queries.npy", "--kernel", "chi2"]


@case(1, "it has no receipt, so it is not done")
def search_unfinished_codes(folder: Path) -> Words:
    shutil.copytree(folder / "good/codes", folder / "codes")
    (folder / "codes/receipts/c/3/0").unlink()
    return ["search", folder / "codes", folder / "good/queries.npy", "-k", 5]


@case(2, "version is 2, expected 1")
def codes_of_a_newer_layout(folder: Path) -> Words:
    copy = with_header(folder, "codes", lambda mapping: mapping["layout"].update(version=2))
    return ["search", copy, folder / "good/queries.npy"]


@case(2, "version is 2, expected 1")
def codes_of_a_newer_version(folder: Path) -> Words:
    copy = with_header(folder, "codes", lambda mapping: mapping["spec"].update(version=2))
    return ["search", copy, folder / "good/queries.npy"]


@case(2, "version is 2, expected 1")
def vectors_of_a_newer_version(folder: Path) -> Words:
    copy = with_header(folder, "vectors", lambda mapping: mapping["spec"].update(version=2))
    return ["search", copy, folder / "good/queries.npy", "--kernel", "chi2"]


@case(2, "version is 2, expected 1")
def codes_of_a_newer_encoder(folder: Path) -> Words:
    copy = with_header(
        folder, "codes", lambda mapping: mapping["spec"]["encoder"].update(version=2)
    )
    return ["search", copy, folder / "good/queries.npy"]


@case(2, "unknown ['shiny']")
def codes_with_an_unknown_field(folder: Path) -> Words:
    copy = with_header(folder, "codes", lambda mapping: mapping["spec"].update(shiny=True))
    return ["info", copy]


@case(2, "a kernel of the store is unknown")
def codes_of_an_unknown_kernel(folder: Path) -> Words:
    copy = with_header(
        folder, "codes", lambda mapping: mapping["spec"]["kernel"].update(name="cubic")
    )
    return ["search", copy, folder / "good/queries.npy"]


@case(2, "zarr.json describes no layout of a store")
def codes_of_more_parts_than_a_disk_has_files(folder: Path) -> Words:
    return [
        "info",
        with_header(folder, "codes", lambda mapping: mapping["layout"].update(rows=2**40)),
    ]


@case(1, "zarr.json is damaged")
def header_that_was_edited(folder: Path) -> Words:
    shutil.copytree(folder / "good/codes", folder / "codes")
    text = (folder / "codes/zarr.json").read_text()
    (folder / "codes/zarr.json").write_text(text.replace('"rows": 3000', '"rows": 2999'))
    return ["search", folder / "codes", folder / "good/queries.npy"]


@case(2, "k is out of range: found 0, expected 1 to 3000")
def k_of_zero(folder: Path) -> Words:
    return search_good(folder, "-k", 0)


@case(2, "k is out of range: found -3")
def negative_k(folder: Path) -> Words:
    return search_good(folder, "-k", -3)


@case(2, "k is out of range: found 3001, expected 1 to 3000")
def k_above_n(folder: Path) -> Words:
    return search_good(folder, "-k", 3001)


@case(2, "k is out of range: found 3001")
def k_above_n_in_vectors(folder: Path) -> Words:
    return search_good(folder, "-k", 3001, "--kernel", "chi2", store="vectors")


@case(2, "is not a valid integer")
def k_that_is_no_number(folder: Path) -> Words:
    return search_good(folder, "-k", "ten")


@case(2, "rerank is out of range: found 4, expected k = 5 to 3000")
def rerank_below_k(folder: Path) -> Words:
    return search_good(folder, "--rerank", 4)


@case(2, "rerank is out of range: found 3001")
def rerank_above_n(folder: Path) -> Words:
    return search_good(folder, "--rerank", 3001)


@case(2, "batch is out of range: found 0")
def batch_of_zero(folder: Path) -> Words:
    return search_good(folder, "--batch", 0)


@case(2, "threads is out of range: found 0")
def no_threads(folder: Path) -> Words:
    return search_good(folder, "--threads", 0)


@case(1, "searching would take")
def search_over_budget(folder: Path) -> Words:
    return search_good(folder, "--memory", "1MB")


@case(2, "has kernel chi2: found --kernel cosine. Fix: leave --kernel out.")
def another_kernel_than_the_codes_have(folder: Path) -> Words:
    return search_good(folder, "--kernel", "cosine")


@case(2, "a search of vectors needs a kernel: found none")
def vectors_without_a_kernel(folder: Path) -> Words:
    return search_good(folder, store="vectors")


@case(2, "which have true scores already")
def rerank_of_vectors(folder: Path) -> Words:
    return search_good(folder, "--rerank", 10, "--kernel", "chi2", store="vectors")


@case(2, "name its new path with --vectors")
def rerank_when_the_vectors_are_gone(folder: Path) -> Words:
    copy = with_header(
        folder, "codes", lambda mapping: mapping["notes"].update(source_path=str(folder / "gone"))
    )
    return ["search", copy, folder / "good/queries.npy", "-k", 5, "--rerank", 10]


@case(2, "is not what")
def rerank_with_other_vectors(folder: Path) -> Words:
    succeed(*ingest_array(folder, histograms(3000, 24, seed=9)))
    return search_good(folder, "--rerank", 10, "--vectors", folder / "new")


@case(2, "no such file or folder")
def absent_queries(folder: Path) -> Words:
    return ["search", folder / "good/codes", folder / "nothing.npy"]


@case(2, "has d = 23: expected 24")
def queries_of_another_dimension(folder: Path) -> Words:
    return search_for(folder, np.ones((3, 23), np.uint8))


@case(2, "holds no query")
def no_queries(folder: Path) -> Words:
    return search_for(folder, np.ones((0, 24), np.uint8))


@case(2, "query 2 has a NaN or infinite value")
def nan_in_queries(folder: Path) -> Words:
    values = np.ones((3, 24), np.float32)
    values[2, 7] = np.nan
    return search_for(folder, values)


@case(2, "query 1 has a negative value")
def negative_value_in_queries(folder: Path) -> Words:
    return search_for(folder, np.vstack([np.ones(24), -np.ones(24)]).astype(np.float32))


@case(2, "query 1 is all zero")
def zero_query(folder: Path) -> Words:
    return search_for(folder, np.vstack([np.ones(24), np.zeros(24)]).astype(np.uint8))


@case(2, "unknown suffix '.txt' for hits")
def hits_of_an_unknown_format(folder: Path) -> Words:
    return search_good(folder, "--out", folder / "hits.txt")


@case(2, "does not exist")
def hits_into_no_folder(folder: Path) -> Words:
    return search_good(folder, "--out", folder / "no/such/hits.npz")


@case(2, "a folder, expected a file to write")
def hits_onto_a_folder(folder: Path) -> Words:
    (folder / "hits.npz").mkdir()
    return search_good(folder, "--out", folder / "hits.npz")


@case(2, "scores")
def hits_beside_vectors_of_the_same_name(folder: Path) -> Words:
    (folder / "hits.fvecs").write_bytes((struct.pack("<i", 4) + bytes(16)) * 3)
    return search_good(folder, "--out", folder / "hits.ivecs")


# --- evaluate, check, info, and the words themselves


def evaluate(folder: Path, *options: object, queries: int = 12, data: bytes | None = None) -> Words:
    """Return the words that evaluate hits of 3 neighbours a query against a truth of 5 for the good
    queries."""
    np.savez(folder / "hits.npz", ids=np.arange(3 * queries).reshape(queries, 3))
    np.savez(folder / "truth.npz", ids=np.arange(60).reshape(12, 5))
    if data is not None:
        (folder / "hits.npz").write_bytes(data)
    return ["evaluate", folder / "hits.npz", folder / "truth.npz", *options]


@case(2, "no such file or folder")
def absent_hits(folder: Path) -> Words:
    return [*evaluate(folder)[:2], folder / "nothing.npz"]


@case(2, "hits.npz")
def hits_that_are_no_zip(folder: Path) -> Words:
    return evaluate(folder, data=b"PK\3\4 and then nothing of the kind")


@case(2, "queries")
def hits_of_fewer_queries(folder: Path) -> Words:
    return evaluate(folder, queries=11)


@case(2, "ranks are numbers above 0")
def ranks_that_are_no_numbers(folder: Path) -> Words:
    return evaluate(folder, "--ranks", "1,ten")


@case(2, "ranks are numbers above 0")
def rank_of_zero(folder: Path) -> Words:
    return evaluate(folder, "--ranks", "0")


@case(2, "rank")
def rank_beyond_the_hits(folder: Path) -> Words:
    return evaluate(folder, "--ranks", "1,1000")


@case(2, "it needs --queries and --kernel too")
def vectors_without_queries(folder: Path) -> Words:
    return evaluate(folder, "--vectors", folder / "good/vectors")


@case(2, "")
def vectors_without_such_ids(folder: Path) -> Words:
    words = evaluate(folder, "--kernel", "chi2", "--vectors", folder / "good/vectors")
    np.savez(folder / "hits.npz", ids=np.full((12, 3), 10**9))
    return [*words, "--queries", folder / "good/queries.npy"]


def labels(folder: Path, values: Any) -> Words:
    """Return the words that evaluate hits with these labels of rows, and good ones of queries."""
    np.save(folder / "labels.npy", values)
    np.save(folder / "query_labels.npy", np.zeros(12, np.int64))
    names = ("--labels", folder / "labels.npy", "--query-labels", folder / "query_labels.npy")
    return [*evaluate(folder), *names, "--neighbours", "3"]


@case(2, "float64[60], expected labels, int64[n]")
def labels_that_are_no_integers(folder: Path) -> Words:
    return labels(folder, np.zeros(60))


@case(2, "int64[60, 1], expected labels, int64[n]")
def labels_of_two_dimensions(folder: Path) -> Words:
    return labels(folder, np.zeros((60, 1), np.int64))


@case(2, "a returned id has no label: found row 35, expected a row below 35")
def labels_of_fewer_rows(folder: Path) -> Words:
    return labels(folder, np.zeros(35, np.int64))


@case(2, "expected 608 for the header's (60,) of int64")
def labels_that_are_cut_off(folder: Path) -> Words:
    words = labels(folder, np.zeros(60, np.int64))
    os.truncate(folder / "labels.npy", 600)
    return words


@case(2, "coverage takes numbers from 1 to 3, the hits of a query, with commas: found '2,4'")
def coverage_beyond_the_hits(folder: Path) -> Words:
    return evaluate(folder, "--coverage", "2,4")


@case(2, "does not exist: expected a store")
def check_no_store(folder: Path) -> Words:
    return ["check", folder / "nothing"]


@case(2, "has no receipts to check against")
def check_a_foreign_file(folder: Path) -> Words:
    return ["check", folder / "good/queries.npy"]


@case(2, "is not a store of mercore")
def info_of_a_foreign_group(folder: Path) -> Words:
    (folder / "group").mkdir()
    (folder / "group/zarr.json").write_text(
        '{"zarr_format": 3, "node_type": "group", "attributes": {}}'
    )
    return ["info", folder / "group"]


@case(2, "No such command 'serach'")
def misspelt_verb(folder: Path) -> Words:
    return ["serach", folder / "good/codes"]


@case(2, "Missing argument 'QUERIES'")
def missing_argument(folder: Path) -> Words:
    return ["search", folder / "good/codes"]


@case(2, "Missing option '--kernel'")
def missing_kernel(folder: Path) -> Words:
    return ["encode", folder / "good/vectors", folder / "codes"]


# --- what holds of them all


@pytest.fixture
def folder(codes: Path, tmp_path: Path) -> Path:
    """A folder to do something bad in, with good stores at hand under ``good``."""
    (tmp_path / "good").symlink_to(codes.parent)
    return tmp_path


def assert_one_paragraph(outcome: Outcome, code: int, says: str) -> None:
    """Check how a refusal reads."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert says in outcome.err
    assert "Traceback" not in outcome.err
    if not outcome.err.startswith("Usage: mercore "):
        assert re.fullmatch(r"mercore: [^\n]+\. Fix: [^\n]+\n", outcome.err), outcome.err


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercore.jobs.cluster.client.CONNECT_SECONDS", 0.2)
    code, says, make = CASES[name]
    words = make(folder)
    before = listing(folder), files_of(folder / "good")
    outcome = invoke(*words)
    assert_one_paragraph(outcome, code, says)
    assert (listing(folder), files_of(folder / "good")) == before


def listing(folder: Path) -> list[tuple[str, int]]:
    """Return all that lies in a folder, but for the good stores, with sizes."""
    return sorted((str(path), path.is_dir() or path.lstat().st_size) for path in folder.rglob("*"))


def test_there_are_more_than_forty_kinds() -> None:
    assert len(CASES) > 40


@pytest.mark.parametrize("name", ["truncated npy"])
def test_bad_input_by_the_real_command(name: str, folder: Path) -> None:
    code, says, make = CASES[name]
    words = make(folder)
    before = listing(folder)
    assert_one_paragraph(run(*words), code, says)
    assert listing(folder) == before


def test_wrong_values_in_metadata(tmp_path: Path) -> None:
    mutated_stores.make_stores(tmp_path, "aska")
    every = mutated_stores.cases(tmp_path)
    for case in every[:: len(every) // 12]:
        with in_case(case=case):
            mutated_stores.run_case(tmp_path, case)


# --- a disk that refuses


def full_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Let the disk be full from so many writes on."""
    really, left = os.fsync, iter(range(writes))

    def fsync(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@loop_over("writes", [0, 1, 3, 5, 7, 9])
def test_ingest_onto_a_full_disk(
    writes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        outcome = invoke("ingest", folder / "good/base.npy", folder / "new")
    assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
    assert names_in(folder) == ["good"]


@loop_over("writes", [0, 1, 5, 20])
def test_encode_onto_a_disk_that_is_full_from_the_start(
    writes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        outcome = invoke(*encode_good(folder, "--part-rows", 50))
    assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
    assert names_in(folder) == ["good"]


@pytest.mark.slow
@pytest.mark.parametrize("writes", [40, 41, 42, 43, 77, 200, 500])
def test_encode_onto_a_disk_that_fills_up_resumes(
    writes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        outcome = invoke(*encode_good(folder, "--part-rows", 50))
    assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
    assert scratch_in(folder) == []
    assert invoke("check", folder / "codes").code == 1
    succeed(*encode_good(folder, "--part-rows", 50))
    assert files_of(folder / "codes") == files_of(folder / "good/codes")


def test_hits_onto_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hits.npz", "hits.parquet", "hits.ibin", "hits.ivecs"):
        with monkeypatch.context() as patch:
            full_after(patch, 0)
            outcome = invoke(*search_good(folder, "--out", folder / name))
        assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
        assert names_in(folder) == ["good"]


LIMIT_FILES = "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
OBEY_PERMISSIONS = (
    "ctypes.CDLL(None).prctl(24, 1, 0, 0, 0), ctypes.CDLL(None).prctl(24, 2, 0, 0, 0)"
)


INVOKE = """
import json, sys
from tests.support.running import invoke
print(json.dumps([vars(invoke(*words)) for words in json.loads(sys.argv[1])]))
"""


def run_limited(limit: str, *words: object) -> Outcome:
    """Run the real command in a process that limits itself first."""
    return start_limited(limit, command(*words))


def invoke_limited(limit: str, commands: list[list[object]]) -> list[Outcome]:
    """Run commands one after the other in one process that limits itself first."""
    words = [[str(word) for word in each] for each in commands]
    outcome = start_limited(limit, [sys.executable, "-c", INVOKE, json.dumps(words)])
    assert outcome.code == 0, outcome.err
    return [Outcome(**each) for each in json.loads(outcome.out)]


def start_limited(limit: str, words: list[str]) -> Outcome:
    """Run any command in a process that limits itself first."""
    launch = f"import ctypes, os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    return finish(start_words([sys.executable, "-c", launch, *words], env=environment))


@pytest.mark.slow
def test_the_real_command_when_the_system_refuses_to_write(folder: Path) -> None:
    outcome = run_limited(LIMIT_FILES, "ingest", folder / "good/base.npy", folder / "new")
    assert_one_paragraph(outcome, 1, "File too large. Fix: free space")
    assert names_in(folder) == ["good"]


@pytest.fixture
def locked(folder: Path) -> Path:
    """A folder that may be read but not written, also not by root once it drops its right to
    override that."""
    (folder / "locked").mkdir(mode=0o555)
    return folder / "locked"


@pytest.mark.slow
def test_a_folder_that_may_not_be_written(folder: Path, locked: Path) -> None:
    for words in (
        ["ingest", folder / "good/base.npy", locked / "new"],
        ["encode", folder / "good/vectors", locked / "codes", *ENCODE],
        search_good(folder, "--out", locked / "hits.npz"),
    ):
        outcome = run_limited(OBEY_PERMISSIONS, *words)
        assert_one_paragraph(outcome, 1, str(locked))
        assert names_in(locked) == []


@pytest.mark.slow
def test_files_that_may_not_be_read(folder: Path) -> None:
    shutil.copy(folder / "good/queries.npy", folder / "rows.npy")
    shutil.copytree(folder / "good/codes", folder / "codes")
    (folder / "rows.npy").chmod(0)
    (folder / "codes/weights/c/3/0").chmod(0)
    (folder / "hidden").mkdir(mode=0)
    commands = [
        ["ingest", folder / "rows.npy", folder / "new"],
        ["search", folder / "codes", folder / "good/queries.npy", "-k", 5],
        ["info", folder / "hidden/store"],
        ["check", folder / "hidden/store"],
        ["encode", folder / "hidden/store", folder / "new", *ENCODE],
        ["ingest", folder / "good/base.npy", folder / "hidden/store"],
        ["search", folder / "hidden/store", folder / "good/queries.npy"],
        ["search", folder / "good/codes", folder / "hidden/rows.npy"],
        search_good(folder, "--out", folder / "hidden/below/hits.npz"),
        ["evaluate", folder / "hidden/hits.npz", folder / "hidden/truth.npz"],
    ]
    for outcome in invoke_limited(OBEY_PERMISSIONS, commands):
        assert_one_paragraph(outcome, 1, "Permission denied")
    assert names_in(folder) == ["codes", "good", "hidden", "rows.npy"]
    assert open_header(folder / "codes").kind == "codes"
