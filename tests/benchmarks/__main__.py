"""Measurements, one command each: ``python -m tests.benchmarks recall BASE QUERIES``."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from mercore.jobs import api
from mercore.jobs.options import Verb
from mercore.jobs.resources.malloc import keep_freed_blocks
from tests.benchmarks import tables

KERNELS = "cosine,hellinger,chi2,intersection"


@click.group(context_settings={"max_content_width": 110})
def main() -> None:
    """Measure mercore on your own vectors; each command prints a Markdown table."""
    keep_freed_blocks()  # as the command line does


def _option(name: str, default: str, text: str) -> Callable[[Verb], Verb]:
    return click.option(name, default=default, show_default=True, help=text)


@main.command()
@click.argument("base")
@click.argument("queries")
@_option("--kernels", KERNELS, "Kernels, with commas.")
@_option("--weights", "int8", "Weights' dtypes, with commas.")
@click.option("--atoms", default=8192, show_default=True)
@click.option("--sparsity", default=8, show_default=True)
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def recall(
    base: str, queries: str, *, kernels: str, weights: str, json_path: str | None, **parameters: int
) -> None:
    """Recall of ASKA codes against the exhaustive search by the true kernel, and their size.

    BASE is a file to ingest, QUERIES any rows; everything is made in a temporary folder.
    """
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "vectors.zarr")
        api.ingest(base, store)
        rows = [
            figures
            for kernel in kernels.split(",")
            for figures in tables.recall_rows(
                store, queries, kernel, weights.split(","), parameters
            )
        ]
    click.echo(tables.markdown(rows))
    if json_path:
        Path(json_path).write_text(json.dumps(rows, indent=2) + "\n")


@main.command()
@click.argument("base")
@click.argument("queries")
@_option("--compressors", "none,zstd,zstd:9,blosc,lz4,gzip", "Compressors, with commas.")
@_option("--kernel", "chi2", "Kernel of the codes.")
@click.option("--atoms", default=8192, show_default=True)
@click.option("--sparsity", default=8, show_default=True)
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def compressors(
    base: str,
    queries: str,
    *,
    compressors: str,
    kernel: str,
    json_path: str | None,
    **parameters: int,
) -> None:
    """What each compressor saves on vectors and on codes, and what it costs a search that streams
    them."""
    with TemporaryDirectory() as folder:
        rows = tables.compressor_rows(
            Path(folder), (base, queries), compressors.split(","), kernel, parameters
        )
    click.echo(tables.markdown(rows))
    if json_path:
        Path(json_path).write_text(json.dumps(rows, indent=2) + "\n")


@main.command()
@click.argument("codes")
@click.argument("queries")
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def scan(codes: str, queries: str, *, json_path: str | None) -> None:
    """The scan of a code store (int8, α = 8) beside faiss and scipy, in one run: needs the extra
    ``bench``."""
    from tests.benchmarks import scan as contest

    _show(contest.measure(codes, queries), json_path)


@main.command()
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def encode(*, json_path: str | None) -> None:
    """What encoding costs, kernel by kernel, beside its parts, SPAMS and scikit-learn: needs the
    extra ``bench``."""
    from tests.benchmarks import encode as contest

    _show(contest.measure(), json_path)


@main.command()
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def blocks(*, json_path: str | None) -> None:
    """Kernel blocks beside sgemm and scikit-learn, on one thread: needs the extra ``bench``."""
    from tests.benchmarks import blocks as contest

    _show({"kernel blocks": contest.measure()}, json_path)


@main.command()
@click.argument("base")
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def kpca(base: str, *, json_path: str | None) -> None:
    """Encoding by kpca-pq, chi2, beside the bare kernel block and scikit-learn with faiss: needs
    ``bench``."""
    from tests.benchmarks import kpca as contest

    _show(contest.measure(base), json_path)


@main.command()
@click.argument("base")
@click.argument("queries")
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def pq(base: str, queries: str, *, json_path: str | None) -> None:
    """The scan of product-quantisation codes of all of BASE, beside faiss on the same codes: needs
    ``bench``."""
    from tests.benchmarks import pq as contest

    _show(contest.measure(base, queries), json_path)


@main.command()
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def hamming(*, json_path: str | None) -> None:
    """The scans of binary codes and of float rows beside faiss: needs the extra ``bench``."""
    from tests.benchmarks import hamming as contest

    _show(contest.measure(), json_path)


@main.command()
@click.option("--sift", nargs=2, metavar="BASE QUERIES", help="Bytes, .bvecs.")
@click.option(
    "--gist", nargs=2, metavar="BASE QUERIES", help="Descriptors, .npy; float16 stays float16."
)
@click.option(
    "--bow", nargs=2, metavar="BASE QUERIES", help="Counts of visual words, scipy's sparse .npz."
)
@_option(
    "--kernels",
    "cosine,hellinger,chi2,intersection,jensen_shannon,exp_chi2,rbf",
    "Kernels, with commas.",
)
@click.option("--rows", default=20_000, show_default=True, help="Of each file, at most.")
@click.option("--queries", default=2000, show_default=True, help="Of each file, at most.")
@click.option("--made-rows", default=2000, show_default=True, help="Of each adversarial set.")
@click.option("--made-queries", default=2000, show_default=True, help="Of each adversarial set.")
@click.option(
    "--flat-rows",
    default=50_000,
    show_default=True,
    help="Near-uniform rows beside faiss; 0: leave out.",
)
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def exactness(*, kernels: str, flat_rows: int, json_path: str | None, **options: Any) -> None:
    """Wrong ids of the exact 10-NN on files and on adversarial sets; faiss' flat indexes: needs the
    extra ``bench``."""
    from tests.benchmarks import exactness as contest

    files = {name.upper(): options[name] for name in ("sift", "gist", "bow") if options[name]}
    sizes = contest.Sizes(
        **{key: options[key] for key in ("rows", "queries", "made_rows", "made_queries")}
    )
    results = contest.measure(files, kernels.split(","), sizes)
    if flat_rows:
        results |= contest.flat_indexes(flat_rows, sizes.made_queries)
    _show(results, json_path)


@main.command()
@click.argument("vectors")
@click.argument("queries")
@_option("--kernels", "chi2,intersection", "Kernels, with commas; rbf:G sets its gamma.")
@click.option("--threads", default=1, show_default=True)
@click.option(
    "--many", default=2000, show_default=True, help="Queries whose scored rows are counted."
)
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def exact(
    vectors: str, queries: str, *, kernels: str, threads: int, many: int, json_path: str | None
) -> None:
    """Exact 1-NN and 10-NN by bounds of VECTORS, a store, beside every row's true kernel; verifying
    them."""
    from tests.benchmarks import exact as searching

    options = {}
    for name in kernels.split(","):
        kernel, _, gamma = name.partition(":")
        options[kernel] = {"kernel": kernel, "gamma": float(gamma) if gamma else None}
    with TemporaryDirectory() as folder:
        results = searching.measure(
            vectors, queries, options, Path(folder), threads=threads, many=many
        )
    _show(results, json_path)


@main.command()
@click.argument("vectors")
@click.argument("queries")
@_option("--budgets", "512MB,1GB,4GB", "What --memory says, with commas.")
@_option(
    "--encode", "--kernel chi2 --encoder kpca-bound", "Options of encode, which makes the bounds."
)
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def memory(vectors: str, queries: str, *, budgets: str, encode: str, json_path: str | None) -> None:
    """Peak memory of encode, search and exact search on VECTORS, a store, under budgets."""
    from tests.benchmarks import memory as peaks

    with TemporaryDirectory() as folder:
        lines = peaks.measure(vectors, queries, budgets.split(","), encode.split(), Path(folder))
    _show({"memory": lines}, json_path)


@main.command()
@click.argument("vectors")
@click.argument("queries")
@click.option("--bounds", metavar="STORE", help="Bounds to search exactly as well.")
@click.option("--source", metavar="FILE", help="A file to ingest as well.")
@click.option("--only", help="Only jobs whose name holds this.")
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def plans(
    vectors: str, queries: str, *, only: str | None, json_path: str | None, **more: str | None
) -> None:
    """What mercore plan says of jobs on VECTORS, a store, beside what they take: time, bytes, peak
    memory."""
    from tests.benchmarks import plans as planning

    with TemporaryDirectory() as folder:
        results = planning.measure(vectors, queries, Path(folder), more, only=only or "")
    _show(results, json_path)


@main.command()
@click.argument("vectors")
@click.argument("queries")
@click.option(
    "--codes",
    help="Codes of VECTORS by aska under chi2, as encode makes them. [default: made first]",
)
@click.option("--bounds", help="Bounds of VECTORS under chi2. [default: made first]")
@click.option("--workers", default=2, show_default=True, help="Threads, and processes.")
@click.option("--batch", default=1024, show_default=True, help="Queries a batch.")
@click.option("--parts", default=1 << 20, help="Encode only so many parts. [default: all]")
@click.option("--repeats", default=5, show_default=True)
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def cluster(
    vectors: str,
    queries: str,
    *,
    codes: str | None,
    bounds: str | None,
    json_path: str | None,
    **setting: int,
) -> None:
    """Encoding and searching VECTORS, a store, on a cluster of processes beside as many threads."""
    from tests.benchmarks import cluster as contest

    with TemporaryDirectory() as folder:
        stores = contest.made(vectors, codes, bounds, Path(folder))
        results = contest.measure(queries, stores, contest.Setting(**setting))
    _show(results, json_path)


@main.command()
@click.argument("base")
@click.argument("out")
@click.option("--rows", default=10_000_000, show_default=True)
def jitter(base: str, out: str, *, rows: int) -> None:
    """Write as many distinct rows as asked for, made from those of BASE, to OUT: uint8 .bvecs or
    float16 .npy."""
    from tests.benchmarks.jitter import write_jittered

    write_jittered(base, Path(out), rows)


@main.command()
@click.option(
    "--kills",
    default=30,
    show_default=True,
    help="Runs in which a worker, the scheduler, the runner die.",
)
@click.option(
    "--races",
    default=50,
    show_default=True,
    help="Races of two submitters and two runners for one store.",
)
@click.option("--json", "json_path", type=click.Path(), help="Write what happened here as well.")
def survival(*, kills: int, races: int, json_path: str | None) -> None:
    """Kill what runs jobs at random moments, and have runners race: every store must end as the
    undisturbed one."""
    from tests.benchmarks import survival as trials

    with TemporaryDirectory() as folder:
        results = trials.measure(kills, races, Path(folder))
    if json_path:
        Path(json_path).write_text(json.dumps(results, indent=2) + "\n")
    for name, value in results.items():
        if isinstance(value, int):
            click.echo(f"{name}: {value}")


def _show(results: dict[str, list[tables.Row]], json_path: str | None) -> None:
    """Print tables, and write them where they are wanted."""
    for title, rows in results.items():
        click.echo(f"{title}\n\n{tables.markdown(rows)}\n")
    if json_path:
        Path(json_path).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
