"""Bounds by exact sums of bytes: their bits depend on row and query alone; the pairs listed are
those that reach."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.scanners.bounds.layout import PackedQueries, PairBuffer
from mercore.pipeline.scanners.bounds.queries import bound_block, bound_hits, pack_queries
from mercore.testing.rows import steady
from tests.independent import reference
from tests.pipeline.test_jitted import compiled
from tests.support.processors import assert_passed_on
from tests.support.tiers import slow_then_soak

Single = NDArray[np.float32]
STYLES = ("any", "extreme", "sparse", "blank")
each_form = pytest.mark.parametrize("minimum", [False, True])


class Made(NamedTuple):
    """Rows and their numbers, queries, and what is added to their sums of bytes."""

    rows: NDArray[np.uint8]
    numbers: Single
    codes: NDArray[Any]
    terms: dict[str, Any]

    def packed(self, chosen: Any = slice(None)) -> PackedQueries:
        """Those queries, packed."""
        terms: dict[str, Any] = {
            name: None if values is None else values[..., chosen]
            for name, values in self.terms.items()
        }
        return pack_queries(self.codes[chosen], **terms)

    def expected(self) -> Single:
        """The slow truth."""
        terms = dict(self.terms)
        start = terms.pop("start")
        dots = reference.byte_dots(self.rows, self.codes, minimum=terms["over"] is not None)
        return reference.byte_bounds(dots if start is None else dots + start, self.numbers, **terms)


def made(
    n: int,
    nq: int,
    width: int,
    *,
    J: int = 2,
    minimum: bool = False,
    style: str = "any",
    whole: bool = False,
) -> Made:
    """Rows of a style and queries; ``whole``: small whole numbers, so that bounds tie."""
    rng = np.random.default_rng(7 * n + 11 * nq + width)
    rows, codes = (rng.integers(0, 256, (count, width)).astype(np.uint8) for count in (n, nq))
    if style == "extreme":
        rows, codes = (
            np.array([0, 127, 128, 255], np.uint8)[values % 4] for values in (rows, codes)
        )
    if style == "sparse":
        rows *= rng.random(rows.shape) < 0.06
    if style == "blank":
        rows[:] = 0

    def floats(*shape: int) -> Single:
        return (rng.integers(-2, 3, shape) if whole else rng.normal(size=shape)).astype(np.float32)

    terms: dict[str, Any] = {
        "step": floats(nq),
        "const": floats(nq),
        "factors": floats(J, nq),
        "over": None,
    }
    terms["start"] = None
    if minimum:
        terms["over"] = floats(nq)
    else:
        codes = codes.view(np.int8)
        terms["start"] = (-128 * codes.sum(axis=1, dtype=np.int32)).astype(np.int32)
    return Made(rows, floats(n, 1 + J + minimum), codes, terms)


def bounds_of(case: Made, queries: PackedQueries, chosen: Any = slice(None)) -> Single:
    """The bounds of the chosen rows."""
    rows = case.rows[chosen]
    out = np.full((len(rows), queries.form.nq), np.nan, np.float32)
    bound_block(rows, case.numbers[chosen], queries, out)
    return out


def room(size: int) -> PairBuffer:
    """Room for pairs, no place of which looks like one."""
    return PairBuffer(np.full(size, -7), np.full(size, -7), np.full(size, np.nan, np.float32))


def check_hits(count: int, hits: PairBuffer, bounds: Single, least: Single) -> None:
    """All pairs that reach, each once, with their bounds; nothing behind."""
    expected = np.argwhere(bounds >= least)
    order = np.lexsort((hits.queries[:count], hits.rows[:count]))
    assert count == len(expected)
    np.testing.assert_array_equal(hits.rows[:count][order], expected[:, 0])
    np.testing.assert_array_equal(hits.queries[:count][order], expected[:, 1])
    np.testing.assert_array_equal(
        hits.bounds[:count], bounds[hits.rows[:count], hits.queries[:count]]
    )
    assert (hits.rows[count:] == -7).all()


@compiled
@steady(120)
@given(
    n=st.sampled_from((0, 1, 3, 4, 5, 9, 65, 300)),
    nq=st.integers(1, 130),
    width=st.integers(1, 300),
    J=st.integers(0, 4),
    minimum=st.booleans(),
    style=st.sampled_from(STYLES),
)
def test_bounds_are_those_of_the_slow_truth(
    n: int, nq: int, width: int, J: int, minimum: bool, style: str
) -> None:
    case = made(n, nq, width, J=J, minimum=minimum, style=style)
    np.testing.assert_array_equal(bounds_of(case, case.packed()), case.expected())


@compiled
@steady(60)
@given(
    n=st.sampled_from((0, 1, 7, 64, 257)),
    nq=st.integers(1, 130),
    minimum=st.booleans(),
    style=st.sampled_from(STYLES),
    place=st.sampled_from((0.0, 0.5, 0.99)),
)
def test_the_pairs_that_reach_are_listed(
    n: int, nq: int, minimum: bool, style: str, place: float
) -> None:
    case = made(n, nq, 24, minimum=minimum, style=style, whole=True)
    queries, bounds = case.packed(), case.expected()
    least = (
        np.quantile(bounds, place, axis=0, method="higher").astype(np.float32)
        if n
        else np.zeros(nq, np.float32)
    )
    least[::5], least[1::5] = -np.inf, np.inf
    found = room(bounds.size + 3)
    check_hits(bound_hits(case.rows, case.numbers, queries, least, found), found, bounds, least)


@compiled
@each_form
def test_a_bound_has_the_same_bits_in_every_block_and_batch(minimum: bool) -> None:
    case = made(600, 130, 61, J=3, minimum=minimum)
    case.rows[300:500] *= np.random.default_rng(1).random((200, 61)) < 0.05
    together = bounds_of(case, case.packed())
    for first, last in ((0, 1), (0, 7), (299, 430), (310, 330), (513, 600)):
        np.testing.assert_array_equal(
            bounds_of(case, case.packed(), slice(first, last)), together[first:last]
        )
    for chosen in (slice(3, 4), slice(1, 18), slice(0, 63), slice(5, 70), slice(129, None, -1)):
        np.testing.assert_array_equal(bounds_of(case, case.packed(chosen)), together[:, chosen])


@compiled
@each_form
def test_the_greatest_sums_are_exact(minimum: bool) -> None:
    width = 4001
    case = made(2, 1, width, J=0, minimum=minimum)
    case.rows[0], case.rows[1], case.numbers[:] = 255, 254, 1
    case.codes[:] = 255 if minimum else -128
    case.terms.update(step=np.ones(1, np.float32), const=np.zeros(1, np.float32))
    if minimum:
        case.terms["over"][:] = 0
    else:
        case.terms["start"][:] = 128 * 128 * width
    found = bounds_of(case, case.packed(), slice(0, 2))
    sums = [255, 254] if minimum else [-128 * 255 + 128 * 128, -128 * 254 + 128 * 128]
    np.testing.assert_array_equal(
        found[:, 0], np.array([value * width for value in sums]).astype(np.float32)
    )


@compiled
@each_form
def test_a_full_buffer_is_not_written_beyond_and_pairs_are_counted_on(minimum: bool) -> None:
    case = made(100, 70, 16, minimum=minimum)
    least, hits = np.full(70, -np.inf, np.float32), room(50)
    behind, rest = (
        PairBuffer(hits.rows[part], hits.queries[part], hits.bounds[part])
        for part in (slice(20), slice(30, 50))
    )
    assert bound_hits(case.rows, case.numbers, case.packed(), least, behind) == 7000
    assert (hits.rows[:20] >= 0).all()
    assert (hits.rows[20:] == -7).all()
    assert bound_hits(case.rows, case.numbers, case.packed(), least, rest) == 7000
    assert (hits.rows[20:30] == -7).all()
    assert (hits.rows[30:] >= 0).all()
    assert bound_hits(case.rows, case.numbers, case.packed(), -least, room(0)) == 0


@compiled
@each_form
def test_lanes_of_no_query_are_never_listed(minimum: bool) -> None:
    case = made(40, 33, 9, minimum=minimum)
    case.numbers[:] = np.inf
    least, hits = np.full(33, -np.inf, np.float32), room(4000)
    count = bound_hits(case.rows, case.numbers, case.packed(), least, hits)
    assert hits.queries[:count].max() < 33


@compiled
def test_rows_need_not_be_contiguous() -> None:
    case = made(50, 20, 32)
    wide = np.zeros((50, 45), np.uint8)
    wide[:, 7:39] = case.rows
    found = bounds_of(case._replace(rows=wide[:, 7:39]), case.packed())
    np.testing.assert_array_equal(found, case.expected())


@pytest.mark.parametrize(
    ("nq", "lanes", "wide"),
    [
        (1, 16, 0),
        (16, 16, 0),
        (17, 32, 32),
        (33, 48, 32),
        (64, 64, 64),
        (90, 96, 96),
        (100, 112, 96),
    ],
)
def test_a_remainder_of_queries_is_packed_in_panels_of_sixteen_if_it_is_small(
    nq: int, lanes: int, wide: int
) -> None:
    queries = made(1, nq, 5).packed()
    assert (queries.start.size, queries.words.size, queries.wide) == (lanes, 2 * lanes, wide)


@pytest.mark.parametrize(
    ("cpu", "features"),
    slow_then_soak(
        [
            ("x86-64", ""),
            ("haswell", "+avx2"),
            ("skylake-avx512", "+avx2,+avx512f,+avx512bw,+avx512dq,+avx512vl"),
        ]
    ),
)
def test_builds_for_lesser_processors_find_the_same(cpu: str, features: str) -> None:
    """The same properties in a process whose code is made for a processor without AVX-512, or parts
    of it."""
    names = "test_bounds_are_those_of_the_slow_truth", "test_the_greatest_sums_are_exact"
    assert_passed_on(cpu, features, __file__, *names)
