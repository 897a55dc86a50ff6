"""The verbs about jobs: ``jobs status logs wait cancel resume runner``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from mercore.jobs.background.registry import Job, Registry
from mercore.jobs.background.state_folder import StateFolder, open_state
from mercore.jobs.options import FINITE, as_json, echo_json

JOB = click.argument("job")


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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
@JOB
@as_json
def cancel(job: str, *, json: bool) -> None:
    """Cancel JOB, queued or running. Finished parts are kept; mercore resume does the others."""
    from mercore.jobs.background.control import cancel_job
    from mercore.jobs.background.status import find_job

    with _opened() as (folder, registry):
        _print_state(folder, cancel_job(folder, registry, find_job(registry, job)), as_json=json)


@click.command()
@JOB
@as_json
def resume(job: str, *, json: bool) -> None:
    """Queue JOB again. It checks the finished parts and does only missing or wrong ones again."""
    from mercore.jobs.background.control import resume_job
    from mercore.jobs.background.status import find_job

    with _opened() as (folder, registry):
        _print_state(folder, resume_job(folder, registry, find_job(registry, job)), as_json=json)


@click.command()
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
