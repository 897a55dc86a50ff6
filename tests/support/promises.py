"""The page of promises: which there are and their order is written by hand, their tests come from marks.

``python -m tests.support.promises`` writes into the page which tests hold each promise.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "notebooks/guide/promises.md"
ROW = re.compile(r"^\| (?!promise \|)(.+) \| .*\|$", re.MULTILINE)


def promised() -> list[str]:
    """The promises of the page, in its order."""
    return ROW.findall(PAGE.read_text())


def held() -> dict[str, list[str]]:
    """The tests of each promise, by their marks: path::name, in the order of the files."""
    tests = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if "mark.promise(" in (text := path.read_text()):
            for promise, name in marks(ast.parse(text)):
                tests[promise].append(f"{path.relative_to(ROOT)}::{name}")
    return tests


def marks(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the promise of each mark, and the name of its test or its class of tests."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from ((promise, f"{node.name}::{name}") for promise, name in marks(node))
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                    yield ast.literal_eval(mark.args[0]), node.name


def with_tests(page: str, tests: Mapping[str, Sequence[str]]) -> str:
    """Return the page with the tests of each promise."""

    def row(found: re.Match[str]) -> str:
        return f"| {found[1]} | {', '.join(f'`{test}`' for test in tests.get(found[1], ()))} |"

    return ROW.sub(row, page)


if __name__ == "__main__":
    PAGE.write_text(with_tests(PAGE.read_text(), held()))
