"""Unsigned bytes that add up to 255 at most, 32 or 64 side by side, for jitted functions."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercore.pipeline.simd.vectors import Typed, Vector, address, loader, splatter, zeros

BYTES_64, BYTES_32 = Vector(types.int8, 64), Vector(types.int8, 32)

load_64_bytes = loader(BYTES_64)
load_32_bytes = loader(BYTES_32)
splat_64_bytes = splatter(BYTES_64)
zero_64_bytes = zeros(BYTES_64)
zero_32_bytes = zeros(BYTES_32)


@intrinsic
def load_like(_typing: Any, array: Any, index: Any, vector: Any) -> Typed:
    """Return the elements of ``array[index:]`` that fill a vector; the caller checks bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(address(context, builder, signature, arguments, vector.llvm), align=1)

    return vector(array, index, vector), generate


@intrinsic
def add_up_to_255(_typing: Any, x: Any, y: Any) -> Typed:
    """Return min(x + y, 255) of vectors of unsigned bytes."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(x.llvm, [x.llvm, x.llvm])
        name = f"llvm.uadd.sat.v{x.count}i8"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return x(x, x), generate


@intrinsic
def at_most(_typing: Any, x: Any, y: Any) -> Typed:
    """Return a uint64 whose bit j says whether x ≤ y at element j, for unsigned bytes."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(builder.icmp_unsigned("<=", *arguments), ir.IntType(x.count))
        return bits if x.count == 64 else builder.zext(bits, ir.IntType(64))

    return types.uint64(x, x), generate
