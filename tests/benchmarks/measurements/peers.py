"""Recall of faiss' quantisers on coordinates of a kernel's space, and of our codes beside them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.jobs.encoder_options import parse_spec
from mercore.pipeline.encoders.encoder import draw_rows, read_rows
from mercore.pipeline.encoders.feature_map import FeatureMap, choose_map
from mercore.pipeline.encoders.kpca import (
    Embedding,
    gram_matrix,
    in_blocks,
    principal_components,
    unit_rows,
)
from mercore.pipeline.encoders.map_pq import leading_axes
from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_rows
from mercore.stores.vectors import open_vector_store
from tests.benchmarks.measurements.recall import FOUND, Data, recall_of, truth

Float32 = NDArray[np.float32]
Recall = dict[str, float]

SIZES = (8, 16, 28, 32, 64)
OURS = {
    "map-pq": SIZES,
    "map-pq:quantizer=rq": (8, 16),
    "map-pq:quantizer=prq": (28,),
    "kpca-pq": SIZES,
    "kpca-pq:quantizer=rq": (8, 16),
    "aska": (28,),
}
OURS_WIDE = {  # of sets in WIDE
    "map-pq:quantizer=rq,components=256": (8, 16),
    "map-pq:components=252": (28,),
    "map-pq:quantizer=prq,components=252": (28,),
    "map-pq:components=256": (16, 32, 64),
}
PEERS = {
    "PQ": SIZES,
    "OPQ": SIZES,
    "RQ": SIZES,
    "RQ with norms": (8,),
    "PRQ": (8, 28),
    "LSQ": (8,),
    "RaBitQ": (16, 28, 32, 64),
    "SQ 8 bits": SIZES,
    "SQ 4 bits": SIZES,
}
SLOW = {  # what learns for minutes: measured under one kernel
    "map-pq:quantizer=prq": (28,),
    "map-pq:quantizer=prq,components=252": (28,),
    "OPQ": (32, 64),
    "RQ": (32, 64),
    "RQ with norms": (8,),
    "PRQ": (8, 28),
    "LSQ": (8,),
}
OF_SLOW = "chi2"
ONCE = {  # what learns longest: measured with one seed
    "map-pq:quantizer=prq,components=252": (28,),
    "OPQ": (64,),
    "RQ": (64,),
    "RQ with norms": (8,),
    "LSQ": (8,),
}
NEAR, ALL = 0.02, 0.99  # of the best: codes that may decide a comparison, where any may
PRODUCTS = ("PQ", "OPQ", "LSQ")  # that want few coordinates
K_MEANS, ROTATION = 1234, 12345  # seeds of faiss
SEARCHED = ("RQ with norms", "RaBitQ")  # codes; of others, decoded rows
LANDMARKS = 1024
WIDEST = 256  # coordinates that are computed; a peer takes the first ones
SCALARS = {
    "SQ 8 bits": faiss.ScalarQuantizer.QT_8bit,
    "SQ 4 bits": faiss.ScalarQuantizer.QT_4bit,
}
FACTORS = 8  # bytes of two numbers that RaBitQ adds to its bits
BY_LANDMARKS = {("main data", "intersection")}  # kernel PCA finds more than the map; elsewhere less
WIDTHS = {  # coordinates of PRODUCTS up to 28 bytes, of those of 64, and of the others
    "main data": (64, 128, 128),
    "GIST of photographs": (64, 192, 128),
    "bags of words": (256, 256, 256),
}
WIDE = ("bags of words",)  # sets on which ours are measured with more components, too


def recalls(
    data: Data, kernel: str, size: int, training: int, first: Mapping[str, Recall] | None = None
) -> Iterator[tuple[str, Recall]]:
    """Yield the recall of codes of ``size`` bytes by name; the folder keeps it for another run.

    ``first`` is the recall with the first seed, if this is another one.
    """
    tasks = dict[str, Callable[[], Recall]]()
    for name, sizes in (OURS | OURS_WIDE if data.name in WIDE else OURS).items():
        if size in sizes:
            options = f"atoms={data.atoms}" if name == "aska" else f"training-rows={training}"
            text = f"{name}{',' if ':' in name else ':'}{options}"
            tasks[name] = partial(of_ours, data, kernel, text, size)
    for name, sizes in PEERS.items():
        if size in sizes:
            tasks[f"faiss {name}"] = partial(of_peer, data, kernel, name, size, training)
    file = data.folder / f"{kernel}-{size}.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    for name, measure in tasks.items():
        if measured(name, kernel, size, first):
            if name not in kept:
                kept[name] = measure()
                file.write_text(json.dumps(kept))
            yield name, kept[name]


def measured(name: str, kernel: str, size: int, first: Mapping[str, Recall] | None = None) -> bool:
    """Return whether codes are measured under a kernel, or with a further seed.

    Under the kernel of the slow ones, further seeds are for what may decide a comparison: what is
    near the best of ours, or of faiss, at rank 1 or 10, unless that finds nearly all.
    """
    peer = name.startswith("faiss ")
    if kernel != OF_SLOW:
        return size not in SLOW.get(name.removeprefix("faiss "), ())
    if first is None:
        return True
    if size in ONCE.get(name.removeprefix("faiss "), ()):
        return False
    rivals = [each for codes, each in first.items() if codes.startswith("faiss ") == peer]
    best = {rank: max(each[rank] for each in rivals) for rank in ("texmex@1", "texmex@10")}
    return any(first[name][rank] > top - NEAR for rank, top in best.items() if top < ALL)


def of_ours(data: Data, kernel: str, encoder: str, size: int) -> Recall:
    """Return the recall of our codes of at most ``size`` bytes per row."""
    spec = replace(parse_spec(encoder, data.shape, {"bytes": size}), random_state=data.seed)
    codes = str(data.folder / f"{kernel}-{encoder}-{size}".replace(":", "-"))
    api.encode(data.store, codes, kernel=kernel, encoder=spec)
    _, hits = api.search(codes, data.queries, k=FOUND)
    return recall_of(hits, truth(data, kernel))


def of_peer(data: Data, kernel: str, name: str, size: int, training: int) -> Recall:
    """Return the recall of a quantiser of faiss, of all bytes that a search of it reads."""
    space, width = chosen_space(data.name, kernel, name, size)
    found = coordinates(data, kernel, space, training)
    points, asked = (unit_rows(each[:, :width]).astype(np.float32) for each in found)
    index = make_index(name, width, size, data.seed)
    index.train(points[_drawn(len(points), training, data.seed)])
    if name in SEARCHED:
        index.add(points)
        ids = index.search(asked, FOUND)[1]
    else:
        flat = faiss.IndexFlatL2(width)
        flat.add(index.sa_decode(index.sa_encode(points)))
        ids = flat.search(asked, FOUND)[1]
    return recall_of(Hits(scores=None, ids=ids), truth(data, kernel))


def chosen_space(name: str, kernel: str, peer: str, size: int) -> tuple[str, int]:
    """Return the space and the coordinates, which half 0 of a set chose."""
    space = "kpca" if (name, kernel) in BY_LANDMARKS else "map"
    if peer.startswith("SQ"):
        return space, 8 * size // int(peer.split()[1])
    few, more, many = WIDTHS.get(name, WIDTHS["main data"])
    if peer == "RaBitQ":
        return space, min(many, 8 * (size - FACTORS))
    width = (few if size < 64 else more) if peer in PRODUCTS else many
    shares = size if peer in ("PQ", "OPQ") else _groups(size)
    return space, width - width % shares


@lru_cache(2)
def coordinates(data: Data, kernel: str, space: str, training: int) -> tuple[Float32, Float32]:
    """Return rows and queries in the principal components of a feature map, or of kernel PCA."""
    function = make_kernel(kernel)
    store, queries = open_vector_store(Path(data.store)), open_rows(data.queries)
    raw, asked = read_rows(store, np.arange(store.rows)), queries.read(0, queries.shape[0])
    if space == "map":
        embed = _by_map(function, raw[_drawn(len(raw), training, data.seed)])
    else:
        landmarks = raw[draw_rows(np.random.default_rng(data.seed), len(raw), LANDMARKS)]
        _, components = principal_components(gram_matrix(function, landmarks), WIDEST)
        embed = in_blocks(Embedding(function, landmarks, components.astype(np.float32)))
    return embed(raw), embed(asked)


def _by_map(kernel: Kernel, sample: NDArray[Any]) -> Callable[..., Float32]:
    """Return the map of raw rows to the principal components of a feature map."""
    mapped = FeatureMap(choose_map(kernel, 1))
    axes = leading_axes(mapped(kernel.prepare(sample)), WIDEST)
    return lambda rows: (mapped(kernel.prepare(rows)) @ axes).astype(np.float32)


def _drawn(n: int, training: int, seed: int) -> NDArray[np.int64]:
    """Return the rows that our codes learn from, too."""
    return draw_rows(np.random.default_rng(seed), n, min(n, training))


def _groups(size: int) -> int:
    """Return the shares of coordinates of product residual quantisers: about 8 bytes each."""
    return max(2, round(size / 8))


def make_index(name: str, width: int, size: int, seed: int = 0) -> Any:
    """Return an index of ``size`` bytes per row; the seed shifts those of faiss."""
    index: Any
    matrix = _rotation(width, width, seed)
    match name:
        case "PQ" | "OPQ":
            index = faiss.IndexPQ(width, size, 8)
            index.pq.cp.seed = K_MEANS + seed
            if name == "OPQ":
                matrix = faiss.OPQMatrix(width, size)
        case "PRQ":
            index = _product_residual(width, size, seed)
        case "RaBitQ":
            index = faiss.IndexRaBitQ(8 * (size - FACTORS))
            index.qb = 0  # queries stay float32
            matrix = _rotation(width, index.d, seed)
        case "RQ with norms":
            return faiss.index_factory(width, f"RQ{size - 1}x8_Nqint8")
        case "RQ":
            index = faiss.IndexResidualQuantizer(width, size, 8)
            index.rq.cp.seed = K_MEANS + seed
            index.rq.train_type |= faiss.ResidualQuantizer.Skip_codebook_tables  # they take 1 GB
            return index
        case "LSQ":
            return faiss.IndexLocalSearchQuantizer(width, size, 8)
        case _:
            return faiss.IndexScalarQuantizer(width, SCALARS[name])
    return faiss.IndexPreTransform(matrix, index)


def _product_residual(width: int, size: int, seed: int) -> Any:
    """Return a product of residual quantisers."""
    shares = _groups(size)
    index: Any = faiss.IndexProductResidualQuantizer(width, shares, size // shares, 8)
    for share in range(shares):
        part = faiss.downcast_Quantizer(index.prq.subquantizer(share))  # type: ignore[attr-defined]
        part.cp.seed = K_MEANS + seed
    return index


def _rotation(width: int, out: int, seed: int) -> Any:
    """Return a random rotation."""
    matrix: Any = faiss.RandomRotationMatrix(width, out)
    matrix.init(ROTATION + seed)
    return matrix
