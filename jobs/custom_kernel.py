"""Custom kernels: Python files of users, run by each command; no store keeps their code."""

import sys
from contextlib import redirect_stdout
from hashlib import blake2b
from io import StringIO
from pathlib import Path
from typing import Any

from mercore.jobs.options import names_file
from mercore.pipeline.kernels import is_custom
from mercore.pipeline.kernels.custom import NORMALISED, CustomKernel, Declared
from mercore.pipeline.kernels.custom_check import SAMPLE_ROWS, check_custom
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, NotFoundError
from mercore.stores.indexes import Index
from mercore.stores.location.local_file import check_regular
from mercore.stores.vectors import Vectors, blocks
from mercore.stores.wording import option, setting

MOST_ROUNDING = 2**53  # of a semi-definite K, which is at most one


def load_custom(path: str) -> CustomKernel:
    """Run a file that declares a kernel; return that kernel.

    Raises
    ------
    NotFoundError
        If there is no such file.
    FormatError
        If it is no regular file.
    InputError
        If it does not run, or a declaration is missing or wrong.
    """
    check_regular(path)
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise NotFoundError(
            f"{path} cannot be read: {error.strerror}, expected a file that declares a kernel. "
            "Fix: check the path."
        ) from None
    declared: dict[str, Any] = {"__name__": "mercore_own_kernel", "__file__": path}
    printed = StringIO()  # stdout is for the answer alone, and the file may close it
    try:
        with redirect_stdout(printed):
            exec(compile(text, path, "exec"), declared)  # noqa: S102 - the user's own code, named on the command line
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's file raises
        raise InputError(
            f"{path} does not run: {type(error).__name__}: {error}. Fix: correct the file."
        ) from error
    if not printed.closed:
        sys.stderr.write(printed.getvalue())
    _check_declared(path, declared)
    return CustomKernel(
        Declared(
            function=declared["kernel"],
            semidefinite=declared["SEMIDEFINITE"],
            rounding=float(declared["ROUNDING"]),
            rows=declared["ROWS"],
            file=Path(path).name,
            digest=blake2b(text, digest_size=16).hexdigest(),
        )
    )


def checked_custom(path: str, vectors: Vectors) -> CustomKernel:
    """Return the kernel of a file, checked on the first rows of a store.

    Raises
    ------
    InputError
        If the kernel does not have the properties that the file declares.
    """
    kernel = load_custom(path)
    _, rows = next(iter(blocks(vectors, 0, min(vectors.rows, SAMPLE_ROWS), SAMPLE_ROWS)))
    check_custom(kernel, rows)
    return kernel


def custom_kernel_of(codes: CodeStore | Index, name: str | None) -> CustomKernel | None:
    """Return the custom kernel of codes or orders from the file that --kernel names, or None.

    It is compiled.

    Raises
    ------
    InputError
        If another kernel is named than the one of the codes.
    """
    own = is_custom(codes.spec.kernel)
    if name is None or (not names_file(name) and own is None):
        return None  # a built-in kernel that is named is compared when the codes' kernel is open
    if names_file(name) and own is not None:
        custom = load_custom(name)
        custom.compile()
        return custom
    kernel = own["file"] if own else codes.spec.kernel["name"]
    raise InputError(
        f"{codes.where} has kernel {kernel}: found {setting(kernel=name)}. Fix: leave "
        f"{option('kernel')} out."
    )


def _check_declared(path: str, declared: dict[str, Any]) -> None:
    """Refuse a file in which a declaration is missing or wrong."""
    rounding = declared.get("ROUNDING")
    number = isinstance(rounding, int | float) and not isinstance(rounding, bool)
    semidefinite = declared.get("SEMIDEFINITE")
    most = sys.float_info.max if semidefinite is False else MOST_ROUNDING
    useful = number and 0 < (rounding or 0) < most
    expectations = {
        "SEMIDEFINITE": (
            isinstance(semidefinite, bool),
            "True for a positive semi-definite K with K(x, x) = 1, or False",
            "SEMIDEFINITE = False, which serves searches by every row, or True, which serves all",
        ),
        "ROUNDING": (
            useful,
            "a positive number: the largest rounding error of K in units of 2^−53",
            "ROUNDING = 300",
        ),
        "ROWS": (
            declared.get("ROWS") in NORMALISED,
            f"one of {', '.join(NORMALISED)}",
            'ROWS = "l1"',
        ),
        "kernel": (
            callable(declared.get("kernel")),
            "a function of two rows under numba's njit",
            "define it",
        ),
    }
    for name, (good, expected, fix) in expectations.items():
        if not good:
            found = repr(declared[name]) if name in declared else "none"
            raise InputError(
                f"{path} declares no usable {name}: found {found}, expected {expected}. Fix: {fix}."
            )
