"""The command line: verbs that parse, call the library, and print. Heavy imports wait until a verb runs."""

import errno
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from mercore.jobs.background import queue_verbs
from mercore.jobs.background.runner import start_runner_quietly
from mercore.jobs.background.submit import submit_group
from mercore.jobs.encoder_options import ENCODER
from mercore.jobs.notices import announce_first_use, print_notices
from mercore.jobs.options import (
    BATCH,
    FINITE,
    KERNEL,
    MEMORY,
    PROCESSES,
    READ,
    SCHEDULER,
    THREADS,
    WRITTEN,
    KernelName,
    as_json,
    echo_json,
)
from mercore.jobs.planning.plan_verb import plan_of
from mercore.jobs.resources.malloc import keep_freed_blocks
from mercore.stores.errors import ExistsError, FormatError, InputError, MercoreError, NotFoundError

COMPILING = ("encode", "search", "verify", "compare")  # verbs that run jitted functions for long
ANSWER_IS_NO, USAGE, INTERRUPTED = 1, 2, 130  # 130 is what shells say of a command that Ctrl-C ended
WRONG_INPUT = (InputError, NotFoundError, ExistsError, FormatError)
NOTHING = re.compile(r"(--[a-z-]+=)?")


class Verbs(click.Group):
    """A group whose verbs end in one paragraph, not in a traceback, when mercore refuses."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse words without letters, which would be taken for options that are not given."""
        if any(NOTHING.fullmatch(word) for word in args):
            raise click.UsageError("a word of the command is empty, as a shell variable is that is not set.", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click declares it
        """Run the verb; errors of the library go to stderr, with exit code 2 for bad input and 1 for all else."""
        try:
            return super().invoke(ctx)
        except MercoreError as error:
            click.echo(f"mercore: {error}", err=True)
            ctx.exit(USAGE if isinstance(error, WRONG_INPUT) else ANSWER_IS_NO)
        except OSError as error:  # of stdout, which has no name
            if error.errno == errno.EPIPE or error.filename is not None:
                raise
            click.echo(f"mercore: cannot write the answer: {error.strerror}. Fix: free space, or use --out.", err=True)
            ctx.exit(ANSWER_IS_NO)
        except KeyboardInterrupt:
            click.echo(
                "mercore: interrupted. Fix: run the same command again; encode keeps the parts it did.", err=True
            )
            ctx.exit(INTERRUPTED)


def _run(verb: str, values: dict[str, object]) -> Any:  # noqa: ANN401 - each verb has its own result
    """Open a verb with the arguments and options of its command line, run it, and return its result."""
    if verb in COMPILING:
        announce_first_use()
    from mercore.jobs.verbs.registry import open_task

    names = [str(each.name) for each in main.commands[verb].params if isinstance(each, click.Argument)]
    arguments = [str(values.pop(name)) for name in names]
    return open_task(verb, arguments, values).run()


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="mercore")
@click.pass_context
def main(context: click.Context) -> None:
    """Kernel nearest neighbours for data larger than memory: encoded, streamed, and proved exact."""
    if sys.stderr is None:  # who started the command closed it
        sys.stderr = context.with_resource(Path(os.devnull).open("w"))  # noqa: SIM115 - the context closes it
    print_notices()
    keep_freed_blocks()
    if context.invoked_subcommand != "runner":
        start_runner_quietly()


@main.command()
@click.argument("source", type=READ)
@click.argument("store", type=WRITTEN)
@click.option("--drop-zero-rows", is_flag=True, help="Leave all-zero rows out; the others keep their ids.")
@click.option(
    "--compressor",
    default="none",
    show_default=True,
    help="none, zstd, blosc, gzip, lz4, bz2 or lzma; zstd:9 sets a level.",
)
@as_json
def ingest(*, json: bool, **values: object) -> None:
    """Copy SOURCE (.bvecs .fvecs .ivecs .u8bin .fbin .ibin .npy or a 2-D Zarr array) into the vector store STORE."""
    from mercore.jobs import printing

    report = _run("ingest", values)
    echo_json(report) if json else printing.print_report(report)


@main.command()
@click.argument("vectors", type=READ)
@click.argument("codes", type=WRITTEN)
@KERNEL(required=True)
@ENCODER
@click.option(
    "--part-rows", type=int, help="Rows of a part, the unit of work and of resumption. [default: about a 64th]"
)
@click.option(
    "--compressor",
    default="none",
    show_default=True,
    help="none, zstd, blosc, gzip, lz4, bz2 or lzma; zstd:9 sets a level.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Threads of this machine. [default: its cores]")
@PROCESSES
@SCHEDULER
@MEMORY
@as_json
def encode(*, json: bool, **values: object) -> None:
    """Encode the vector store VECTORS into the code store CODES; run it again to resume."""
    from mercore.jobs import printing

    report = _run("encode", values)
    echo_json(report) if json else printing.print_report(report)


@main.command()
@click.argument("store", type=READ)
@click.argument("queries", type=READ)
@click.option("-k", type=int, default=100, show_default=True, help="Neighbours a query.")
@click.option("--rerank", type=int, metavar="R", help="Re-score the R best codes by the true kernel.")
@click.option("--exact", is_flag=True, help="Find the true k nearest and prove it. STORE: bounds, or vectors.")
@click.option(
    "--relaxed",
    type=FINITE,
    metavar="P",
    help="Search as --exact does, by bounds that hold for a share P of near pairs: approximate, and faster.",
)
@click.option(
    "--vectors",
    type=READ,
    metavar="STORE",
    help="Where the encoded vectors lie now, if they moved. For --rerank, --exact.",
)
@KERNEL(required=False)
@BATCH
@THREADS
@PROCESSES
@SCHEDULER
@MEMORY
@click.option(
    "--out",
    type=WRITTEN,
    metavar="HITS",
    help="Write .npz, .parquet, .ivecs (+ .fvecs scores) or .ibin instead of printing.",
)
@as_json
def search(*, json: bool, **values: object) -> None:
    """Find the k nearest rows of STORE for each of QUERIES.

    STORE is a code store (approximate scores, or true ones with --rerank) or a vector store (every row by the true
    kernel; then --kernel is needed). Prints query, rank, id and score unless --out names a file.
    """
    from mercore.jobs import printing

    report, hits = _run("search", values)
    if json:
        echo_json(report if values["out"] else {**report, **printing.hits_json(hits)})
    else:
        printing.print_search(report, hits)


@main.command()
@click.argument("vectors", type=READ)
@click.argument("queries", type=READ)
@click.argument("hits", type=READ)
@KERNEL(required=True)
@click.option(
    "--bounds", type=READ, metavar="STORE", help="Bounds of the vectors: far faster than the true kernel of every row."
)
@click.option("-k", type=int, help="Verify the first k of each query. [default: all]")
@BATCH
@THREADS
@PROCESSES
@SCHEDULER
@MEMORY
@as_json
def verify(*, json: bool, **values: object) -> None:
    """Prove or refute that HITS are the true nearest rows of VECTORS for each of QUERIES, in order; exit 1 if refuted.

    HITS are anyone's: .ivecs, big-ann's .ibin, .npz or .parquet. A query is proved, tied (right, but others would be,
    for their scores tie), or refuted: then the first wrong rank, the id that belongs there, and its score.
    """
    from mercore.jobs import printing

    report = _run("verify", values)
    echo_json(report) if json else printing.print_verdicts(report)
    if report["refuted"]:
        sys.exit(ANSWER_IS_NO)


@main.command()
@click.argument("hits", type=READ)
@click.argument("truth", type=READ)
@click.option("--ranks", help="Ranks to report, with commas. [default: those of 1,10,100,1000 that the files hold]")
@click.option(
    "--vectors", type=READ, metavar="STORE", help="Re-score the hits by the true kernel, for tie-aware recall."
)
@click.option("--queries", type=READ, metavar="FILE", help="The queries of the hits, for --vectors.")
@KERNEL(required=False)
@as_json
def evaluate(*, json: bool, **values: object) -> None:
    """Compare HITS with TRUTH by each definition of recall in use, each named."""
    from mercore.jobs import printing

    report = _run("evaluate", values)
    echo_json(report) if json else printing.print_evaluation(report)


@main.command()
@click.argument("store", type=READ)
@as_json
def info(*, json: bool, **values: object) -> None:
    """Say what STORE is: a vector store, a code store, or a file of a foreign format."""
    from mercore.jobs import printing

    report = _run("info", values)
    echo_json(report) if json else printing.print_report(report)


@main.command()
@click.argument("store", type=READ)
@as_json
def check(*, json: bool, **values: object) -> None:
    """Read every byte of STORE against its receipts; exit 1 if anything is missing or wrong."""
    from mercore.jobs import printing

    report = _run("check", values)
    echo_json(report) if json else printing.print_check(report)
    if report["faults"]:
        sys.exit(ANSWER_IS_NO)


@main.command()
@click.argument("codes", type=READ)
@click.argument("index", type=WRITTEN)
@click.option("--queries", type=READ, metavar="FILE", help="Rows whose coordinates --points is to hold.")
@click.option(
    "--points", type=WRITTEN, metavar="NPY", help="Write the queries' coordinates, which the index is searched with."
)
@click.option("--kernel", metavar="FILE.py", help="The file of your own kernel, where CODES are of one.")
@as_json
def export(*, json: bool, **values: object) -> None:
    """Write CODES of kpca-pq or pq as INDEX, an IndexPQ of faiss."""
    from mercore.jobs import printing

    report = _run("export", values)
    echo_json(report) if json else printing.print_report(report)


@main.command()
@click.argument("vectors", type=READ)
@click.argument("queries", type=READ)
@click.option(
    "--kernel",
    "kernels",
    type=KernelName(),
    multiple=True,
    required=True,
    help="As encode's; may be given several times.",
)
@click.option("--gamma", type=FINITE, help="γ of rbf and exp_chi2.")
@click.option("--transform", type=FINITE, metavar="S", help="Use exp(S (κ − 1)) of every kernel κ.")
@click.option(
    "--encoder",
    "encoders",
    multiple=True,
    required=True,
    metavar="SPEC",
    help="A name, or with encode's options as kpca-pq:landmarks=512,components=64; may be given several times.",
)
@click.option("--bytes", type=click.IntRange(min=1), help="Of every encoder the largest code of so many bytes a row.")
@click.option("--operations", type=click.IntRange(min=1), help="Codes of the work of so many look-ups a row.")
@click.option("--seeds", type=int, default=1, show_default=True, help="Runs of every encoder: random states 0, 1, …")
@click.option("--ranks", help="Ranks to report, with commas. [default: those of 1,10,100,1000 that the rows allow]")
@click.option("--rerank", type=int, metavar="R", help="Also re-score the R best codes by the true kernel.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads that encode. [default: the cores]")
@THREADS
@MEMORY
@click.option(
    "--out",
    type=WRITTEN,
    metavar="FOLDER",
    help="Keep runs, truth and curves there; a run that is there is not done again.",
)
@as_json
def compare(*, json: bool, **values: object) -> None:
    """Compare encoders on VECTORS: recall@R over several seeds, bytes a row, and time.

    QUERIES are searched in the codes of every encoder, and by the true kernel in every row. Prints a table a kernel:
    recall@R, ns of searching a row for a query (its tables and the choice of the k best included), µs of encoding a row
    (fitting included). --out also keeps all figures in compare.json, and the curves in recall.png and recall.svg.
    """
    from mercore.jobs import printing

    report = _run("compare", values)
    echo_json(report) if json else printing.print_comparison(report)


@main.command()
@click.option("--out", default="mercore-demo", show_default=True, help="Folder for the stores and the page.")
@click.option("--kernel", default="chi2", show_default=True, help="Any kernel of histograms.")
@click.option("--atoms", type=int, default=8192, show_default=True, help="Dictionary size m.")
@click.option("--tiles", type=int, help="Keep only so many tiles. [default: all, over 100 000]")
@as_json
def demo(*, out: str, kernel: str, atoms: int, tiles: int | None, json: bool) -> None:
    """Search real photographs from end to end: tiles, GIST, encode, search, and a page to look at."""
    from mercore.jobs import printing
    from mercore.jobs.demo import demo as demonstration

    report = demonstration.run(out, kernel=kernel, atoms=atoms, tiles=tiles)
    echo_json(report) if json else printing.print_demo(report)


SUBMITTED = (ingest, encode, search, verify, compare, check, export)
for verb in (plan_of(main), submit_group(SUBMITTED), *queue_verbs.VERBS):
    main.add_command(verb)
