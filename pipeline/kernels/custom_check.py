"""Check the declarations of a custom kernel on a sample of rows."""

import numpy as np

from mercore.pipeline.arrays import Float64, Rows
from mercore.pipeline.kernels.custom import CustomKernel
from mercore.pipeline.kernels.sums import EPS64
from mercore.stores.errors import InputError

SAMPLE_ROWS = 256
EVERY_ROW = ", or declare SEMIDEFINITE = False and search by every row"


def check_custom(kernel: CustomKernel, rows: Rows) -> None:
    """Check that K of 256 rows is finite, symmetric, 1 on the diagonal, and semi-definite.

    Each holds to within the rounding that the file declares. If the values of a Gram matrix are off
    by ρ, its eigenvalues are off by at most n ρ; 10 n² u more is for their computation. The last
    two are checked only if the file declares that K is semi-definite.

    Raises
    ------
    InputError
        If one of them does not hold.
    """
    X = kernel.prepare(rows[:SAMPLE_ROWS])
    _check_number(kernel, X[0])
    n, error = len(X), kernel.exact_error(X.shape[1])
    G = _gram(kernel, X)
    unlike = float(np.abs(G - G.T).max())
    if unlike > 2 * error:
        _refuse(
            kernel,
            "is not symmetric",
            f"|K(x, y) − K(y, x)| up to {unlike:.3g}, expected {2 * error:.3g}",
        )
    if not kernel.normalised:
        return
    off = float(np.abs(np.diag(G) - 1).max())
    if off > error:
        _refuse(
            kernel,
            "is not one of a row and itself",
            f"|K(x, x) − 1| up to {off:.3g}, expected {error:.3g}",
            EVERY_ROW,
        )
    least = float(np.linalg.eigvalsh((G + G.T) / 2)[0])
    allowed = -n * (error + 10 * n * EPS64)
    if least < allowed:
        found = (
            f"a Gram matrix of {n} rows with an eigenvalue of {least:.3g}, expected "
            f"{allowed:.3g} or more"
        )
        _refuse(kernel, "is not positive semi-definite", found, EVERY_ROW)


def _check_number(kernel: CustomKernel, x: Float64) -> None:
    """Refuse a function that raises or does not return a number."""
    try:
        value = kernel.declared.function(x, x)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's function raises
        raise kernel.failed(error) from error
    if not isinstance(value, float | int | np.floating):
        name = type(value).__name__
        raise InputError(
            f"the kernel of {kernel.declared.file} gives no number: found {name}, expected "
            "float. Fix: return K."
        )


def _gram(kernel: CustomKernel, X: Float64) -> Float64:
    """Return K of all pairs of rows in the order given, float64[n, n]."""
    n = len(X)
    x_rows, y_rows = (rows.ravel() for rows in np.indices((n, n)))
    return kernel.scores(X, X, x_rows, y_rows, ordered=False).reshape(n, n)


def _refuse(kernel: CustomKernel, what: str, found: str, otherwise: str = "") -> None:
    """Refuse a kernel that contradicts the declarations of its file."""
    fix = f"declare the ROUNDING that it has, or correct its formula{otherwise}"
    raise InputError(f"the kernel of {kernel.declared.file} {what}: found {found}. Fix: {fix}.")
