"""Code stores: one receipt a part, the model beside the codes, and the vector store they came from remembered."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import ExistsError, FormatError, IntegrityError, NotFoundError
from mercore.stores.location.resolve import Where
from mercore.stores.part_store.header import Header, Layout, model_entries, open_header
from mercore.stores.part_store.part_store import PartStore, create
from mercore.stores.part_store.receipts import Receipt
from mercore.stores.spec import from_json, to_json

KIND = "codes"
UNSET = "unset"  # of a field that came later and is left out where it means what was before it


@dataclass(frozen=True, kw_only=True)
class CodeSpec:
    """What the codes are: of which vectors (their fingerprint), under which kernel, by which encoder."""

    name: str = "mercore-codes"
    version: int = 1
    encoder: dict[str, Any]
    kernel: dict[str, Any]
    source: str
    dims: int


class CodeStore:
    """An open code store, whole or still being written."""

    def __init__(self, store: PartStore) -> None:
        self.store = store
        self.spec = from_json(CodeSpec, store.header.spec, store.where)
        self.rows = store.layout.rows
        self.parts = store.layout.parts
        self.where = store.where

    @cached_property
    def model(self) -> dict[str, NDArray[Any]]:
        """The encoder's arrays, every byte checked."""
        return self.store.read_model()

    @property
    def dropped(self) -> NDArray[np.int64]:
        """The source rows that ingest left out, int64, ascending."""
        return self.model.get("dropped", np.empty(0, np.int64))

    @cached_property
    def receipts(self) -> list[Receipt]:
        """The receipts of all parts; an ``IntegrityError`` if any part is not done."""
        return self.store.receipts()

    @property
    def source_path(self) -> str:
        """Where the vector store lay when the codes were made: a path or a URL."""
        return str(self.store.header.notes["source_path"])

    def undone_parts(self) -> dict[int, str]:
        """Return the parts to be done, each with what is wrong, or "" if it was never done; all others are verified."""
        reasons = self.store.each_part(self._why_undone)
        return {part: reason for part, reason in enumerate(reasons) if reason is not None}

    def restore(self, fit: Callable[[], dict[str, NDArray[Any]]]) -> list[str]:
        """Write the metadata and model files that are missing or damaged again; return their keys.

        Parameters
        ----------
        fit : what makes the model again; it is called only if an array of the store's own is damaged

        Raises
        ------
        IntegrityError
            If the model made again is another.
        """
        try:
            model = self.model
        except IntegrityError as error:
            model = fit()
            if model_entries(model) != self.store.layout.model:
                raise IntegrityError(
                    f"{self.where}: its model is damaged, and fitted again it is another: found different checksums, "
                    "expected those of its header. Fix: restore the model from a copy, or encode to a new path."
                ) from error
        written = self.store.restore(model)
        self.__dict__.pop("model", None)
        return written

    def _why_undone(self, part: int) -> str | None:
        try:
            receipt = self.store.receipt(part)
        except (IntegrityError, FormatError) as error:
            return str(error)
        return "" if receipt is None else self.store.check_part(part)


def create_or_resume(
    path: Where, spec: CodeSpec, layout: Layout, model: dict[str, NDArray[Any]], *, source_path: Where
) -> CodeStore:
    """Open the code store of this very job at ``path``, or create it.

    Raises
    ------
    ExistsError
        If something else lies at ``path``; it names what differs.
    """
    found = resume(path, spec, layout)
    if found is not None:
        return found
    notes = {
        "source_path": str(source_path),
        "fix": "Fix: run the same mercore encode again: it redoes what is wrong, and only that.",
    }
    try:
        return CodeStore(create(path, Header(kind=KIND, spec=to_json(spec), layout=layout, notes=notes), model))
    except ExistsError:  # another process made it a moment ago: the same job, or the error that says so
        found = resume(path, spec, layout)
        assert found is not None
        return found


def resume(path: Where, spec: CodeSpec, layout: Layout) -> CodeStore | None:
    """Open the code store of this very job at ``path``, whatever model ``layout`` names; None if nothing is there.

    Raises
    ------
    ExistsError
        If something else lies at ``path``; it names what differs.
    """
    try:
        found = open_header(path)
    except NotFoundError:
        return None
    except FormatError:
        raise ExistsError(
            f"{path} exists and is no store of mercore: expected a new path. Fix: name another, or remove it."
        ) from None
    wanted = Header(kind=KIND, spec=to_json(spec), layout=replace(layout, model=found.layout.model))
    if found.spec_digest != wanted.spec_digest:
        raise ExistsError(
            f"{path} holds another job: it differs in {_difference(found, wanted)}. "
            "Fix: give the options it was made with, or name another path."
        )
    return CodeStore(PartStore(path, found))


def open_code_store(path: Where) -> CodeStore:
    """Open a code store that ``encode`` wrote.

    Raises
    ------
    NotFoundError, FormatError
        If it is not there or is something else.
    """
    header = open_header(path)
    if header.kind != KIND:
        raise FormatError(f"{path} is a store of {header.kind}: expected one of {KIND}. Fix: name the code store.")
    return CodeStore(PartStore(path, header))


def _difference(found: Header, wanted: Header) -> str:
    """Return which fields of two jobs differ, with both values."""
    if found.kind != wanted.kind:
        return f"kind ({found.kind}, not {wanted.kind})"
    ours, theirs = _leaves(wanted), _leaves(found)
    differing = [key for key in {**ours, **theirs} if ours.get(key, UNSET) != theirs.get(key, UNSET)]
    told = (f"{key} ({theirs.get(key, UNSET)}, not {ours.get(key, UNSET)})" for key in differing)
    return ", ".join(told) or "its columns"


def _leaves(header: Header) -> dict[str, Any]:
    """Return a job's parameters by name."""
    spec = header.spec
    return {
        "source": spec["source"],
        "kernel": spec["kernel"],
        "rows": header.layout.rows,
        "part_rows": header.layout.part_rows,
        "compressor": header.layout.columns[0]["compressor"],
        **{f"encoder {key}": value for key, value in spec["encoder"].items()},
    }
