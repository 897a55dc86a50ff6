"""What verbs open by name: kernels, stores, and the turn to write one; and the options that have no use, refused."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import click

from mercore.jobs.custom_kernel import checked_custom, names_file
from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, NotFoundError
from mercore.stores.formats import Sliced
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.header import open_header
from mercore.stores.results.hits import certificate_path, check_hits_path
from mercore.stores.rows import is_store, open_vectors
from mercore.stores.vectors import Vectors


def refuse(options: Mapping[str, Any], names: Sequence[str], because: str) -> None:
    """Refuse options that would have no effect."""
    for name in names:
        if options.get(name) is not None:
            raise InputError(f"--{name} has no use here: {because}. Fix: leave --{name} out.")


def vectors_of(codes: CodeStore, moved: str | None) -> Vectors:
    """Return the vector store that codes came from, where it lay then or where it lies now."""
    try:
        return open_vectors(moved or codes.source_path)
    except NotFoundError as error:
        raise NotFoundError(
            f"{error} {codes.where} was encoded from it: name where it lies now with --vectors."
        ) from None


def kernel_of(options: Mapping[str, Any], vectors: Vectors) -> Kernel:
    """Return the kernel that the options name; a file's is checked on the vectors it is for."""
    name, gamma, transform = (options.get(key) for key in ("kernel", "gamma", "transform"))
    assert name is not None
    custom = checked_custom(name, vectors) if names_file(name) else None
    return make_kernel(name, gamma=gamma, transform=transform, custom=custom)


def chosen_kernel(options: Mapping[str, Any], vectors: Vectors) -> Kernel:
    """Return the kernel that the options name for a store of vectors, which has none of its own."""
    if not options.get("kernel"):
        raise InputError(
            f"{vectors.where} holds vectors, and they are searched by a kernel: found none. Fix: --kernel chi2"
        )
    return kernel_of(options, vectors)


def kernel_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that name a kernel."""
    return {key: options.get(key) for key in ("kernel", "gamma", "transform")}


def check_out(options: Mapping[str, Any], queries: str | Sliced) -> None:
    """Refuse ``out``, if it is given, where the hits, or the certificate of an exact search, cannot be written."""
    out = options.get("out")
    if not out:
        return
    check_hits_path(out, read=(queries,))
    if options.get("exact") or options.get("relaxed") is not None:
        check_hits_path(certificate_path(out), read=(queries,))


def kind_of(store: str) -> str:
    """Return "codes", "vectors" or "foreign"."""
    at = location_of(store)
    if is_store(at):
        return open_header(at).kind
    if not at.exists():
        raise NotFoundError(f"{store} does not exist: expected a store. Fix: check the path.")
    return "foreign"


def exclusive(where: Where) -> AbstractContextManager[LeaseHandle]:
    """Have what lies there, or will, to this process alone for the block; what it waits for is said on stderr."""
    return location_of(where).lease(partial(click.echo, err=True))
