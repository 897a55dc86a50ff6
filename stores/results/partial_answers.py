"""Finished batches of a search on disk, from which a killed search resumes."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import ExistsError, FormatError, IntegrityError, NotFoundError
from mercore.stores.formats.npz import npz_bytes, read_npz
from mercore.stores.location.publish import exists, publish, storage_errors, sync_folder
from mercore.stores.location.scratch import SCRATCH, sweep
from mercore.stores.spec import canonical_json, digest, from_json, in_words, parse_json, to_json
from mercore.stores.wording import option

DIGESTS = ("vectors", "queries", "bounds", "labels")  # whose values tell nobody anything
SEARCH = "search.json"
BATCH = re.compile(r"batch-\d{8,}\.npz")
RECEIPT = "receipt"
UNSET = "unset"  # a parameter that a search does not state


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """The search whose batches a folder holds; ``digest`` is that of ``job``, its parameters."""

    name: str = "mercore-search"
    version: int = 1
    job: dict[str, Any]
    digest: str


class Answers:
    """The finished batches of a search, one ``.npz`` per batch in the folder ``out`` + ``.parts``.

    The receipt in a ``.npz`` proves its arrays to be those of this batch of this search.
    ``job`` is JSON-able and holds everything that decides the answers; only a search of an equal
    ``job`` uses the batches again.

    Raises
    ------
    ExistsError
        If the folder exists and is not of this search.
    IntegrityError, FormatError
        If the folder's ``search.json`` is damaged, or of another format version.
    StorageError
        If the operating system refuses.
    """

    def __init__(self, out: str, job: dict[str, Any]) -> None:
        self._folder = Path(f"{out}.parts")
        self._job = digest(job)
        search = SearchSpec(job=parse_json(canonical_json(job)), digest=self._job)
        _check_folder(self._folder, search)
        sweep(self._folder)
        if not exists(self._folder / SEARCH):
            publish(self._folder / SEARCH, canonical_json(to_json(search)).encode())
            sync_folder(self._folder.parent)

    def get(self, batch: int) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of a finished batch, read-only, or None if it is missing or damaged.

        Raises
        ------
        StorageError
            If the operating system refuses.
        """
        try:
            arrays = read_npz(str(self._path(batch)))
        except (FormatError, NotFoundError):
            return None
        receipt = arrays.pop(RECEIPT, None)
        if receipt is None or receipt.shape or str(receipt) != self._receipt(batch, arrays):
            return None
        return arrays

    def put(self, batch: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the arrays of a finished batch.

        Raises
        ------
        StorageError
            If the disk is full or the folder cannot be written.
        """
        assert RECEIPT not in arrays
        receipt = np.array(self._receipt(batch, arrays))
        publish(self._path(batch), npz_bytes({**arrays, RECEIPT: receipt}))

    def clear(self) -> None:
        """Remove the batches, and their folder unless it holds other files.

        Raises
        ------
        StorageError
            If the operating system refuses.
        """
        with storage_errors("remove", self._folder):
            sweep(self._folder)
            for name in filter(BATCH.fullmatch, _names(self._folder)):
                (self._folder / name).unlink(missing_ok=True)
            # Removed last: without it, batches that are left could not be told from other files.
            if self._folder.is_dir():
                sync_folder(self._folder)
            (self._folder / SEARCH).unlink(missing_ok=True)
            if self._folder.is_dir() and not _names(self._folder):
                self._folder.rmdir()

    def _path(self, batch: int) -> Path:
        """Return the file of a batch."""
        return self._folder / f"batch-{batch:08d}.npz"

    def _receipt(self, batch: int, arrays: Mapping[str, NDArray[Any]]) -> str:
        """Return the receipt of a batch of these arrays."""
        receipt = {"batch": batch, "job": self._job, "seal": _seal(arrays)}
        return canonical_json({"name": "mercore-batch", "version": 1, **receipt})


def is_unfinished(out: str) -> bool:
    """Return whether a search that writes ``out`` has begun and not ended."""
    return exists(Path(f"{out}.parts") / SEARCH)


def _check_folder(folder: Path, search: SearchSpec) -> None:
    """Refuse a folder that exists and is not of ``search``."""
    path = folder / SEARCH
    if exists(path):
        stored = _read_search(path)
        if stored != search:
            differing = _differing(stored.job, search.job)
            raise ExistsError(
                f"{folder} keeps the batches of another search, which differs in "
                f"{differing}: expected those of "
                f"this one. Fix: remove the folder, or name another {option('out')}."
            )
    elif exists(folder) and (
        not folder.is_dir() or not all(map(SCRATCH.fullmatch, _names(folder)))
    ):
        raise ExistsError(
            f"{folder} exists without a {SEARCH}: expected the batches of this search, or nothing. "
            f"Fix: move it away, or name another {option('out')}."
        )


def _differing(there: dict[str, Any], here: dict[str, Any]) -> str:
    """Name the parameters in which two searches differ, with both values."""
    texts = [{key: canonical_json(job[key]) for key in job} for job in (there, here)]
    return ", ".join(
        key
        if key in DIGESTS
        else f"{key} ({in_words(there.get(key, UNSET))}, not {in_words(here.get(key, UNSET))})"
        for key in sorted({*there, *here})
        if texts[0].get(key) != texts[1].get(key)
    )


def _read_search(path: Path) -> SearchSpec:
    """Return the search in the ``search.json`` of a folder."""
    with storage_errors("read", path):
        data = path.read_bytes()
    try:
        search = from_json(SearchSpec, parse_json(data), str(path))
        if digest(search.job) == search.digest:
            return search
        reason = f"its digest is {digest(search.job)}, it says {search.digest}"
    except ValueError as error:
        reason = str(error)
    raise IntegrityError(
        f"{path} is damaged: {reason}. Fix: remove the folder {path.parent}, or name another "
        f"{option('out')}."
    )


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, none if it does not exist."""
    with storage_errors("read", folder):
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _seal(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the digest of the names, dtypes, shapes and bytes of arrays, in their order."""
    seal = hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        rows = np.asarray(array, order="C")
        seal.update(canonical_json([name, rows.dtype.str, list(rows.shape)]).encode())
        seal.update(rows.tobytes())
    return seal.hexdigest()
