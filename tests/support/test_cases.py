"""Loops over cases run every case, and name the one that fails."""

from pathlib import Path

import pytest

from mercore.testing.cases import loop_over

COUNTS = {"patched": 0}


@loop_over(("a", "b"), [(1, 2), (3, 4)])
def test_every_case_has_its_own_folder_and_patches(
    a: int, b: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert b == a + 1
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert COUNTS["patched"] == 0
    monkeypatch.setitem(COUNTS, "patched", 1)


def test_every_case_is_run_and_the_failing_one_is_named() -> None:
    ran = []

    @loop_over("outer", [1, 2])
    @loop_over(("a", "b"), [(1, 2), (3, 4)])
    def fails(outer: int, a: int, b: int) -> None:
        ran.append((outer, a, b))
        assert len(ran) < 4

    with pytest.raises(AssertionError) as failure:
        fails()
    assert ran == [(1, 1, 2), (1, 3, 4), (2, 1, 2), (2, 3, 4)]
    assert failure.value.__notes__ == ["case: a = 3, b = 4", "case: outer = 2"]
