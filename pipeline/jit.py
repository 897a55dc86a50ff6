"""The one decorator that compiles: every jitted function runs without the interpreter's lock and is kept on disk."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from numba import njit

from mercore.stores.jit_cache import JitCache

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def jit(function: Function) -> Function: ...
@overload
def jit(**options: Any) -> Callable[[Function], Function]: ...
def jit(function: Any = None, **options: Any) -> Any:
    """Compile a function by ``numba.njit``, without the interpreter's lock, and keep its machine code on disk.

    Parameters
    ----------
    options : of ``njit``
    """
    if function is None:
        return lambda function: jit(function, **options)
    compiled: Any = njit(nogil=True, **options)(function)
    if compiled is not function:  # they are the same where the JIT is off
        compiled._cache = JitCache(function)
    return compiled
