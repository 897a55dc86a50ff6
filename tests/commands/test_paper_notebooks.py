"""The notebooks on papers run from their first cell to their last, and their claims hold."""

from ast import literal_eval
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.commands.test_notebook import NOTEBOOKS

STORED_BYTES = 400_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the notebook's own process warns to its log, not to us
@pytest.mark.parametrize(("name", "count"), [("hashing", 17), ("exact-search", 10)])
def test_every_claim_of_a_paper_holds(name: str, count: int, tmp_path: Path) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    notebook, stored = (nbformat.read(path, as_version=4) for _ in range(2))
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    claims = shown_claims(notebook)
    assert claims == dict.fromkeys(claims, True)
    assert len(claims) == count
    assert shown_claims(stored) == claims
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["hashing", "exact-search"])
def test_what_is_stored_is_small_and_names_no_machine(name: str) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    stored = nbformat.read(path, as_version=4)
    outputs = [output for cell in stored.cells for output in cell.get("outputs", [])]
    assert path.stat().st_size < STORED_BYTES
    assert outputs
    assert not any(output.get("name") == "stderr" for output in outputs)
    texts = [
        output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs
    ]
    assert not any("/tmp" in text or "/home" in text for text in texts)  # noqa: S108
    assert set(stored.metadata) == {"kernelspec", "language_info"}


def shown_claims(notebook: nbformat.NotebookNode) -> dict[str, bool]:
    """The claims that the last cell shows, and whether each holds."""
    return dict(literal_eval(notebook.cells[-1]["outputs"][-1]["data"]["text/plain"]))
