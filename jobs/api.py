"""The verbs: each is declared here once, as a Python function from which its command is made too.

Paths are text or ``pathlib`` paths. Rows and queries may be arrays [n, d] of NumPy, Dask, xarray,
Zarr or h5py, data frames, Arrow data or DLPack tensors of any library, CSR matrices or lists; hits
may be arrays of ids [nq, k]. Every function returns the report that its command prints as JSON;
``search`` returns the hits too.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from mercore.jobs.encoder_options import CHOOSE, complete_encoders, spec_of_text
from mercore.jobs.face.declaring import BEGINS_ANEW, VERBS, Call, Param, verb
from mercore.jobs.face.parameters import (
    Among,
    AskedLabels,
    Batch,
    CheckAll,
    ChosenTransform,
    Claims,
    Codes,
    Compressor,
    CustomKernel,
    DropBadRows,
    DropZeroRows,
    Force,
    Gamma,
    GrownVectors,
    Hits,
    HitsFormat,
    IdNames,
    Ids,
    Kernel,
    LabelRows,
    LocalMemory,
    Map,
    NeededKernel,
    NewVectors,
    Other,
    OutFormat,
    Page,
    Processes,
    Queries,
    QueryLabels,
    RangeFormat,
    Ranks,
    Rows,
    Same,
    Scheduler,
    SearchMemory,
    Size,
    Source,
    StrPath,
    Threads,
    Transform,
    TruthFormat,
    Vectors,
    Without,
    Workers,
    WorkersMemory,
    memory_option,
)
from mercore.jobs.help import DATA, SEARCH, TRUTH
from mercore.jobs.options import (
    KERNEL_BLOCK,
    READ,
    SCALE,
    TEXT,
    WITHIN,
    WRITTEN,
    KernelName,
    Report,
    parse_bytes,
)
from mercore.jobs.verbs.catalogue import listed_encoders, listed_kernels
from mercore.pipeline.encoders import ENCODERS, EncoderSpec
from mercore.stores.errors import InputError
from mercore.stores.location.resolve import expand_home
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.jobs.resources.execution import Execution
    from mercore.jobs.verbs.choices.encoder import EncoderChoice
    from mercore.jobs.verbs.encode import BoundChoice
    from mercore.jobs.verbs.inputs import KernelOptions
    from mercore.jobs.verbs.rows.choice import RowChoice, RowSet
    from mercore.jobs.verbs.rows.labels import LabelChoice
    from mercore.stores.results.hits import Hits as FoundHits
    from mercore.stores.results.range_hits import RangeHits
else:  # types whose modules take long to load
    BoundChoice = EncoderChoice = FoundHits = RangeHits = Any

T = TypeVar("T")
NAMES = {"kernel": "chi2", "encoder": "aska"}  # examples
PROVING = [name for name, kind in ENCODERS.items() if kind().proves and not kind.bounds]


@verb(
    section=DATA,
    examples=(
        "mercore ingest base.bvecs base.zarr",
        "mercore ingest base.npy base.zarr --drop-zero-rows --compressor zstd",
        "mercore ingest glove.hdf5::train base.zarr",
        "zcat base.bvecs.gz | mercore ingest - base.zarr --format bvecs",
        "mercore ingest part1.bvecs part2.bvecs base.zarr",
    ),
    plan="ingest",
    writes_once=True,
)
def ingest(
    source: Source,
    store: NewVectors,
    *,
    drop_zero_rows: DropZeroRows = False,
    drop_bad_rows: DropBadRows = False,
    format: Annotated[str | None, Param(metavar="NAME")] = None,  # noqa: A002 - the option's name
    rows: Annotated[str | None, Param(metavar="FIRST:LAST")] = None,
    compressor: Compressor = "none",
) -> Call[Report]:
    """Copy ``source`` into the vector store ``store``; several sources follow one another.

    ``source`` is a file ({suffixes}), a 2-D Zarr array, or a folder of Parquet files or images.
    FILE::NAME names an array, a column or a dataset. A .gz file is decompressed as it is read; - is
    stdin. Images become GIST vectors.

    Ids are the numbers of rows. They go on through all sources, and rows that are left out keep
    theirs.

    Parameters
    ----------
    format : The format of a file whose suffix does not say it: a suffix without its dot, tinygist
        or tinyimages (the 80 million tiny images), or raw:DTYPE:D such as raw:float32:384.
    rows : Take the rows from FIRST on and before LAST; their ids begin at 0.

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
    from mercore.jobs.verbs.ingest import IngestOptions, open_ingest

    options = IngestOptions(
        drop_zero_rows=drop_zero_rows,
        drop_bad_rows=drop_bad_rows,
        compressor=compressor,
        format=format,
        rows=rows,
    )
    return Call(open_ingest, (source, file_path(store)), options)


@verb(
    section=DATA,
    examples=(
        "mercore append day2.bvecs base.zarr",
        "mercore append day2.npy day3.npy base.zarr --drop-bad-rows",
    ),
    writes_once=True,
    again="run the same command again; the store has its old rows, or all new ones",
)
def append(
    source: Source,
    store: GrownVectors,
    *,
    drop_zero_rows: DropZeroRows = False,
    drop_bad_rows: DropBadRows = False,
    again: bool = False,
) -> Call[Report]:
    """Append the rows of ``source`` to the vector store ``store``.

    ``source`` is what mercore ingest reads, but no stream. The rows have the dimension and the
    dtype of the store, and their ids follow those of the store. Then run the mercore encode of the
    old rows once more: it encodes the new rows alone. If an append fails or is killed, the store
    has its old rows or all new ones; run the same append again. It adds no row twice: sources with
    the rows of an earlier append, in the same order, are known whatever their names are. Searches
    that run meanwhile keep the rows that they began with.

    Parameters
    ----------
    again : Append the rows although an earlier append did. Every run adds them: look at mercore
        info before you repeat one that failed.

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
    from mercore.jobs.verbs.ingest import AppendOptions, open_append

    options = AppendOptions(drop_zero_rows=drop_zero_rows, drop_bad_rows=drop_bad_rows, again=again)
    return Call(open_append, (source, file_path(store)), options)


@verb(
    section=DATA,
    examples=(
        "mercore encode base.zarr codes.zarr --kernel chi2",
        "mercore encode base.zarr bounds.zarr --kernel chi2 --encoder bound",
    ),
    compiles=True,
    plan="encode",
    again="run the same command again; encode keeps the parts that are done",
)
def encode(
    vectors: Vectors,
    codes: Annotated[StrPath, Param(type=WRITTEN)],
    *,
    kernel: NeededKernel,
    gamma: Gamma = None,
    transform: ChosenTransform = None,
    linear_map: Map = None,
    encoder: str | EncoderSpec | BoundChoice | None = None,
    part_rows: int | None = None,
    compressor: Compressor = "none",
    force: bool = False,
    workers: Workers = None,
    processes: Processes = None,
    scheduler: Scheduler = None,
    memory: WorkersMemory = None,
) -> Call[Report]:
    """Encode the vector store ``vectors`` into the code store ``codes``; run it again to resume.

    Without ``encoder``, existing codes keep theirs. For new codes the kernel, the rows and the
    given options choose among map-pq, pca-pq, kpca-pq and aska. A line names the choice and its
    reason.

    Parameters
    ----------
    codes : The codes, which are made or completed.
    encoder : A name, a text such as ``"kpca-pq:landmarks=512,components=64"``, a spec such as
        ``AskaSpec(n_atoms=512)``, or bound for the bound with the cheapest exact search.
    part_rows : Rows per part. By default about 1/64 of the rows.
    force : With ``encoder="bound"``: make bounds although scoring every row is cheaper.

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
    from mercore.jobs.verbs.encode import EncodeOptions, open_encode

    options = EncodeOptions(
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        encoder=_encoder(encoder),
        part_rows=part_rows,
        compressor=compressor,
        force=force,
        execution=execution_options(workers, processes, scheduler, memory, option="workers"),
    )
    return Call(open_encode, (file_path(vectors), file_path(codes)), options)


@verb(
    section=DATA,
    examples=(
        "mercore index codes.zarr cells.zarr",
        "mercore index bits.zarr orders.zarr --epsilon 1.5 --orders 200",
    ),
    compiles=True,
    plan="index",
    again="run the same command again; index keeps the parts that are done",
)
def index(
    codes: Codes,
    store: Annotated[StrPath, Param(type=WRITTEN, metavar="INDEX")],
    *,
    cells: Annotated[int | None, Param(metavar="C")] = None,
    queries: Annotated[Rows | None, Param(type=READ, metavar="FILE")] = None,
    vectors: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
    epsilon: Annotated[float | None, Param(metavar="E")] = None,
    orders: Annotated[int | None, Param(metavar="M")] = None,
    random_state: int = 0,
    part_rows: int | None = None,
    workers: Workers = None,
    processes: Processes = None,
    scheduler: Scheduler = None,
    memory: WorkersMemory = None,
) -> Call[Report]:
    """Index ``codes`` in ``store``, so that a search reads few rows; run it again to resume.

    Codes of coordinates (map-pq, kpca-pq, pca-pq, pq, kpca) are sorted by cell: the nearest of
    the centres that k-means finds in a sample. A search scans the cells near each query. Where the
    vectors are found, the recall of ``queries`` is measured and stored: a search takes from it how
    many cells it needs. While it is made, the index takes twice its bytes. If the codes have grown,
    the new rows are added.

    Binary codes are sorted into orders. Each order permutes the bits of all codes and sorts the
    rows by the permuted codes. A search looks at the rows next to each query in every order, and
    scores only these. Sorted orders take 12 bytes per row and order.

    Parameters
    ----------
    store : The index, which is made or completed.
    cells : The number of cells. By default 4 √n of n rows.
    queries : A sample of queries, by which recall is measured; of more than 512 the first. By
        default rows of the store are the sample. That expects too much where rows come in groups
        of alike ones and queries do not, such as tiles of the same images.
    vectors : The new path of the encoded vectors, if they were moved. They measure recall.
    epsilon : Sort ⌈2 n^(1/(1 + E))⌉ orders of n rows: a smaller E finds more, and takes more disk.
    orders : Sort at most M orders. By default 64 without ``epsilon``.
    random_state : The seed of the sample of rows, or of the permutations of bits.
    part_rows : Rows per part. By default about 1/64 of the rows.

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory or the disk.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.encode("base.zarr", "points.zarr", kernel="chi2", encoder="map-pq")
    >>> mercore.index("points.zarr", "cells.zarr", cells=8)["cells"]
    8
    """
    from mercore.jobs.verbs.index import IndexOptions, open_index

    options = IndexOptions(
        cells=cells,
        queries=plain_path(queries),
        vectors=plain_path(vectors),
        epsilon=epsilon,
        orders=orders,
        random_state=random_state,
        part_rows=part_rows,
        execution=execution_options(workers, processes, scheduler, memory, option="workers"),
    )
    return Call(open_index, (file_path(codes), file_path(store)), options)


@verb(
    section=DATA,
    examples=(
        "mercore delete base.zarr withdrawn.npy",
        "mercore delete base.zarr 1000:2000",
    ),
)
def delete(
    store: GrownVectors,
    ids: Ids,
) -> Call[Report]:
    """Delete rows from the vector store ``store``: no search finds them any more.

    ``ids`` are a range such as 0:1000, or a file of ids or of a mask: a .npy, or
    FILE.parquet::COLUMN.

    No row is copied, and codes, bounds and indexes that were made before stay as they are: a
    search leaves the deleted rows out. The bytes of the rows stay on disk until compact writes a
    store without them.

    Raises
    ------
    MercoreError
        If the ids cannot be read, or the store lacks one of them, or no row would be left.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.ingest("base.npy", "kept.zarr")
    >>> mercore.delete("kept.zarr", [3, 4, 5])["rows"]
    197
    """
    from mercore.jobs.verbs.rows.delete import open_delete

    return Call(open_delete, (file_path(store), plain_path(ids)))


@verb(
    section=DATA,
    examples=(
        "mercore compact base.zarr smaller.zarr",
        "mercore compact base.zarr smaller.zarr --compressor zstd",
    ),
    writes_once=True,
)
def compact(
    store: Vectors,
    target: NewVectors,
    *,
    compressor: Compressor = "none",
) -> Call[Report]:
    """Copy the rows of ``store`` that are not deleted into the vector store ``target``.

    The rows keep their ids. Codes of the old store are not those of the new one: encode it.

    Raises
    ------
    MercoreError
        If no row is deleted, or the new store cannot be written.

    Examples
    --------
    >>> import mercore
    >>> report = mercore.ingest("base.npy", "whole.zarr")
    >>> report = mercore.delete("whole.zarr", range(50))
    >>> mercore.compact("whole.zarr", "rest.zarr")["rows"]
    150
    """
    from mercore.jobs.verbs.rows.delete import CompactOptions, open_compact

    options = CompactOptions(compressor=compressor)
    return Call(open_compact, (file_path(store), file_path(target)), options)


@verb(
    section=SEARCH,
    examples=(
        "mercore search codes.zarr query.bvecs --rerank 1000 --out hits.npz",
        "mercore search bounds.zarr query.bvecs -k 10 --exact --out truth.npz",
        "mercore search codes.zarr query.bvecs -k 10 --rerank 100 \\\n"
        "    --same labels.npy --query-labels query_labels.npy",
        "mercore search codes.zarr query.bvecs -k 10 --names base.parquet::title",
    ),
    compiles=True,
    printer="print_search",
    plan="search",
    writes_once=True,
    replaces=True,
    again=f"{BEGINS_ANEW}; only a search with --exact and --out keeps its finished batches",
)
def search(
    store: Annotated[StrPath, Param(type=READ)],
    queries: Queries,
    *,
    k: int | None = None,
    within: Annotated[float | str | None, Param(type=WITHIN, metavar="T")] = None,
    rerank: Annotated[int | None, Param(metavar="R")] = None,
    exact: Annotated[
        bool,
        Param(
            "Find the true k nearest rows and prove it. The store holds vectors, bounds, or codes "
            f"of {', '.join(PROVING)}."
        ),
    ] = False,
    relaxed: Annotated[float | None, Param(metavar="P")] = None,
    check_all: CheckAll = False,
    probes: Annotated[int | None, Param(metavar="P")] = None,
    recall: Annotated[float | None, Param(metavar="R")] = None,
    neighbours: Annotated[int | None, Param(metavar="B")] = None,
    among: Among = None,
    without: Without = None,
    same: Same = None,
    other: Other = None,
    query_labels: AskedLabels = None,
    vectors: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
    kernel: Kernel = None,
    gamma: Gamma = None,
    transform: Transform = None,
    linear_map: Map = None,
    batch: int | None = None,
    threads: Threads = None,
    processes: Processes = None,
    scheduler: Scheduler = None,
    memory: SearchMemory = None,
    names: IdNames = None,
    out: Annotated[StrPath | None, Param(type=WRITTEN, metavar="HITS")] = None,
    hits_format: OutFormat = None,
    force: Force = False,
) -> Call[tuple[Report, FoundHits]]:
    """Find the k nearest rows of ``store`` for each of ``queries``.

    The store holds codes, vectors, or an index. Codes give approximate scores, or true ones
    with ``rerank``. In a store of vectors, every row is scored by the true kernel, which ``kernel``
    names. In an index of cells, the codes of the cells near each query are scanned, and in sorted
    orders the rows next to it are scored. The command prints query, rank, id, name if ``names``
    are given, and score, unless ``out`` names a file; the function returns a report and the hits:
    ids int64[nq, k] and scores [nq, k].

    Parameters
    ----------
    store : A store of codes, vectors or bounds, or an index.
    k : Neighbours per query. By default 100, or all of fewer rows.
    within : Find all rows with a score of at least T, or a distance of at most T, in any number per
        query; with ``k`` the k nearest of them. top:0.001% takes the T that 0.001 % of all pairs
        reach. Codes compare approximate scores with T; ``exact`` misses no row.
    rerank : Score the R best codes of each query again by the true kernel. For a thousand queries
        at once, and codes that prove, ``exact`` costs less than ``rerank=100``.
    relaxed : Search as ``exact`` does, with tighter bounds, which hold for a share P of near pairs:
        faster and approximate.
    probes : Scan the P cells nearest to each query. The store is an index of cells.
    recall : Scan as many cells, and rerank as many codes, as find this share of the neighbours of
        rows that were sampled when the index was made. By default 0.95, or the most that codes
        reach, unless ``probes`` is given.
    neighbours : Score B more rows on either side of a query in each order. The store holds sorted
        orders. By default 0.
    vectors : The new path of the encoded vectors, if they were moved. For ``rerank``, ``exact`` and
        sorted orders.
    kernel : The kernel, or the FILE.py of a custom one. Codes have theirs.
    batch : Queries per pass over the store. By default 1024, fewer if ``memory`` needs it; up to
        16384 with sorted orders.
    out : Write the hits to a .npz, .parquet, .h5, .ivecs (scores: .fvecs), .ibin or .npy (ids only)
        file. All rows ``within``: to a .npz (a sparse matrix), .parquet or .ibin file, or in the
        format faiss (lims, D and I). With ``names``: to a .parquet file.

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
    from mercore.jobs.verbs.search import open_search
    from mercore.jobs.verbs.searches.task import SearchOptions

    options = SearchOptions(
        k=k,
        within=within,
        rerank=rerank,
        exact=exact,
        relaxed=relaxed,
        check_all=check_all,
        probes=probes,
        recall=recall,
        neighbours=neighbours,
        rows=row_choice(among, without),
        labels=label_choice(same, other, query_labels),
        vectors=plain_path(vectors),
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        batch=batch,
        execution=execution_options(threads, processes, scheduler, memory),
        names=plain_path(names),
        out=plain_path(out),
        hits_format=hits_format,
        force=force,
    )
    return Call(open_search, (file_path(store), plain_path(queries)), options)


@verb(
    section=SEARCH,
    examples=(
        "mercore pairs train.zarr test.npy --kernel chi2 --within 0.95 --none",
        "mercore pairs bounds.zarr --within 0.9 --groups groups.parquet",
    ),
    compiles=True,
    plan="search",
    writes_once=True,
    replaces=True,
    again="run the same command again; with ``out`` it keeps its finished batches",
    printer="print_pairs",
    negative="refuted",
)
def pairs(
    store: Annotated[StrPath, Param(type=READ)],
    others: Annotated[Rows | None, Param(type=READ)] = None,
    *,
    within: Annotated[float | str, Param(type=WITHIN, metavar="T")],
    none: bool = False,
    groups: Annotated[StrPath | None, Param(type=WRITTEN, metavar="FILE")] = None,
    among: Among = None,
    without: Without = None,
    same: Same = None,
    other: Other = None,
    query_labels: AskedLabels = None,
    vectors: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
    kernel: Kernel = None,
    gamma: Gamma = None,
    transform: Transform = None,
    linear_map: Map = None,
    batch: Batch = None,
    threads: Threads = None,
    processes: Processes = None,
    scheduler: Scheduler = None,
    memory: SearchMemory = None,
    out: Annotated[StrPath | None, Param(type=WRITTEN, metavar="PAIRS")] = None,
    force: Force = False,
) -> Call[tuple[Report, RangeHits]]:
    """Find all pairs of a row of ``store`` and one of ``others`` within a threshold; miss none.

    Without ``others`` they are pairs of different rows of ``store``, each found once: duplicates
    have the score of a row with itself. The command prints first, second and score, unless ``out``
    names a file; the function returns a report and the pairs, as a range search does: those of row
    q of ``others`` are ``hits.of(q)``.

    Parameters
    ----------
    store : A store of vectors, of bounds, or of codes that prove.
    others : Rows to compare with those of ``store``: a file, a store or an array.
    within : Find pairs with a score of at least T, or a distance of at most T. top:0.001% takes the
        T that 0.001 % of all pairs reach.
    none : Ask whether there is no such pair: stop at the first ones, and exit with 1.
    query_labels : Labels of ``others``, one whole number per row, for ``same`` or ``other``.
    groups : Write the group of each row, and which row of each to keep, to a .parquet or .npz file:
        rows that pairs connect are one group, and its lowest id is kept.
    vectors : The new path of the encoded vectors, if they were moved.
    kernel : The kernel, or the FILE.py of a custom one. Codes have theirs.
    out : Write the pairs to a .parquet file of first, second and score, or a .npz file, a sparse
        matrix of scores; and a certificate.

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory.

    Examples
    --------
    >>> import mercore
    >>> report, hits = mercore.pairs("base.zarr", "query.npy", kernel="chi2", within=0.9)
    >>> len(hits), report["pairs"] == len(hits.ids)
    (5, True)
    """
    from mercore.jobs.verbs.pairs import PairsOptions, open_pairs
    from mercore.jobs.verbs.searches.task import SearchOptions

    search = SearchOptions(
        within=within,
        exact=True,
        rows=row_choice(among, without),
        labels=label_choice(same, other, query_labels, itself=others is None),
        vectors=plain_path(vectors),
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        batch=batch,
        execution=execution_options(threads, processes, scheduler, memory),
        out=plain_path(out),
        force=force,
    )
    options = PairsOptions(search=search, none=none, groups=plain_path(groups))
    return Call(open_pairs, (file_path(store), plain_path(others)), options)


@verb(
    section=SEARCH,
    examples=(
        "mercore graph base.zarr -k 10 --kernel chi2 --out graph.npz",
        "mercore graph bounds.zarr -k 15 --distances --out graph.npz",
        "mercore graph codes.zarr -k 15 --rerank 100 --out graph.npz",
    ),
    compiles=True,
    plan="search",
    writes_once=True,
    replaces=True,
    again="run the same command again; with ``out`` it keeps its finished batches",
    printer="print_search",
)
def graph(
    store: Annotated[StrPath, Param(type=READ)],
    *,
    k: int | None = None,
    rerank: Annotated[int | None, Param(metavar="R")] = None,
    distances: bool = False,
    among: Among = None,
    without: Without = None,
    same: Same = None,
    other: Other = None,
    vectors: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
    kernel: Kernel = None,
    gamma: Gamma = None,
    transform: Transform = None,
    linear_map: Map = None,
    batch: Batch = None,
    threads: Threads = None,
    processes: Processes = None,
    scheduler: Scheduler = None,
    memory: SearchMemory = None,
    out: Annotated[StrPath | None, Param(type=WRITTEN, metavar="GRAPH")] = None,
    hits_format: RangeFormat = None,
    force: Force = False,
) -> Call[tuple[Report, RangeHits]]:
    """Find the k nearest other rows of each row of ``store``: the true ones, unless ``rerank``.

    A row is left out of its own neighbours by its id, so equal rows are neighbours. The command
    prints row, rank, id and score, unless ``out`` names a file; the function returns a report and
    the graph: the neighbours of the row with id i are ``hits.of(i)``.

    Parameters
    ----------
    store : A store of vectors, of bounds, or of codes that prove; with ``rerank`` of any codes.
    k : Neighbours per row. By default 10.
    rerank : Make an approximate graph by codes: score the R best codes of each row by the true
        kernel.
    distances : Write the distance √(2 − 2 K) in feature space in place of the score K.
    vectors : The new path of the encoded vectors, if they were moved.
    kernel : The kernel, or the FILE.py of a custom one. Codes have theirs.
    out : Write the graph to a .npz file, a sparse matrix of SciPy by ids, or a .parquet or .ibin
        file; and a certificate of a true one.

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or exceeds the memory.

    Examples
    --------
    >>> import mercore
    >>> report, hits = mercore.graph("base.zarr", kernel="chi2", k=3)
    >>> ids, scores = hits.of(7)
    >>> len(ids), 7 in ids
    (3, False)
    """
    from mercore.jobs.verbs.graph import GraphOptions, open_graph
    from mercore.jobs.verbs.searches.task import SearchOptions

    search = SearchOptions(
        k=k,
        rerank=rerank,
        exact=rerank is None,
        rows=row_choice(among, without),
        labels=label_choice(same, other, itself=True),
        vectors=plain_path(vectors),
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        batch=batch,
        execution=execution_options(threads, processes, scheduler, memory),
    )
    options = GraphOptions(
        search=search,
        distances=distances,
        out=plain_path(out),
        hits_format=hits_format,
        force=force,
    )
    return Call(open_graph, (file_path(store),), options)


@verb(
    section=TRUTH,
    examples=(
        "mercore verify base.zarr query.bvecs hits.npz --kernel chi2",
        "mercore verify base.zarr query.bvecs hits.ibin --kernel chi2 \\\n    --bounds bounds.zarr",
    ),
    compiles=True,
    printer="print_verdicts",
    negative="refuted",
)
def verify(
    vectors: Vectors,
    queries: Queries,
    hits: Hits,
    *,
    kernel: NeededKernel,
    gamma: Gamma = None,
    transform: Transform = None,
    linear_map: Map = None,
    bounds: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
    k: int | None = None,
    among: Among = None,
    without: Without = None,
    hits_format: HitsFormat = None,
    batch: Batch = None,
    check_all: CheckAll = False,
    threads: Threads = None,
    processes: Processes = None,
    scheduler: Scheduler = None,
    memory: SearchMemory = None,
) -> Call[Report]:
    """Prove or refute that ``hits`` are the true nearest rows of ``vectors``, in order.

    Hits may come from any program: a .npy of ids, a .npz with ids and scores, I and D, or neighbors
    and distances, .ivecs, big-ann's .ibin, .parquet, or .h5 as ann-benchmarks has it. Each of
    ``queries`` is proved, tied or refuted; the command exits with 1 if one is refuted. Tied hits
    are right; other rows have the same scores. The queries that are not proved are printed: a
    refuted one with its first wrong rank, and the id that belongs there with its score.

    Parameters
    ----------
    bounds : Bounds of the vectors, or codes that prove, which save most of the work.
    k : Verify the first k hits of each query. By default all.

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
    from mercore.jobs.verbs.verify import VerifyOptions, open_verify

    options = VerifyOptions(
        kernel=kernel_options(kernel, gamma, transform, linear_map),
        bounds=plain_path(bounds),
        hits_format=hits_format,
        k=k,
        rows=row_choice(among, without),
        batch=batch,
        check_all=check_all,
        execution=execution_options(threads, processes, scheduler, memory),
    )
    arguments = (file_path(vectors), plain_path(queries), plain_path(hits))
    return Call(open_verify, arguments, options)


@verb(
    section=TRUTH,
    examples=(
        "mercore evaluate hits.npz truth.npz",
        "mercore evaluate hits.npz truth.npz --ranks 1,10 --kernel chi2 \\\n"
        "    --vectors base.zarr --queries query.bvecs",
        "mercore evaluate hits.npz truth.npz --coverage 10,20,30 \\\n"
        "    --labels labels.npy --query-labels query_labels.npy",
    ),
    printer="print_evaluation",
)
def evaluate(
    hits: Hits,
    truth: Annotated[Claims, Param(type=READ)],
    *,
    ranks: Ranks = None,
    hits_format: HitsFormat = None,
    truth_format: TruthFormat = None,
    vectors: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
    queries: Annotated[Rows | None, Param(type=READ, metavar="FILE")] = None,
    kernel: Kernel = None,
    gamma: Gamma = None,
    transform: Transform = None,
    linear_map: Map = None,
    labels: Annotated[LabelRows | None, Param(type=READ, metavar="NPY")] = None,
    query_labels: QueryLabels = None,
    neighbours: Annotated[int | None, Param(metavar="K")] = None,
    coverage: Annotated[str | Iterable[int] | None, Param(metavar="N,N,…")] = None,
    overlap: Annotated[int | None, Param(metavar="H")] = None,
    codes: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
) -> Call[Report]:
    """Compare ``hits`` with ``truth``, the true neighbours, by every definition of recall in use.

    Parameters
    ----------
    truth : The true neighbours, as ``hits``.
    vectors : Score hits and truth again by the true kernel of these rows.
    queries : The queries of the hits, for ``vectors``.
    labels : Labels of the rows, one whole number per row id, int64[n]: report the share of queries
        whose label is among the R most frequent ones of their first hits.
    neighbours : Hits that vote on a label. By default 5.
    coverage : Report the share of the first N hits that are among the true first R, for N such as
        10,20,30.
    overlap : Report the share of true neighbours among hits within the Hamming distance H. Needs
        ``codes`` and ``vectors``.
    codes : The binary codes that gave the hits, for ``overlap``.

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
    from mercore.jobs.verbs.evaluate import EvaluateOptions, open_evaluate
    from mercore.jobs.verbs.rows.labels import LabelOptions

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
    return Call(open_evaluate, (plain_path(hits), plain_path(truth)), options)


@verb(
    section=DATA,
    examples=(
        "mercore info base.zarr",
        "mercore info query.bvecs --json",
        "mercore info bigann-1B --format ibin",
    ),
    queued=False,
    printer="print_info",
)
def info(
    store: Annotated[StrPath, Param(type=READ)],
    *,
    format: Annotated[str | None, Param(metavar="NAME")] = None,  # noqa: A002 - the option's name
) -> Call[Report]:
    """Describe ``store``: a vector store, a code store, hits, a certificate, or a file of vectors.

    Parameters
    ----------
    store : A vector store, a code store, hits, a certificate, or a file of vectors.
    format : The format of a file, whatever its suffix: ibin, or another that mercore ingest or
        verify reads.

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
    from mercore.jobs.verbs.info import InfoOptions, open_info

    return Call(open_info, (file_path(store),), InfoOptions(format=format))


@verb(
    section=DATA,
    examples=("mercore check codes.zarr", "mercore check base.zarr && echo whole"),
    printer="print_check",
    negative="faults",
)
def check(store: Annotated[StrPath, Param(type=READ)], *, add_blocks: bool = False) -> Call[Report]:
    """Read every byte of ``store`` against its receipts; one sentence per fault.

    The command exits with 1 if anything is missing or wrong.

    Parameters
    ----------
    store : A store.
    add_blocks : Also add to a store of an earlier version the checksums by which single rows can
        be read.

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
    from mercore.jobs.verbs.check import open_check

    return Call(open_check, (file_path(store), add_blocks))


@verb(
    section=DATA,
    examples=(
        "mercore export codes.zarr index.faiss",
        "mercore export codes.zarr index.faiss \\\n    --queries query.bvecs --points points.npy",
    ),
    writes_once=True,
    replaces=True,
)
def export(
    codes: Annotated[StrPath, Param(type=READ)],
    index: Annotated[StrPath, Param(type=WRITTEN)],
    *,
    queries: Annotated[StrPath | None, Param(type=READ, metavar="FILE")] = None,
    points: Annotated[StrPath | None, Param(type=WRITTEN, metavar="NPY")] = None,
    kernel: CustomKernel = None,
    force: Force = False,
) -> Call[Report]:
    """Write ``codes``, made by kpca-pq, map-pq, pca-pq or pq, as ``index``, an IndexPQ of faiss.

    An index of cells of such codes becomes an IndexIVFPQ, whose codes are of no residuals.

    Parameters
    ----------
    codes : Codes of kpca-pq, map-pq, pca-pq or pq, or an index of cells of them.
    index : The index to write.
    queries : Queries for the index; ``points`` gets their coordinates.
    points : Write the queries' coordinates, to search the index with.

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
    from mercore.jobs.verbs.export import ExportOptions, open_export

    options = ExportOptions(
        queries=plain_path(queries),
        points=plain_path(points),
        kernel=plain_path(kernel),
        force=force,
    )
    return Call(open_export, (file_path(codes), file_path(index)), options)


@verb(
    section=SEARCH,
    examples=(
        "mercore compare base.zarr query.bvecs --kernel chi2 \\\n"
        "    --encoder aska --encoder kpca-pq --bytes 32",
        "mercore compare base.zarr query.bvecs --kernel chi2 --out compared \\\n"
        "    --encoder kpca-pq:landmarks=512,components=64 --seeds 3",
    ),
    compiles=True,
    again="run the same command again; compare keeps the finished runs if it has --out",
    printer="print_comparison",
)
def compare(
    vectors: Vectors,
    queries: Annotated[StrPath, Param(type=READ)],
    *,
    kernel: Annotated[
        StrPath | Sequence[StrPath], Param(type=KernelName(), values=KERNEL_BLOCK, several=True)
    ] = (),
    gamma: float | None = None,
    transform: Annotated[float | None, Param(type=SCALE, metavar="S")] = None,
    encoder: Annotated[
        str | Sequence[str], Param(metavar="SPEC", several=True, complete=complete_encoders)
    ] = (),
    kernels: Annotated[StrPath | Sequence[StrPath], Param(in_python_only=True)] = (),
    encoders: Annotated[str | Sequence[str], Param(in_python_only=True)] = (),
    bytes: int | None = None,  # noqa: A002 - the option's name
    operations: int | None = None,
    seeds: int = 1,
    ranks: Ranks = None,
    rerank: Annotated[int | str | Sequence[int] | None, Param(type=TEXT, metavar="R,R,…")] = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: Annotated[Size, memory_option("batches of searches shrink", remote=False)] = None,
    labels: Annotated[LabelRows | None, Param(type=READ, metavar="NPY")] = None,
    query_labels: QueryLabels = None,
    out: Annotated[StrPath | None, Param(type=WRITTEN, metavar="FOLDER")] = None,
    force: Force = False,
) -> Call[Report]:
    """Compare encoders on ``vectors``: recall@R over several seeds, bytes per row, and time.

    The ``queries`` are searched for in the codes of every encoder, and among all rows by the true
    kernel. One table per kernel is printed: recall@R, ns of search per row and query, and µs of
    encoding per row, with the time of fitting. ``out`` also keeps all figures in compare.json, and
    the curves in recall.png and recall.svg.

    Parameters
    ----------
    queries : A file of queries dtype[nq, d].
    kernel : A kernel, or the FILE.py of a custom one.
    gamma : γ of the kernels rbf and exp_chi2.
    transform : Use exp(S (κ − 1)) in place of every kernel κ.
    encoder : An encoder, or one with options: kpca-pq:landmarks=512,components=64. mercore encode
        --help lists them.
    kernels : An older name of ``kernel``.
    encoders : An older name of ``encoder``.
    bytes : Give every encoder its largest code of at most this many bytes per row.
    operations : Give every encoder a code that costs this many look-ups per row.
    seeds : Runs per encoder, with random states 0, 1 and so on.
    rerank : Also measure searches that score the R best codes again. Several numbers, such as
        50,200,1000, give a curve of recall and speed per encoder.
    workers : Threads that encode. By default one per core.
    threads : Threads that search. By default one per core.
    labels : Labels of the rows, one whole number per row id, int64[n]: also measure the accuracy of
        classification by 5 neighbours.
    out : Keep runs, true neighbours and curves there; a run that is kept is not repeated.

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
    from mercore.jobs.comparison.compare import open_compare
    from mercore.jobs.comparison.setup import CompareOptions
    from mercore.jobs.verbs.rows.labels import LabelOptions

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
    return Call(open_compare, (file_path(vectors), file_path(queries)), options)


@verb(
    section=SEARCH,
    examples=(
        "mercore gallery photos query_photos hits.npz --out gallery.html",
        "mercore gallery photos query_photos codes.npz reranked.npz \\\n"
        "    --truth truth.npz --out gallery.html",
        "mercore gallery tiny_images.bin query_photos hits.npz \\\n"
        "    --format tinyimages --out gallery.html",
    ),
    writes_once=True,
    replaces=True,
    printer="print_page",
)
def gallery(
    images: Annotated[StrPath, Param(type=READ)],
    query_images: Annotated[StrPath, Param(type=READ)],
    hits: Annotated[Claims | Sequence[Claims], Param(type=READ, several=True)],
    *,
    out: Page,
    shown: Annotated[int | None, Param(metavar="N")] = None,
    truth: Annotated[Claims | None, Param(type=READ, metavar="HITS")] = None,
    format: Annotated[str | None, Param(metavar="NAME")] = None,  # noqa: A002 - the option's name
    force: Force = False,
) -> Call[Report]:
    """Make a page that shows query images beside the images of their hits.

    ``images`` and ``query_images`` are folders of images, or files with ``format``, as mercore
    ingest read them: all of them, so that an id is the number of an image. ``hits`` are files that
    mercore search wrote. The page shows the first 5 hits of each query. It shows several files of
    hits side by side, with the names of the files. The page is one file without scripts, which
    needs no other file.

    Parameters
    ----------
    images : The images that were ingested, all of them.
    query_images : The images of the queries.
    hits : A file of hits, ids [nq, k], or several of these.
    shown : Show the first N queries. By default 24, or all of fewer queries.
    truth : The true neighbours: mark the hits that are among the first 5 of their query here, and
        list recalls.
    format : The format of images that are in one file: tinyimages (as the 80 million tiny images).

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
    from mercore.jobs.gallery.gallery import GalleryOptions, open_gallery, several_hits

    options = GalleryOptions(
        out=file_path(out), shown=shown, truth=plain_path(truth), format=format, force=force
    )
    listed = [plain_path(each) for each in several_hits(hits)]
    return Call(open_gallery, (file_path(images), file_path(query_images), listed), options)


@verb(
    section=SEARCH,
    examples=(
        "mercore report codes.zarr --out report.html",
        "mercore report codes.zarr --queries query.bvecs \\\n"
        "    --truth truth.npz --out report.html",
        "mercore report compared --out report.html",
    ),
    compiles=True,
    writes_once=True,
    replaces=True,
    printer="print_page",
)
def report(
    store: Annotated[StrPath, Param(type=READ)],
    *,
    out: Page,
    vectors: Annotated[StrPath | None, Param(type=READ, metavar="STORE")] = None,
    queries: Annotated[Rows | None, Param(type=READ, metavar="FILE")] = None,
    truth: Annotated[Claims | None, Param(type=READ, metavar="HITS")] = None,
    kernel: CustomKernel = None,
    threads: Threads = None,
    memory: LocalMemory = None,
    force: Force = False,
) -> Call[Report]:
    """Make a page about ``store``: what it holds, recall, speed and errors of scores.

    The store holds codes or bounds, or is the folder that mercore compare wrote. Recall, speed and
    errors are measured on a sample of fixed size. The page is one file without scripts, which needs
    no other file.

    Parameters
    ----------
    store : Codes or bounds, or the folder of a comparison.
    vectors : The vectors of the codes. By default those that they were encoded from.
    queries : Search for these, up to 1000 of them. By default rows of the store.
    truth : The true neighbours of ``queries`` among all rows, and their certificate beside them. By
        default searched for among up to 131072 rows.

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
    from mercore.jobs.gallery.report.report import ReportOptions, open_report

    options = ReportOptions(
        out=file_path(out),
        vectors=plain_path(vectors),
        queries=plain_path(queries),
        truth=plain_path(truth),
        kernel=plain_path(kernel),
        execution=execution_options(threads, None, None, memory),
        force=force,
    )
    return Call(open_report, (file_path(store),), options)


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
    gamma: float | str | None,
    transform: float | str | None,
    linear_map: StrPath | None,
) -> "KernelOptions":
    """Return the kernel that keywords name."""
    from mercore.jobs.verbs.inputs import KernelOptions

    return KernelOptions(
        name=plain_path(name), gamma=gamma, transform=transform, linear_map=plain_path(linear_map)
    )


def row_choice(among: "StrPath | RowSet | None", without: "StrPath | RowSet | None") -> "RowChoice":
    """Return the rows that keywords name."""
    from mercore.jobs.verbs.rows.choice import RowChoice

    return RowChoice(among=plain_path(among), without=plain_path(without))


def label_choice(
    same: "LabelRows | None",
    other: "LabelRows | None",
    query_labels: "LabelRows | None" = None,
    *,
    itself: bool = False,
) -> "LabelChoice":
    """Return the labels that keywords name; ``itself``: the rows of the store are the queries."""
    from mercore.jobs.verbs.rows.labels import LabelChoice

    return LabelChoice(
        same=plain_path(same),
        other=plain_path(other),
        query_labels=plain_path(query_labels),
        itself=itself,
    )


def _encoder(
    encoder: str | EncoderSpec | BoundChoice | None,
) -> EncoderSpec | BoundChoice | EncoderChoice:
    from mercore.jobs.verbs.choices.encoder import EncoderChoice
    from mercore.jobs.verbs.encode import BoundChoice

    if encoder is None:
        return EncoderChoice()
    if not isinstance(encoder, str):
        return encoder
    return BoundChoice() if encoder == CHOOSE else spec_of_text(encoder)


def _names(name: str, *given: StrPath | Sequence[StrPath]) -> tuple[str, ...]:
    """Return the values of an option that takes one name or several, under any of its keywords."""
    names = tuple(
        file_path(each)
        for value in given
        for each in ([value] if isinstance(value, str | Path) else value)
    )
    if not names:
        raise InputError(
            f"{name} is missing: expected one name or more. Fix: {setting(**{name: NAMES[name]})}."
        )
    return names


def execution_options(
    threads: int | None,
    processes: int | None,
    scheduler: str | None,
    memory: Size,
    *,
    option: str = "threads",
) -> "Execution":
    """Return where keywords say that the work runs."""
    from mercore.jobs.resources.execution import Execution

    return Execution(
        threads=threads,
        processes=processes,
        scheduler=scheduler,
        memory=_bytes(memory),
        threads_option=option,
    )


DECLARED = tuple(VERBS)
FUNCTIONS = (*DECLARED, kernels.__name__, encoders.__name__)  # what ``import mercore`` gives
