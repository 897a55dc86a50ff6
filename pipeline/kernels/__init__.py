"""Kernels by name, and kernels from their specs."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mercore.pipeline.kernels.custom import CustomKernel
from mercore.pipeline.kernels.kernel import Kernel
from mercore.pipeline.kernels.raw.metric import Euclidean, InnerProduct
from mercore.pipeline.kernels.rbf import Rbf
from mercore.pipeline.kernels.sums import SUM_KERNELS
from mercore.pipeline.kernels.transform import ExpChi2, Transformed
from mercore.stores import plugins
from mercore.stores.errors import FormatError, InputError
from mercore.stores.plugins import PluginRegistry, qualified_name
from mercore.stores.wording import option, setting

__all__ = [
    "KERNELS",
    "KINDS",
    "MEDIAN",
    "UNIT_KERNELS",
    "CustomKernel",
    "Kernel",
    "aliases",
    "canonical_name",
    "is_custom",
    "kernel_from_spec",
    "make_kernel",
]

_OWN: dict[str, type[Kernel]] = {
    kind.name: kind for kind in (*SUM_KERNELS, ExpChi2, Rbf, Euclidean, InnerProduct)
}
KINDS = PluginRegistry(plugins.KERNELS, _OWN, qualified_name(Kernel))
KERNELS = tuple(_OWN)
UNIT_KERNELS = tuple(name for name, kind in _OWN.items() if kind.normalised)
MEDIAN = "median"  # in place of γ: 1 / the median squared distance of a sample of the rows
MIN_PARAMETER, MAX_PARAMETER = 1e-30, 1e30  # of γ and s: beyond, float32 blocks over- or underflow


def make_kernel(
    name: str,
    *,
    gamma: float | None = None,
    transform: float | None = None,
    custom: CustomKernel | None = None,
) -> Kernel:
    """Return the named or the custom kernel, transformed by exp(s (κ − 1)) if ``transform`` is s.

    Raises
    ------
    InputError
        If the name is unknown, or a parameter is missing, out of range, or of another kernel.
    """
    for parameter, value in (("gamma", gamma), ("transform", transform)):
        if value is not None and not MIN_PARAMETER <= value <= MAX_PARAMETER:
            raise InputError(
                f"{parameter} is out of range: found {value}, expected {MIN_PARAMETER:g} to "
                f"{MAX_PARAMETER:g}. Fix: {setting(**{parameter: 1})}"
            )
    kernel = _untransformed(name, gamma, custom)
    if transform is None:
        return kernel
    if custom is not None and not custom.normalised:
        raise custom.lacks("transform")
    if not kernel.normalised:
        raise InputError(
            f"kernel {kernel.name} takes no transform, which needs K(x, x) = 1: found "
            f"{transform}. Fix: leave {option('transform')} out."
        )
    return Transformed(kernel, transform)


def aliases() -> dict[str, str]:
    """Return the kernel that each other name stands for."""
    names = reversed(tuple(KINDS))  # so that those of mercore win
    return {alias: name for name in names for alias in KINDS[name].aliases}


def canonical_name(name: str) -> str:
    """Return the name of a kernel: in small letters, without hyphens, and no alias.

    Raises
    ------
    InputError
        If there is no such kernel; the message suggests the nearest name.
    """
    folded = "_".join(re.split(r"[\s_-]+", name.strip().lower()))
    if folded in KINDS:
        return folded
    others = aliases()
    if folded in others:
        return others[folded]
    near = difflib.get_close_matches(folded, (*KINDS, *others), n=1, cutoff=0.5)
    raise InputError(
        f"unknown kernel: found {name!r}, expected one of {', '.join(KINDS)}. Fix: "
        f"{setting(kernel=near[0] if near else 'chi2')}"
    )


def kernel_from_spec(spec: Mapping[str, Any], custom: CustomKernel | None = None) -> Kernel:
    """Return the kernel of a ``Kernel.spec``.

    ``custom`` is the user's kernel, for a spec that names one.

    Raises
    ------
    FormatError
        If neither this version of mercore nor a plugin knows it.
    InputError
        If the spec names a custom kernel, and none or another is given.
    """
    named = is_custom(spec)
    kernel = _described(spec, None if named is None else _same(named, custom))
    if kernel is None or kernel.spec() != spec:  # the spec may hold more than this version reads
        raise FormatError(
            f"a kernel of the store is unknown: found {spec}. "
            + KINDS.fix_for(_name_of(spec), "Fix: use the version of mercore that wrote it.")
        )
    return kernel


def is_custom(spec: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the ``file`` and ``digest`` of a spec's custom kernel, or None for another one."""
    try:
        configuration = _untransformed_spec(spec)["configuration"]
        named = {key: str(configuration[key]) for key in ("file", "digest")}
    except (KeyError, TypeError):
        return None
    return named if _name_of(spec) == CustomKernel.name else None


def _untransformed_spec(spec: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a store states anything
    """Return the spec of the kernel that a spec transforms, or the spec itself."""
    return spec["configuration"]["kernel"] if spec["name"] == Transformed.name else spec


def _name_of(spec: Mapping[str, Any]) -> object:
    """Return the name of the untransformed kernel of a spec; None if it states none."""
    try:
        return _untransformed_spec(spec)["name"]
    except (KeyError, TypeError):
        return None


def _same(named: Mapping[str, str], custom: CustomKernel | None) -> CustomKernel:
    """Return the custom kernel if it is the one that a spec names.

    Its file may have another name now.
    """
    expected = f"{named['file']} with digest {named['digest']}"
    if custom is None:
        raise InputError(
            f"the store's kernel is a custom one: found no file of it, expected {expected}. "
            f"Fix: {setting(kernel=named['file'])}"
        )
    if custom.declared.digest != named["digest"]:
        raise InputError(
            f"the store's kernel is another: found {custom.declared.file} with digest "
            f"{custom.declared.digest}, "
            f"expected {expected}. Fix: name the file as it was when the store was encoded."
        )
    return CustomKernel(replace(custom.declared, file=named["file"]))


def _described(spec: Mapping[str, Any], custom: CustomKernel | None) -> Kernel | None:
    """Return the kernel that a spec names, or None if it names none."""
    try:
        scale, kernel = None, spec
        if spec["name"] == Transformed.name:
            scale, kernel = spec["configuration"]["scale"], spec["configuration"]["kernel"]
        configuration = kernel["configuration"] if custom is None else {"custom": custom}
        return make_kernel(kernel["name"], **configuration, transform=scale)
    except (InputError, KeyError, TypeError, AttributeError):  # a store can state anything
        return None


def _untransformed(name: str, gamma: float | None, custom: CustomKernel | None) -> Kernel:
    """Return a kernel by its name and gamma, or the custom one."""
    if custom is not None:
        if gamma is not None:
            raise InputError(
                f"kernel {custom.declared.file} takes no gamma: found {gamma}. Fix: leave "
                f"{option('gamma')} out, write it there."
            )
        return custom
    name = canonical_name(name)
    kind = KINDS[name]
    if not kind.takes_gamma and gamma is not None:
        takers = " or ".join(other.name for other in KINDS.values() if other.takes_gamma)
        raise InputError(
            f"kernel {name} takes no gamma: found {gamma}. Fix: leave {option('gamma')} out, or "
            f"use {takers}."
        )
    make: Callable[..., Kernel] = kind
    if not kind.takes_gamma:
        return make()
    gamma = kind.default_gamma if gamma is None else gamma
    if gamma is None:
        raise InputError(
            f"kernel {name} needs a gamma: found none. Fix: {setting(gamma=MEDIAN)}, which is "
            "1 / (median squared distance), or a number."
        )
    return make(gamma)
