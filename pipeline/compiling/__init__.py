"""What bends numba: the decorator ``jit``, and a second process at the first use."""
