"""The two references of the site, made of the commands and of the docstrings."""

import re
from collections.abc import Iterator
from html import escape
from inspect import isfunction

import click
from griffe import Docstring, Extension, Function, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import mercore
from mercore.jobs.cli import main
from mercore.jobs.help import OPTIONS, SECTIONS, BlockOption, VerbCommand
from mercore.stores.formats import suffixes

PARAMETER = re.compile(r"^(\w[\w, ]*) : (.+(?:\n +.+)*)$", re.MULTILINE)
PYTHON = """# Python

[The guide](../guide/python.md) says how these go together. The options mean what they mean to
[the commands](commands.md).
"""
OPENED = "mercore.jobs.session.open_store.OpenStore"  # what mercore.open returns
COMMANDS = """# Commands

The text of `mercore VERB --help`. Every verb also takes `-h` or `--help`.
"""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages of the references."""
    for name, text in (("commands", commands()), ("python", python())):
        files.append(File.generated(config, f"reference/{name}.md", content=text))


def on_page_content(html: str, page: Page, **_: object) -> None:
    """Refuse signatures that say how the command line reads a parameter."""
    if "Annotated[" in html:
        raise PluginError(f"{page.file.src_uri} shows the declaration of a verb")


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
    yield plain((verb.help or "").replace("{suffixes}", " ".join(suffixes()))) + "\n"
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
    """What griffe takes for something else in modules that it imports.

    Texts of parameters stand behind the colon, where numpydoc expects a type, and several may share
    one. ``ArrayLike`` is a union of many types by then, and a constant has the text of its type.
    """

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Mend the docstring of an object, and the types of its parameters."""
        if obj.is_attribute and "property" not in obj.labels:
            obj.docstring = None
        if isinstance(obj.docstring, Docstring):
            obj.docstring.value = PARAMETER.sub(one_by_one, obj.docstring.value)
        if isinstance(obj, Function):
            for parameter in obj.parameters:
                if "_SupportsArray" in str(parameter.annotation):
                    parameter.annotation = "ArrayLike"


def one_by_one(found: re.Match[str]) -> str:
    """Return parameters that share a text as numpydoc has them, each above the text."""
    return "\n".join(f"{name}\n    {found[2]}" for name in found[1].split(", "))
