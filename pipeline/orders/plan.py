"""The plan of sorted orders: how many there are, which bits their keys have, and their layout."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

from numpy.typing import NDArray

from mercore.pipeline.encode import MAX_PART_ROWS, spec_of
from mercore.pipeline.encoders.encoder import check_random_state, check_range
from mercore.pipeline.encoders.hashing.signs import Bits
from mercore.pipeline.orders.keys import draw_bits
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError
from mercore.stores.indexes.orders import OrderSpec
from mercore.stores.part_store.header import Layout, column_fields, model_entries
from mercore.stores.wording import command, option, setting

MAX_ORDERS = 1 << 16
DEFAULT_ORDERS = 64
MIN_PART_ROWS = 1 << 16  # smaller parts would be read no faster


@dataclass(frozen=True, kw_only=True)
class OrderPlan:
    """The inputs that decide the bytes of sorted orders."""

    codes: CodeStore
    spec: OrderSpec
    unfitted: Layout

    @property
    def order_parts(self) -> int:
        """Number of parts of an order."""
        return self.unfitted.parts // self.spec.orders

    @cached_property
    def model(self) -> dict[str, NDArray[Any]]:
        """The arrays of the encoder, and the bits of the keys uint16[M, min(64, B)]."""
        encoder = spec_of(self.codes)
        assert isinstance(encoder, Bits)
        bits = draw_bits(encoder.n_bits, self.spec.orders, self.spec.random_state)
        dropped = self.codes.dropped
        model = {**self.codes.undropped_model, "key_bits": bits}
        return {**model, "dropped": dropped} if dropped.size else model

    @property
    def layout(self) -> Layout:
        """The layout on disk, with the checksums of the model."""
        return replace(self.unfitted, model=model_entries(self.model))


def order_count(rows: int, epsilon: float | None, most: int | None) -> int:
    """Return M = ⌈2 n^(1 / (1 + ε))⌉ (Charikar 2002), or ``most`` if that is less.

    Without ε it is ``most``, by default 64.

    Raises
    ------
    InputError
        If a number is out of range, or there would be too many orders.
    """
    if most is not None:
        check_range("orders", most, (1, MAX_ORDERS), setting(orders=DEFAULT_ORDERS))
    if epsilon is None:
        return DEFAULT_ORDERS if most is None else most
    if not 0 < epsilon <= 1000:
        raise InputError(
            f"epsilon is {epsilon}: expected a number above 0, at most 1000. Fix: "
            f"{setting(epsilon=1)}."
        )
    root: float = rows ** (1 / (1 + epsilon))
    count = ceil(2 * root)
    if min(count, most or count) > MAX_ORDERS:
        raise InputError(
            f"epsilon {epsilon:g} asks for {count:,} orders of {rows:,} rows: expected at most "
            f"{MAX_ORDERS:,}. Fix: {setting(orders=DEFAULT_ORDERS)}, or a greater "
            f"{option('epsilon')}."
        )
    return min(count, most or count)


def plan_orders(
    codes: CodeStore, count: int, *, random_state: int = 0, part_rows: int | None = None
) -> OrderPlan:
    """Check that codes are binary and finished, and lay their orders out.

    Raises
    ------
    InputError
        If the codes are not binary, or a number is out of range.
    IntegrityError
        If the codes are not finished.
    """
    encoder = spec_of(codes)
    if not isinstance(encoder, Bits):
        raise InputError(
            f"{codes.where} holds codes of {encoder.name}: expected binary codes, which have an "
            f"order. Fix: {command('encode', encoder='klsh')}."
        )
    check_random_state(random_state)
    if part_rows is not None:
        check_range("part_rows", part_rows, (1, MAX_PART_ROWS), f"leave {option('part_rows')} out.")
    codes.check_done()
    rows = part_rows or default_part_rows(codes.rows)
    width = "uint32" if codes.rows < 1 << 32 else "uint64"
    layout = Layout(
        rows=count * -(-codes.rows // rows) * rows,
        part_rows=rows,
        columns=[column_fields("keys", "uint64", None), column_fields("rows", width, None)],
        model={},
    )
    made_of = codes.spec
    spec = OrderSpec(
        codes=codes.store.header.spec_digest,
        orders=count,
        random_state=random_state,
        code_rows=codes.rows,
        encoder=made_of.encoder,
        kernel=made_of.kernel,
        source=made_of.source,
        dims=made_of.dims,
    )
    return OrderPlan(codes=codes, spec=spec, unfitted=layout)


def default_part_rows(rows: int) -> int:
    """Return the rows per part: about a 64th of an order, a power of two from 2¹⁶ to 2²⁰.

    An order of fewer rows is one part.
    """
    return min(rows, MAX_PART_ROWS, max(MIN_PART_ROWS, 1 << (rows // 64).bit_length()))
