"""SIMD for numba loops, as LLVM vector types: one source, any instruction set."""
