"""Constants of the quantised sparse scan, shared by its jitted functions and their wrapper."""

GROUP = 64


FLOAT32_ROUNDING = 6.4e-8  # a unit of 2⁻²⁴ and a little, for each product and sum of the float32 score


ROUNDED = 1e-6  # of a threshold or a bias: more than a few float32 operations round, that of adding the bias among them


TINY = 1e-30  # nothing next to a bias, or to a scale: for quotients of zero by zero


FAINT = 1e-7  # peak of a table below which its steps get no smaller: a bias is counted in them, in float32
