"""The Python API: the verbs as typed functions, whose keywords and defaults are those of their
commands."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.jobs import api
from mercore.jobs.cli import main
from mercore.jobs.session.opening import open as open_store
from mercore.stores.errors import FormatError, InputError, ShapeError
from mercore.stores.results.hits import read_hits
from mercore.testing.stores import histograms
from tests.support.running import succeed

ROWS, QUERIES = histograms(60, 12), histograms(4, 12, seed=1)
VERBS = ["ingest", "encode", "search", "verify", "evaluate", "info", "check", "compare", "export"]
VERBS += ["append", "index", "gallery", "report"]
REQUIRED: dict[str, Any] = {"kernel": "chi2", "kernels": ["chi2"], "encoders": ["pq"]}
REQUIRED["out"] = "page.html"
PAGE = Path(__file__).parents[2] / "notebooks/guide/python.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("called")
    api.ingest(ROWS, folder / "base")
    api.encode(folder / "base", folder / "bounds", kernel="chi2", encoder="bin-bound:groups=4")
    return folder


def test_every_verb_is_a_function_or_named_as_a_command_alone() -> None:
    named = {
        text.partition(":")[0]: set(re.findall(r"`(\w+)`", text))
        for text in PAGE.read_text().split("\n\n")
    }
    functions, alone = named["The functions"], named["The commands without a function"]
    assert functions == set(main.commands) & set(mercore.__all__)
    assert alone == set(main.commands) - functions


def test_kernels_and_encoders_are_listed_as_their_commands_print_them() -> None:
    assert mercore.kernels() == json.loads(succeed("kernels", "--json"))
    assert mercore.encoders() == json.loads(succeed("encoders", "--json"))


def test_k_shrinks_by_default_and_is_refused_if_given(folder: Path) -> None:
    _, hits = api.search(folder / "base", QUERIES, kernel="chi2")
    assert hits.ids.shape == (4, 60)
    with pytest.raises(InputError, match="k is out of range: found 100"):
        api.search(folder / "base", QUERIES, kernel="chi2", k=100)


class OnceSteady:
    """Rows that are other rows when they are read for the second time."""

    shape, dtype = QUERIES.shape, QUERIES.dtype

    def __init__(self) -> None:
        self.read = np.zeros((len(QUERIES), 1), np.bool_)

    def __getitem__(self, rows: slice) -> np.ndarray[Any, np.dtype[Any]]:
        block = np.where(self.read[rows], QUERIES[rows][:, ::-1], QUERIES[rows])
        self.read[rows] = True
        return block


@pytest.mark.parametrize("name", ["codes", "every row", "by bounds", "verify", "evaluate", "open"])
@pytest.mark.promise(
    "Queries, or rows of a foreign array, that change while they are read are refused"
)
def test_queries_that_change_while_they_are_read_are_refused(
    name: str, folder: Path, tmp_path: Path
) -> None:
    base, bounds, queries, out = (
        folder / "base",
        folder / "bounds",
        OnceSteady(),
        tmp_path / "h.npz",
    )
    _, hits = api.search(bounds, QUERIES, k=3, exact=True)
    verbs: dict[str, Callable[[], object]] = {
        "codes": lambda: api.search(bounds, queries, k=3),
        "every row": lambda: api.search(base, queries, k=3, kernel="chi2", exact=True, out=out),
        "by bounds": lambda: api.search(bounds, queries, k=3, exact=True, out=out),
        "verify": lambda: api.verify(base, queries, hits, kernel="chi2"),
        "evaluate": lambda: api.evaluate(
            hits, truth=hits, vectors=base, queries=queries, kernel="chi2"
        ),
        "open": lambda: open_store(bounds).search(queries, k=3, exact=True),
    }
    with pytest.raises(FormatError, match=r"the array: rows \[0, 4\) have changed since they were"):
        verbs[name]()
    assert not out.exists()


def test_arrays_are_searched_and_verified_as_files_are(folder: Path) -> None:
    np.save(folder / "queries.npy", QUERIES)
    _, hits = api.search(folder / "bounds", QUERIES, k=3, exact=True, memory="1GB")
    api.search(
        str(folder / "bounds"),
        str(folder / "queries.npy"),
        k=3,
        exact=True,
        out=folder / "hits.npz",
    )
    written = read_hits(str(folder / "hits.npz"))
    assert np.array_equal(hits.ids, written.ids)
    assert hits.scores is not None
    assert written.scores is not None
    assert np.array_equal(hits.scores, written.scores)
    for claimed in (
        hits,
        hits.ids,
        hits.ids.astype(np.uint32),
        str(folder / "hits.npz"),
        folder / "hits.npz",
    ):
        report = api.verify(
            folder / "base", QUERIES, claimed, kernel="chi2", bounds=folder / "bounds"
        )
        assert (report["proved"], report["refuted"]) == (4, 0)
    wrong = hits.ids.copy()
    wrong[2, :2] = wrong[2, 1::-1]
    assert api.verify(folder / "base", QUERIES, wrong, kernel="chi2")["refuted"] == 1
    recall = api.evaluate(hits, written, ranks=[1, 3])["recall"]
    assert {row["rank"] for row in recall} == {1, 3}
    assert all(row["value"] == 1 for row in recall)


def test_arguments_may_be_named_too(folder: Path) -> None:
    _, hits = api.search(store=folder / "bounds", queries=QUERIES, k=3, exact=True)
    assert (
        api.verify(hits=hits, queries=QUERIES, vectors=folder / "base", kernel="chi2")["proved"]
        == 4
    )


@pytest.mark.parametrize("k", [3.0, True])
def test_a_count_is_a_whole_number(k: Any, folder: Path) -> None:
    with pytest.raises(InputError, match=f"k is {k}: expected a whole number"):
        api.search(folder / "base", QUERIES, k=k, kernel="chi2")
    three: Any = np.int64(3)
    _, hits = api.search(folder / "base", QUERIES, k=three, kernel="chi2")
    assert hits.ids.shape == (4, 3)


def test_ids_at_hand_are_checked_as_those_of_a_file_are(folder: Path) -> None:
    for ids in (np.full((4, 2), -2), np.full((4, 2), 2**63 + 1, np.uint64)):
        with pytest.raises(FormatError, match="expected ids ≥ 0, or -1 for none"):
            api.verify(folder / "base", QUERIES, ids, kernel="chi2")


def test_an_unknown_option_is_refused_not_ignored(folder: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'rerrank'"):
        api.search(folder / "base", QUERIES, k=3, kernel="chi2", rerrank=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'json'"):
        api.info(folder / "base", json=True)  # type: ignore[call-arg]


def test_a_missing_option_is_named(folder: Path) -> None:
    with pytest.raises(TypeError, match=r"missing 1 required .*'kernel'"):
        api.encode(folder / "base", folder / "codes")  # type: ignore[call-arg]
    nothing: Any = None
    with pytest.raises(InputError, match="kernel is None: expected a name"):
        api.encode(folder / "base", folder / "codes", kernel=nothing)
    assert not (folder / "codes").exists()


@pytest.mark.parametrize(
    ("option", "value", "because"),
    [
        ("memory", "plenty", "'plenty' is not a size"),
        ("encoder", "aska:pursuit=cg", "pursuit is 'cg', expected one of"),
        ("encoder", "askar", "unknown encoder 'askar'"),
        ("workers", "two", "workers is two: expected a whole number"),
    ],
)
def test_a_wrong_value_is_refused(folder: Path, option: str, value: Any, because: str) -> None:
    with pytest.raises(InputError, match=because):
        api.encode(folder / "base", folder / "codes", kernel="chi2", **{option: value})
    assert not (folder / "codes").exists()


def test_one_kernel_of_a_comparison_needs_no_list(folder: Path) -> None:
    queries = folder / "queries.npy"
    for wrong in ({"kernel": "chi3", "encoder": "pq"}, {"kernels": "chi3", "encoders": ["pq"]}):
        with pytest.raises(InputError, match=r"^unknown kernel: found 'chi3', "):
            api.compare(folder / "base", queries, **wrong)
    with pytest.raises(InputError, match=r"^kernel is missing: expected one name or more\. Fix: "):
        api.compare(folder / "base", queries, encoder="pq")


def test_a_vector_is_refused_and_a_list_of_rows_is_taken(folder: Path) -> None:
    with pytest.raises(FormatError, match="has shape \\(12,\\), expected two dimensions"):
        api.search(folder / "base", QUERIES[0], k=3, kernel="chi2")
    _, hits = api.search(folder / "base", QUERIES, k=3, kernel="chi2")
    _, listed = api.search(folder / "base", QUERIES.tolist(), k=3, kernel="chi2")
    np.testing.assert_array_equal(listed.ids, hits.ids)
    with pytest.raises(ShapeError, match="expected integers"):
        api.verify(folder / "base", QUERIES, QUERIES, kernel="chi2")
