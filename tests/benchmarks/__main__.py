"""Measurements, one command each: ``python -m tests.benchmarks recall BASE QUERIES``."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from jobs import verbs
from tests.benchmarks import tables

KERNELS = "cosine,hellinger,chi2,intersection"


@click.group(context_settings={"max_content_width": 110})
def main() -> None:
    """Measure mercore on your own vectors; each command prints a Markdown table."""


def _option(name: str, default: str, text: str) -> Any:
    return click.option(name, default=default, show_default=True, help=text)


@main.command()
@click.argument("base")
@click.argument("queries")
@_option("--kernels", KERNELS, "Kernels, with commas.")
@_option("--weights", "int8", "Weights' dtypes, with commas.")
@click.option("--atoms", default=8192, show_default=True)
@click.option("--sparsity", default=8, show_default=True)
@click.option("--json", "json_path", type=click.Path(), help="Write the figures here as well.")
def recall(base: str, queries: str, *, kernels: str, weights: str, json_path: str | None, **parameters: int) -> None:
    """Recall of ASKA codes against the exhaustive search by the true kernel, and their size.

    BASE is a file to ingest, QUERIES any rows; everything is made in a temporary folder.
    """
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "vectors.zarr")
        verbs.ingest(base, store)
        rows = [
            figures
            for kernel in kernels.split(",")
            for figures in tables.recall_rows(store, queries, kernel, weights.split(","), parameters)
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
    base: str, queries: str, *, compressors: str, kernel: str, json_path: str | None, **parameters: int
) -> None:
    """What each compressor saves on vectors and on codes, and what it costs a search that streams them."""
    with TemporaryDirectory() as folder:
        rows = tables.compressor_rows(Path(folder), (base, queries), compressors.split(","), kernel, parameters)
    click.echo(tables.markdown(rows))
    if json_path:
        Path(json_path).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
