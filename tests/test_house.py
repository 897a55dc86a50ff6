"""The shape of the source: no import circle, no crowded folder, no class name with two meanings,
typed options."""

import ast
import re
from collections import Counter
from collections.abc import Mapping, Set
from pathlib import Path

import grimp
import pytest

from mercore.jobs.cli import main

HERE = Path(__file__).parents[1]
PACKAGES = ("jobs", "pipeline", "stores")
MOST_ENTRIES = 20
# Mappings that carry the options of a verb, and keywords of any type; ``options`` of click are not
# meant.
UNTYPED = re.compile(r"Mapping\[str, Any\]|\*\*options\b")


def sources() -> list[Path]:
    """All files of the three packages."""
    return [path for package in PACKAGES for path in sorted((HERE / package).rglob("*.py"))]


def circle_in(imports: Mapping[str, Set[str]]) -> list[str]:
    """Modules of one import circle, or none; imports inside functions count."""
    finished: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module not in finished:
            for imported in sorted(imports.get(module, ())):
                if found := visit(imported, [*path, module]):
                    return found
            finished.add(module)
        return []

    return next((found for module in sorted(imports) if (found := visit(module, []))), [])


def imports_of(package: str) -> dict[str, set[str]]:
    """The modules that each module of a package imports, also inside functions."""
    graph = grimp.build_graph(package)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_module_imports_itself_through_others() -> None:
    assert circle_in(imports_of("mercore")) == []


def test_a_planted_circle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("from planted import two\n")
    (package / "two.py").write_text(
        "def late():\n    from planted import three\n    return three\n"
    )
    (package / "three.py").write_text("import planted.one\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert circle_in(imports_of("planted")) == [
        "planted.one",
        "planted.two",
        "planted.three",
        "planted.one",
    ]


def test_no_folder_is_crowded() -> None:
    folders = {path.parent for path in sources()}
    entries = {
        folder: [each for each in folder.iterdir() if each.name != "__pycache__"]
        for folder in folders
    }
    assert {
        str(folder): len(found) for folder, found in entries.items() if len(found) > MOST_ENTRIES
    } == {}


def test_folders_of_tests_are_those_of_the_source() -> None:
    folders = {
        path.parent.relative_to(HERE / "tests")
        for package in PACKAGES
        for path in (HERE / "tests" / package).rglob("*.py")
    }
    assert sorted(str(folder) for folder in folders if not (HERE / folder).is_dir()) == []


def test_git_ignores_the_folder_of_the_demo() -> None:
    (out,) = (each for each in main.commands["demo"].params if each.name == "out")
    assert f"/{out.default}/" in (HERE / ".gitignore").read_text().splitlines()


def test_no_two_classes_have_one_name() -> None:
    trees = (ast.parse(path.read_text()) for path in sources())
    names = Counter(
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_options_of_verbs_are_typed() -> None:
    found = {
        path.name: UNTYPED.findall(path.read_text())
        for path in sources()
        if HERE / "jobs" in path.parents
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
