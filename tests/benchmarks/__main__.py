"""Benchmarks, one command per report: ``python -m tests.benchmarks recall BASE QUERIES``."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from mercore.jobs.options import Verb
from mercore.jobs.resources.malloc import keep_freed_blocks
from tests.benchmarks.reporting.run import produce, report_options

HISTOGRAMS = "cosine,hellinger,chi2,intersection"
ALL_KERNELS = f"{HISTOGRAMS},jensen_shannon,exp_chi2,rbf"


@click.group(context_settings={"max_content_width": 110})
def main() -> None:
    """Measure mercore on your own vectors; each command prints tables or writes a report."""
    keep_freed_blocks()  # as the command line does


def _number(name: str, default: int, text: str) -> Callable[[Verb], Verb]:
    return click.option(name, default=default, show_default=True, help=text)


def _words(name: str, default: str, text: str) -> Callable[[Verb], Verb]:
    """Return an option of words with commas, as a tuple."""
    return click.option(
        name,
        default=default,
        show_default=True,
        help=f"{text}, with commas.",
        callback=lambda _context, _option, value: tuple(value.split(",")),
    )


def _pair(name: str, text: str) -> Callable[[Verb], Verb]:
    return click.option(name, nargs=2, metavar="BASE QUERIES", help=text)


@main.command()
@click.argument("base")
@click.argument("query_file", metavar="QUERIES")
@_words("--kernels", HISTOGRAMS, "Kernels")
@_words("--weights", "int8,float16,float32", "Dtypes of the weights")
@_number("--atoms", 8192, "Atoms of the ASKA codes of the first sections.")
@_number("--sparsity", 8, "Atoms per code, and the operations of compared encoders.")
@_number("--queries", 2000, "Queries of the comparison of encoders, evenly drawn.")
@_number("--seeds", 3, "Seeds of the comparison.")
@_number("--slow-seeds", 1, "Seeds of kpca-jl, which learns for minutes.")
@click.option(
    "--set",
    "sets",
    nargs=3,
    multiple=True,
    metavar="NAME BASE QUERIES",
    help="Another set of vectors.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder that keeps stores and figures: a run that was stopped goes on.",
)
@report_options
def recall(*, keep: Path | None, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Recall of ASKA codes by every definition, and of encoders side by side."""
    from tests.benchmarks.recall import REPORT
    from tests.benchmarks.recall import Setup as RecallSetup

    with nullcontext(keep) if keep else TemporaryDirectory() as folder:
        produce(REPORT, RecallSetup(folder=Path(folder), **options), only, path)


@main.command()
@click.argument("base")
@click.argument("queries")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--labels", help="Rows with one label are of one half, .npy.")
def halves(*, base: str, queries: str, out: Path, labels: str | None) -> None:
    """Two halves of a set: 0 to choose defaults by, 1 for the report on recall."""
    from tests.benchmarks.measurements.halves import write_halves

    for half, (rows, asked) in enumerate(write_halves(base, queries, labels, out)):
        click.echo(f"{out}: half {half} has {rows:,} rows, {asked:,} queries")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=click.Path(path_type=Path))
@_number("--queries", 4000, "Queries, at most.")
def photographs(*, folder: Path, out: Path, queries: int) -> None:
    """GIST of the tiles of photographs, as a set for the report on recall.

    The reports take the .jpg files of Debian 12's ukui-wallpapers, plasma-workspace-wallpapers,
    lomiri-wallpapers-16.04, lomiri-wallpapers-20.04, gnome-backgrounds and mate-backgrounds.
    """
    from tests.benchmarks.measurements.natural_images import describe_photographs

    rows, asked = describe_photographs(folder, out, queries)
    click.echo(f"{out}: {rows:,} rows, {asked:,} queries")


@main.command()
@click.argument("base", required=False)
@_number("--rows", 200_000, "Jittered rows that the whole command encodes.")
@click.option("--kernel", default="chi2", show_default=True, help="Kernel of the whole command.")
@click.option("--tiny", is_flag=True, help="Small sizes, to try the command.")
@report_options
def encode(*, tiny: bool, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Speed of encoding beside its parts, SPAMS, scikit-learn and faiss.

    BASE is a file of vectors; without it the sections that need one are left out.
    """
    from tests.benchmarks.encode import REPORT, Sizes
    from tests.benchmarks.encode import Setup as EncodeSetup

    sizes = Sizes((32,), (256,), 512, (512, 1024)) if tiny else Sizes()
    with TemporaryDirectory() as folder:
        produce(REPORT, EncodeSetup(folder=Path(folder), sizes=sizes, **options), only, path)


@main.command()
@click.argument("base")
@click.argument("query_file", metavar="QUERIES")
@_number("--rows", 20_000_000, "Jittered rows that are encoded, and searched exactly.")
@_number("--codes", 1_000_000_000, "Codes that are scanned; they take 8 bytes each.")
@report_options
def billion(*, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Whole commands on a billion codes, and exact search under 1 GB of memory."""
    from tests.benchmarks.billion import REPORT
    from tests.benchmarks.billion import Setup as BillionSetup

    with TemporaryDirectory() as folder:
        produce(REPORT, BillionSetup(folder=Path(folder), **options), only, path)


@main.command()
@click.option(
    "--set",
    "sets",
    type=(str, str, str, str, str, int),
    multiple=True,
    required=True,
    metavar="NAME BASE QUERIES KERNEL ENCODER SAMPLE",
    help="A set; SAMPLE of its queries measure recall, with 0 rows of the store.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder that keeps stores and figures: a run that was stopped goes on.",
)
@report_options
def cells(*, keep: Path | None, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """An index of cells: recall asked for and found, and time beside a scan and faiss."""
    from tests.benchmarks.cells import REPORT
    from tests.benchmarks.cells import Setup as CellsSetup

    with nullcontext(keep) if keep else TemporaryDirectory() as folder:
        produce(REPORT, CellsSetup(folder=Path(folder), **options), only, path)


@main.command()
@click.argument("base")
@click.argument("queries")
@_number("--rows", 10_000_000, "Jittered rows that are scanned.")
@click.option("--codes", metavar="STORE", help="ASKA codes to scan. [default: made first, chi2]")
@report_options
def scan(*, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Speed of scanning codes beside faiss and scipy, and from disk."""
    from tests.benchmarks.scan import REPORT
    from tests.benchmarks.scan import Setup as ScanSetup

    with TemporaryDirectory() as folder:
        produce(REPORT, ScanSetup(folder=Path(folder), **options), only, path)


@main.command()
@_pair("--sift", "Descriptors in bytes, .bvecs.")
@_pair("--gist", "Descriptors, .npy; float16 stays float16.")
@_pair("--bow", "Counts of visual words, scipy's sparse .npz.")
@_number("--rows", 0, "Jittered rows of SIFT to search as well.")
@_number("--queries", 2000, "Queries whose scored rows are counted.")
@_words("--truth-kernels", ALL_KERNELS, "Kernels of the independent truth")
@_number("--truth-rows", 5000, "Rows of each file beside the independent truth.")
@_number("--truth-queries", 200, "Queries of each file beside the independent truth.")
@_number("--made-rows", 500, "Rows of each adversarial set.")
@_number("--made-queries", 100, "Queries of each adversarial set.")
@report_options
def exact(*, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Exact search: rows scored, time, and wrong ids against an independent truth."""
    from tests.benchmarks.exact import REPORT
    from tests.benchmarks.exact import Setup as ExactSetup
    from tests.benchmarks.measurements.exactness import Sizes as TruthSizes

    named = {name: options.pop(name) for name in ("sift", "gist", "bow")}
    sizes = TruthSizes(
        rows=options.pop("truth_rows"),
        queries=options.pop("truth_queries"),
        made_rows=options.pop("made_rows"),
        made_queries=options.pop("made_queries"),
    )
    files = {name.upper(): pair for name, pair in named.items() if pair}
    with TemporaryDirectory() as folder:
        setup = ExactSetup(files=files, folder=Path(folder), sizes=sizes, **options)
        produce(REPORT, setup, only, path)


@main.command()
@click.argument("base")
@click.argument("query_file", metavar="QUERIES")
@_number("--queries", 2000, "Queries that are searched, evenly drawn.")
@_number("--workers", 2, "Threads, and processes.")
@_number("--batch", 250, "Queries per batch, of threads beside processes.")
@_number("--repeats", 3, "Repeats, of threads beside processes.")
@report_options
def cluster(*, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Threads beside processes, and plans beside measurements."""
    from tests.benchmarks.cluster import REPORT
    from tests.benchmarks.cluster import Setup as ClusterSetup

    with TemporaryDirectory() as folder:
        produce(REPORT, ClusterSetup(folder=Path(folder), **options), only, path)


@main.command()
@_pair("--sift", "Descriptors in bytes, .bvecs.")
@_pair("--gist", "Descriptors, .npy; float16 stays float16.")
@_pair("--bow", "Counts of visual words, scipy's sparse .npz.")
@_pair("--gist-labels", "Labels of both, .npy.")
@_pair("--bow-labels", "Labels of both, .npy.")
@_words("--kernels", "chi2,intersection", "Kernels")
@_number("--queries", 2000, "Queries, evenly drawn.")
@_number("--seeds", 10, "Seeds of the first section.")
@_number("--fewer-seeds", 3, "Seeds of the other sections.")
@_words("--order-rows", "1000000,10000000", "Numbers of jittered rows of sorted orders")
@_number("--orders", 64, "Orders of these rows.")
@report_options
def hashing(*, only: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Binary codes by hyperplanes and Fourier features, and sorted orders of them."""
    from tests.benchmarks.hashing import REPORT
    from tests.benchmarks.hashing import Setup as HashingSetup

    named = {name: options.pop(name) for name in ("sift", "gist", "bow")}
    labels = {name: options.pop(f"{name}_labels") for name in ("gist", "bow")}
    options["order_rows"] = tuple(map(int, options["order_rows"]))
    files, label_files = (
        {name.upper(): pair for name, pair in pairs.items() if pair} for pairs in (named, labels)
    )
    with TemporaryDirectory() as folder:
        setup = HashingSetup(files=files, label_files=label_files, folder=Path(folder), **options)
        produce(REPORT, setup, only, path)


@main.command()
@click.argument("base")
@click.argument("out")
@_number("--rows", 10_000_000, "Rows to write.")
def jitter(base: str, out: str, *, rows: int) -> None:
    """Write distinct rows made from those of BASE to OUT: uint8 .bvecs or float16 .npy."""
    from tests.benchmarks.measurements.jitter import write_jittered

    write_jittered(base, Path(out), rows)


if __name__ == "__main__":
    main()
