"""Vectors of 32 int16 lanes for numba loops, as LLVM vector types: one source, any instruction set.

All but ``pair_products`` is generic vector code, which LLVM fits to the target. ``pair_products`` uses the x86
multiply-add of bytes where the processor has it, and says the same in generic code where it does not.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import PrimitiveModel
from numba.core.datamodel.registry import register_default
from numba.extending import intrinsic

LANES = 32

_I8, _I16, _I32 = (ir.IntType(bits) for bits in (8, 16, 32))
_V16 = ir.VectorType(_I16, LANES)
_V32 = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 2 * LANES)
_HALF_BYTES = ir.VectorType(_I8, LANES)
_EIGHT_HALVES, _EIGHT_WORDS = ir.VectorType(_I16, 8), ir.VectorType(_I32, 8)
_EIGHT_FLOATS = ir.VectorType(ir.FloatType(), 8)

Generator = Callable[..., Any]
Typed = tuple[Any, Generator]


class Int16Lanes(types.Type):
    """The numba type of 32 int16 lanes."""

    def __init__(self) -> None:
        super().__init__("Int16Lanes")


lanes = Int16Lanes()


@register_default(Int16Lanes)
class _Int16LanesModel(PrimitiveModel):
    """Lanes are an LLVM vector in memory and in registers."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _V16)


@intrinsic
def zero(_typing: Any) -> Typed:
    """Return 32 zeros."""
    return lanes(), lambda _context, _builder, _signature, _arguments: ir.Constant(_V16, None)


@intrinsic
def load(_typing: Any, array: Any, index: Any) -> Typed:
    """Return the 32 int16 at ``array[index:]``, an int16 or uint16 vector; the bounds are the caller's."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, arguments, _V16), align=2)

    return lanes(array, index), generate


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Typed:
    """Ask for the cache line of ``array[index]``; an index beyond the array is harmless."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _pointer(context, builder, signature, arguments, _I8)
        kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, to_every_cache, of_data = (ir.Constant(_I32, value) for value in (0, 3, 1))
        builder.call(function, [address, to_read, to_every_cache, of_data])
        return context.get_dummy_value()

    return types.void(array, index), generate


@intrinsic
def splat(_typing: Any, value: Any) -> Typed:
    """Return 32 copies of an int16."""
    return lanes(types.int16), lambda _context, builder, _signature, arguments: _splat(builder, arguments[0])


def _binary(name: str, summary: str) -> Any:
    """Return the intrinsic of one LLVM instruction on lanes."""

    def operation(_typing: Any, x: Any, y: Any) -> Typed:
        return lanes(lanes, lanes), lambda _context, builder, _signature, arguments: getattr(builder, name)(*arguments)

    operation.__doc__ = summary
    return intrinsic(operation)


add = _binary("add", "Return x + y, modulo 2¹⁶.")
shift_right = _binary("ashr", "Return floor(x / 2^y), the sign kept.")


@intrinsic
def high_product(_typing: Any, x: Any, y: Any) -> Typed:
    """Return floor(x y / 2¹⁶) of lanes taken as uint16."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        product = builder.mul(*(builder.zext(argument, _V32) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(_V32, [16] * LANES)), _V16)

    return lanes(lanes, lanes), generate


@intrinsic
def exceeds(_typing: Any, x: Any, y: Any) -> Typed:
    """Return a uint32 whose bit j says whether x[j] > y[j], lanes taken as int16."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.icmp_signed(">", *arguments), _I32)

    return types.uint32(lanes, lanes), generate


@intrinsic
def lowest_bit(_typing: Any, bits: Any) -> Typed:
    """Return the place of the lowest bit that is set in a uint64 that is not zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def pair_products(_typing: Any, table: Any, first: Any, second: Any, weights: Any) -> Typed:
    """Return w₀ t₀ + w₁ t₁ for 64 columns, as two lanes vectors: columns in the order of ``COLUMNS``.

    ``table`` is a flat int8 vector, values 0…127; t₀ and t₁ are its 64 entries from ``first`` and ``second`` on;
    ``weights`` are a splat of int8 w₀ and w₁ side by side in an int16. Sums stay within int16, for 2 · 127 · 127 < 2¹⁵.
    """
    pair = types.UniTuple(lanes, 2)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = [
            builder.load(_address(context, builder, signature.args[0], arguments[0], index, _BYTES), align=1)
            for index in arguments[1:3]
        ]
        pairs = [_interleaved(builder, rows, half) for half in (0, 1)]
        weight_bytes = builder.bitcast(arguments[3], _BYTES)
        products = _multiply_add(context, builder)
        return context.make_tuple(builder, pair, [products(values, weight_bytes) for values in pairs])

    return pair(table, types.uint64, types.uint64, lanes), generate


@intrinsic
def rows_reaching(
    _typing: Any, packed: Any, at: Any, weights: Any, scales: Any, row: Any, half: Any, least: Any
) -> Typed:
    """Return a uint8 whose bit j says whether (Σ w u + half Σ |w|) scale ≥ least for row ``row + j``, j < 8.

    ``packed`` uint64 holds, from ``at`` on, the eight bytes u, 0…127, of each of the rows; ``weights`` int8[8 n] flat,
    ``scales`` non-negative float16[n] as uint16; ``half`` and ``least`` float32.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = {
            0: (arguments[1], _BYTES),
            2: (builder.mul(arguments[4], ir.Constant(arguments[4].type, 8)), _BYTES),
            3: (arguments[4], _EIGHT_HALVES),
        }
        values, weight_bytes, factors = (
            builder.load(_address(context, builder, signature.args[k], arguments[k], *place), align=1)
            for k, place in places.items()
        )
        products = _multiply_add(context, builder)
        negative = builder.icmp_signed("<", weight_bytes, ir.Constant(_BYTES, None))
        magnitude = builder.select(negative, builder.neg(weight_bytes), weight_bytes)
        score = _row_sums(builder, products(values, weight_bytes))
        slack = _row_sums(builder, products(magnitude, ir.Constant(_BYTES, [1] * 2 * LANES)))
        total = builder.fadd(score, builder.fmul(slack, _eight(builder, arguments[5])))
        scaled = builder.fmul(total, _widened(builder, factors))
        reached = builder.fcmp_ordered(">=", scaled, _eight(builder, arguments[6]))
        return builder.bitcast(reached, _I8)

    number = types.uint64
    return types.uint8(packed, number, weights, scales, number, types.float32, types.float32), generate


def _widened(builder: Any, halves: Any) -> Any:
    """Return eight non-negative float16, given as their bits, as float32: shifted into place, the exponent mended."""
    bits = builder.shl(builder.zext(halves, _EIGHT_WORDS), ir.Constant(_EIGHT_WORDS, [13] * 8))
    return builder.fmul(builder.bitcast(bits, _EIGHT_FLOATS), ir.Constant(_EIGHT_FLOATS, [2.0**112] * 8))


def _row_sums(builder: Any, pairs: Any) -> Any:
    """Return the sums of each four neighbouring int16 lanes as eight float32."""
    sixteen = ir.VectorType(_I32, 16)
    words = builder.bitcast(pairs, sixteen)
    shift = ir.Constant(sixteen, [16] * 16)
    sums = builder.add(builder.ashr(builder.shl(words, shift), shift), builder.ashr(words, shift))
    halves = [builder.shuffle_vector(sums, sums, ir.Constant(_EIGHT_WORDS, list(range(odd, 16, 2)))) for odd in (0, 1)]
    return builder.sitofp(builder.add(*halves), _EIGHT_FLOATS)


def _eight(builder: Any, value: Any) -> Any:
    """Return eight copies of a float32."""
    undefined = ir.Constant(_EIGHT_FLOATS, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_EIGHT_WORDS, None))


# Column of the table that each of the 64 result lanes belongs to: bytes interleave within blocks of sixteen.
COLUMNS = tuple(16 * (lane // 8) + lane % 8 + 8 * half for half in (0, 1) for lane in range(LANES))


def _interleaved(builder: Any, rows: list[Any], half: int) -> Any:
    """Return bytes t₀[c], t₁[c] side by side for the 32 columns of one half."""
    chosen = COLUMNS[half * LANES : (half + 1) * LANES]
    order = [index for column in chosen for index in (column, 2 * LANES + column)]
    return builder.shuffle_vector(*rows, ir.Constant(ir.VectorType(_I32, 2 * LANES), order))


def _multiply_add(context: Any, builder: Any) -> Callable[[Any, Any], Any]:
    """Return what multiplies 64 byte pairs and adds neighbours, as the target does it best."""
    features = context.codegen().magic_tuple()[2].split(",")
    if "+avx512bw" in features:
        name, kind, result = "llvm.x86.avx512.pmaddubs.w.512", _BYTES, _V16
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, [kind, kind]), name)
        return lambda values, weights: builder.call(function, [values, weights])
    if "+avx2" in features:
        return lambda values, weights: _multiply_add_avx2(builder, values, weights)
    return lambda values, weights: _multiply_add_generic(builder, values, weights)


def _multiply_add_avx2(builder: Any, values: Any, weights: Any) -> Any:
    """Multiply and add in two halves of 32 bytes."""
    result = ir.VectorType(_I16, LANES // 2)
    signature = ir.FunctionType(result, [_HALF_BYTES, _HALF_BYTES])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.avx2.pmadd.ub.sw")
    halves = [
        builder.call(function, [_part(builder, vector, start) for vector in (values, weights)]) for start in (0, LANES)
    ]
    return builder.shuffle_vector(*halves, ir.Constant(_V32, list(range(LANES))))


def _multiply_add_generic(builder: Any, values: Any, weights: Any) -> Any:
    """Multiply and add as any target can: even and odd bytes, widened."""

    def widened(vector: Any, odd: int, extend: Any) -> Any:
        chosen = ir.Constant(_V32, list(range(odd, 2 * LANES, 2)))
        return extend(builder.shuffle_vector(vector, vector, chosen), _V16)

    products = [builder.mul(widened(values, odd, builder.zext), widened(weights, odd, builder.sext)) for odd in (0, 1)]
    return builder.add(*products)


def _part(builder: Any, vector: Any, start: int) -> Any:
    """Return 32 of 64 bytes."""
    return builder.shuffle_vector(vector, vector, ir.Constant(_V32, list(range(start, start + LANES))))


def _splat(builder: Any, value: Any) -> Any:
    """Return an int16 in every lane."""
    undefined = ir.Constant(_V16, ir.Undefined)
    return builder.shuffle_vector(
        builder.insert_element(undefined, value, ir.Constant(_I32, 0)), undefined, ir.Constant(_V32, None)
    )


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    """Return the address of ``arguments[0][arguments[1]]`` as a pointer to ``kind``."""
    return _address(context, builder, signature.args[0], arguments[0], arguments[1], kind)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    """Return the address of ``array[index]`` as a pointer to ``kind``."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())
