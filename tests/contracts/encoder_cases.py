"""An encoder of each kind with small parameters, and the slow truth of what its codes score, from
what is on disk."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.bounds.pca_bound import PcaBoundSpec
from mercore.pipeline.encoders.hashing.klsh import ALL, KlshSpec, NystromLshSpec
from mercore.pipeline.encoders.hashing.kpca_lsh import KpcaLshSpec
from mercore.pipeline.encoders.hashing.rff import RffSpec
from mercore.pipeline.encoders.hashing.rmmh import RmmhSpec
from mercore.pipeline.encoders.kpca import KpcaSpec
from mercore.pipeline.encoders.kpca_aska import KpcaAskaSpec
from mercore.pipeline.encoders.kpca_jl import KpcaJlSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.map_pq import MapPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.encoders.pq import PqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.testing import EncoderCase
from tests.independent import reference

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]
LANDMARKS: dict[str, Any] = {"n_landmarks": 40, "n_components": 12}
RANKED_BY = {"exp_chi2": "chi2"}  # bounds are of what ranks, not of what increases with it
SHARE = 4e-6  # of squared norms, which bounds of raw rows add for float32
ROUNDING = 5e-6  # what bounds add for float32


def coordinates(kernel: str, model: Arrays, rows: NDArray[Any]) -> Floats:
    """Rows as the projection on disk has them."""
    points, landmarks = (
        reference.prepare(kernel, rows),
        reference.prepare(kernel, model["landmarks"]),
    )
    projected: Floats = reference.kernel(kernel, points, landmarks) @ model["projection"].astype(
        np.float64
    )
    return projected


def aska_truth(
    kernel: str, spec: AskaSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    if spec.dictionary == "learned":
        points = mapped(kernel, model, queries)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        return aska_scores(spec, code, model["atoms"].astype(np.float64) @ points.T)
    atoms, points = (reference.prepare(kernel, rows) for rows in (model["dictionary"], queries))
    return aska_scores(spec, code, reference.kernel(kernel, atoms, points))


def mapped(kernel: str, model: Arrays, rows: NDArray[Any]) -> Floats:
    """Rows in the explicit map of a kernel."""
    points = reference.prepare(RANKED_BY.get(kernel, kernel), rows)
    if kernel == "hellinger":
        return points
    return reference.feature_map(points, model["weights"], float(model["frequency"][0]))


def aska_scores(spec: Any, code: Arrays, table: Floats) -> Floats:
    residuals = code["residual"] if spec.metric == "distance" else None
    power = 0 if spec.metric == "distance" else spec.norm_power
    weights = reference.aska_weights(code, power)
    return reference.aska_scores(code["atoms"], weights, table, residuals)


def kpca_aska_truth(
    kernel: str, spec: KpcaAskaSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    atoms, points = (
        reference.prepare("cosine", coordinates(kernel, model, rows))
        for rows in (model["dictionary"], queries)
    )
    return aska_scores(spec, code, reference.kernel("cosine", atoms, points))


def quantised_scores(spec: Any, points: Floats, code: Arrays, model: Arrays) -> Floats:
    books = model["codebooks"].reshape(spec.n_subquantizers, 256, -1)
    if spec.quantizer == "pq":
        return reference.pq_scores(points, code["code"], books, spec.metric)
    groups = {"rq": 1, "prq": spec.n_subquantizers // 16 or 1}[spec.quantizer]
    return reference.residual_scores(points, code["code"], books, groups, spec.metric)


def kpca_pq_truth(
    kernel: str, spec: KpcaPqSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    points = coordinates(kernel, model, queries)
    if spec.length == "unit":
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    return quantised_scores(spec, points, code, model)


def map_pq_truth(
    kernel: str, spec: MapPqSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    points = mapped(kernel, model, queries) @ model["projection"]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return quantised_scores(spec, points, code, model)


def pq_truth(
    kernel: str, spec: PqSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    return quantised_scores(spec, reference.prepare(kernel, queries), code, model)


def pca_pq_truth(
    kernel: str, spec: PcaPqSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    centred = reference.prepare(kernel, queries) - model["mean"]
    return quantised_scores(spec, centred @ model["projection"], code, model)


def signs_truth(
    kernel: str, spec: Any, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    above = coordinates(kernel, model, queries) - model.get("thresholds", np.zeros(1))
    signs = reference.packed_signs(above)
    return reference.hamming_scores(signs, code["code"], spec.n_bits).astype(np.float64)


def rff_truth(
    kernel: str, spec: RffSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    angles = queries.astype(np.float64) @ model["projection"] + model["phases"]
    signs = reference.packed_signs(np.cos(angles) - model["thresholds"])
    return reference.hamming_scores(signs, code["code"], spec.n_bits).astype(np.float64)


def jl_truth(
    kernel: str, spec: KpcaJlSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    points, rows = coordinates(kernel, model, queries), code["projections"].astype(np.float64)
    if spec.metric == "product":
        return points @ rows.T
    return np.array(
        [1 - ((rows[:, : spec.n_projections] - point) ** 2).sum(axis=1) / 2 for point in points]
    )


def kpca_truth(
    kernel: str, spec: KpcaSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    return coordinates(kernel, model, queries) @ code["embedding"].astype(np.float64).T


def kpca_bound_truth(
    kernel: str, spec: KpcaBoundSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    """⟨x̃, μ⟩ + ⟨μ, ỹ − μ⟩ + s t ⟨u, v⟩ + ‖f‖ ‖s v‖ + ‖x̃ − μ‖ ‖e‖ + R(x) R(y) + the slack, of the
    ranking kernel."""
    slack, centre = model["slack"][0], model["centre"]
    whole = coordinates(RANKED_BY.get(kernel, kernel), model, queries)
    values = whole - centre
    step = np.abs(values).max(axis=1, keepdims=True) / 127
    products = np.rint(values / step) @ (code["coordinates"].astype(np.float64) - 128).T
    scale, residual, lost, length, along = code["terms"].astype(np.float64).T
    return np.asarray(
        step * products * scale
        + np.outer(norms(values - np.rint(values / step) * step), length)
        + np.outer(norms(values), lost)
        + np.outer(np.sqrt(np.maximum(1 - norms(whole) ** 2, 0) + slack), residual)
        + np.add.outer(whole @ centre, along)
        + (slack + ROUNDING)
    )


def sums_of_groups(model: Arrays, queries: NDArray[Any]) -> Floats:
    ends = [*model["starts"][1:].tolist(), len(model["order"])]
    shares, bounds = reference.l1_shares(queries), zip(model["starts"].tolist(), ends, strict=True)
    return np.stack(
        [shares[:, model["order"][first:last]].sum(axis=1) for first, last in bounds], axis=1
    )


def minimum_truth(
    kernel: str, spec: BinBoundSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    """[Σ min(c, c') + Σ e⁺ + Σ e'⁺] / s + min(over, over')."""
    unit = model["cap"][0] / 255
    sums = sums_of_groups(model, queries)
    below = np.minimum(sums, model["cap"])
    codes = np.rint(below / unit)
    shared = np.minimum(codes[:, None], code["groups"].astype(np.float64)[None]).sum(axis=2) * unit
    _, lost, over = code["terms"].astype(np.float64).T
    ours = np.maximum(below - codes * unit, 0).sum(axis=1)
    return np.asarray(
        shared
        + np.add.outer(ours, lost)
        + np.minimum.outer((sums - below).sum(axis=1), over)
        + ROUNDING
    )


def root_truth(
    kernel: str, spec: BinBoundSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    """s t ⟨u, c⟩ + ‖f‖ ‖s c‖ + ‖z‖ ‖e‖."""
    roots = np.sqrt(sums_of_groups(model, queries))
    step = roots.max(axis=1, keepdims=True) / 127
    codes = np.rint(roots / step)
    scale, lost, length = code["terms"].astype(np.float64).T
    products = codes @ code["groups"].astype(np.float64).T
    left = np.outer(norms(roots - codes * step), length)
    return np.asarray(step * products * scale + left + np.outer(norms(roots), lost) + ROUNDING)


def pca_bound_truth(
    kernel: str, spec: PcaBoundSpec, code: Arrays, model: Arrays, queries: NDArray[Any]
) -> Floats:
    """⟨s v, t u⟩ + R R' + ‖a‖ ‖e‖ + ‖f‖ ‖s v‖: of distances twice that, less the squared norms."""
    centred = queries.astype(np.float64) - model["centre"]
    points, squared = centred @ model["projection"], np.square(centred).sum(axis=1)
    step = np.abs(points).max(axis=1, keepdims=True) / 127
    rounded = np.rint(points / step) * step
    scale, residual, lost, length, own = code["terms"].astype(np.float64).T
    rows = (code["coordinates"].astype(np.float64) - 128) * scale[:, None]
    left = np.sqrt(np.maximum(squared - np.square(points).sum(axis=1), 0))
    inner = rounded @ rows.T + np.outer(left, residual) + np.outer(norms(points), lost)
    inner += np.outer(norms(points - rounded), length)
    if kernel == "euclidean":
        return np.asarray(2 * inner + own - (1 - SHARE) * squared[:, None])
    centre = model["centre"]
    spare = SHARE * (squared + centre @ centre)
    return np.asarray(inner + own + (queries @ centre + spare)[:, None])


def norms(rows: Floats) -> Floats:
    return np.asarray(np.sqrt((rows**2).sum(axis=1)))


CASES = {
    "aska": [
        EncoderCase(AskaSpec(n_atoms=24, n_nonzero_coefs=4), make_kernel("chi2"), aska_truth),
        EncoderCase(
            AskaSpec(n_atoms=24, n_nonzero_coefs=4, metric="distance"),
            make_kernel("hellinger"),
            aska_truth,
        ),
        EncoderCase(
            AskaSpec(n_atoms=30, n_nonzero_coefs=3, weights="float16", norm_power=0.8),
            make_kernel("cosine"),
            aska_truth,
        ),
        *(
            EncoderCase(
                AskaSpec(n_atoms=24, n_nonzero_coefs=4, dictionary="learned"),
                make_kernel(name),
                aska_truth,
            )
            for name in ("intersection", "hellinger")
        ),
    ],
    "kpca-aska": [
        EncoderCase(
            KpcaAskaSpec(**LANDMARKS, n_atoms=24, n_nonzero_coefs=4),
            make_kernel(name),
            kpca_aska_truth,
        )
        for name in ("chi2", "hellinger")
    ],
    "kpca-pq": [
        EncoderCase(KpcaPqSpec(**LANDMARKS, n_subquantizers=4), make_kernel("chi2"), kpca_pq_truth),
        EncoderCase(
            KpcaPqSpec(
                **LANDMARKS,
                n_subquantizers=3,
                n_training=200,
                metric="product",
                preprocessing="rotation",
                length="own",
            ),
            make_kernel("jensen_shannon"),
            kpca_pq_truth,
        ),
        EncoderCase(
            KpcaPqSpec(**LANDMARKS, n_subquantizers=4, n_training=200, quantizer="rq"),
            make_kernel("hellinger"),
            kpca_pq_truth,
        ),
    ],
    "map-pq": [
        EncoderCase(
            MapPqSpec(n_components=12, n_subquantizers=4, n_training=200),
            make_kernel("chi2"),
            map_pq_truth,
        ),
        EncoderCase(
            MapPqSpec(
                n_components=6,
                n_subquantizers=3,
                n_harmonics=3,
                metric="product",
                preprocessing="rotation",
            ),
            make_kernel("intersection"),
            map_pq_truth,
        ),
        EncoderCase(
            MapPqSpec(n_components=8, n_subquantizers=8, proof="none"),
            make_kernel("hellinger"),
            map_pq_truth,
        ),
    ],
    "pq": [
        EncoderCase(PqSpec(n_subquantizers=4, n_training=200), make_kernel("hellinger"), pq_truth),
        EncoderCase(
            PqSpec(n_subquantizers=2, n_training=200), make_kernel("rbf", gamma=1.0), pq_truth
        ),
        EncoderCase(
            PqSpec(n_subquantizers=2, n_training=200, metric="product"),
            make_kernel("cosine"),
            pq_truth,
        ),
    ],
    "pca-pq": [
        EncoderCase(
            PcaPqSpec(n_components=6, n_subquantizers=3, n_training=200),
            make_kernel("hellinger"),
            pca_pq_truth,
        ),
        EncoderCase(
            PcaPqSpec(
                n_components=4, n_subquantizers=4, metric="product", preprocessing="rotation"
            ),
            make_kernel("cosine"),
            pca_pq_truth,
        ),
        EncoderCase(
            PcaPqSpec(n_components=6, n_subquantizers=32, n_training=200, quantizer="prq"),
            make_kernel("hellinger"),
            pca_pq_truth,
        ),
        EncoderCase(
            PcaPqSpec(
                n_components=6, n_subquantizers=3, metric="product", n_training=200, quantizer="rq"
            ),
            make_kernel("cosine"),
            pca_pq_truth,
        ),
    ],
    "kpca-lsh": [
        EncoderCase(KpcaLshSpec(n_landmarks=40, n_bits=32), make_kernel("chi2"), signs_truth),
        EncoderCase(KpcaLshSpec(**LANDMARKS, n_bits=13), make_kernel("intersection"), signs_truth),
    ],
    "klsh": [
        EncoderCase(
            KlshSpec(n_landmarks=40, n_subset=8, n_bits=32), make_kernel("chi2"), signs_truth
        ),
        EncoderCase(
            KlshSpec(n_landmarks=40, n_subset=5, n_bits=13, rank=6),
            make_kernel("intersection"),
            signs_truth,
        ),
    ],
    "nystrom-lsh": [
        EncoderCase(
            NystromLshSpec(n_landmarks=40, n_subset=8, n_bits=32, rank=rank),
            make_kernel(name),
            signs_truth,
        )
        for name, rank in (("hellinger", ALL), ("jensen_shannon", 10))
    ],
    "rmmh": [
        EncoderCase(
            RmmhSpec(n_landmarks=40, n_samples=16, n_bits=32), make_kernel(name), signs_truth
        )
        for name in ("chi2", "cosine")
    ],
    "rff": [EncoderCase(RffSpec(n_bits=32), make_kernel("rbf", gamma=1.0), rff_truth)],
    "kpca-jl": [
        EncoderCase(
            KpcaJlSpec(**LANDMARKS, n_projections=10, metric=metric), make_kernel(name), jl_truth
        )
        for metric, name in (("distance", "chi2"), ("product", "cosine"))
    ],
    "kpca": [
        EncoderCase(KpcaSpec(**LANDMARKS), make_kernel(name), kpca_truth)
        for name in ("chi2", "exp_chi2")
    ],
    "kpca-bound": [
        EncoderCase(KpcaBoundSpec(**LANDMARKS), make_kernel(name, gamma=gamma), kpca_bound_truth)
        for name, gamma in (("chi2", None), ("exp_chi2", 2.0), ("rbf", 1.0), ("cosine", None))
    ],
    "pca-bound": [
        EncoderCase(PcaBoundSpec(n_components=12), make_kernel(name), pca_bound_truth)
        for name in ("euclidean", "inner_product")
    ],
    "bin-bound": [
        EncoderCase(BinBoundSpec(n_groups=7, n_training=200), make_kernel(name), truth)
        for name, truth in (
            ("intersection", minimum_truth),
            ("hellinger", root_truth),
            ("chi2", root_truth),
        )
    ],
}
