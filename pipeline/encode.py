"""Encode a vector store part by part: plan it, draw the model, and turn one part's rows into columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders.aska import BLOCK_ROWS, Aska, AskaSpec
from pipeline.kernels import Kernel, kernel_from_spec
from stores.codes import CodeSpec, CodeStore
from stores.errors import InputError
from stores.header import Layout, model_entries
from stores.spec import from_json, to_json
from stores.vectors import Vectors, VectorStore, blocks, gather

MIN_PART_ROWS, MAX_PART_ROWS = 1 << 12, 1 << 20


@dataclass(frozen=True, kw_only=True)
class EncodePlan:
    """All that decides the bytes of a code store."""

    spec: CodeSpec
    layout: Layout
    model: dict[str, NDArray[Any]]


def default_part_rows(rows: int) -> int:
    """Return the rows of a part: about a 64th of the store, a power of two from 4 096 to 1 048 576."""
    return min(MAX_PART_ROWS, max(MIN_PART_ROWS, 1 << (rows // 64).bit_length()))


def plan_encode(
    vectors: Vectors, kernel: Kernel, encoder: AskaSpec, *, part_rows: int | None = None, compressor: str = "none"
) -> EncodePlan:
    """Check the parameters against the store, draw the dictionary, and lay the code store out.

    Raises
    ------
    InputError
        If a parameter is out of range, or the store holds rows outside the kernel's domain.
    """
    encoder.check(vectors.rows)
    if part_rows is not None and not 1 <= part_rows <= MAX_PART_ROWS:
        raise InputError(
            f"part_rows is out of range: found {part_rows}, expected 1 to {MAX_PART_ROWS}. Mend: leave --part-rows out."
        )
    check_domain(vectors, kernel)
    if not isinstance(vectors, VectorStore):
        check_every_row(vectors, kernel)
    chosen = encoder.draw(vectors.rows)
    dictionary = gather(vectors, chosen)
    kernel.prepare(dictionary, label="atom")
    model = {"dictionary": dictionary, "dictionary_rows": chosen}
    if vectors.dropped.size:
        model["dropped"] = vectors.dropped
    layout = Layout(
        rows=vectors.rows,
        part_rows=part_rows or default_part_rows(vectors.rows),
        columns=encoder.columns(compressor),
        model=model_entries(model),
    )
    spec = CodeSpec(encoder=to_json(encoder), kernel=kernel.spec(), source=vectors.fingerprint, dims=vectors.dims)
    return EncodePlan(spec=spec, layout=layout, model=model)


def check_domain(vectors: Vectors, kernel: Kernel) -> None:
    """Refuse a vector store whose ingest counted rows outside the kernel's domain, before any work.

    Raises
    ------
    InputError
        If it holds such rows.
    """
    if not isinstance(vectors, VectorStore):
        return
    spec = vectors.spec
    counts = {"NaN": spec.nan_rows, "infinite": spec.infinite_rows, "negative": spec.negative_rows}
    counts["all-zero"] = spec.zero_rows - spec.dropped_rows
    samples = {
        "NaN": np.full((1, 1), np.nan),
        "infinite": np.full((1, 1), np.inf),
        "negative": np.full((1, 1), -1.0),
        "all-zero": np.zeros((1, 1)),
    }
    for what, count in counts.items():
        if count and not _accepts(kernel, samples[what]):
            mend = "mercore ingest --drop-zero-rows" if what == "all-zero" else "clean the source and ingest it again"
            raise InputError(
                f"{vectors.where} holds {count} rows with {what} values: kernel {kernel.name} does not take them. "
                f"Mend: {mend}."
            )


def check_every_row(vectors: Vectors, kernel: Kernel) -> None:
    """Refuse rows outside the kernel's domain where no ingest counted them; a pass costs little beside encoding.

    Raises
    ------
    InputError
        Naming the first such row.
    """
    for row, rows in blocks(vectors, 0, vectors.rows, BLOCK_ROWS):
        kernel.prepare(rows, first=row)


def encode_part(encoder: Aska, vectors: Vectors, start: int, stop: int) -> dict[str, NDArray[Any]]:
    """Return the columns of rows [start, stop), computed block by block."""
    out: dict[str, NDArray[Any]] = {}
    for row, rows in blocks(vectors, start, stop, BLOCK_ROWS):
        for name, values in encoder.encode(rows, first=row).items():
            if name not in out:
                out[name] = np.empty((stop - start, *values.shape[1:]), values.dtype)
            out[name][row - start : row - start + len(rows)] = values
    return out


def encoder_of(store: CodeStore) -> Aska:
    """Return the encoder whose codes a store holds."""
    spec = from_json(AskaSpec, store.spec.encoder, store.where)
    model: Mapping[str, NDArray[Any]] = store.model
    return Aska(spec, kernel_from_spec(store.spec.kernel), model["dictionary"])


def encode_bytes(plan: EncodePlan, vectors: Vectors, workers: int) -> int:
    """Return the memory that encoding takes beyond the interpreter's own: the model, and each worker's buffers."""
    m, d = plan.model["dictionary"].shape
    shared = m * m * 4 + 2 * m * d * 12
    row = sum(np.dtype(c["dtype"]).itemsize * (c["width"] or 1) for c in plan.layout.columns)
    first, last = vectors.bounds(0)
    chunk = (last - first) * d * vectors.dtype.itemsize
    return int(shared + workers * (4 * plan.layout.part_rows * row + 2 * chunk + BLOCK_ROWS * (m * 8 + d * 24)))


def _accepts(kernel: Kernel, rows: NDArray[np.float64]) -> bool:
    """Return whether the kernel's domain holds ``rows``."""
    try:
        kernel.prepare(rows)
    except InputError:
        return False
    return True
