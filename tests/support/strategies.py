"""What valid blocks, code arrays and hits are, for hypothesis."""

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 6))


def blocks(
    dtype: str, shapes: st.SearchStrategy[tuple[int, int]] = SHAPES
) -> st.SearchStrategy[NDArray[Any]]:
    """Finite rows of ``dtype``, [n, d]; every integer is exact in float32."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        elements: st.SearchStrategy[Any] = st.floats(
            allow_nan=False, allow_infinity=False, width=32
        )
        if kind.itemsize == 2:
            elements = st.floats(allow_nan=False, allow_infinity=False, width=16)
    else:
        limits = np.iinfo(kind)
        elements = st.integers(max(int(limits.min), -(2**24)), min(int(limits.max), 2**24))
    return hnp.arrays(kind, shapes, elements=elements)


@st.composite
def hit_arrays(
    draw: st.DrawFn, score: str = "f4", max_id: int = 2**31 - 1
) -> tuple[NDArray[Any] | None, NDArray[np.int64]]:
    """Scores, descending or None, and ids, -1 among them, both [nq, k]."""
    shape = draw(SHAPES)
    ids = draw(hnp.arrays(np.int64, shape, elements=st.integers(-1, max_id)))
    scores = draw(st.none() | blocks(score, st.just(shape)))
    return (None if scores is None else -np.sort(-scores, axis=1)), ids


@st.composite
def code_arrays(
    draw: st.DrawFn, queries: tuple[int, int] = (1, 70)
) -> tuple[NDArray[np.uint16], NDArray[np.float32], NDArray[np.float32]]:
    """Atoms uint16[n, α], weights float32[n, α] and a table float32[m, nq]; few distinct values, so
    that scores tie."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, alpha, m = draw(st.integers(1, 40)), draw(st.integers(1, 11)), draw(st.integers(1, 50))
    nq = draw(st.integers(*queries))
    atoms = rng.integers(0, m, (n, alpha)).astype(np.uint16)
    if draw(st.booleans()):
        weights, table = rng.normal(size=(n, alpha)), rng.random((m, nq))
    else:
        weights, table = rng.integers(-2, 3, (n, alpha)) / 2, rng.integers(0, 3, (m, nq)) / 2
    return atoms, weights.astype(np.float32), table.astype(np.float32)
