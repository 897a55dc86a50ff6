"""Small sets of raw rows and queries on which rounding, ties or degenerate rows mislead a
search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
Maker = Callable[[int, int, np.random.Generator], tuple[Rows, Rows]]

D = 24


@dataclass(frozen=True, eq=False)
class Adversary:
    """Rows and queries of one dtype, uint8 or float32, none negative, none all zero."""

    name: str
    rows: Rows
    queries: Rows


def adversaries(n: int, nq: int, *, seed: int = 0) -> list[Adversary]:
    """Return every set, of n rows and nq queries each."""
    return [adversary(name, n, nq, seed=seed) for name in MAKERS]


def adversary(name: str, n: int, nq: int, *, seed: int = 0) -> Adversary:
    """Return the named set: the same for the same numbers."""
    return Adversary(name, *MAKERS[name](n, nq, np.random.default_rng(seed)))


def near_uniform(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Square roots of Dirichlet(2000 · 1) draws, d = 384: unit vectors, all within a degree of each
    other."""
    draws = rng.gamma(2000, size=(n + nq, 384))
    rows = np.sqrt(draws / draws.sum(axis=1, keepdims=True)).astype(np.float32)
    return rows[:n], rows[n:]


def duplicated(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """The same block of rows again and again, so that equal rows lie far apart; every other query
    is one of them."""
    distinct = _histograms(max(1, n // 16), rng)
    queries = _histograms(nq, rng)
    queries[::2] = distinct[rng.integers(len(distinct), size=len(queries[::2]))]
    return np.resize(distinct, (n, D)), queries


def one_ulp_apart(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows that differ from one of a few by the last bit of a single value; queries are among
    them."""
    centres = _histograms(max(1, n // 64), rng) + np.float32(0.01)
    rows = centres[rng.integers(len(centres), size=n)]
    at = np.arange(n), rng.integers(D, size=n)
    up = np.where(rng.random(n) < 0.5, np.float32(np.inf), np.float32(0))
    rows[at] = np.nextafter(rows[at], up)
    return rows, _near(centres, nq, rng)


def constant(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Multiples of the row of ones, all the same histogram; so are half of the queries."""
    rows = np.exp(rng.normal(size=(n, 1))).astype(np.float32) * np.ones((1, D), np.float32)
    queries = _histograms(nq, rng)
    queries[::2] = np.exp(rng.normal(size=(len(queries[::2]), 1)))
    return rows, queries


def near_zero(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Values of 1e-38 to 1e-45, most of them subnormal: in whole rows, and beside normal values."""
    values = _histograms(n + nq, rng)
    small = (10.0 ** rng.uniform(-44.8, -38, size=values.shape)).astype(np.float32)
    kind = rng.integers(3, size=(len(values), 1))  # normal, mixed, all small
    mixed = np.where(rng.random(values.shape) < 0.5, small, values)
    rows = np.choose(kind, [values, mixed, small])
    rows[:, 0] = np.maximum(rows[:, 0], small[:, 0])
    return rows[:n], rows[n:]


def single_bin(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """One value a row, the others zero; so are half of the queries."""
    rows = np.zeros((n + nq, D), np.float32)
    rows[np.arange(n + nq), rng.integers(D, size=n + nq)] = np.exp(rng.normal(size=n + nq))
    queries = rows[n:]
    queries[::2] = _histograms(len(queries[::2]), rng)
    return rows[:n], queries


def permuted(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Orders of the same values within each half of a row, queries constant in each half: all rows
    tie.

    Every score sums the same terms in another order, so that float64 sums differ where the real
    ones do not.
    """
    halves = _histograms(1, rng)[0].reshape(2, -1) + np.float32(0.003)
    rows = np.stack([rng.permuted(halves, axis=1).ravel() for _ in range(n)])
    levels = rng.random((nq, 2)) + 0.1
    return rows, np.repeat(levels, D // 2, axis=1).astype(np.float32)


def clustered(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows that are within 1e-5 of one of 16 centres; queries as near to one."""
    centres = _histograms(16, rng)
    return _near(centres, n, rng), _near(centres, nq, rng)


def small_counts(n: int, nq: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Counts of 0 to 3 in uint8: many ties of rows that differ."""
    rows = rng.binomial(3, 0.2, size=(n + nq, D)).astype(np.uint8)
    rows[:, 0] += 1
    return rows[:n], rows[n:]


def _histograms(n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return sparse rows, none all zero."""
    rows = rng.gamma(0.5, size=(n, D)) * (rng.random((n, D)) < 0.7)
    rows[:, 0] += 0.05
    return rows.astype(np.float32)


def _near(centres: NDArray[np.float32], n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return rows whose values are within 1e-5 of those of a centre; every fourth is a centre."""
    rows = centres[rng.integers(len(centres), size=n)]
    shifts = rng.uniform(-1e-5, 1e-5, size=rows.shape)
    shifts[::4] = 0
    return (rows * (1 + shifts)).astype(np.float32)


MAKERS: dict[str, Maker] = {
    "near-uniform": near_uniform,
    "duplicated": duplicated,
    "one ulp apart": one_ulp_apart,
    "constant": constant,
    "near zero": near_zero,
    "single bin": single_bin,
    "permuted": permuted,
    "clustered": clustered,
    "small counts": small_counts,
}
