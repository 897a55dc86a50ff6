"""The notebooks run from their first cell to their last."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CLAIMING = {"aska": 12, "kpca-pq": 11, "hashing": 17, "exact-search": 10, "scaling": 3}  # claims
STORED_BYTES = 400_000


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore"
)  # the notebook's own kernel process warns to its log, not to us
def test_quickstart_runs_and_shows_a_mended_store(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOKS / "quickstart.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        cell["outputs"][-1]["data"]["text/plain"] for cell in notebook.cells[-3:] if cell["outputs"]
    ]
    assert "part 0: column atoms" in shown[0]
    assert shown[1] == "(1, [])"
    assert "uint16" in shown[2]


@pytest.mark.parametrize("name", ["quickstart", "neighbours", "scaling"])
def test_a_notebook_for_users_imports_public_names(name: str) -> None:
    cells = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert re.findall(r"^\s*(?:from|import) mercore\.\S+", code, re.M) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_data_frame_has_the_neighbours_that_are_shown(tmp_path: Path) -> None:
    shown = nbformat.read(NOTEBOOKS / "neighbours.ipynb", as_version=4)
    notebook = nbformat.read(NOTEBOOKS / "neighbours.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(notebook.cells) == 12
    assert texts(notebook) == texts(shown)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLAIMING)
def test_what_a_notebook_claims_holds(name: str, tmp_path: Path) -> None:
    notebook, stored = (nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4) for _ in range(2))
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    found = claims(notebook)
    assert found == dict.fromkeys(claims(stored), True)
    assert len(found) == CLAIMING[name]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", CLAIMING)
def test_what_a_notebook_stores_is_small_and_names_no_machine(name: str) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert path.stat().st_size < STORED_BYTES
    assert all(claims(notebook).values())
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert {output.get("name") for output in outputs} <= {None, "stdout"}
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    written = [output.get("text", "") for output in outputs] + texts(notebook)
    assert not [text for text in written if "/tmp" in text or "/home" in text]  # noqa: S108


def claims(notebook: nbformat.NotebookNode) -> dict[str, bool]:
    """The claims that the last result of a notebook lists, and whether each holds."""
    return dict(ast.literal_eval(texts(notebook)[-1]))


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """The results of the cells as text, without pictures."""
    return [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
