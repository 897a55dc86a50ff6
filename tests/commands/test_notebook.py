"""The notebooks run from their first cell to their last."""

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


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """The results of the cells as text, without pictures."""
    return [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
