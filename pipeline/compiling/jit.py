"""The decorator ``jit``: numba without the interpreter's lock, and machine code kept on disk.

numba counts the functions that a process compiles, and the numbers tell machine code of functions
of one name and signature apart. Those of two processes may be equal; a third process that loads
the code of both from the disk would then run one function in place of the other. So the numbers
are drawn at random (numba issue 10486).
"""

import inspect
import secrets
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, TypeVar, overload

from numba import njit
from numba.core import ir, types
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.untyped_passes import IRProcessing

from mercore.stores.jit_cache.numba_cache import JitCache

Function = TypeVar("Function", bound=Callable[..., Any])

CONSTANTS = "__mercore_constants__"  # function attribute: {argument: value or None}

_numbered: Any = FunctionIdentity
_numbered._unique_ids = iter(partial(secrets.randbits, 64), None)


@overload
def jit(function: Function) -> Function: ...
@overload
def jit(*, constants: tuple[str, ...] = (), **options: Any) -> Callable[[Function], Function]: ...
def jit(function: Any = None, *, constants: tuple[str, ...] = (), **options: Any) -> Any:
    """Compile a function by ``numba.njit`` with ``nogil``, and keep its machine code on disk.

    Parameters
    ----------
    constants : names of arguments, optional
        Whole numbers or bools. The function is compiled separately for each of their values:
        branches that a value does not take are not compiled.
    options : of ``njit``
    """
    if function is None:
        return lambda function: _jitted(function, constants, options)
    return _jitted(function, constants, options)


def _jitted(function: Any, constants: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Return the jitted function; with constants, one that is compiled separately per value."""
    if not constants:
        return _compiled(function, options)
    setattr(function, CONSTANTS, dict.fromkeys(constants))
    options["pipeline_class"] = _Pipeline
    dispatcher = _compiled(function, options)
    return function if dispatcher is function else _ByConstants(dispatcher, constants, options)


def is_kept(function: Any) -> bool:
    """Return whether a jitted function has machine code on disk, or the JIT is off."""
    given = getattr(function, "py_func", function)
    return given is function or JitCache(given).holds_code()


def _compiled(function: Any, options: dict[str, Any], suffix: str = "") -> Any:
    """Return a function's dispatcher with its cache on disk, or the function if the JIT is off."""
    given: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, **options}
    dispatcher: Any = njit(**given)(function)
    if dispatcher is not function:
        dispatcher._cache = JitCache(function, suffix)
    return dispatcher


class _ByConstants:
    """A jitted function that is compiled separately for each value of its constants.

    Python callers use one dispatcher per value; jitted callers use one for all values.
    """

    def __init__(
        self, dispatcher: Any, constants: tuple[str, ...], options: dict[str, Any]
    ) -> None:
        self.py_func = dispatcher.py_func
        self.__name__, self.__doc__ = self.py_func.__name__, self.py_func.__doc__
        self._of_all = dispatcher  # kept alive here: its numba type holds a weak reference
        self._numba_type_ = types.Dispatcher(dispatcher)
        self._constants, self._options = constants, options
        parameters = list(inspect.signature(self.py_func).parameters)
        self._places = [parameters.index(name) for name in constants]
        self._of_values: dict[Any, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call the function that is compiled for these values."""
        values = tuple([arguments[place] for place in self._places])
        return (self._of_values.get(values) or self._for(values))(*arguments)

    def _for(self, values: tuple[Any, ...]) -> Any:
        """Return the dispatcher for these values; make it if need be."""
        given = self.py_func
        function = FunctionType(
            given.__code__, given.__globals__, given.__name__, None, given.__closure__
        )
        function.__qualname__, function.__module__ = given.__qualname__, given.__module__
        setattr(function, CONSTANTS, dict(zip(self._constants, values, strict=True)))
        suffix = "-".join(str(int(value)) for value in values)
        return self._of_values.setdefault(values, _compiled(function, self._options, suffix))


@register_pass(mutates_CFG=False, analysis_only=False)
class _FixArguments(FunctionPass):
    """The compiler pass that replaces arguments by constants, before dead branches are pruned."""

    _name = "fix_arguments"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Replace the arguments; return whether any was replaced."""
        constants, replaced = getattr(state.func_id.func, CONSTANTS), False
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                argument = statement.value
                if isinstance(argument, ir.Arg) and argument.name in constants:
                    value = constants[argument.name]
                    if value is None:
                        value = getattr(state.args[argument.index], "literal_value", None)
                    if value is not None:
                        statement.value, replaced = ir.Const(value, statement.loc), True
                        state.func_ir._definitions[statement.target.name] = [statement.value]
        return replaced


class _Pipeline(CompilerBase):
    """The compiler's usual passes, with ``_FixArguments`` among the first."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_FixArguments, IRProcessing)
        passes.finalize()
        return [passes]
