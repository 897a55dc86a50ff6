"""The tutorials: every command and every line of Python runs, and prints what is shown."""

from pathlib import Path

import pytest

from tests.support.documents import run_blocks

GUIDE = Path(__file__).parents[2] / "notebooks/guide"


@pytest.mark.parametrize("name", ["embeddings", "bags-of-words"])
def test_a_tutorial_prints_what_is_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks(GUIDE / f"{name}.md") > 0


@pytest.mark.slow
def test_the_way_of_a_billion_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(GUIDE / "billion-rows.md")
    assert Path("hits.ibin").exists()
