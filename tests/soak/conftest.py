"""The small stores and the queue of the tests of commands."""

from tests.commands.conftest import codes, data, queue, vectors

__all__ = ["codes", "data", "queue", "vectors"]
