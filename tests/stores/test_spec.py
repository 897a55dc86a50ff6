"""What stores say of themselves is one text, is read strictly, and names the job."""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercore.pipeline.encoders.aska import AskaSpec
from mercore.stores.codes import CodeSpec, open_code_store
from mercore.stores.errors import FormatError, IntegrityError, NotFoundError
from mercore.stores.part_store.header import (
    Header,
    Layout,
    column_fields,
    header_attributes,
    model_entries,
    open_header,
)
from mercore.stores.part_store.receipts import Receipt
from mercore.stores.spec import ABSENT, canonical_json, digest, from_json, parse_json, to_json
from mercore.stores.vectors import VectorSpec, open_vector_store
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady

Json = Any
SPECS: list[Any] = [
    AskaSpec(n_atoms=3, weights="float16"),
    AskaSpec(n_atoms=3, pursuit="ormp"),
    CodeSpec(
        encoder={"name": "aska"}, kernel={"name": "chi2", "configuration": {}}, source="ab", dims=4
    ),
    Layout(
        rows=5,
        part_rows=2,
        columns=[column_fields("atoms", "uint16", 8)],
        model={"dropped": {"shape": [3]}},
    ),
    Receipt(part=1, start=2, stop=4, job="ff", chunks={"atoms": {"bytes": 36, "crc32c": "0" * 8}}),
    VectorSpec(
        dims=2,
        dtype="uint8",
        content="cd",
        source="x.bvecs",
        source_dtype="uint8",
        source_rows=9,
        dropped_rows=1,
        zero_rows=1,
        nan_rows=0,
        infinite_rows=0,
        negative_rows=0,
        duplicate_rows=2,
        value_min=None,
        value_max=0.1,
    ),
]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def refused(message: str, kind: type[Any], mapping: Any) -> None:
    with pytest.raises(FormatError) as refusal:
        from_json(kind, mapping, "the store")
    assert str(refusal.value) == message


# Specs


@given(value=json_values)
@steady(60)
def test_canonical_json_is_one_text_that_reads_back(value: Json) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    assert digest(value) == digest(json.loads(text))


def test_canonical_json_sorts_and_refuses_what_json_lacks() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": {"d": True, "c": "χ²"}}) == (
        '{"a":{"c":"\\u03c7\\u00b2","d":true},"b":[1,2.5,null]}'
    )
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})
    assert (
        digest([]) == "7ebb3c7c2a87b1a2f8a7ed729ecb040d"
    )  # on disk in every store: it may not change
    with pytest.raises(ValueError, match="Out of range float values"):
        canonical_json(float("nan"))


@every_spec
def test_a_spec_reads_back(spec: Any) -> None:
    mapping = json.loads(canonical_json(to_json(spec)))
    assert from_json(type(spec), mapping, "the store") == spec
    absent = {f.name: f.metadata[ABSENT] for f in fields(spec) if ABSENT in f.metadata}
    assert {**absent, **mapping} == asdict(spec)


def test_a_field_that_came_later_is_left_out_where_it_means_what_was_before_it() -> None:
    old, new = AskaSpec(n_atoms=3, pursuit="omp"), AskaSpec(n_atoms=3, metric="distance")
    assert not {"pursuit", "metric"} & set(to_json(old))
    assert (to_json(new)["pursuit"], to_json(new)["metric"]) == ("ormp", "distance")
    assert [from_json(AskaSpec, to_json(spec), "the store") for spec in (old, new)] == [old, new]
    assert (
        from_json(AskaSpec, {**to_json(old), "pursuit": "omp", "metric": "product"}, "the store")
        == old
    )
    assert digest(to_json(old)) == "0385048975f1e16e764b84322d4ac1e9"  # as before there was either
    former = replace(new, metric="product")
    assert (
        digest(to_json(former)) == "133645ce763a912103da5578bcc27b5d"
    )  # as before there was a metric


@every_spec
def test_a_newer_version_is_refused_and_told_first(spec: Any) -> None:
    mapping = {**to_json(spec), "version": 2, "added": 1}
    refused(
        "the store: version is 2, expected 1. "
        "Fix: read it with the version of mercore that wrote it, or write it anew.",
        type(spec),
        mapping,
    )


@every_spec
def test_another_name_is_refused(spec: Any) -> None:
    refused(
        f"the store: name is 'pq', expected {spec.name!r}. "
        "Fix: read it with the version of mercore that wrote it, or write it anew.",
        type(spec),
        {**to_json(spec), "name": "pq"},
    )


@every_spec
@pytest.mark.promise("Specs refuse fields that they do not know")
def test_a_field_more_or_less_is_refused(spec: Any) -> None:
    mapping = to_json(spec)
    later = {f.name for f in fields(spec) if ABSENT in f.metadata}
    lost = next(key for key in mapping if key not in later | {"name", "version"})
    less = {key: value for key, value in mapping.items() if key != lost}
    more = {"zeal": 0, "added": 1}
    for found, missing, unknown in (
        (less, [lost], []),
        ({**mapping, **more}, [], ["added", "zeal"]),
        ({**less, **more}, [lost], ["added", "zeal"]),
    ):
        refused(
            f"the store: its fields do not fit {spec.name} version 1: missing {missing}, "
            f"unknown {unknown}. "
            "Fix: restore the file from the store that was copied, or write it anew.",
            type(spec),
            found,
        )


WHOLE = "a whole number, 0 or more"


@loop_over(
    ("kind", "name", "found", "expected"),
    [
        *((Layout, "rows", found, WHOLE) for found in (True, -1, 2.0, "5", None, 10**30, [5])),
        (Layout, "columns", {}, "list[dict[str, Any]]"),
        (Layout, "columns", [3], "list[dict[str, Any]]"),
        (Layout, "model", {"dropped": []}, "dict[str, dict[str, Any]]"),
        (Receipt, "job", 3, "str"),
        (Receipt, "facts", {"first_key": -1}, "dict[str, int]"),
        *((VectorSpec, "value_max", found, "float | None") for found in ("1", False, 10**400)),
    ],
)
def test_a_field_of_another_type_is_refused(
    kind: type[Any], name: str, found: Any, expected: str
) -> None:
    (spec,) = (spec for spec in SPECS if isinstance(spec, kind))
    refused(
        f"the store: {name} is {found!r:.80}, expected {expected}. "
        "Fix: restore the file from the store that was copied, or write it anew.",
        kind,
        {**to_json(spec), name: found},
    )


@loop_over("text", ["[" * 5000, '{"a":' * 5000, "NaN", "[1e999]", "-Infinity", "1" * 5000, b"\xff"])
def test_json_that_is_deep_or_not_finite_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|not JSON compliant|Exceeds|decode"):
        parse_json(text)


@every_spec
@loop_over("found", [None, [], "text", 3])
def test_what_is_no_mapping_is_refused(spec: Any, found: Any) -> None:
    refused(
        f"the store: found {found!r}, expected the fields of {spec.name}. "
        "Fix: restore the file from the store that was copied, or write it anew.",
        type(spec),
        found,
    )


def test_what_is_no_spec_is_a_mistake_of_ours() -> None:
    @dataclass
    class Point:
        x: int

    assert to_json(Point(1)) == {"x": 1}
    for wrong in (Point, {"x": 1}):
        with pytest.raises(TypeError, match=r"^not a spec: "):
            to_json(wrong)


# Headers

LAYOUT = Layout(rows=10, part_rows=4, columns=[column_fields("atoms", "uint16", 8)], model={})
HEADER = Header(kind="codes", spec={"name": "x"}, layout=LAYOUT, notes={"source_path": "here"})


def test_a_layout_counts_its_parts_and_makes_its_columns() -> None:
    assert [replace(LAYOUT, rows=rows).parts for rows in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
    assert LAYOUT.column_names == ["atoms"]
    column = LAYOUT.column("atoms")
    assert (column.shape, column.chunk_shape, column.dtype) == ((10, 8), (4, 8), "uint16")


def test_the_job_is_named_by_all_that_decides_the_bytes_and_by_nothing_else() -> None:
    others = [
        replace(HEADER, kind="vectors"),
        replace(HEADER, spec={"name": "y"}),
        replace(HEADER, layout=replace(LAYOUT, rows=11)),
        replace(HEADER, layout=replace(LAYOUT, part_rows=5)),
        replace(
            HEADER, layout=replace(LAYOUT, columns=[column_fields("atoms", "uint16", 8, "zstd")])
        ),
        replace(HEADER, layout=replace(LAYOUT, model=model_entries({"dropped": np.arange(3)}))),
        replace(HEADER, layout=replace(LAYOUT, model=model_entries({"dropped": np.arange(1, 4)}))),
    ]
    assert len({header.spec_digest for header in (HEADER, *others)}) == 8
    assert replace(HEADER, notes={"source_path": "elsewhere"}).spec_digest == HEADER.spec_digest


def written(folder: Path, attributes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    (folder / "zarr.json").write_text(json.dumps(group))
    return folder


def test_a_header_reads_back(tmp_path: Path) -> None:
    assert open_header(written(tmp_path, header_attributes(HEADER))) == HEADER


def edits(mapping: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values that are no containers."""
    if isinstance(mapping, dict):
        return [place for key, value in mapping.items() for place in edits(value, (*path, key))]
    if isinstance(mapping, list):
        return [place for key, value in enumerate(mapping) for place in edits(value, (*path, key))]
    return [path]


@pytest.mark.parametrize("place", edits(header_attributes(HEADER)["mercore"]), ids=str)
def test_the_digest_tells_any_edit(place: tuple[Any, ...], tmp_path: Path) -> None:
    attributes = json.loads(json.dumps(header_attributes(HEADER)))
    inner = attributes["mercore"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = {"digest": "0" * 32}.get(place[-1], 77)
    edited = {key: value for key, value in attributes["mercore"].items() if key != "digest"}
    with pytest.raises((IntegrityError, FormatError)) as refusal:
        open_header(written(tmp_path, attributes))
    if place in (("layout", "name"), ("layout", "version")):
        assert f"{tmp_path}: {place[1]} is 77, expected" in str(refusal.value)
        return
    assert str(refusal.value) == (
        f"{tmp_path}: zarr.json is damaged: its digest is {digest(edited)}, it says "
        f"{attributes['mercore']['digest']}. "
        "Fix: restore it from a copy."
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"added": 1}, "added, block_bytes, kind, layout, notes, spec"),
        ({"notes": None}, "block_bytes, kind, layout, spec"),
    ],
)
@pytest.mark.promise("Specs refuse fields that they do not know")
def test_a_header_with_other_fields_is_refused(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    mapping = header_attributes(HEADER)["mercore"]
    mapping = {
        key: value
        for key, value in {**mapping, **change}.items()
        if value is not None and key != "digest"
    }
    with pytest.raises(FormatError) as refusal:
        open_header(written(tmp_path, {"mercore": {**mapping, "digest": digest(mapping)}}))
    assert str(refusal.value) == (
        f"{tmp_path}: zarr.json has the fields {told}: expected kind, layout, notes, spec. "
        "Fix: restore it from a copy, or read it with the version of mercore that wrote it."
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b'{"attributes": {}}',
        b'{"attributes": []}',
        b'{"attributes": {"mercore": 3}}',
        b'{"attributes": {"mercore": {}}}',
        b'{"attributes": {"mercore": null}}',
    ],
    ids=str,
)
def test_what_is_no_store_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_bytes(text)
    (tmp_path / "file").write_bytes(text)
    (tmp_path / "folder").mkdir()
    for path in (tmp_path, tmp_path / "file", tmp_path / "folder"):
        with pytest.raises(FormatError) as refusal:
            open_header(path)
        assert str(refusal.value) == (
            f"{path} is not a store of mercore: expected a Zarr group with a 'mercore' attribute. "
            "Fix: ingest the vectors, or name the store that encode wrote."
        )


@pytest.mark.parametrize("layout", [None, [], 3, {}])
def test_a_header_without_a_layout_is_refused(layout: Any, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="expected"):
        open_header(written(tmp_path, {"mercore": {"layout": layout, "digest": ""}}))


def test_a_path_where_nothing_is_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path / "zarr.json" / "below"):
        with pytest.raises(NotFoundError) as refusal:
            open_header(path)
        assert (
            str(refusal.value) == f"{path} does not exist: expected a store. Fix: check the path."
        )


def test_a_store_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as refusal:
        open_vector_store(written(tmp_path, header_attributes(HEADER)))
    assert str(refusal.value) == (
        f"{tmp_path} is a store of codes: expected one of vectors. Fix: name the vector store."
    )
    with pytest.raises(FormatError) as other:
        open_code_store(written(tmp_path, header_attributes(replace(HEADER, kind="vectors"))))
    assert (
        str(other.value)
        == f"{tmp_path} is a store of vectors: expected one of codes. Fix: name the code store."
    )
