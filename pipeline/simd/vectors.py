"""Vectors of one element type for jitted functions: loads, stores and arithmetic for the target.

A vector wider than the target's registers becomes several; results are the same everywhere.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import PrimitiveModel
from numba.core.datamodel.registry import register_default
from numba.extending import intrinsic

Generator = Callable[..., Any]
Typed = tuple[Any, Generator]

INT32, INT64 = ir.IntType(32), ir.IntType(64)
_ELEMENTS = {
    types.int8: ir.IntType(8),
    types.int16: ir.IntType(16),
    types.int32: ir.IntType(32),
    types.int64: ir.IntType(64),
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
}


class Vector(types.Type):
    """The numba type of ``count`` elements side by side; ``llvm`` is its LLVM type."""

    def __init__(self, element: Any, count: int) -> None:
        super().__init__(f"Vector({element}x{count})")
        self.element = element
        self.count = count
        self.llvm = ir.VectorType(_ELEMENTS[element], count)


@register_default(Vector)
class _VectorModel(PrimitiveModel):
    """A vector is an LLVM vector in memory and in registers."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.llvm)


INT16 = Vector(types.int16, 32)
FLOAT32 = Vector(types.float32, 16)
FLOAT64 = Vector(types.float64, 8)


def loader(kind: Vector) -> Any:
    """Return the intrinsic that loads a vector from ``array[index:]``; the caller checks bounds."""

    def load(_typing: Any, array: Any, index: Any) -> Typed:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(address(context, builder, signature, arguments, kind.llvm), align=1)

        return kind(array, index), generate

    return intrinsic(load)


def splatter(kind: Vector) -> Any:
    """Return the intrinsic that fills a vector with copies of a number."""

    def splat(_typing: Any, value: Any) -> Typed:
        return kind(kind.element), lambda _context, builder, _signature, arguments: copies(
            builder, arguments[0], kind.llvm
        )

    return intrinsic(splat)


def zeros(kind: Vector) -> Any:
    """Return the intrinsic of a vector of zeros."""

    def zero(_typing: Any) -> Typed:
        return kind(), lambda _context, _builder, _signature, _arguments: ir.Constant(
            kind.llvm, None
        )

    return intrinsic(zero)


def binary(name: str, float_name: str | None = None) -> Any:
    """Return the intrinsic of one LLVM instruction on two vectors."""

    def operation(_typing: Any, x: Any, y: Any) -> Typed:
        chosen = float_name if isinstance(x.element, types.Float) else name
        assert chosen is not None
        return x(x, x), lambda _context, builder, _signature, arguments: getattr(builder, chosen)(
            *arguments
        )

    return intrinsic(operation)


def comparison(generate_mask: Callable[[Any, Any, Any], Any], bits: Any) -> Any:
    """Return the intrinsic that compares two vectors: bit j of the result is about element j."""

    def compare(_typing: Any, x: Any, y: Any) -> Typed:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.bitcast(generate_mask(builder, *arguments), ir.IntType(x.count))

        return bits(x, x), generate

    return intrinsic(compare)


load_int16 = loader(INT16)
load_float32 = loader(FLOAT32)
load_float64 = loader(FLOAT64)
splat_int16 = splatter(INT16)
splat_float32 = splatter(FLOAT32)
splat_float64 = splatter(FLOAT64)
zero_int16 = zeros(INT16)
zero_float32 = zeros(FLOAT32)
zero_float64 = zeros(FLOAT64)
add = binary("add", "fadd")
multiply = binary("mul", "fmul")
reaches = comparison(lambda builder, x, y: builder.icmp_unsigned(">=", x, y), types.uint32)
exceeds = comparison(lambda builder, x, y: builder.fcmp_ordered(">", x, y), types.uint16)


@intrinsic
def splat_four_int16(_typing: Any, array: Any, index: Any) -> Typed:
    """Return an int16 vector of copies of the four elements ``array[index:]``, unchecked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.load(address(context, builder, signature, arguments, INT64), align=2)
        four = builder.bitcast(
            copies(builder, word, ir.VectorType(INT64, INT16.count // 4)), INT16.llvm
        )
        return opaque(builder, four) if "+avx512bw" in features(context) else four

    return INT16(array, index), generate


def one_of_four(place: int) -> Any:
    """Return the intrinsic that fills an int16 vector with one of its four repeated elements."""

    def splat(_typing: Any, four: Any) -> Typed:
        order = ir.Constant(
            ir.VectorType(INT32, four.count), [lane // 4 * 4 + place for lane in range(four.count)]
        )
        return four(four), lambda _context, builder, _signature, arguments: builder.shuffle_vector(
            arguments[0], arguments[0], order
        )

    return intrinsic(splat)


first_of_four, second_of_four, third_of_four, fourth_of_four = (
    one_of_four(place) for place in range(4)
)


@intrinsic
def high_product(_typing: Any, x: Any, y: Any) -> Typed:
    """Return floor(x y / 2¹⁶) of int16 vectors taken as uint16."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if "+avx512bw" in features(context) and x.count == INT16.count:
            kind = ir.FunctionType(x.llvm, [x.llvm, x.llvm])
            function = cgutils.get_or_insert_function(
                builder.module, kind, "llvm.x86.avx512.pmulhu.w.512"
            )
            return builder.call(function, arguments)
        wide = ir.VectorType(INT32, x.count)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, [16] * x.count)), x.llvm)

    return x(x, x), generate


@intrinsic
def add_saturated(_typing: Any, x: Any, y: Any) -> Typed:
    """Return min(x + y, 2¹⁶ − 1) of int16 vectors taken as uint16."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(x.llvm, [x.llvm, x.llvm])
        name = f"llvm.uadd.sat.v{x.count}i16"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return x(x, x), generate


@intrinsic
def store(_typing: Any, array: Any, index: Any, vector: Any) -> Typed:
    """Set ``array[index:]`` to a vector; the caller checks bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(
            arguments[2], address(context, builder, signature, arguments, vector.llvm), align=1
        )
        return context.get_dummy_value()

    return types.void(array, index, vector), generate


def prefetcher(locality: int) -> Any:
    """Return the intrinsic that prefetches the line of ``array[index]``; any index is safe."""

    def ask(_typing: Any, array: Any, index: Any) -> Typed:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte = ir.IntType(8)
            kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), INT32, INT32, INT32])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            to_read, near, of_data = (ir.Constant(INT32, value) for value in (0, locality, 1))
            place = address(context, builder, signature, arguments, byte)
            builder.call(function, [place, to_read, near, of_data])
            return context.get_dummy_value()

        return types.void(array, index), generate

    return intrinsic(ask)


prefetch = prefetcher(3)  # into every cache
prefetch_for_later = prefetcher(2)  # into all caches but the nearest, which is small


@intrinsic
def move_up(_typing: Any, array: Any, first: Any, last: Any) -> Typed:
    """Move elements ``first`` to ``last`` of a C-contiguous array one place up, unchecked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, size = ir.IntType(8), ir.IntType(64)
        kind = ir.FunctionType(
            ir.VoidType(), [byte.as_pointer(), byte.as_pointer(), size, ir.IntType(1)]
        )
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.memmove.p0.p0.i64")
        width = context.get_abi_sizeof(context.get_data_type(array.dtype))
        above = builder.add(arguments[1], ir.Constant(size, 1))
        places = (
            address(context, builder, signature, arguments, byte, 0, index)
            for index in (above, arguments[1])
        )
        count = builder.mul(builder.sub(arguments[2], arguments[1]), ir.Constant(size, width))
        builder.call(function, [*places, count, ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@intrinsic
def lowest_bit(_typing: Any, bits: Any) -> Typed:
    """Return the place of the lowest set bit of a uint64 that is not zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


def features(context: Any) -> list[str]:
    """Return the features of the target processor, such as ``+avx2``."""
    return list(context.codegen().magic_tuple()[2].split(","))


def copies(builder: Any, value: Any, kind: Any) -> Any:
    """Return the LLVM vector of copies of a value."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(
        first, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(INT32, kind.count), None)
    )


def opaque(builder: Any, vector: Any) -> Any:
    """Return a vector of one register unchanged, so that LLVM forgets its origin.

    Otherwise LLVM splits a shuffle of loaded or copied values into slower loads and copies.
    """
    return builder.asm(
        ir.FunctionType(vector.type, [vector.type]), "", "=v,0", [vector], side_effect=False
    )


def address(
    context: Any,
    builder: Any,
    signature: Any,
    arguments: Any,
    kind: Any,
    array: int = 0,
    index: Any = 1,
) -> Any:
    """Return a pointer to ``kind`` in argument ``array``, at argument number or value ``index``."""
    place = arguments[index] if isinstance(index, int) else index
    data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
    return builder.bitcast(builder.gep(data, [place]), kind.as_pointer())


INT32X16 = ir.VectorType(INT32, FLOAT32.count)
MANTISSA_BITS, EXPONENT_OF_ONE, SQRT_HALF = 23, 127, 0x3F3504F3  # of a float32; bits of √½


def select_by(generate_mask: Callable[[Any, Any, Any], Any]) -> Any:
    """Return the intrinsic that takes x where the mask of x and y is set, and y elsewhere."""

    def choose(_typing: Any, x: Any, y: Any) -> Typed:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.select(generate_mask(builder, *arguments), *arguments)

        return x(x, x), generate

    return intrinsic(choose)


subtract = binary("sub", "fsub")
divide = binary("sdiv", "fdiv")
lesser = select_by(lambda builder, x, y: builder.fcmp_ordered("<", x, y))
greater = select_by(lambda builder, x, y: builder.fcmp_ordered(">", x, y))


@intrinsic
def multiply_add(_typing: Any, x: Any, y: Any, z: Any) -> Typed:
    """Return x y + z of float32 vectors, rounded once, on every processor."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(x.llvm, [x.llvm] * 3)
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{x.count}f32"),
            arguments,
        )

    return x(x, x, x), generate


def unary(name: str) -> Any:
    """Return the intrinsic of an LLVM function of one float32 vector, element by element."""

    def operation(_typing: Any, x: Any) -> Typed:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(x.llvm, [x.llvm])
            function = cgutils.get_or_insert_function(
                builder.module, kind, f"llvm.{name}.v{x.count}f32"
            )
            return builder.call(function, arguments)

        return x(x), generate

    return intrinsic(operation)


square_root = unary("sqrt")


@intrinsic
def sum_of(_typing: Any, x: Any) -> Typed:
    """Return the sum of a vector: its halves are added until one element is left."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        total, count = arguments[0], x.count
        plus = builder.fadd if isinstance(x.element, types.Float) else builder.add
        while count > 1:
            count //= 2
            halves = (
                ir.Constant(ir.VectorType(INT32, count), list(range(at, at + count)))
                for at in (0, count)
            )
            total = plus(*(builder.shuffle_vector(total, total, half) for half in halves))
        return builder.extract_element(total, ir.Constant(INT32, 0))

    return x.element(x), generate


@intrinsic
def zero_below(_typing: Any, value: Any, least: Any, x: Any) -> Typed:
    """Return x where ``value`` ≥ ``least``, and zero elsewhere."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        reached = builder.fcmp_ordered(">=", arguments[0], arguments[1])
        return builder.select(reached, arguments[2], ir.Constant(x.llvm, None))

    return x(x, x, x), generate


@intrinsic
def power_of_two(_typing: Any, shifted: Any) -> Typed:
    """Return 2^n, −127 < n < 128, for a float32 vector of n + 1.5 · 2²³, whose last bits are n."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        biased = builder.add(builder.bitcast(arguments[0], INT32X16), _whole(EXPONENT_OF_ONE))
        return builder.bitcast(builder.shl(biased, _whole(MANTISSA_BITS)), shifted.llvm)

    return shifted(shifted), generate


@intrinsic
def exponent_and_fraction(_typing: Any, value: Any) -> Typed:
    """Return (e, f) with value = 2^e f and √½ ≤ f < √2, of a vector of positive normal float32."""
    both = types.UniTuple(value, 2)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], INT32X16)
        exponent = builder.ashr(builder.sub(bits, _whole(SQRT_HALF)), _whole(MANTISSA_BITS))
        fraction = builder.sub(bits, builder.shl(exponent, _whole(MANTISSA_BITS)))
        parts = [builder.sitofp(exponent, value.llvm), builder.bitcast(fraction, value.llvm)]
        return context.make_tuple(builder, both, parts)

    return both(value), generate


def _whole(value: int) -> Any:
    """Return a vector of copies of an int32."""
    return ir.Constant(INT32X16, [value] * FLOAT32.count)


@intrinsic
def load_widened(_typing: Any, array: Any, index: Any) -> Typed:
    """Return sixteen elements of ``array[index:]`` as float32; the caller checks bounds.

    ``array`` is uint8, int8, float32, or uint16: the bits of float16.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width = array.dtype.bitwidth
        kind = (
            FLOAT32.llvm
            if array.dtype == types.float32
            else ir.VectorType(ir.IntType(width), FLOAT32.count)
        )
        values = builder.load(address(context, builder, signature, arguments, kind), align=1)
        if array.dtype == types.float32:
            return values
        if array.dtype == types.int8:
            return builder.sitofp(builder.sext(values, INT32X16), FLOAT32.llvm)
        whole = builder.zext(values, INT32X16)
        return _halves_widened(builder, whole) if width > 8 else builder.uitofp(whole, FLOAT32.llvm)

    assert array.dtype in (types.uint8, types.int8, types.uint16, types.float32)
    return FLOAT32(array, index), generate


def _halves_widened(builder: Any, bits: Any) -> Any:
    """Return sixteen float16, given as bits in int32, as float32."""
    magnitude = builder.and_(bits, _whole(0x7FFF))
    shifted = builder.shl(magnitude, _whole(13))  # into place; the exponent is corrected below
    mended = builder.fmul(
        builder.bitcast(shifted, FLOAT32.llvm), ir.Constant(FLOAT32.llvm, [2.0**112] * 16)
    )
    without_end = builder.icmp_unsigned(">=", magnitude, _whole(0x7C00))  # infinity or NaN
    endless = builder.or_(shifted, _whole(0x7F800000))
    value = builder.select(without_end, endless, builder.bitcast(mended, INT32X16))
    sign = builder.shl(builder.and_(bits, _whole(0x8000)), _whole(16))
    return builder.bitcast(builder.or_(value, sign), FLOAT32.llvm)


_BYTES = ir.VectorType(ir.IntType(8), 2 * INT16.count)


@intrinsic
def lesser_bytes(_typing: Any, x: Any, y: Any) -> Typed:
    """Return the lesser unsigned bytes of two int16 vectors."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        first, second = (builder.bitcast(argument, _BYTES) for argument in arguments)
        return builder.bitcast(
            builder.select(builder.icmp_unsigned("<", first, second), first, second), x.llvm
        )

    return x(x, x), generate
