"""The report on a billion codes: real encodes, a store of 10⁹ codes, and exact search under 1 GB."""

import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mercore.jobs import api
from tests.benchmarks.measurements import billion
from tests.benchmarks.measurements.jitter import ingest_jittered
from tests.benchmarks.reporting.tables import Report, Section, Table, timed_table

SMALL = ("kpca-pq", "--components", 64, "--subquantizers", 8, "--proof", "none")
PROVING = ("kpca-pq",)


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
        ingest_jittered(self.base, self.folder / "vectors", self.rows)
        return self.folder / "vectors"

    @cached_property
    def few_vectors(self) -> Path:
        """A vector store of a tenth of the rows."""
        ingest_jittered(self.base, self.folder / "few-vectors", self.rows // 10)
        return self.folder / "few-vectors"

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


def _exact(setup: Setup) -> list[Table]:
    codes = setup.encoded("proving", PROVING)
    rows = billion.exact(setup.vectors, codes, setup.query_file, setup.folder)
    title = f"{setup.rows:,} rows, 100 queries, 10 nearest, chi2, two threads, --memory 1GB"
    return [timed_table(title, rows, "command")]


REPORT = Report[Setup](
    title="A billion",
    figure="On two cores, 128 queries scan 1,000,000,000 codes of 8 bytes in 11.4 s from disk, and in "
    "6.57 s in memory, by 236 MB.",
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
        ),
        Section(
            name="ids",
            title="Ids beyond 2³¹",
            text="""
Codes repeated as above. The hits must be those of the codes before they were repeated, each as
often as it is repeated, lower ids first; *wrong* counts the others.
""",
        ),
        Section(
            name="threads",
            title="Whole batches",
            text="""
Where there are several batches, each thread takes a whole one; before, the threads shared the parts
of one batch after another. The ids are the same. On real SIFT, and on jittered rows for millions.
""",
        ),
        Section(
            name="lists",
            title="Long lists",
            text="""
One batch, without the start of the process.
""",
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
        ),
    ],
)
