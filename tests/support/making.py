"""Small real stores, made with the library itself; only the waits for the disk are left out."""

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.aska import Aska
from mercore.stores.codes import CodeStore


def aska_of(codes: CodeStore) -> Aska:
    """The encoder of a store of ASKA codes."""
    encoder = encoder_of(codes)
    assert isinstance(encoder, Aska)
    return encoder
