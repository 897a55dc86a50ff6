"""More rows from few: descriptors scaled and jittered into distinct ones, for measurements at a size of choice."""

from pathlib import Path

import numpy as np

from stores.foreign import open_rows

BLOCK = 1 << 16


def write_jittered(base: str, out: Path, rows: int, *, seed: int = 0) -> None:
    """Write ``rows`` uint8 rows as ``.bvecs``: rows of ``base``, each scaled by 1 ± 5 % and each value by 1 ± 10 %."""
    source = open_rows(base)
    n, d = source.shape
    values = source.read(0, n).astype(np.float32)
    rng = np.random.default_rng(seed)
    with out.open("xb") as file:
        for start in range(0, rows, BLOCK):
            count = min(BLOCK, rows - start)
            drawn = values[rng.integers(0, n, count)] * (1 + 0.05 * rng.standard_normal((count, 1), dtype=np.float32))
            drawn *= 1 + 0.1 * rng.standard_normal((count, d), dtype=np.float32)
            block = np.empty((count, 4 + d), np.uint8)
            block[:, :4] = np.frombuffer(np.int32(d).tobytes(), np.uint8)
            block[:, 4:] = np.clip(np.rint(drawn), 0, 255)
            file.write(block.tobytes())
