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


def make_kernel(name: str, *, gamma: float | None = None, transform: float | None = None) -> Kernel:
    """Return the named kernel, transformed by exp(s (κ − 1)) if ``transform`` gives s.

    Raises
    ------
    InputError
        If the name is unknown, or a parameter is missing, not positive, or not the kernel's.
    """
    for option, value in (("gamma", gamma), ("transform", transform)):
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{option} must be a positive number: found {value}. Mend: --{option} 1")
    kernel = _untransformed(name, gamma)
    return kernel if transform is None else Transformed(kernel, transform)


def kernel_from_spec(spec: Mapping[str, Any]) -> Kernel:
    """Return the kernel that ``Kernel.spec`` described.

    Raises
    ------
    FormatError
        If this version of mercore does not know it.
    """
    try:
        name, configuration = spec["name"], spec["configuration"]
        if name == Transformed.name:
            return Transformed(kernel_from_spec(configuration["kernel"]), configuration["scale"])
        return make_kernel(name, **configuration)
    except (InputError, KeyError, TypeError) as error:
        raise FormatError(
            f"a kernel of the store is unknown: found {dict(spec)}. Mend: use the version of mercore that wrote it."
        ) from error


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
                "kernel rbf needs a gamma: found none. Mend: --gamma G; 1 / (median squared distance) is a usual choice."
            )
        return Rbf(gamma)
    raise InputError(f"unknown kernel: found {name!r}, expected one of {', '.join(KERNELS)}. Mend: --kernel chi2")
