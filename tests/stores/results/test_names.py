"""Names of ids: the same from every holder, read where an id was found, and kept in every table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.feather
import pytest
from pyarrow import parquet

from mercore.stores.errors import FormatError, InputError, NotFoundError
from mercore.stores.results.hits import Hits, read_hits, write_hits
from mercore.stores.results.names import open_names
from mercore.stores.results.range_hits import RangeHits, write_range_hits

TEXTS = [f"item {i % 4}" for i in range(10)]  # a name may be that of several ids
NUMBERS = [10**15 + i for i in range(10)]
MISSING = ["a", None, "c"] * 3 + ["d"]
IDS = np.array([7, 0, 7, 9, 3])
HITS = Hits(
    ids=np.array([[3, 1, -1], [0, 9, 2]]), scores=np.array([[1, 0.5, 0], [0.75, 0.5, 0.25]])
)
RANGE = RangeHits(
    lims=np.array([0, 2, 2, 3]), ids=np.array([1, 2, 0]), scores=np.array([0.5, 0.25, 0.5])
)


def table(folder: Path, name: str, column: Any, **options: Any) -> str:
    """The path of a table of the column ``name`` and of other columns."""
    held = pa.table({"name": column, "other": np.arange(len(column)), "v": [[1.0]] * len(column)})
    if name.endswith(".parquet"):
        parquet.write_table(held, folder / name, **options)
    else:
        pyarrow.feather.write_feather(held, str(folder / name), chunksize=3)
    return f"{folder}/{name}::name"


def npy(folder: Path, values: Any) -> str:
    np.save(folder / "names.npy", values)
    return f"{folder}/names.npy"


def parts(folder: Path, pattern: str) -> str:
    for number, rows in enumerate((slice(0, 4), slice(4, 10))):
        table(folder, f"part-{number}.parquet", TEXTS[rows])
    return f"{folder}/{pattern}".removesuffix("/") + "::name"


HOLDERS: dict[str, tuple[Callable[[Path], Any], list[Any]]] = {
    "npy of texts": (lambda folder: npy(folder, TEXTS), TEXTS),
    "npy of numbers": (lambda folder: npy(folder, NUMBERS), NUMBERS),
    "Parquet": (lambda folder: table(folder, "a.parquet", TEXTS), TEXTS),
    "row groups": (lambda folder: table(folder, "a.parquet", TEXTS, row_group_size=3), TEXTS),
    "numbers": (lambda folder: table(folder, "a.parquet", NUMBERS, row_group_size=3), NUMBERS),
    "dictionary": (
        lambda folder: table(folder, "a.parquet", pa.array(TEXTS).dictionary_encode()),
        TEXTS,
    ),
    "missing": (lambda folder: table(folder, "a.parquet", MISSING, row_group_size=2), MISSING),
    "Feather": (lambda folder: table(folder, "a.feather", TEXTS), TEXTS),
    "folder": (lambda folder: parts(folder, ""), TEXTS),
    "pattern": (lambda folder: parts(folder, "part-*.parquet"), TEXTS),
    "texts of NumPy": (lambda _: np.array(TEXTS), TEXTS),
    "StringDType": (lambda _: np.array(TEXTS, np.dtypes.StringDType()), TEXTS),
    "objects": (lambda _: np.array(MISSING, object), MISSING),
    "numbers of NumPy": (lambda _: np.array(NUMBERS, np.uint64), NUMBERS),
    "list": (lambda _: TEXTS, TEXTS),
    "list of numbers": (lambda _: NUMBERS, NUMBERS),
    "range": (lambda _: range(10), list(range(10))),
    "pandas": (lambda _: pandas.Series(TEXTS, index=range(10)[::-1]), TEXTS),
    "pandas, missing": (lambda _: pandas.Series(MISSING), MISSING),
    "pandas numbers": (lambda _: pandas.Series(NUMBERS), NUMBERS),
    "pandas, nullable": (lambda _: pandas.Series([1, None] * 5, dtype="Int64"), [1, None] * 5),
    "pandas categories": (lambda _: pandas.Series(TEXTS).astype("category"), TEXTS),
    "polars": (lambda _: polars.Series("name", MISSING), MISSING),
    "polars numbers": (lambda _: polars.Series("name", NUMBERS), NUMBERS),
    "polars frame": (lambda _: polars.DataFrame({"name": TEXTS}), TEXTS),
    "pyarrow": (lambda _: pa.array(MISSING), MISSING),
    "views": (lambda _: pa.array(TEXTS, pa.string_view()), TEXTS),
    "chunks": (lambda _: pa.chunked_array([TEXTS[:3], TEXTS[3:]]), TEXTS),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_names_are_those_of_the_holder(holder: str, tmp_path: Path) -> None:
    make, expected = HOLDERS[holder]
    names = open_names(make(tmp_path))
    assert names.count == 10
    assert names.of(IDS).tolist() == [expected[i] for i in IDS]
    assert names.of(np.empty(0, np.int64)).tolist() == []
    hits = HITS.named(make(tmp_path))
    wanted = [expected[i] for i in (3, 1, 0, 9, 2)]
    assert hits.to_arrow().column("name").to_pylist() == wanted
    column = hits.to_polars()["name"]
    assert column.to_list() == wanted
    assert column.dtype in (polars.String, polars.Int64, polars.UInt64)
    frame = hits.to_pandas()["name"]
    assert frame.astype(object).where(frame.notna(), None).tolist() == wanted
    assert polars.DataFrame(hits)["name"].to_list() == wanted


def test_only_the_row_groups_with_found_ids_are_read(tmp_path: Path) -> None:
    names = [f"{i:0200}" for i in range(40)]
    path = table(tmp_path, "a.parquet", names, row_group_size=10, compression="none")
    file = tmp_path / "a.parquet"
    data = bytearray(file.read_bytes())
    first = data.index(names[0].encode())
    data[first - 20 : first + 400] = b"\xff" * 420  # the first row group
    file.write_bytes(data)
    opened = open_names(path)
    assert opened.of(np.array([39, 12])).tolist() == [names[39], names[12]]
    with pytest.raises(FormatError, match="the rows from 0 on cannot be decoded"):
        opened.of(np.array([39, 2]))


def test_a_table_has_names_behind_ids() -> None:
    columns = ["query", "rank", "id", "name", "score"]
    for hits in (HITS.named(TEXTS), RANGE.named(TEXTS)):
        assert list(hits.to_pandas()) == hits.to_polars().columns == columns
    named = HITS.named(TEXTS)
    assert named.names is not None
    assert named.names.tolist() == [["item 3", "item 1", None], ["item 0", "item 1", "item 2"]]
    assert named.json()["names"] == named.names.tolist()
    assert RANGE.named(TEXTS).json()["names"] == ["item 1", "item 2", "item 0"]
    assert HITS.names is None
    assert HITS.named(None) is HITS
    assert "names" not in HITS.json()
    ids, scores = named
    assert ids is HITS.ids
    assert scores is HITS.scores


@pytest.mark.parametrize("names", [TEXTS, NUMBERS], ids=["texts", "numbers"])
def test_parquet_keeps_names_beside_the_ids_that_are_read(names: list[Any], tmp_path: Path) -> None:
    path = str(tmp_path / "hits.parquet")
    write_hits(path, HITS.named(names))
    back = read_hits(path)
    assert back.ids.tolist() == HITS.ids.tolist()
    assert polars.read_parquet(path)["names"].to_list() == [
        [names[3], names[1], None],
        [names[0], names[9], names[2]],
    ]
    write_range_hits(path, RANGE.named(names), 10)
    assert parquet.read_table(path).column("names").to_pylist() == [names[1:3], [], names[:1]]


def test_other_formats_hold_no_names(tmp_path: Path) -> None:
    for name in ("a.npz", "a.ivecs", "a.h5"):
        with pytest.raises(InputError, match=r"holds no names, expected \.parquet\. Fix: out="):
            write_hits(str(tmp_path / name), HITS.named(TEXTS))
    for name, called in (("a.npz", None), ("a", "faiss"), ("a.ibin", None)):
        with pytest.raises(InputError, match="holds no names"):
            write_range_hits(str(tmp_path / name), RANGE.named(TEXTS), 10, called)
    assert not list(tmp_path.iterdir())


def test_edges_have_the_names_of_both_ends() -> None:
    edges = RANGE.to_edges(names=["a", "b", "c"])
    graph = networkx.from_pandas_edgelist(edges, edge_attr=True, create_using=networkx.DiGraph)
    assert {*graph.edges(data="weight")} == {("a", "b", 0.5), ("a", "c", 0.25), ("c", "a", 0.5)}
    assert list(RANGE.named(TEXTS).to_edges()) == ["source", "target", "weight"]
    with pytest.raises(InputError, match="has 2 names: found the id 2"):
        RANGE.to_edges(names=["a", "b"])


def test_fewer_names_than_ids_are_refused() -> None:
    with pytest.raises(InputError, match="names has 9 names: found the id 9, expected ids below"):
        HITS.named(TEXTS[:9])


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([1.5, 2.5], "names: values of float, expected one text or whole number per id"),
        (["a", 1], "names: values of int, str, expected"),
        ([True, False], "names: values of bool, expected"),
        ([b"a"], "names: values of bytes, expected"),
        (np.eye(2), r"names: float64\[2, 2\], expected"),
        (np.array([["a"]]), r"names: <U1\[1, 1\], expected"),
        (pandas.DataFrame({"a": ["x"]}), r"names: a table, expected .*, as frame\['id'\]"),
        (polars.DataFrame({"a": ["x"], "b": [1]}), "names: a column of struct"),
        (pa.array([1.5]), "names: a column of double, expected"),
        (pa.array([["a"]]), "names: a column of list"),
        ({"a": 1}, "names: a dict, expected"),
    ],
)
def test_what_is_no_names_is_refused(names: Any, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        open_names(names)


def test_files_that_hold_no_names_are_refused(tmp_path: Path) -> None:
    table(tmp_path, "a.parquet", TEXTS)
    (tmp_path / "objects").mkdir()
    for path, told in (
        (f"{tmp_path}/a.parquet", "columns name, other, v, expected one. Fix: name it, as"),
        (f"{tmp_path}/a.parquet::v", "a.parquet::v: a column of list<"),
        (f"{tmp_path}/a.parquet::w", "0 columns 'w', expected one of name, other, v"),
        (npy(tmp_path, np.eye(3)), r"names.npy: float64\[3, 3\], expected one text"),
        (npy(tmp_path / "objects", np.array(MISSING, object)), "Python objects.* texts as str"),
    ):
        with pytest.raises(FormatError, match=told):
            open_names(path)
    with pytest.raises(NotFoundError):
        open_names(f"{tmp_path}/none.parquet::name")
    with pytest.raises(InputError, match="s3://"):
        open_names("s3://bucket/a.parquet::name")
    assert open_names(npy(tmp_path, np.empty(0, np.int64))).count == 0
