"""The encoders' options and their defaults, in words that need no heavy import; a test holds them to the specs."""

from typing import Any

import click

WORDS = {
    "weights": ["int8", "float16", "float32"],
    "pursuit": ["ormp", "omp"],
    "preprocessing": ["permutation", "rotation", "none"],
    "metric": ["distance", "product"],
}

OPTIONS: dict[str, tuple[Any, str]] = {
    "atoms": (click.INT, "Dictionary size m."),
    "sparsity": (click.INT, "Non-zeros a row, α."),
    "pursuit": (
        click.Choice(WORDS["pursuit"]),
        "Next atom: the one that leaves least, or (omp) the most correlated with the rest. A store with none is omp.",
    ),
    "weights": (click.STRING, "int8 (with a scale a row), float16 or float32."),
    "landmarks": (click.INT, "Rows M that kernel PCA learns from."),
    "components": (click.INT, "Coordinates E that kernel PCA gives a row."),
    "subquantizers": (click.INT, "Bytes of a code, D: each one of 256 centroids of E / D coordinates."),
    "preprocessing": (click.Choice(WORDS["preprocessing"]), "Of the coordinates, before they are quantised."),
    "metric": (click.Choice(WORDS["metric"]), "Rank by −‖x̃ − ŷ‖² or ⟨x̃, ŷ⟩, ŷ what a code stands for."),
    "training_rows": (click.INT, "Rows that k-means learns from."),
    "groups": (click.INT, "Groups of bins that are added together, a byte each."),
    "bits": (click.INT, "Bits of a code, B."),
    "projections": (click.INT, "Numbers of a code."),
    "random_state": (click.INT, "Seed of all that is drawn."),
}

CHOOSE = "bound"  # in the place of an encoder: the cheapest bound, as measured on a sample

FIELDS = {
    "atoms": "n_atoms",
    "sparsity": "n_nonzero_coefs",
    "landmarks": "n_landmarks",
    "components": "n_components",
    "subquantizers": "n_subquantizers",
    "training_rows": "n_training",
    "groups": "n_groups",
    "bits": "n_bits",
    "projections": "n_projections",
}

_SEED: dict[str, object] = {"random_state": 0}
_DICTIONARY: dict[str, object] = {
    "atoms": 8192,
    "sparsity": 8,
    "pursuit": "ormp",
    "weights": "int8",
    "metric": "product",
}
_QUANTIZER: dict[str, object] = {"subquantizers": 8, "metric": "distance", "training_rows": 65536}

PARAMETERS: dict[str, dict[str, object]] = {
    "aska": _DICTIONARY | _SEED,
    "kpca-aska": {"landmarks": 1024, "components": 128} | _DICTIONARY | _SEED,
    "kpca-pq": {"landmarks": 1024, "components": 64, "preprocessing": "permutation"} | _QUANTIZER | _SEED,
    "pq": _QUANTIZER | _SEED,
    "kpca-lsh": {"landmarks": 1024, "components": "bits", "bits": 256} | _SEED,
    "kpca-jl": {"landmarks": 8192, "components": 128, "projections": 32, "metric": "distance"} | _SEED,
    "kpca": {"landmarks": 1024, "components": 64} | _SEED,
    "kpca-bound": {"landmarks": 1024, "components": 128} | _SEED,
    "bin-bound": {"groups": 64, "training_rows": 8192} | _SEED,
}
