"""Searches, graphs and pairs among the rows of the same label or of others, against brute force:
every kind of search, with few rows of a label or none, certificates, resumption, refusals."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import mercore
from mercore.jobs.verbs.searches.exact import ExactTask
from mercore.stores.errors import InputError
from mercore.stores.results.certificates import read_certificate
from mercore.testing.cases import loop_over
from tests.independent import check_certificate, reference
from tests.independent.exact_truth import nearest
from tests.support.running import histograms, invoke, succeed

N, D, K = 700, 16, 5
ROWS = histograms(N, D, seed=1)
ROWS[10:40] = ROWS[400:430]  # ties, within a label and across
ROWS[[0, 3, 500]] = 0  # left out by ingest
LABELS = np.array([-3, 0, 0, 1, 1000])[np.arange(N) % 5]
LABELS[[4, 14, 24]] = 8  # fewer rows than neighbours
LABELS[60:64] = 9  # all of them deleted
DELETED = np.arange(60, 70)
LEFT_OUT = np.arange(200, 230)
TAKING_PART = np.setdiff1d(np.flatnonzero(ROWS.any(axis=1)), np.concatenate([DELETED, LEFT_OUT]))
ASKED = np.array([0, 8, 1, -3, 9, 77, 1000, 0])  # of 9 and of 77 there is no row
QUERIES = histograms(len(ASKED), D, seed=2)
KERNELS: dict[str, dict[str, Any]] = {
    "chi2": {},
    "rbf": {"gamma": 1e-4},
    "euclidean": {},
    "inner_product": {},
}
STORES: dict[str, dict[str, Any]] = {
    **{f"v {kernel}": {"kernel": kernel, **options} for kernel, options in KERNELS.items()},
    "codes": {},
    "bounds": {},
}
BOTH = ["same", "other"]
Ids = NDArray[np.int64]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, some deleted; codes, bounds, sorted orders; queries, and files of labels."""
    folder = tmp_path_factory.mktemp("labels")
    mercore.ingest(ROWS, folder / "v", drop_zero_rows=True)
    pq_text = "kpca-pq:landmarks=64,components=32,subquantizers=16"
    texts = {"codes": pq_text, "bounds": "bin-bound:groups=16", "bits": "klsh:landmarks=64,bits=32"}
    for name, text in texts.items():
        mercore.encode(folder / "v", folder / name, kernel="chi2", encoder=text, part_rows=128)
    mercore.index(folder / "bits", folder / "orders", orders=4)
    mercore.delete(folder / "v", DELETED)
    np.save(folder / "queries.npy", QUERIES)
    np.save(folder / "labels.npy", LABELS)
    np.save(folder / "asked.npy", ASKED)
    np.save(folder / "left.npy", LEFT_OUT)
    pq.write_table(pa.table({"label": LABELS}), folder / "labels.parquet")
    return folder


def met(label: int, which: str, among: Ids = TAKING_PART) -> Ids:
    """The ids that a query of a label meets."""
    return np.asarray(among[(LABELS[among] == label) == (which == "same")])


def true_ids(kernel: str, which: str, **gamma: float) -> Ids:
    """The nearest rows that each query meets, −1 for missing ones."""
    true = np.full((len(ASKED), K), -1)
    for query, label in enumerate(ASKED.tolist()):
        ids = met(label, which)
        count = min(K, len(ids))
        if count:
            asked = QUERIES[query : query + 1]
            true[query, :count] = ids[nearest(kernel, ROWS[ids], asked, count, **gamma)[0]]
    return true


@loop_over("which", BOTH)
@loop_over(("threads", "batch"), [(1, 1024), (2, 3)])
@pytest.mark.parametrize("name", STORES)
@pytest.mark.promise(
    "A search, graph or pairs by labels finds the nearest rows that the label of each query lets take part, and its certificate names the labels"
)
def test_every_kind_of_search_finds_the_nearest_that_its_label_lets(
    name: str, threads: int, batch: int, which: str, folder: Path
) -> None:
    options = STORES[name]
    store, kernel = folder / name.split(maxsplit=1)[0], options.get("kernel", "chi2")
    labels: Any = {which: LABELS, "query_labels": ASKED, "without": LEFT_OUT}
    given = {**options, **labels, "k": K, "threads": threads, "batch": batch}
    true = true_ids(kernel, which, **KERNELS[kernel])
    kinds: list[dict[str, Any]] = [{"exact": True}, {"rerank": N // 2} if name == "codes" else {}]
    for kind in kinds[: 1 if name == "bounds" else 2]:
        report, hits = mercore.search(store, QUERIES, **given, **kind)
        np.testing.assert_array_equal(hits.ids, true)
        assert report["rows"] == len(TAKING_PART)
        none = np.inf if kernel == "euclidean" else -np.inf
        assert hits.scores is not None
        assert (hits.scores[true < 0] == none).all()
        assert np.isfinite(hits.scores[true >= 0]).all()


@loop_over("which", BOTH)
def test_codes_alone_rank_as_among_the_rows_of_each_label(which: str, folder: Path) -> None:
    given: Any = {which: folder / "labels.npy", "query_labels": ASKED}
    _, hits = mercore.search(folder / "codes", QUERIES, k=K, **given)
    _, near = mercore.search(folder / "codes", QUERIES, within=0.5, **given)
    for query, label in enumerate(ASKED.tolist()):
        ids = met(label, which, np.setdiff1d(np.arange(N), DELETED))
        if not len(np.setdiff1d(ids, [0, 3, 500])):
            assert len(hits.of(query)[0]) == len(near.of(query)[0]) == 0
            continue
        asked = QUERIES[query : query + 1]
        count = min(K, len(ids))
        _, alone = mercore.search(folder / "codes", asked, k=count, among=ids)
        _, all_near = mercore.search(folder / "codes", asked, within=0.5, among=ids)
        found, true = (*hits.of(query), *near.of(query)), (*alone.of(0), *all_near.of(0))
        for values, expected in zip(found, true, strict=True):
            np.testing.assert_array_equal(values, expected)


@loop_over("which", BOTH)
@pytest.mark.parametrize("name", ["v", "codes", "bounds", "codes --rerank"])
def test_within_a_threshold(name: str, which: str, folder: Path) -> None:
    kind: dict[str, Any] = {"exact": True, "batch": 3}
    if name.endswith("--rerank"):
        kind = {"rerank": N // 2}
    given: Any = {which: f"{folder}/labels.parquet::label", "query_labels": ASKED, **kind}
    given |= {"kernel": "chi2"} if name == "v" else {}
    store = folder / name.split(maxsplit=1)[0]
    _, hits = mercore.search(store, QUERIES, within=0.6, without=LEFT_OUT, **given)
    _, few = mercore.search(store, QUERIES, within=0.6, k=2, without=LEFT_OUT, **given)
    scores = cross(QUERIES, TAKING_PART)
    assert len(hits) == len(ASKED)
    for query, label in enumerate(ASKED.tolist()):
        near = TAKING_PART[scores[query] >= 0.6]
        near = near[np.isin(near, met(label, which))]
        assert sorted(hits.of(query)[0].tolist()) == near.tolist()
        assert few.of(query)[0].tolist() == hits.of(query)[0][:2].tolist()


def cross(queries: NDArray[Any], ids: Ids) -> NDArray[np.float64]:
    """The scores under chi2."""
    return reference.kernel(
        "chi2", reference.prepare("chi2", queries), reference.prepare("chi2", ROWS[ids])
    )


@loop_over("which", BOTH)
@pytest.mark.parametrize("name", ["v", "codes", "codes --rerank"])
def test_graph(name: str, which: str, folder: Path) -> None:
    """A row is not its own neighbour; one of a rare label has fewer neighbours."""
    given: Any = {which: LABELS, "without": LEFT_OUT, "k": K, "batch": 100}
    given |= {"kernel": "chi2"} if name == "v" else {}
    given |= {"rerank": N // 2} if name.endswith("--rerank") else {}
    _, hits = mercore.graph(folder / name.split(maxsplit=1)[0], **given)
    assert len(hits) == N
    for row in range(N):
        others = met(int(LABELS[row]), which)
        others = others[others != row] if row in TAKING_PART else others[:0]
        count = min(K, len(others))
        true = others[:0]
        if count:
            true = others[nearest("chi2", ROWS[others], ROWS[row : row + 1], count)[0]]
        assert hits.of(row)[0].tolist() == true.tolist()


@loop_over("which", BOTH)
@loop_over("batch", [1024, 64])
@pytest.mark.parametrize("name", ["v", "codes"])
def test_pairs(name: str, batch: int, which: str, folder: Path) -> None:
    given: Any = {which: LABELS, "without": LEFT_OUT, "within": 0.7, "batch": batch, "threads": 2}
    given |= {"kernel": "chi2"} if name == "v" else {}
    _, hits = mercore.pairs(folder / name, **given)
    first, second = np.nonzero(np.triu(cross(ROWS[TAKING_PART], TAKING_PART) >= 0.7 - 1e-12, 1))
    first, second = TAKING_PART[first], TAKING_PART[second]
    kept = (LABELS[first] == LABELS[second]) == (which == "same")
    true = np.stack([first[kept], second[kept]], axis=1)
    found = np.stack([np.repeat(np.arange(N), np.diff(hits.lims)), hits.ids], axis=1)
    np.testing.assert_array_equal(np.unique(found, axis=0), true)
    assert len(found) == len(true)

    _, hits = mercore.pairs(folder / name, QUERIES, query_labels=ASKED, **given)
    near = cross(QUERIES, TAKING_PART) >= 0.7
    for query, label in enumerate(ASKED.tolist()):
        ids = TAKING_PART[near[query]]
        assert sorted(hits.of(query)[0].tolist()) == ids[np.isin(ids, met(label, which))].tolist()


def searched(
    line: str, folder: Path, tmp_path: Path, *, asked: bool = True
) -> tuple[list[str], list[str]]:
    """The files and the labels for the checker, after a search with a certificate."""
    out = f"{tmp_path}/hits.npz"
    succeed(f"{line} --out {out} --without {folder}/left.npy --batch 100 --force")
    np.save(tmp_path / "ids.npy", TAKING_PART)
    files = [f"{folder}/v", f"{folder}/queries.npy", out, f"{out}.certificate.npz"]
    labels = ["--labels", f"{folder}/labels.npy"] + [f"{folder}/asked.npy"] * asked
    return [*files, f"{tmp_path}/ids.npy"], labels


@loop_over("which", BOTH)
@pytest.mark.parametrize("kernel", ["chi2", "euclidean"])
@pytest.mark.promise(
    "A search, graph or pairs by labels finds the nearest rows that the label of each query lets take part, and its certificate names the labels"
)
def test_certificates_name_the_labels_and_refute_faults(
    kernel: str, which: str, folder: Path, tmp_path: Path
) -> None:
    line = f"search {folder}/v {folder}/queries.npy --kernel {kernel} -k {K} --exact"
    options = f"--{which} {folder}/labels.npy --query-labels {folder}/asked.npy"
    files, labels = searched(f"{line} {options}", folder, tmp_path)
    assert check_certificate.main([*files, *labels]) == 0
    about = read_certificate(files[3])[1]["labels"]
    assert about["same"] == (which == "same")

    with pytest.raises(SystemExit, match="name --labels"):
        check_certificate.main(files)
    other = LABELS.copy()
    other[TAKING_PART[5]] += 1
    np.save(tmp_path / "other.npy", other)
    with pytest.raises(SystemExit, match="the rows had other labels"):
        check_certificate.main([*files, "--labels", f"{tmp_path}/other.npy", labels[2]])
    np.save(tmp_path / "other.npy", ASKED[::-1])
    with pytest.raises(SystemExit, match="the queries had other labels"):
        check_certificate.main([*files, *labels[:2], f"{tmp_path}/other.npy"])

    with np.load(files[2]) as file:
        arrays = dict(file)
    wrong_label = met(int(ASKED[0]), "other" if which == "same" else "same")
    for query, rank, planted in [(0, 2, wrong_label[0]), (1, 1, -1), (5, 0, TAKING_PART[7])]:
        ids = arrays["ids"].copy()
        ids[query, rank] = planted  # a row that it does not meet; a row left out; any row
        np.savez(files[2], ids=ids, scores=arrays["scores"])
        assert check_certificate.main([*files, *labels]) == 1


@loop_over("which", BOTH)
@loop_over("verb", ["graph", "pairs", "search", "cross"])
@pytest.mark.promise(
    "A search, graph or pairs by labels finds the nearest rows that the label of each query lets take part, and its certificate names the labels"
)
def test_certificates_of_graphs_pairs_and_ranges(
    verb: str, which: str, folder: Path, tmp_path: Path
) -> None:
    words = {
        "graph": f"graph {folder}/codes -k {K}",
        "pairs": f"pairs {folder}/codes --within 0.7",
        "search": f"search {folder}/codes {folder}/queries.npy --exact --within 0.6",
        "cross": f"pairs {folder}/codes {folder}/queries.npy --within 0.6",
    }[verb]
    asked = verb in ("search", "cross")
    options = f"--{which} {folder}/labels.npy" + f" --query-labels {folder}/asked.npy" * asked
    files, labels = searched(f"{words} {options}", folder, tmp_path, asked=asked)
    assert check_certificate.main([*files, *labels]) == 0
    with np.load(files[2]) as file:
        arrays = dict(file)
    arrays["indptr"] = arrays["indptr"] - (
        np.arange(len(arrays["indptr"])) == len(arrays["indptr"]) - 1
    )
    for name in ("indices", "data"):
        arrays[name] = arrays[name][:-1]
    np.savez(files[2], **arrays)
    assert check_certificate.main([*files, *labels]) == 1


def test_a_killed_search_ends_in_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    line = f"search {folder}/bounds {folder}/queries.npy --exact -k {K} --batch 2 --threads 1"
    line += f" --same {folder}/labels.npy --query-labels {folder}/asked.npy"
    succeed(f"{line} --out {tmp_path}/whole.npz")
    solved: list[int] = []
    solve = ExactTask.solve

    def killed(self: ExactTask, search: Any, queries: Any, k: int, first: int = 0) -> Any:
        solved.append(first)
        if len(solved) == 3:
            raise KeyboardInterrupt
        return solve(self, search, queries, k, first)

    with patch.object(ExactTask, "solve", killed):
        assert invoke(f"{line} --out {tmp_path}/h.npz").code != 0
        other = line.replace("--same", "--other")
        assert (
            "another search, which differs in labels"
            in invoke(f"{other} --out {tmp_path}/h.npz").err
        )
        succeed(f"{line} --out {tmp_path}/h.npz")
    assert solved == [0, 2, 4, 4, 6]
    for suffix in ("", ".certificate.npz"):
        whole = (tmp_path / f"whole.npz{suffix}").read_bytes()
        assert (tmp_path / f"h.npz{suffix}").read_bytes() == whole


def test_plans_and_memory_count_labels(folder: Path) -> None:
    labels = f"--same {folder}/labels.npy"
    asked = f"{labels} --query-labels {folder}/asked.npy"
    for words in (
        f"search {folder}/codes {folder}/queries.npy -k {K} {asked}",
        f"search {folder}/codes {folder}/queries.npy -k {K} --exact {asked}",
        f"graph {folder}/codes -k {K} {labels}",
        f"pairs {folder}/codes --within 0.8 {labels}",
    ):
        report = json.loads(succeed(f"plan {words} --json"))
        plain = words.replace(asked, "").replace(labels, "")
        assert report["memory"] > json.loads(succeed(f"plan {plain} --json"))["memory"]
        assert report["times"]


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    codes, labels, asked = folder / "codes", LABELS, ASKED
    both: dict[str, Any] = {"same": labels, "query_labels": asked}
    cases: list[tuple[dict[str, Any], str]] = [
        ({**both, "other": labels}, "same and other leave no row: found both"),
        ({"same": labels}, "query_labels is missing"),
        ({"query_labels": asked}, "query_labels has no use here: it goes with same or other"),
        (
            {**both, "processes": 2},
            "by labels run on threads of this process. Fix: leave processes out",
        ),
        ({**both, "same": labels[1:]}, "same has 699 labels: expected 700, one per id of"),
        ({**both, "query_labels": asked[1:]}, "query_labels has 7 labels: expected 8, one per row"),
        ({**both, "same": labels * 0.5}, r"same: float64\[700\], expected labels"),
    ]
    for options, message in cases:
        with pytest.raises((InputError, mercore.MercoreError), match=message):
            mercore.search(codes, QUERIES, k=K, **options)
    with pytest.raises(InputError, match=r"same has no use here.*holds an index"):
        mercore.search(folder / "orders", QUERIES, k=K, **both)
    with pytest.raises(InputError, match="query_labels is missing"):
        mercore.pairs(codes, QUERIES, within=0.8, same=labels)
    with pytest.raises(InputError, match="query_labels has no use here: the rows are the queries"):
        mercore.pairs(codes, within=0.8, **both)
    assert (
        "--query-labels is missing"
        in invoke(f"search {codes} {folder}/queries.npy --same {folder}/labels.npy").err
    )
