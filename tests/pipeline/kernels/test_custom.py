"""A user's own kernel: as good as the built-in one of its formula, and refused where it is not what
it declares."""

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.jobs.cluster.connect import ThreadsHere
from mercore.jobs.cluster.encode_parts import Sources, encode_parts
from mercore.jobs.cluster.workers import Work
from mercore.jobs.custom_kernel import load_custom
from mercore.pipeline.encoders import ENCODERS
from mercore.pipeline.kernels import CustomKernel, Kernel, is_custom, kernel_from_spec, make_kernel
from mercore.pipeline.kernels.custom_check import check_custom
from mercore.pipeline.kernels.decimals import decimal_score
from mercore.stores.errors import FormatError, InputError, MercoreError, NotFoundError
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_blocks, kernel_rows, one_ulp_apart, steady
from tests.support.custom_kernels import COSINE, HEAD, INTERSECTION, LAPLACE, returning, write

Floats = NDArray[np.float64]
FORMULAS = {"intersection": INTERSECTION, "cosine": COSINE, "laplace": LAPLACE}
PAIR = np.eye(2, dtype=np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> dict[str, CustomKernel]:
    return {
        name: load_custom(str(write(folder, text, f"{name}.py"))) for name, text in FORMULAS.items()
    }


@pytest.fixture(params=FORMULAS)
def custom(request: pytest.FixtureRequest, loaded: dict[str, CustomKernel]) -> CustomKernel:
    return loaded[request.param]


def signed(custom: CustomKernel) -> bool:
    return custom.declared.rows != "l1"


def exact(kernel: Kernel, X: Floats, Y: Floats) -> Floats:
    return kernel.exact(X, np.ascontiguousarray(Y.T))


def block(kernel: Kernel, X: Floats, Y: Floats) -> NDArray[np.float32]:
    return kernel.block(X.astype(np.float32), np.ascontiguousarray(Y.T).astype(np.float32))


def refused(action: Callable[[], object], kind: type[MercoreError], message: str) -> None:
    with pytest.raises(kind) as refusal:
        action()
    assert type(refusal.value) is kind
    assert str(refusal.value) == message


@given(data=st.data())
@steady(40)
def test_a_block_is_within_its_error_and_a_pair_has_one_score(
    custom: CustomKernel, data: st.DataObject
) -> None:
    rows, others = data.draw(kernel_blocks(signed=signed(custom)))
    X, Y = custom.prepare(rows), custom.prepare(others)
    together = exact(custom, X, Y)
    assert np.abs(block(custom, X, Y) - together).max() <= custom.block_error(X, Y)
    x_rows, y_rows = (at.ravel() for at in np.indices(together.shape))
    np.testing.assert_array_equal(custom.exact_pairs(X, Y, x_rows, y_rows), together.ravel())
    np.testing.assert_array_equal(exact(custom, Y, X).T, together)


@loop_over("style", STYLES)
@pytest.mark.parametrize("name", ["intersection", "cosine"])
def test_scores_are_those_of_the_built_in_kernel(
    loaded: dict[str, CustomKernel], name: str, style: str
) -> None:
    custom, known = loaded[name], make_kernel(name)
    rows = kernel_rows(style, "float32", (9, 20), signed=signed(custom), seed=1)
    X = custom.prepare(rows)
    np.testing.assert_array_equal(X, known.prepare(rows))
    np.testing.assert_allclose(exact(custom, X, X), exact(known, X, X), rtol=0, atol=1e-14)
    transformed = make_kernel(custom.name, custom=custom, transform=3.0)
    np.testing.assert_allclose(
        exact(transformed, X, X), exact(make_kernel(name, transform=3.0), X, X), rtol=0, atol=1e-13
    )
    assert np.abs(
        block(transformed, X, X) - exact(transformed, X, X)
    ).max() <= transformed.block_error(X, X)


def test_a_kernel_that_changes_fast_has_an_error_that_says_so(folder: Path) -> None:
    steep = load_custom(str(write(folder, LAPLACE.replace("/ 50", "* 1e6"), "steep.py")))
    rows = np.random.default_rng(2).random((6, 5))
    X, Y = steep.prepare(rows), steep.prepare(one_ulp_apart(rows.astype(np.float32), 3))
    assert np.abs(block(steep, X, Y) - exact(steep, X, Y)).max() <= steep.block_error(X, Y)
    assert steep.block_error(X, Y) > 0.1


def test_the_error_of_exact_scores_is_the_one_declared(custom: CustomKernel) -> None:
    assert custom.exact_error(7) == custom.exact_error(1000) == 300 * 2.0**-53


def test_no_formula_makes_decimals_of_it(custom: CustomKernel) -> None:
    x = np.ones(3, np.float32)
    assert decimal_score(custom, x, x) is None
    assert decimal_score(make_kernel("own", custom=custom, transform=2.0), x, x) is None


def test_kernels_that_are_what_they_declare_pass(custom: CustomKernel) -> None:
    for style in STYLES:
        check_custom(
            custom, kernel_rows(style, "float32", (300, 12), signed=signed(custom), seed=4)
        )


def test_rows_outside_the_domain_are_refused(loaded: dict[str, CustomKernel]) -> None:
    refused(
        lambda: loaded["intersection"].prepare(
            np.array([[1, 1], [1, -1]], np.float32), first=10, label="query"
        ),
        InputError,
        "query 11 has a negative value: found [ 1., -1.], but kernel intersection.py is defined "
        "for values ≥ 0. "
        "Fix: use cosine or rbf, or shift the data.",
    )
    np.testing.assert_array_equal(
        loaded["laplace"].prepare(np.array([[0, 0]], np.float32)), [[0, 0]]
    )


@pytest.mark.parametrize("transform", [None, 2.5])
def test_the_spec_makes_the_kernel_again_where_its_file_is_given(
    custom: CustomKernel, transform: float | None
) -> None:
    kernel = make_kernel("own", custom=custom, transform=transform)
    spec = json.loads(json.dumps(kernel.spec()))
    assert is_custom(spec) == custom.configuration
    assert "numba" not in json.dumps(spec)
    again = kernel_from_spec(spec, custom)
    assert again.spec() == spec
    X = custom.prepare(np.eye(4, dtype=np.float32) + 1)
    np.testing.assert_array_equal(exact(again, X, X), exact(kernel, X, X))


@pytest.mark.promise(
    "No store holds the code of a custom kernel; a kernel with another text is refused"
)
def test_a_file_may_have_another_name_but_not_another_text(
    loaded: dict[str, CustomKernel], folder: Path
) -> None:
    custom, other = loaded["intersection"], loaded["cosine"]
    renamed = load_custom(str(write(folder, INTERSECTION, "renamed.py")))
    assert kernel_from_spec(custom.spec(), renamed).spec() == custom.spec()
    digest = custom.declared.digest
    refused(
        lambda: kernel_from_spec(custom.spec()),
        InputError,
        "the store's kernel is a custom one: found no file of it, expected intersection.py "
        f"with digest {digest}. "
        'Fix: kernel="intersection.py"',
    )
    refused(
        lambda: kernel_from_spec(custom.spec(), other),
        InputError,
        f"the store's kernel is another: found cosine.py with digest {other.declared.digest}, "
        "expected intersection.py "
        f"with digest {digest}. Fix: name the file as it was when the store was encoded.",
    )


@pytest.mark.parametrize("change", [{"more": 1}, {"file": 3}])
def test_a_spec_that_says_more_is_refused(custom: CustomKernel, change: dict[str, Any]) -> None:
    spec = {"name": "own", "configuration": {**custom.configuration, **change}}
    refused(
        lambda: kernel_from_spec(spec, custom),
        FormatError,
        f"a kernel of the store is unknown: found {spec}. Fix: use the version of mercore that "
        "wrote it.",
    )


def test_it_takes_no_gamma(loaded: dict[str, CustomKernel]) -> None:
    refused(
        lambda: make_kernel("own", custom=loaded["laplace"], gamma=2.0),
        InputError,
        "kernel laplace.py takes no gamma: found 2.0. Fix: leave gamma out, write it there.",
    )


def test_workers_are_told_paths_alone() -> None:
    sources, sent = Sources("/vectors", "/mine.py"), []

    class Recording(ThreadsHere):
        def run(self, work: Work, *_: object) -> None:
            sent.append(pickle.loads(pickle.dumps(work)))  # noqa: S301 - as Dask sends it

    encode_parts(Recording(1), "/codes", sources, [0])
    assert [work.open.args for work in sent] == [("/codes", sources)]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.py"
    refused(
        lambda: load_custom(str(path)),
        NotFoundError,
        f"{path} cannot be read: No such file or directory, expected a file that declares a "
        "kernel. Fix: check the path.",
    )
    refused(
        lambda: load_custom(str(tmp_path)),
        FormatError,
        f"{tmp_path}: not a regular file. Fix: name a file; copy a pipe or a device to one first.",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "does not run: ZeroDivisionError: division by zero. Fix: correct the file."),
        ("raise GeneratorExit('no')", "does not run: GeneratorExit: no. Fix: correct the file."),
        (
            "import sys; sys.stdout.close(); 1 / 0",
            "does not run: ZeroDivisionError: division by zero. Fix: correct the file.",
        ),
        ("raise ValueError('no')", "does not run: ValueError: no. Fix: correct the file."),
        (
            INTERSECTION.replace("SEMIDEFINITE = True", ""),
            "declares no usable SEMIDEFINITE: found none, expected True for a "
            "positive semi-definite K with K(x, x) = 1, or False. Fix: SEMIDEFINITE = False, which "
            "serves searches by every row, or True, which serves all.",
        ),
        (
            INTERSECTION.replace("SEMIDEFINITE = True", "SEMIDEFINITE = 1"),
            "declares no usable SEMIDEFINITE: found 1, expected True for a "
            "positive semi-definite K with K(x, x) = 1, or False. Fix: SEMIDEFINITE = False, which "
            "serves searches by every row, or True, which serves all.",
        ),
        *(
            (
                INTERSECTION.replace("ROUNDING = 300", f"ROUNDING = {rounding}"),
                f"declares no usable ROUNDING: found {shown}, expected a positive number: the "
                "largest rounding error of K in units of 2^−53. Fix: ROUNDING = 300.",
            )
            for rounding, shown in (
                ("0", "0"), ("-1.5", "-1.5"), ("True", "True"), ("'a'", "'a'"), ("float('nan')", "nan"),
                ("float('inf')", "inf"), ("2**53", str(2**53)),
            )
        ),
        (
            INTERSECTION.replace("ROUNDING = 300", ""),
            "declares no usable ROUNDING: found none, expected a positive number: the largest "
            "rounding error of K in units of 2^−53. Fix: ROUNDING = 300.",
        ),
        (
            INTERSECTION.replace('"l1"', '"l3"'),
            'declares no usable ROWS: found \'l3\', expected one of l1, l2, raw. Fix: ROWS = "l1".',
        ),
        (
            INTERSECTION.replace("def kernel", "def other"),
            "declares no usable kernel: found none, expected a function of two rows under "
             "numba's njit. "
            "Fix: define it.",
        ),
    ],
)  # fmt: skip
def test_files_that_declare_no_kernel_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, text)
    refused(lambda: load_custom(str(path)), InputError, f"{path} {says}")


FAILS = "Fix: let it compile by numba's njit, and give a number for all rows."
ROUNDS = "Fix: declare the ROUNDING that it has, or correct its formula."
OR_EVERY_ROW = f"{ROUNDS[:-1]}, or declare SEMIDEFINITE = False and search by every row."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            returning("nothing"),
            f"fails: TypingError: NameError: name 'nothing' is not defined. {FAILS}",
        ),
        (returning("x[0] / (y[0] - y[0])"), f"fails: ZeroDivisionError: division by zero. {FAILS}"),
        (
            returning("1.0 if x[0] == y[0] else 1 / (x[1] * y[1])"),
            f"fails: ZeroDivisionError: division by zero. {FAILS}",
        ),
        (
            returning("abs(x - y)"),
            "fails: TypingError: No implementation of function Function(<built-in function "
            "abs>) found for signature: "
            f">>> abs(array(float64, 1d, C)). {FAILS}",
        ),
        (returning("'one'"), "gives no number: found str, expected float. Fix: return K."),
        (returning("x"), "gives no number: found ndarray, expected float. Fix: return K."),
        (
            returning("math.inf"),
            "gives no number: found inf, expected a finite score of any two rows. "
            "Fix: look for a division by zero in it.",
        ),
        (
            returning("x[0] if x[0] == 1 else 1.0 - y[0]"),
            f"is not symmetric: found |K(x, y) − K(y, x)| up to 1, expected 6.66e-14. {ROUNDS}",
        ),
        (
            returning("2.0 * x[0] * y[0] + x[1] * y[1]"),
            "is not one of a row and itself: found |K(x, x) − 1| up to 1, expected 3.33e-14. "
            f"{OR_EVERY_ROW}",
        ),
        (
            returning("1.0 if x[0] == y[0] else -3.0"),
            "is not positive semi-definite: found a Gram matrix of 2 rows with an eigenvalue of "
            "-2, expected -7.11e-14 "
            f"or more. {OR_EVERY_ROW}",
        ),
    ],
)
@pytest.mark.promise("A custom kernel is checked before it encodes anything")
def test_kernels_that_are_not_what_they_declare_are_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    custom = load_custom(str(write(tmp_path, text)))
    refused(lambda: check_custom(custom, PAIR), InputError, f"the kernel of mine.py {says}")


@pytest.mark.parametrize("expression", ["x[0] * y[0] - x[1] * y[1]", "2.0 + x[0] * y[0]"])
def test_a_kernel_that_claims_no_definiteness_need_only_be_symmetric(
    tmp_path: Path, expression: str
) -> None:
    text = returning(expression, semidefinite=False)
    check_custom(load_custom(str(write(tmp_path, text.replace("= 300", "= 2**60")))), PAIR)
    one_sided = load_custom(str(write(tmp_path, text.replace("* y[0]", "- y[0]"))))
    with pytest.raises(InputError, match="is not symmetric"):
        check_custom(one_sided, PAIR)


@pytest.mark.promise(
    "A custom kernel that is not semi-definite is searched by every row, and has no codes, bounds or distances"
)
def test_a_kernel_that_claims_no_definiteness_has_no_codes_and_no_transform(tmp_path: Path) -> None:
    custom = load_custom(str(write(tmp_path, returning("0.0", semidefinite=False))))
    actions: list[tuple[str, Callable[[], object]]] = [
        *(("codes or bounds", partial(kind().check_kernel, custom)) for kind in ENCODERS.values()),
        ("transform", partial(make_kernel, "own", custom=custom, transform=2.0)),
    ]
    for use, action in actions:
        refused(
            action,
            InputError,
            f"kernel mine.py has no {use}: found SEMIDEFINITE = False in the file, expected True, "
            f"since only a positive semi-definite kernel with K(x, x) = 1 has {use}. Fix: "
            'mercore.search(VECTORS, QUERIES, kernel="mine.py"), which scores every row.',
        )


def test_a_kernel_that_fails_later_is_refused_then(tmp_path: Path) -> None:
    custom = load_custom(
        str(
            write(
                tmp_path,
                f'{HEAD}ROWS = "raw"\n@njit\ndef kernel(x, y):\n    return 6.0 / x[0] / y[0]\n',
            )
        )
    )
    X = np.array([[2.0, 1], [0, 1]])
    refused(
        lambda: exact(custom, X, X),
        InputError,
        f"the kernel of mine.py fails: ZeroDivisionError: division by zero. {FAILS}",
    )
