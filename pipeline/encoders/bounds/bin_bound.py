"""Upper bounds of additive kernels by merged bins, a byte a group: Σ k(xᵢ, yᵢ) ≤ Σ_g k(Σ_{i∈g} xᵢ, Σ_{i∈g} yᵢ)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.bin_groups import PAIR_VALUES, histograms_of, learn_groups, near_pairs
from mercore.pipeline.encoders.bounds.rounding import float16_above, float32_above, norms_above
from mercore.pipeline.encoders.bounds.sample import Sample, sample_shares, true_scores
from mercore.pipeline.encoders.encoder import Model, check_random_state, check_range, draw_rows
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.sums import Chi2, Hellinger, Intersection, JensenShannon
from mercore.pipeline.scanners.bound_layout import MOST_BYTES
from mercore.pipeline.scanners.bounds import ROUNDING, BoundScanner, QueryTerms
from mercore.stores.errors import InputError
from mercore.stores.part_store.header import column_fields
from mercore.stores.vectors import Vectors, gather

ADDITIVE = (Intersection, Chi2, Hellinger, JensenShannon)
CAPS = (1.0, 0.5, 0.25, 0.125)  # of the largest sum of a group: where a byte may end
BYTE, HALF_BYTE = 255, 127
LEAST_SCALE = 2.0**-20
BLOCK_ROWS = 1024
REAL = 1e-9  # what rows and sums in float64 are off at most


@dataclass(frozen=True, kw_only=True)
class BinBoundSpec:
    """Rows as sums of groups of bins, a byte each, and what rounding them may hide."""

    name: str = "bin-bound"
    version: int = 1
    n_groups: int = 64
    n_training: int = 8192
    random_state: int = 0

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse a kernel that is no sum over bins, and parameters out of range."""
        if not isinstance(kernel.ranking, ADDITIVE):
            names = ", ".join(kind.name for kind in ADDITIVE)
            raise InputError(
                f"bin-bound serves sums over bins: found kernel {kernel.name}, expected {names}, or a transform. "
                "Fix: --encoder kpca-bound"
            )
        most, why = min((vectors.dims, ", the bins"), (MOST_BYTES, ", for an int32 holds the sums of no more"))
        check_range("groups", self.n_groups, (1, most), f"--groups {min(64, most)}", why=why)
        check_range("training rows", self.n_training, (2, 1 << 20), "leave --training-rows out.")
        check_random_state(self.random_state)

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code: the bytes, and the scale and two terms of a bound."""
        return [
            column_fields("groups", "uint8", self.n_groups, compressor),
            column_fields("terms", "float16", 3, compressor),
        ]

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the bins in the order of their groups, where each group begins, and where bytes end."""
        kernel = kernel.ranking
        rng = np.random.default_rng(self.random_state)
        rows = draw_rows(rng, vectors.rows, min(self.n_training, vectors.rows))
        sample = rng.permutation(gather(vectors, rows))
        pairs = near_pairs(kernel, sample)
        (groups,) = learn_groups(*pairs, [self.n_groups])
        model = grouping(groups, *pairs)
        scores = true_scores(kernel, kernel.prepare(sample))
        return model | {"shares": sample_shares(self.encoder(kernel, model), Sample(sample, scores))}

    def encoder(self, kernel: Kernel, model: Model) -> "MinimumBound | RootBound":
        """Return the encoder of a model."""
        return MinimumBound(kernel, model) if isinstance(kernel.ranking, Intersection) else RootBound(kernel, model)

    def fit_bytes(self, rows: int, dims: int) -> int:
        """Return the memory that fitting takes."""
        return min(rows, self.n_training) * dims * 40 + 16 * dims**2

    def shared_bytes(self, dims: int) -> int:
        """Return the memory that all threads share while encoding."""
        return 16 * dims

    def row_bytes(self, dims: int) -> int:
        """Return the memory that a row of a block takes while it is encoded."""
        return 32 * dims + 48 * self.n_groups

    def query_bytes(self, dims: int) -> int:
        """Return the memory that a query takes while codes are scanned."""
        return self.row_bytes(dims)


class BinBound:
    """What both forms share: rows as sums of groups."""

    def __init__(self, kernel: Kernel, model: Model) -> None:
        self.kernel = kernel.ranking
        self.block_rows = BLOCK_ROWS
        self._order, self._starts = model["order"], model["starts"]
        self._cap = float(model["cap"][0])

    def prepare_encoding(self) -> None:
        """Do nothing: queries need all that rows need."""

    def _merged(self, rows: NDArray[Any], *, first: int, label: str) -> Float64:
        """Return the groups' sums, float64[b, g]: a row's sum to one, whatever the kernel."""
        histograms = histograms_of(self.kernel, rows, first=first, label=label)
        if len(self._starts) == len(self._order):  # each bin is a group
            return np.take(histograms, self._order, axis=1)  # row by row in memory, as rounded sums of it should be
        return np.add.reduceat(histograms[:, self._order], self._starts, axis=1)


class MinimumBound(BinBound):
    """Bounds of the intersection by minima of bytes.

    A sum x becomes c = round(x s) up to a cap, and what is above it goes to the row's ``over``. With e⁺ what rounding
    took: Σ min(x, y) ≤ [Σ min(c, c') + Σ e⁺ + Σ e'⁺] / s + min(over, over').
    """

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes; 1, Σ e⁺ / s and the mass above the cap, rounded up."""
        codes, lost, over = self._rounded(self._merged(rows, first=first, label="row"))
        return {"groups": codes, "terms": float16_above(np.column_stack([np.ones(len(codes)), lost, over]))}

    def scanner(self, queries: NDArray[Any]) -> BoundScanner:
        """Return queries ready to be bounded."""
        codes, lost, over = self._rounded(self._merged(queries, first=0, label="query"))
        ones = np.ones(len(codes))
        return BoundScanner(
            column="groups",
            codes=codes,
            bias=0,
            terms=QueryTerms(
                step=float32_above(ones * (self._cap / BYTE)),
                constant=float32_above(lost + ROUNDING + REAL),
                factors=float32_above(ones[None]),
                over=float32_above(over),
            ),
        )

    def _rounded(self, merged: Float64) -> tuple[NDArray[np.uint8], Float64, Float64]:
        """Return bytes [b, g], Σ e⁺ / s [b], and the mass above the cap [b]."""
        codes, lost, over = capped(merged, self._cap)
        return codes.astype(np.uint8), lost, over


class RootBound(BinBound):
    """Bounds of Hellinger, Jensen–Shannon and χ² by products of roots.

    2xy/(x + y) ≤ √(xy), and ½ [x log₂((x + y)/x) + y log₂((x + y)/y)] = (x + y)/2 · H₂(x/(x + y)) ≤ √(xy), for the
    binary entropy H₂(p) ≤ 2 √(p (1 − p)). Roots r of norm one become bytes, r = s c + e, and a query's z = t u + f:
    ⟨z, r⟩ ≤ s t ⟨u, c⟩ + ‖f‖ ‖s c‖ + ‖e‖.
    """

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes c; s, ‖e‖ and ‖s c‖, rounded up."""
        roots = np.sqrt(self._merged(rows, first=first, label="row"))
        scale = float16_above(np.maximum(roots.max(axis=1) / BYTE, LEAST_SCALE)).astype(np.float64)
        codes = np.rint(roots / scale[:, None])
        rounded = codes * scale[:, None]
        terms = np.column_stack([scale, norms_above(roots - rounded), norms_above(rounded)])
        return {"groups": codes.astype(np.uint8), "terms": float16_above(terms)}

    def scanner(self, queries: NDArray[Any]) -> BoundScanner:
        """Return queries ready to be bounded."""
        roots = np.sqrt(self._merged(queries, first=0, label="query"))
        step = float32_above(roots.max(axis=1) / HALF_BYTE).astype(np.float64)
        codes = np.rint(roots / step[:, None])
        lost = norms_above(roots - codes * step[:, None])
        return BoundScanner(
            column="groups",
            codes=codes.astype(np.int8),
            bias=0,
            terms=QueryTerms(
                step=step.astype(np.float32),
                constant=np.full(len(codes), ROUNDING + REAL, np.float32),
                factors=float32_above(np.stack([norms_above(roots), lost])),
            ),
        )


def grouping(groups: list[NDArray[np.int64]], first: Float64, second: Float64) -> dict[str, NDArray[Any]]:
    """Return the model of groups: the bins in their order, where each begins, and the cap that suits the pairs best.

    Groups that are seldom filled come last, beside each other: scans pass over four bytes that are zero.
    """
    filled = [int((first[:, group] > 0).any(axis=1).sum()) for group in groups]
    groups = [groups[place] for place in np.argsort(np.negative(filled), kind="stable")]
    order = np.concatenate(groups)
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    merged = (np.add.reduceat(side[:, order], starts, axis=1) for side in (first, second))
    return {"order": order, "starts": starts, "cap": np.array([best_cap(*merged)])}


def capped(merged: Float64, cap: float) -> tuple[Float64, Float64, Float64]:
    """Return whole numbers of cap / 255 [b, g], what rounding took of each row [b], and its mass above the cap [b]."""
    below = np.minimum(merged, cap)
    codes = np.rint(below * (BYTE / cap))
    lost = np.maximum(below - codes * (cap / BYTE), 0).sum(axis=1)
    return codes, lost, np.asarray((merged - below).sum(axis=1))


def best_cap(first: Float64, second: Float64) -> float:
    """Return the cap of bytes whose bounds of pairs of rows [p, g] are least on average."""
    largest = max(float(first.max()), float(second.max()))
    step = max(1, first.size // PAIR_VALUES)
    first, second = first[::step], second[::step]

    def mean_bound(cap: float) -> float:
        (codes, lost, over), (others, also_lost, also_over) = capped(first, cap), capped(second, cap)
        shared = np.minimum(codes, others).sum(axis=1) * (cap / BYTE)
        return float((shared + lost + also_lost + np.minimum(over, also_over)).mean())

    return min((largest * part for part in CAPS), key=mean_bound)
