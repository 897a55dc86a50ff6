"""Upper bounds of additive kernels by merged bins, one byte per group.

Σ k(xᵢ, yᵢ) ≤ Σ_g k(Σ_{i∈g} xᵢ, Σ_{i∈g} yᵢ).
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.rounding import float16_above, float32_above, norms_above
from mercore.pipeline.encoders.bounds.sample import (
    PAIR_VALUES,
    Sample,
    sample_scores,
    sample_shares,
)
from mercore.pipeline.encoders.encoder import (
    TRAINING_ROWS,
    BoundEncoder,
    CodeColumn,
    Default,
    EncoderSpec,
    Memory,
    Model,
    Size,
    check_random_state,
    check_range,
    declare_option,
    draw_rows,
    read_rows,
    shrunk,
)
from mercore.pipeline.kernels import KINDS, Kernel
from mercore.pipeline.scanners.bounds.layout import MAX_ROW_BYTES
from mercore.stores.errors import InputError
from mercore.stores.wording import option, setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner
    from mercore.stores.vectors import Vectors

CAPS = (1.0, 0.5, 0.25, 0.125)  # candidates for the cap of a byte, of a group's largest sum
BYTE, HALF_BYTE = 255, 127
LEAST_SCALE = 2.0**-20
BLOCK_ROWS = 1024
REAL = 1e-9  # bound of the error of rows and sums in float64


@dataclass(frozen=True, kw_only=True)
class BinBoundSpec(EncoderSpec):
    """Rows as sums of groups of bins, one byte each, and terms for the rounding of these."""

    name: str = "bin-bound"
    version: int = 1
    n_groups: int = field(
        default=Default(64),
        metadata=declare_option("groups", "Groups of bins that are added together, one byte each."),
    )
    n_training: int = field(default=8192, metadata=TRAINING_ROWS)

    description = (
        "A code is an upper bound: sums of groups of bins, one byte each, and their rounding."
    )
    source = "the kernel of merged bins: notebooks/guide/exact-search.md"
    needs = "a sum over bins"
    size = Size("n_groups", "byte operations", 1 << 15)
    bounds = True

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether the kernel is a sum over bins, or a function of one."""
        return kernel.ranking.term_bound is not None

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        return replace(self, n_groups=shrunk(self.n_groups, dims))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse a kernel that is no sum over bins, and parameters out of range."""
        if kernel.ranking.term_bound is None:
            names = ", ".join(kind.name for kind in KINDS.values() if kind.term_bound)
            raise InputError(
                f"bin-bound needs a sum over bins: found kernel {kernel.name}, expected "
                f"{names}, or a transform. "
                f"Fix: {setting(encoder='kpca-bound')}"
            )
        most, why = min(
            (vectors.dims, ", the bins"),
            (MAX_ROW_BYTES, ", for an int32 holds the sums of no more"),
        )
        check_range("groups", self.n_groups, (1, most), setting(groups=min(64, most)), why=why)
        check_range(
            "training rows", self.n_training, (2, 1 << 20), f"leave {option('training_rows')} out."
        )
        check_random_state(self.random_state)

    def code_columns(self) -> list[CodeColumn]:
        """Return the bytes, and the scale and two terms of a bound."""
        return [("groups", "uint8", self.n_groups), ("terms", "float16", 3)]

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the bins in group order, the start of each group, and the cap of bytes."""
        from mercore.pipeline.encoders.bounds.bin_groups import learn_groups, near_pairs

        kernel = kernel.ranking
        rng = np.random.default_rng(self.random_state)
        rows = draw_rows(rng, vectors.rows, min(self.n_training, vectors.rows))
        sample = rng.permutation(read_rows(vectors, rows))
        pairs = near_pairs(kernel, sample)
        (groups,) = learn_groups(*pairs, [self.n_groups])
        model = grouping(groups, *pairs)
        scores = sample_scores(kernel, kernel.prepare(sample))
        return model | {
            "shares": sample_shares(self.encoder(kernel, model), Sample(sample, scores))
        }

    def encoder(self, kernel: Kernel, model: Model) -> "MinimumBound | RootBound":
        """Return the encoder of a model."""
        return (
            MinimumBound(kernel, model)
            if kernel.ranking.term_bound == "minimum"
            else RootBound(kernel, model)
        )

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 32 * dims + 48 * self.n_groups
        fit = min(rows, self.n_training) * dims * 40 + 16 * dims**2
        return Memory(fit=fit, shared=16 * dims, row=row, query=row)


class BinBound(BoundEncoder):
    """The base of both forms: rows as sums of groups."""

    def __init__(self, kernel: Kernel, model: Model) -> None:
        self.kernel = kernel.ranking
        self.block_rows = BLOCK_ROWS
        self._order, self._starts = model["order"], model["starts"]
        self._cap = float(model["cap"][0])

    def _merged(self, rows: NDArray[Any], *, first: int, label: str) -> Float64:
        """Return the sums of the groups, float64[b, g]; each row of them sums to one."""
        histograms = self.kernel.histograms(self.kernel.prepare(rows, first=first, label=label))
        if len(self._starts) == len(self._order):  # each bin is a group
            return np.take(histograms, self._order, axis=1)  # row-major, as sums need it
        return np.add.reduceat(histograms[:, self._order], self._starts, axis=1)


class MinimumBound(BinBound):
    """Bounds of the intersection by minima of bytes.

    A sum x becomes c = round(x s) up to a cap; the mass above the cap is added to the row's
    ``over``. With e⁺ the loss by rounding: Σ min(x, y) ≤ [Σ min(c, c') + Σ e⁺ + Σ e'⁺] / s +
    min(over, over').
    """

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes; 1, Σ e⁺ / s and the mass above the cap, rounded up."""
        codes, lost, over = self._rounded(self._merged(rows, first=first, label="row"))
        return {
            "groups": codes,
            "terms": float16_above(np.column_stack([np.ones(len(codes)), lost, over])),
        }

    def bound_scanner(self, queries: NDArray[Any], beta: float = 1.0) -> "BoundScanner":
        """Return the scanner of queries that bounds the kernel; it cannot be relaxed."""
        from mercore.pipeline.scanners.bounds.byte_bounds import ROUNDING, BoundScanner, QueryTerms

        assert beta == 1
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
    """Bounds of kernels with terms of at most √(xy), by products of roots.

    2xy/(x + y) ≤ √(xy), and ½ [x log₂((x + y)/x) + y log₂((x + y)/y)] = (x + y)/2 · H₂(x/(x + y)) ≤
    √(xy), for the binary entropy H₂(p) ≤ 2 √(p (1 − p)). Roots r of norm one become bytes, r = s c
    + e, and those of a query z = t u + f: ⟨z, r⟩ ≤ s t ⟨u, c⟩ + ‖f‖ ‖s c‖ + ‖e‖.
    """

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes c; s, ‖e‖ and ‖s c‖, rounded up."""
        roots = np.sqrt(self._merged(rows, first=first, label="row"))
        scale = float16_above(np.maximum(roots.max(axis=1) / BYTE, LEAST_SCALE)).astype(np.float64)
        codes = np.rint(roots / scale[:, None])
        rounded = codes * scale[:, None]
        terms = np.column_stack([scale, norms_above(roots - rounded), norms_above(rounded)])
        return {"groups": codes.astype(np.uint8), "terms": float16_above(terms)}

    def bound_scanner(self, queries: NDArray[Any], beta: float = 1.0) -> "BoundScanner":
        """Return the scanner of queries that bounds the kernel; it cannot be relaxed."""
        from mercore.pipeline.scanners.bounds.byte_bounds import ROUNDING, BoundScanner, QueryTerms

        assert beta == 1
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


def grouping(
    groups: list[NDArray[np.int64]], first: Float64, second: Float64
) -> dict[str, NDArray[Any]]:
    """Return the model of groups: ordered bins, group starts, and the best cap for the pairs.

    Groups that are seldom filled come last, next to one another: scans skip four bytes that are
    zero.
    """
    filled = [int((first[:, group] > 0).any(axis=1).sum()) for group in groups]
    groups = [groups[place] for place in np.argsort(np.negative(filled), kind="stable")]
    order = np.concatenate(groups)
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    merged = (np.add.reduceat(side[:, order], starts, axis=1) for side in (first, second))
    return {"order": order, "starts": starts, "cap": np.array([best_cap(*merged)])}


def capped(merged: Float64, cap: float) -> tuple[Float64, Float64, Float64]:
    """Round sums [b, g] to multiples of cap / 255, at most the cap.

    Return the multiples [b, g], and per row [b] what rounding lost and the mass above the cap.
    """
    below = np.minimum(merged, cap)
    codes = np.rint(below * (BYTE / cap))
    lost = np.maximum(below - codes * (cap / BYTE), 0).sum(axis=1)
    return codes, lost, np.asarray((merged - below).sum(axis=1))


def best_cap(first: Float64, second: Float64) -> float:
    """Return the cap of bytes with the least mean bound of pairs of rows [p, g]."""
    largest = max(float(first.max()), float(second.max()))
    step = max(1, first.size // PAIR_VALUES)
    first, second = first[::step], second[::step]

    def mean_bound(cap: float) -> float:
        (codes, lost, over), (others, also_lost, also_over) = (
            capped(first, cap),
            capped(second, cap),
        )
        shared = np.minimum(codes, others).sum(axis=1) * (cap / BYTE)
        return float((shared + lost + also_lost + np.minimum(over, also_over)).mean())

    return min((largest * part for part in CAPS), key=mean_bound)
