"""Every encoder of mercore keeps the contract."""

from typing import Any

import pytest

from mercore.pipeline.encoders import ENCODERS, encoder_spec
from mercore.stores.errors import FormatError
from mercore.testing import EncoderCase, EncoderContract
from tests.contracts.encoder_cases import CASES
from tests.support.tiers import first_of, slow_unless

ALL = [
    pytest.param(
        case, id=f"{name}-{case.kernel.name}-{getattr(case.spec, 'metric', '')}".rstrip("-")
    )
    for name, cases in CASES.items()
    for case in cases
]


def kind_of(case: Any) -> tuple[str, ...]:
    """The encoder, and the parts of it that another class does."""
    spec = case.values[0].spec
    return spec.name, *(getattr(spec, name, "") for name in ("quantizer", "dictionary"))


is_first = first_of(kind_of)


def is_fast(case: Any) -> bool:
    """Whether a case is the first of its kind; prq learns groups of 4 096 centroids for seconds."""
    return is_first(case) and "prq" not in kind_of(case)


@pytest.mark.promise("Rows that a kernel does not take are refused by number")
class TestEncoders(EncoderContract):
    """What holds for each of them."""

    @pytest.fixture(scope="module", params=slow_unless(is_fast, ALL))
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> EncoderCase:
        found: EncoderCase = request.param
        return found


def test_every_encoder_is_among_those_tried() -> None:
    assert list(CASES) == list(ENCODERS)
    for name, cases in CASES.items():
        kinds = [
            tuple(getattr(case.spec, name, "") for name in ("quantizer", "dictionary"))
            for case in cases
        ]
        tried = {(case.kernel.name, kind) for case, kind in zip(cases, kinds, strict=True)}
        assert len(tried) == len(cases)
        assert len(cases) > 1 or name == "rff", "rff serves one kernel"
        for case in cases:
            assert type(case.spec) is ENCODERS[name]
            assert case.spec.name == name


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(FormatError) as refusal:
        encoder_spec({"name": "itq", "version": 1}, "codes.zarr")
    assert str(refusal.value) == (
        "codes.zarr: its encoder is 'itq', expected one of aska, kpca-aska, kpca-pq, "
        "map-pq, pq, pca-pq, kpca-lsh, klsh, nystrom-lsh, rmmh, rff, kpca-jl, kpca, kpca-bound, pca-bound, bin-bound. Fix: read it with the version of mercore that wrote it, or "
        "write it anew."
    )
