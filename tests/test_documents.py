"""README, guide and reports: short enough, every link resolves, and every promise has its tests."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from mercore.jobs.cli import main
from mercore.pipeline.encoders import ENCODERS
from mercore.pipeline.encoders.encoder import options_of
from mercore.pipeline.encoders.equal_cost import code_bytes
from mercore.pipeline.search.choices.encoder import CANDIDATES
from tests.support.promises import PAGE as PROMISES
from tests.support.promises import held, promised, with_tests

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / ".github").glob("[A-Z]*.md"),
        *(ROOT / "notebooks").rglob("*.md"),
    )
)
WRITTEN = [page for page in PAGES if not page.startswith("notebooks/reports/")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:(?:jobs|pipeline|stores|tests)/|\.ci/|\.src/)[\w./]+)`")
TEST = re.compile(r"`(tests/\S+\.py(?:::\w+)+)`")


def prose(page: str) -> list[str]:
    """Return the lines of a page outside of code blocks."""
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S).splitlines()


@cache
def parsed(path: str) -> ast.Module:
    """Return the syntax tree of a file of tests."""
    return ast.parse((ROOT / path).read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings of a page have on GitHub."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_recalls_in_the_pages_are_those_of_the_report() -> None:
    triple = re.compile(r"\d\.\d{3} / \d\.\d{3} / \d\.\d{3}")
    said = {each for page in WRITTEN for each in triple.findall((ROOT / page).read_text())}
    assert len(said) > 20
    assert said <= set(triple.findall((ROOT / "notebooks/reports/recall.md").read_text()))


def test_the_bytes_in_the_guide_are_those_of_default_options() -> None:
    guide = (ROOT / "notebooks/guide/encoders.md").read_text()
    table = guide[guide.index("| `--encoder` | a code is") : guide.index("## The default")]
    said = re.findall(r"^\| `([\w-]+)` \|.*?\| (\d+) \|", table, flags=re.M)
    assert said == [(name, str(code_bytes(kind()))) for name, kind in ENCODERS.items()]


def test_the_encoders_to_choose_from_are_in_the_guide_with_the_options_that_each_alone_has() -> (
    None
):
    guide = (ROOT / "notebooks/guide/encoders.md").read_text()
    table = guide[
        guide.index("| encoder | kernels |") : guide.index("But `aska`, of 28 bytes, comes first")
    ]
    said = re.findall(r"^\| `([\w-]+)` \|.*\|(.*)\|$", table, flags=re.M)
    assert [name for name, _ in said] == [kind.name for kind in CANDIDATES]
    for kind, (_, options) in zip(CANDIDATES, said, strict=True):
        others = {name for other in CANDIDATES if other is not kind for name in options_of(other)}
        own = {f"--{name.replace('_', '-')}" for name in options_of(kind).keys() - others}
        assert set(re.findall(r"--[\w-]+", options)) == own


def test_a_page_says_how_for_every_verb() -> None:
    table = (ROOT / "notebooks/guide/how-to.md").read_text()
    verbs = {name for name, verb in main.commands.items() if not verb.hidden}
    assert verbs - set(re.findall(r"`(\w+)(?: --[\w-]+)?`", table)) == set()


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 200
    assert len(text.encode()) <= 12 * 1024


@pytest.mark.parametrize("page", WRITTEN)
def test_no_line_is_long(page: str) -> None:
    lines = [line for line in prose(page) if not line.startswith("|") and not LINK.search(line)]
    assert not [line for line in lines if len(line) > 120]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_resolves(page: str) -> None:
    folder = (ROOT / page).parent
    for link in LINK.findall("\n".join(prose(page))):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = folder / name if name else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert target.resolve().is_relative_to(ROOT), f"{page} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page} links to {link}"


@pytest.mark.parametrize("page", ["architecture", "contributing"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    named = FILE.findall("\n".join(prose(f"notebooks/guide/{page}.md")))
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_of_the_guide_and_every_report_is_linked_from_a_page() -> None:
    linked = {
        (ROOT / page).parent.joinpath(link.partition("#")[0]).resolve()
        for page in PAGES
        for link in LINK.findall("\n".join(prose(page)))
        if "://" not in link
    }
    assert {page for page in PAGES if (ROOT / page).resolve() not in linked} <= {"README.md"}


def test_the_promises_are_those_of_the_marks() -> None:
    rows, tests = promised(), held()
    assert len(rows) > 50
    assert sorted(tests) == sorted(rows), "write the row of a new promise into promises.md"
    written = with_tests(PROMISES.read_text(), tests)
    assert PROMISES.read_text() == written, "Fix: python -m tests.support.promises"


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.startswith("notebooks/guide/")])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    for test in TEST.findall("\n".join(prose(page))):
        path, *names = test.split("::")
        node: ast.AST = parsed(path)
        for name in names:
            inner = {
                found.name: found
                for found in ast.iter_child_nodes(node)
                if isinstance(found, ast.ClassDef | ast.FunctionDef)
            }
            assert name in inner, f"{test} does not exist"
            node = inner[name]
