"""The help of verbs: sections, blocks of options, examples, and completion in a shell."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class

DATA, SEARCH, TRUTH, JOBS = "Data", "Search", "Truth", "Jobs"
SECTIONS = (DATA, SEARCH, TRUTH, JOBS)  # of verbs, in the order of a first use
OTHER = "Other"  # the section of verbs that name none
OPTIONS = "Options"

PROGRAM, VARIABLE = "mercore", "_MERCORE_COMPLETE"  # click's name of the variable
SHELLS = ("bash", "zsh", "fish")

HYPHEN_IN_WORD = re.compile(r"(?<=\w)-(?=\w)")
UNBROKEN = {" ": "\N{NO-BREAK SPACE}", "-": "\N{NON-BREAKING HYPHEN}"}
PLAIN = str.maketrans({unbroken: plain for plain, unbroken in UNBROKEN.items()})
SUFFIXES = "{suffixes}"  # stands for those of all formats in the help of a verb
Rows = Sequence[tuple[str, str]]  # terms and their explanations


class WholeWords(click.HelpFormatter):
    """A formatter that breaks no line at a hyphen, before a default, or in ``unbroken`` text."""

    def write_text(self, text: str) -> None:
        """Write paragraphs, with the suffixes of all formats where a text asks for them."""
        if SUFFIXES in text:
            from mercore.stores import formats  # Zarr takes a while to load

            text = text.replace(SUFFIXES, " ".join(formats.suffixes()))
        super().write_text(_with_whole_words(text))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms and their explanations in two columns."""
        whole = [(term, _with_whole_words(text)) for term, text in rows]
        super().write_dl(whole, col_max, col_spacing)

    def getvalue(self) -> str:
        """Return the help with plain spaces and hyphens."""
        return super().getvalue().translate(PLAIN)


class VerbContext(click.Context):
    """The context of a verb, whose help breaks no word."""

    formatter_class = WholeWords


class BlockOption(click.Option):
    """An option in a block of the help with a title of its own, or with a block about its values.

    ``values`` are the title of a block and its rows: one term and its explanation per value.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - as click declares it
        block: str = OPTIONS,
        values: tuple[str, Rows] | None = None,
        **attrs: Any,  # noqa: ANN401
    ) -> None:
        self.block, self.values = block, values
        super().__init__(*args, **attrs)


class VerbCommand(click.Command):
    """A verb with a section, and with examples at the end of its help."""

    context_class = VerbContext

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - as click declares it
        section: str | None = None,
        examples: Sequence[str] = (),
        **attrs: Any,  # noqa: ANN401
    ) -> None:
        self.section, self.examples = section, tuple(examples)
        super().__init__(*args, **attrs)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the blocks of options, and after the first one the blocks about values."""
        blocks: dict[str, list[tuple[str, str]]] = {OPTIONS: []}
        explained: dict[str, Rows] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is None or not isinstance(option, click.Option):
                continue
            block, values = OPTIONS, None
            if isinstance(option, BlockOption):
                block, values = option.block, option.values
            blocks.setdefault(block, []).append(record)
            explained |= dict([values] if values else [])
        _write_blocks(formatter, {OPTIONS: blocks.pop(OPTIONS), **explained, **blocks})

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the epilog."""
        if self.examples:
            with formatter.section("Examples"):
                for line in "\n".join(self.examples).splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class VerbGroup(VerbCommand, click.Group):
    """A group of verbs that lists them by section, each with one sentence."""

    command_class = VerbCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of their declaration."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options and the verbs."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of verbs; a group whose verbs name no section has one of all."""
        shown = {name: verb for name, verb in self.commands.items() if not verb.hidden}
        width = max(map(len, shown), default=0)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, verb in shown.items():
            section = getattr(verb, "section", None) or OTHER
            sections.setdefault(section, []).append((name.ljust(width), sentence_of(verb)))
        if list(sections) == [OTHER]:
            sections = {"Verbs": sections[OTHER]}
        ordered = {name: sections.pop(name) for name in SECTIONS if name in sections}
        _write_blocks(formatter, {**ordered, **sections})


def sentence_of(verb: click.Command) -> str:
    """Return the first sentence of a verb's help, however long."""
    return verb.get_short_help_str(sys.maxsize)


def examples_under(group: str, verb: click.Command) -> tuple[str, ...]:
    """Return the examples of a verb as examples of a group's verb of the same name."""
    examples = verb.examples if isinstance(verb, VerbCommand) else ()
    return tuple(each.replace("mercore", f"mercore {group}", 1) for each in examples)


def unbroken(words: str) -> str:
    """Return words between which the help breaks no line."""
    return words.replace(" ", UNBROKEN[" "])


def _with_whole_words(text: str) -> str:
    """Return a text in which no line breaks at a hyphen, nor right before a default."""
    return HYPHEN_IN_WORD.sub(UNBROKEN["-"], text).replace("[default: ", unbroken("[default: "))


def _write_blocks(formatter: click.HelpFormatter, blocks: dict[str, Rows]) -> None:
    """Write blocks of rows under their titles."""
    for title, rows in blocks.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


@click.command(
    cls=VerbCommand,
    hidden=True,  # the help's last line shows it
    examples=(
        'eval "$(mercore completion bash)"    # in ~/.bashrc',
        'eval "$(mercore completion zsh)"     # in ~/.zshrc, after compinit',
        "mercore completion fish | source     # in ~/.config/fish/config.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes the words of mercore with the Tab key.

    It completes verbs, options and their values, files, stores, kernels, encoders and job ids. One
    line switches it on, in one shell or in the file that every new shell reads.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source())
