"""Notices of the library on stderr, such as that functions are being compiled."""

import logging

import click

from mercore.stores.cache_folder import NOTICE, is_first_use


class _Stderr(logging.Handler):
    """The handler that prints the notice of a first use on stderr, once per command."""

    printed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print the notice."""
        if not self.printed:
            self.printed = True
            click.echo(record.getMessage(), err=True)


_LOGGER, _STDERR = logging.getLogger("mercore.jit"), _Stderr()


def print_notices() -> None:
    """Print notices from now on."""
    _STDERR.printed = False
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.addHandler(_STDERR)


def announce_first_use() -> None:
    """Print the notice at once if no machine code is there, before numba is loaded."""
    if is_first_use():
        _LOGGER.info(NOTICE)
