"""Comparisons of float32 vectors, and selections by them, for jitted functions."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mercore.pipeline.simd.vectors import Typed, comparison, unary

attains = comparison(lambda builder, x, y: builder.fcmp_ordered(">=", x, y), types.uint16)
magnitude = unary("fabs")


@intrinsic
def where_greater(_typing: Any, x: Any, y: Any, then: Any, otherwise: Any) -> Typed:
    """Return elements of ``then`` where x > y, and of ``otherwise`` elsewhere, for floats."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments[:2]), *arguments[2:])

    return then(x, x, then, then), generate


@intrinsic
def where_attains(_typing: Any, x: Any, y: Any, then: Any, otherwise: Any) -> Typed:
    """Return elements of ``then`` where x ≥ y, and of ``otherwise`` elsewhere, for floats."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", *arguments[:2]), *arguments[2:])

    return then(x, x, then, then), generate


def _reduction(name: str) -> Any:
    """Return the intrinsic that reduces a float32 vector without a NaN to one number."""

    def reduce(_typing: Any, x: Any) -> Typed:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(x.llvm.element, [x.llvm])
            function = cgutils.get_or_insert_function(
                builder.module, kind, f"llvm.vector.reduce.{name}.v{x.count}f32"
            )
            return builder.call(function, arguments, fastmath=("nnan",))

        return x.element(x), generate

    return intrinsic(reduce)


greatest_of = _reduction("fmax")
least_of = _reduction("fmin")
