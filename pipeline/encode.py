"""Encode a vector store part by part: plan it, fit the model, make columns of rows."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.pipeline.compiling.first_use import before_encoding
from mercore.pipeline.encoders import Encoder, EncoderSpec, encoder_spec
from mercore.pipeline.encoders.encoder import MAX_BLOCK_ROWS
from mercore.pipeline.kernels import CustomKernel, Kernel, kernel_from_spec
from mercore.pipeline.linear_map import MappedVectors
from mercore.stores.codes import CodeSpec, CodeStore
from mercore.stores.errors import FormatError, InputError, counted
from mercore.stores.indexes import Index
from mercore.stores.part_backed_store import LINEAR_MAP
from mercore.stores.part_store.header import Layout, model_entries, row_bytes
from mercore.stores.part_store.sizes import small_part_rows
from mercore.stores.spec import to_json
from mercore.stores.vector_views import EarlierVectors
from mercore.stores.vectors import State, Vectors, VectorStore, blocks, dropped_name
from mercore.stores.wording import command, option

MIN_PART_ROWS, MAX_PART_ROWS = 1 << 12, 1 << 20


@dataclass(frozen=True, kw_only=True)
class EncodePlan:
    """The inputs that decide the bytes of a code store.

    The model is fitted at its first use. ``states`` are the earlier states of the vectors that
    codes encoded before they grew to these; the model is fitted on the first.
    """

    vectors: Vectors
    kernel: Kernel
    encoder: EncoderSpec
    unfitted: Layout
    states: tuple[State, ...] = ()

    @property
    def spec(self) -> CodeSpec:
        """The spec of the codes."""
        vectors = self.vectors
        return CodeSpec(
            encoder=to_json(self.encoder),
            kernel=self.kernel.spec(),
            source=vectors.fingerprint,
            dims=vectors.dims,
        )

    @cached_property
    def model(self) -> dict[str, NDArray[Any]]:
        """The encoder's arrays, the rows that ingest dropped, and the linear map of the rows.

        The fit runs on one thread, so that sums come in one order.
        """
        vectors = self.vectors
        first = EarlierVectors(vectors, self.states[0]) if self.states else vectors
        with threadpool_limits(1):
            model = self.encoder.fit(first, self.kernel)
        model = {**model, **self.dropped}
        while isinstance(vectors, EarlierVectors):
            vectors = vectors.vectors
        if isinstance(vectors, MappedVectors):
            model = {**model, LINEAR_MAP: vectors.linear_map.matrix}
        return model

    @property
    def dropped(self) -> dict[str, NDArray[np.int64]]:
        """The model arrays of dropped rows: one per state in which rows were dropped."""
        ends = [0, *(state.dropped for state in self.states), self.vectors.dropped.size]
        arrays = (self.vectors.dropped[start:end] for start, end in pairwise(ends))
        return {dropped_name(state): rows for state, rows in enumerate(arrays) if rows.size}

    def before(self) -> "EncodePlan":
        """Return the plan of the state before the last growth."""
        *states, last = self.states
        return replace(
            self,
            vectors=EarlierVectors(self.vectors, last),
            unfitted=replace(self.unfitted, rows=last.rows),
            states=tuple(states),
        )

    @cached_property
    def layout(self) -> Layout:
        """The layout of the codes on disk, with the checksums of the model."""
        return replace(self.unfitted, model=model_entries(self.model))


def default_part_rows(rows: int, row_bytes: int) -> int:
    """Return the rows per part: about a 64th of the store, a power of two from 2¹² to 2²⁰.

    A store smaller than a part has smaller parts: see ``small_part_rows``.
    """
    most = min(MAX_PART_ROWS, max(MIN_PART_ROWS, 1 << (rows // 64).bit_length()))
    return small_part_rows(rows, row_bytes, most)


def lay_out(
    vectors: Vectors,
    kernel: Kernel,
    encoder: EncoderSpec,
    *,
    part_rows: int | None = None,
    compressor: str = "none",
) -> EncodePlan:
    """Check the parameters against the store, and lay the code store out.

    Defaults of the encoder that do not fit the store shrink. Rows that no ingest counted are not
    read.

    Raises
    ------
    InputError
        If a parameter is out of range, or ingest counted rows outside the kernel's domain.
    """
    encoder.check_kernel(kernel)
    encoder = encoder.with_defaults_for(vectors.rows, vectors.dims)
    encoder.check(vectors, kernel)
    before_encoding(encoder)
    if part_rows is not None and not 1 <= part_rows <= MAX_PART_ROWS:
        raise InputError(
            f"part_rows is out of range: found {part_rows}, expected 1 to {MAX_PART_ROWS}. Fix: "
            f"leave {option('part_rows')} out."
        )
    check_domain(vectors, kernel)
    columns = encoder.columns(compressor)
    layout = Layout(
        rows=vectors.rows,
        part_rows=part_rows or default_part_rows(vectors.rows, row_bytes(columns)),
        columns=columns,
        model={},
    )
    return EncodePlan(vectors=vectors, kernel=kernel, encoder=encoder, unfitted=layout)


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
    kinds = {"NaN": "nan", "infinite": "infinite", "negative": "negative", "all-zero": "zero"}
    counts = {what: spec.kept_rows(kind) for what, kind in kinds.items()}
    samples = {
        "NaN": np.full((1, 1), np.nan),
        "infinite": np.full((1, 1), np.inf),
        "negative": np.full((1, 1), -1.0),
        "all-zero": np.zeros((1, 1)),
    }
    for what, count in counts.items():
        if count and not _accepts(kernel, samples[what]):
            fix = (
                command("ingest", drop_zero_rows=True)
                if what == "all-zero"
                else "clean the source and ingest it again"
            )
            raise InputError(
                f"{vectors.where} holds {counted(count, 'row')} with {what} values: "
                f"kernel {kernel.name} does not take them. "
                f"Fix: {fix}."
            )


def check_every_row(vectors: Vectors, kernel: Kernel) -> None:
    """Refuse rows outside the kernel's domain where no ingest counted them.

    This pass takes little time compared with encoding.

    Raises
    ------
    InputError
        If there is such a row; the message names the first.
    """
    for row, rows in blocks(vectors, 0, vectors.rows, MAX_BLOCK_ROWS):
        kernel.prepare(rows, first=row)


def encode_part(
    encoder: Encoder, vectors: Vectors, start: int, stop: int
) -> dict[str, NDArray[Any]]:
    """Return the columns of rows [start, stop), computed block by block."""
    out: dict[str, NDArray[Any]] = {}
    for row, rows in blocks(vectors, start, stop, encoder.block_rows):
        for name, values in encoder.encode(rows, first=row).items():
            if name not in out:
                out[name] = np.empty((stop - start, *values.shape[1:]), values.dtype)
            out[name][row - start : row - start + len(rows)] = values
    return out


def encoder_of(store: CodeStore | Index, custom: CustomKernel | None = None) -> Encoder:
    """Return the encoder whose codes, or sorted orders of them, a store holds.

    ``custom`` is the user's kernel, for a store that was encoded with one.
    """
    spec, kernel = spec_of(store), kernel_from_spec(store.spec.kernel, custom)
    try:
        return spec.encoder(kernel, store.model)
    except KeyError as error:
        raise FormatError(
            f"{store.where}: its model has no array {error}, expected one for the encoder "
            f"{spec.name}. Fix: restore the store from a copy, or write it anew."
        ) from error


def spec_of(store: CodeStore | Index) -> EncoderSpec:
    """Return the parameters of the encoder whose codes a store holds."""
    spec = encoder_spec(store.spec.encoder, store.where)
    if isinstance(store, CodeStore):
        store.store.layout.check_columns(spec.columns("none"), store.where)
    return spec


def encode_bytes(plan: EncodePlan, workers: int) -> int:
    """Return the memory that encoding takes: the model and the workers' buffers."""
    vectors, dims = plan.vectors, plan.vectors.dims
    row, memory = row_bytes(plan.unfitted.columns), plan.encoder.memory(dims, vectors.rows)
    first, last = vectors.bounds(0)
    chunk = (last - first) * dims * vectors.dtype.itemsize
    read = 2 * chunk + vectors.read_bytes
    worker = 3.5 * plan.unfitted.part_rows * row + read + plan.encoder.block_rows * memory.row
    return int(vectors.open_bytes + max(memory.fit + read, memory.shared + workers * worker))


def _accepts(kernel: Kernel, rows: NDArray[np.float64]) -> bool:
    """Return whether the kernel's domain holds ``rows``."""
    try:
        kernel.prepare(rows)
    except InputError:
        return False
    return True
