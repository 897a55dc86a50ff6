"""The command line: verbs that parse, call the library, and print. Heavy imports wait until a verb runs."""

import errno
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from mercore.jobs.background import queue_verbs
from mercore.jobs.background.runner import wake_quietly
from mercore.jobs.background.submit import submit_group
from mercore.jobs.notices import print_notices
from mercore.jobs.options import (
    BATCH,
    ENCODER,
    FINITE,
    KERNEL,
    MEMORY,
    PROCESSES,
    SCHEDULER,
    THREADS,
    as_json,
    echo_json,
)
from mercore.jobs.planning.plan_verb import plan_of
from mercore.jobs.resources.malloc import keep_freed_blocks
from mercore.stores.errors import ExistsError, FormatError, InputError, MercoreError, NotFoundError

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
        wake_quietly()


@main.command()
@click.argument("source")
@click.argument("store")
@click.option("--drop-zero-rows", is_flag=True, help="Leave all-zero rows out; the others keep their ids.")
@click.option(
    "--compressor",
    default="none",
    show_default=True,
    help="none, zstd, blosc, gzip, lz4, bz2 or lzma; zstd:9 sets a level.",
)
@as_json
def ingest(source: str, store: str, *, drop_zero_rows: bool, compressor: str, json: bool) -> None:
    """Copy SOURCE (.bvecs .fvecs .ivecs .u8bin .fbin .ibin .npy or a 2-D Zarr array) into the vector store STORE."""
    from mercore.jobs import api, printing

    report = api.ingest(source, store, drop_zero_rows=drop_zero_rows, compressor=compressor)
    echo_json(report) if json else printing.tell_mapping(report)


@main.command()
@click.argument("vectors")
@click.argument("codes")
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
def encode(vectors: str, codes: str, *, json: bool, **options: Any) -> None:  # noqa: ANN401
    """Encode the vector store VECTORS into the code store CODES; run it again to resume."""
    from mercore.jobs import api, printing

    report = api.encode(vectors, codes, **options)
    echo_json(report) if json else printing.tell_mapping(report)


@main.command()
@click.argument("store")
@click.argument("queries")
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
    "--vectors", metavar="STORE", help="Where the encoded vectors lie now, if they moved. For --rerank, --exact."
)
@KERNEL(required=False)
@BATCH
@THREADS
@PROCESSES
@SCHEDULER
@MEMORY
@click.option(
    "--out", metavar="HITS", help="Write .npz, .parquet, .ivecs (+ .fvecs scores) or .ibin instead of printing."
)
@as_json
def search(store: str, queries: str, *, json: bool, **options: Any) -> None:  # noqa: ANN401
    """Find the k nearest rows of STORE for each of QUERIES.

    STORE is a code store (approximate scores, or true ones with --rerank) or a vector store (every row by the true
    kernel; then --kernel is needed). Prints query, rank, id and score unless --out names a file.
    """
    from mercore.jobs import api, printing

    report, hits = api.search(store, queries, **options)
    if json:
        echo_json(report if options["out"] else {**report, **api.hits_json(hits)})
    else:
        printing.tell_search(report, hits)


@main.command()
@click.argument("vectors")
@click.argument("queries")
@click.argument("hits")
@KERNEL(required=True)
@click.option("--bounds", metavar="STORE", help="Bounds of the vectors: far faster than the true kernel of every row.")
@click.option("-k", type=int, help="Verify the first k of each query. [default: all]")
@BATCH
@THREADS
@PROCESSES
@SCHEDULER
@MEMORY
@as_json
def verify(vectors: str, queries: str, hits: str, *, json: bool, **options: Any) -> None:  # noqa: ANN401
    """Prove or refute that HITS are the true nearest rows of VECTORS for each of QUERIES, in order; exit 1 if refuted.

    HITS are anyone's: .ivecs, big-ann's .ibin, .npz or .parquet. A query is proved, tied (right, but others would be,
    for their scores tie), or refuted: then the first wrong rank, the id that belongs there, and its score.
    """
    from mercore.jobs import api
    from mercore.jobs.verbs.verify import tell

    report = api.verify(vectors, queries, hits, **options)
    echo_json(report) if json else tell(report)
    if report["refuted"]:
        sys.exit(ANSWER_IS_NO)


@main.command()
@click.argument("hits")
@click.argument("truth")
@click.option("--ranks", help="Ranks to report, with commas. [default: those of 1,10,100,1000 that the files hold]")
@click.option("--vectors", metavar="STORE", help="Re-score the hits by the true kernel, for tie-aware recall.")
@click.option("--queries", metavar="FILE", help="The queries of the hits, for --vectors.")
@KERNEL(required=False)
@as_json
def evaluate(hits: str, truth: str, *, json: bool, **options: Any) -> None:  # noqa: ANN401
    """Compare HITS with TRUTH by each definition of recall in use, each named."""
    from mercore.jobs import api, printing

    report = api.evaluate(hits, truth, **options)
    echo_json(report) if json else printing.tell_evaluation(report)


@main.command()
@click.argument("store")
@as_json
def info(store: str, *, json: bool) -> None:
    """Say what STORE is: a vector store, a code store, or a file of a foreign format."""
    from mercore.jobs import api, printing

    report = api.info(store)
    echo_json(report) if json else printing.tell_mapping(report)


@main.command()
@click.argument("store")
@as_json
def check(store: str, *, json: bool) -> None:
    """Read every byte of STORE against its receipts; exit 1 if anything is missing or wrong."""
    from mercore.jobs import api, printing

    report = api.check(store)
    echo_json(report) if json else printing.tell_check(report)
    if report["faults"]:
        sys.exit(ANSWER_IS_NO)


@main.command()
@click.argument("codes")
@click.argument("index")
@click.option("--queries", metavar="FILE", help="Rows whose coordinates --points is to hold.")
@click.option("--points", metavar="NPY", help="Write the queries' coordinates, which the index is searched with.")
@click.option("--kernel", metavar="FILE.py", help="The file of your own kernel, where CODES are of one.")
@as_json
def export(codes: str, index: str, *, json: bool, **options: Any) -> None:  # noqa: ANN401
    """Write CODES of kpca-pq or pq as INDEX, an IndexPQ of faiss."""
    from mercore.jobs import api, printing

    report = api.export(codes, index, **options)
    echo_json(report) if json else printing.tell_mapping(report)


@main.command()
@click.argument("vectors")
@click.argument("queries")
@click.option("--kernel", "kernels", multiple=True, required=True, help="As encode's; may be given several times.")
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
    "--out", metavar="FOLDER", help="Keep runs, truth and curves there; a run that is there is not done again."
)
@as_json
def compare(vectors: str, queries: str, *, json: bool, **options: Any) -> None:  # noqa: ANN401
    """Compare encoders on VECTORS: recall@R over several seeds, bytes a row, and time.

    QUERIES are searched in the codes of every encoder, and by the true kernel in every row. Prints a table a kernel:
    recall@R, ns of searching a row for a query (its tables and the choice of the k best included), µs of encoding a row
    (fitting included). --out also keeps all figures in compare.json, and the curves in recall.png and recall.svg.
    """
    from mercore.jobs import api
    from mercore.jobs.comparison import summary

    report = api.compare(vectors, queries, **options)
    echo_json(report) if json else summary.tell(report)


@main.command()
@click.option("--out", default="mercore-demo", show_default=True, help="Folder for the stores and the page.")
@click.option("--kernel", default="chi2", show_default=True, help="Any kernel of histograms.")
@click.option("--atoms", type=int, default=8192, show_default=True, help="Dictionary size m.")
@click.option("--tiles", type=int, help="Keep only so many tiles. [default: all, over 100 000]")
@as_json
def demo(*, json: bool, **options: Any) -> None:  # noqa: ANN401
    """Search real photographs from end to end: tiles, GIST, encode, search, and a page to look at."""
    from mercore.jobs.demo import demo as demonstration

    report = demonstration.run(**options)
    echo_json(report) if json else demonstration.tell(report)


SUBMITTED = (ingest, encode, search, verify, compare, check, export)
for verb in (plan_of(main), submit_group(SUBMITTED), *queue_verbs.VERBS):
    main.add_command(verb)
