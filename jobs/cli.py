"""The command line: the verbs that ``api.py`` declares, and those without a Python function.

Heavy imports wait until a verb runs.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

from mercore.jobs import api
from mercore.jobs.background import queue_verbs
from mercore.jobs.background.runner import start_runner_quietly
from mercore.jobs.background.submit import submit_group
from mercore.jobs.face.commands import command_of
from mercore.jobs.face.declaring import VERBS
from mercore.jobs.face.group import Verbs
from mercore.jobs.help import DATA, completion
from mercore.jobs.notices import print_notices
from mercore.jobs.options import WRITTEN, KernelName, as_json, echo_json
from mercore.jobs.planning.plan_verb import plan_of
from mercore.jobs.resources.malloc import keep_freed_blocks
from mercore.jobs.verbs.catalogue import encoders, kernels


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    subcommand_metavar="VERB …",
    epilog='Switch Tab completion on: eval "$(mercore completion bash)" (or zsh, fish).',
)
@click.version_option(None, "-V", "--version", package_name="mercore")
@click.pass_context
def main(context: click.Context) -> None:
    """Find kernel nearest neighbours in data larger than memory: encoded, streamed, proved."""
    if sys.stderr is None:  # the parent process closed it
        sys.stderr = context.with_resource(Path(os.devnull).open("w"))  # noqa: SIM115 - the context closes it
    print_notices()
    keep_freed_blocks()
    if context.invoked_subcommand not in ("runner", "completion"):
        start_runner_quietly()


for name in api.DECLARED:
    main.add_command(command_of(VERBS[name]))


@main.command(
    section=DATA,
    examples=(
        "mercore demo",
        "mercore demo --tiles 9000 --out photographs",
    ),
)
@click.option(
    "--out",
    type=WRITTEN,
    default="mercore-demo",
    show_default=True,
    help="Folder for the stores and the page.",
)
@click.option(
    "--kernel",
    type=KernelName(),
    default="chi2",
    show_default=True,
    help="A kernel for histograms.",
)
@click.option(
    "--atoms",
    type=int,
    help="Atoms of the dictionary. [default: 8192, or a quarter of fewer tiles]",
)
@click.option("--tiles", type=int, help="Number of tiles to keep. [default: all, over 100 000]")
@click.option("--force", is_flag=True, help="Replace the stores and the page of an earlier demo.")
@as_json
def demo(*, json: bool, **values: Any) -> None:  # noqa: ANN401 - the options of the command
    """Search real photographs: tiles, GIST, encode, search, and a page of results."""
    from mercore.jobs import printing
    from mercore.jobs.gallery import demo as demonstration

    report = demonstration.run(**values)
    echo_json(report) if json else printing.print_page(report)


for command in (
    plan_of(main),
    submit_group([main.commands[name] for name, verb in VERBS.items() if verb.queued]),
    *queue_verbs.VERBS,
    kernels,
    encoders,
    completion,
):
    main.add_command(command)
