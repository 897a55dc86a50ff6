"""The kernel, the encoder and the format keep the contracts of mercore."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mercore_example.minmax import MinMax
from mercore_example.siftgeo import DIMS, RECORD
from mercore_example.signs import SignsSpec
from numpy.typing import NDArray

from mercore.pipeline.kernels import make_kernel
from mercore.testing import (
    EncoderCase,
    EncoderContract,
    FormatContract,
    KernelCase,
    KernelContract,
)


def minmax(X: NDArray[Any], Y: NDArray[Any]) -> NDArray[np.float64]:
    """K in rational numbers, rounded once."""
    rows, others = ([[Fraction(float(v)) for v in row] for row in block] for block in (X, Y))
    return np.array([[float(ratio(x, y)) for y in others] for x in rows])


def ratio(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return sum(map(min, x, y), Fraction(0)) / sum(map(max, x, y), Fraction(0))


def share_of_equal_bits(
    kernel: str,
    spec: SignsSpec,
    code: Mapping[str, NDArray[Any]],
    model: Mapping[str, NDArray[Any]],
    queries: NDArray[Any],
) -> NDArray[np.float64]:
    bits = np.unpackbits(code["code"], axis=1, bitorder="little")[:, : spec.n_bits]
    asked = queries.astype(np.float64) @ model["projection"] > 0
    return np.array([(bits == each).mean(axis=1) for each in asked])


class TestMinMax(KernelContract):
    @pytest.fixture(scope="module")
    @classmethod
    def case(cls) -> KernelCase:
        return KernelCase(kernel=MinMax(), truth=minmax, truth_error=2.0**-53)


class TestSigns(EncoderContract):
    @pytest.fixture(scope="module", params=[13, 64])
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> EncoderCase:
        return EncoderCase(
            SignsSpec(n_bits=request.param), make_kernel("cosine"), share_of_equal_bits
        )


class TestSiftGeo(FormatContract):
    suffix, dtype, dims, headed = ".siftgeo", "uint8", DIMS, False

    def write(self, path: Path, rows: NDArray[Any]) -> None:
        records = np.zeros(len(rows), RECORD)
        records["d"], records["vector"] = DIMS, rows
        path.write_bytes(records.tobytes())
