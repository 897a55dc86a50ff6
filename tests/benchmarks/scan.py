"""The report on scanning codes: beside faiss and scipy, and from disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import faiss

from mercore.jobs import api
from tests.benchmarks.measurements import hamming, pq, scan
from tests.benchmarks.measurements.jitter import write_jittered
from tests.benchmarks.reporting.plots import Lines, draw_lines
from tests.benchmarks.reporting.tables import Plot, Report, Row, Section, Table, timed_table

NS = "ns per row and query"


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """The inputs and options of the report, and the codes that its sections share."""

    base: str
    queries: str
    folder: Path
    rows: int
    codes: str | None

    @cached_property
    def jittered(self) -> str:
        """A file of jittered rows of the base."""
        path = self.folder / "jittered.bvecs"
        write_jittered(self.base, path, self.rows)
        return str(path)

    @cached_property
    def contest(self) -> scan.Contest:
        """ASKA codes of jittered rows under chi2, and the indexes of faiss."""
        if self.codes is None:
            vectors = self.folder / "vectors"
            api.ingest(self.jittered, vectors)
            api.encode(vectors, self.folder / "codes", kernel="chi2", encoder="aska")
        faiss.omp_set_num_threads(1)
        return scan.Contest(self.codes or str(self.folder / "codes"), self.queries)

    @property
    def title(self) -> str:
        """The codes of the ASKA sections."""
        spec = self.contest.encoder.spec
        return f"{self.contest.n:,} codes, m = {spec.n_atoms:,}, α = 8, int8 weights, k = {scan.K}"


def _aska(setup: Setup) -> list[Table]:
    rows, keys = scan.one(setup.contest), ("contestant", "queries")
    return [
        timed_table(f"one query, one thread, {setup.title}", rows, *keys),
        timed_table(f"batches, one thread, {setup.title}", scan.batches(setup.contest), *keys),
    ]


def _disk(setup: Setup) -> list[Table]:
    return [timed_table(setup.title, scan.streaming(setup.contest), "work")]


def _pq(setup: Setup) -> list[Table]:
    speed, agreement, found = [], [], []
    for width in (8, 16):
        contest = pq.opened(setup.jittered, setup.queries, width)
        faiss.omp_set_num_threads(1)
        speed += pq.speed(contest)
        agreement += [pq.agreement(contest, product=product) for product in (False, True)]
        found.append(pq.nearest_found(contest))
    rows = f"{setup.rows:,} codes, k = {pq.K}"
    keys = ("bytes per row", "contestant", "queries")
    return [
        timed_table(f"one thread, {rows}", speed, *keys),
        Table(
            title=f"agreement with faiss IndexPQ, {pq.BATCH} queries, {rows}",
            rows=agreement,
            keys=("bytes per row", "metric"),
        ),
        Table(
            title=f"share of {pq.BATCH} queries whose nearest row by L2 is among the {pq.K} found",
            rows=found,
            keys=("bytes per row",),
        ),
    ]


def _binary(setup: Setup) -> list[Table]:
    faiss.omp_set_num_threads(1)
    rows = [hamming.hamming(bits, setup.rows) for bits in hamming.BITS]
    return [timed_table(f"{NS}, one thread, k = {hamming.K}", rows, "bits", "rows")]


def _float(setup: Setup) -> list[Table]:
    faiss.omp_set_num_threads(1)
    row = hamming.dense(min(setup.rows, hamming.DENSE_ROWS))
    title = f"{NS}, one thread, d = {hamming.DENSE_DIMENSIONS}, k = {hamming.K}"
    return [timed_table(title, [row], "rows")]


def _draw_aska(measured: Mapping[str, Sequence[Table]]) -> bytes:
    """Draw ns per row and query of one query and of batches."""
    shown = (scan.OURS, scan.INDEX_PQ, scan.FAST_SCAN, scan.SCIPY)
    panels = [
        Lines(
            _where("ASKA codes", label, measured),
            _points([*tables[0].rows, *tables[1].rows], shown),
        )
        for label, tables in measured.items()
    ]
    return draw_lines(panels, "queries per batch", f"{NS}, one thread")


def _draw_pq(measured: Mapping[str, Sequence[Table]]) -> bytes:
    """Draw ns per row and query of product-quantisation codes, a panel per size of the code."""
    shown = (pq.OURS, pq.INDEX_PQ, pq.FAST_SCAN)
    panels = []
    for label, tables in measured.items():
        for width in dict.fromkeys(row["bytes per row"] for row in tables[0].rows):
            rows = [row for row in tables[0].rows if row["bytes per row"] == width]
            title = _where(f"codes of {width} bytes", label, measured)
            panels.append(Lines(title, _points(rows, shown)))
    return draw_lines(panels, "queries per batch", f"{NS}, one thread")


def _where(title: str, label: str, measured: Mapping[str, Sequence[Table]]) -> str:
    return f"{title}, processor {label}" if len(measured) > 1 else title


def _points(rows: Sequence[Row], shown: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """Return the points (queries, ns) of contestants."""
    return {
        name: [(row["queries"], row[NS]) for row in rows if row["contestant"] == name]
        for name in shown
    }


REPORT = Report[Setup](
    title="Speed of scanning",
    figure="A scan of codes of 8 bytes by 64 queries on one thread takes 0.158 and 0.082 ns per row and "
    "query on two processors: 47.9 and 80.4 times as fast as IndexPQ of faiss, 4.23 and 5.56 times as "
    "fast as IndexPQFastScan.",
    text="""
A scan passes all codes in memory, and keeps the k best rows per query. Selection and exact
rescoring are included. Times are medians of repeats that alternate between the contestants of a
table in one run, on the same number of rows and threads. *ns per row and query* is the wall time
divided by rows times queries. *×* is the speed as a multiple of the named contestant's. The rows
are those of the base, each scaled by 1 ± 5 % and each value by 1 ± 10 %, all distinct.
""",
    sections=[
        Section(
            name="aska",
            title="ASKA codes",
            text="""
mercore filters by a table of seven-bit integers, and scores in float32 the rows that the proven
error of the filter cannot rule out: ids and scores are those of the *float32 loop* to the bit. *By
distance* reads the residual too (`--metric distance`). *Only reading the bytes* is the limit that
the memory sets. The codes of faiss have 8 bytes per row, those of mercore 26 that are read. The
last column extrapolates to the 79 million codes of Davis et al. (2014), who state 2.5 s per query.

Queries of a batch share the reading of a row. *With making its tables* includes K(D, x) for the
queries, which is made once per batch. One query is bound by two look-ups per atom of a row. A batch
reads eight lines of 64 bytes of its table per row, and shares the fixed work of a row among its
queries. scipy computes scores only, without selection, on the first 200,000 codes at most. *×*
columns compare with batches of 64 of faiss.
""",
            measure=_aska,
            plot=Plot("Nanoseconds per row and query against the batch, beside faiss", _draw_aska),
        ),
        Section(
            name="rescored",
            title="Rows that the filter leaves",
            text="""
The number of rows per query that are scored in float32. It follows from the proven error of the
filter, and from the rows that enter the list of the best on the way, about k ln(n / 8192).
""",
        ),
        Section(
            name="threads",
            title="Two threads and two processes",
            text="""
Throughput of two threads as a multiple of one, and of two processes that scan at once as a multiple
of one process: the second is what the machine gives.
""",
        ),
        Section(
            name="disk",
            title="ASKA codes from disk",
            text="""
Bytes of the code store per second. *Cold* scans begin with the files removed from the page cache,
*warm* ones with the files in it. *readinto* reads the files into one buffer and does nothing else;
*readinto + crc32c* also computes the checksums, which every search verifies.
""",
            measure=_disk,
        ),
        Section(
            name="pq",
            title="Product-quantisation codes",
            text="""
The same codes in mercore and in faiss `IndexPQ` (8 bits per sub-quantizer), and as many bytes in
`IndexPQFastScan` (4 bits). The making of tables is included. A batch adds up bytes that count how
far an entry lies below the best of its sub-quantizer; one query looks up 64 rows at a time in
registers if the processor has AVX-512 VBMI, and runs a float32 loop elsewhere. *×* columns compare
one query with one query, and batches with batches of 64. *Pairs rescored* are the pairs of row and
query that are scored exactly. Hits that faiss does not have must tie with its last hit.
""",
            measure=_pq,
            plot=Plot("Nanoseconds per row and query of product-quantisation codes", _draw_pq),
        ),
        Section(
            name="binary",
            title="Binary codes",
            text="""
Random codes, beside faiss `IndexBinaryFlat` with as many queries per batch. Both find the same
distances, which the benchmark checks first.
""",
            measure=_binary,
        ),
        Section(
            name="float",
            title="Float rows",
            text="Rows as `kpca` and `kpca-jl` store them, by inner product, beside faiss `IndexFlatIP`.",
            measure=_float,
        ),
        Section(
            name="compressors",
            title="Compressors",
            text="""
`--compressor` of vectors and ASKA codes. *Reading* means to read, verify and decode every part; *×
none* is that time as a multiple of the time without compression. Codes are nearly random: an atom's
13 bits lie in 16, and that is all a compressor can save. The last chunk is stored whole, which adds
to the bytes per row. lz4, bz2 and lzma are codecs of numcodecs, which other Zarr libraries may
lack.
""",
        ),
    ],
)
