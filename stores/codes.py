"""Code stores: the codes of a vector store, and the model that encoded them."""

from dataclasses import dataclass
from typing import Any

from mercore.stores.part_backed_store import PartBackedStore
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.spec import from_json

KIND = "codes"


@dataclass(frozen=True, kw_only=True)
class CodeSpec:
    """The spec of codes: the fingerprint of their vectors, the kernel, and the encoder."""

    name: str = "mercore-codes"
    version: int = 1
    encoder: dict[str, Any]
    kernel: dict[str, Any]
    source: str
    dims: int


class CodeStore(PartBackedStore):
    """An open code store, finished or not."""

    kind, called = KIND, "code store"

    def __init__(self, store: PartStore) -> None:
        super().__init__(store)
        self.spec = from_json(CodeSpec, store.header.spec, store.where)
        self.rows = store.layout.rows


create_or_resume = CodeStore.create_or_resume
open_code_store = CodeStore.open
