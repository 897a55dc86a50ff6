"""The sources of mercore and its plugins on workers, which must be those of this command."""

from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from distributed import Client

from mercore.stores.errors import ClusterError
from mercore.stores.plugins import GROUPS, package_of, plugin_points

PACKAGES = Path(__file__).parents[2]
FIX = "Fix: install the mercore of this command on every worker, and start the workers again."


@cache
def installed() -> str:
    """Return the digest of the sources of mercore that this process runs, and of its plugins."""
    digest = blake2b(digest_size=8)
    for package in ("jobs", "pipeline", "stores"):
        for path in sorted((PACKAGES / package).rglob("*.py")):
            digest.update(f"{path.relative_to(PACKAGES)}\n".encode() + path.read_bytes())
    for point in chain.from_iterable(map(plugin_points, GROUPS)):
        version = None if point.dist is None else point.dist.version
        digest.update(f"{point.group} {package_of(point)} {version} {point}\n".encode())
    return digest.hexdigest()


def check_installed(expected: str) -> None:
    """Refuse to work for a command with other sources than this worker has.

    Raises
    ------
    ClusterError
        If the digests differ.
    """
    if installed() != expected:
        raise ClusterError(
            f"another version of mercore: found sources {installed()}, expected {expected}. {FIX}"
        )


def check_workers(client: Client) -> None:
    """Refuse workers whose mercore is not that of this command.

    Raises
    ------
    ClusterError
        If there are such workers; the message names them.
    """
    found = client.run(installed, on_error="return")
    others = [
        f"{f'sources {answer}' if isinstance(answer, str) else answer} on {worker}"
        for worker, answer in sorted(found.items())
        if answer != installed()
    ]
    if others:
        raise ClusterError(
            "workers of the cluster have another version of mercore, or none: found "
            f"{', '.join(others)}, expected sources {installed()}. {FIX}"
        )
