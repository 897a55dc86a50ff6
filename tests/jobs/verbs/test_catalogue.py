"""``mercore kernels`` and ``mercore encoders`` list what the classes say."""

import json

from mercore.pipeline.encoders import ENCODERS
from mercore.pipeline.kernels import KERNELS, aliases
from tests.support.running import succeed


def test_kernels_are_listed_with_formula_rows_score_aliases_and_source() -> None:
    listed = json.loads(succeed("kernels", "--json"))
    assert [kernel["name"] for kernel in listed] == list(KERNELS)
    for kernel in listed:
        assert all(kernel[field] for field in ("formula", "rows", "score", "source"))
    by_name = {kernel["name"]: kernel for kernel in listed}
    assert by_name["chi2"]["rows"] == "values ≥ 0, not all zero"
    assert by_name["cosine"]["rows"] == "any finite values, not all zero"
    assert by_name["rbf"]["gamma"] == "needed"
    assert by_name["exp_chi2"]["gamma"] == "1 by default"
    assert "smaller is nearer" in by_name["euclidean"]["score"]
    assert not by_name["inner_product"]["transform"]
    assert sorted(alias for kernel in listed for alias in kernel["aliases"]) == sorted(aliases())


def test_encoders_are_listed_with_the_kernels_that_each_serves() -> None:
    listed = json.loads(succeed("encoders", "--json"))
    assert [encoder["name"] for encoder in listed] == list(ENCODERS)
    serves = {encoder["name"]: encoder["kernels"] for encoder in listed}
    assert serves["pq"] == ["cosine", "hellinger", "rbf", "euclidean", "inner_product"]
    assert serves["pca-pq"] == serves["pq"]
    assert serves["pca-bound"] == ["euclidean", "inner_product"]
    assert serves["rff"] == ["rbf"]
    assert serves["map-pq"] == serves["bin-bound"]
    assert "exp_chi2" in serves["bin-bound"]
    assert serves["aska"] == [name for name in KERNELS if name not in serves["pca-bound"]]


def test_the_lists_for_people_hold_every_name_and_fact() -> None:
    for verb in ("kernels", "encoders"):
        text = succeed(verb)
        for entry in json.loads(succeed(verb, "--json")):
            assert f"{entry['name']}\n" in text
            assert entry["source"] in text
