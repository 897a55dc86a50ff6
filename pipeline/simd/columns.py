"""Sixteen rows of floats transposed in registers: one vector element per row's sum."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercore.pipeline.simd.vectors import FLOAT32, INT32, Typed, address, copies

SIXTEEN, FOUR = FLOAT32.count, 4
_I64, _FLOAT = ir.IntType(64), FLOAT32.llvm.element
_QUARTER = ir.VectorType(_FLOAT, FOUR)


@intrinsic
def add_four_products(
    _typing: Any, sums: Any, rows: Any, at: Any, stride: Any, point: Any, dim: Any
) -> Typed:
    """Return sums, one per row, plus products of four dimensions in turn, each step rounded once.

    ``rows`` and ``point`` are flat float32. The first row's dimensions begin at ``at``, the next
    rows' each ``stride`` later, the point's at ``dim``; the caller checks bounds.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, place, quarters = arguments[0], arguments[2], []
        for _ in range(SIXTEEN):
            quarters.append(
                builder.load(
                    address(context, builder, signature, arguments, _QUARTER, 1, place), align=4
                )
            )
            place = builder.add(place, arguments[3])
        for d, column in enumerate(_columns(builder, quarters)):
            number = builder.add(arguments[5], ir.Constant(_I64, d))
            value = builder.load(address(context, builder, signature, arguments, _FLOAT, 4, number))
            total = _multiply_add(builder, column, copies(builder, value, FLOAT32.llvm), total)
        return total

    return FLOAT32(FLOAT32, rows, types.uint64, types.uint64, point, types.uint64), generate


@intrinsic
def add_products(_typing: Any, sums: Any, rows: Any, at: Any, stride: Any, value: Any) -> Typed:
    """Return sums, one per row, plus products of one dimension: ``at``, ``at + stride`` etc."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        column, place = ir.Constant(FLOAT32.llvm, ir.Undefined), arguments[2]
        for j in range(SIXTEEN):
            entry = builder.load(address(context, builder, signature, arguments, _FLOAT, 1, place))
            column = builder.insert_element(column, entry, ir.Constant(INT32, j))
            place = builder.add(place, arguments[3])
        return _multiply_add(
            builder, column, copies(builder, arguments[4], FLOAT32.llvm), arguments[0]
        )

    return FLOAT32(FLOAT32, rows, types.uint64, types.uint64, types.float32), generate


def _columns(builder: Any, quarters: list[Any]) -> list[Any]:
    """Return four vectors, a dimension of sixteen rows each: shuffles within quarters."""
    # lines[j] holds rows j, 4 + j, 8 + j and 12 + j: transposing each quarter puts all in order
    lines = [_joined(builder, quarters[j::FOUR]) for j in range(FOUR)]
    pairs = [
        _interleaved(builder, lines[j], lines[j + 1], 1, half) for half in (0, 1) for j in (0, 2)
    ]
    return [
        _interleaved(builder, pairs[j], pairs[j + 1], 2, half) for j in (0, 2) for half in (0, 1)
    ]


def _joined(builder: Any, quarters: list[Any]) -> Any:
    """Return four quarters as one vector."""
    while len(quarters) > 1:
        size = ir.VectorType(INT32, 2 * quarters[0].type.count)
        order = ir.Constant(size, list(range(size.count)))
        quarters = [
            builder.shuffle_vector(*quarters[j : j + 2], order) for j in range(0, len(quarters), 2)
        ]
    return quarters[0]


def _interleaved(builder: Any, x: Any, y: Any, unit: int, half: int) -> Any:
    """Return the low or high halves of x's and y's quarters, interleaved by 1 or 2 elements."""
    order = []
    for element in range(SIXTEEN):
        quarter, place = element - element % FOUR, element % FOUR
        from_y, offset = place // unit % 2, place // (2 * unit) * unit + place % unit
        order.append(SIXTEEN * from_y + quarter + FOUR // 2 * half + offset)
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(INT32, SIXTEEN), order))


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x y + z, rounded once."""
    kind = ir.FunctionType(x.type, [x.type] * 3)
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{SIXTEEN}f32"), [x, y, z]
    )
