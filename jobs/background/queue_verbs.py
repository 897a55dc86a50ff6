"""The verbs about jobs: ``jobs``, ``status``, ``logs``, ``wait``, ``cancel``, ``resume``, ``runner``."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from mercore.jobs.background.registry import Registry
from mercore.jobs.background.state_folder import State, open_state
from mercore.jobs.options import FINITE, as_json, echo_json

JOB = click.argument("job")


@contextmanager
def _opened() -> Iterator[tuple[State, Registry]]:
    """Yield the state folder and its registry; a runner that a crash or a reboot ended is started again."""
    from mercore.jobs.background.runner import wake

    state = open_state()
    registry = state.registry()
    try:
        wake(state)
        yield state, registry
    finally:
        registry.close()


@click.command()
@click.option("--watch", is_flag=True, help="Draw the table anew every second, until Ctrl-C.")
@as_json
def jobs(*, watch: bool, json: bool) -> None:
    """List the jobs: state, parts done, rate, time left, and where the store is."""
    from mercore.jobs.background.follow import watch_jobs
    from mercore.jobs.background.status import job_status, table

    if watch and json:
        raise click.UsageError("--watch draws for people: --json has no use beside it.")
    with _opened() as (state, registry):
        if watch:
            watch_jobs(state, registry)
            return
        reports = [job_status(state, job) for job in registry.jobs()]
        echo_json(reports) if json else click.echo("\n".join(table(reports)))


@click.command()
@JOB
@as_json
def status(job: str, *, json: bool) -> None:
    """Say how JOB stands, why, and what it took so far; JOB is an id, or as much of one as no other begins with."""
    from mercore.jobs.background.status import chosen_job, job_status, tell

    with _opened() as (state, registry):
        report = job_status(state, chosen_job(registry, job))
        echo_json(report) if json else tell(report)


@click.command()
@JOB
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job ends.")
@as_json
def logs(job: str, *, follow: bool, json: bool) -> None:
    """Print what the runs of JOB wrote to stderr."""
    from mercore.jobs.background.follow import log_lines
    from mercore.jobs.background.status import chosen_job

    with _opened() as (state, registry):
        lines = log_lines(state, registry, chosen_job(registry, job).id, follow=follow)
        if json:
            echo_json(list(lines))
        else:
            for line in lines:
                click.echo(line)


@click.command()
@JOB
@click.option("--timeout", type=FINITE, metavar="SECONDS", help="Give up after so long, with exit code 3.")
@as_json
def wait(job: str, *, timeout: float | None, json: bool) -> None:
    """Wait until JOB ends; exit with its exit code."""
    from mercore.jobs.background.follow import wait_for
    from mercore.jobs.background.status import chosen_job, job_status

    with _opened() as (state, registry):
        ended, code = wait_for(state, registry, chosen_job(registry, job).id, timeout)
        report = job_status(state, ended)
        if json:
            echo_json(report)
        else:
            click.echo(f"{ended.id} {report['state']}" + (f": {report['why']}" if report["why"] else ""), err=True)
    sys.exit(code)


@click.command()
@JOB
@as_json
def cancel(job: str, *, json: bool) -> None:
    """End JOB, or take it out of the queue; what it did stays, and resume goes on from there."""
    from mercore.jobs.background.control import cancel_job
    from mercore.jobs.background.status import chosen_job, job_status

    with _opened() as (state, registry):
        after = cancel_job(state, registry, chosen_job(registry, job))
        echo_json(job_status(state, after)) if json else click.echo(f"{after.id} {after.state}", err=True)


@click.command()
@JOB
@as_json
def resume(job: str, *, json: bool) -> None:
    """Queue JOB again: what it did is checked, and only what is missing or wrong done again."""
    from mercore.jobs.background.control import resume_job
    from mercore.jobs.background.status import chosen_job, job_status

    with _opened() as (state, registry):
        after = resume_job(state, registry, chosen_job(registry, job))
        echo_json(job_status(state, after)) if json else click.echo(f"{after.id} {after.state}", err=True)


@click.command()
@click.option("--concurrent", type=click.IntRange(min=1), help="Run so many jobs at once, from now on. [default: 1]")
def runner(*, concurrent: int | None) -> None:
    """Drain the queue here until it is empty: for service managers; every other verb starts a runner by itself."""
    from mercore.jobs.background.runner import CONCURRENT, drain

    state = open_state()
    if concurrent is not None:
        registry = state.registry()
        registry.set(CONCURRENT, concurrent)
        registry.close()
    if not drain(state):
        click.echo("another runner drains the queue already", err=True)


VERBS = (jobs, status, logs, wait, cancel, resume, runner)
