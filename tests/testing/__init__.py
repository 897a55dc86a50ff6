"""The contracts that every kernel, encoder and format keeps, as tests for pytest.

A package that adds one to mercore inherits from these classes in its own tests::

    class TestMine(KernelContract):
        @pytest.fixture(scope="module", params=[KernelCase(Mine(), truth)])
        @classmethod
        def case(cls, request):
            return request.param

They need pytest and hypothesis: ``pip install 'mercore[testing]'``.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ("bounds", "encoders", "formats", "kernels"))
)

from mercore.testing.encoders import EncoderCase, EncoderContract  # noqa: E402 - rewritten first
from mercore.testing.formats import FormatContract  # noqa: E402
from mercore.testing.kernels import KernelCase, KernelContract  # noqa: E402

__all__ = ["EncoderCase", "EncoderContract", "FormatContract", "KernelCase", "KernelContract"]
