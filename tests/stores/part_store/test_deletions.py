"""Files of deletions: the bits of the last one, and of the one before for who reads its header."""

from itertools import pairwise
from pathlib import Path

import numpy as np

import mercore
from mercore.testing.stores import make_vectors


def test_the_files_of_the_last_two_deletions_are_kept(tmp_path: Path) -> None:
    make_vectors(tmp_path / "vectors", np.ones((40, 3), np.uint8))
    kept: list[set[str]] = [set()]
    for row in range(4):
        mercore.delete(tmp_path / "vectors", [row])
        kept.append({file.name for file in (tmp_path / "vectors" / "deleted").iterdir()})
    assert [len(names) for names in kept] == [0, 1, 2, 2, 2]
    assert all(len(later - names) == 1 for names, later in pairwise(kept))
    assert {len(name) for name in kept[-1]} == {32}
