"""The notebooks run from their first cell to their last."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_data_frame_has_the_neighbours_that_are_shown(tmp_path: Path) -> None:
    shown = nbformat.read(NOTEBOOKS / "neighbours.ipynb", as_version=4)
    notebook = nbformat.read(NOTEBOOKS / "neighbours.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(notebook.cells) == 10
    assert texts(notebook) == texts(shown)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["aska", "kpca-pq"])
def test_the_claims_of_a_paper_hold(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    claims = ast.literal_eval(texts(notebook)[-1])
    assert len(claims) >= 10
    assert [claim for claim, holds in claims.items() if not holds] == []


@pytest.mark.parametrize("name", ["aska", "kpca-pq"])
def test_a_stored_notebook_has_outputs_without_noise(name: str) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert path.stat().st_size < 400_000
    assert all(ast.literal_eval(texts(notebook)[-1]).values())
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    assert {output.get("name") for output in outputs} <= {None, "stdout"}
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    written = [output.get("text", "") for output in outputs]
    assert not [text for text in written + texts(notebook) if "/tmp" in text or "/home" in text]  # noqa: S108 - paths of a machine


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """The results of the cells as text, without pictures."""
    return [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
