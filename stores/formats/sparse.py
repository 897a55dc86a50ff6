"""Sparse rows (CSR), which are made dense one block at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_row_range, check_shape, digest_rows


class CsrSource:
    """A ``Source`` over the three arrays of a CSR matrix, which are read in pieces.

    ``data`` and ``indices`` have nnz numbers and ``indptr`` n + 1; every source has d = 1.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        data: BinarySource,
        indices: BinarySource,
        indptr: BinarySource,
    ) -> None:
        check_shape(name, *shape)
        if indptr.shape[0] != shape[0] + 1 or indices.shape != data.shape:
            raise FormatError(
                f"{name}: {indptr.shape[0]} indptr, {indices.shape[0]} indices and "
                f"{data.shape[0]} data, expected {shape[0] + 1} indptr, and as many indices as "
                "data. Fix: save it again with scipy.sparse.save_npz."
            )
        if "f" in (indptr.source_dtype.kind, indices.source_dtype.kind):
            raise self._damaged(name, "indices are no whole numbers")
        self.name, self.shape = name, shape
        self.source_dtype = data.source_dtype
        self.dtype = returned_dtype(self.source_dtype, name)
        self._data, self._indices, self._indptr = data, indices, indptr

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` as ``dtype``; see ``Source.read``."""
        check_row_range(self, start, stop)
        ends = self._indptr.read_stored(start, stop + 1)[:, 0].astype(np.int64)
        lengths = np.diff(ends)
        d = self.shape[1]
        if ends[0] < 0 or ends[-1] > self._data.shape[0] or (lengths < 0).any():
            raise self._damaged(self.name, f"indptr of rows [{start}, {stop}) is out of order")
        if (lengths > d).any():
            raise self._damaged(
                self.name, f"among rows [{start}, {stop}), one has over {d} numbers"
            )
        columns = self._indices.read_stored(int(ends[0]), int(ends[-1]))[:, 0]
        if columns.size and not 0 <= int(columns.min()) <= int(columns.max()) < d:
            wrong = f"among rows [{start}, {stop}), one has a column that is not in [0, {d})"
            raise self._damaged(self.name, wrong)
        numbers = self._data.read_stored(int(ends[0]), int(ends[-1]))[:, 0]
        # SciPy adds up no float16, and bytes that are no bool may be in a damaged file.
        plain = {"?": np.uint8, "e": np.float32}.get(numbers.dtype.char, numbers.dtype)
        values = numbers.view(np.uint8) if numbers.dtype.kind == "b" else numbers.astype(plain)
        parts = (values, columns.astype(np.int64), ends - ends[0])
        dense = csr_array(parts, shape=(stop - start, d)).toarray()
        return convert(dense, self.dtype, name=self.name, first=start)

    def fingerprint(self) -> str:
        """Return the digest of ``Source.fingerprint``, with the size of the stored numbers."""
        stored = self.source_dtype
        size = self._data.shape[0] * stored.itemsize
        return digest_rows(self, kind="csr", stored=stored, size=size)

    @staticmethod
    def _damaged(name: str, what: str) -> FormatError:
        return FormatError(
            f"{name}: {what}, expected a CSR matrix. Fix: call sum_duplicates(), and save it "
            "again with scipy.sparse.save_npz."
        )
