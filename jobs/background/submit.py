"""``mercore submit``: verbs that may take long, queued as jobs that run in the background."""

import time
from collections.abc import Sequence
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from mercore.jobs.background.job_spec import (
    given_options,
    job_id,
    shown,
    sources_of,
    stays_done,
    words_in,
    words_of,
    written_by,
)
from mercore.jobs.background.registry import ENDED, QUEUED, RUNNING, Job, JobSpec, Registry
from mercore.jobs.background.runner import CONCURRENT, start_runner
from mercore.jobs.background.state_folder import open_state
from mercore.jobs.face.commands import call_of
from mercore.jobs.face.declaring import VERBS
from mercore.jobs.help import JOBS, VerbCommand, VerbGroup, examples_under, sentence_of
from mercore.jobs.options import Completions, as_json, echo_json
from mercore.stores.errors import InputError, NotFoundError
from mercore.stores.wording import option, setting

BASE = "mercore.jobs.background.submit.base"  # click's key of the folder for relative paths


class Submit(VerbGroup):
    """The verbs that can be submitted; a TOML file with a verb and its options may replace one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb and its words; read them from a file if the first word names one."""
        if args[0].endswith(".toml") and not ctx.resilient_parsing:
            if len(args) > 1:
                raise InputError(
                    f"{args[1]} has no use here: {args[0]} states the job. Fix: put it into the "
                    "file, or leave it out."
                )
            ctx.meta[BASE] = Path(args[0]).absolute().parent
            args = words_in(args[0], self.commands)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Completions:
        """Return the verbs that begin so; files are completed if there is none."""
        file: Completions = [CompletionItem(incomplete, type="file")]
        return [*file, *super().shell_complete(ctx, incomplete)]


def submit_group(verbs: Sequence[click.Command]) -> click.Group:
    """Return the group ``submit``, with one command per verb and the options of that verb."""

    @click.group(
        cls=Submit,
        short_help="Queue a verb as a job, and return its id at once.",
        section=JOBS,
        examples=(
            "mercore submit encode base.zarr codes.zarr --kernel chi2",
            "mercore submit --concurrent 2 job.toml",
        ),
        subcommand_metavar="VERB|FILE.toml …",
    )
    @click.option(
        "--concurrent",
        type=click.IntRange(min=1),
        help="Run up to this many jobs at once from now on.",
    )
    @as_json
    def submit(*, concurrent: int | None, json: bool) -> None:
        """Queue a verb as a job and print the job's id; FILE.toml holds a verb and its options.

        Jobs run in the background, one at a time unless --concurrent sets another number. The same
        verb with the same options is the same job: submitting it again resumes it.
        """

    for verb in verbs:
        submit.add_command(_submitting(verb))
    return submit


def _submitting(verb: click.Command) -> click.Command:
    """Return the command that submits a verb."""

    @click.pass_context
    def callback(context: click.Context, /, **_: Any) -> None:  # noqa: ANN401
        settings = context.parent.params if context.parent else {}
        given = given_options(context, context.meta.get(BASE, Path.cwd()))
        state = open_state()
        registry = state.registry()
        spec, name = job_spec(verb, given), job_id(str(verb.name), given)
        before = next(iter(registry.find(name)), None)
        stays = before and (before.state not in ENDED or stays_done({str(verb.name): verb}, before))
        if before and stays and not given.get("force"):
            job = before
        else:
            check, now = partial(_check, verb, {**context.params, **given}, registry), time.time()
            check()
            job, before = registry.submit(name, spec, checked=now, check=check)
        if settings["concurrent"] is not None:
            registry.set(CONCURRENT, settings["concurrent"])
        registry.close()
        state.make_folder(job.id)
        start_runner(state)
        _print(job, before, as_json=settings["json"])

    parameters = [parameter for parameter in verb.params if parameter.name not in ("json", "every")]
    return VerbCommand(
        verb.name,
        params=parameters,
        callback=callback,
        help=f"Queue mercore {verb.name} as a job, with the same arguments and options.\n\n"
        f"{cleandoc(verb.help or '')}",
        short_help=sentence_of(verb),
        examples=examples_under("submit", verb),
    )


def job_spec(verb: click.Command, options: dict[str, Any]) -> JobSpec:
    """Return the entry of a job in the registry."""
    target = next(iter(written_by(verb, options)), None)
    return JobSpec(
        str(verb.name), options, words_of(verb, options), target, sources_of(verb, options)
    )


def _check(verb: click.Command, options: dict[str, Any], registry: Registry) -> None:
    """Refuse a job that could not run, or would exceed its ``--memory`` or the free disk.

    If queued jobs are to write a source of it, only the checks that need no source are made.
    """
    name = str(verb.name)
    if name == "search" and not options.get("out"):
        raise InputError(
            f"a submitted search has no terminal to print to: expected {option('out')}. Fix: "
            f"{setting(out='hits.npz')}"
        )
    if options.get("again"):
        raise InputError(
            "append --again cannot be queued: a job that is killed runs once more, and would add "
            "the rows twice. Fix: run mercore append --again itself."
        )
    from mercore.stores.location.resolve import location_of

    to_come = {job.target for job in registry.jobs(QUEUED, RUNNING)}
    sources, call = sources_of(verb, options), call_of(VERBS[name], options)
    if to_come.isdisjoint(sources):
        call.task().check_limits()
        return
    if call.options is not None:
        call.options.check()
        for path in written_by(verb, options)[:1]:
            call.options.check_path(path)
    for path in sources:
        if path not in to_come and not location_of(path).exists():
            raise NotFoundError(
                f"{path} does not exist: expected a source of {name}. Fix: check the path."
            )


def _print(job: Job, before: Job | None, *, as_json: bool) -> None:
    """Print the id of a job, and whether it is queued."""
    report = {
        "id": job.id,
        "state": job.state,
        "before": before.state if before else None,
        "words": job.words,
    }
    if as_json:
        echo_json(report)
        return
    from mercore.jobs.background.job_printing import print_submitted

    print_submitted(
        report, shown(job.words), queued=before != job, why=before.why if before else ""
    )
