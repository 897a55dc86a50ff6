"""The contract of every kernel: the true score, to the bit the same everywhere, and a proven error
of the fast one."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.stores.errors import FormatError, InputError
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_blocks, kernel_rows, steady

Floats = NDArray[np.float64]
WIDE = 1031  # columns: more than two tiles of a jitted loop, and a rest


@dataclass(frozen=True, kw_only=True)
class KernelCase:
    """A kernel and its slow truth: K of raw rows X [n, d] and Y [m, d], float64[n, m].

    ``domain`` is the kernel whose rows it takes, and which messages name: of a kernel that is a
    function of another one, that one. ``truth_error`` is the largest error of the truth itself.
    """

    kernel: Kernel
    truth: Callable[[NDArray[Any], NDArray[Any]], Floats]
    domain: Kernel | None = None
    truth_error: float = 1e-12

    @property
    def takes(self) -> Kernel:
        """The kernel that states the domain."""
        return self.domain or self.kernel

    @property
    def signed(self) -> bool:
        """Whether rows may have negative values."""
        return self.takes.signed


def exact(kernel: Kernel, X: Floats, Y: Floats) -> Floats:
    return kernel.exact(X, np.ascontiguousarray(Y.T))


def block(kernel: Kernel, X: Floats, Y: Floats) -> NDArray[np.float32]:
    return kernel.block(X.astype(np.float32), np.ascontiguousarray(Y.T).astype(np.float32))


def all_pairs(kernel: Kernel, X: Floats, Y: Floats) -> Floats:
    x_rows, y_rows = (rows.ravel() for rows in np.indices((len(X), len(Y))))
    return kernel.exact_pairs(X, Y, x_rows, y_rows).reshape(len(X), len(Y))


def same_bits(found: Floats, expected: Floats) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))


class KernelContract:
    """The tests of a kernel; a subclass has the fixture ``case``, a ``KernelCase``."""

    @given(data=st.data())
    @steady(60)
    def test_exact_is_the_truth_and_a_block_is_within_its_error(
        self, case: KernelCase, data: st.DataObject
    ) -> None:
        rows, others = data.draw(kernel_blocks(signed=case.signed))
        X, Y = case.kernel.prepare(rows), case.kernel.prepare(others)
        true, fast = exact(case.kernel, X, Y), block(case.kernel, X, Y)
        assert true.dtype == np.float64
        assert fast.dtype == np.float32
        allowed = max(case.kernel.exact_error(rows.shape[1]), case.truth_error)
        np.testing.assert_allclose(true, case.truth(rows, others), rtol=0, atol=allowed)
        error = np.broadcast_to(case.kernel.block_error(X, Y), fast.shape)
        assert (np.abs(fast - true) <= error).all()

    @given(data=st.data())
    @steady(40)
    def test_a_score_is_the_same_bits_alone_in_pairs_and_with_its_rows_swapped(
        self, case: KernelCase, data: st.DataObject
    ) -> None:
        rows, others = data.draw(kernel_blocks(signed=case.signed))
        X, Y = case.kernel.prepare(rows), case.kernel.prepare(others)
        together = exact(case.kernel, X, Y)
        same_bits(all_pairs(case.kernel, X, Y), together)
        if case.kernel.symmetric:
            same_bits(np.ascontiguousarray(exact(case.kernel, Y, X).T), together)
            same_bits(np.ascontiguousarray(all_pairs(case.kernel, Y, X).T), together)
        for i, j in np.ndindex(together.shape):
            same_bits(
                exact(case.kernel, X[i : i + 1], Y[j : j + 1]), together[i : i + 1, j : j + 1]
            )

    @loop_over("style", ["dense", "sparse"])
    def test_a_score_is_the_same_bits_however_wide_the_block_is(
        self, case: KernelCase, style: str
    ) -> None:
        rows = kernel_rows(style, "float32", (WIDE, 13), signed=case.signed, seed=1)
        Y = case.kernel.prepare(rows)
        X = Y[::150]
        together = exact(case.kernel, X, Y)
        for first, last in ((0, 1), (509, 514), (5, WIDE), (1024, 1025)):
            same_bits(exact(case.kernel, X, Y[first:last]), together[:, first:last].copy())
        same_bits(all_pairs(case.kernel, X, Y), together)

    @given(data=st.data())
    @steady(20)
    def test_what_prepare_gives_does_not_depend_on_the_other_rows(
        self, case: KernelCase, data: st.DataObject
    ) -> None:
        rows, _ = data.draw(kernel_blocks(signed=case.signed))
        together = case.kernel.prepare(rows)
        for i in range(len(rows)):
            same_bits(case.kernel.prepare(rows[i : i + 1]), together[i : i + 1])

    @loop_over("style", STYLES)
    def test_a_row_is_its_own_nearest_and_the_gram_matrix_is_positive_semi_definite(
        self, case: KernelCase, style: str
    ) -> None:
        if not case.kernel.normalised:
            return
        rows = kernel_rows(style, "float32", (30, 12), signed=case.signed, seed=2)
        X = case.kernel.prepare(rows)
        G = exact(case.kernel, X, X)
        np.testing.assert_allclose(np.diag(G), 1, rtol=0, atol=1e-12)
        if case.kernel.symmetric:
            same_bits(np.ascontiguousarray(G.T), G)
        assert np.linalg.eigvalsh(G).min() > -1e-11

    def test_integers_and_halves_score_as_the_same_values_in_float32_do(
        self, case: KernelCase
    ) -> None:
        bytes_ = kernel_rows("dense", "uint8", (6, 20), signed=False, seed=4)
        for dtype in ("uint8", "float16"):
            same_bits(
                case.kernel.prepare(bytes_.astype(dtype)),
                case.kernel.prepare(bytes_.astype(np.float32)),
            )

    @loop_over("bad", [np.nan, np.inf, -np.inf])
    def test_a_value_that_is_no_number_is_refused(self, case: KernelCase, bad: float) -> None:
        rows = np.ones((5, 3), np.float32)
        rows[2, 1] = rows[4, 0] = bad
        shown = {"nan": "[ 1., nan,  1.]", "inf": "[ 1., inf,  1.]", "-inf": "[  1., -inf,   1.]"}[
            str(bad)
        ]
        self.refused(
            case,
            rows,
            f"query 1002 has a NaN or infinite value: found {shown}, "
            f"but kernel {case.takes.name} needs finite ones. Fix: clean the data.",
        )

    def test_a_negative_value_is_refused_where_it_has_no_score(self, case: KernelCase) -> None:
        rows = np.full((4, 6), 0.5, np.float16)
        rows[3, 0] = -1
        if case.signed:
            assert np.isfinite(case.kernel.prepare(rows)).all()
            return
        self.refused(
            case,
            rows,
            "query 1003 has a negative value: found [-1. ,  0.5,  0.5,  0.5, …], but kernel "
            f"{case.takes.name} "
            "is defined for values ≥ 0. Fix: use cosine or rbf, or shift the data.",
        )

    @loop_over("dtype", ["uint8", "float32"])
    def test_a_row_of_zeros_is_refused_where_it_has_no_score(
        self, case: KernelCase, dtype: str
    ) -> None:
        rows = np.ones((4, 2), dtype)
        rows[1] = 0
        if case.takes.zero_rows:
            X = case.kernel.prepare(rows)
            np.testing.assert_array_equal(np.diag(exact(case.kernel, X, X)), np.ones(4))
            return
        shown = "[0, 0]" if dtype == "uint8" else "[0., 0.]"
        self.refused(
            case,
            rows,
            f"query 1001 is all zero: found {shown}, but kernel {case.takes.name} needs a non-zero row. "
            "Fix: mercore.ingest(drop_zero_rows=True) drops such rows and keeps the ids of the others.",
        )

    def test_the_spec_makes_the_kernel_again(self, case: KernelCase) -> None:
        again = kernel_from_spec(json.loads(json.dumps(case.kernel.spec())))
        assert (type(again), again.spec()) == (type(case.kernel), case.kernel.spec())
        X = again.prepare(kernel_rows("dense", "float32", (4, 9), signed=False, seed=5))
        same_bits(exact(again, X, X), exact(case.kernel, X, X))

    @loop_over(
        "newer",
        [
            {"name": "arc_cosine"},
            {"version": 2},
            {"configuration": {"normalise": "l2"}},
            {"configuration": None},
        ],
    )
    def test_a_spec_that_says_more_or_something_else_is_refused(
        self, case: KernelCase, newer: dict[str, Any]
    ) -> None:
        spec = {**case.kernel.spec(), **newer}
        if newer.get("configuration"):
            spec["configuration"] = {**case.kernel.configuration, **newer["configuration"]}
        with pytest.raises(FormatError) as refusal:
            kernel_from_spec(spec)
        assert str(refusal.value) == (
            f"a kernel of the store is unknown: found {spec}. Fix: use the version of mercore "
            "that wrote it."
        )

    @staticmethod
    def refused(case: KernelCase, rows: NDArray[Any], message: str) -> None:
        with pytest.raises(InputError) as refusal:
            case.kernel.prepare(rows, first=1000, label="query")
        assert str(refusal.value) == message
