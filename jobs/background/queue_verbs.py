"""The verbs about jobs: ``jobs status logs wait cancel resume runner``."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

import click
from click.shell_completion import CompletionItem

from mercore.jobs.background.job_spec import shown, stays_done
from mercore.jobs.background.registry import QUEUED, RUNNING, Job, Registry
from mercore.jobs.background.state_folder import StateFolder, open_state, state_folder
from mercore.jobs.help import JOBS, VerbCommand
from mercore.jobs.notices import echo, printable
from mercore.jobs.options import FINITE, Completions, as_json, echo_json
from mercore.stores.errors import MercoreError, counted


def complete_jobs(_: click.Context, __: click.Parameter, incomplete: str) -> Completions:
    """Return the jobs whose ids begin so, the latest first; none if the registry cannot be read."""
    folder = StateFolder(state_folder())
    with suppress(MercoreError, OSError, ValueError):
        if folder.registry_file.is_file():
            registry = folder.registry()
            found = registry.find(incomplete)
            registry.close()
            return [
                CompletionItem(each.id, help=printable(f"{each.state}: {shown(each.words)}"))
                for each in reversed(found)
            ]
    return []


JOB = click.argument("job", shell_complete=complete_jobs)
JOBS_NAMED = click.argument(
    "names", metavar="JOB…", nargs=-1, required=True, shell_complete=complete_jobs
)


def _verb(*examples: str) -> Callable[[Callable[..., None]], VerbCommand]:
    """Return the decorator that makes a function a verb about jobs."""
    return click.command(cls=VerbCommand, section=JOBS, examples=examples)


@contextmanager
def _opened() -> Iterator[tuple[StateFolder, Registry]]:
    """Yield the state folder and its registry, once a runner is started if one is needed."""
    from mercore.jobs.background.runner import start_runner

    folder = open_state()
    registry = folder.registry()
    try:
        start_runner(folder)
        yield folder, registry
    finally:
        registry.close()


def _print_states(folder: StateFolder, jobs: Sequence[Job], *, as_json: bool) -> None:
    """Print the states of jobs on stderr, or their statuses as JSON: a list unless it is one."""
    from mercore.jobs.background.job_printing import print_outcome
    from mercore.jobs.background.status import job_status

    reports = [job_status(folder, job) for job in jobs]
    if as_json:
        echo_json(reports[0] if len(reports) == 1 else reports)
        return
    for report in reports:
        print_outcome(report)


@_verb("mercore jobs", "mercore jobs --watch", "mercore jobs --prune --older-than 7")
@click.option("--watch", is_flag=True, help="Redraw the table every second, until Ctrl-C.")
@click.option("--prune", is_flag=True, help="Forget the jobs that have ended, with their logs.")
@click.option(
    "--older-than",
    type=FINITE,
    metavar="DAYS",
    help="With --prune: only jobs that ended so long ago.",
)
@as_json
def jobs(*, watch: bool, prune: bool, older_than: float | None, json: bool) -> None:
    """List all jobs: state, progress, age, duration, output, and why a job failed.

    --prune forgets jobs; the files that they wrote stay.
    """
    from mercore.jobs.background.follow import watch_jobs
    from mercore.jobs.background.job_printing import print_jobs
    from mercore.jobs.background.status import job_status

    if watch and (json or prune):
        raise click.UsageError(
            "--watch draws for people: --json and --prune have no use beside it."
        )
    if older_than is not None and not prune:
        raise click.UsageError("--older-than has no use without --prune.")
    with _opened() as (folder, registry):
        if watch:
            watch_jobs(folder, registry)
            return
        if prune:
            _prune(folder, registry, older_than or 0, as_json=json)
            return
        reports = [job_status(folder, job) for job in registry.jobs()]
        echo_json(reports) if json else print_jobs(reports)


@_verb("mercore status encode-3f", "mercore status encode-3f --json")
@JOB
@as_json
def status(job: str, *, json: bool) -> None:
    """Print the status of JOB: its state and the reason, its progress, and the memory that it took.

    JOB is an id, or the beginning of only one id.
    """
    from mercore.jobs.background.job_printing import print_status
    from mercore.jobs.background.status import find_job, job_status

    with _opened() as (folder, registry):
        report = job_status(folder, find_job(registry, job))
        echo_json(report) if json else print_status(report)


@_verb("mercore logs encode-3f", "mercore logs -f encode-3f")
@JOB
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job ends.")
@as_json
def logs(job: str, *, follow: bool, json: bool) -> None:
    """Print the log of JOB: begin, stderr, end and figures of each of its runs."""
    from mercore.jobs.background.follow import log_lines
    from mercore.jobs.background.status import find_job

    with _opened() as (folder, registry):
        lines = log_lines(folder, registry, find_job(registry, job).id, follow=follow)
        if json:
            echo_json(list(lines))
        else:
            for line in lines:
                echo(line)


@_verb("mercore wait encode-3f && echo done", "mercore wait encode-3f search-a --timeout 3600")
@click.argument("names", metavar="[JOB…]", nargs=-1, shell_complete=complete_jobs)
@click.option("--timeout", type=FINITE, metavar="SECONDS", help="Give up then, with exit code 3.")
@as_json
def wait(names: tuple[str, ...], *, timeout: float | None, json: bool) -> None:
    """Wait until each JOB ends, or all jobs, then exit with the first exit code that is not 0."""
    from mercore.jobs.background.follow import wait_for

    give_up = None if timeout is None else time.monotonic() + timeout
    with _opened() as (folder, registry):
        waited = _named(registry, names) if names else registry.jobs(QUEUED, RUNNING)
        ended = [wait_for(folder, registry, job.id, give_up) for job in waited]
        _print_states(folder, [job for job, _ in ended], as_json=json)
    sys.exit(next((code for _, code in ended if code), 0))


@_verb("mercore cancel encode-3f", "mercore cancel encode-3f search-a --json")
@JOBS_NAMED
@as_json
def cancel(names: tuple[str, ...], *, json: bool) -> None:
    """Cancel each JOB, queued or running, and the jobs that wait for its output.

    Finished parts are kept; mercore resume does the others.
    """
    from mercore.jobs.background.control import cancel_jobs

    with _opened() as (folder, registry):
        cancelled = cancel_jobs(folder, registry, _named(registry, names))
        _print_states(folder, cancelled, as_json=json)


@_verb("mercore resume encode-3f", "mercore resume encode-3f search-a --json")
@JOBS_NAMED
@as_json
@click.pass_context
def resume(context: click.Context, names: tuple[str, ...], *, json: bool) -> None:
    """Queue each JOB again. It checks finished parts and does only missing or wrong ones again.

    What is written once, such as the hits of a search, stays done while its files exist.
    """
    from mercore.jobs.background.control import resume_jobs

    verbs = cast("click.Group", context.find_root().command).commands
    with _opened() as (folder, registry):
        jobs = _named(registry, names)
        resumed = resume_jobs(folder, registry, jobs, lambda job: stays_done(verbs, job))
        _print_states(folder, resumed, as_json=json)


def _named(registry: Registry, names: Sequence[str]) -> list[Job]:
    """Return the jobs of ids or of their beginnings, each once."""
    from mercore.jobs.background.status import find_job

    found = [find_job(registry, name) for name in names]
    return list({job.id: job for job in found}.values())


def _prune(folder: StateFolder, registry: Registry, days: float, *, as_json: bool) -> None:
    """Forget ended jobs, and print how many, or their ids as JSON."""
    from mercore.jobs.background.prune import prune_jobs

    forgotten = prune_jobs(folder, registry, days)
    if as_json:
        echo_json({"forgotten": forgotten})
    else:
        echo(f"{counted(len(forgotten), 'job')} forgotten", err=True)


@_verb("mercore runner", "mercore runner --concurrent 2")
@click.option(
    "--concurrent",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run up to N jobs at once, from now on. [default: 1]",
)
def runner(*, concurrent: int | None) -> None:
    """Run the queued jobs in this process until none is left.

    This is for service managers: every other verb starts a runner of its own if jobs are queued.
    """
    from mercore.jobs.background.runner import CONCURRENT, drain

    folder = open_state()
    if concurrent is not None:
        registry = folder.registry()
        registry.set(CONCURRENT, concurrent)
        registry.close()
    if not drain(folder):
        echo("another runner drains the queue already", err=True)


VERBS = (jobs, status, logs, wait, cancel, resume, runner)
