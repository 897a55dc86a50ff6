"""Vectors of 64-bit words for jitted functions that count differing bits of codes."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercore.pipeline.simd.vectors import INT32, Typed, Vector, address, copies, loader, zeros

EIGHT = 8  # words per 512 bits
_I64 = ir.IntType(64)


WORDS = Vector(types.int64, EIGHT)

load_words = loader(WORDS)
zero_words = zeros(WORDS)


@intrinsic
def add_distances(_typing: Any, sums: Any, word: Any, others: Any) -> Typed:
    """Return sums + the number of bits in which ``word`` differs from each of eight others."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        differing = builder.xor(copies(builder, arguments[1], WORDS.llvm), arguments[2])
        return builder.add(arguments[0], _population(builder, differing, f"v{EIGHT}i64"))

    return WORDS(WORDS, types.uint64, WORDS), generate


@intrinsic
def at_most(_typing: Any, sums: Any, limits: Any) -> Typed:
    """Return a uint64 whose bit j says whether word j ≤ limit j, as signed numbers."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return _bits(builder, builder.icmp_signed("<=", *arguments))

    return types.uint64(WORDS, WORDS), generate


@intrinsic(prefer_literal=True)
def rows_within(_typing: Any, words: Any, at: Any, query: Any, limit: Any, count: Any) -> Typed:
    """Return a uint64; bit j: row j of eight from ``words[at]`` on differs in ≤ ``limit`` bits.

    ``count``, a constant, is the number of words per row; ``query`` repeats its words eight times.
    """
    kind, width = Vector(types.int64, EIGHT * count.literal_value), count.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = builder.load(address(context, builder, signature, arguments, kind.llvm), align=8)
        start = address(context, builder, signature, arguments, kind.llvm, 2, ir.Constant(_I64, 0))
        differing = builder.xor(rows, builder.load(start, align=8))
        sums = _row_sums(builder, _population(builder, differing, f"v{kind.count}i64"), width)
        return _bits(
            builder, builder.icmp_signed("<=", sums, copies(builder, arguments[3], WORDS.llvm))
        )

    return types.uint64(words, types.uint64, query, types.int64, count), generate


@intrinsic
def population(_typing: Any, word: Any) -> Typed:
    """Return the number of bits of a word that are set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return _population(builder, arguments[0], "i64")

    return types.int64(types.uint64), generate


@intrinsic
def load_masked(_typing: Any, array: Any, index: Any, masks: Any, mask: Any) -> Typed:
    """Return 64 bytes of ``array[index:]`` & ``masks[mask:]`` as words; bounds are unchecked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = (
            address(context, builder, signature, arguments, WORDS.llvm, at, at + 1) for at in (0, 2)
        )
        return builder.and_(*(builder.load(place, align=1) for place in places))

    return WORDS(array, types.uint64, masks, types.uint64), generate


def _row_sums(builder: Any, counts: Any, width: int) -> Any:
    """Return sums of ``width`` neighbours: of pairs while width is even, then of the rest."""
    strides = []
    while width % 2 == 0:
        strides.append(2)
        width //= 2
    for stride in [*strides, width]:
        rest = counts.type.count // stride
        parts = [
            builder.shuffle_vector(
                counts,
                counts,
                ir.Constant(
                    ir.VectorType(INT32, rest), [stride * place + step for place in range(rest)]
                ),
            )
            for step in range(stride)
        ]
        counts = parts[0]
        for part in parts[1:]:
            counts = builder.add(counts, part)
    return counts


def _population(builder: Any, value: Any, kind: str) -> Any:
    """Return the number of bits set in each word of an LLVM value."""
    signature = ir.FunctionType(value.type, [value.type])
    return builder.call(
        cgutils.get_or_insert_function(builder.module, signature, f"llvm.ctpop.{kind}"), [value]
    )


def _bits(builder: Any, mask: Any) -> Any:
    """Return a mask of eight as the low bits of a 64-bit word."""
    return builder.zext(builder.bitcast(mask, ir.IntType(EIGHT)), _I64)
