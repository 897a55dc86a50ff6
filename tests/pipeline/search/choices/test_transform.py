"""The choice of a transform: the recall of codes of a sample as it is by hand, the same every time,
on stores of any size."""

from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.hashing.klsh import KlshSpec
from mercore.pipeline.encoders.kpca_jl import KpcaJlSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.batch_search import SearchSettings, search_code_store
from mercore.pipeline.search.choices import transform as choosing
from mercore.pipeline.search.choices.transform import (
    SCALES,
    TransformChoice,
    choose_transform,
    choose_transform_bytes,
    draw_sample,
)
from mercore.stores.rows import SourceVectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors
from tests.independent import reference
from tests.independent.exact_truth import nearest

N, D = 500, 16
CHI2 = make_kernel("chi2")
SPECS: tuple[EncoderSpec, ...] = (
    AskaSpec(n_atoms=24, n_nonzero_coefs=2),
    KpcaPqSpec(n_landmarks=30, n_components=8, n_subquantizers=2),
    KlshSpec(n_landmarks=30, n_subset=8, n_bits=24),
    KpcaJlSpec(n_landmarks=30, n_components=8, n_projections=4),
)


def vectors_of(rows: NDArray[Any]) -> SourceVectors:
    return SourceVectors(Rows(rows))


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(N, D, seed=1)


@pytest.fixture
def first_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recall is R@10: R@100 of a few hundred rows tells little."""
    monkeypatch.setattr(choosing, "RANK", 10)


@pytest.mark.usefixtures("first_ten")
@loop_over("spec", SPECS)
@pytest.mark.promise(
    "`--transform auto` takes the transform of the greatest recall on a sample; begun codes keep theirs"
)
def test_recalls_are_those_of_codes_by_hand(
    spec: EncoderSpec, rows: NDArray[Any], tmp_path: Path
) -> None:
    choice = choose_transform(vectors_of(rows), CHI2, spec, threads=2)
    sample = draw_sample(vectors_of(rows), CHI2, spec.random_state, threads=1)
    encoded = sample.rows.source.read(0, sample.rows.rows)
    assert (choice.rows, choice.queries, choice.rank) == (250, 250, 10)
    store = make_vectors(tmp_path / "vectors", encoded)
    true = nearest("chi2", encoded, sample.queries, 1)
    assert list(choice.recalls) == list(SCALES)
    for scale, recall in list(choice.recalls.items())[::2]:
        kernel = make_kernel("chi2", transform=scale)
        codes = make_codes(tmp_path / f"codes-{scale:g}", store, kernel, spec)
        found = search_code_store(codes, Rows(sample.queries), SearchSettings(k=10)).ids
        assert recall == pytest.approx(reference.texmex_recall(found, true, 10))
    assert len(set(choice.recalls.values())) > 1


@pytest.mark.usefixtures("first_ten")
def test_the_choice_is_the_same_every_time_and_is_that_of_its_seed(rows: NDArray[Any]) -> None:
    first, again, other = (
        choose_transform(
            vectors_of(rows),
            CHI2,
            KlshSpec(n_landmarks=30, n_subset=8, n_bits=24, random_state=seed),
            threads=threads,
        )
        for seed, threads in ((0, 1), (0, 3), (1, 1))
    )
    assert first == again
    assert first.recalls != other.recalls


def test_rows_and_queries_are_drawn_apart(
    rows: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "SAMPLE", 200)
    monkeypatch.setattr(choosing, "QUERIES", 40)
    sample = draw_sample(vectors_of(rows), CHI2, 0, threads=1)
    encoded = sample.rows.source.read(0, sample.rows.rows)
    assert (len(encoded), len(sample.queries)) == (200, 40)
    drawn = {row.tobytes() for row in (*encoded, *sample.queries)}
    assert len(drawn) == 240
    assert drawn <= {row.tobytes() for row in rows}


@loop_over(("count", "queries"), [(1, 0), (2, 1), (3, 1), (40, 20), (2500, 1000)])
def test_a_small_store_gives_the_rows_that_it_has(count: int, queries: int) -> None:
    spec = KlshSpec(n_landmarks=1, n_subset=1, n_bits=8)
    choice = choose_transform(vectors_of(histograms(count, D)), CHI2, spec, threads=1)
    assert (choice.rows, choice.queries) == (count - queries, queries)
    assert choice.rank == min(100, count - queries)
    if count < 100:  # every row is among the first found
        assert choice.scale == 1


def test_a_model_of_more_rows_than_the_sample_is_fitted_on_the_store(rows: NDArray[Any]) -> None:
    spec = AskaSpec(n_atoms=N, n_nonzero_coefs=2)
    choice = choose_transform(vectors_of(rows), CHI2, spec, threads=1)
    assert choice.rows < spec.n_atoms
    assert min(choice.recalls.values()) > 0.9


@loop_over(
    ("recalls", "scale"),
    [((0.1, 0.2, 0.3, 0.2, 0.1), 5), ((0.5, 0.7, 0.7, 0.6, 0.7), 3), ((1.0,) * 5, 1)],
)
@pytest.mark.promise(
    "`--transform auto` takes the transform of the greatest recall on a sample; begun codes keep theirs"
)
def test_the_greatest_recall_wins_and_of_equal_ones_the_smallest(
    recalls: tuple[float, ...], scale: float
) -> None:
    given = dict(zip(SCALES, recalls, strict=True))
    assert TransformChoice(recalls=given, rows=9, queries=9, rank=9).scale == scale


def test_the_memory_of_choosing_grows_with_threads_and_ends_with_the_sample() -> None:
    few, many = (vectors_of(histograms(count, 4)) for count in (40_000, 80_000))
    spec = AskaSpec(n_atoms=64, n_nonzero_coefs=2)
    assert choose_transform_bytes(few, spec, 1) == choose_transform_bytes(many, spec, 1)
    assert choose_transform_bytes(few, spec, 1) < choose_transform_bytes(few, spec, 2)
