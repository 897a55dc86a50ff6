"""Sums of byte products for jitted functions: by the x86 multiply-add of bytes, or generic code."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercore.pipeline.simd.vectors import INT16, Typed, address, copies, features, opaque

LANES = INT16.count

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_V16 = INT16.llvm
_V32 = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 2 * LANES)
_HALF_BYTES = ir.VectorType(_I8, LANES)
_EIGHT_HALVES, _EIGHT_WORDS = ir.VectorType(_I16, 8), ir.VectorType(_I32, 8)
_EIGHT_LONGS = ir.VectorType(_I64, 8)
_SIXTEEN_HALVES, _SIXTEEN_WORDS = ir.VectorType(_I16, 16), ir.VectorType(_I32, 16)
_SIXTEEN_FLOATS = ir.VectorType(ir.FloatType(), 16)


@intrinsic
def pair_products(_typing: Any, table: Any, first: Any, second: Any, weights: Any) -> Typed:
    """Return w₀ t₀ + w₁ t₁ for 64 columns: two vectors with the elements in the order ``COLUMNS``.

    ``table`` is flat int8, 0…127; t₀ and t₁ are its 64 entries from ``first`` and ``second`` on;
    ``weights`` repeats int8 w₀ and w₁ side by side in an int16. Sums fit int16: 2 · 127² < 2¹⁵.
    """
    pair = types.UniTuple(INT16, 2)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = [
            builder.load(address(context, builder, signature, arguments, _BYTES, 0, index), align=1)
            for index in (1, 2)
        ]
        pairs = [_interleaved(builder, rows, half) for half in (0, 1)]
        weight_bytes = builder.bitcast(arguments[3], _BYTES)
        products = _multiply_add(context, builder)
        return context.make_tuple(
            builder, pair, [products(values, weight_bytes) for values in pairs]
        )

    return pair(table, types.uint64, types.uint64, INT16), generate


@intrinsic
def half_pair_products(_typing: Any, table: Any, first: Any, second: Any, weights: Any) -> Typed:
    """Return ``pair_products`` for rows of 32 columns, in their own order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = _half_interleaved(context, builder, signature, arguments)
        return _multiply_add(context, builder)(pairs, builder.bitcast(arguments[3], _BYTES))

    return INT16(table, types.uint64, types.uint64, INT16), generate


@intrinsic
def look_up_eight(_typing: Any, table: Any, atoms: Any, at: Any) -> Typed:
    """Return bytes ``table[a]`` of eight atoms from ``at`` on, uint16, side by side in a uint64.

    Bytes 0…3 are shifted into place. Bytes 4…7 are inserted into a vector, their atoms cut out of
    one word. The three kinds of work keep different units of the processor busy.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data

        def place(j: int) -> Any:
            return builder.add(arguments[2], ir.Constant(_I64, j))

        def entry(atom: Any) -> Any:
            return builder.load(builder.gep(data, [builder.zext(atom, _I64)]))

        low = ir.Constant(_I32, 0)
        for j in range(4):
            atom = builder.load(address(context, builder, signature, arguments, _I16, 1, place(j)))
            shifted = builder.shl(builder.zext(entry(atom), _I32), ir.Constant(_I32, 8 * j))
            low = builder.or_(low, shifted)
        undefined = ir.Constant(ir.VectorType(_I32, 2), ir.Undefined)
        both = builder.bitcast(
            builder.insert_element(undefined, low, ir.Constant(_I32, 0)), ir.VectorType(_I8, 8)
        )
        word = builder.load(
            address(context, builder, signature, arguments, _I64, 1, place(4)), align=2
        )
        for j in range(4):
            atom = builder.trunc(builder.lshr(word, ir.Constant(_I64, 16 * j)), _I16)
            both = builder.insert_element(both, entry(atom), ir.Constant(_I32, 4 + j))
        return builder.bitcast(both, _I64)

    return types.uint64(table, atoms, types.uint64), generate


@intrinsic
def rows_reaching(
    _typing: Any,
    packed: Any,
    at: Any,
    weights: Any,
    scales: Any,
    residuals: Any,
    row: Any,
    limits: Any,
) -> Typed:
    """Return a uint16; bit j: (Σ w u + extra) scale + (root residual)² ≥ least for row ``row + j``.

    ``packed`` uint64 holds, from ``at`` on, eight bytes u, 0…127, per row; ``weights`` int8[8 n]
    flat; ``scales`` float32[n]; ``residuals`` non-negative float16[n] as uint16, or None for zeros;
    ``limits`` extra, root and least, float32, root below 2¹⁵.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        products = _multiply_add(context, builder)

        def sums(half: int) -> Any:
            later = builder.add(arguments[1], ir.Constant(_I64, 8 * half))
            weight = builder.mul(
                builder.add(arguments[5], ir.Constant(_I64, 8 * half)), ir.Constant(_I64, 8)
            )
            values, weight_bytes = (
                builder.load(
                    address(context, builder, signature, arguments, _BYTES, array, index), align=1
                )
                for array, index in ((0, later), (2, weight))
            )
            return _half_row_sums(context, builder, products(values, weight_bytes))

        total = builder.sitofp(_neighbours_added(builder, sums(0), sums(1)), _SIXTEEN_FLOATS)
        extra, root, least = (builder.extract_value(arguments[6], place) for place in range(3))

        def sixteen(kind: Any, array: int) -> Any:
            return builder.load(
                address(context, builder, signature, arguments, kind, array, 5), align=1
            )

        raised = builder.fadd(total, copies(builder, extra, _SIXTEEN_FLOATS))
        bound = builder.fmul(raised, sixteen(_SIXTEEN_FLOATS, 3))
        if not isinstance(residuals, types.NoneType):
            whole = builder.fmul(root, ir.Constant(ir.FloatType(), 2.0**112))
            halves = sixteen(_SIXTEEN_HALVES, 4)
            roots = _widened(builder, halves, copies(builder, whole, _SIXTEEN_FLOATS))
            bound = builder.fadd(bound, builder.fmul(roots, roots))
        reached = builder.fcmp_ordered(">=", bound, copies(builder, least, _SIXTEEN_FLOATS))
        return builder.bitcast(reached, _I16)

    limit = types.UniTuple(types.float32, 3)
    return types.uint16(
        packed, types.uint64, weights, scales, residuals, types.uint64, limit
    ), generate


@intrinsic
def sum_eight_rows(
    _typing: Any, weights: Any, row: Any, magnitudes: Any, totals: Any, at: Any
) -> Typed:
    """Set Σ|w| and Σ w of eight rows of int8[8 n], from ``row`` on, at ``at``… of int16 vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.mul(arguments[1], ir.Constant(arguments[1].type, 8))
        values = builder.load(
            address(context, builder, signature, arguments, _BYTES, 0, first), align=1
        )
        sums_of = _byte_sums if "+avx512bw" in features(context) else _byte_sums_by_products
        for place, sums in zip((2, 3), sums_of(context, builder, values), strict=True):
            builder.store(
                sums,
                address(context, builder, signature, arguments, _EIGHT_HALVES, place, 4),
                align=1,
            )
        return context.get_dummy_value()

    return types.void(weights, types.uint64, magnitudes, totals, types.uint64), generate


def _byte_sums(_context: Any, builder: Any, values: Any) -> list[Any]:
    """Return sums of magnitudes, and of values, of each eight int8 of 64, as int16.

    The instruction takes unsigned bytes: 128 is added to values, eight times per sum.
    """
    kind = ir.FunctionType(_EIGHT_LONGS, [_BYTES] * 2)
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.psad.bw.512")
    raised = builder.xor(values, ir.Constant(_BYTES, [-128] * 2 * LANES))
    sums = (
        builder.call(function, [part, ir.Constant(_BYTES, None)])
        for part in (_magnitude(builder, values), raised)
    )
    magnitudes, totals = (builder.trunc(part, _EIGHT_HALVES) for part in sums)
    return [magnitudes, builder.sub(totals, ir.Constant(_EIGHT_HALVES, [8 * 128] * 8))]


def _byte_sums_by_products(context: Any, builder: Any, values: Any) -> list[Any]:
    """Return ``_byte_sums``, on any processor."""
    products, ones = _multiply_add(context, builder), ir.Constant(_BYTES, [1] * 2 * LANES)
    sums = []
    for pairs in (products(_magnitude(builder, values), ones), products(ones, values)):
        halves = _half_row_sums(context, builder, pairs)
        both = builder.trunc(_neighbours_added(builder, halves, halves), _SIXTEEN_HALVES)
        sums.append(builder.shuffle_vector(both, both, ir.Constant(_EIGHT_WORDS, list(range(8)))))
    return sums


def _magnitude(builder: Any, values: Any) -> Any:
    """Return the magnitudes of 64 int8, as unsigned bytes."""
    negative = builder.icmp_signed("<", values, ir.Constant(_BYTES, None))
    return builder.select(negative, builder.neg(values), values)


def _widened(builder: Any, halves: Any, mend: Any) -> Any:
    """Return sixteen non-negative float16, given as bits, as float32 times ``mend`` / 2¹¹²."""
    bits = builder.shl(builder.zext(halves, _SIXTEEN_WORDS), ir.Constant(_SIXTEEN_WORDS, [13] * 16))
    return builder.fmul(builder.bitcast(bits, _SIXTEEN_FLOATS), mend)


def _half_row_sums(context: Any, builder: Any, pairs: Any) -> Any:
    """Return sums of neighbouring int16 as sixteen int32: two per row of eight atoms."""
    if "+avx512bw" in features(context):
        kind = ir.FunctionType(_SIXTEEN_WORDS, [_V16, _V16])
        function = cgutils.get_or_insert_function(
            builder.module, kind, "llvm.x86.avx512.pmaddw.d.512"
        )
        return builder.call(function, [pairs, ir.Constant(_V16, [1] * LANES)])
    words, shift = builder.bitcast(pairs, _SIXTEEN_WORDS), ir.Constant(_SIXTEEN_WORDS, [16] * 16)
    return builder.add(builder.ashr(builder.shl(words, shift), shift), builder.ashr(words, shift))


def _neighbours_added(builder: Any, first: Any, second: Any) -> Any:
    """Return sums of neighbours of two vectors of sixteen, those of the second last."""
    places = (ir.Constant(_SIXTEEN_WORDS, list(range(start, 32, 2))) for start in (0, 1))
    return builder.add(*(builder.shuffle_vector(first, second, place) for place in places))


# The table column of each of the 64 results: bytes interleave within blocks of sixteen.
COLUMNS = tuple(16 * (lane // 8) + lane % 8 + 8 * half for half in (0, 1) for lane in range(LANES))


def _interleaved(builder: Any, rows: list[Any], half: int) -> Any:
    """Return bytes t₀[c], t₁[c] side by side for the 32 columns of one half."""
    chosen = COLUMNS[half * LANES : (half + 1) * LANES]
    order = [index for column in chosen for index in (column, 2 * LANES + column)]
    return builder.shuffle_vector(*rows, ir.Constant(ir.VectorType(_I32, 2 * LANES), order))


def _half_interleaved(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return bytes t₀[c], t₁[c] side by side for 32 columns of the rows of arguments 1 and 2."""
    rows = [
        builder.load(
            address(context, builder, signature, arguments, _HALF_BYTES, 0, index), align=1
        )
        for index in (1, 2)
    ]
    if "+avx512vbmi" in features(context):  # LLVM would double the loads first, which is as slow
        rows = [opaque(builder, row) for row in rows]
    order = [index for column in range(LANES) for index in (column, LANES + column)]
    return builder.shuffle_vector(*rows, ir.Constant(ir.VectorType(_I32, 2 * LANES), order))


def _multiply_add(context: Any, builder: Any) -> Callable[[Any, Any], Any]:
    """Return the target's fastest function that multiplies 64 byte pairs and adds neighbours."""
    available = features(context)
    if "+avx512bw" in available:
        name, kind, result = "llvm.x86.avx512.pmaddubs.w.512", _BYTES, _V16
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(result, [kind, kind]), name
        )
        return lambda values, weights: builder.call(function, [values, weights])
    if "+avx2" in available:
        return lambda values, weights: _multiply_add_avx2(builder, values, weights)
    return lambda values, weights: _multiply_add_generic(builder, values, weights)


def _multiply_add_avx2(builder: Any, values: Any, weights: Any) -> Any:
    """Multiply and add in two halves of 32 bytes."""
    result = ir.VectorType(_I16, LANES // 2)
    signature = ir.FunctionType(result, [_HALF_BYTES, _HALF_BYTES])
    function = cgutils.get_or_insert_function(
        builder.module, signature, "llvm.x86.avx2.pmadd.ub.sw"
    )
    halves = [
        builder.call(function, [_part(builder, vector, start) for vector in (values, weights)])
        for start in (0, LANES)
    ]
    return builder.shuffle_vector(*halves, ir.Constant(_V32, list(range(LANES))))


def _multiply_add_generic(builder: Any, values: Any, weights: Any) -> Any:
    """Multiply and add on any target: even and odd bytes, widened."""

    def widened(vector: Any, odd: int, extend: Any) -> Any:
        chosen = ir.Constant(_V32, list(range(odd, 2 * LANES, 2)))
        return extend(builder.shuffle_vector(vector, vector, chosen), _V16)

    products = [
        builder.mul(widened(values, odd, builder.zext), widened(weights, odd, builder.sext))
        for odd in (0, 1)
    ]
    return builder.add(*products)


def _part(builder: Any, vector: Any, start: int) -> Any:
    """Return 32 of 64 bytes."""
    return builder.shuffle_vector(
        vector, vector, ir.Constant(_V32, list(range(start, start + LANES)))
    )
