"""Registries: what installed packages add, and what is left out with a warning."""

import warnings
from pathlib import Path

import pytest

from mercore.stores.errors import MercoreWarning
from mercore.stores.plugins import PluginRegistry, package_of, plugin_points, qualified_name

GROUP = "mercore.shapes"


class Shape:
    name = "circle"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, package: str, points: str, code: str = "") -> None:
    info = site / f"{package}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")
    (site / f"{package.replace('-', '_').lower()}.py").write_text(
        f"from tests.stores.test_plugins import Shape\n{code}\n"
    )


def shapes() -> PluginRegistry[type[Shape]]:
    return PluginRegistry(GROUP, {"circle": Shape}, qualified_name(Shape))


def test_classes_of_packages_follow_those_of_mercore(site: Path) -> None:
    named = "class Square(Shape):\n    name = '{}.square'"
    install(site, "two-B", "square = two_b:Square", named.format("two_b"))
    install(site, "one_a", "square = one_a:Square", named.format("one_a"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(shapes()) == ["circle", "one_a.square", "two_b.square"]
    assert [package_of(point) for point in plugin_points(GROUP)] == ["one_a", "two_b"]
    assert shapes()["two_b.square"].name == "two_b.square"


@pytest.mark.parametrize(
    ("package", "points", "code", "why"),
    [
        ("lost", "x = lost:X", "", "AttributeError: module 'lost' has no attribute 'X'"),
        ("broken", "x = broken:X", "1 / 0", "ZeroDivisionError: division by zero"),
        ("other", "x = other:X", "X = 3", "InputError: found 3, expected a subclass of Shape"),
        (
            "misnamed",
            "x = misnamed:X",
            "class X(Shape): pass",
            "InputError: found name = 'circle', expected 'misnamed.x'",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_left_out(
    site: Path, package: str, points: str, code: str, why: str
) -> None:
    install(site, package, points, code)
    with pytest.warns(MercoreWarning) as warned:
        assert list(shapes()) == ["circle"]
    assert [str(each.message) for each in warned] == [
        f"x, a plugin of the package {package} for {GROUP}, is left out: {why}. Fix: update "
        f"{package}, or uninstall it."
    ]


def test_no_plugin_takes_a_name_that_is_taken(site: Path) -> None:
    install(site, "rival", "circle = rival:X", "X = Shape")
    registry = PluginRegistry(GROUP, {"circle": Shape}, lambda _, word, __: word)
    with pytest.warns(MercoreWarning, match=r"is left out: InputError: there is another circle\."):
        assert dict(registry) == {"circle": Shape}


def test_a_name_of_a_store_says_which_package_it_needs() -> None:
    fix = "Fix: install the package acme, which adds it to mercore."
    assert shapes().fix_for("acme.square", "Fix: write it anew.") == fix
    for name in ("square", "circle", ".square", "a b.square", None, 3, 1.5):
        assert shapes().fix_for(name, "Fix: write it anew.") == "Fix: write it anew."
