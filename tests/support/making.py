"""Small real stores, made with the library itself; only the waits for the disk are left out."""

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.aska import Aska
from mercore.stores.codes import CodeStore
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors, plan_encode

__all__ = ["Rows", "aska_of", "histograms", "make_codes", "make_vectors", "plan_encode"]


def aska_of(codes: CodeStore) -> Aska:
    """The encoder of a store of ASKA codes."""
    encoder = encoder_of(codes)
    assert isinstance(encoder, Aska)
    return encoder
