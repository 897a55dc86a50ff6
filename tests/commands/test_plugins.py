"""A package that adds a kernel, an encoder and a format: its own tests, and the command with it and
without it."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.support.running import finish, run, start_words

PLUGIN = Path(__file__).parents[1] / "support/plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of commands that find the package, as pip would have installed it."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = site / "mercore_example-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (site / "mercore_example").symlink_to(PLUGIN / "mercore_example")
    return {"PYTHONPATH": str(site)}


@pytest.mark.slow
def test_a_plugin_keeps_the_contracts(installed: dict[str, str], tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PLUGIN / "tests")]
    outcome = finish(start_words(words, env=installed, cwd=tmp_path), 300)
    assert outcome.code == 0, outcome.out
    assert " passed" in outcome.out
    assert "skipped" not in outcome.out


@pytest.mark.slow
def test_commands_use_a_plugin_and_name_it_where_it_is_missing(
    installed: dict[str, str], tmp_path: Path
) -> None:
    def succeed(*words: object) -> str:
        outcome = run(*words, env=installed, cwd=tmp_path)
        assert outcome.code == 0, outcome
        assert "plugin" not in outcome.err
        return outcome.out

    rng = np.random.default_rng(1)
    records = np.zeros(700, [("place", "<f4", 9), ("d", "<i4"), ("vector", "u1", 128)])
    records["d"], records["vector"] = 128, rng.integers(0, 60, (700, 128))
    (tmp_path / "base.siftgeo").write_bytes(records.tobytes())
    (tmp_path / "query.siftgeo").write_bytes(records[:9].tobytes())
    succeed("ingest base.siftgeo base.zarr")
    assert "mercore_example.minmax" in succeed("kernels")
    rows = records["vector"].astype(np.float64)
    pairs = rows[:9, None], rows[None]
    true = np.minimum(*pairs).sum(axis=2) / np.maximum(*pairs).sum(axis=2)
    expected = np.argsort(-true, axis=1, kind="stable")[:, :5]
    exact = "search base.zarr query.siftgeo -k 5 --exact --kernel mercore_example.minmax --out"
    succeed(exact, "rows.npz")
    succeed("encode base.zarr bounds.zarr --kernel mercore-example.MinMax --encoder kpca-bound")
    succeed("search bounds.zarr query.siftgeo -k 5 --exact --out bounds.npz")
    for name in ("rows.npz", "bounds.npz"):
        np.testing.assert_array_equal(np.load(tmp_path / name)["ids"], expected)
    signs = "mercore_example.signs"
    succeed(f"encode base.zarr signs.zarr --kernel cosine --encoder {signs} --bits 96")
    found = succeed("search signs.zarr query.siftgeo -k 1 --processes 2")
    assert [line.split()[2] for line in found.splitlines()[1:]] == [str(n) for n in range(9)]

    for words, message in (
        ("search signs.zarr query.npy", f"signs.zarr: its encoder is '{signs}', expected one of "),
        ("search bounds.zarr query.npy", "a kernel of the store is unknown: found "),
    ):
        np.save(tmp_path / "query.npy", records["vector"][:2])
        outcome = run(words, cwd=tmp_path)
        assert outcome.code != 0
        assert outcome.err.startswith(f"mercore: {message}")
        fix = "Fix: install the package mercore_example, which adds it to mercore.\n"
        assert outcome.err.endswith(fix)
