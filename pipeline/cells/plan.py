"""The plan of an index of cells: how many there are, their centres, and the layout on disk."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.cells.centres import learn_centres
from mercore.pipeline.encode import MAX_PART_ROWS, default_part_rows, spec_of
from mercore.pipeline.encoders.encoder import (
    CoordinateCodes,
    check_random_state,
    check_range,
    draw_rows,
)
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError
from mercore.stores.indexes.cells import CELLS, ROWS, CellSpec
from mercore.stores.part_store.header import Layout, column_fields, row_bytes
from mercore.stores.part_store.row_lookup import read_ranges
from mercore.stores.wording import command, option, setting

MAX_CELLS = 1 << 20
PER_ROOT = 4  # cells per √n, as usual for inverted files
SAMPLE_PER_CELL, MAX_SAMPLE = 40, 1 << 20  # rows that centres are learned from


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """The inputs that decide the bytes of an index of cells, of the first ``rows`` codes."""

    codes: CodeStore
    rows: int
    coordinates: CoordinateCodes
    spec: CellSpec
    columns: list[dict[str, Any]]
    part_rows: int

    @property
    def layout(self) -> Layout:
        """The layout of the index, without its model."""
        return Layout(rows=self.rows, part_rows=self.part_rows, columns=self.columns, model={})

    def sorted_layout(self, rows: int) -> Layout:
        """Return the layout of the sorted parts of the last ``rows`` rows, without their model."""
        columns = [*self.columns, column_fields(CELLS, "uint32", None)]
        return replace(self.layout, rows=rows, part_rows=self.codes.part_rows, columns=columns)

    @property
    def sample(self) -> int:
        """The number of rows that centres are learned from."""
        return min(self.codes.rows, MAX_SAMPLE, SAMPLE_PER_CELL * self.spec.cells)

    @property
    def learning_bytes(self) -> int:
        """Bytes that learning the centres takes, and holding them.

        The points are held once; those of a few groups at a time are copied.
        """
        points = 5 * (self.sample + 5 * self.spec.cells)
        model = sum(values.nbytes for values in self.codes.model.values())
        return 2 * model + self.width * points + self.sample * row_bytes(self.columns)

    @cached_property
    def width(self) -> int:
        """The coordinates of a point."""
        return int(self.draw_points(1).shape[1])

    def draw_points(self, count: int) -> Float32:
        """Return the points of the codes of ``count`` drawn rows, float32[count, E]."""
        rng = np.random.default_rng(self.spec.random_state)
        rows = draw_rows(rng, self.codes.rows, count).tolist()
        ranges = [(row, row + 1) for row in rows]
        columns = {
            name: read_ranges(self.codes.store, self.codes.receipts, name, ranges)
            for name in self.coordinates.scanned_names
        }
        return self.coordinates.decode(self.codes.model, columns)

    @cached_property
    def centres(self) -> dict[str, NDArray[Any]]:
        """The model arrays of the centres."""
        spec = self.spec
        return learn_centres(self.draw_points(self.sample), spec.cells, spec.random_state)

    def of_state(self, spec: CellSpec) -> "CellPlan":
        """Return the plan for the codes of the spec of an index, if they are an earlier state."""
        states = {each["digest"]: each["rows"] for each in self.codes.store.layout.grown_from}
        if spec.codes not in states:
            return self
        return replace(
            self,
            rows=states[spec.codes],
            spec=replace(self.spec, codes=spec.codes, source=spec.source),
        )


def default_cells(rows: int) -> int:
    """Return about 4 √n cells, and at most one per 8 rows."""
    usual = round(PER_ROOT * math.sqrt(rows))
    return max(1, min(MAX_CELLS, usual, rows // 8))


def coordinate_spec(codes: CodeStore) -> CoordinateCodes:
    """Return the spec of codes of coordinates.

    Raises
    ------
    InputError
        If the codes are others.
    """
    spec = spec_of(codes)
    if not isinstance(spec, CoordinateCodes):
        raise InputError(
            f"{codes.where} holds codes of {spec.name}: expected codes of coordinates, which have "
            "cells, or binary codes, which have an order. Fix: "
            f"{command('encode', encoder='map-pq')}."
        )
    return spec


def plan_cells(
    codes: CodeStore,
    cells: int | None = None,
    *,
    random_state: int = 0,
    part_rows: int | None = None,
) -> CellPlan:
    """Check that codes are finished and of coordinates, and lay their index out.

    Raises
    ------
    InputError
        If the codes are others, or a number is out of range.
    IntegrityError
        If the codes are not finished.
    """
    coordinates = coordinate_spec(codes)
    count = default_cells(codes.rows) if cells is None else cells
    most = min(MAX_CELLS, codes.rows)
    check_range("cells", count, (1, most), setting(cells=default_cells(codes.rows)))
    check_random_state(random_state)
    if part_rows is not None:
        check_range("part_rows", part_rows, (1, MAX_PART_ROWS), f"leave {option('part_rows')} out.")
    codes.check_done()
    width = "uint32" if codes.rows < 1 << 32 else "uint64"
    scanned = [codes.store.layout.column(name) for name in coordinates.scanned_names]
    columns = [
        *(column_fields(each.name, each.dtype, each.width) for each in scanned),
        column_fields(ROWS, width, None),
    ]
    made_of = codes.spec
    spec = CellSpec(
        codes=codes.store.header.spec_digest,
        cells=count,
        random_state=random_state,
        encoder=made_of.encoder,
        kernel=made_of.kernel,
        source=made_of.source,
        dims=made_of.dims,
    )
    return CellPlan(
        codes=codes,
        rows=codes.rows,
        coordinates=coordinates,
        spec=spec,
        columns=columns,
        part_rows=part_rows or default_part_rows(codes.rows, row_bytes(columns)),
    )
