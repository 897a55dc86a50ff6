"""Choose the encoder of codes by the kernel, the rows, and the options that are given.

The order is that of recall at equal bytes (notebooks/guide/encoders.md, "The default").
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.aska import FEW_ATOMS, ROWS_PER_ATOM, AskaSpec
from mercore.pipeline.encoders.encoder import Default, draw_rows, options_of
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.map_pq import MapPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.kernels import Kernel
from mercore.stores.vectors import Vectors, gather

# The first that serves a kernel finds most of dense rows. Each has the reason to take it.
CANDIDATES: dict[type[EncoderSpec], str] = {
    MapPqSpec: "the kernel has a feature map",
    PcaPqSpec: "the kernel ranks by distances or products of rows",
    KpcaPqSpec: "no feature map of the kernel is known",
    AskaSpec: "",
}
SPARSE = 0.25  # share of numbers that are not 0: of bags of words 0.02 to 0.19, of digits 0.5
MANY_ROWS = ROWS_PER_ATOM * AskaSpec().n_atoms  # beyond them, atoms are less than an eighth
SPARSE_COMPONENTS = Default(256)  # of map-pq: sparse rows differ in more ways than dense ones
SAMPLE = 64  # rows whose numbers are counted


class ChosenEncoder(NamedTuple):
    """An encoder, options that the choice adds to those given, and the reason of the choice."""

    kind: type[EncoderSpec]
    options: Mapping[str, object]
    why: str


def takers(given: Collection[str]) -> list[type[EncoderSpec]]:
    """Return the encoders to choose from that have all given options, the first choice first."""
    return [kind for kind in CANDIDATES if options_of(kind).keys() >= set(given)]


def choose_encoder(
    kernel: Kernel, given: Collection[str], *, rows: int, filled: float, scaled: bool = False
) -> ChosenEncoder | None:
    """Return the encoder that finds most, among those that serve a kernel and have given options.

    ``aska`` comes first for few rows, which are all atoms, and for sparse rows, if atoms are an
    eighth of them or the kernel has no feature map. Return None if no encoder is left.

    Parameters
    ----------
    given : the names of the options of encoders that are given
    rows : the rows of the store
    filled : the share of the rows' numbers that are not 0
    scaled : whether a transform is to be chosen, which changes nothing in codes of ``map-pq``
    """
    serving = [
        kind for kind in CANDIDATES if kind.serves(kernel) and not (scaled and kind is MapPqSpec)
    ]
    left = [kind for kind in serving if kind in takers(given)]
    if not left:
        return None
    kind, why = _best(left, rows, filled)
    usual, _ = _best(serving, rows, filled)
    if kind is not usual:
        lacking = [name for name in given if name not in options_of(usual)]
        why = f"it has the option{'s' * (len(lacking) > 1)} {', '.join(lacking)}"
    added: dict[str, object] = {}
    if kind is MapPqSpec and filled <= SPARSE:
        added = {"components": SPARSE_COMPONENTS}
    elif kind is PcaPqSpec:
        added = {"metric": kernel.raw_metrics[0]}
    return ChosenEncoder(kind, {name: added[name] for name in added.keys() - set(given)}, why)


def filled_share(vectors: Vectors) -> float:
    """Return the share of the numbers of up to 64 sampled rows that are not 0."""
    count = min(SAMPLE, vectors.rows)
    rows = gather(vectors, draw_rows(np.random.default_rng(0), vectors.rows, count))
    return float(np.count_nonzero(rows) / rows.size)


def _best(
    kinds: list[type[EncoderSpec]], rows: int, filled: float
) -> tuple[type[EncoderSpec], str]:
    """Return the encoder of ``kinds``, the first choice first, that finds most, and the reason."""
    if AskaSpec in kinds and rows <= FEW_ATOMS:
        return AskaSpec, f"each of up to {FEW_ATOMS} rows is an atom"
    if AskaSpec in kinds and filled <= SPARSE and (MapPqSpec not in kinds or rows <= MANY_ROWS):
        return AskaSpec, f"rows are sparse: {filled:.0%} of their numbers are not 0"
    return kinds[0], CANDIDATES[kinds[0]]
