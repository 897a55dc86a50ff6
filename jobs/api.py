"""The Python API: the verbs as functions, with their options as keywords.

Paths are text or ``pathlib`` paths. Rows and queries may be arrays [n, d] of NumPy, Dask, xarray,
Zarr or h5py, data frames, CSR matrices or lists; hits may be arrays of ids [nq, k]. Every function
returns the report that its command prints as JSON; ``search`` returns the hits too.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from mercore.jobs.catalogue import listed_encoders, listed_kernels
from mercore.jobs.comparison.compare import open_compare
from mercore.jobs.comparison.setup import CompareOptions
from mercore.jobs.encoder_options import CHOOSE, spec_of_text
from mercore.jobs.gallery.gallery import GalleryOptions, open_gallery, several_hits
from mercore.jobs.gallery.report.report import ReportOptions, open_report
from mercore.jobs.options import Report, parse_bytes
from mercore.jobs.resources.execution import Execution
from mercore.jobs.verbs.check import open_check
from mercore.jobs.verbs.encode import BoundChoice, EncodeOptions, open_encode
from mercore.jobs.verbs.evaluate import EvaluateOptions, open_evaluate
from mercore.jobs.verbs.export import ExportOptions, open_export
from mercore.jobs.verbs.index import IndexOptions, open_index
from mercore.jobs.verbs.info import InfoOptions, open_info
from mercore.jobs.verbs.ingest import AppendOptions, IngestOptions, open_append, open_ingest
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.jobs.verbs.labels import LabelOptions
from mercore.jobs.verbs.search import open_search
from mercore.jobs.verbs.search_task import SearchOptions
from mercore.jobs.verbs.verify import VerifyOptions, open_verify
from mercore.pipeline.encoders import EncoderSpec
from mercore.stores.errors import InputError
from mercore.stores.formats import Sliced
from mercore.stores.formats.labels import AnyLabels
from mercore.stores.location.resolve import expand_home
from mercore.stores.results.hits import AnyHits, Hits

StrPath = str | Path
Rows = StrPath | Sliced
Claims = Path | AnyHits
Labels = Path | AnyLabels
Gamma = float | str | None  # γ, or median
Size = int | str | None  # bytes, or a text such as 1.5GB
T = TypeVar("T")


def ingest(
    source: Rows | Sequence[Rows],
    store: StrPath,
    *,
    drop_zero_rows: bool = IngestOptions.drop_zero_rows,
    drop_bad_rows: bool = IngestOptions.drop_bad_rows,
    compressor: str = IngestOptions.compressor,
    format: str | None = IngestOptions.format,  # noqa: A002 - the option's name
    rows: str | None = IngestOptions.rows,
) -> Report:
    """Copy a file or rows in memory [n, d] into a new vector store; return its description.

    Parameters
    ----------
    source : a path (see the guide's page on files), or rows: an array of NumPy, Dask, xarray, Zarr
        or h5py, a memmap, a data frame of pandas or polars, a table of pyarrow, a column of lists,
        a CSR matrix, or a list of lists; or a list of paths or arrays, whose rows follow one
        another
    store : path of the new vector store
    drop_zero_rows : leave rows out that are all zero; the others keep their ids
    drop_bad_rows : leave rows out that hold NaN or infinity; the others keep their ids
    compressor : ``"none"``, ``"zstd"``, ``"blosc"``, ``"gzip"``, ``"lz4"``, ``"bz2"`` or
        ``"lzma"``; ``"zstd:9"`` sets a level
    format : the name of the file's format, where its suffix does not say it
    rows : a range such as ``"1000:2000"``; the ids of the rows begin at 0

    Raises
    ------
    MercoreError
        If a source cannot be read or is of another dimension or dtype than the first, or the store
        cannot be written.

    Examples
    --------
    >>> import mercore
    >>> mercore.ingest("base.npy", "new.zarr")["rows"]
    200
    """
    options = IngestOptions(
        drop_zero_rows=drop_zero_rows,
        drop_bad_rows=drop_bad_rows,
        compressor=compressor,
        format=format,
        rows=rows,
    )
    return open_ingest(source, file_path(store), options).run()


def append(
    source: Rows | Sequence[Rows],
    store: StrPath,
    *,
    drop_zero_rows: bool = AppendOptions.drop_zero_rows,
    drop_bad_rows: bool = AppendOptions.drop_bad_rows,
    again: bool = AppendOptions.again,
) -> Report:
    """Append the rows of files or arrays [n, d] to a vector store; return its description.

    Ids go on behind those of the store. A killed append leaves the store with its old rows or with
    all new ones. The same append once more adds no rows, whatever the sources are called by then.
    Searches that run meanwhile keep the rows that they began with.

    Parameters
    ----------
    source : a path, an array [n, d], or a list of these, of the dimension and dtype of the store
    store : path of the vector store
    drop_zero_rows : leave rows out that are all zero; the others keep their ids
    drop_bad_rows : leave rows out that hold NaN or infinity; the others keep their ids
    again : append the rows although an earlier append did; every such call adds them

    Raises
    ------
    MercoreError
        If a source cannot be read or is of another dimension or dtype, or the store is damaged or
        cannot be written.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.ingest("base.npy", "grown.zarr")
    >>> mercore.append("query.npy", "grown.zarr")["rows"]
    205
    """
    options = AppendOptions(drop_zero_rows=drop_zero_rows, drop_bad_rows=drop_bad_rows, again=again)
    return open_append(source, file_path(store), options).run()


def encode(
    vectors: StrPath,
    codes: StrPath,
    *,
    kernel: StrPath,
    gamma: Gamma = None,
    transform: float | str | None = None,
    linear_map: StrPath | None = None,
    encoder: str | EncoderSpec | BoundChoice = EncodeOptions.encoder,
    part_rows: int | None = EncodeOptions.part_rows,
    compressor: str = EncodeOptions.compressor,
    force: bool = EncodeOptions.force,
    workers: int | None = None,
    processes: int | None = None,
    scheduler: str | None = None,
    memory: Size = None,
) -> Report:
    """Encode a vector store, or those parts of its codes that are missing or wrong.

    Parameters
    ----------
    vectors : path of a vector store, or of a 2-D Zarr array of another tool
    codes : path of the codes, which are made or completed
    kernel : name of a kernel, such as ``"chi2"``, or the path of a file that declares one
    gamma : γ of the kernels ``exp_chi2`` (1 by default) and ``rbf`` (needed); ``"median"`` for 1 /
        the median squared distance of a sample of the rows
    transform : s, to use exp(s (κ − 1)) in place of the kernel κ; ``"auto"`` for the s that a
        sample decides on
    linear_map : path of a ``.npy`` file with L [D, d], to use L x in place of every row and query x
    encoder : a name, a text such as ``"kpca-pq:landmarks=512,components=64"``, a spec such as
        ``AskaSpec(n_atoms=512)``, or ``"bound"`` for the bound with the cheapest exact search
    part_rows : rows per part; about 1/64 of the rows by default
    compressor : of the codes, as of ``ingest``
    force : make the bound of ``encoder="bound"`` although scoring every row is cheaper
    workers : number of threads; all cores by default
    processes : number of processes of one thread each, in place of threads
    scheduler : address of a Dask cluster to run on, such as ``"tcp://host:8786"``
    memory : limit of the memory in bytes, or a text such as ``"1.5GB"``

    Raises
    ------
    CostError
        If scoring every row is cheaper than the bound; nothing is made.
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory or the disk.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.encode("base.zarr", "codes.zarr", kernel="chi2", encoder="aska:atoms=64")
    >>> report["rows"], report["parts_done"]
    (200, 1)
    """
    options = EncodeOptions(
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        encoder=_encoder(encoder),
        part_rows=part_rows,
        compressor=compressor,
        force=force,
        execution=execution_options(workers, processes, scheduler, memory, option="workers"),
    )
    return open_encode(file_path(vectors), file_path(codes), options).run()


def index(
    codes: StrPath,
    store: StrPath,
    *,
    epsilon: float | None = IndexOptions.epsilon,
    orders: int | None = IndexOptions.orders,
    random_state: int = IndexOptions.random_state,
    part_rows: int | None = IndexOptions.part_rows,
    workers: int | None = None,
    processes: int | None = None,
    scheduler: str | None = None,
    memory: Size = None,
) -> Report:
    """Sort binary codes into a store of orders, or those parts that are missing or wrong.

    Parameters
    ----------
    codes : path of binary codes
    store : path of the sorted orders, which are made or completed
    epsilon : E, to sort ⌈2 n^(1/(1 + E))⌉ orders of n rows: a smaller E finds more, and takes more
        disk
    orders : number of orders at most; 64 without ``epsilon``
    random_state : seed of the permutations of bits
    part_rows : rows per part; about 1/64 of the rows by default, at least 65536
    workers : number of threads; all cores by default
    processes : number of processes of one thread each, in place of threads
    scheduler : address of a Dask cluster to run on, such as ``"tcp://host:8786"``
    memory : limit of the memory in bytes, or a text such as ``"1.5GB"``

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory or the disk.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.encode("base.zarr", "bits.zarr", kernel="chi2", encoder="klsh:bits=32")
    >>> mercore.index("bits.zarr", "orders.zarr", orders=8)["orders"]
    8
    """
    options = IndexOptions(
        epsilon=epsilon,
        orders=orders,
        random_state=random_state,
        part_rows=part_rows,
        execution=execution_options(workers, processes, scheduler, memory, option="workers"),
    )
    return open_index(file_path(codes), file_path(store), options).run()


def search(
    store: StrPath,
    queries: Rows,
    *,
    k: int | None = SearchOptions.k,
    rerank: int | None = SearchOptions.rerank,
    exact: bool = SearchOptions.exact,
    relaxed: float | None = SearchOptions.relaxed,
    neighbours: int | None = SearchOptions.neighbours,
    vectors: StrPath | None = None,
    kernel: StrPath | None = None,
    gamma: Gamma = None,
    transform: float | None = None,
    linear_map: StrPath | None = None,
    batch: int | None = SearchOptions.batch,
    threads: int | None = None,
    processes: int | None = None,
    scheduler: str | None = None,
    memory: Size = None,
    out: StrPath | None = None,
    hits_format: str | None = SearchOptions.hits_format,
    force: bool = SearchOptions.force,
) -> tuple[Report, Hits]:
    """Search for the k nearest rows of each query; return a report, and ids and scores [nq, k].

    Parameters
    ----------
    store : path of vectors, codes, bounds or sorted orders
    queries : path of a file, or dtype[nq, d]
    k : neighbours per query; 100 by default, or all of fewer rows
    rerank : number of best codes per query that are scored again by the true kernel
    exact : find the true k nearest rows and prove it; the store holds vectors, bounds or codes that
        prove
    relaxed : share of near pairs, between 0 and 1, for which tighter bounds hold; like ``exact``,
        but faster and approximate
    neighbours : rows that are scored on either side of a query in each sorted order; 0 by default
    vectors : new path of the encoded vectors, if they were moved
    kernel : name of a kernel, such as ``"chi2"``, or the path of a file that declares one;
        codes have theirs
    gamma : γ of the kernels ``exp_chi2`` (1 by default) and ``rbf`` (needed); ``"median"`` for 1 /
        the median squared distance of a sample of the rows
    transform : s, to use exp(s (κ − 1)) in place of the kernel κ
    linear_map : path of a ``.npy`` file with L [D, d], to use L x in place of every row and query x
    batch : queries per pass over the store; 1024 by default, fewer if ``memory`` needs it
    threads : number of threads; all cores by default
    processes : number of processes of one thread each, in place of threads
    scheduler : address of a Dask cluster to run on, such as ``"tcp://host:8786"``
    memory : limit of the memory in bytes, or a text such as ``"1.5GB"``
    out : path of a file that gets the hits
    hits_format : format of that file, such as ``"ibin"``, whatever its suffix
    force : let ``out`` replace a file

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory.

    Examples
    --------
    >>> import mercore
    >>> report, (ids, scores) = mercore.search("base.zarr", "query.npy", kernel="chi2", k=3)
    >>> ids.shape, scores.shape
    ((5, 3), (5, 3))
    """
    options = SearchOptions(
        k=k,
        rerank=rerank,
        exact=exact,
        relaxed=relaxed,
        neighbours=neighbours,
        vectors=plain_path(vectors),
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        batch=batch,
        execution=execution_options(threads, processes, scheduler, memory),
        out=plain_path(out),
        hits_format=hits_format,
        force=force,
    )
    return open_search(file_path(store), plain_path(queries), options).run()


def verify(
    vectors: StrPath,
    queries: Rows,
    hits: Claims,
    *,
    kernel: StrPath,
    gamma: Gamma = None,
    transform: float | None = None,
    linear_map: StrPath | None = None,
    bounds: StrPath | None = None,
    hits_format: str | None = VerifyOptions.hits_format,
    k: int | None = VerifyOptions.k,
    batch: int | None = VerifyOptions.batch,
    threads: int | None = None,
    processes: int | None = None,
    scheduler: str | None = None,
    memory: Size = None,
) -> Report:
    """Return whether the hits of each query are its true nearest rows, or which is nearer.

    Parameters
    ----------
    vectors : path of a vector store, or of a 2-D Zarr array of another tool
    queries : path of a file, or dtype[nq, d]
    hits : path of a file, int64[nq, k], or one list of ids per query
    kernel : name of a kernel, such as ``"chi2"``, or the path of a file that declares one
    gamma : γ of the kernels ``exp_chi2`` (1 by default) and ``rbf`` (needed); ``"median"`` for 1 /
        the median squared distance of a sample of the rows
    transform : s, to use exp(s (κ − 1)) in place of the kernel κ
    linear_map : path of a ``.npy`` file with L [D, d], to use L x in place of every row and query x
    bounds : path of bounds of the vectors, or of codes that prove, which save most of the work
    hits_format : format of a file of hits, such as ``"ibin"``, whatever its suffix
    k : number of first hits per query to verify; all by default
    batch : queries per pass over the store; 1024 by default, fewer if ``memory`` needs it
    threads : number of threads; all cores by default
    processes : number of processes of one thread each, in place of threads
    scheduler : address of a Dask cluster to run on, such as ``"tcp://host:8786"``
    memory : limit of the memory in bytes, or a text such as ``"1.5GB"``

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory.

    Examples
    --------
    >>> import mercore
    >>> _, hits = mercore.search("base.zarr", "query.npy", kernel="chi2", k=3, exact=True)
    >>> report = mercore.verify("base.zarr", "query.npy", hits, kernel="chi2")
    >>> report["proved"], report["refuted"]
    (5, 0)
    """
    options = VerifyOptions(
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        bounds=plain_path(bounds),
        hits_format=hits_format,
        k=k,
        batch=batch,
        execution=execution_options(threads, processes, scheduler, memory),
    )
    return open_verify(file_path(vectors), plain_path(queries), plain_path(hits), options).run()


def evaluate(
    hits: Claims,
    truth: Claims,
    *,
    hits_format: str | None = EvaluateOptions.hits_format,
    truth_format: str | None = EvaluateOptions.truth_format,
    ranks: str | Iterable[int] | None = EvaluateOptions.ranks,
    vectors: StrPath | None = None,
    queries: Rows | None = None,
    kernel: StrPath | None = None,
    gamma: Gamma = None,
    transform: float | None = None,
    linear_map: StrPath | None = None,
    labels: Labels | None = None,
    query_labels: Labels | None = None,
    neighbours: int | None = LabelOptions.neighbours,
    coverage: str | Iterable[int] | None = EvaluateOptions.coverage,
    overlap: int | None = EvaluateOptions.overlap,
    codes: StrPath | None = None,
) -> Report:
    """Compare hits with the true neighbours by every definition of recall.

    Parameters
    ----------
    hits, truth : paths of files, int64[nq, k], or one list of ids per query
    hits_format, truth_format : formats of files, such as ``"ibin"``, whatever their suffixes
    ranks : ranks to report, a list or a text such as ``"1,10"``; 1, 10, 100 and 1000 by default
    vectors : path of the vectors, to score hits and truth again by the true kernel
    queries : path or dtype[nq, d], for ``vectors``
    kernel : name of a kernel, such as ``"chi2"``, or the path of a file that declares one
    gamma : γ of the kernels ``exp_chi2`` (1 by default) and ``rbf`` (needed); ``"median"`` for 1 /
        the median squared distance of a sample of the rows
    transform : s, to use exp(s (κ − 1)) in place of the kernel κ
    linear_map : path of a ``.npy`` file with L [D, d], to use L x in place of every row and query x
    labels, query_labels : paths of ``.npy`` files, or arrays, int64[n] and int64[nq], to report
        whether the label of a query is among those of its first hits
    neighbours : hits that vote on a label; 5 by default
    coverage : values of N, to report the share of the first N hits that are among the true first R
    overlap : H, to report the share of true neighbours within the Hamming distance H; needs
        ``codes`` and ``vectors``
    codes : path of the binary codes that gave the hits

    Raises
    ------
    MercoreError
        If something does not exist, or does not fit together.

    Examples
    --------
    >>> import mercore
    >>> _, truth = mercore.search("base.zarr", "query.npy", kernel="chi2", k=3)
    >>> mercore.evaluate(truth, truth, ranks=[1])["recall"][0]["value"]
    1.0
    """
    options = EvaluateOptions(
        hits_format=hits_format,
        truth_format=truth_format,
        ranks=ranks,
        vectors=plain_path(vectors),
        queries=plain_path(queries),
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        labelling=LabelOptions(
            labels=plain_path(labels), query_labels=plain_path(query_labels), neighbours=neighbours
        ),
        coverage=coverage,
        overlap=overlap,
        codes=plain_path(codes),
    )
    return open_evaluate(plain_path(hits), plain_path(truth), options).run()


def info(store: StrPath, *, format: str | None = InfoOptions.format) -> Report:  # noqa: A002 - the option's name
    """Return the description of a store, or of a file of another format.

    Parameters
    ----------
    store : path of a store, or of a file of another format
    format : format of a file, such as ``"ibin"``, whatever its suffix

    Raises
    ------
    MercoreError
        If it does not exist, or cannot be read.

    Examples
    --------
    >>> import mercore
    >>> mercore.info("base.zarr")["dims"]
    16
    """
    return open_info(file_path(store), InfoOptions(format=format)).run()


def check(store: StrPath) -> Report:
    """Read every byte of a store against its receipts; return the faults, one sentence each.

    Parameters
    ----------
    store : path of a store

    Raises
    ------
    MercoreError
        If it is no store, or cannot be read.

    Examples
    --------
    >>> import mercore
    >>> mercore.check("base.zarr")["faults"]
    []
    """
    return open_check(file_path(store)).run()


def export(
    codes: StrPath,
    index: StrPath,
    *,
    queries: StrPath | None = None,
    points: StrPath | None = None,
    kernel: StrPath | None = None,
    force: bool = ExportOptions.force,
) -> Report:
    """Write codes of kpca-pq, pca-pq or pq as a faiss index, and the coordinates of queries for it.

    Parameters
    ----------
    codes : path of codes of ``kpca-pq``, ``pca-pq`` or ``pq``
    index : path of the faiss index to write
    queries : path of queries, dtype[nq, d]
    points : path of the ``.npy`` file that gets the coordinates of the queries
    kernel : file of the custom kernel, if the codes were made with one
    force : let both files replace others

    Raises
    ------
    MercoreError
        If the codes are of another encoder, or a file cannot be written.

    Examples
    --------
    >>> import mercore
    >>> spec = "pq:subquantizers=4"
    >>> report = mercore.encode("base.zarr", "pq.zarr", kernel="euclidean", encoder=spec)
    >>> report = mercore.export("pq.zarr", "index.faiss")
    """
    options = ExportOptions(
        queries=plain_path(queries),
        points=plain_path(points),
        kernel=plain_path(kernel),
        force=force,
    )
    return open_export(file_path(codes), file_path(index), options).run()


def compare(
    vectors: StrPath,
    queries: StrPath,
    *,
    kernel: StrPath | Sequence[StrPath] = (),
    encoder: str | Sequence[str] = (),
    kernels: StrPath | Sequence[StrPath] = (),
    encoders: str | Sequence[str] = (),
    gamma: float | None = None,
    transform: float | None = None,
    bytes: int | None = CompareOptions.bytes,  # noqa: A002 - the option's name
    operations: int | None = CompareOptions.operations,
    seeds: int = CompareOptions.seeds,
    ranks: str | Iterable[int] | None = CompareOptions.ranks,
    rerank: int | str | Sequence[int] | None = CompareOptions.rerank,
    workers: int | None = CompareOptions.workers,
    threads: int | None = CompareOptions.threads,
    memory: Size = None,
    labels: Labels | None = None,
    query_labels: Labels | None = None,
    out: StrPath | None = None,
    force: bool = CompareOptions.force,
) -> Report:
    """Compare encoders by recall, bytes and time; return the runs and their summary.

    Parameters
    ----------
    vectors, queries : paths of the rows and of the queries
    kernels, encoders : one or several; an encoder may have options, as in
        ``"kpca-pq:components=64"``
    gamma : γ of the kernels ``rbf`` and ``exp_chi2``
    transform : s, to use exp(s (κ − 1)) in place of each kernel κ
    bytes : give every encoder its largest code of at most this many bytes per row
    operations : give every encoder a code that costs this many look-ups per row
    seeds : runs per encoder, with random states 0, 1, …
    ranks : ranks to report, a list or a text such as ``"1,10"``; 1, 10, 100 and 1000 by default
    rerank : also measure searches that score this many best codes again; several numbers give a
        curve of recall and speed per encoder
    workers : threads that encode; all cores by default
    threads : threads that search; all cores by default
    memory : limit of the memory in bytes, or a text such as ``"1.5GB"``
    labels, query_labels : paths of ``.npy`` files, or arrays, int64[n] and int64[nq], to add the
        accuracy of classification by 5 neighbours
    out : folder that keeps the runs; a run that is kept is not repeated
    force : let the pictures in ``out`` replace other files

    Parameters
    ----------
    queries : the path of a file; rows in memory are not taken
    kernel, encoder : a name, or a list of names; at least one of each
    kernels, encoders : older names of ``kernel`` and ``encoder``

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory or the disk.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.compare(
    ...     "base.zarr", "query.npy", kernel="chi2", encoder=["aska:atoms=64"], ranks=[1, 10]
    ... )
    >>> report["summary"][0]["encoder"]
    'aska'
    """
    options = CompareOptions(
        kernels=_names("kernel", kernel, kernels),
        encoders=_names("encoder", encoder, encoders),
        gamma=gamma,
        transform=transform,
        bytes=bytes,
        operations=operations,
        seeds=seeds,
        ranks=ranks,
        rerank=rerank,
        workers=workers,
        threads=threads,
        memory=_bytes(memory),
        labelling=LabelOptions(labels=plain_path(labels), query_labels=plain_path(query_labels)),
        out=plain_path(out),
        force=force,
    )
    return open_compare(file_path(vectors), file_path(queries), options).run()


def gallery(
    images: StrPath,
    query_images: StrPath,
    hits: Claims | Sequence[Claims],
    *,
    out: StrPath,
    shown: int | None = GalleryOptions.shown,
    truth: Claims | None = None,
    format: str | None = GalleryOptions.format,  # noqa: A002 - the option's name
    force: bool = GalleryOptions.force,
) -> Report:
    """Write a page that shows query images beside the images of their hits.

    Parameters
    ----------
    images, query_images : folders of the images that were ingested, whole; or files of tiny images
    hits : a file, an array of ids [nq, k], or a list of these, which are shown side by side
    out : the path of the page, which ends in ``.html``
    force : let ``out`` replace a file
    shown : the number of queries, 1 to 1000; 24 by default
    truth : the true neighbours, which are marked among the hits
    format : ``"tinyimages"`` for images in one file

    Raises
    ------
    MercoreError
        If an input does not exist, the hits do not fit the images, or the page cannot be written.

    Examples
    --------
    >>> import mercore
    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 3072), np.uint8)
    >>> images.tofile("tiny_images.bin")
    >>> ids = [[row, 39 - row] for row in range(40)]
    >>> report = mercore.gallery(
    ...     "tiny_images.bin", "tiny_images.bin", ids, out="page.html", format="tinyimages", shown=3
    ... )
    >>> report["queries_shown"]
    3
    """
    options = GalleryOptions(
        out=file_path(out), shown=shown, truth=plain_path(truth), format=format, force=force
    )
    listed = [plain_path(each) for each in several_hits(hits)]
    return open_gallery(file_path(images), file_path(query_images), listed, options).run()


def report(
    store: StrPath,
    *,
    out: StrPath,
    vectors: StrPath | None = None,
    queries: Rows | None = None,
    truth: Claims | None = None,
    kernel: StrPath | None = None,
    threads: int | None = None,
    memory: Size = None,
    force: bool = ReportOptions.force,
) -> Report:
    """Write a page about codes, or about the folder of a comparison.

    Parameters
    ----------
    store : path of codes, or the folder of a comparison
    out : the path of the page, which ends in ``.html``
    force : let ``out`` replace a file
    vectors : new path of the encoded vectors, if they were moved
    threads : number of threads; all cores by default
    memory : limit of the memory in bytes, or a text such as ``"1.5GB"``
    queries : rows of the store by default; up to 1000 are searched for
    truth : the true neighbours of ``queries`` among all rows; by default those of a sample
    kernel : the file of the custom kernel, if the codes were made with one

    Raises
    ------
    MercoreError
        If the store is neither, an input does not fit it, or the page cannot be written.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.encode("base.zarr", "few.zarr", kernel="chi2", encoder="aska:atoms=32")
    >>> mercore.report("few.zarr", out="report.html")["rows_searched"]
    200
    """
    options = ReportOptions(
        out=file_path(out),
        vectors=plain_path(vectors),
        queries=plain_path(queries),
        truth=plain_path(truth),
        kernel=plain_path(kernel),
        execution=execution_options(threads, None, None, memory),
        force=force,
    )
    return open_report(file_path(store), options).run()


def kernels() -> list[Report]:
    """Return every kernel: its name, formula, rows, score, γ, aliases and source.

    Examples
    --------
    >>> import mercore
    >>> [kernel["name"] for kernel in mercore.kernels()][:3]
    ['cosine', 'hellinger', 'chi2']
    """
    return listed_kernels()


def encoders() -> list[Report]:
    """Return every encoder: its name, code, kernels, options and source.

    Examples
    --------
    >>> import mercore
    >>> mercore.encoders()[0]["name"]
    'aska'
    """
    return listed_encoders()


def plain_path(given: T | Path) -> T | str:
    """Return a path as ``file_path`` does, and another value unchanged."""
    return expand_home(os.fspath(given)) if isinstance(given, str | Path) else given


def file_path(path: StrPath) -> str:
    """Return a path as text, with the home folder in place of ``~``."""
    return expand_home(os.fspath(path))


def _bytes(memory: Size) -> int | None:
    return parse_bytes(memory) if isinstance(memory, str) else memory


def kernel_options(
    name: StrPath | None,
    gamma: Gamma,
    transform: float | str | None,
    linear_map: StrPath | None,
) -> KernelOptions:
    """Return the kernel that keywords name."""
    return KernelOptions(
        name=plain_path(name), gamma=gamma, transform=transform, linear_map=plain_path(linear_map)
    )


def _encoder(encoder: str | EncoderSpec | BoundChoice) -> EncoderSpec | BoundChoice:
    if not isinstance(encoder, str):
        return encoder
    return BoundChoice() if encoder == CHOOSE else spec_of_text(encoder)


def _names(option: str, *given: StrPath | Sequence[StrPath]) -> tuple[str, ...]:
    """Return the values of an option that takes one name or several, under any of its keywords."""
    names = tuple(
        file_path(name)
        for each in given
        for name in ([each] if isinstance(each, str | Path) else each)
    )
    if not names:
        raise InputError(f"{option} is missing: expected one name or more. Fix: name one.")
    return names


def execution_options(
    threads: int | None,
    processes: int | None,
    scheduler: str | None,
    memory: Size,
    *,
    option: str = "threads",
) -> Execution:
    """Return where keywords say that the work runs."""
    return Execution(
        threads=threads,
        processes=processes,
        scheduler=scheduler,
        memory=_bytes(memory),
        threads_option=option,
    )
