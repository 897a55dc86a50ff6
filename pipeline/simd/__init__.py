"""SIMD for jitted functions, as LLVM vector types: one source for all instruction sets."""
