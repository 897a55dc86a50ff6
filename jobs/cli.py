"""The command line: each verb parses its options, calls the library and prints.

Heavy imports wait until a verb runs.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from mercore.jobs.background import queue_verbs
from mercore.jobs.background.runner import start_runner_quietly
from mercore.jobs.background.submit import submit_group
from mercore.jobs.catalogue import encoders, kernels
from mercore.jobs.encoder_options import ENCODER, complete_encoders
from mercore.jobs.help import DATA, SEARCH, TRUTH, BlockOption, completion
from mercore.jobs.notices import ANSWER_IS_NO, Verbs, announce_first_use, print_notices
from mercore.jobs.options import (
    BATCH,
    FINITE,
    GROWN,
    KERNEL,
    KERNEL_BLOCK,
    MEMORY,
    PROCESSES,
    READ,
    SCALE,
    SCHEDULER,
    THREADS,
    WRITTEN,
    KernelName,
    Report,
    Verb,
    as_json,
    complete_files,
    echo_json,
)
from mercore.jobs.planning.plan_verb import plan_of
from mercore.jobs.resources.malloc import keep_freed_blocks
from mercore.pipeline.encoders import ENCODERS

COMPILING = (
    "encode",
    "index",
    "search",
    "verify",
    "compare",
    "report",
)  # verbs that run jitted functions for long


def _run(verb: str, values: dict[str, object]) -> Any:  # noqa: ANN401 - each verb has its own result
    """Open and run a verb with the values of its command line; return its result."""
    if verb in COMPILING:
        announce_first_use()
    from mercore.jobs.verbs.registry import open_task

    names = [
        str(each.name) for each in main.commands[verb].params if isinstance(each, click.Argument)
    ]
    arguments = [values.pop(name) for name in names]
    return open_task(verb, arguments, values).run()


def _report(verb: str, values: dict[str, object], *, json: bool) -> Report:
    """Run a verb, print its report, and return it."""
    from mercore.jobs import printing

    report: Report = _run(verb, values)
    printers: dict[str, Callable[[Report], None]] = {
        "check": printing.print_check,
        "compare": printing.print_comparison,
        "evaluate": printing.print_evaluation,
        "gallery": printing.print_page,
        "info": printing.print_info,
        "report": printing.print_page,
        "verify": partial(printing.print_verdicts, every=bool(values.get("every"))),
    }
    echo_json(report) if json else printers.get(verb, printing.print_report)(report)
    return report


FORCE = click.option("--force", is_flag=True, help="Replace files that exist.")
DROP_ZERO_ROWS = click.option(
    "--drop-zero-rows",
    is_flag=True,
    help="Leave out rows that are all zero; the others keep their ids.",
)
DROP_BAD_ROWS = click.option(
    "--drop-bad-rows",
    is_flag=True,
    help="Leave out rows with NaN or infinity; the others keep their ids.",
)
COMPRESSOR = click.option(
    "--compressor",
    default="none",
    show_default=True,
    help="Compress the columns: none, zstd, blosc, gzip, lz4, bz2 or lzma; zstd:9 sets a level.",
)


SMALLER_SEARCHES = "batches shrink and threads become fewer"
SEARCH_MEMORY = MEMORY(
    SMALLER_SEARCHES, more=" Codes that several batches read stay in the memory that is left."
)
PROVING = [name for name, kind in ENCODERS.items() if kind().proves and not kind.bounds]


CUSTOM = click.option(
    "--kernel",
    type=KernelName(),
    shell_complete=complete_files,
    metavar="FILE.py",
    help="The file of the custom kernel, if the codes were made with one.",
)


def _format_of(file: str) -> Callable[[Verb], Verb]:
    """Return the option that names the format of a file of hits."""
    return click.option(
        f"--{file.lower()}-format",
        metavar="FORMAT",
        help=f"The format of {file}, whatever its suffix: ivecs, ibin (big-ann), npy, npz, parquet "
        "or h5.",
    )


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


@main.command(
    section=DATA,
    examples=(
        "mercore ingest base.bvecs base.zarr",
        "mercore ingest base.npy base.zarr --drop-zero-rows --compressor zstd",
        "mercore ingest glove.hdf5::train base.zarr",
        "zcat base.bvecs.gz | mercore ingest - base.zarr --format bvecs",
        "mercore ingest part1.bvecs part2.bvecs base.zarr",
    ),
)
@click.argument("source", type=READ, nargs=-1, required=True)
@click.argument("store", type=WRITTEN)
@DROP_ZERO_ROWS
@DROP_BAD_ROWS
@click.option(
    "--format",
    metavar="NAME",
    help="The format of SOURCE where its suffix does not say it: a suffix without its dot, "
    "tinygist or tinyimages (the 80 million tiny images), or raw:DTYPE:D such as raw:float32:384.",
)
@click.option(
    "--rows",
    metavar="FIRST:LAST",
    help="Take the rows from FIRST on and before LAST; their ids begin at 0.",
)
@COMPRESSOR
@as_json
def ingest(*, json: bool, **values: object) -> None:
    """Copy SOURCE into the vector store STORE; several sources follow one another.

    SOURCE is a file ({suffixes}), a 2-D Zarr array, or a folder of Parquet files or images.
    FILE::NAME names an array, a column or a dataset. A .gz file is decompressed as it is read; - is
    stdin. Images become GIST vectors.
    Ids are the numbers of rows. They go on through all sources, and rows that are left out keep
    theirs.
    """
    _report("ingest", values, json=json)


@main.command(
    section=DATA,
    examples=(
        "mercore append day2.bvecs base.zarr",
        "mercore append day2.npy day3.npy base.zarr --drop-bad-rows",
    ),
)
@click.argument("source", type=READ, nargs=-1, required=True)
@click.argument("store", type=GROWN)
@DROP_ZERO_ROWS
@DROP_BAD_ROWS
@click.option(
    "--again",
    is_flag=True,
    help="Append the rows although an earlier append did. Every run adds them: look at mercore "
    "info before you repeat one that failed.",
)
@as_json
def append(*, json: bool, **values: object) -> None:
    """Append the rows of SOURCE to the vector store STORE.

    SOURCE is what mercore ingest reads, but no stream. The rows have the dimension and the dtype of
    the store, and their ids follow those of the store. Then run the mercore encode of the old rows
    once more: it encodes the new rows alone. If an append fails or is killed, STORE has its old
    rows or all new ones; run the same command again. It adds no row twice: sources with the rows of
    an earlier append, in the same order, are known whatever their names are.
    """
    _report("append", values, json=json)


@main.command(
    section=DATA,
    examples=(
        "mercore encode base.zarr codes.zarr --kernel chi2",
        "mercore encode base.zarr bounds.zarr --kernel chi2 --encoder bound",
    ),
)
@click.argument("vectors", type=READ)
@click.argument("codes", type=WRITTEN)
@KERNEL(required=True, chooses=True)
@ENCODER
@click.option("--part-rows", type=int, help="Rows per part. [default: about 1/64 of the rows]")
@COMPRESSOR
@click.option(
    "--force",
    is_flag=True,
    help="With --encoder bound: make bounds although scoring every row is cheaper.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of threads. [default: one per core]"
)
@PROCESSES
@SCHEDULER
@MEMORY("workers become fewer")
@as_json
def encode(*, json: bool, **values: object) -> None:
    """Encode the vector store VECTORS into the code store CODES; run it again to resume."""
    _report("encode", values, json=json)


@main.command(
    section=DATA,
    examples=(
        "mercore index codes.zarr orders.zarr",
        "mercore index codes.zarr orders.zarr --epsilon 1.5 --orders 200",
    ),
)
@click.argument("codes", type=READ)
@click.argument("store", type=WRITTEN, metavar="ORDERS")
@click.option(
    "--epsilon",
    type=FINITE,
    metavar="E",
    help="Sort ⌈2 n^(1/(1 + E))⌉ orders of n rows: a smaller E finds more, and takes more disk.",
)
@click.option(
    "--orders",
    type=int,
    metavar="M",
    help="Sort at most M orders. [default: 64 without --epsilon]",
)
@click.option("--random-state", type=int, help="The seed of the permutations of bits. [default: 0]")
@click.option(
    "--part-rows", type=int, help="Rows per part. [default: about 1/64 of the rows, at least 65536]"
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of threads. [default: one per core]"
)
@PROCESSES
@SCHEDULER
@MEMORY("workers become fewer")
@as_json
def index(*, json: bool, **values: object) -> None:
    """Sort the binary codes CODES into ORDERS to search few rows; run it again to resume.

    Each order permutes the bits of all codes and sorts the rows by the permuted codes. A search
    of ORDERS looks at the rows next to each query in every order, and scores only these. ORDERS
    take 12 bytes per row and order.
    """
    _report("index", values, json=json)


@main.command(
    section=SEARCH,
    examples=(
        "mercore search codes.zarr query.bvecs --rerank 1000 --out hits.npz",
        "mercore search bounds.zarr query.bvecs -k 10 --exact --out truth.npz",
    ),
)
@click.argument("store", type=READ)
@click.argument("queries", type=READ)
@click.option("-k", type=int, help="Neighbours per query. [default: 100, or all of fewer rows]")
@click.option(
    "--rerank",
    type=int,
    metavar="R",
    help="Score the R best codes of each query again by the true kernel. For a thousand queries at "
    "once, and codes that prove, --exact costs less than --rerank 100.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="Find the true k nearest rows and prove it. STORE holds vectors, bounds, or codes of "
    f"{', '.join(PROVING)}.",
)
@click.option(
    "--relaxed",
    type=FINITE,
    metavar="P",
    help="Like --exact, but with tighter bounds, which hold for a share P of near pairs: faster "
    "and approximate.",
)
@click.option(
    "--neighbours",
    type=int,
    metavar="B",
    help="Score B more rows on either side of a query in each order. STORE holds sorted orders. "
    "[default: 0]",
)
@click.option(
    "--vectors",
    type=READ,
    metavar="STORE",
    help="The new path of the encoded vectors, if they were moved. For --rerank, --exact and "
    "sorted orders.",
)
@KERNEL(required=False)
@BATCH("; up to 16384 with sorted orders")
@THREADS
@PROCESSES
@SCHEDULER
@SEARCH_MEMORY
@click.option(
    "--out",
    type=WRITTEN,
    metavar="HITS",
    help="Write the hits to a .npz, .parquet, .h5, .ivecs (scores: .fvecs), .ibin or .npy (ids "
    "only) file, not to stdout.",
)
@_format_of("HITS")
@FORCE
@as_json
def search(*, json: bool, **values: object) -> None:
    """Find the k nearest rows of STORE for each of QUERIES.

    STORE holds codes, vectors, or sorted orders. Codes give approximate scores, or true ones with
    --rerank. In a store of vectors, every row is scored by the true kernel, which --kernel names.
    In sorted orders, only the rows next to each query are scored. The command prints query, rank,
    id and score, unless --out names a file.
    """
    from mercore.jobs import printing

    report, hits = _run("search", values)
    if json:
        echo_json(report if values["out"] else {**report, **printing.hits_json(hits)})
    else:
        printing.print_search(report, hits)


@main.command(
    section=TRUTH,
    examples=(
        "mercore verify base.zarr query.bvecs hits.npz --kernel chi2",
        "mercore verify base.zarr query.bvecs hits.ibin --kernel chi2 \\\n    --bounds bounds.zarr",
    ),
)
@click.argument("vectors", type=READ)
@click.argument("queries", type=READ)
@click.argument("hits", type=READ)
@KERNEL(required=True)
@click.option(
    "--bounds",
    type=READ,
    metavar="STORE",
    help="Bounds of the vectors, which save most of the work.",
)
@click.option("-k", type=int, help="Verify the first k hits of each query. [default: all]")
@_format_of("HITS")
@click.option("--all", "every", is_flag=True, help="Print the proved queries too.")
@BATCH()
@THREADS
@PROCESSES
@SCHEDULER
@SEARCH_MEMORY
@as_json
def verify(*, json: bool, **values: object) -> None:
    """Prove or refute that HITS are the true nearest rows of VECTORS, in order; exit 1 if refuted.

    HITS may come from any program: a .npy of ids, a .npz with ids and scores, I and D, or neighbors
    and distances, .ivecs, big-ann's .ibin, .parquet, or .h5 as ann-benchmarks has it. Each of
    QUERIES is proved, tied or refuted. Tied hits are right; other rows have the same scores.
    The queries that are not proved are printed: a refuted one with its first wrong rank, and the id
    that belongs there with its score.
    """
    if _report("verify", values, json=json)["refuted"]:
        sys.exit(ANSWER_IS_NO)


@main.command(
    section=TRUTH,
    examples=(
        "mercore evaluate hits.npz truth.npz",
        "mercore evaluate hits.npz truth.npz --ranks 1,10 --kernel chi2 \\\n"
        "    --vectors base.zarr --queries query.bvecs",
        "mercore evaluate hits.npz truth.npz --coverage 10,20,30 \\\n"
        "    --labels labels.npy --query-labels query_labels.npy",
    ),
)
@click.argument("hits", type=READ)
@click.argument("truth", type=READ)
@click.option(
    "--ranks",
    help="Ranks to report, such as 1,10. [default: 1,10,100,1000 up to the ranks of the files]",
)
@_format_of("HITS")
@_format_of("TRUTH")
@click.option(
    "--vectors",
    type=READ,
    metavar="STORE",
    help="Score hits and truth again by the true kernel of these rows.",
)
@click.option(
    "--queries", type=READ, metavar="FILE", help="The queries of the hits, for --vectors."
)
@KERNEL(required=False)
@click.option(
    "--labels",
    type=READ,
    metavar="NPY",
    help="Labels of the rows, one whole number per row id: report the share of queries whose label "
    "is among the R most frequent ones of their first hits.",
)
@click.option(
    "--query-labels", type=READ, metavar="NPY", help="Labels of the queries, for --labels."
)
@click.option("--neighbours", type=int, metavar="K", help="Hits that vote on a label. [default: 5]")
@click.option(
    "--coverage",
    metavar="N,N,…",
    help="Report the share of the first N hits that are among the true first R, for N such as "
    "10,20,30.",
)
@click.option(
    "--overlap",
    type=int,
    metavar="H",
    help="Report the share of true neighbours among hits within the Hamming distance H. Needs "
    "--codes and --vectors.",
)
@click.option(
    "--codes",
    type=READ,
    metavar="STORE",
    help="The binary codes that gave the hits, for --overlap.",
)
@as_json
def evaluate(*, json: bool, **values: object) -> None:
    """Compare HITS with TRUTH, the true neighbours, by every definition of recall in use."""
    _report("evaluate", values, json=json)


@main.command(
    section=DATA,
    examples=(
        "mercore info base.zarr",
        "mercore info query.bvecs --json",
        "mercore info bigann-1B --format ibin",
    ),
)
@click.argument("store", type=READ)
@click.option(
    "--format",
    metavar="NAME",
    help="The format of a file, whatever its suffix: ibin, or another that mercore ingest or "
    "verify reads.",
)
@as_json
def info(*, json: bool, **values: object) -> None:
    """Describe STORE: a vector store, a code store, hits, a certificate, or a file of vectors."""
    _report("info", values, json=json)


@main.command(
    section=DATA,
    examples=(
        "mercore check codes.zarr",
        "mercore check base.zarr && echo whole",
    ),
)
@click.argument("store", type=READ)
@as_json
def check(*, json: bool, **values: object) -> None:
    """Read every byte of STORE against its receipts; exit 1 if anything is missing or wrong."""
    if _report("check", values, json=json)["faults"]:
        sys.exit(ANSWER_IS_NO)


@main.command(
    section=DATA,
    examples=(
        "mercore export codes.zarr index.faiss",
        "mercore export codes.zarr index.faiss \\\n    --queries query.bvecs --points points.npy",
    ),
)
@click.argument("codes", type=READ)
@click.argument("index", type=WRITTEN)
@click.option(
    "--queries",
    type=READ,
    metavar="FILE",
    help="Queries for the index; --points writes their coordinates.",
)
@click.option(
    "--points",
    type=WRITTEN,
    metavar="NPY",
    help="Write the queries' coordinates, to search the index with.",
)
@CUSTOM
@FORCE
@as_json
def export(*, json: bool, **values: object) -> None:
    """Write CODES, made by kpca-pq, pca-pq or pq, as INDEX, an IndexPQ of faiss."""
    _report("export", values, json=json)


@main.command(
    section=SEARCH,
    examples=(
        "mercore compare base.zarr query.bvecs --kernel chi2 \\\n"
        "    --encoder aska --encoder kpca-pq --bytes 32",
        "mercore compare base.zarr query.bvecs --kernel chi2 --out compared \\\n"
        "    --encoder kpca-pq:landmarks=512,components=64 --seeds 3",
    ),
)
@click.argument("vectors", type=READ)
@click.argument("queries", type=READ)
@click.option(
    "--kernel",
    "kernels",
    cls=BlockOption,
    values=KERNEL_BLOCK,
    type=KernelName(),
    multiple=True,
    required=True,
    help="A kernel, or the FILE.py of a custom one; may be given several times.",
)
@click.option("--gamma", type=FINITE, help="γ of the kernels rbf and exp_chi2.")
@click.option(
    "--transform", type=SCALE, metavar="S", help="Use exp(S (κ − 1)) in place of every kernel κ."
)
@click.option(
    "--encoder",
    "encoders",
    multiple=True,
    required=True,
    metavar="SPEC",
    shell_complete=complete_encoders,
    help="An encoder, or one with options: kpca-pq:landmarks=512,components=64; may be given "
    "several times. mercore encode --help lists them.",
)
@click.option(
    "--bytes",
    type=click.IntRange(min=1),
    help="Give every encoder its largest code of at most this many bytes per row.",
)
@click.option(
    "--operations",
    type=click.IntRange(min=1),
    help="Give every encoder a code that costs this many look-ups per row.",
)
@click.option(
    "--seeds",
    type=int,
    default=1,
    show_default=True,
    help="Runs per encoder, with random states 0, 1, …",
)
@click.option(
    "--ranks",
    help="Ranks to report, such as 1,10. [default: 1,10,100,1000 up to the number of rows]",
)
@click.option(
    "--rerank",
    metavar="R,R,…",
    help="Also measure searches that score the R best codes again. Several numbers, such as "
    "50,200,1000, give a curve of recall and speed per encoder.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Threads that encode. [default: one per core]"
)
@click.option("--threads", type=int, help="Threads that search. [default: one per core]")
@MEMORY("batches of searches shrink", remote=False)
@click.option(
    "--labels",
    type=READ,
    metavar="NPY",
    help="Labels of the rows, one whole number per row id: also measure the accuracy of "
    "classification by 5 neighbours.",
)
@click.option(
    "--query-labels", type=READ, metavar="NPY", help="Labels of the queries, for --labels."
)
@click.option(
    "--out",
    type=WRITTEN,
    metavar="FOLDER",
    help="Keep runs, true neighbours and curves there; a run that is kept is not repeated.",
)
@FORCE
@as_json
def compare(*, json: bool, **values: object) -> None:
    """Compare encoders on VECTORS: recall@R over several seeds, bytes per row, and time.

    QUERIES are searched in the codes of every encoder, and among all rows by the true kernel. One
    table per kernel is printed: recall@R, ns of search per row and query, and µs of encoding per
    row, with the time of fitting. --out also keeps all figures in compare.json, and the curves in
    recall.png and recall.svg.
    """
    _report("compare", values, json=json)


@main.command(
    section=SEARCH,
    examples=(
        "mercore gallery photos query_photos hits.npz --out gallery.html",
        "mercore gallery photos query_photos codes.npz reranked.npz \\\n"
        "    --truth truth.npz --out gallery.html",
        "mercore gallery tiny_images.bin query_photos hits.npz \\\n"
        "    --format tinyimages --out gallery.html",
    ),
)
@click.argument("images", type=READ)
@click.argument("query_images", type=READ)
@click.argument("hits", type=READ, nargs=-1, required=True)
@click.option(
    "--out", type=WRITTEN, metavar="PAGE.html", required=True, help="Write the page to this file."
)
@click.option(
    "--shown",
    type=int,
    metavar="N",
    help="Show the first N queries. [default: 24, or all of fewer queries]",
)
@click.option(
    "--truth",
    type=READ,
    metavar="HITS",
    help="The true neighbours: mark the hits that are among the first 5 of their query here, and "
    "list recalls.",
)
@click.option(
    "--format",
    metavar="NAME",
    help="The format of images that are in one file: tinyimages (as the 80 million tiny images).",
)
@FORCE
@as_json
def gallery(*, json: bool, **values: object) -> None:
    """Make a page that shows query images beside the images of their hits.

    IMAGES and QUERY_IMAGES are folders of images, or files with --format, as mercore ingest read
    them: whole, so that an id is the number of an image. HITS are files that mercore search wrote.
    The page shows the first 5 hits of each query. It shows several HITS side by side, with the
    names of the files. The page is one file without scripts, which needs no other file.
    """
    _report("gallery", values, json=json)


@main.command(
    section=SEARCH,
    examples=(
        "mercore report codes.zarr --out report.html",
        "mercore report codes.zarr --queries query.bvecs \\\n"
        "    --truth truth.npz --out report.html",
        "mercore report compared --out report.html",
    ),
)
@click.argument("store", type=READ)
@click.option(
    "--out", type=WRITTEN, metavar="PAGE.html", required=True, help="Write the page to this file."
)
@click.option(
    "--vectors",
    type=READ,
    metavar="STORE",
    help="The vectors of the codes. [default: those that they were encoded from]",
)
@click.option(
    "--queries",
    type=READ,
    metavar="FILE",
    help="Search for these, up to 1000 of them. [default: rows of the store]",
)
@click.option(
    "--truth",
    type=READ,
    metavar="HITS",
    help="The true neighbours of --queries among all rows, and their certificate beside them. "
    "[default: searched for among up to 131072 rows]",
)
@CUSTOM
@THREADS
@MEMORY(SMALLER_SEARCHES, remote=False)
@FORCE
@as_json
def report(*, json: bool, **values: object) -> None:
    """Make a page about STORE: what it holds, recall, speed and errors of scores.

    STORE holds codes or bounds, or is the folder that mercore compare --out wrote. Recall, speed
    and errors are measured on a sample of fixed size. The page is one file without scripts, which
    needs no other file.
    """
    _report("report", values, json=json)


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


SUBMITTED = (
    ingest,
    append,
    encode,
    index,
    search,
    verify,
    evaluate,
    compare,
    check,
    export,
    gallery,
    report,
)
for verb in (
    plan_of(main),
    submit_group(SUBMITTED),
    *queue_verbs.VERBS,
    kernels,
    encoders,
    completion,
):
    main.add_command(verb)
