"""Cells of codes against twins in plain NumPy: centres, the order of rows, probes and recall."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.pipeline.cells import centres as centres_module
from mercore.pipeline.cells.build import spans_of
from mercore.pipeline.cells.centres import BLOCK, NEAR_GROUPS, Centres, drawn_centres, learn_centres
from mercore.pipeline.cells.curve import BEYOND, RecallCurve, curve_of
from mercore.pipeline.cells.plan import coordinate_spec, default_cells
from mercore.pipeline.cells.probe import CellCache, OpenCells, ranges_of
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.kpca import KpcaSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.map_pq import MapPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.encoders.pq import PqSpec
from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.stores.codes import CodeStore, SelectedCodes, open_code_store
from mercore.stores.errors import InputError, IntegrityError
from mercore.stores.indexes import CellStore
from mercore.stores.selection import BitSelection, RangeSelection
from mercore.testing.cases import loop_over
from mercore.testing.stores import make_codes, make_vectors
from tests.independent import reference

ROWS, DIMS, CELLS, QUERIES = 900, 16, 24, 12
SMALL: dict[str, Any] = {"n_landmarks": 40, "n_components": 12}
CASES: dict[str, tuple[Kernel, Any]] = {
    "kpca": (make_kernel("chi2"), KpcaSpec(**SMALL)),
    "kpca-pq": (make_kernel("chi2"), KpcaPqSpec(**SMALL, n_subquantizers=6)),
    "map-pq": (make_kernel("intersection"), MapPqSpec(n_components=12, n_subquantizers=6)),
    "residual": (
        make_kernel("chi2"),
        MapPqSpec(n_components=12, n_subquantizers=4, quantizer="prq"),
    ),
    "pca-pq": (make_kernel("cosine"), PcaPqSpec(n_components=8, n_subquantizers=4)),
    "pq": (make_kernel("euclidean"), PqSpec(n_subquantizers=8)),
    "product": (make_kernel("inner_product"), PqSpec(n_subquantizers=8, metric="product")),
}


def rows_of(seed: int, count: int) -> NDArray[np.uint8]:
    """Rows around 30 centres; some are equal."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).integers(10, 200, (30, DIMS))
    rows = centres[rng.integers(0, 30, count)] + rng.integers(0, 40, (count, DIMS))
    rows[count // 2 : count // 2 + count // 9] = rows[0]
    return rows.astype(np.uint8)


@pytest.fixture(scope="module", params=CASES)
def codes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CodeStore:
    """Codes of each kind, in parts of 200 rows."""
    kernel, spec = CASES[request.param]
    folder = tmp_path_factory.mktemp("codes")
    vectors = make_vectors(folder / "vectors", rows_of(2, ROWS), part_rows=128)
    return make_codes(folder / "codes", vectors, kernel, spec, part_rows=200)


@pytest.fixture(scope="module")
def cells(codes: CodeStore) -> CellStore:
    """The index of the codes, in parts of 128 rows."""
    path = Path(codes.where).with_name("cells")
    api.index(codes.where, path, cells=CELLS, part_rows=128)
    return CellStore.open(path)


def points_of(codes: CodeStore) -> NDArray[np.float32]:
    """The points of all codes."""
    spec = coordinate_spec(codes)
    columns = {
        name: np.concatenate([codes.store.read_chunk(each, name) for each in codes.receipts])
        for name in spec.scanned_names
    }
    return spec.decode(codes.model, columns)


def assigned(model: Any, points: NDArray[np.floating]) -> NDArray[np.int64]:
    """The cell of each point: the nearest centre of its nearest groups, in float64."""
    starts = model["group_starts"]
    found = []
    for point in points.astype(np.float64):
        apart = np.square(model["groups"] - point).sum(axis=1)
        near = np.argsort(apart)[:NEAR_GROUPS]
        candidates = np.concatenate([np.arange(*starts[each : each + 2]) for each in sorted(near)])
        to_centres = np.square(model["centres"][candidates] - point).sum(axis=1)
        found.append(candidates[np.argmin(to_centres)])
    return np.array(found)


def test_centres_are_those_of_k_means_in_groups() -> None:
    rng = np.random.default_rng(0)
    middles = rng.normal(0, 30, (9, 5)).astype(np.float32)
    points = np.repeat(middles, 40, axis=0) + rng.normal(0, 0.1, (360, 5)).astype(np.float32)
    model = learn_centres(points, 9, 0)
    assert model["centres"].shape == (9, 5)
    assert model["group_starts"][[0, -1]].tolist() == [0, 9]
    assert len(model["groups"]) == len(model["group_starts"]) - 1 == 3
    apart = np.square(points[:, None] - model["centres"]).sum(axis=2).min(axis=1)
    spread = np.square(points - points.mean(axis=0)).sum(axis=1)
    assert apart.mean() < 0.2 * spread.mean()
    again = learn_centres(points, 9, 0)
    assert all(np.array_equal(model[name], again[name]) for name in model)


def test_centres_move_to_the_means_of_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(1).normal(size=(3 * BLOCK // 2, 4)).astype(np.float32)
    monkeypatch.setattr(centres_module, "MOVES", 0)
    model = learn_centres(points, 50, 0)
    model["centres"][7] = 1e3  # no point is near to it
    expected = model["centres"].copy()
    cells = assigned(model, points)
    for cell in set(cells.tolist()):
        expected[cell] = points[cells == cell].astype(np.float64).mean(axis=0)
    moved = centres_module._moved(points, model)
    assert np.allclose(moved, expected, rtol=1e-5, atol=1e-6)
    assert (moved[7] == 1e3).all()


@pytest.mark.parametrize("cells", [1, 2, 7, 50])
def test_few_and_equal_points_have_as_many_centres_as_are_asked_for(cells: int) -> None:
    points = np.ones((50, 3), np.float32)
    for model in (learn_centres(points, cells, 0), drawn_centres(points[:cells])):
        assert model["centres"].shape == (cells, 3)
        assert model["group_starts"][-1] == cells
        assert np.isfinite(model["centres"]).all()
        assert len(set(Centres(model).assign(points).tolist())) == 1


def test_a_point_belongs_to_the_nearest_centre_and_cells_are_ranked(codes: CodeStore) -> None:
    points = points_of(codes)
    model = learn_centres(points, CELLS, 3)
    centres = Centres(model)
    expected = assigned(model, points)
    assert np.array_equal(centres.assign(points), expected)
    assert np.array_equal(centres.assign(points[7:8]), expected[7:8])
    wide = points[:QUERIES].astype(np.float64)
    apart = np.square(wide[:, None] - model["centres"]).sum(axis=2)
    order = np.argsort(apart, axis=1, kind="stable")
    for count in (1, 3, CELLS):
        near = centres.nearest(points[:QUERIES], count)
        found = np.take_along_axis(apart, near, axis=1)
        np.testing.assert_allclose(found, np.sort(apart, axis=1)[:, :count], rtol=1e-4, atol=1e-3)
    ranks = centres.rank(points[:QUERIES], order)
    assert (np.abs(ranks - np.arange(CELLS)) <= 1).all()  # equally near but for rounding


def test_rows_lie_by_cell_and_by_number(codes: CodeStore, cells: CellStore) -> None:
    everywhere = [(0, ROWS)]
    rows, (starts,) = cells.read("rows", everywhere), cells.runs
    of_row = assigned(cells.model, points_of(codes))
    expected = np.lexsort((np.arange(ROWS), of_row))
    assert np.array_equal(rows, expected)
    assert np.array_equal(np.diff(starts), np.bincount(of_row, minlength=CELLS))
    for name in coordinate_spec(codes).scanned_names:
        whole = np.concatenate([codes.store.read_chunk(each, name) for each in codes.receipts])
        assert np.array_equal(cells.read(name, everywhere), whole[expected])
    assert not Path(f"{cells.where}.sorted").exists()


@pytest.mark.promise(
    "A search of cells gives the answer of the codes in the cells nearest to each query"
)
def test_all_cells_give_the_answer_of_all_codes(codes: CodeStore, cells: CellStore) -> None:
    queries, encoder = rows_of(5, QUERIES), encoder_of(codes)
    for selection in (None, RangeSelection(100, 700), bits_of(0.3)):
        chosen = codes if selection is None else SelectedCodes(codes, selection)
        flat = scan_codes(OpenCodes(chosen, encoder), queries, 9, threads=1)
        opened = replace(OpenCells.of(cells, encoder_of(cells), CELLS), selection=selection)
        found = opened.scan(queries, 9, threads=2)
        assert np.array_equal(found.top_k.scores, flat.scores)
        assert np.array_equal(found.top_k.ids, flat.ids)
        assert (found.scanned == chosen.rows).all()
        assert np.array_equal(opened.ids_of(found.top_k.ids), chosen.ids_of(flat.ids))


def bits_of(share: float) -> BitSelection:
    """A random selection."""
    mask = np.random.default_rng(8).random(ROWS) < share
    return BitSelection(np.packbits(mask, bitorder="little"))


@pytest.mark.promise(
    "A search of cells gives the answer of the codes in the cells nearest to each query"
)
@loop_over("k", [20, 500])
def test_probes_scan_the_rows_of_the_nearest_cells(
    codes: CodeStore, cells: CellStore, k: int
) -> None:
    queries, encoder = rows_of(6, QUERIES), encoder_of(codes)
    flat = scan_codes(OpenCodes(codes, encoder), queries, ROWS, threads=1)
    points: NDArray[np.float32] = encoder.embed(queries, label="query")  # type: ignore[attr-defined]
    of_row = assigned(cells.model, points_of(codes))
    near = Centres(cells.model).nearest(points, 3)
    found = OpenCells.of(cells, encoder_of(cells), 3).scan(queries, k, threads=1)
    for query in range(QUERIES):
        there = np.isin(of_row[flat.ids[query]], near[query])
        ids, scores = flat.ids[query, there][:k], flat.scores[query, there][:k]
        assert found.scanned[query] == there.sum()
        assert np.array_equal(found.top_k.ids[query, : len(ids)], ids)
        assert np.array_equal(found.top_k.scores[query, : len(ids)], scores)
        assert (found.top_k.ids[query, len(ids) :] == -1).all()
        assert np.isneginf(found.top_k.scores[query, len(ids) :]).all()
    assert (found.scanned.min() < k) == (k == 500)


@pytest.mark.promise(
    "A search of cells gives the answer of the codes in the cells nearest to each query"
)
def test_answers_depend_on_no_thread_batch_or_cache(cells: CellStore) -> None:
    queries, opened = rows_of(7, 70), OpenCells.of(cells, encoder_of(cells), 4)
    expected = opened.scan(queries, 5, threads=1)
    for size in (0, 3_000, 1 << 30):
        cached = replace(opened, cache=CellCache(size))
        for threads in (1, 3):
            found = cached.scan(queries, 5, threads=threads)
            assert np.array_equal(found.top_k.ids, expected.top_k.ids)
            assert np.array_equal(found.top_k.scores, expected.top_k.scores)
        assert cached.cache.left >= 0
    alone = opened.scan(queries[9:10], 5, threads=1)
    assert np.array_equal(alone.top_k.ids, expected.top_k.ids[9:10])


def test_holding_all_cells_reads_nothing_again(cells: CellStore) -> None:
    opened = OpenCells.of(cells, encoder_of(cells), 4, 1 << 30)
    row = sum(column.row_bytes for column in cells.store.columns.values())
    opened.scan(rows_of(7, 40), 5, threads=1)  # some cells are there already
    assert opened.hold_all() == ROWS * row
    before, hits = cells.store.reads.bytes, opened.cache.hits
    opened.scan(rows_of(7, 5), 5, threads=1)
    assert cells.store.reads.bytes == before
    assert opened.cache.hits == hits + 5 * 4
    few = OpenCells.of(cells, encoder_of(cells), 4, 10 * row)
    assert few.hold_all() <= 10 * row


@pytest.mark.promise(
    "The recall that an index expects is that of the true neighbours of its sample"
)
def test_recall_is_measured_by_the_true_neighbours(codes: CodeStore, cells: CellStore) -> None:
    curve = curve_of(cells.model)
    assert curve is not None
    raw = rows_of(2, ROWS)
    drawn = np.random.default_rng(ROWS).choice(ROWS, 512, replace=False, shuffle=False)
    drawn = np.sort(drawn)
    scores = truth(codes.spec.kernel["name"], raw)[drawn]
    scores[np.arange(len(drawn)), drawn] = -np.inf
    cutoff = -np.sort(-scores, axis=1)[:, 9]
    of_row = assigned(cells.model, points_of(codes))
    encoder = encoder_of(codes)
    points = encoder.embed(raw[drawn], label="query")  # type: ignore[attr-defined]
    near = Centres(cells.model).nearest(points, 5)
    in_cells = (of_row[None, :, None] == near[:, None]).any(axis=2)
    clear = scores > cutoff[:, None]  # neighbours beyond doubt; of ties at the tenth any may count
    tied = scores >= cutoff[:, None]
    least = (clear & in_cells).sum(axis=1)
    most = np.minimum(10, (tied & in_cells).sum(axis=1))
    found = ((curve.cell_ranks < 5) & (curve.code_ranks < BEYOND))[:, :10].sum(axis=1)
    assert (least <= found).all()
    assert (found <= most).all()


def truth(name: str, raw: NDArray[Any]) -> NDArray[np.float64]:
    """The score of each pair of rows: the greater, the nearer."""
    wide = raw.astype(np.float64)
    if name == "euclidean":
        return np.asarray(-np.square(wide[:, None] - wide).sum(axis=2))
    if name == "inner_product":
        return np.asarray(wide @ wide.T)
    prepared = reference.prepare(name, raw)
    return reference.kernel(name, prepared, prepared)


def test_the_fewest_cells_and_codes_that_reach_a_recall_are_chosen() -> None:
    cell_ranks = np.arange(100, dtype=np.int32)[None].repeat(2, axis=0)
    code_ranks = np.array([[0] * 100, [0] * 90 + [30] * 10], np.int32)
    curve = RecallCurve(cell_ranks, code_ranks)
    assert curve.choose(0.5, 100) == (50, None, 0.5)
    probing = curve.choose(0.97, 10)
    assert probing == (10, None, 1.0)
    assert curve.recall(100, 100, 10) == 0.95
    assert curve.choose(0.95, 100, 10).rerank == 10
    with pytest.raises(InputError, match=r"recall of 0\.99: .* 0\.950 are among the 10 best codes"):
        curve.choose(0.99, 100, 10)
    assert curve.reachable(100) == 1
    assert curve.reachable(100, 10) == 0.95
    assert curve.choose(curve.reachable(100, 10), 100, 10) == (100, 10, 0.95)
    rng = np.random.default_rng(1)
    for seed in range(200):  # shares such as 0.91, whose products with a count are rounded
        codes = np.where(rng.random((7, 100)) < seed / 200, BEYOND, 3).astype(np.int32)
        random = RecallCurve(rng.integers(0, 50, (7, 100), np.int32), codes)
        assert random.choose(random.reachable(100), 100).probes <= 50
    lost = RecallCurve(cell_ranks, np.full((2, 100), BEYOND, np.int32))
    with pytest.raises(InputError, match="codes do not reach a recall"):
        lost.choose(0.5, 10)


def test_ranges_of_neighbouring_cells_are_one() -> None:
    starts = np.array([0, 5, 5, 9, 12, 20])
    assert ranges_of(starts, np.array([4, 0, 2])) == [(0, 9), (12, 20)]
    assert ranges_of(starts, np.array([3, 1])) == [(9, 12)]
    assert ranges_of(starts, np.array([1])) == []


def test_spans_are_of_at_most_as_many_parts_as_fit() -> None:
    assert spans_of([0, 1, 3, 4, 9], 3) == [[0, 1], [3, 4], [9]]


def test_default_cells_grow_with_the_root_of_the_rows() -> None:
    assert [default_cells(rows) for rows in (1, 80, 10**6, 10**9)] == [1, 10, 4000, 126491]


def test_codes_without_coordinates_have_no_cells(tmp_path: Path) -> None:
    vectors = make_vectors(tmp_path / "vectors", rows_of(2, 100))
    make_codes(tmp_path / "codes", vectors, make_kernel("chi2"), AskaSpec(n_atoms=20))
    with pytest.raises(InputError, match=r"codes of aska: expected codes of coordinates.*map-pq"):
        api.index(tmp_path / "codes", tmp_path / "cells")


def test_a_wrong_byte_gives_no_answer(codes: CodeStore, cells: CellStore, tmp_path: Path) -> None:
    for name in cells.store.layout.column_names:
        file = Path(cells.where) / cells.store.columns[name].chunk_key(1)
        whole = file.read_bytes()
        file.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
        opened = OpenCells.of(CellStore.open(cells.where), encoder_of(cells), CELLS)
        with pytest.raises(IntegrityError, match=f"part 1: column {name}"):
            opened.scan(rows_of(7, 1), 5, threads=1)
        file.write_bytes(whole)
    assert open_code_store(codes.where).rows == ROWS
