"""``mercore completion``: the script that completes words in a shell."""

import click
from click.shell_completion import get_completion_class

from mercore.jobs.help import VerbCommand

PROGRAM, VARIABLE = "mercore", "_MERCORE_COMPLETE"  # click's name of the variable
SHELLS = ("bash", "zsh", "fish")


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
