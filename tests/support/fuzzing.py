"""Mutated files of every format of rows and hits: a reader returns arrays of the announced shape,
or a clear error.

``python -m tests.support.fuzzing FIRST LAST REPORT [NAME…]`` runs the cases FIRST…LAST − 1, of the
files named, and keeps the number of the case at hand in REPORT, so that a crash names its case.
"""

import gzip
import io
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
import zarr
from numpy.typing import NDArray
from pyarrow import feather

from mercore.stores.errors import MercoreError
from mercore.stores.formats import open_source
from mercore.stores.formats.streams import row_blocks
from mercore.stores.results.hits import Hits, read_hits, write_hits
from mercore.stores.results.recognise import describe_results

ROWS = np.random.default_rng(0).random((40, 6), np.float32)
HITS = Hits(scores=ROWS, ids=np.argsort(ROWS, axis=1))
BLOCK_BYTES = 8 << 20
BLOCKS = 4  # a damaged header may announce any number of rows
VALUES = [0, 1, 2, 4, 127, 128, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1]


def texmex() -> bytes:
    """Return a ``.fvecs``."""
    return b"".join(struct.pack("<i", 6) + row.tobytes() for row in ROWS)


def bigann() -> bytes:
    """Return a ``.fbin``."""
    return struct.pack("<II", *ROWS.shape) + ROWS.tobytes()


def npy(*, fortran: bool = False) -> bytes:
    """Return a ``.npy``."""
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(ROWS) if fortran else ROWS)
    return stream.getvalue()


def npz(*, compressed: bool) -> bytes:
    """Return a ``.npz``."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, rows=ROWS)
    return stream.getvalue()


def csr(*, compressed: bool) -> bytes:
    """Return a sparse ``.npz``."""
    stream = io.BytesIO()
    scipy.sparse.save_npz(
        stream, scipy.sparse.csr_array(ROWS * (ROWS > 0.5)), compressed=compressed
    )
    return stream.getvalue()


def table(*, parquet: bool, compression: str) -> bytes:
    """Return a Parquet or Arrow file of lists."""
    stream, rows = io.BytesIO(), pa.table({"row": list(ROWS)})
    if parquet:
        pq.write_table(rows, stream, row_group_size=15, compression=compression)
    else:
        feather.write_feather(rows, stream, chunksize=15, compression=compression)
    return stream.getvalue()


def hdf5(*, chunked: bool) -> bytes:
    """Return an HDF5 file."""
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        more = {"chunks": (7, 3), "compression": "gzip", "fletcher32": True} if chunked else {}
        file.create_dataset("train", data=ROWS, **more)
    return stream.getvalue()


def zarr_chunk() -> bytes:
    """Return the metadata of a Zarr array of two dimensions."""
    with TemporaryDirectory() as folder:
        zarr.create_array(folder, data=ROWS)
        return (Path(folder) / "zarr.json").read_bytes()


def hits(suffix: str) -> bytes:
    """Return a file of hits."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"hits.{suffix}"
        write_hits(str(path), HITS)
        return path.read_bytes()


MAKERS: dict[str, Callable[[], bytes]] = {
    "a.fvecs": texmex,
    "a.fbin": bigann,
    "c.npy": npy,
    "f.npy": lambda: npy(fortran=True),
    "a.fvecs.gz": lambda: gzip.compress(texmex()),
    "a.fbin.gz": lambda: gzip.compress(bigann()),
    "c.npy.gz": lambda: gzip.compress(npy()),
    "stored.npz": lambda: npz(compressed=False),
    "deflated.npz": lambda: npz(compressed=True),
    "csr.npz": lambda: csr(compressed=False),
    "csr deflated.npz": lambda: csr(compressed=True),
    "plain.parquet": lambda: table(parquet=True, compression="none"),
    "snappy.parquet": lambda: table(parquet=True, compression="snappy"),
    "plain.arrow": lambda: table(parquet=False, compression="uncompressed"),
    "lz4.feather": lambda: table(parquet=False, compression="lz4"),
    "plain.h5": lambda: hdf5(chunked=False),
    "chunked.hdf5": lambda: hdf5(chunked=True),
    "a.zarr": zarr_chunk,
}
HIT_MAKERS: dict[str, Callable[[], bytes]] = {
    f"hits.{suffix}": partial(hits, suffix)
    for suffix in ("npy", "npz", "parquet", "ivecs", "ibin", "h5")
}
MAKERS |= HIT_MAKERS
HDF5 = ("plain.h5", "chunked.hdf5", "hits.h5")  # each case starts a process
IN_PROCESS = tuple(name for name in MAKERS if name not in HDF5)
CHECKED = {"a.fvecs.gz", "a.fbin.gz", "c.npy.gz", "deflated.npz"}  # checksums cover every number


@cache
def original(name: str) -> bytes:
    """Return the file that is mutated."""
    return MAKERS[name]()


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with a few bytes changed, cut out or put in, mostly near one of its ends."""
    out = bytearray(data)
    kinds = 3 if rng.random() < 0.7 else 6  # most keep the size
    for _ in range(rng.integers(1, 4)):
        at = position(len(out), rng)
        kind = rng.integers(0, kinds)
        if kind == 0:
            out[at : at + 1] = bytes([rng.integers(0, 256)])
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 2:
            width = int(rng.choice([1, 2, 4, 8]))
            value = int(rng.choice(VALUES)) % 256**width
            out[at : at + width] = value.to_bytes(width, rng.choice(["little", "big"]))
        elif kind == 3:
            del out[at : at + int(rng.integers(1, 40))]
        elif kind == 4:
            begin = position(len(out), rng)
            out[at:at] = out[begin : begin + int(rng.integers(1, 40))]
        else:
            del out[at:]
    return bytes(out)


def position(size: int, rng: np.random.Generator) -> int:
    """Return a position, mostly within 300 bytes of either end."""
    near = min(size, 300)
    where = rng.integers(0, 3)
    low = size - near if where == 1 else 0
    return int(rng.integers(low, max(low + 1, size if where == 2 else low + near)))


def run_case(case: int, folder: Path, names: Sequence[str] = IN_PROCESS) -> str:
    """Read the mutated file of a number, of the formats ``names`` in turn; return "refused" or "read".

    Raises
    ------
    Exception
        Other than ``MercoreError``, which is the fault that is sought.
    """
    name = names[case % len(names)]
    return read_file(name, mutated(original(name), np.random.default_rng(case)), folder)


def read_file(name: str, data: bytes, folder: Path) -> str:
    """Read ``data`` as the file ``name``: see ``run_case``."""
    path = folder / name
    if name.endswith(".zarr"):
        path.mkdir(exist_ok=True)
        (path / "zarr.json").write_bytes(data)
    else:
        path.write_bytes(data)
    try:
        rows = (read_some_hits if name in HIT_MAKERS else read_some)(str(path))
    except MercoreError as error:
        if "Fix: " not in str(error):
            raise AssertionError(f"an error without a fix: {error}") from error
        return "refused"
    if name in CHECKED:
        np.testing.assert_array_equal(rows, ROWS)
    return "read"


def read_some(path: str) -> NDArray[np.float32]:
    """Read the first blocks of a source, and the last row if it can."""
    source = open_source(path, ingesting=True)
    step, found = max(1, BLOCK_BYTES // (source.shape[1] * source.dtype.itemsize)), []
    for start, rows in row_blocks(source, step):
        assert rows.shape[1] == source.shape[1]
        assert rows.dtype == source.dtype
        assert rows.flags.c_contiguous
        found.append(rows)
        if start >= BLOCKS * step:
            n = source.shape[0]
            source.read(n - 1, n)
            break
    return np.concatenate(found) if found else np.empty((0, source.shape[1]), np.float32)


def read_some_hits(path: str) -> NDArray[np.int64]:
    """Read and describe hits."""
    found = read_hits(path)
    assert found.scores is None or found.scores.shape == found.ids.shape
    describe_results(path)
    return found.ids


def main(first: int, last: int, report: Path, names: Sequence[str] = IN_PROCESS) -> None:
    """Run cases within 4 GiB of address space, and 60 s each."""
    import faulthandler
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    faulthandler.enable()
    counts = {"read": 0, "refused": 0}
    with TemporaryDirectory() as folder, report.open("r+b", buffering=0) as kept:
        for case in range(first, last):
            kept.seek(0)
            kept.write(b"%12d" % case)
            signal.alarm(60)  # kills a case that hangs, also in C
            counts[run_case(case, Path(folder), names)] += 1
    print(counts)  # noqa: T201


if __name__ == "__main__":
    formats = sys.argv[4:] or IN_PROCESS
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), formats)
