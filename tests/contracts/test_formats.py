"""Formats of mercore keep the contract: one of rows of equal bytes, and two containers."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mercore.testing import FormatContract


class TestFbin(FormatContract):
    suffix = ".fbin"

    def write(self, path: Path, rows: NDArray[Any]) -> None:
        path.write_bytes(np.array(rows.shape, "<u4").tobytes() + rows.astype("<f4").tobytes())


class TestParquet(FormatContract):
    suffix = ".parquet"

    def write(self, path: Path, rows: NDArray[Any]) -> None:
        column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        pq.write_table(pa.table({"vector": column}), path)


class TestHdf5(FormatContract):
    suffix, dtype = ".h5", "uint8"

    def write(self, path: Path, rows: NDArray[Any]) -> None:
        with h5py.File(path, "w") as file:
            file["rows"] = rows
