"""The choice of an encoder: a table of kernels, rows and given options."""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse

from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.encoder import EncoderSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.map_pq import MapPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.kernels.transform import Transformed
from mercore.pipeline.search.choices.encoder import choose_encoder, filled_share
from mercore.stores.rows import SourceVectors
from mercore.testing.stores import Rows

MAPPED = ("chi2", "intersection", "hellinger", "jensen_shannon", "exp_chi2")
DENSE, SPARSE = 0.8, 0.2
FEW, SOME, MANY = 256, 65_536, 65_537


class Case(NamedTuple):
    kernel: str
    given: str = ""
    rows: int = SOME
    filled: float = DENSE
    transform: float | None = None
    scaled: bool = False


CHOSEN: dict[Case, type[EncoderSpec] | None] = {
    **{Case(kernel): MapPqSpec for kernel in MAPPED},
    **{Case(kernel, transform=3): MapPqSpec for kernel in MAPPED[:4]},
    **{Case(kernel): PcaPqSpec for kernel in ("cosine", "rbf", "euclidean", "inner_product")},
    Case("cosine", transform=3): KpcaPqSpec,
    Case("chi2", scaled=True): KpcaPqSpec,
    # options
    Case("chi2", "atoms"): AskaSpec,
    Case("chi2", "atoms random_state"): AskaSpec,
    Case("chi2", "random_state"): MapPqSpec,
    Case("chi2", "landmarks"): KpcaPqSpec,
    Case("cosine", "landmarks"): KpcaPqSpec,
    Case("chi2", "components proof quantizer"): MapPqSpec,
    Case("cosine", "components proof quantizer"): PcaPqSpec,
    Case("chi2", "harmonics", filled=SPARSE): MapPqSpec,
    Case("chi2", "subquantizers", rows=FEW): MapPqSpec,
    Case("cosine", "harmonics"): None,
    Case("chi2", "harmonics", scaled=True): None,
    Case("euclidean", "atoms"): None,
    Case("chi2", "atoms landmarks"): None,
    Case("chi2", "bits"): None,
    # few rows, and sparse ones
    Case("chi2", rows=FEW): AskaSpec,
    Case("chi2", rows=FEW + 1): MapPqSpec,
    Case("cosine", rows=FEW): AskaSpec,
    Case("euclidean", rows=FEW): PcaPqSpec,
    Case("chi2", filled=SPARSE): AskaSpec,
    Case("chi2", filled=SPARSE, rows=MANY): MapPqSpec,
    Case("cosine", filled=SPARSE, rows=MANY): AskaSpec,
    Case("euclidean", filled=SPARSE): PcaPqSpec,
}


def kernel_of(case: Case) -> Kernel:
    gamma = 1.0 if case.kernel in ("rbf", "exp_chi2") else None
    kernel = make_kernel(case.kernel, gamma=gamma)
    return kernel if case.transform is None else Transformed(kernel, case.transform)


@pytest.mark.parametrize("case", CHOSEN, ids=str)
@pytest.mark.promise(
    "Without an encoder, `encode` takes the one that the guide's table says, and says why; begun codes keep theirs"
)
def test_the_encoder_of_a_kernel_rows_and_options(case: Case) -> None:
    made = choose_encoder(
        kernel_of(case), case.given.split(), rows=case.rows, filled=case.filled, scaled=case.scaled
    )
    assert (made and made.kind) == CHOSEN[case]


def test_the_reason_is_the_option_only_if_it_changes_the_choice() -> None:
    def why(*given: str, rows: int = SOME, filled: float = DENSE) -> str:
        made = choose_encoder(make_kernel("chi2"), given, rows=rows, filled=filled)
        assert made is not None
        return made.why

    assert why() == why("components", "random_state") == "the kernel has a feature map"
    assert "atoms" in why("atoms", "random_state")
    assert "random_state" not in why("atoms", "random_state")
    assert why(filled=0.143) == why("atoms", filled=0.143)
    assert why(filled=0.143) == "rows are sparse: 14% of their numbers are not 0"
    assert why(rows=3) == "each of up to 256 rows is an atom"


def test_options_that_the_choice_adds_leave_those_that_are_given() -> None:
    def added(kernel: str, *given: str, filled: float = DENSE) -> dict[str, object]:
        made = choose_encoder(make_kernel(kernel), given, rows=MANY, filled=filled)
        assert made is not None
        return dict(made.options)

    assert added("inner_product") == {"metric": "product"}
    assert added("euclidean") == added("cosine") == {"metric": "distance"}
    assert added("inner_product", "metric") == added("chi2") == {}
    assert added("chi2", filled=SPARSE) == {"components": 256}
    assert added("chi2", "components", filled=SPARSE) == {}


def test_the_share_of_numbers_is_that_of_a_sample() -> None:
    rng = np.random.default_rng(0)
    rows = scipy.sparse.random(5000, 300, 0.1, rng=rng).toarray().astype(np.float32)
    share = filled_share(SourceVectors(Rows(rows)))
    assert share == pytest.approx(0.1, abs=0.01)
    assert share == filled_share(SourceVectors(Rows(rows)))
    assert filled_share(SourceVectors(Rows(np.ones((1, 3), np.float32)))) == 1
