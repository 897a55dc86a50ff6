"""Kernels of raw rows, without K(x, x) = 1: the Euclidean distance and the inner product."""
