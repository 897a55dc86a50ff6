"""The verbs about jobs: ``jobs status logs wait cancel resume runner``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click
from click.shell_completion import CompletionItem

from mercore.jobs.background.job_spec import shown
from mercore.jobs.background.registry import Job, Registry
from mercore.jobs.background.state_folder import StateFolder, open_state, state_folder
from mercore.jobs.help import JOBS, VerbCommand
from mercore.jobs.options import FINITE, Completions, as_json, echo_json
from mercore.stores.errors import MercoreError


def complete_jobs(_: click.Context, __: click.Parameter, incomplete: str) -> Completions:
    """Return the jobs whose ids begin so, the latest first; none if the registry cannot be read."""
    folder = StateFolder(state_folder())
    with suppress(MercoreError, OSError, ValueError):
        if folder.registry_file.is_file():
            registry = folder.registry()
            found = registry.find(incomplete)
            registry.close()
            return [
                CompletionItem(each.id, help=f"{each.state}: {shown(each.words)}")
                for each in reversed(found)
            ]
    return []


JOB = click.argument("job", shell_complete=complete_jobs)


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


def _print_state(folder: StateFolder, job: Job, *, as_json: bool) -> None:
    """Print the state of a job on stderr, or its status as JSON."""
    from mercore.jobs.background.status import job_status

    if as_json:
        echo_json(job_status(folder, job))
    else:
        click.echo(f"{job.id} {job.state}", err=True)


@_verb("mercore jobs", "mercore jobs --watch")
@click.option("--watch", is_flag=True, help="Redraw the table every second, until Ctrl-C.")
@as_json
def jobs(*, watch: bool, json: bool) -> None:
    """List all jobs: state, parts done, rate, time left, and the path that each job writes."""
    from mercore.jobs.background.follow import watch_jobs
    from mercore.jobs.background.status import job_status
    from mercore.jobs.printing import print_jobs

    if watch and json:
        raise click.UsageError("--watch draws for people: --json has no use beside it.")
    with _opened() as (folder, registry):
        if watch:
            watch_jobs(folder, registry)
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
    from mercore.jobs.background.status import find_job, job_status
    from mercore.jobs.printing import print_status

    with _opened() as (folder, registry):
        report = job_status(folder, find_job(registry, job))
        echo_json(report) if json else print_status(report)


@_verb("mercore logs encode-3f", "mercore logs -f encode-3f")
@JOB
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job ends.")
@as_json
def logs(job: str, *, follow: bool, json: bool) -> None:
    """Print the log of JOB: the stderr of all its runs."""
    from mercore.jobs.background.follow import log_lines
    from mercore.jobs.background.status import find_job

    with _opened() as (folder, registry):
        lines = log_lines(folder, registry, find_job(registry, job).id, follow=follow)
        if json:
            echo_json(list(lines))
        else:
            for line in lines:
                click.echo(line)


@_verb("mercore wait encode-3f && echo done", "mercore wait encode-3f --timeout 3600")
@JOB
@click.option("--timeout", type=FINITE, metavar="SECONDS", help="Give up then, with exit code 3.")
@as_json
def wait(job: str, *, timeout: float | None, json: bool) -> None:
    """Wait until JOB ends, then exit with its exit code."""
    from mercore.jobs.background.follow import wait_for
    from mercore.jobs.background.status import find_job, job_status

    with _opened() as (folder, registry):
        ended, code = wait_for(folder, registry, find_job(registry, job).id, timeout)
        report = job_status(folder, ended)
        if json:
            echo_json(report)
        else:
            why = f": {report['why']}" if report["why"] else ""
            click.echo(f"{ended.id} {report['state']}{why}", err=True)
    sys.exit(code)


@_verb("mercore cancel encode-3f", "mercore cancel encode-3f --json")
@JOB
@as_json
def cancel(job: str, *, json: bool) -> None:
    """Cancel JOB, queued or running. Finished parts are kept; mercore resume does the others."""
    from mercore.jobs.background.control import cancel_job
    from mercore.jobs.background.status import find_job

    with _opened() as (folder, registry):
        _print_state(folder, cancel_job(folder, registry, find_job(registry, job)), as_json=json)


@_verb("mercore resume encode-3f", "mercore resume encode-3f --json")
@JOB
@as_json
def resume(job: str, *, json: bool) -> None:
    """Queue JOB again. It checks the finished parts and does only missing or wrong ones again."""
    from mercore.jobs.background.control import resume_job
    from mercore.jobs.background.status import find_job

    with _opened() as (folder, registry):
        _print_state(folder, resume_job(folder, registry, find_job(registry, job)), as_json=json)


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
        click.echo("another runner drains the queue already", err=True)


VERBS = (jobs, status, logs, wait, cancel, resume, runner)
