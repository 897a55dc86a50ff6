"""Constants of the quantised sparse scan."""

GROUP = 64  # queries that are scanned together
FLOAT32_ROUNDING = 6.4e-8  # 2⁻²⁴ and a little, per product and per sum of the float32 score
ROUNDED = 1e-6  # of a threshold or a bias: more than the float32 operations on it can round
TINY = 1e-30  # negligible beside a bias or a scale: for quotients of zero by zero
FAINT = 1e-7  # the least peak of a table: its steps also count biases, in float32
