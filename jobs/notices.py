"""Notices of the library on stderr, such as that functions are being compiled."""

import logging

import click


class _Stderr(logging.Handler):
    """The handler that prints a notice on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a notice."""
        click.echo(record.getMessage(), err=True)


_STDERR = _Stderr()


def print_notices() -> None:
    """Print notices from now on."""
    logger = logging.getLogger("mercore.jit")
    logger.setLevel(logging.INFO)
    logger.addHandler(_STDERR)
