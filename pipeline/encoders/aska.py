"""ASKA: rows as a few weighted atoms in feature space (Davis, Balzer & Soatto, CVPR 2014)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encoders.bounds.rounding import float16_above
from mercore.pipeline.encoders.encoder import (
    METRIC,
    METRICS,
    CodeColumn,
    Default,
    DefaultNumber,
    Encoder,
    EncoderSpec,
    Memory,
    Model,
    Size,
    check_choice,
    check_random_state,
    check_range,
    declare_option,
    draw_rows,
    read_rows,
    shrunk,
)
from mercore.pipeline.encoders.feature_map import MAPPED, FeatureMap, choose_map
from mercore.pipeline.encoders.kpca import Embed, EmbeddedCosine, in_blocks, unit_rows
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.simd.aligned import CACHE_LINE, aligned
from mercore.stores.errors import InputError
from mercore.stores.spec import ABSENT
from mercore.stores.wording import option, setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.sparse import SparseScanner
    from mercore.stores.vectors import Vectors

MAX_ATOMS = 1 << 16
MAX_NONZERO_COEFS = 256
# By default, beyond ``FEW_ATOMS``. Codes of atoms have no error: with many atoms, recall is theirs.
ROWS_PER_ATOM, FEW_ATOMS = 8, 256
BLOCK_ROWS = 256  # rows whose correlations with the dictionary are in memory at once
WEIGHTS = ("int8", "float16", "float32")
PURSUITS = ("ormp", "omp")
DICTIONARIES = ("rows", "learned")
HARMONICS = 1  # of the explicit map of a learned dictionary
ROUNDS, RIDGE = 3, 1e-3  # of learning; share of the mean of a Gram matrix's diagonal added to it
RESIDUAL_TOLERANCE = 1e-6  # of residual²: float32 correlations tell no less from zero
NORM_POWER = DefaultNumber(0.5)  # measured: see notebooks/reports/recall.md
LEAST_SQUARED_NORM = 2.0**-8  # of a code, for a division


@dataclass(frozen=True, kw_only=True)
class AskaParams(EncoderSpec):
    """The parameters of matching pursuit: m atoms drawn with a seed, α non-zeros per row.

    The pursuit ``omp`` takes the atom most correlated with the residual, ``ormp`` the one that
    lowers it most. The metric ``product`` ranks by ⟨Φ(x), Φ̂(y)⟩ / ‖Φ̂(y)‖^p, p the norm power, and
    ``distance`` by −‖Φ(x) − Φ̂(y)‖²; the codes are the same. The norm is √(1 − ρ²), ρ the residual:
    it is 1 for atoms and less for other rows, so that p = 0 favours atoms. A stored spec without a
    pursuit means ``omp``, without a metric ``product``.
    """

    n_atoms: int = field(
        default=Default(8192), metadata=declare_option("atoms", "Dictionary size m.")
    )
    n_nonzero_coefs: int = field(
        default=Default(8), metadata=declare_option("sparsity", "Non-zeros per row, α.")
    )
    pursuit: str = field(
        default="ormp",
        metadata={
            ABSENT: "omp",
            **declare_option(
                "pursuit",
                "Choice of the next atom: ormp takes the one that leaves the smallest residual, "
                "omp the one most correlated with the residual.",
                choices=PURSUITS,
            ),
        },
    )
    weights: str = field(
        default="int8",
        metadata=declare_option("weights", "int8 (with a scale per row), float16 or float32."),
    )
    metric: str = field(default="product", metadata={ABSENT: "product", **METRIC})
    norm_power: float = field(
        default=NORM_POWER,
        metadata={
            ABSENT: NORM_POWER,
            **declare_option(
                "norm_power",
                "Divide products by this power of the code's norm, which is 1 for rows that are "
                "atoms and less for others: 0 favours atoms, 1 ranks by the angle.",
            ),
        },
    )

    size = Size("n_nonzero_coefs", "look-ups", MAX_NONZERO_COEFS)

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        most = min(rows, max(FEW_ATOMS, rows // ROWS_PER_ATOM))
        atoms = shrunk(self.n_atoms, most)
        sparsity = shrunk(self.n_nonzero_coefs, atoms)
        return replace(
            super().with_defaults_for(rows, dims), n_atoms=atoms, n_nonzero_coefs=sparsity
        )

    def check_dictionary(self, rows: int) -> None:
        """Refuse parameters that ``rows`` vectors or the code's format cannot take.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        if not 1 <= self.n_atoms <= min(MAX_ATOMS, rows):
            limit = (
                f"{rows} rows in the store"
                if rows < MAX_ATOMS
                else f"{MAX_ATOMS}, for an atom is a uint16"
            )
            raise InputError(
                f"atoms is out of range: found {self.n_atoms}, expected 1 to {limit}. Fix: "
                f"{setting(atoms=min(1024, rows))}"
            )
        most = min(self.n_atoms, MAX_NONZERO_COEFS)
        check_range("sparsity", self.n_nonzero_coefs, (1, most), setting(sparsity=min(8, most)))
        if self.weights not in WEIGHTS:
            raise InputError(
                f"unknown weights: found {self.weights!r}, expected one of "
                f"{', '.join(WEIGHTS)}. Fix: {setting(weights='int8')}"
            )
        if self.pursuit not in PURSUITS:
            raise InputError(
                f"unknown pursuit: found {self.pursuit!r}, expected one of "
                f"{', '.join(PURSUITS)}. Fix: {setting(pursuit='ormp')}"
            )
        check_choice("metric", self.metric, METRICS)
        if not 0 <= self.norm_power <= 2:
            raise InputError(
                f"norm power is out of range: found {self.norm_power}, expected 0 to 2. Fix: "
                f"{setting(norm_power=0.5)}"
            )
        if self.metric == "distance" and not isinstance(self.norm_power, DefaultNumber):
            raise InputError(
                f"{option('norm_power')} divides products: found {setting(metric='distance')}, "
                f"expected {setting(metric='product')}. Fix: leave one of them out."
            )
        check_random_state(self.random_state)

    def size_fits(self, dims: int) -> bool:
        """Return whether there are as many atoms as non-zeros."""
        return self.n_nonzero_coefs <= self.n_atoms

    def code_columns(self) -> list[CodeColumn]:
        """Return atoms, weights (with a scale per row if int8) and the residual."""
        alpha = self.n_nonzero_coefs
        scale: list[CodeColumn] = [("scale", "float16", None)] if self.weights == "int8" else []
        return [
            ("atoms", "uint16", alpha),
            ("weights", self.weights, alpha),
            *scale,
            ("residual", "float16", None),
        ]

    def draw_dictionary(
        self, vectors: "Vectors", rng: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        """Return the atoms as model arrays."""
        chosen = draw_rows(rng, vectors.rows, self.n_atoms)
        return {"dictionary": read_rows(vectors, chosen), "dictionary_rows": chosen}

    def dictionary_bytes(self, dims: int, width: int) -> int:
        """Return the bytes of Gram matrix, atoms [m, d], and their prepared rows of ``width``."""
        return self.n_atoms * (4 * self.n_atoms + 8 * dims + 16 * width)


@dataclass(frozen=True, kw_only=True)
class AskaSpec(AskaParams):
    """Rows as α of m exemplars, in the feature space of the kernel itself."""

    name: str = "aska"
    version: int = 1

    description = (
        "A code holds α weighted atoms of a dictionary of rows, in the kernel's feature space."
    )
    source = "Davis, Balzer & Soatto 2014"

    dictionary: str = field(
        default="rows",
        metadata={
            ABSENT: "rows",
            **declare_option(
                "dictionary",
                "Atoms: rows of the store, or points of the kernel's explicit map that are learned "
                "from a sample, which find more, and take longer to learn.",
                choices=DICTIONARIES,
            ),
        },
    )

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range (see the EncoderSpec contract)."""
        self.check_dictionary(vectors.rows)
        check_choice("dictionary", self.dictionary, DICTIONARIES)
        if self.dictionary == "learned" and kernel.name not in MAPPED:
            raise InputError(
                f"a learned dictionary needs a kernel with an explicit map: found {kernel.name}, "
                f"expected one of {', '.join(MAPPED)}. Fix: {setting(dictionary='rows')}"
            )

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the dictionary after checking that every atom lies in the kernel's domain."""
        rng = np.random.default_rng(self.random_state)
        if self.dictionary == "learned":
            model = choose_map(kernel, HARMONICS)
            drawn = draw_rows(rng, vectors.rows, min(vectors.rows, self._sample))
            embed = in_blocks(map_rows_of(kernel, model))
            return {**model, "atoms": self._learn(unit_rows(embed(read_rows(vectors, drawn))), rng)}
        model = self.draw_dictionary(vectors, rng)
        kernel.prepare(model["dictionary"], label="atom")
        return model

    def encoder(self, kernel: Kernel, model: Model) -> "Aska":
        """Return the encoder of a model."""
        if self.dictionary == "learned":
            return LearnedAska(self, EmbeddedCosine(map_rows_of(kernel, model)), model["atoms"])
        return Aska(self, kernel, model["dictionary"])

    @property
    def _sample(self) -> int:
        """The rows that a dictionary is learned from."""
        return ROWS_PER_ATOM * self.n_atoms

    def _learn(self, points: Float64, rng: np.random.Generator) -> Float32:
        """Return atoms float32[m, w] by the method of optimal directions (Engan et al. 1999).

        Rows are encoded, and the atoms become those of least squared error for the weights.

        Parameters
        ----------
        points : float64[n, w], of norm 1
        """
        from scipy.linalg import solve
        from scipy.sparse import csr_array

        m, kernel = self.n_atoms, EmbeddedCosine(lambda rows, **_: rows)
        atoms = points[rng.choice(len(points), m, replace=False)]
        for _ in range(ROUNDS):
            coder = LearnedAska(self, kernel, atoms.astype(np.float32))
            coder.prepare_encoding()
            codes = [
                coder.encode(points[start : start + BLOCK_ROWS])
                for start in range(0, len(points), BLOCK_ROWS)
            ]
            chosen = np.concatenate([code["atoms"] for code in codes]).astype(np.int64)
            weights = np.concatenate([_decoded(code) for code in codes]).astype(np.float64)
            ends = np.arange(0, chosen.size + 1, chosen.shape[1])
            held = csr_array((weights.ravel(), chosen.ravel(), ends), shape=(len(points), m))
            gram = (held.T @ held).toarray()
            used, ridge = gram.diagonal() > 0, RIDGE * np.trace(gram) / m
            gram[np.diag_indices(m)] += ridge
            found = solve(gram, held.T @ points + ridge * atoms, assume_a="pos", overwrite_a=True)
            found[~used] = points[rng.choice(len(points), int((~used).sum()))]
            atoms = unit_rows(found)
        return atoms.astype(np.float32)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take.

        A query has its table in several layouts.
        """
        if self.dictionary == "learned":
            dims *= 2 * HARMONICS + 1
        sample = min(rows, self._sample) if self.dictionary == "learned" else 0
        learning = sample * (24 * dims + 32 * self.n_nonzero_coefs) + 20 * self.n_atoms**2
        return Memory(
            fit=24 * self.n_atoms * dims + (learning if sample else 0),
            shared=self.dictionary_bytes(dims, dims),
            row=8 * self.n_atoms + 24 * dims,
            query=16 * self.n_atoms,
        )


class Aska(Encoder):
    """A dictionary in feature space: it encodes rows and tabulates queries.

    Parameters
    ----------
    spec : Dictionary
    kernel : Kernel
    dictionary : dtype[m, d], raw rows of the vector store
    """

    def __init__(self, spec: AskaParams, kernel: Kernel, dictionary: NDArray[Any]) -> None:
        self.spec = spec
        self.block_rows = BLOCK_ROWS
        self.kernel = kernel
        self._atoms_t = np.ascontiguousarray(kernel.prepare(dictionary, label="atom").T)

    def prepare_encoding(self) -> None:
        """Compute the Gram matrix K(D, D), float32[m, m], padded with zeros to whole tiles."""
        from mercore.pipeline.encoders.pursuit_numba import TILE

        atoms32_t = self._atoms_t.astype(np.float32)
        self._columns = self.kernel.packed(atoms32_t)
        m, tile = self.spec.n_atoms, int(TILE)
        self._gram = _on_cache_lines(m, -(-m // tile) * tile)
        self._gram[:, m:] = 0
        atoms32 = np.ascontiguousarray(atoms32_t.T)
        for first in range(0, m, BLOCK_ROWS):
            last = min(m, first + BLOCK_ROWS)
            block = self.kernel.block(
                atoms32[first:last], np.ascontiguousarray(atoms32_t[:, first:])
            )
            self._gram[first:last, first:m] = block
            self._gram[last:m, first:last] = block[:, last - first :].T

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows (Eq. 9 by OMP or ORMP), one array per column."""
        from mercore.pipeline.encoders import pursuit_numba, weights_numba

        prepared = self.kernel.prepare(rows, first=first).astype(np.float32)
        start = self._whole_tiles(self.kernel.block(prepared, self._columns))
        atoms = np.empty((len(rows), self.spec.n_nonzero_coefs), np.int64)
        weights = np.empty(atoms.shape)
        recursive = self.spec.pursuit == "ormp"
        pursuit_numba.pursue(start, self._gram, recursive, RESIDUAL_TOLERANCE, atoms, weights)
        stored = self._store_weights(weights)
        residual = np.empty(len(rows))
        weights_numba.residuals(
            start, self._gram, atoms, _decoded(stored).astype(np.float64), residual
        )
        return {"atoms": atoms.astype(np.uint16), **stored, "residual": float16_above(residual)}

    def unpacked(self, columns: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return the columns that scans read: a row's ``factor``, scale / ‖Φ̂(y)‖^p, for its scale.

        It is float32[n]. Products count without residuals.
        """
        if "weights" not in columns:
            return columns
        from mercore.pipeline.scanners.sparse_numba import row_factors

        residuals = columns["residual"].view(np.uint16)
        if "scale" in columns:
            factors = np.empty(len(residuals), np.float32)
            row_factors(columns["scale"].view(np.uint16), residuals, self._powers, factors)
        else:
            factors = self._powers[residuals]
        unread = ("scale", "residual") if self.spec.metric == "product" else ("scale",)
        read = {name: values for name, values in columns.items() if name not in unread}
        return {**read, "factor": factors}

    @cached_property
    def _powers(self) -> Float32:
        """‖Φ̂(y)‖^−p of every residual, float32[2¹⁶] by its bits as float16."""
        residuals = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
        if self.spec.metric == "distance":
            return np.ones(len(residuals), np.float32)
        squared = 1 - np.square(np.clip(np.nan_to_num(residuals), 0, 1))
        norms = np.sqrt(np.maximum(squared, LEAST_SQUARED_NORM))
        return np.asarray(norms**-self.spec.norm_power, np.float32)

    def table(self, queries: NDArray[Any]) -> Float32:
        """Return K(D, x) of raw queries (Eq. 11), float32[m, nq].

        These are rounded exact scores, so they do not depend on the batch.
        """
        return self.kernel.exact(
            self.kernel.prepare(queries, label="query"), self._atoms_t
        ).T.astype(np.float32)

    def scanner(self, queries: NDArray[Any]) -> "SparseScanner":
        """Return the scanner of raw queries, dtype[nq, d]."""
        from mercore.pipeline.scanners.sparse import SparseScanner, query_groups

        spec = self.spec
        groups = query_groups(
            self.table, queries, alpha=spec.n_nonzero_coefs, int8=spec.weights == "int8"
        )
        return SparseScanner(groups, metric=spec.metric)

    def _whole_tiles(self, block: Float32) -> Float32:
        """Return correlations padded with zeros to the width of the Gram matrix."""
        if block.shape[1] == self._gram.shape[1]:
            return block
        whole = aligned((len(block), self._gram.shape[1]), np.float32)
        whole[:, : block.shape[1]] = block
        return whole

    def _store_weights(self, weights: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return the columns that hold ``weights`` [b, α]."""
        if self.spec.weights != "int8":
            return {"weights": weights.astype(self.spec.weights)}
        from mercore.pipeline.encoders import weights_numba

        scale = int8_scales(weights)
        rounded = np.zeros(weights.shape, np.int8)
        weights_numba.quantise_int8(weights, scale.astype(np.float64), rounded)
        return {"weights": rounded, "scale": scale}


class LearnedAska(Aska):
    """A dictionary of points of unit norm, float32[m, w], under the cosine of mapped rows."""

    def __init__(self, spec: AskaParams, kernel: EmbeddedCosine, atoms: Float32) -> None:
        self.spec, self.kernel, self.block_rows = spec, kernel, BLOCK_ROWS
        self._atoms_t = np.ascontiguousarray(atoms.T, np.float64)


def map_rows_of(kernel: Kernel, model: Model) -> Embed:
    """Return the explicit map of raw rows."""
    mapped = FeatureMap(model)

    def embed(rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
        return mapped(kernel.prepare(rows, first=first, label=label)).astype(np.float32)

    return embed


def _decoded(code: Mapping[str, NDArray[Any]]) -> Float32:
    """Return the stored weights as float32[b, α]: int8 times the row's scale."""
    weights = np.asarray(code["weights"], np.float32)
    return weights * code["scale"].astype(np.float32)[:, None] if "scale" in code else weights


def _on_cache_lines(rows: int, width: int) -> Float32:
    """Return uninitialised float32[rows, width] aligned to cache lines.

    It lies in huge pages, which zeros do not get.
    """
    room = np.empty(rows * width + CACHE_LINE // 4, np.float32)
    start = -room.ctypes.data % CACHE_LINE // 4
    return room[start : start + rows * width].reshape(rows, width)


def int8_scales(weights: NDArray[np.float64]) -> NDArray[np.float16]:
    """Return a scale per row, float16[b]: max |weight| / 127, or up to 1/32 more for a whole sum.

    Atoms resemble one another, so the error of the sum of the weights dominates that of a score: a
    scale that makes the sum a whole number nearly removes it.
    """
    least = np.abs(weights).max(axis=1) / 127
    total = np.abs(weights.sum(axis=1))
    whole = np.floor(np.divide(total, least, out=np.zeros_like(total), where=least > 0))
    scales: NDArray[np.float64] = np.where(whole >= 32, total / np.maximum(whole, 1), least)
    return scales.astype(np.float16)
