"""More rows from few: descriptors scaled and jittered into distinct ones, for measurements at a
size of choice."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.stores.errors import InputError
from mercore.stores.rows import open_rows

BLOCK = 1 << 16


def write_jittered(base: str, out: Path, rows: int, *, seed: int = 0) -> None:
    """Write ``rows`` rows: those of ``base``, each scaled by 1 ± 5 % and each value by 1 ± 10 %.

    Raises
    ------
    InputError
        If ``out`` is neither ``.bvecs``, for uint8, nor ``.npy``, for float16.
    """
    source = open_rows(base)
    values = source.read(0, source.shape[0]).astype(np.float32)
    blocks = _jittered(values, rows, np.random.default_rng(seed))
    if out.suffix == ".bvecs":
        _write_bvecs(out, blocks)
    elif out.suffix == ".npy":
        array = np.lib.format.open_memmap(
            str(out), mode="w+", dtype=np.float16, shape=(rows, values.shape[1])
        )
        for start, block in enumerate(blocks):
            array[start * BLOCK : start * BLOCK + len(block)] = block
        array.flush()
    else:
        raise InputError(
            f"{out} has the suffix {out.suffix!r}: expected .bvecs or .npy. Fix: name such a file."
        )


def ingest_jittered(base: str, store: Path, rows: int) -> None:
    """Make a vector store of jittered rows."""
    suffix = "bvecs" if open_rows(base).dtype.itemsize == 1 else "npy"
    file = store.with_name(f"{store.name}.{suffix}")
    write_jittered(base, file, rows)
    api.ingest(file, store)
    file.unlink()


def _jittered(
    values: NDArray[np.float32], rows: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float32]]:
    """Yield blocks of jittered rows, drawn from ``values`` with replacement."""
    n, d = values.shape
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        drawn = values[rng.integers(0, n, count)] * (
            1 + 0.05 * rng.standard_normal((count, 1), dtype=np.float32)
        )
        drawn *= 1 + 0.1 * rng.standard_normal((count, d), dtype=np.float32)
        yield drawn


def _write_bvecs(out: Path, blocks: Iterator[NDArray[np.float32]]) -> None:
    """Write rows as uint8, each after its length."""
    with out.open("xb") as file:
        for drawn in blocks:
            count, d = drawn.shape
            block = np.empty((count, 4 + d), np.uint8)
            block[:, :4] = np.frombuffer(np.int32(d).tobytes(), np.uint8)
            block[:, 4:] = np.clip(np.rint(drawn), 0, 255)
            file.write(block.tobytes())
