"""Export of product-quantisation codes as a faiss index; only this module needs faiss."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import InputError
from mercore.stores.location.publish import publish_output


def check_faiss() -> None:
    """Refuse an export without faiss.

    Raises
    ------
    InputError
        If faiss is not installed.
    """
    try:
        import faiss  # noqa: F401
    except ImportError:
        raise InputError(
            "faiss is not installed: it writes its own index. Fix: pip install faiss-cpu"
        ) from None


def write_index(
    path: Path,
    codebooks: NDArray[np.float32],
    codes: NDArray[np.uint8],
    ids: NDArray[np.int64] | None,
    *,
    metric: str,
) -> None:
    """Publish an ``IndexPQ`` of these codebooks and codes; with ``ids``, in an ``IndexIDMap2``.

    Parameters
    ----------
    codebooks : float32[D, 256, s]
    codes : uint8[n, D]
    ids : int64[n], optional
        Ids of the rows, if they are not 0…n − 1.
    metric : "distance" or "product"
    """
    import faiss

    count, _, width = codebooks.shape
    kind = faiss.METRIC_L2 if metric == "distance" else faiss.METRIC_INNER_PRODUCT
    index: Any = faiss.IndexPQ(count * width, count, 8, kind)
    faiss.copy_array_to_vector(np.ascontiguousarray(codebooks).ravel(), index.pq.centroids)
    index.is_trained = True
    mapped = None if ids is None else faiss.IndexIDMap2(index)  # faiss wraps only an empty index
    faiss.copy_array_to_vector(np.ascontiguousarray(codes).ravel(), index.codes)
    index.ntotal = len(codes)
    if mapped is not None:
        faiss.copy_array_to_vector(ids, mapped.id_map)
        mapped.ntotal = len(codes)
        mapped.construct_rev_map()
        index = mapped
    publish_output(path, faiss.serialize_index(index).data)


def write_cells(
    path: Path,
    codebooks: NDArray[np.float32],
    cells: tuple[NDArray[np.float32], NDArray[np.int64]],
    rows: tuple[NDArray[np.uint8], NDArray[np.int64]],
    *,
    metric: str,
) -> None:
    """Publish an ``IndexIVFPQ`` of these codebooks, cells and rows; codes are of no residuals.

    Parameters
    ----------
    codebooks : float32[D, 256, s]
    cells : the centres float32[C, D s], and the number of rows of each, int64[C]
    rows : the codes uint8[n, D] and the ids int64[n], cell by cell
    metric : "distance" or "product"
    """
    import faiss

    (count, _, width), (centres, sizes), (codes, ids) = codebooks.shape, cells, rows
    kind = faiss.METRIC_L2 if metric == "distance" else faiss.METRIC_INNER_PRODUCT
    coarse = faiss.IndexFlatL2(count * width)
    coarse.add(np.ascontiguousarray(centres))
    index: Any = faiss.IndexIVFPQ(coarse, count * width, len(centres), count, 8, kind)
    index.by_residual = False
    faiss.copy_array_to_vector(np.ascontiguousarray(codebooks).ravel(), index.pq.centroids)
    index.is_trained = True
    ends = np.cumsum(sizes).tolist()
    for cell, (size, end) in enumerate(zip(sizes.tolist(), ends, strict=True)):
        if size:
            some = np.ascontiguousarray(codes[end - size : end])
            numbers = np.ascontiguousarray(ids[end - size : end])
            pointers = faiss.swig_ptr(numbers), faiss.swig_ptr(some)
            index.invlists.add_entries(cell, size, *pointers)
    index.ntotal = len(codes)
    publish_output(path, faiss.serialize_index(index).data)
