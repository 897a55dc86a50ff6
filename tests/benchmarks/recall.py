"""The report on recall: ASKA codes by every definition, and encoders side by side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.jobs.comparison.plot import Curve, Panel, draw_recall
from mercore.jobs.encoder_options import parse_spec
from mercore.jobs.resources.execution import available_cores
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.encoder import Default
from mercore.pipeline.encoders.equal_cost import code_bytes
from mercore.stores.rows import open_rows
from tests.benchmarks.measurements import peers, recall
from tests.benchmarks.measurements.exact import spread_queries
from tests.benchmarks.reporting.tables import Plot, Report, Row, Section, Table

DEFINITIONS = {
    "R": ("texmex", (1, 10, 100)),
    "k-recall": ("k-recall", (10, 100)),
    "ASKA Recall": ("aska", (1, 10, 100)),
    "tie-aware": ("tie-aware", (100,)),
}
DRAWING: dict[str, tuple[str, dict[str, int]]] = {  # encoders that draw rows of the store
    "aska": ("aska:atoms={atoms}", {}),
    "kpca-pq": ("kpca-pq", {"bytes": 28}),
    "klsh": ("klsh", {}),
}
OF_BYTES = {
    8: ("kpca-pq", "map-pq", "map-pq:quantizer=rq", "kpca-lsh"),
    28: ("aska", "kpca-pq", "map-pq", "kpca-lsh"),
    64: ("aska", "kpca-pq", "map-pq", "kpca-lsh"),
}
RANKINGS: dict[str, dict[str, Any]] = {
    "product": {"norm_power": 0.0},
    "product / ‖ŷ‖^¼": {"norm_power": 0.25},
    "product / ‖ŷ‖^½, the default": {},
    "product / ‖ŷ‖": {"norm_power": 1.0},
    "distance": {"metric": "distance"},
}
MANY_ATOMS = 2  # rows per atom, beside the default
LEAD, SPREAD, ONE_SEED = "ours − faiss", "its deviation", " *"
MOST_ROWS, TRAINING = 8000, 4000  # beside quantisers of faiss, which learn for minutes


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """The inputs and options of the report, and the stores that its sections share."""

    base: str
    query_file: str
    folder: Path
    kernels: tuple[str, ...]
    weights: tuple[str, ...]
    atoms: int
    sparsity: int
    queries: int
    seeds: int
    slow_seeds: int
    sets: tuple[tuple[str, str, str], ...]

    @property
    def data(self) -> recall.Data:
        """The main data."""
        return self.every["main data"]

    @cached_property
    def every(self) -> dict[str, recall.Data]:
        """The sets by name."""
        return {name: self._ingested(name, base, queries) for name, base, queries in self.named}

    @property
    def named(self) -> list[tuple[str, str, str]]:
        """The name, base and queries of each set."""
        return [("main data", self.base, self.query_file), *self.sets]

    def fewer(self, name: str, base: str, queries: str, seed: int) -> recall.Data:
        """Return at most MOST_ROWS rows of a set, evenly drawn; the seed shifts them."""
        few = str(self.folder / f"{name} {seed}.npy")
        np.save(few, spread_queries(base, MOST_ROWS, seed))
        data = self._ingested(f"fewer {name} {seed}", few, queries)
        return replace(data, name=name, seed=seed)

    def _ingested(self, name: str, base: str, query_file: str) -> recall.Data:
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        np.save(folder / "queries.npy", spread_queries(query_file, self.queries))
        if not (folder / "vectors").exists():
            api.ingest(base, str(folder / "vectors"))
        shape = open_rows(base).shape
        atoms = AskaSpec(n_atoms=Default(self.atoms)).with_defaults_for(*shape).n_atoms
        return recall.Data(
            name=name,
            store=str(folder / "vectors"),
            queries=str(folder / "queries.npy"),
            folder=folder,
            atoms=int(atoms),
            sparsity=self.sparsity,
        )


def _definitions(setup: Setup) -> list[Table]:
    rows = []
    for kernel in setup.kernels:
        for rerank in (0, 1000):
            found = recall.found(setup.data, kernel, rerank=rerank).recall
            row: Row = {"kernel": kernel, "reranked": rerank or "no"}
            for name, (definition, ranks) in DEFINITIONS.items():
                row |= {f"{name}@{rank}": f"{found[f'{definition}@{rank}']:.3f}" for rank in ranks}
            rows.append(row)
    rows.sort(key=lambda row: row["reranked"] != "no")
    return [Table(title=f"{setup.data}, int8 weights", rows=rows, keys=("kernel", "reranked"))]


def _weights(setup: Setup) -> list[Table]:
    rows = []
    for weights in setup.weights:
        found = {
            kernel: recall.found(setup.data, kernel, weights=weights) for kernel in setup.kernels
        }
        first = next(iter(found.values()))
        raw, fvecs = recall.ratios(setup.data, first.code_bytes)
        sizes = {
            "bytes per row": f"{first.bytes_per_row:.1f}",
            "raw values / codes": f"{raw:.2f}",
            ".fvecs / codes": f"{fvecs:.1f}",
        }
        rows.append(
            {"weights": weights, **sizes}
            | {kernel: _texmex(each.recall) for kernel, each in found.items()}
        )
    return [Table(title=f"R@1 / R@10 / R@100, {setup.data}", rows=rows, keys=("weights",))]


def _rankings(setup: Setup) -> list[Table]:
    tables = []
    for name, data in setup.every.items():
        rows = [
            {"score": score}
            | {
                kernel: _texmex(recall.found(data, kernel, **options).recall)
                for kernel in setup.kernels
            }
            for score, options in RANKINGS.items()
        ]
        title = f"R@1 / R@10 / R@100, {name}: {data}, int8 weights"
        tables.append(Table(title=title, rows=rows, keys=("score",)))
    return tables


def _texmex(found: Mapping[str, float]) -> str:
    return _slashed(_at_ranks(found))


def _drawn(setup: Setup) -> list[Table]:
    """Return a table per set: a row per kernel and encoder, recall by groups of queries."""
    tables = []
    for name, data in setup.every.items():
        n = data.shape[0]
        counts = sorted({data.atoms, min(setup.atoms, n // MANY_ATOMS)})
        rows = [
            {"kernel": kernel, "codes": codes}
            | {"bytes per row": code_bytes(spec)}
            | _groups(recall.by_drawn_rows(data, kernel, spec, path), n)
            for kernel in setup.kernels
            for codes, spec, path in _drawing(data, kernel, counts)
        ]
        title = f"R@1 / R@10 / R@100, {name}: {_size(data)}"
        tables.append(Table(title=title, rows=rows, keys=("kernel", "codes", "rows drawn")))
    return tables


def _drawing(
    data: recall.Data, kernel: str, atoms: Sequence[int]
) -> Iterator[tuple[str, EncoderSpec, Path]]:
    """Yield name, spec and path of each encoder; those with atoms once per number of ``atoms``."""
    for name, (text, protocol) in DRAWING.items():
        for count in atoms if "{atoms}" in text else atoms[:1]:
            spec = parse_spec(text.format(atoms=count), data.shape, protocol)
            yield name, spec, data.folder / f"{kernel}-{name}-{count}".replace(" ", "-")


def _groups(found: recall.Drawn, n: int) -> Row:
    others = found.recall["nearest row not drawn"]
    return {
        "rows drawn": found.rows,
        "of all rows, %": 100 * found.rows / n,
        "first hits drawn, %": 100 * found.first_hits,
        "nearest rows drawn, %": 100 * found.nearest,
        **{name: _texmex(each) if each else None for name, each in found.recall.items()},
        "not drawn, Recall@10": f"{others['aska@10']:.3f}" if others else None,
    }


def _operations(setup: Setup) -> list[Table]:
    data, count = setup.data, setup.sparsity
    fast = _compared(setup, data, ("aska", "kpca-pq", "kpca-lsh"), setup.seeds, operations=count)
    slow = _compared(setup, data, ("kpca-jl",), setup.slow_seeds, operations=count)
    return _encoder_tables([*fast, *slow], f"equal operations, N = {count}, {_size(data)}")


def _bytes(setup: Setup) -> list[Table]:
    """Return a table per set and number of bytes, and the curves of the main data at 28 bytes."""
    tables, drawn = [], list[Table]()
    for name, data in setup.every.items():
        for size, encoders in OF_BYTES.items():
            found = _compared(setup, data, encoders, 1, bytes_per_row=size)
            title = f"at most {size} bytes per row, {name}: {_size(data)}"
            table, curves = _encoder_tables(found, title)
            tables.append(table)
            if data is setup.data and size == 28:
                drawn.append(curves)
    return tables + drawn


def _peers(setup: Setup) -> list[Table]:
    """Return a table per set and number of bytes; figures are kept in the folder as they come."""
    tables: dict[str, dict[str, Row]] = {}
    for kernel in setup.kernels:
        for name, base, queries in setup.named:
            drawn = [setup.fewer(name, base, queries, seed) for seed in range(setup.seeds)]
            for size in peers.SIZES:
                title = f"R@1 / R@10 / R@100, {size} bytes per row, {name}: {_size(drawn[0])}"
                rows = tables.setdefault(title, {})
                found = list[dict[str, dict[str, float]]]()
                for data in drawn:
                    first = found[0] if found else None
                    found.append(dict(peers.recalls(data, kernel, size, TRAINING, first)))
                for codes in found[0]:
                    every = [_at_ranks(each[codes]) for each in found if codes in each]
                    once = "" if len(every) == setup.seeds else ONE_SEED
                    row = rows.setdefault(codes, {"codes": codes})
                    row[kernel] = _slashed(np.mean(every, axis=0)) + once
                rows.setdefault(LEAD, {"codes": LEAD})[kernel] = _slashed(lead(found), "+.3f")
                shared = [{codes: each[codes] for codes in found[-1]} for each in found]
                spread = np.std([lead([each]) for each in shared], axis=0)
                rows.setdefault(SPREAD, {"codes": SPREAD})[kernel] = _slashed(spread)
    return [
        Table(title=title, rows=list(rows.values()), keys=("codes",))
        for title, rows in tables.items()
    ]


def lead(found: Sequence[Mapping[str, Mapping[str, float]]]) -> NDArray[np.float64]:
    """Return how much more the best of our codes finds than the best of faiss, by rank.

    The best one has the greatest mean over the seeds.
    """
    best = {True: np.zeros(3), False: np.zeros(3)}  # of ours or not
    for codes in found[0]:
        ours = not codes.startswith("faiss")
        mean = np.mean([_at_ranks(each[codes]) for each in found if codes in each], axis=0)
        best[ours] = np.maximum(best[ours], mean)
    return best[True] - best[False]


def _at_ranks(found: Mapping[str, float]) -> list[float]:
    return [found[f"texmex@{rank}"] for rank in (1, 10, 100)]


def _slashed(values: Iterable[float], form: str = ".3f") -> str:
    return " / ".join(format(value, form) for value in values)


def _compared(
    setup: Setup,
    data: recall.Data,
    encoders: Sequence[str],
    seeds: int,
    *,
    operations: int | None = None,
    bytes_per_row: int | None = None,
) -> list[Row]:
    """Return a summary per kernel and encoder; runs are shared with earlier sections."""
    sizes = {"aska": f"aska:atoms={data.atoms}"}
    report = api.compare(
        data.store,
        data.queries,
        kernels=setup.kernels,
        encoders=[sizes.get(name, name) for name in encoders],
        seeds=seeds,
        workers=available_cores(),
        threads=available_cores(),
        out=setup.folder / "compared",
        operations=operations,
        bytes=bytes_per_row,
    )
    return list(report["summary"])


def _encoder_tables(found: Sequence[Row], title: str) -> list[Table]:
    """Return the table of recall by encoder and kernel, and the curves of the plot."""
    rows: dict[str, Row] = {}
    for entry in found:
        row = rows.setdefault(
            entry["encoder"],
            {
                "encoder": entry["encoder"],
                "bytes per row": entry["bytes_per_row"],
                "work per row": entry["operations"],
                "seeds": entry["seeds"],
            },
        )
        row[entry["kernel"]] = _means(entry, (1, 10, 100))
    for name, row in rows.items():
        deviations = [max(entry["recall_std"]) for entry in found if entry["encoder"] == name]
        row["greatest deviation"] = f"{max(deviations):.3f}" if row["seeds"] > 1 else None
    keys = ("kernel", "encoder", "bytes_per_row")
    shared = ("ranks", "recall_mean", "recall_std")
    curves = [{key: entry[key] for key in (*keys, *shared)} for entry in found]
    return [
        Table(
            title=f"R@1 / R@10 / R@100, {title}",
            rows=list(rows.values()),
            keys=("encoder",),
        ),
        Table(title="curves", rows=curves, keys=keys, shown=False),
    ]


def _size(data: recall.Data) -> str:
    return f"{data.shape[0]:,} rows, {open_rows(data.queries).shape[0]:,} queries"


def _means(entry: Row, ranks: Sequence[int]) -> str:
    means = dict(zip(entry["ranks"], entry["recall_mean"], strict=True))
    return " / ".join(f"{means[rank]:.3f}" if rank in means else "–" for rank in ranks)


def _draw(measured: Mapping[str, Sequence[Table]]) -> bytes:
    """Draw the curves of the last processor: recall does not depend on it."""
    table = next(each for each in list(measured.values())[-1] if not each.shown)
    panels: dict[str, list[Curve]] = {}
    for row in table.rows:
        curve = Curve(
            label=f"{row['encoder']} ({row['bytes_per_row']} bytes)",
            ranks=row["ranks"],
            means=row["recall_mean"],
            deviations=row["recall_std"],
        )
        panels.setdefault(row["kernel"], []).append(curve)
    return draw_recall([Panel(title=name, curves=drawn) for name, drawn in panels.items()], "svg")


REPORT = Report[Setup](
    title="Recall",
    figure="Codes of 28 bytes under chi2 find R@1 / R@10 / R@100 of 0.714 / 0.998 / 1.000 by map-pq, and "
    "of 0.527 / 0.923 / 0.999 by aska, on SIFT rows that no default was chosen on.",
    text="""
Recall is the share of true neighbours that a search of codes finds. The true neighbours come from
an exhaustive search by the true kernel. Recall depends on the data, the codes and the seed, and not
on the processor.

Each set is split in two by `python -m tests.benchmarks halves`: by photographs, or every second row of
the clothes, and every second query. Defaults and advice were chosen on half 0. Figures are of half 1,
which no choice saw; the sections on equal operations and on preprocessing are older, of all rows.
""",
    sections=[
        Section(
            name="definitions",
            title="ASKA codes by every definition of recall",
            text="""
Papers define recall in different ways. Each definition is a group of columns:

- **R@r** is the share of queries whose true nearest row is among the first r rows found. TEXMEX,
  Bourrier et al. and most papers on quantisation use it.
- **k-recall@k** is the share of the k true nearest rows among the first k rows found, as in
  ann-benchmarks.
- **ASKA Recall@R** is the share of queries whose first row found is among the R true nearest
  rows (Davis, Balzer & Soatto 2014).
- **tie-aware@k** is k-recall@k with ties counted: a row found counts if its true score reaches the
  true k-th score.

The column *reranked* is the number of rows that the true kernel decides among (`--rerank`).
""",
            measure=_definitions,
        ),
        Section(
            name="weights",
            title="The dtype of the weights",
            text="""
A code stores one weight per atom, in the dtype of the first column. int8 is the default: its scale
is chosen per row such that the weights keep their sum, because atoms resemble each other and a
score depends mainly on that sum. *raw values / codes* is the size of the source's values divided by
the size of the codes. *.fvecs / codes* takes the same rows as float32 with their lengths, which is
how Davis et al. count. Their codes of SIFT1M take 67.8 bytes per row, a ratio of 7.61.
""",
            measure=_weights,
        ),
        Section(
            name="scores",
            title="Products, divided or not, and distances",
            text="""
The paper ranks ASKA codes by the inner product of the query and the approximated row ŷ. ŷ is
shorter than the row: ‖ŷ‖² = 1 − ρ² with the residual ρ that the code stores. Only rows that are atoms
keep their length 1, so the product favours them. `--norm-power p` divides it by ‖ŷ‖^p. With p = 1 it
ranks by the angle, and atoms come late: their own rows have no residual, so nothing is added to
their score. `--metric distance` adds ρ²/2 and has the same fault. p = ½ was chosen on half 0 of each
set; GIST of photographs, with many atoms, wanted ¼ there. With three seeds, ¼ in place of ½ adds
0.008 and 0.014 to R@10 of its half 1 under `chi2` and `hellinger`, and takes 0.025 from R@1 under
`intersection`: too little for a power that is chosen per store.
""",
            measure=_rankings,
        ),
        Section(
            name="drawn",
            title="Rows that are atoms, and rows that are not",
            text="""
The code of an atom's own row has no error. So recall is higher where atoms are many of the rows, and
atoms are first hits more often than they are nearest rows. The table splits the queries by whether
the encoder drew their nearest row, as an atom or as a landmark. The code of a landmark has errors as
other codes have. *First hits drawn* is the share of queries whose first hit was drawn. A group of
fewer than 30 queries has no figure. The last column is Recall@10 of Davis et al., which asks whether
the first hit is among the true ten: any of these that is an atom will do. One seed; nothing is
reranked.
""",
            measure=_drawn,
        ),
        Section(
            name="operations",
            title="Encoders at equal operations",
            text="""
The protocol of Davis, Balzer & Soatto (Figs. 5 and 6): every encoder does the same work per row, N
atoms, N sub-quantizers, 300 N / 8 bits or 4 N projections (`mercore compare --operations N`).
Nothing is reranked. *Greatest deviation* is the greatest standard deviation over the seeds, of all
kernels and ranks.
""",
            measure=_operations,
            plot=Plot("Recall@R of encoders at equal operations, one panel per kernel", _draw),
        ),
        Section(
            name="bytes",
            title="Encoders at equal bytes",
            text="""
Every encoder gets its largest code that fits (`mercore compare --bytes B`), whatever work it takes
to scan. Bourrier et al. report a gap of 0.8 to 0.2 at R = 100 between product quantisation and binary
codes of 64 bits. One seed; nothing is reranked.
""",
            measure=_bytes,
            plot=Plot("Recall@R of encoders at equal bytes, one panel per kernel", _draw),
        ),
        Section(
            name="peers",
            title="Beside quantisers of faiss at equal bytes",
            text="""
Quantisers of faiss do not know the kernel. They get unit vectors of principal components of our feature
map, or of kernel PCA with 1,024 landmarks under `intersection` on the main data. PQ, OPQ and LSQ get 64
components up to 32 bytes and 128 of 64 bytes, or 192 on GIST; the others get 128. On bags of words all get
about 256. PQ, RQ and LSQ chose that on half 0, mostly under `chi2`; the others share the choice. Ours have
the components of `mercore compare --bytes`, or as many as the table says.

- All bytes that a search reads count. Ours carry no proofs. Rows of faiss are decoded and compared by
  distance, so they need no norms; *RQ with norms* is RQ as a scan by look-ups needs it: seven codebooks
  and a byte of the norm. RaBitQ has a bit per coordinate and 8 bytes of factors. SQ takes as many
  coordinates as fit with 8 or 4 bits.
- Options of faiss are its defaults, with beams of 5. Coordinates are rotated at random before PQ, PRQ and
  RaBitQ.
- All learn from 4,000 of at most 8,000 rows. Figures are means of three seeds. A seed draws the rows to learn
  from, shifts the rows that are taken of more than 8,000, and the seeds of faiss' k-means and rotations.
- What learns long was measured under `chi2` alone. There, two of the seeds were for codes within 0.02 of the
  best of ours, or of faiss, at rank 1 or 10 with the first seed, and not for what learns longest. A figure with
  a star is of one seed.
- More rows help: with 8,000 on half 0 of GIST, in 8 bytes of 128 components, R@1 of RQ rose from 0.378 to
  0.422, and that of our `rq` from 0.331 to 0.399.
- *ours − faiss* is the best mean of ours less the best mean of faiss that was measured, rank by rank. *Its
  deviation* is the standard deviation over the seeds, of codes that have all seeds.
- Figures were kept as they were measured (`--keep`), in several runs of two days.

At ranks 1 and 10 the best of ours is 0.013 below to 0.059 above the best of faiss on SIFT, 0.042 below to
0.085 above on GIST, and 0.030 below to 0.098 above on bags of words. More than 0.01 below are:

- SIFT: RQ finds 0.011 more at rank 10 of 8 bytes under `chi2`, and 0.012 to 0.013 more of 16 bytes under
  `intersection`.
- GIST, 8 and 16 bytes: RQ finds 0.013 to 0.042 more under each kernel. Our last byte also stands for ‖ŷ‖², so
  that a scan is look-ups; *RQ with norms* of 8 bytes pays that price, too.
- GIST, 28 bytes: RQ finds 0.015 and 0.016 more at rank 10 under `chi2` and `hellinger`, and 0.030 to 0.037 more
  under `intersection`. There our `prq` was not measured. 32 bytes, `chi2`: RQ finds 0.018 more at rank 10.
- Bags of words, 32 bytes: PQ finds 0.011 more at rank 10 under `chi2`, and 0.030 under `intersection`.

At rank 100 of bags of words RQ finds up to 0.040 more in 28 bytes, and up to 0.029 in 16 and 32. RQ sums
centroids of all coordinates; ours of `pq` are shares of the coordinates. At ranks 1 and 10 of 8 and 16 bytes
of bags of words our `rq` finds 0.02 to 0.10 more than the best of faiss.
""",
            measure=_peers,
        ),
        Section(
            name="preprocessing",
            title="Preprocessing before product quantisation",
            text="""
Table 2 of Bourrier et al. (kpca-pq, chi2, M = 1024, E = 64, D = 8): the coordinates are quantised
as they are, after a random rotation, or after a random permutation, which is the default. The last
column repeats the paper's figures on a million SIFT descriptors. A smaller base gives a higher
recall. In the BIGANN slice every tenth row is a query, and the base does not contain it. The
landmarks are 0.3 % of the main data and 11 % of the slice; k-means learns from 10 % and from all of
the rows.
""",
        ),
    ],
)
