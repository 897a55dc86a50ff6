"""The custom kernel: a user's function of two rows, and the declarations of its file."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels import preparation
from mercore.pipeline.kernels.kernel import Kernel
from mercore.pipeline.kernels.panels import Columns, Panels
from mercore.pipeline.kernels.preparation import Domain
from mercore.pipeline.kernels.sums import EPS32, EPS64
from mercore.stores.errors import InputError
from mercore.stores.wording import command

NORMALISED = ("l1", "l2", "raw")
Ids = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The declarations of a kernel's file, and the file.

    ``function`` of two float64[d] is within ``rounding`` · 2^−53 of the real kernel. If
    ``semidefinite``, it is positive semi-definite, and 1 for a row and itself. ``rows`` is the
    normalisation of its rows, one of ``NORMALISED``.
    """

    function: Callable[..., Any]
    semidefinite: bool
    rounding: float
    rows: str
    file: str
    digest: str


class CustomKernel(Kernel):
    """The kernel that a file declares.

    A store of it names the file and the digest of its text, never its code. One that is not
    declared semi-definite has no feature space: it can only score every row.
    """

    name = "own"  # on disk
    description = "a FILE.py of your own"
    term_cost = 1.0
    symmetric = False  # its terms may be added in another order

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.normalised = declared.semidefinite

    @property
    def configuration(self) -> dict[str, Any]:
        """``file``, without its folder, and the ``digest`` of its text."""
        return {"file": self.declared.file, "digest": self.declared.digest}

    def checked(self, rows: Rows, first: int, label: str) -> Float64:
        """Return the rows, float64[n, d], if all lie in the domain of the normalisation."""
        kind = self.declared.rows
        domain = Domain(self.declared.file, signed=kind != "l1", zero_rows=kind == "raw")
        return preparation.checked(rows, domain, first=first, label=label)

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return rows normalised as the file declares: to sum one, to unit norm, or not at all."""
        kind, values = self.declared.rows, self.checked(rows, first, label)
        if kind == "l1":
            return preparation.l1_normalised(values)
        return preparation.l2_normalised(values) if kind == "l2" else values

    def block(self, X: Float32, YT: Columns) -> Float32:
        """Return K of prepared rows, computed in float64, float32[n, m].

        It is zero if the kernel is not semi-definite: the error is infinite then, and so the true
        score of every pair is computed.
        """
        assert not isinstance(YT, Panels)
        if not self.normalised:
            return np.zeros((len(X), YT.shape[1]), np.float32)
        return self._cross(X.astype(np.float64), YT.T.astype(np.float64, order="C"), np.float32)

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        return self._cross(np.ascontiguousarray(X), np.ascontiguousarray(YT.T), np.float64)

    def exact_pairs(self, X: Float64, Y: Float64, x_rows: Ids, y_rows: Ids) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        return self.scores(np.ascontiguousarray(X), np.ascontiguousarray(Y), x_rows, y_rows)

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Return a bound: float32 moves Φ(x) and Φ(y), and K is rounded three times.

        For every K, |⟨Φ(x), Φ(y)⟩ − ⟨Φ(x′), Φ(y′)⟩| ≤ ‖Φ(x) − Φ(x′)‖ + ‖Φ(y) − Φ(y′)‖ if no norm is
        above 1. The norm of a rounded row exceeds 1 by at most its distance. 1 % more is for
        products of errors. A kernel that is not semi-definite has no Φ: its bound is infinite.
        """
        if not self.normalised:
            return math.inf
        x, y = self._moved(X), self._moved(Y)
        return float(x + y + x * y + 2 * self.exact_error(X.shape[1]) + EPS32) * 1.01

    def exact_error(self, dims: int) -> float:
        """Return ROUNDING · u, as the file declares it for K of prepared rows.

        The rounding of the normalisation is not in it: how much that changes an unknown K is
        unknown.
        """
        return self.declared.rounding * EPS64

    def scores(
        self, X: Float64, Y: Float64, x_rows: Ids, y_rows: Ids, *, ordered: bool = True
    ) -> Float64:
        """Return K of pairs, float64[p], each with its lesser row first if ``ordered``.

        Raises
        ------
        InputError
            If the function does not compile, raises, or gives no number.
        """
        from mercore.pipeline.kernels import custom_numba

        out = np.empty(len(x_rows))
        try:
            custom_numba.score_pairs(self.declared.function, X, Y, (x_rows, y_rows), ordered, out)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a user's function raises
            raise self.failed(error) from error
        if not np.isfinite(out).all():
            found = out[np.argmin(np.isfinite(out))]
            raise InputError(
                f"the kernel of {self.declared.file} gives no number: found {found}, expected a "
                "finite score of any two rows. Fix: look for a division by zero in it."
            )
        return out

    def compile(self) -> None:
        """Compile the function, so that no measured time includes that; it is not called."""
        rows, none = np.empty((0, 1)), np.empty(0, np.int64)
        self.scores(rows, rows, none, none)

    def failed(self, error: BaseException) -> InputError:
        """Return the refusal for an error that the function raised."""
        return InputError(
            f"the kernel of {self.declared.file} fails: {_summary(error)}. "
            "Fix: let it compile by numba's njit, and give a number for all rows."
        )

    def lacks(self, use: str) -> InputError:
        """Return the refusal of a use that needs a feature space."""
        search = command("search", "VECTORS", "QUERIES", kernel=self.declared.file)
        return InputError(
            f"kernel {self.declared.file} has no {use}: found SEMIDEFINITE = False in the file, "
            f"expected True, since only a positive semi-definite kernel with K(x, x) = 1 has "
            f"{use}. Fix: {search}, which scores every row."
        )

    def _cross(self, X: Float64, Y: Float64, dtype: type[Any]) -> NDArray[Any]:
        """Return K of rows X [n, d] and Y [m, d], dtype[n, m], row by row."""
        out = np.empty((len(X), len(Y)), dtype)
        every, row = np.arange(len(Y)), np.empty(len(Y), np.int64)
        for i in range(len(X)):
            row[:] = i
            out[i] = self.scores(X, Y, row, every)
        return out

    def _moved(self, rows: Float64) -> float:
        """Return a bound of ‖Φ(x) − Φ(x′)‖ over the rows x, where x′ is x in float32."""
        rounded = rows.astype(np.float32).astype(np.float64)
        at = np.arange(len(rows))
        before, mixed, after = (
            self.scores(X, Y, at, at)
            for X, Y in ((rows, rows), (rows, rounded), (rounded, rounded))
        )
        squares = before - 2 * mixed + after
        return float(np.sqrt(max(squares.max(), 0.0) + 4 * (self.declared.rounding + 2) * EPS64))


def _summary(error: BaseException) -> str:
    """Return the most informative line of an error's text, without colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith("Failed in")
    ]
    summary = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1]).rstrip(
        "."
    )  # numba shows the call in the next line
    return f"{type(error).__name__}: {summary}" if summary else type(error).__name__
