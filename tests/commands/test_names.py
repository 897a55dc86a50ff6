"""Names of ids beside the hits of a search, from the command line and from Python."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import mercore
from mercore.stores.errors import InputError
from tests.support.running import histograms, invoke, succeed

BASE, QUERIES = histograms(40, 8, seed=3), histograms(3, 8, seed=4)
BASE[5] = 0  # a row that is left out, whose id is not used again
SKUS = [f"sku-{i:02}\t\n" if i == 7 else f"sku-{i:02}" for i in range(40)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the store ``base.zarr`` of 39 of 40 rows, and the table that it was made of."""
    monkeypatch.chdir(tmp_path)
    polars.DataFrame({"sku": SKUS, "number": range(100, 140), "v": BASE}).write_parquet(
        "base.parquet"
    )
    np.save("q.npy", QUERIES)
    succeed("ingest base.parquet::v base.zarr --drop-zero-rows")
    return tmp_path


SEARCH = "search base.zarr q.npy --kernel chi2 -k 39"


def test_names_are_printed_behind_ids(folder: Path) -> None:
    lines = succeed(f"{SEARCH} --names base.parquet::sku").splitlines()
    plain = succeed(SEARCH).splitlines()
    assert lines[0] == "query\trank\tid\tname\tscore"
    rows = [line.split("\t") for line in lines[1:]]
    assert ["\t".join((*row[:3], row[4])) for row in rows] == plain[1:]
    assert {int(row[2]): row[3] for row in rows} == {
        i: "sku-07\\t\\n" if i == 7 else name for i, name in enumerate(SKUS) if i != 5
    }
    found = json.loads(succeed(f"{SEARCH} --names base.parquet::number --json"))
    assert (np.array(found["names"]) == np.array(found["ids"]) + 100).all()


@pytest.mark.parametrize(
    "options", ["", "--exact", "--within 0.5", "--within 0.5 --exact"], ids=str
)
def test_every_search_has_names_in_parquet(options: str, folder: Path) -> None:
    words = SEARCH if "within" not in options else SEARCH.removesuffix("-k 39")
    succeed(f"{words} {options} --names base.parquet::sku --out hits.parquet")
    hits = polars.read_parquet("hits.parquet").explode("ids", "names")
    assert len(hits) > 20
    assert hits["names"].to_list() == [SKUS[i] for i in hits["ids"]]


def test_names_that_do_not_fit_are_refused_before_the_search(folder: Path) -> None:
    np.save("few.npy", SKUS[:39])
    outcome = invoke(*f"{SEARCH} --names few.npy".split())
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "mercore: few.npy has 39 names: expected 40, one per id of base.zarr. Fix: name the column "
        "of the rows that were ingested.\n"
    )
    words = "search base.zarr none.npy --kernel chi2 --names base.parquet::sku --out hits.npz"
    outcome = invoke(*words.split())  # before the queries are looked for
    assert outcome.err == (
        "mercore: hits.npz: .npz holds no names, expected .parquet. Fix: --out hits.parquet, or "
        "leave --names out.\n"
    )
    assert not Path("hits.npz").exists()


def test_names_grow_with_the_store(folder: Path) -> None:
    more = [*SKUS, "new"]
    mercore.append(QUERIES[:1], "base.zarr")
    with pytest.raises(InputError, match="has 40 names: expected 41"):
        mercore.search("base.zarr", QUERIES, kernel="chi2", k=1, names=SKUS)
    _, hits = mercore.search("base.zarr", QUERIES[:1], kernel="chi2", k=1, names=more)
    assert hits.to_pandas()["name"].tolist() == ["new"]


def test_hits_of_codes_indexes_and_open_stores_are_named(folder: Path) -> None:
    mercore.encode("base.zarr", "codes.zarr", kernel="chi2", encoder="map-pq:subquantizers=2")
    mercore.index("codes.zarr", "cells.zarr", cells=2)
    succeed(
        "encode base.zarr bits.zarr --kernel chi2 --encoder klsh --landmarks 20 --subset 5 --bits 64"
    )
    mercore.index("bits.zarr", "orders.zarr", orders=2)
    searches: list[tuple[str, dict[str, Any]]] = [
        ("codes.zarr", {}),
        ("codes.zarr", {"rerank": 39}),
        ("cells.zarr", {"probes": 2}),
        ("orders.zarr", {}),
    ]
    for store, options in searches:
        _, hits = mercore.search(store, QUERIES, k=5, names=np.array(SKUS), **options)
        assert hits.names is not None
        assert hits.names.tolist() == [
            [SKUS[i] if i >= 0 else None for i in row] for row in hits.ids
        ]
    _, within = mercore.search("codes.zarr", QUERIES, within=0.3, names=SKUS)
    assert within.names is not None
    assert within.names.tolist() == [SKUS[i] for i in within.ids]
    with mercore.open("codes.zarr") as opened:
        named = opened.search(QUERIES, k=5).named("base.parquet::sku")
    assert named.to_polars()["name"].to_list() == [SKUS[i] for i in named.ids.ravel()]
