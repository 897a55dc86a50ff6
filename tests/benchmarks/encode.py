"""The report on encoding: kernels, peers, and the whole command."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from mercore.jobs import api
from mercore.jobs.resources.execution import available_cores
from mercore.stores.rows import open_rows
from tests.benchmarks.measurements import encode
from tests.benchmarks.measurements.jitter import ingest_jittered
from tests.benchmarks.reporting.plots import Bars, draw_bars
from tests.benchmarks.reporting.tables import Plot, Report, Row, Section, Table, timed_table

WARMING_ROWS = 4096
PAPER_ROWS, PAPER_CORES = 79_000_000, 4


class Sizes(NamedTuple):
    """The sizes of made data: d, m, rows per repeat, rows beside SPAMS."""

    dims: tuple[int, ...] = (128, 384)
    atoms: tuple[int, ...] = (1024, 8192)
    rows: int = 2048
    peers: tuple[int, int] = (2048, 12_000)


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """The inputs and options of the report."""

    base: str | None
    folder: Path
    rows: int
    kernel: str
    sizes: Sizes

    @cached_property
    def store(self) -> str:
        """A store of jittered rows of the base."""
        return self.jittered(self.rows)

    def jittered(self, rows: int) -> str:
        """Make a store of jittered rows of the base; return its path."""
        assert self.base is not None
        store = self.folder / f"vectors-{rows}"
        ingest_jittered(self.base, store, rows)
        return str(store)


def _kernels(setup: Setup) -> list[Table]:
    sizes = setup.sizes
    rows = encode.costs(sizes.dims, sizes.atoms, sizes.rows)
    title, keys = f"one thread, {sizes.rows:,} made histograms", ("kernel", "d", "m", "α")
    return [timed_table(title, rows, *keys, fixed=(encode.PAPER_TIME,))]


def _peers(setup: Setup) -> list[Table]:
    atoms, (few, many) = max(setup.sizes.atoms), setup.sizes.peers
    rows = encode.peers(setup.sizes.dims, atoms, (few, many))
    title = (
        f"one thread, hellinger, m = {atoms:,}, α = 8; {few:,} rows with set-up, {many:,} in all"
    )
    return [timed_table(title, rows, "contestant", "d", fixed=(encode.RESIDUAL,))]


def _end_to_end(setup: Setup) -> list[Table]:
    if setup.base is None:
        return []
    dims, rows = open_rows(setup.base).shape[1], list[Row]()
    warm = setup.jittered(min(WARMING_ROWS, setup.rows // 2))
    api.encode(warm, setup.folder / "warm", kernel=setup.kernel, encoder="aska:atoms=256")
    for workers in range(1, available_cores() + 1):
        began = time.perf_counter()
        codes = setup.folder / f"codes-{workers}"
        api.encode(setup.store, codes, kernel=setup.kernel, encoder="aska", workers=workers)
        seconds = time.perf_counter() - began
        each = seconds * workers / setup.rows
        rows.append(
            {
                "workers": workers,
                "seconds": seconds,
                "µs per row": seconds / setup.rows * 1e6,
                "µs per row and worker": each * 1e6,
                "× one worker": (rows[0]["seconds"] if rows else seconds) / seconds,
                "minutes of 79 million rows on four cores": each * PAPER_ROWS / PAPER_CORES / 60,
            }
        )
    title = f"{setup.kernel}, {setup.rows:,} jittered rows, d = {dims}, m = 8,192, α = 8"
    return [timed_table(title, rows, "workers")]


def _draw(measured: Mapping[str, Sequence[Table]]) -> bytes:
    """Draw K(y, D) and the rest of encoding on top of each other: α = 8, the largest m."""
    panels = []
    for label, tables in measured.items():
        rows = [row for row in tables[0].rows if row["α"] == 8]
        largest = max(row["m"] for row in rows)
        for d in dict.fromkeys(row["d"] for row in rows):
            some = [row for row in rows if row["d"] == d and row["m"] == largest]
            alone = [row[encode.KERNEL_ALONE] for row in some]
            rest = [row["ORMP, µs per row"] - row[encode.KERNEL_ALONE] for row in some]
            where = f", processor {label}" if len(measured) > 1 else ""
            panels.append(
                Bars(
                    f"d = {d}, m = {largest:,}, α = 8{where}",
                    [row["kernel"] for row in some],
                    {"K(y, D)": alone, "pursuit, rounding, residual": rest},
                )
            )
    return draw_bars(panels, "µs per row, one thread", stacked=True)


REPORT = Report[Setup](
    title="Speed of encoding",
    figure="A code of aska under chi2, of 128 dimensions and 8,192 atoms, takes 109 µs of one core; the "
    "paper states 1,500.",
    text="""
Times are medians of repeats that alternate between the contestants of a table in one run. µs per
row is the wall time divided by the number of rows.
""",
    sections=[
        Section(
            name="kernels",
            title="ASKA codes by kernel",
            text="""
*ORMP* and *OMP* are the whole of encoding with that pursuit: preparing rows, K(y, D), the pursuit,
rounding the weights, and the residual of the stored code. ORMP is the default: it takes the atom
that leaves the smallest residual, as the toolbox of the paper does. OMP takes the atom that
correlates most with the residual. *K(y, D)* is the block of kernel values alone. *sgemm* is a
matrix product of the same shape by numpy's BLAS. d is the number of dimensions, m the number of
atoms, α the number of atoms per code. K(y, D) costs m d operations; a pursuit costs α² m and reads
α Gram rows, which fit into L2 for α = 8 and not for α = 32. Made histograms of many dimensions are
all alike to rbf, and their pursuit ends early. *paper* is the time that Davis, Balzer & Soatto
(2014) state for chi2, m = 8,192 and d = 128, on a processor of their time.
""",
            measure=_kernels,
            plot=Plot("Microseconds per row by kernel: K(y, D) and the rest of encoding", _draw),
        ),
        Section(
            name="peers",
            title="Pursuit beside SPAMS and scikit-learn",
            text="""
All contestants encode the same prepared rows with the same atoms. *Set-up included* divides the
time of a few rows, Gram matrix included, by their number. *Per further row* divides the time that
more rows take beyond these. *× SPAMS* columns say how many times as fast as SPAMS mercore is: with
both set-ups; with the set-up of SPAMS while the Gram matrix of mercore, made once per job, is left
out; and without either. *Mean residual²* is the approximation error of float32 weights: equal
values mean equal work. scikit-learn encodes two rows only; its Gram matrix is made before.
""",
            measure=_peers,
        ),
        Section(
            name="linearity",
            title="Cost against the number of rows",
            text="The time per row stays the same if encoding is linear in the number of rows.",
        ),
        Section(
            name="blocks",
            title="Blocks of kernel values",
            text="""
One term is one addend of a kernel's sum: a block of n × m scores of d dimensions has n m d terms.
*G terms per second* is 10⁹ terms per second. *× sgemm* is that rate divided by the rate of
multiply-adds of a float32 matrix product of the same shape; *× scikit-learn* divides it by the rate
of scikit-learn's function for the same kernel. The header says which loops BLAS takes; where these
are narrower than the processor, one more column compares with wide ones. The sparse rows have as
many zeros as ImageNet's bags of words.
""",
        ),
        Section(
            name="kpca-pq",
            title="kpca-pq codes beside scikit-learn and faiss",
            text="""
M landmarks, E components and D sub-quantizers. *K(y, landmarks)* is the kernel block alone, and a
part of the whole. *scikit-learn + faiss* computes the same codes from the same model by
`additive_chi2_kernel`, a matrix product and faiss' `compute_codes`. mercore packs the landmarks
once for all blocks, and folds permutation or rotation into the projection, which is one product.
*Equal bytes* is the share of equal code bytes.
""",
        ),
        Section(
            name="end-to-end",
            title="The whole command",
            text="""
`mercore encode` from a vector store to a code store: choosing atoms, the Gram matrix, reading,
encoding, writing, checksums and receipts, on Dask workers of one thread each. Rows are those of the
base, each scaled by 1 ± 5 % and each value by 1 ± 10 %, all distinct. The last column extrapolates
the time per row and worker to 79 million rows on four cores, for which Davis et al. state 2 to 4
hours; per row they state 1 500 µs.
""",
            measure=_end_to_end,
        ),
    ],
)
