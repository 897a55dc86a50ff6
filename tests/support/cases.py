"""Cases that differ in a number."""

from mercore.testing.cases import in_case, loop_over, own_fixtures

__all__ = ["in_case", "loop_over", "own_fixtures"]
