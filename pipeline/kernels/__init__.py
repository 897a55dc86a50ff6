"""Kernels by name, and the spec that makes one again."""

from collections.abc import Mapping
from typing import Any

from pipeline.kernels.kernel import Kernel
from pipeline.kernels.sums import Chi2, Cosine, Hellinger, Intersection, JensenShannon, Rbf
from pipeline.kernels.transform import ExpChi2, Transformed
from stores.errors import FormatError, InputError

__all__ = ["KERNELS", "Kernel", "kernel_from_spec", "make_kernel"]

_PLAIN: dict[str, type[Kernel]] = {kind.name: kind for kind in (Cosine, Hellinger, Chi2, Intersection, JensenShannon)}
KERNELS = (*_PLAIN, ExpChi2.name, Rbf.name)
LEAST, MOST = 1e-30, 1e30  # of gamma and s: beyond them float32 blocks would over- or underflow


def make_kernel(name: str, *, gamma: float | None = None, transform: float | None = None) -> Kernel:
    """Return the named kernel, transformed by exp(s (κ − 1)) if ``transform`` gives s.

    Raises
    ------
    InputError
        If the name is unknown, or a parameter is missing, out of range, or not the kernel's.
    """
    for option, value in (("gamma", gamma), ("transform", transform)):
        if value is not None and not LEAST <= value <= MOST:
            raise InputError(
                f"{option} is out of range: found {value}, expected {LEAST:g} to {MOST:g}. Mend: --{option} 1"
            )
    kernel = _untransformed(name, gamma)
    return kernel if transform is None else Transformed(kernel, transform)


def kernel_from_spec(spec: Mapping[str, Any]) -> Kernel:
    """Return the kernel that ``Kernel.spec`` described.

    Raises
    ------
    FormatError
        If this version of mercore does not know it.
    """
    kernel = _described(spec)
    if kernel is None or kernel.spec() != spec:  # it may say more than this version reads
        raise FormatError(
            f"a kernel of the store is unknown: found {spec}. Mend: use the version of mercore that wrote it."
        )
    return kernel


def _described(spec: Mapping[str, Any]) -> Kernel | None:
    """Return the kernel that a spec names, or None if none can be made of it."""
    try:
        name, configuration = spec["name"], spec["configuration"]
        if name != Transformed.name:
            return make_kernel(name, **configuration)
        kernel = configuration["kernel"]
        return make_kernel(kernel["name"], **kernel["configuration"], transform=configuration["scale"])
    except (InputError, KeyError, TypeError):
        return None


def _untransformed(name: str, gamma: float | None) -> Kernel:
    """Return a kernel by its name and gamma."""
    if name in _PLAIN:
        if gamma is not None:
            raise InputError(
                f"kernel {name} takes no gamma: found {gamma}. Mend: leave --gamma out, or use exp_chi2 or rbf."
            )
        return _PLAIN[name]()
    if name == ExpChi2.name:
        return ExpChi2(1.0 if gamma is None else gamma)
    if name == Rbf.name:
        if gamma is None:
            raise InputError(
                "kernel rbf needs a gamma: found none. "
                "Mend: --gamma G; 1 / (median squared distance) is a usual choice."
            )
        return Rbf(gamma)
    raise InputError(f"unknown kernel: found {name!r}, expected one of {', '.join(KERNELS)}. Mend: --kernel chi2")
