"""Code stores: the codes of a vector store, and the model that encoded them."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from mercore.stores import derived
from mercore.stores.derived import DerivedStore
from mercore.stores.location.resolve import Where
from mercore.stores.part_store.header import Header, Layout
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.spec import from_json, to_json

KIND = "codes"
FIX = "Fix: run the same mercore encode again: it redoes what is wrong, and only that."


@dataclass(frozen=True, kw_only=True)
class CodeSpec:
    """The spec of codes: the fingerprint of their vectors, the kernel, and the encoder."""

    name: str = "mercore-codes"
    version: int = 1
    encoder: dict[str, Any]
    kernel: dict[str, Any]
    source: str
    dims: int


class CodeStore(DerivedStore):
    """An open code store, finished or not."""

    def __init__(self, store: PartStore) -> None:
        super().__init__(store)
        self.spec = from_json(CodeSpec, store.header.spec, store.where)
        self.rows = store.layout.rows


def create_or_resume(
    path: Where,
    spec: CodeSpec,
    layout: Layout,
    model: dict[str, NDArray[Any]],
    *,
    source_path: Where,
) -> CodeStore:
    """Open the code store of this spec and layout at ``path``, or create it.

    Raises
    ------
    ExistsError
        If something else lies at ``path``; the message names what differs.
    """
    notes = {"source_path": str(source_path), "fix": FIX}
    header = Header(kind=KIND, spec=to_json(spec), layout=layout, notes=notes)
    return CodeStore(derived.create_or_resume(path, header, model))


def resume(path: Where, spec: CodeSpec, layout: Layout) -> CodeStore | None:
    """Open the code store of this spec and layout, but any model, at ``path``; None if none exists.

    Raises
    ------
    ExistsError
        If something else lies at ``path``; the message names what differs.
    """
    store = derived.resume(path, Header(kind=KIND, spec=to_json(spec), layout=layout))
    return None if store is None else CodeStore(store)


def open_code_store(path: Where) -> CodeStore:
    """Open a code store that ``encode`` wrote.

    Raises
    ------
    NotFoundError, FormatError
        If it does not exist or is something else.
    """
    return CodeStore(derived.open_kind(path, KIND, "code store"))
