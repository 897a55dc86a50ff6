"""Certificates come back as they were written; damaged ones and other files are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError, NotFoundError
from mercore.stores.formats.npz import npz_bytes
from mercore.stores.results.certificates import read_certificate, write_certificate

ARRAYS: dict[str, NDArray[Any]] = {
    "bounds": np.array([[0.5, np.inf], [-0.0, 1e-300]]),
    "ids": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "gamma": np.array(2, np.float32),
    "none": np.empty((0, 4), np.uint16),
}
ABOUT: dict[str, Any] = {
    "kernel": {"name": "chi2"},
    "k": 10,
    "source": "é\x00",
    "margin": None,
    "rows": [1, 2.5],
}


def same(found: dict[str, NDArray[Any]]) -> None:
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


@pytest.mark.parametrize("name", ["a.npz", "a.NPZ"])
def test_certificates_come_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_certificate(str(path), ARRAYS, ABOUT)
    arrays, about = read_certificate(str(path))
    same(arrays)
    assert about == ABOUT
    first = path.read_bytes()
    write_certificate(str(path), arrays, dict(reversed(about.items())))
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    with np.load(path, allow_pickle=False) as loaded:
        assert loaded["about"].shape == ()


def test_a_certificate_of_nothing(tmp_path: Path) -> None:
    write_certificate(str(tmp_path / "a.npz"), {}, {})
    assert read_certificate(str(tmp_path / "a.npz")) == ({}, {})


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    for name, suffix in (("a.json", ".json"), ("npz", "")):
        expected = (
            f"{tmp_path}/{name}: unknown suffix {suffix!r} for a certificate, expected .npz. "
        )
        with pytest.raises(InputError) as refused:
            write_certificate(f"{tmp_path}/{name}", ARRAYS, ABOUT)
        assert str(refused.value) == expected + "Fix: rename the file."
        with pytest.raises(InputError) as refused:
            read_certificate(f"{tmp_path}/{name}")
        assert str(refused.value) == expected + "Fix: rename the file."
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_said_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        write_certificate(f"{tmp_path}/a.npz", {"about": np.zeros(1)}, {})
    assert str(refused.value) == (
        f"{tmp_path}/a.npz: an array is called about, expected any other name. Fix: rename it."
    )
    for about, reason in (
        ({"x": float("nan")}, "Out of range float values are not JSON compliant"),
        ({"x": {1}}, "Object of type set is not JSON serializable"),
    ):
        with pytest.raises(InputError) as refused:
            write_certificate(f"{tmp_path}/a.npz", {}, about)
        text = str(refused.value)
        assert text.startswith(f"{tmp_path}/a.npz: about is no JSON: {reason}")
        assert text.endswith(". Fix: pass texts, finite numbers, lists and mappings.")
    assert list(tmp_path.iterdir()) == []


BAD = [
    (
        {"x": np.zeros(2)},
        "no array about, expected a text that describes the arrays. Fix: name a certificate.",
    ),
    (
        {"about": np.zeros(2)},
        "float64[2] about, expected a text that describes the arrays. Fix: name a certificate.",
    ),
    (
        {"about": np.array(["{}"])},
        "<U2[1] about, expected a text that describes the arrays. Fix: name a certificate.",
    ),
    (
        {"about": np.array("{")},
        "about is no JSON (Expecting property name enclosed in double quotes: line 1 column 2 "
        "(char 1)). Fix: fetch or write the file again.",
    ),
    ({"about": np.array("[1]")}, "about is [1], expected a JSON mapping. Fix: name a certificate."),
]


@pytest.mark.parametrize(("arrays", "expected"), BAD, ids=range(len(BAD)))
def test_other_files_are_refused(
    tmp_path: Path, arrays: dict[str, NDArray[Any]], expected: str
) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz_bytes(arrays))
    with pytest.raises(FormatError) as refused:
        read_certificate(str(path))
    assert str(refused.value) == f"{path}: {expected}"


def test_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_certificate(str(path), ARRAYS, ABOUT)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at])
        with pytest.raises(FormatError):
            read_certificate(str(path))
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            arrays, about = read_certificate(str(path))
        except FormatError:
            continue
        same(arrays)
        assert about == ABOUT
    with pytest.raises(NotFoundError):
        read_certificate(str(tmp_path / "b.npz"))
