"""Encoders by name, and specs from stores."""

from collections.abc import Mapping
from typing import Any

from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.bounds.pca_bound import PcaBoundSpec
from mercore.pipeline.encoders.encoder import Encoder, EncoderSpec
from mercore.pipeline.encoders.hashing.klsh import KlshSpec, NystromLshSpec
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
from mercore.stores import plugins
from mercore.stores.errors import FormatError
from mercore.stores.plugins import PluginRegistry, qualified_name
from mercore.stores.spec import from_json

__all__ = ["ENCODERS", "Encoder", "EncoderSpec", "encoder_spec"]

_OWN: dict[str, type[EncoderSpec]] = {
    kind.name: kind
    for kind in (
        AskaSpec,
        KpcaAskaSpec,
        KpcaPqSpec,
        MapPqSpec,
        PqSpec,
        PcaPqSpec,
        KpcaLshSpec,
        KlshSpec,
        NystromLshSpec,
        RmmhSpec,
        RffSpec,
        KpcaJlSpec,
        KpcaSpec,
        KpcaBoundSpec,
        PcaBoundSpec,
        BinBoundSpec,
    )
}
ENCODERS = PluginRegistry(plugins.ENCODERS, _OWN, qualified_name(EncoderSpec))


def encoder_spec(fields: Mapping[str, Any], where: str) -> EncoderSpec:
    """Return the spec that a store at ``where`` states.

    Raises
    ------
    FormatError
        If neither this version of mercore nor a plugin knows the encoder or its version.
    """
    name = fields.get("name")
    if not isinstance(name, str) or name not in ENCODERS:
        fix = "Fix: read it with the version of mercore that wrote it, or write it anew."
        raise FormatError(
            f"{where}: its encoder is {name!r}, expected one of {', '.join(ENCODERS)}. "
            + ENCODERS.fix_for(name, fix)
        )
    return from_json(ENCODERS[name], fields, where)
