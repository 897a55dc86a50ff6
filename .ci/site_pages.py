"""Pages of the site that do not lie in ``notebooks``, and links to them."""

import posixpath
import re
from collections.abc import Iterator
from html import escape
from inspect import isfunction
from pathlib import Path

import click
from griffe import Docstring, Extension, Function, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure import StructureItem
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

import mercore
from mercore.jobs.cli import main
from mercore.jobs.help import OPTIONS, SECTIONS, BlockOption, VerbCommand
from mercore.stores.formats import SUFFIXES

ROOT = Path(__file__).parents[1]
PAGES = {  # that lie outside of notebooks/
    "index.md": "README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": ".github/CONTRIBUTING.md",
    "SECURITY.md": ".github/SECURITY.md",
}
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
TABLE_IN_LIST = re.compile(r"^( +\|.*\n)(?=- )", re.MULTILINE)  # GitHub needs no line behind it
LINK_OF_NOTEBOOK = re.compile(r'(?<=href=")([^"#:]+)\.md(?=["#])')
PARAMETER = re.compile(r"^(\w[\w, ]*) : (.+)$", re.MULTILINE)
SOURCE = "---\nsearch:\n  exclude: true\n---\n"
PYTHON = """# Python

[The guide](../guide/python.md) says how these go together. The options mean what they mean to
[the commands](commands.md).
"""
OPENED = "mercore.jobs.session.open_store.OpenStore"  # what mercore.open returns
COMMANDS = """# Commands

The text of `mercore VERB --help`. Every verb also takes `-h` or `--help`.
"""
listed: list[StructureItem] = []


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that do not lie in notebooks/."""
    made = {uri: (ROOT / path).read_text() for uri, path in PAGES.items()}
    written = {file.src_uri: file.content_string for file in files if file.src_uri.endswith(".md")}
    for uri, text in (made | written).items():
        for path in (path_of_link(uri, link) for link in LINK.findall(text)):
            if not path.startswith("notebooks/") and path not in PAGES.values():
                made[uri_of(path)] = SOURCE + source(ROOT / path)
    made |= {"reference/commands.md": commands(), "reference/python.md": python()}
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links to files of the repository lead to pages of the site."""
    uri = page.file.src_uri
    if uri.startswith(("source/", "reference/")):
        return markdown
    folder = posixpath.dirname(uri) or "."

    def linked(link: re.Match[str]) -> str:
        return posixpath.relpath(uri_of(path_of_link(uri, link[1])), folder)

    return LINK.sub(linked, TABLE_IN_LIST.sub(r"\1\n", markdown))


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Let links of notebooks lead to pages of the site; refuse signatures for the command line."""
    if "Annotated[" in html:
        raise PluginError(f"{page.file.src_uri} shows how the command line reads a parameter")
    return LINK_OF_NOTEBOOK.sub(r"\1.html", html) if page.file.src_uri.endswith(".ipynb") else html


def on_nav(nav: Navigation, **_: object) -> None:
    """Keep the list of pages for the end."""
    listed[:] = nav.items


def on_post_build(config: MkDocsConfig) -> None:
    """Write ``llms.txt``: every page with its title."""
    head = f"# {config.site_name}\n\n> {config.site_description}\n"
    (Path(config.site_dir) / "llms.txt").write_text("\n".join([head, *titles(listed, 2)]) + "\n")


def titles(items: list[StructureItem], level: int) -> Iterator[str]:
    """List pages under the titles of their sections."""
    for item in items:
        if isinstance(item, Page):
            yield f"- [{item.title}]({item.url})"
        elif isinstance(item, Section):
            yield f"\n{'#' * level} {item.title}\n"
            yield from titles(item.children, level + 1)


def path_of_link(uri: str, link: str) -> str:
    """Return the path in the repository that a link of a page names."""
    path = PAGES.get(uri, f"notebooks/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def uri_of(path: str) -> str:
    """Return the page of the site that shows a file of the repository."""
    uris = {path: uri for uri, path in PAGES.items()}
    if path in uris:
        return uris[path]
    inside = path.removeprefix("notebooks/")
    return inside if inside != path else f"source/{path.lstrip('.')}.md"


def source(path: Path) -> str:
    """Return the page of a file of the repository, or of a folder."""
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        return title + "".join(f"- `{each.name}`\n" for each in sorted(path.glob("[!_]*")))
    language = "python" if path.suffix == ".py" else "text"
    return f"{title}`````{language}\n{path.read_text()}\n`````\n"


def python() -> str:
    """Return the page of the public names, whose texts mkdocstrings takes from the docstrings."""
    for verb in filter(isfunction, map(mercore.__getattr__, mercore.__all__)):
        vars(verb).pop("__wrapped__", None)  # else griffe describes the declaration of the verb
    names = [*(f"mercore.{name}" for name in mercore.__all__), OPENED]
    return PYTHON + "".join(f"\n::: {name}\n" for name in names)


def commands() -> str:
    """Return the page of all commands, in the sections of the help."""
    parts = [COMMANDS]
    for section in SECTIONS:
        parts.append(f"## {section}\n")
        for name, verb in main.commands.items():
            if isinstance(verb, VerbCommand) and verb.section == section:
                parts += command(name, verb)
    return "\n".join(parts)


def command(name: str, verb: VerbCommand) -> Iterator[str]:
    """Describe a command: its words, its text, its options, its examples."""
    context = verb.make_context(name, [], resilient_parsing=True)
    words = " ".join(["mercore", name, *verb.collect_usage_pieces(context)])
    yield f"### {name}\n\n```text\n{words}\n```\n"
    yield plain((verb.help or "").replace("{suffixes}", " ".join(SUFFIXES))) + "\n"
    if isinstance(verb, click.Group):
        yield f"Verbs: {', '.join(f'`{each}`' for each in verb.list_commands(context))}.\n"
    blocks: dict[str, list[str]] = {}
    for option in verb.params:
        record = option.get_help_record(context)
        if record and isinstance(option, click.Option):
            block = option.block if isinstance(option, BlockOption) else OPTIONS
            blocks.setdefault(block, []).append(f"`{record[0]}`\n:   {plain(record[1])}\n")
    for block, options in blocks.items():
        yield f"**{block}**\n\n" + "\n".join(options)
    if verb.examples:
        yield "**Examples**\n\n```sh\n" + "\n".join(verb.examples) + "\n```\n"


def plain(text: str) -> str:
    """Return a text as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_\[\]])", r"\\\1", escape(text, quote=False))


class Docstrings(Extension):
    """Texts of parameters stand behind the colon, where numpydoc expects a type.

    ``ArrayLike`` is a union of many types when the module is imported.
    """

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Move the text of each parameter into the line below its name."""
        if isinstance(obj.docstring, Docstring):
            obj.docstring.value = PARAMETER.sub(r"\1\n    \2", obj.docstring.value)
        if isinstance(obj, Function):
            for parameter in obj.parameters:
                if "_SupportsArray" in str(parameter.annotation):
                    parameter.annotation = "ArrayLike"
