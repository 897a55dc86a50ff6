"""The parameters that several verbs share."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mercore.jobs.face.declaring import Param
from mercore.jobs.options import (
    GAMMA,
    GROWN,
    KERNEL_BLOCK,
    READ,
    ROWS,
    SCALE,
    WRITTEN,
    ByteCount,
    KernelName,
    complete_files,
)
from mercore.pipeline.kernels import KINDS

if TYPE_CHECKING:
    from mercore.jobs.verbs.rows.choice import RowSet
    from mercore.stores.formats import Sliced
    from mercore.stores.formats.labels import AnyLabels
    from mercore.stores.results.hits import AnyHits
    from mercore.stores.results.names import AnyNames
else:  # types of values in memory, whose modules take long to load
    Sliced = AnyLabels = AnyHits = AnyNames = RowSet = Any

StrPath = str | Path
Rows = StrPath | Sliced
Claims = Path | AnyHits
GAMMAS = " and ".join(
    f"{kind.name} ({f'by default {kind.default_gamma:g}' if kind.default_gamma else 'needed'})"
    for kind in KINDS.values()
    if kind.takes_gamma
)

Source = Annotated[
    Rows | Sequence[Rows],
    Param(
        "A file, or rows [n, d]: an array of NumPy, Dask, xarray, Zarr or h5py, a memmap, a data "
        "frame of pandas or polars, a table, a stream or a column of lists of a library that gives "
        "Arrow data, a tensor of one that shares memory by DLPack, a CSR matrix, or a list of "
        "lists; or several of these, whose rows follow one another.",
        type=READ,
        several=True,
    ),
]
NewVectors = Annotated[StrPath, Param("The new vector store.", type=WRITTEN)]
GrownVectors = Annotated[StrPath, Param("The vector store that grows.", type=GROWN)]
Vectors = Annotated[
    StrPath, Param("A vector store, or a 2-D Zarr array of another tool.", type=READ)
]
Queries = Annotated[Rows, Param("A file, or queries dtype[nq, d].", type=READ)]
Codes = Annotated[StrPath, Param("A store of codes.", type=READ)]
DropZeroRows = Annotated[
    bool, Param("Leave out rows that are all zero; the others keep their ids.")
]
DropBadRows = Annotated[
    bool, Param("Leave out rows with NaN or infinity; the others keep their ids.")
]
Compressor = Annotated[
    str,
    Param("Compress the columns: none, zstd, blosc, gzip, lz4, bz2 or lzma; zstd:9 sets a level."),
]
Force = Annotated[bool, Param("Replace files that exist.")]
CheckAll = Annotated[
    bool, Param("Also read the bytes of the stores on which no answer rests, and check them.")
]

KERNEL = Param(
    "The kernel, or the FILE.py of a custom one.", type=KernelName(), values=KERNEL_BLOCK
)
NeededKernel = Annotated[StrPath, KERNEL]
Kernel = Annotated[StrPath | None, KERNEL]
CustomKernel = Annotated[
    StrPath | None,
    Param(
        "The file of the custom kernel, if the codes were made with one.",
        type=KernelName(),
        metavar="FILE.py",
        complete=complete_files,
    ),
]
Gamma = Annotated[
    float | str | None,
    Param(
        f"γ of the kernels {GAMMAS}. With median, 1 / the median squared distance of a sample of "
        "the rows.",
        type=GAMMA,
        metavar="G|median",
    ),
]
TRANSFORM = "Use exp(S (κ − 1)) in place of the kernel κ."
Transform = Annotated[float | None, Param(TRANSFORM, type=SCALE, metavar="S")]
ChosenTransform = Annotated[
    float | str | None,
    Param(
        f"{TRANSFORM} With auto, a sample decides on S: 1, 3, 5, 7 or 9.",
        type=SCALE,
        metavar="S|auto",
    ),
]
Map = Annotated[
    StrPath | None,
    Param(
        "Use L x in place of every row and query x, L [D, d]: a learned metric under any kernel.",
        type=READ,
        metavar="L.npy",
    ),
]
Workers = Annotated[int | None, Param("Number of threads. By default one per core.")]
Threads = Annotated[
    int | None,
    Param("Number of threads. By default one per core, fewer if ``memory`` needs it."),
]
Processes = Annotated[
    int | None, Param("Run on this many processes of one thread each, not on threads.")
]
Scheduler = Annotated[
    str | None,
    Param(
        "Run on an existing Dask cluster, not on threads: tcp://… or tls://….", metavar="ADDRESS"
    ),
]
Batch = Annotated[
    int | None,
    Param("Queries per pass over the store. By default 1024, fewer if ``memory`` needs it."),
]
Size = int | str | None  # bytes, or a text such as 1.5GB


def memory_option(smaller: str, *, remote: bool = True, more: str = "") -> Param:
    """Return the option ``memory`` of a verb whose work becomes ``smaller``.

    The work runs in this process, or also on ``remote`` workers.
    """
    place = (
        ", for this process and its ``processes`` together, or for each one-thread worker of a "
        "``scheduler``"
    )
    return Param(
        f"The limit of memory, such as 1.5GB{place * remote}. If the defaults take more, "
        f"{smaller}; work that is still too large does not start.{more}",
        type=ByteCount(),
    )


SMALLER_SEARCHES = "batches shrink and threads become fewer"
WorkersMemory = Annotated[Size, memory_option("workers become fewer")]
SearchMemory = Annotated[
    Size,
    memory_option(
        SMALLER_SEARCHES, more=" Codes that several batches read stay in the memory that is left."
    ),
]
LocalMemory = Annotated[Size, memory_option(SMALLER_SEARCHES, remote=False)]

FORMATS = "ivecs, ibin (big-ann), npy, npz, parquet or h5"


def format_of(hits: str) -> Param:
    """Return the option that names the format of a file of hits."""
    return Param(f"The format of ``{hits}``, whatever its suffix: {FORMATS}.", metavar="FORMAT")


OutFormat = Annotated[str | None, format_of("out")]
RangeFormat = Annotated[
    str | None,
    Param("The format of ``out``: npz, parquet, ibin, or faiss (lims, D and I).", metavar="FORMAT"),
]
HitsFormat = Annotated[str | None, format_of("hits")]
TruthFormat = Annotated[str | None, format_of("truth")]
Hits = Annotated[
    Claims,
    Param("A file of hits, ids int64[nq, k], or one list of ids per query.", type=READ),
]
Ranks = Annotated[
    str | Iterable[int] | None,
    Param("Ranks to report, such as 1,10. By default 1,10,100,1000, as far as there are ranks."),
]
SET_OF_ROWS = (
    "A range of ids such as 0:1000, or a file of ids or of a mask with one truth value per id: a "
    ".npy, or FILE.parquet::COLUMN; or such an array."
)
Ids = Annotated[StrPath | RowSet, Param(SET_OF_ROWS, type=ROWS, metavar="IDS")]
Among = Annotated[
    StrPath | RowSet | None,
    Param(f"Look among these rows alone. {SET_OF_ROWS}", type=ROWS, metavar="ROWS"),
]
Without = Annotated[
    StrPath | RowSet | None,
    Param(f"Leave these rows out. {SET_OF_ROWS}", type=ROWS, metavar="ROWS"),
]
LabelRows = Path | AnyLabels
SET_OF_LABELS = "One whole number per row id, int64[n]: a .npy, FILE.parquet::COLUMN, or an array."
Same = Annotated[
    LabelRows | None,
    Param(
        f"Look for each query among the rows of its label alone. {SET_OF_LABELS}",
        type=READ,
        metavar="LABELS",
    ),
]
Other = Annotated[
    LabelRows | None,
    Param(
        f"Look for each query among the rows of other labels. {SET_OF_LABELS}",
        type=READ,
        metavar="LABELS",
    ),
]
AskedLabels = Annotated[
    LabelRows | None,
    Param(
        "Labels of the queries, int64[nq], for ``same`` or ``other``.", type=READ, metavar="LABELS"
    ),
]
QueryLabels = Annotated[
    LabelRows | None,
    Param("Labels of the queries, int64[nq], for ``labels``.", type=READ, metavar="NPY"),
]
IdNames = Annotated[
    StrPath | AnyNames | None,
    Param(
        "Show a name beside each id: one text or whole number per id of the store, in a .npy, "
        "FILE.parquet::COLUMN, an array, a list, or a column of a data frame. Only the names of "
        "rows that were found are read.",
        type=READ,
        metavar="NAMES",
    ),
]
Page = Annotated[StrPath, Param("Write the page to this file.", type=WRITTEN, metavar="PAGE.html")]
