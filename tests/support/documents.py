"""The code blocks of a page, run in their order in the folder that is current."""

import re
import runpy
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from tests.support.running import succeed

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the code blocks of a page: language and text."""
    return BLOCK.findall(page.read_text())


def run_blocks(page: Path, edit: Callable[[str], str] = str) -> int:
    """Run the commands, edited, and the Python of a page; return how many outputs it shows.

    A block of ``text`` has to be the end of what the block before it printed.
    """
    printed, shown = "", 0
    for language, text in blocks(page):
        if language == "python":
            printed = run_python(text)
        elif language == "sh":
            printed = "".join(map(run_line, map(edit, text.splitlines())))
        else:
            assert language == "text"
            assert printed[-len(text) :] == text
            shown += 1
    return shown


def run_line(line: str) -> str:
    """Run a command; return its output."""
    program, *words = shlex.split(line)
    assert program == "mercore"
    return succeed(*words)


def run_python(text: str) -> str:
    """Run a block of Python; return its output."""
    Path("block.py").write_text(text)
    with redirect_stdout(StringIO()) as out:
        runpy.run_path("block.py")
    return out.getvalue()
