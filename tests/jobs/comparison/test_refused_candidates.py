"""The encoders that a comparison refuses, with the mend; and those it takes, to the ends of the
ranges."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.pipeline.encoders import ENCODERS
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.hashing.kpca_lsh import KpcaLshSpec
from mercore.pipeline.encoders.kpca import KpcaSpec
from mercore.pipeline.encoders.kpca_aska import KpcaAskaSpec
from mercore.pipeline.encoders.kpca_jl import KpcaJlSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.pq import PqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import InputError
from mercore.stores.rows import SourceVectors
from mercore.testing.stores import Rows, histograms, make_vectors
from tests.support.running import invoke

ROWS, DIMS = 60, 20
OPTIONS_OF_KPCA = "expected option=value with an option of kpca: landmarks, components. "
UNREAD = {
    "asca:atoms=3": "unknown encoder 'asca', expected one of "
    f"{', '.join(ENCODERS)}. Fix: --encoder aska",
    "kpca:atom=3": f"found 'atom=3', {OPTIONS_OF_KPCA}Fix: leave it out.",
    "kpca:bits=8": f"found 'bits=8', {OPTIONS_OF_KPCA}Fix: leave it out.",
    "kpca:landmarks": f"found 'landmarks', {OPTIONS_OF_KPCA}Fix: leave it out.",
    "kpca:components=x": "components is 'x', expected a whole number. Fix: leave it out.",
    "aska:pursuit=mp": "pursuit is 'mp', expected one of ormp, omp. Fix: leave it out.",
    "kpca:components=8,components=9": "components is given twice. Fix: leave one out.",
    "kpca:random-state=3": "--seeds sets random-state. Fix: leave one of them out.",
}
OF_ROWS = f"expected 1 to {ROWS}, the rows of the store. Fix: --landmarks {ROWS}"
OF_LANDMARKS = "expected 1 to 40, the landmarks. Fix: --components 40"
SHARED_OUT = "subquantizers share coordinates out evenly: found"
OF_TRAINING = "expected 1 to 16777216. Fix: leave --training-rows out."
UNFIT = {
    "kpca:landmarks=0": f"landmarks is out of range: found 0, {OF_ROWS}",
    "kpca:landmarks=61": f"landmarks is out of range: found 61, {OF_ROWS}",
    "kpca:landmarks=40,components=0": f"components is out of range: found 0, {OF_LANDMARKS}",
    "kpca:landmarks=40,components=41": f"components is out of range: found 41, {OF_LANDMARKS}",
    "kpca-aska:atoms=9,landmarks=61": f"landmarks is out of range: found 61, {OF_ROWS}",
    "kpca-aska:atoms=61": "atoms is out of range: found 61, expected 1 to 60 rows in the store. "
    "Fix: --atoms 60",
    "kpca-aska:atoms=9,sparsity=10": "sparsity is out of range: found 10, expected 1 to 9. Fix: "
    "--sparsity 8",
    "kpca-aska:atoms=9,weights=int4": "unknown weights: found 'int4', expected one of int8, "
    "float16, float32. Fix: --weights int8",
    "kpca-pq:landmarks=61": f"landmarks is out of range: found 61, {OF_ROWS}",
    "kpca-pq:landmarks=40,components=50": f"components is out of range: found 50, {OF_LANDMARKS}",
    "kpca-pq:components=20,subquantizers=3": f"{SHARED_OUT} 3 for 20 coordinates. Fix: "
    "--components 18.",
    "kpca-pq:components=12,subquantizers=13": "subquantizers is out of range: found 13, expected 1 "
    "to 12. Fix: --subquantizers 12",
    "kpca-pq:components=12,subquantizers=4,training-rows=0": "training rows is out of range: found "
    f"0, {OF_TRAINING}",
    "kpca-pq:components=12,subquantizers=4,training-rows=16777217": "training rows is out of range: "
    f"found 16777217, {OF_TRAINING}",
    "kpca-lsh:bits=0": "bits is out of range: found 0, expected 1 to 4096. Fix: --bits 256",
    "kpca-lsh:bits=4097": "bits is out of range: found 4097, expected 1 to 4096. Fix: --bits 256",
    "kpca-lsh:landmarks=61": f"landmarks is out of range: found 61, {OF_ROWS}",
    "kpca-jl:projections=4097": "projections is out of range: found 4097, expected 1 to 4096. Fix: "
    "--projections 32",
    "kpca-jl:landmarks=40,components=41": f"components is out of range: found 41, {OF_LANDMARKS}",
    "kpca-bound:landmarks=61": f"landmarks is out of range: found 61, {OF_ROWS}",
    "bin-bound:groups=0": "groups is out of range: found 0, expected 1 to 20, the bins. Fix: "
    "--groups 20",
    "bin-bound:groups=9,training-rows=1": "training rows is out of range: found 1, expected 2 to "
    "1048576. Fix: leave --training-rows out.",
    "pq:subquantizers=4": "encoder pq ranks rows by their Euclidean distance: found kernel chi2, "
    "expected one of cosine, hellinger, rbf, euclidean, inner_product. Fix: --encoder kpca-pq",
    "map-pq:components=12,subquantizers=4,harmonics=17": "harmonics is out of range: found 17, "
    "expected 1 to 16. Fix: --harmonics 1",
    "map-pq:components=20,subquantizers=3": f"{SHARED_OUT} 3 for 20 coordinates. Fix: "
    "--components 18.",
}
UNFIT_OF_KERNELS = {
    ("rbf", "pq:metric=product"): "kernel rbf is a function of the distance: found metric product. "
    "Fix: --metric distance",
    ("cosine", "pq:subquantizers=8"): f"{SHARED_OUT} 8 for 20 coordinates. Fix: --subquantizers "
    "10.",
    ("cosine", "pq:subquantizers=21"): "subquantizers is out of range: found 21, expected 1 to 20. "
    "Fix: --subquantizers 10",
    ("rbf", "map-pq"): "encoder map-pq needs a kernel with a feature map: chi2, intersection, "
    "jensen_shannon, hellinger, or a transform: found kernel rbf. Fix: --encoder kpca-pq",
    ("cosine", "bin-bound:groups=4"): "bin-bound needs a sum over bins: found kernel cosine, "
    "expected hellinger, chi2, intersection, jensen_shannon, or a transform. Fix: --encoder "
    "kpca-bound",
}
REFUSED = [
    *(("chi2", text, text, problem) for text, problem in UNREAD.items()),
    *(("chi2", text, text.partition(":")[0], problem) for text, problem in UNFIT.items()),
    *(
        (kernel, text, text.partition(":")[0], problem)
        for (kernel, text), problem in UNFIT_OF_KERNELS.items()
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    make_vectors(folder / "base", histograms(ROWS, DIMS))
    np.save(folder / "queries.npy", histograms(3, DIMS, seed=1))
    return folder


@pytest.mark.parametrize(("kernel", "text", "label", "problem"), REFUSED)
def test_encoders_that_make_no_codes_are_refused(
    kernel: str, text: str, label: str, problem: str, data: Path
) -> None:
    options = ("--kernel", kernel, "--encoder", text, *(("--gamma", 1) * (kernel == "rbf")))
    outcome = invoke(f"compare {data}/base {data}/queries.npy", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1] == f"mercore: --encoder {label}: {problem}"


def test_landmarks_are_bounded_however_large_the_store() -> None:
    with pytest.raises(InputError, match="landmarks is out of range: found 32769, expected 1 to "):
        KpcaSpec(n_landmarks=32769).check_landmarks(10**6)


def test_parameters_at_the_ends_of_their_ranges_are_taken() -> None:
    KpcaSpec(n_landmarks=1 << 15, n_components=1 << 15).check_landmarks(1 << 15)
    KpcaSpec(n_landmarks=1, n_components=1).check_landmarks(1)
    vectors, chi2 = SourceVectors(Rows(histograms(ROWS, DIMS))), make_kernel("chi2")
    specs: list[Any] = [
        KpcaLshSpec(n_landmarks=60, n_bits=4096),
        KpcaLshSpec(n_landmarks=1, n_bits=1),
        KpcaJlSpec(n_landmarks=1, n_components=1, n_projections=4096),
        KpcaPqSpec(n_landmarks=60, n_components=60, n_subquantizers=60),
        KpcaAskaSpec(n_landmarks=60, n_components=60, n_atoms=60, n_nonzero_coefs=60),
        PqSpec(n_subquantizers=20),
        KpcaBoundSpec(n_landmarks=60, n_components=60),
        KpcaBoundSpec(n_landmarks=1, n_components=1),
        BinBoundSpec(n_groups=20, n_training=2),
        BinBoundSpec(n_groups=1, n_training=1 << 20),
    ]
    for spec in specs:
        spec.check(vectors, make_kernel("cosine") if isinstance(spec, PqSpec) else chi2)


def test_a_bound_of_bins_serves_transforms_of_sums_over_bins() -> None:
    vectors = SourceVectors(Rows(histograms(ROWS, DIMS)))
    for kernel in (make_kernel("exp_chi2"), make_kernel("intersection", transform=3.0)):
        BinBoundSpec(n_groups=4).check(vectors, kernel)


def test_a_bound_of_bins_has_no_more_groups_than_an_int32_adds() -> None:
    vectors, kernel = SourceVectors(Rows(histograms(8, 33_000))), make_kernel("chi2")
    BinBoundSpec(n_groups=32_896).check(vectors, kernel)
    with pytest.raises(
        InputError, match="groups is out of range: found 32897, expected 1 to 32896, for an int32"
    ):
        BinBoundSpec(n_groups=32_897).check(vectors, kernel)
