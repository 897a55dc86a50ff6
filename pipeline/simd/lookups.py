"""Look-ups of 64 bytes in tables of 256, for jitted functions: AVX-512 VBMI, or generic code."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercore.pipeline.simd.saturating import BYTES_64
from mercore.pipeline.simd.vectors import Typed, address, features

_I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
_BYTES = BYTES_64.llvm
_WORDS = ir.VectorType(_I64, 8)
LANES, LANE = 64, 16  # bytes per vector, and per quarter that x86 unpacks

# The row, of 64, of byte b of a transposed vector: by the vector of eight rows, then by the place
# in it that unpacking reads. Rows of two words are unpacked once more.
ROW_OF_BYTE = tuple(8 * (byte % 8) + 2 * (byte // LANE) + byte // 8 % 2 for byte in range(LANES))
ROW_OF_BYTE_OF_TWO = tuple(
    8 * (byte % 8) + byte // LANE + byte // 8 % 2 * 4 for byte in range(LANES)
)


@intrinsic
def bytes_are_looked_up(_typing: Any) -> Typed:
    """Return whether the target processor looks bytes up in vectors."""

    def generate(context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return ir.Constant(ir.IntType(1), int("+avx512vbmi" in features(context)))

    return types.boolean(), generate


def adder(fixed: int) -> Any:
    """Return the intrinsic for rows of one or two words, or, for 0, for one word of any rows."""

    def add_looked_up(
        _typing: Any, sums: Any, words: Any, at: Any, width: Any, tables: Any, base: Any
    ) -> Typed:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES])
            add = cgutils.get_or_insert_function(builder.module, kind, "llvm.uadd.sat.v64i8")
            eights = [
                _eight_rows(context, builder, signature, arguments, fixed, eight)
                for eight in range(8)
            ]
            columns = [
                column
                for rows in zip(*eights, strict=True)
                for column in _transposed(builder, rows)
            ]
            total = arguments[0]
            for j, column in enumerate(columns):
                start = builder.add(arguments[5], ir.Constant(_I64, 256 * j))
                data = address(context, builder, signature, arguments, _I8, 4, start)
                total = builder.call(add, [total, _look_up(context, builder, data, column)])
            return total

        return sums(sums, words, types.uint64, types.uint64, tables, types.uint64), generate

    add_looked_up.__doc__ = """Return min(sums + Σ_j tables[base + 256 j + c_j], 255), c_j byte j.

    ``words`` uint64 flat holds the rows' words at ``at``, ``at + width``…; ``tables`` uint8 flat.
    Byte b of the sums belongs to row ``ROW_OF_BYTE[b]``, or ``ROW_OF_BYTE_OF_TWO[b]``.
    """
    return intrinsic(add_looked_up)


add_looked_up_1, add_looked_up_2, add_looked_up_any = adder(1), adder(2), adder(0)


@intrinsic
def look_up_rows(_typing: Any, bytes_: Any, start: Any, table: Any) -> Typed:
    """Return table[bytes[start + i]] of 64 rows i, in the order ``ROW_OF_BYTE``.

    ``table`` uint8[256].
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(address(context, builder, signature, arguments, _BYTES), align=1)
        order = ir.Constant(ir.VectorType(_I32, LANES), list(ROW_OF_BYTE))
        places = builder.shuffle_vector(loaded, loaded, order)
        first = ir.Constant(_I64, 0)
        data = address(context, builder, signature, arguments, _I8, 2, first)
        return _look_up(context, builder, data, places)

    return BYTES_64(bytes_, start, table), generate


def _eight_rows(
    context: Any, builder: Any, signature: Any, arguments: Any, fixed: int, eight: int
) -> tuple[Any, ...]:
    """Return the words of eight rows: 64 bytes per word that is looked up."""

    def load(kind: Any, row: int, word: int = 0) -> Any:
        offset = builder.mul(ir.Constant(_I64, row), arguments[3])
        place = builder.add(arguments[2], builder.add(offset, ir.Constant(_I64, word)))
        return builder.load(
            address(context, builder, signature, arguments, kind, 1, place), align=1
        )

    first = 8 * eight
    if fixed == 1:
        return (load(_BYTES, first),)
    if fixed == 2:
        rows = load(_BYTES, first), load(_BYTES, first + 4)
        return _unpacked(builder, *rows, 8, 0), _unpacked(builder, *rows, 8, 1)
    words = ir.Constant(_WORDS, ir.Undefined)
    for row in range(8):
        words = builder.insert_element(words, load(_I64, first + row), ir.Constant(_I32, row))
    return (builder.bitcast(words, _BYTES),)


def _transposed(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """Return 64 rows' first bytes, second bytes and so on, of eight vectors of eight rows each."""
    # Keys: the halves taken so far, that is, the row's parity, then the bits of j from the highest.
    vectors: dict[tuple[int, ...], Sequence[Any]] = {(): rows}
    for size in (1, 2, 4):
        vectors = {
            (*halves, high): [
                _unpacked(builder, *two, size, high)
                for two in zip(group[::2], group[1::2], strict=True)
            ]
            for halves, group in vectors.items()
            for high in (0, 1)
        }
    return [
        _unpacked(builder, *(vectors[parity, j // 4, j // 2 % 2][0] for parity in (0, 1)), 8, j % 2)
        for j in range(8)
    ]


def _unpacked(builder: Any, x: Any, y: Any, size: int, high: int) -> Any:
    """Alternate units of ``size`` bytes of x and y, from low or high halves of their quarters."""
    units = [
        quarter + 8 * high + size * unit
        for quarter in range(0, LANES, LANE)
        for unit in range(8 // size)
    ]
    order = [
        source + unit + byte for unit in units for source in (0, LANES) for byte in range(size)
    ]
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, LANES), order))


def _look_up(context: Any, builder: Any, data: Any, places: Any) -> Any:
    """Return the bytes ``data[place]`` of 64 places."""
    if "+avx512vbmi" not in features(context):
        found = ir.Constant(_BYTES, ir.Undefined)
        for byte in range(LANES):
            place = builder.zext(builder.extract_element(places, ir.Constant(_I32, byte)), _I64)
            found = builder.insert_element(
                found, builder.load(builder.gep(data, [place])), ir.Constant(_I32, byte)
            )
        return found
    quarters = [
        builder.load(
            builder.bitcast(builder.gep(data, [ir.Constant(_I64, at)]), _BYTES.as_pointer()),
            align=1,
        )
        for at in range(0, 256, LANES)
    ]
    kind = ir.FunctionType(_BYTES, [_BYTES] * 3)
    choose = cgutils.get_or_insert_function(
        builder.module, kind, "llvm.x86.avx512.vpermi2var.qi.512"
    )
    low, high = (builder.call(choose, [quarters[at], places, quarters[at + 1]]) for at in (0, 2))
    upper = builder.icmp_signed("<", places, ir.Constant(_BYTES, None))
    return builder.select(upper, high, low)
