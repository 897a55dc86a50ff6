"""Sparse rows (CSR), which are made dense one block at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource
from mercore.stores.formats.dtypes import convert
from mercore.stores.formats.source import StoredSource


class CsrSource(StoredSource):
    """A ``Source`` over the three arrays of a CSR matrix, which are read in pieces.

    ``data`` and ``indices`` have nnz numbers and ``indptr`` n + 1; every source has d = 1.
    """

    kind = "csr"

    def __init__(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        data: BinarySource,
        indices: BinarySource,
        indptr: BinarySource,
    ) -> None:
        super().__init__(name, shape, data.source_dtype)
        if indptr.shape[0] != shape[0] + 1 or indices.shape != data.shape:
            raise FormatError(
                f"{name}: {indptr.shape[0]} indptr, {indices.shape[0]} indices and "
                f"{data.shape[0]} data, expected {shape[0] + 1} indptr, and as many indices as "
                "data. Fix: save it again with scipy.sparse.save_npz."
            )
        if "f" in (indptr.source_dtype.kind, indices.source_dtype.kind):
            raise self._damaged("indices are no whole numbers")
        self._data, self._indices, self._indptr = data, indices, indptr

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        ends = self._indptr.read_stored(start, stop + 1)[:, 0].astype(np.int64)
        lengths = np.diff(ends)
        d = self.shape[1]
        if ends[0] < 0 or ends[-1] > self._data.shape[0] or (lengths < 0).any():
            raise self._damaged(f"indptr of rows [{start}, {stop}) is out of order")
        if (lengths > d).any():
            raise self._damaged(f"among rows [{start}, {stop}), one has over {d} numbers")
        columns = self._indices.read_stored(int(ends[0]), int(ends[-1]))[:, 0]
        if columns.size and not 0 <= int(columns.min()) <= int(columns.max()) < d:
            wrong = f"among rows [{start}, {stop}), one has a column that is not in [0, {d})"
            raise self._damaged(wrong)
        numbers = self._data.read_stored(int(ends[0]), int(ends[-1]))[:, 0]
        # SciPy adds up no float16, and bytes that are no bool may be in a damaged file.
        plain = {"?": np.uint8, "e": np.float32}.get(numbers.dtype.char, numbers.dtype)
        values = numbers.view(np.uint8) if numbers.dtype.kind == "b" else numbers.astype(plain)
        parts = (values, columns.astype(np.int64), ends - ends[0])
        dense = csr_array(parts, shape=(stop - start, d)).toarray()
        return convert(dense, self.dtype, name=self.name, first=start)

    @property
    def source_bytes(self) -> int:
        """Bytes of the stored numbers."""
        return self._data.shape[0] * self.source_dtype.itemsize

    def _damaged(self, what: str) -> FormatError:
        return FormatError(
            f"{self.name}: {what}, expected a CSR matrix. Fix: call sum_duplicates(), and save it "
            "again with scipy.sparse.save_npz."
        )
