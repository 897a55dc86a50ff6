"""The report on a billion codes: real encodes, a store of 10⁹ codes, and exact search under 1 GB."""

import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mercore.jobs import api
from tests.benchmarks.measurements import batches, billion, many_cores
from tests.benchmarks.measurements.jitter import write_jittered
from tests.benchmarks.reporting.tables import Report, Section, Table, timed_table

SMALL = ("kpca-pq", "--components", 64, "--subquantizers", 8, "--proof", "none")
PROVING = ("kpca-pq",)
FAR_ROWS, LISTED_ROWS = 2_300_000_000, 10_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """The inputs and options of the report, and the vectors that its sections share."""

    base: str
    query_file: str
    folder: Path
    rows: int
    codes: int

    @cached_property
    def vectors(self) -> Path:
        """A vector store of jittered rows."""
        return self._jittered("vectors", self.rows)

    @cached_property
    def few_vectors(self) -> Path:
        """A vector store of a tenth of the rows."""
        return self._jittered("few-vectors", self.rows // 10)

    def _jittered(self, name: str, rows: int) -> Path:
        """Make a vector store of jittered rows."""
        source = self.folder / "jittered.bvecs"
        write_jittered(self.base, source, rows)
        api.ingest(source, self.folder / name)
        source.unlink()
        return self.folder / name

    @cached_property
    def real(self) -> Path:
        """A vector store of the base as it is."""
        api.ingest(self.base, self.folder / "real")
        return self.folder / "real"

    def real_codes(self, name: str, encoder: str) -> Path:
        """The codes of the base by an encoder."""
        api.encode(self.real, self.folder / name, kernel="chi2", encoder=encoder)
        return self.folder / name

    def encoded(self, name: str, encoder: tuple[object, ...]) -> Path:
        """The codes of an encoder, made on first use."""
        path = self.folder / name
        if not path.exists():
            options = dict(zip(encoder[1::2], encoder[2::2], strict=True))
            text = ",".join(f"{str(flag)[2:]}={value}" for flag, value in options.items())
            made = f"{encoder[0]}:{text}" if text else str(encoder[0])
            api.encode(self.vectors, path, kernel="chi2", encoder=made)
        return path


def _encode(setup: Setup) -> list[Table]:
    few, many, folder = setup.few_vectors, setup.vectors, setup.folder
    rows = [
        billion.encoded(few, folder / "few-small", SMALL),
        billion.encoded(many, folder / "small", SMALL),
        billion.encoded(many, folder / "busy", SMALL, others=1),
        billion.encoded(few, folder / "few-proving", PROVING),
        billion.encoded(many, folder / "proving", PROVING),
    ]
    shutil.rmtree(folder / "busy")
    title = "mercore encode, chi2, jittered SIFT rows, two cores"
    return [timed_table(title, rows, "encoder", "rows", "other busy processes")]


def _scan(setup: Setup) -> list[Table]:
    store = setup.folder / "billion"
    billion.tiled(setup.encoded("small", SMALL), setup.vectors, store, setup.codes)
    rows = billion.searches(store, setup.query_file, setup.folder)
    shutil.rmtree(store)
    title = f"{setup.codes:,} codes of 8 bytes, two threads, --memory 1GB"
    return [timed_table(title, rows, "command")]


def _large(setup: Setup) -> list[Table]:
    codes = setup.encoded("proving", PROVING)
    rows = billion.large(setup.vectors, codes, setup.query_file, setup.folder, setup.codes)
    for name in ("large-vectors", "large-codes"):
        shutil.rmtree(setup.folder / name)
    title = f"{setup.codes:,} vectors of 128 bytes and their codes, two threads, --memory 1GB"
    return [timed_table(title, rows, "command")]


def _aska(setup: Setup) -> list[Table]:
    codes = setup.folder / "few-aska"
    api.encode(setup.few_vectors, codes, kernel="chi2", encoder="aska")
    rows = billion.repeated_searches(codes, setup.query_file, setup.folder, setup.codes)
    shutil.rmtree(setup.folder / "repeated")
    title = f"{setup.codes:,} codes of aska, two threads, --memory 1GB, in memory"
    return [timed_table(title, rows, "queries", fixed=("bytes", "parts"))]


def _ids(setup: Setup) -> list[Table]:
    codes = setup.encoded("small", SMALL)
    rows = billion.far_ids(codes, setup.query_file, setup.folder, FAR_ROWS)
    for name in ("far", "near"):
        shutil.rmtree(setup.folder / name)
    fixed = ("parts", "hits", "hits beyond 2³¹", "wrong")
    return [timed_table("32 queries, codes of 8 bytes, two threads", rows, "rows", fixed=fixed)]


def _threads(setup: Setup) -> list[Table]:
    file = setup.query_file
    small = setup.real_codes("real-small", "kpca-pq:components=64,subquantizers=8,proof=none")
    aska, proving = (
        setup.real_codes("real-aska", "aska"),
        setup.real_codes("real-proving", "kpca-pq"),
    )
    rows = [
        batches.whole_batches(small, file, 1024, 4, 100),
        batches.whole_batches(aska, file, 128, 4, 10),
        batches.whole_batches(setup.encoded("small", SMALL), file, 1024, 2, 100),
        batches.whole_exact_batches(setup.real, proving, file, 100, 8),
        batches.whole_exact_batches(setup.real, proving, file, 1024, 4),
    ]
    return [timed_table("two threads, codes in memory", rows, "search")]


def _lists(setup: Setup) -> list[Table]:
    rows = batches.long_lists(setup.encoded("small", SMALL), setup.query_file, LISTED_ROWS)
    title = f"{LISTED_ROWS:,} codes of 8 bytes in memory, two threads"
    return [timed_table(title, rows, "queries")]


def _parts(setup: Setup) -> list[Table]:
    stores = [setup.encoded("small", SMALL), setup.encoded("proving", PROVING)]
    rows = [many_cores.part_costs(setup.vectors, store) for store in stores]
    keys = ("nodes × threads", "work per part, s")
    return [
        timed_table("one part of an encode, one thread", rows, "codes"),
        timed_table("stand-in work on Dask", many_cores.clusters(), *keys, fixed=("parts",)),
    ]


def _exact(setup: Setup) -> list[Table]:
    codes = setup.encoded("proving", PROVING)
    rows = billion.exact(setup.vectors, codes, setup.query_file, setup.folder)
    title = f"{setup.rows:,} rows, 100 queries, 10 nearest, chi2, two threads, --memory 1GB"
    return [timed_table(title, rows, "command")]


REPORT = Report[Setup](
    title="A billion",
    text="""
Whole commands, in a process of their own, with the time of starting Python (about a second). *From
disk* means that the files were removed from the page cache before.
""",
    sections=[
        Section(
            name="encode",
            title="Real encodes",
            text="""
The rows are those of SIFT, jittered into distinct ones. *Planned* is the time that `mercore plan
encode` said just before; beside another busy process, the time that it says if that goes on. The
time includes learning the model.
""",
            measure=_encode,
        ),
        Section(
            name="scan",
            title="Codes of a billion rows",
            text="""
The codes were made by the encoder from jittered rows; each part of the store holds codes of those,
drawn anew. `info` opens the store, `check` reads and verifies every byte, and each search scans
every code. *Reading the files* is what the disk and the memory allow.
""",
            measure=_scan,
        ),
        Section(
            name="exact",
            title="Exact search of more rows than memory allows",
            text="""
Every answer has a certificate. Codes that prove are those of `kpca-pq` by default. *Every row
scored* is the exact search without codes.
""",
            measure=_exact,
        ),
        Section(
            name="large",
            title="A billion vectors",
            text="""
The vectors and the codes that prove are those of above, as files that are linked over and over: to
each command they are a billion rows in as many parts, and every byte is read and checked; but the
disk holds them once, so the system's memory does too. Every neighbour is there fifty times, and all
of those tie.
""",
            measure=_large,
        ),
        Section(
            name="aska",
            title="A billion codes of ASKA",
            text="""
The codes are those of two million rows, repeated as above: the disk holds them once, so what was
timed is the scan and the checks, not the disk.
""",
            measure=_aska,
        ),
        Section(
            name="ids",
            title="Ids beyond 2³¹",
            text="""
Codes repeated as above. The hits must be those of the codes before they were repeated, each as
often as it is repeated, lower ids first; *wrong* counts the others.
""",
            measure=_ids,
        ),
        Section(
            name="threads",
            title="Whole batches",
            text="""
Where there are several batches, each thread takes a whole one; before, the threads shared the parts
of one batch after another. The ids are the same. On real SIFT, and on jittered rows for millions.
""",
            measure=_threads,
        ),
        Section(
            name="lists",
            title="Long lists",
            text="""
One batch, without the start of the process.
""",
            measure=_lists,
        ),
        Section(
            name="parts",
            title="The cost of a part, and many cores",
            text="""
*Read* is from the system's memory, with the checks; *write* includes checksums, the receipt, and
waiting for the disk. The clusters have the scheduler, the network protocol and the way of
submitting of an encode; instead of encoding, a part sleeps. All nodes live in one process on two
cores, which the scheduler shares with them.
""",
            measure=_parts,
        ),
    ],
)
