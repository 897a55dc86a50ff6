"""Encoding by kernel PCA and product quantisation beside the bare kernel block, and beside
scikit-learn with faiss."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import additive_chi2_kernel
from threadpoolctl import threadpool_limits

from mercore.pipeline.encoders.kpca import Embedding
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.pq import Pq
from mercore.pipeline.kernels import make_kernel
from mercore.stores.formats import open_source
from mercore.stores.rows import SourceVectors
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

ROWS, FEW = 65_536, 4_096  # the peers' rows: they take some twenty times as long
SHAPES = ((1024, 64, 8), (1024, 128, 16), (2048, 128, 16))


def measure(base: str) -> list[Row]:
    """Return microseconds per row on one thread under chi2, a row per (M, E, D).

    ``base`` is a file; its first 65,536 rows are encoded.
    """
    vectors = SourceVectors(open_source(base))
    with threadpool_limits(1):
        faiss.omp_set_num_threads(1)
        return [_shape(vectors, *shape) for shape in SHAPES]


def _shape(vectors: SourceVectors, landmarks: int, components: int, count: int) -> Row:
    """Return the line of one shape: everything is timed over whole passes, interleaved."""
    kernel = make_kernel("chi2")
    spec = KpcaPqSpec(n_landmarks=landmarks, n_components=components, n_subquantizers=count)
    model = spec.fit(vectors, kernel)
    encoder = spec.encoder(kernel, model)
    encoder.prepare_encoding()
    embedding = Embedding(kernel, model["landmarks"], model["projection"])
    rows = vectors.source.read(0, min(ROWS, vectors.rows))
    prepared = kernel.prepare(rows).astype(np.float32)
    columns = kernel.packed(
        np.ascontiguousarray(kernel.prepare(model["landmarks"]).T.astype(np.float32))
    )
    peer = _peer(encoder, prepared[:FEW], kernel.prepare(model["landmarks"]), model["projection"])
    tasks: dict[str, Callable[[], object]] = {
        "ours": lambda: _blocks(rows, spec.block_rows, encoder.encode),
        "block": lambda: _blocks(
            prepared, spec.block_rows, lambda block: kernel.block(block, columns)
        ),
        "embedding": lambda: _blocks(rows, spec.block_rows, embedding),
        "peer": peer,
    }
    seconds = interleaved(tasks)
    ours, block, embed = (
        seconds[name] / len(rows) * 1e6 for name in ("ours", "block", "embedding")
    )
    theirs = seconds["peer"] / min(FEW, len(rows)) * 1e6
    same = float((peer() == encoder.encode(rows[:FEW])["code"]).mean())
    return {
        "M, E, D": f"{landmarks}, {components}, {count}",
        "mercore, µs per row": ours,
        "K(y, landmarks), µs per row": block,
        "mercore / K(y, landmarks)": ours / block,
        "without quantising, µs per row": embed,
        "scikit-learn + faiss, µs per row": theirs,
        "scikit-learn + faiss / mercore": theirs / ours,
        "equal bytes": same,
    }


def _peer(
    encoder: Pq,
    prepared: NDArray[np.float32],
    landmarks: NDArray[np.float64],
    projection: NDArray[np.float32],
) -> Callable[[], NDArray[np.uint8]]:
    """Return what encodes prepared rows by scikit-learn's chi2, a product, and faiss' quantiser on
    our codebooks."""
    count, _, width = encoder.codebooks.shape
    quantizer: Any = faiss.ProductQuantizer(count * width, count, 8)
    faiss.copy_array_to_vector(np.ascontiguousarray(encoder.codebooks).ravel(), quantizer.centroids)
    exemplars = landmarks.astype(np.float32)

    def encode() -> NDArray[np.uint8]:
        # scikit-learn's is −Σ (x − y)² / (x + y) of histograms that sum to one: K = 1 + that / 2
        kernel_values = 1 + additive_chi2_kernel(prepared, exemplars) / 2
        return np.asarray(
            quantizer.compute_codes(np.ascontiguousarray(kernel_values @ projection, np.float32))
        )

    return encode


def _blocks(rows: NDArray[Any], size: int, use: Callable[[NDArray[Any]], object]) -> None:
    """Pass rows on in blocks."""
    for first in range(0, len(rows), size):
        use(rows[first : first + size])
