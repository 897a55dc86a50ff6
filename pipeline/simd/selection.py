"""Comparisons and choices between float32 vectors for numba loops."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pipeline.simd.vectors import Typed, comparison

attains = comparison(lambda builder, x, y: builder.fcmp_ordered(">=", x, y), types.uint16)


@intrinsic
def magnitude(_typing: Any, x: Any) -> Typed:
    """Return |x| of a float32 vector."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(x.llvm, [x.llvm])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fabs.v{x.count}f32")
        return builder.call(function, arguments)

    return x(x), generate


@intrinsic
def where_greater(_typing: Any, x: Any, y: Any, then: Any, otherwise: Any) -> Typed:
    """Return the elements of ``then`` where x > y, and of ``otherwise`` elsewhere, of float vectors."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments[:2]), *arguments[2:])

    return then(x, x, then, then), generate
