"""Sums of four byte products in each of sixteen int32, for jitted functions: always exact."""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercore.pipeline.simd.vectors import (
    FLOAT32,
    INT16,
    INT32,
    INT32X16,
    INT64,
    Typed,
    Vector,
    address,
    comparison,
    copies,
    features,
    loader,
    splatter,
    zeros,
)

DOTS = Vector(types.int32, FLOAT32.count)
FOUR_BYTES = 4  # bytes per element

_HALVES = ir.VectorType(ir.IntType(16), 2 * DOTS.count)

load_dots = loader(DOTS)
zero_dots = zeros(DOTS)
splat_word = splatter(DOTS)
at_least = comparison(lambda builder, x, y: builder.icmp_signed(">=", x, y), types.uint16)


@intrinsic
def dot_bytes(_typing: Any, sums: Any, unsigned: Any, signed: Any) -> Typed:
    """Return sums + u₀ s₀ + … + u₃ s₃ of the bytes of each element, u unsigned and s signed."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if "+avx512vnni" in features(context):
            kind = ir.FunctionType(INT32X16, [INT32X16] * 3)
            function = cgutils.get_or_insert_function(
                builder.module, kind, "llvm.x86.avx512.vpdpbusd.512"
            )
            return builder.call(function, arguments)
        if "+avxvnni" in features(context):
            return _in_parts(builder, "llvm.x86.avx512.vpdpbusd.256", arguments)
        total, products = arguments[0], _multiply_add(context, builder)
        for unsigned_halves, signed_halves in _halves(builder, *arguments[1:]):
            total = builder.add(total, products(unsigned_halves, signed_halves))
        return total

    return sums(sums, unsigned, signed), generate


@intrinsic
def dot_halves(_typing: Any, sums: Any, x: Any, y: Any) -> Typed:
    """Return sums + x₀ y₀ + x₁ y₁ of the two int16 in each element's place."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.add(arguments[0], _multiply_add(context, builder)(*arguments[1:]))

    return sums(sums, x, y), generate


@intrinsic
def load_halves(_typing: Any, array: Any, index: Any) -> Typed:
    """Return 32 bytes of ``array[index:]``, signed or not, as int16; the caller checks bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.VectorType(ir.IntType(8), INT16.count)
        values = builder.load(address(context, builder, signature, arguments, kind), align=1)
        extend = builder.sext if array.dtype == types.int8 else builder.zext
        return extend(values, INT16.llvm)

    assert array.dtype in (types.uint8, types.int8)
    return INT16(array, index), generate


@intrinsic
def to_float32(_typing: Any, dots: Any) -> Typed:
    """Return an int32 vector as float32, rounded to nearest."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.sitofp(arguments[0], FLOAT32.llvm)

    return FLOAT32(dots), generate


@intrinsic
def load_lines(_typing: Any, array: Any, index: Any, stride: Any, lines: Any) -> Typed:
    """Return a vector of floats per element of ``lines``, ``stride`` apart, from ``index`` on."""
    vectors = types.UniTuple(FLOAT32, len(lines))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, loaded = arguments[1], []
        for _ in lines:
            start = address(context, builder, signature, arguments, FLOAT32.llvm, 0, place)
            loaded.append(builder.load(start, align=4))
            place = builder.add(place, arguments[2])
        return context.make_tuple(builder, vectors, loaded)

    return vectors(array, types.uint64, types.uint64, lines), generate


@intrinsic
def add_line_products(_typing: Any, total: Any, array: Any, index: Any, lines: Any) -> Typed:
    """Return a float32 vector plus the vectors ``lines`` times the floats of ``array[index:]``.

    The products are added in turn; each product and sum is rounded once, together.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, bound = ir.FunctionType(total.llvm, [total.llvm] * 3), arguments[0]
        function = cgutils.get_or_insert_function(
            builder.module, kind, f"llvm.fma.v{total.count}f32"
        )
        for j in range(len(lines)):
            number = builder.add(arguments[2], ir.Constant(arguments[2].type, j))
            factor = builder.load(
                address(context, builder, signature, arguments, ir.FloatType(), 1, number)
            )
            vector = builder.extract_value(arguments[3], j)
            bound = builder.call(function, [copies(builder, factor, total.llvm), vector, bound])
        return bound

    return total(total, array, types.uint64, lines), generate


@intrinsic
def pack_filled(
    _typing: Any, words: Any, at: Any, values: Any, places: Any, to: Any, first: Any
) -> Typed:
    """Write the non-zero words of ``words[at : at + 16]`` side by side; return their number.

    They go to ``values[to:]``; their places, counted from ``first`` on, go to ``places[to:]``. The
    rest of those sixteen entries is overwritten.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(array: int, index: Any, kind: Any = INT32X16) -> Any:
            return address(context, builder, signature, arguments, kind, array, index)

        found = builder.load(place(0, 1), align=4)
        filled = builder.icmp_signed("!=", found, ir.Constant(INT32X16, None))
        numbers = builder.add(
            copies(builder, arguments[5], INT32X16), ir.Constant(INT32X16, list(range(DOTS.count)))
        )
        if "+avx512f" in features(context):
            kind = ir.FunctionType(INT32X16, [INT32X16, INT32X16, filled.type])
            pack = cgutils.get_or_insert_function(
                builder.module, kind, "llvm.x86.avx512.mask.compress.v16i32"
            )
            for array, vector in ((2, found), (3, numbers)):
                packed = builder.call(pack, [vector, ir.Constant(INT32X16, None), filled])
                builder.store(packed, place(array, 4), align=4)
            return builder.zext(
                builder.ctpop(builder.bitcast(filled, ir.IntType(DOTS.count))), INT64
            )
        count = ir.Constant(INT64, 0)
        for j in range(DOTS.count):
            lane, end = ir.Constant(INT32, j), builder.add(arguments[4], count)
            for array, vector in ((2, found), (3, numbers)):
                builder.store(builder.extract_element(vector, lane), place(array, end, INT32))
            count = builder.add(count, builder.zext(builder.extract_element(filled, lane), INT64))
        return count

    return types.uint64(words, types.uint64, values, places, types.uint64, types.uint32), generate


def _halves(builder: Any, unsigned: Any, signed: Any) -> list[tuple[Any, Any]]:
    """Return the even bytes, and the odd bytes, of both as int16."""
    u, s = (builder.bitcast(value, _HALVES) for value in (unsigned, signed))
    eight, low = (
        ir.Constant(_HALVES, [8] * _HALVES.count),
        ir.Constant(_HALVES, [255] * _HALVES.count),
    )
    even = builder.and_(u, low), builder.ashr(builder.shl(s, eight), eight)
    return [even, (builder.lshr(u, eight), builder.ashr(s, eight))]


def _multiply_add(context: Any, builder: Any) -> Callable[[Any, Any], Any]:
    """Return the target's fastest function that multiplies 32 int16 pairs and adds neighbours."""
    available = features(context)
    if "+avx512bw" in available:
        kind = ir.FunctionType(INT32X16, [_HALVES] * 2)
        function = cgutils.get_or_insert_function(
            builder.module, kind, "llvm.x86.avx512.pmaddw.d.512"
        )
        return lambda x, y: builder.call(function, [x, y])
    if "+avx2" in available:
        return lambda x, y: _in_parts(builder, "llvm.x86.avx2.pmadd.wd", [x, y])
    return lambda x, y: _multiply_add_generic(builder, x, y)


def _in_parts(builder: Any, name: str, vectors: Sequence[Any]) -> Any:
    """Return sixteen int32 from a function of vectors of 256 bits, called for both halves."""
    parts, half = [], vectors[0].type.count // 2
    for first in (0, half):
        order = ir.Constant(ir.VectorType(INT32, half), list(range(first, first + half)))
        halves = [builder.shuffle_vector(value, value, order) for value in vectors]
        kind = ir.FunctionType(
            ir.VectorType(INT32, DOTS.count // 2), [each.type for each in halves]
        )
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        parts.append(builder.call(function, halves))
    return builder.shuffle_vector(*parts, ir.Constant(INT32X16, list(range(DOTS.count))))


def _multiply_add_generic(builder: Any, x: Any, y: Any) -> Any:
    """Multiply and add on any target: even and odd elements, widened."""
    products = []
    for odd in (0, 1):
        order = ir.Constant(INT32X16, list(range(odd, _HALVES.count, 2)))
        wide = [
            builder.sext(builder.shuffle_vector(value, value, order), INT32X16) for value in (x, y)
        ]
        products.append(builder.mul(*wide))
    return builder.add(*products)
