"""The memory of a search of selected rows."""

from pathlib import Path

import numpy as np

from mercore.jobs.resources.limits import exact_bytes, search_bytes
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.stores.codes import CodeStore, SelectedCodes
from mercore.stores.selection import BitSelection, RangeSelection
from mercore.stores.vector_views import SelectedVectors
from mercore.stores.vectors import Vectors
from mercore.testing.stores import histograms, make_codes, make_vectors

ROWS, DIMS = 4096, 16


def test_a_copy_of_selected_rows_takes_memory_and_a_range_takes_none(tmp_path: Path) -> None:
    vectors = make_vectors(tmp_path / "vectors", histograms(ROWS, DIMS), part_rows=512)
    codes = make_codes(
        tmp_path / "codes", vectors, make_kernel("chi2"), BinBoundSpec(n_groups=8), part_rows=1024
    )
    first = RangeSelection(0, 3 * 1024)
    half = BitSelection(np.packbits(np.arange(ROWS) % 2 == 0, bitorder="little"))
    settings = SearchSettings(k=5, threads=2)
    row = sum(codes.stored_bytes.values()) / ROWS

    def scanned(store: CodeStore | Vectors) -> int:
        return search_bytes(store, settings, queries=queries)

    for queries in (1, 100):
        assert scanned(SelectedCodes(codes, first)) == scanned(codes)
        assert scanned(SelectedVectors(vectors, first)) == scanned(vectors)
        more = scanned(SelectedCodes(codes, half)) - scanned(codes)
        assert half.nbytes + 2 * 2 * 500 * row < more < half.nbytes + 2 * 2 * 513 * row
        more = scanned(SelectedVectors(vectors, half)) - scanned(vectors)
        assert more == half.nbytes + 2 * 512 * DIMS * 4
        exact = [
            exact_bytes(codes, vectors, settings, queries=queries),
            exact_bytes(
                SelectedCodes(codes, first),
                SelectedVectors(vectors, first),
                settings,
                queries=queries,
            ),
        ]
        assert exact[1] <= exact[0]
