"""The contract of every file format: its rows, in any slices, and no file that was cut off."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import mercore
from mercore.stores.errors import FormatError, MercoreError, ShapeError
from mercore.stores.formats import open_source
from mercore.stores.vectors import blocks, open_vector_store

CUTS = 30


def read_all(path: str) -> NDArray[Any]:
    """Return the rows of a file."""
    source = open_source(path)
    return source.read(0, source.shape[0])


class FormatContract:
    """The tests of a format; a subclass says the ``suffix``, the dtype, and how to write a file."""

    suffix: ClassVar[str]
    dtype: ClassVar[str] = "float32"
    dims: ClassVar[int] = 5
    headed: ClassVar[bool] = True
    """Whether a file says how many rows it has."""

    @abstractmethod
    def write(self, path: Path, rows: NDArray[Any]) -> None:
        """Write rows, dtype[n, d], by other means than those that read them."""

    def rows(self, count: int, seed: int = 1) -> NDArray[Any]:
        """Return rows, dtype[count, d]."""
        values = np.random.default_rng(seed).integers(0, 100, (count, self.dims))
        return values.astype(self.dtype)

    def file(self, folder: Path, rows: NDArray[Any], name: str = "rows") -> str:
        """Return the path of a new file that holds the rows."""
        path = folder / f"{name}{self.suffix}"
        self.write(path, rows)
        return str(path)

    def test_rows_are_read_in_any_slices(self, tmp_path: Path) -> None:
        rows = self.rows(70)
        source = open_source(self.file(tmp_path, rows))
        assert (source.shape, source.dtype) == (rows.shape, rows.dtype)
        for start, stop in ((0, 70), (0, 0), (70, 70), (3, 4), (17, 61), (69, 70)):
            block = source.read(start, stop)
            assert block.flags.c_contiguous
            np.testing.assert_array_equal(block, rows[start:stop], strict=True)
        for start, stop in ((-1, 3), (5, 4), (0, 71)):
            with pytest.raises(ShapeError):
                source.read(start, stop)

    def test_a_store_holds_the_rows(self, tmp_path: Path) -> None:
        rows = self.rows(200)
        store = str(tmp_path / "rows.zarr")
        mercore.ingest(self.file(tmp_path, rows), store)
        found = [block for _, block in blocks(open_vector_store(Path(store)), 0, len(rows), 64)]
        np.testing.assert_array_equal(np.concatenate(found), rows, strict=True)

    def test_a_fingerprint_is_of_the_rows(self, tmp_path: Path) -> None:
        rows = self.rows(40)
        first, same = (open_source(self.file(tmp_path, rows, name)) for name in ("a", "b"))
        other = open_source(self.file(tmp_path, self.rows(40, seed=2), "c"))
        assert first.fingerprint() == same.fingerprint() != other.fingerprint()

    def test_a_file_that_was_cut_off_is_refused(self, tmp_path: Path) -> None:
        whole, row = (Path(self.file(tmp_path, self.rows(n), f"{n}")) for n in (60, 1))
        data, row_bytes = whole.read_bytes(), row.stat().st_size
        for size in np.unique(np.linspace(0, len(data) - 1, CUTS).astype(int)).tolist():
            if size and not self.headed and size % row_bytes == 0:
                continue
            whole.write_bytes(data[:size])
            with pytest.raises(FormatError):
                read_all(str(whole))

    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(MercoreError) as refusal:
            open_source(str(tmp_path / f"none{self.suffix}"))
        assert str(refusal.value).startswith(str(tmp_path))
