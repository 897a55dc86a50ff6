"""Options that several verbs share, and the refusal of options that have no effect."""

import json as json_module
import math
import re
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from mercore.pipeline.kernels import KINDS, MEDIAN
from mercore.stores.errors import InputError
from mercore.stores.location.resolve import expand_home
from mercore.stores.wording import option, setting

Report = dict[str, Any]  # the result of a verb, which can be written as JSON
RANGE = re.compile(r"\s*(\d*)\s*:\s*(\d*)\s*")  # ids, as first:last
Verb = TypeVar("Verb", bound=Callable[..., Any])
Completions: TypeAlias = "list[CompletionItem[str]]"  # no generic class before click 8.5


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> Completions:
    """Let the shell complete the names of files, and of stores, which are folders."""
    return [CompletionItem(incomplete, type="file")]


class StorePath(click.types.StringParamType):
    """The path of a store or file that the verb writes (``written``), reads (``read``) or both."""

    name = "path"

    def is_path(self, value: str) -> bool:
        """Return whether a value is a path."""
        return True

    def __init__(self, *, written: bool, read: bool) -> None:
        self.written, self.read = written, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        """Return the path with the home folder in place of ``~``."""
        return expand_home(super().convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> Completions:
        """Let the shell complete the names of files."""
        return complete_files(ctx, param, incomplete)


class RowsPath(StorePath):
    """The path of a file of ids or of a mask, or a range of ids."""

    def is_path(self, value: str) -> bool:
        """Return whether a value is a path."""
        return not RANGE.fullmatch(value)


ROWS = RowsPath(written=False, read=True)
READ, WRITTEN = StorePath(written=False, read=True), StorePath(written=True, read=False)
GROWN = StorePath(written=True, read=True)


class KernelName(click.types.StringParamType):
    """The name of a kernel, or the path of a Python file that declares one."""

    name = "kernel"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        """Return the name; the path of a file with the home folder in place of ``~``."""
        return expand_home(super().convert(value, param, ctx))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> Completions:
        """Return the names of kernels that begin so; files are completed if there is none."""
        named = [CompletionItem(name) for name in KINDS if name.startswith(incomplete)]
        return [*complete_files(ctx, param, incomplete), *named]


def names_file(kernel: str) -> bool:
    """Return whether a kernel's name is the path of a file that declares it.

    Raises
    ------
    InputError
        If the kernel is no text, but a function, say.
    """
    if not isinstance(kernel, str):
        raise InputError(
            f"kernel is of type {type(kernel).__name__}: expected a name, or the path of a FILE.py "
            f"that declares a kernel. Fix: {setting(kernel='chi2')}, or write the function into "
            "such a file."
        )
    return kernel.endswith(".py")


class Finite(click.types.FloatParamType):
    """A finite number: JSON has neither NaN nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


FINITE, TEXT = Finite(), click.STRING
AUTO = "auto"  # in place of the number of --transform: encode chooses it on a sample


class Scale(Finite):
    """A finite number, or ``auto``; the verb refuses ``auto`` if it does not choose."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the number, or ``auto``."""
        return value if value == AUTO else super().convert(value, param, ctx)


SCALE = Scale()


class Gamma(Finite):
    """A finite number, or ``median``: 1 / the median squared distance of a sample of the rows."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the number, or ``median``."""
        return value if value == MEDIAN else super().convert(value, param, ctx)


GAMMA = Gamma()
UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as 1.5GB or 8GiB.

    Raises
    ------
    InputError
        If the text is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if not match or match[2] not in UNITS:
        raise InputError(
            f"{text!r} is not a size: expected a number and a unit, such as 1.5GB or 8GiB"
        )
    return int(float(match[1]) * UNITS[match[2]])


TOP = "top:"  # of a share of all pairs, in percent


def share_of(text: str) -> float | None:
    """Return the share that a text such as top:0.001% names, or None."""
    match = re.fullmatch(rf"{TOP}(\d*\.?\d+(?:e-?\d+)?)%", text)
    share = float(match[1]) / 100 if match else 0.0
    return share if 0 < share <= 1 else None


class Within(Finite):
    """A finite number, or a share of all pairs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the number, or the text of a share."""
        if isinstance(value, str) and share_of(value) is not None:
            return value
        return super().convert(value, param, ctx)


WITHIN = Within()


class ByteCount(click.types.IntParamType):
    """A number of bytes, such as 1.5GB or 8GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return the number of bytes."""
        try:
            return value if isinstance(value, int) else parse_bytes(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def refuse_unused(because: str, **given: object) -> None:
    """Refuse options that would have no effect: the first one that is not None.

    Raises
    ------
    InputError
        If one is given.
    """
    for name, value in given.items():
        if value is not None:
            unused = option(name)
            raise InputError(f"{unused} has no use here: {because}. Fix: leave {unused} out.")


def check_whole(**given: object) -> None:
    """Refuse the first value that is neither None nor a whole number.

    Raises
    ------
    InputError
        If there is one.
    """
    for name, value in given.items():
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool)):
            fix = setting(**{name: 10})
            raise InputError(f"{name} is {value}: expected a whole number. Fix: {fix}.")


def parse_ranks(ranks: str | Iterable[int], most: int | None = None) -> list[int]:
    """Return the ascending ranks of a list or a text such as 1,10,100; ``most`` bounds them.

    Raises
    ------
    InputError
        If one is not a rank.
    """
    text = _joined(ranks)
    numbers = _numbers(text, most)
    if numbers is None:
        expected = (
            "numbers above 0"
            if most is None
            else f"numbers from 1 to {most}, the rows of the store,"
        )
        raise InputError(
            f"ranks are {expected} with commas: found {text!r}. Fix: {setting(ranks='1,10,100')}"
        )
    return numbers


def parse_reranks(reranks: int | str | Sequence[int] | None) -> list[int]:
    """Return the ascending numbers above 0 of a number, a list, or a text such as 0,50,200.

    Raises
    ------
    InputError
        If one is no whole number, or below 0.
    """
    if reranks is None:
        return []
    text = _joined(reranks if isinstance(reranks, str | Sequence) else [reranks])
    numbers = _numbers(text, None, least=0)
    if numbers is None:
        raise InputError(
            f"rerank takes whole numbers from 0 on, with commas: found {text!r}. "
            f"Fix: {setting(rerank='0,100,1000')}"
        )
    return [number for number in numbers if number]


def parse_counts(name: str, counts: str | Iterable[int], *, most: int, why: str) -> list[int]:
    """Return the ascending counts of a list or a text such as 10,20,30; ``why`` explains ``most``.

    Raises
    ------
    InputError
        If one is not a number from 1 to ``most``.
    """
    text = _joined(counts)
    numbers = _numbers(text, most)
    if numbers is None:
        raise InputError(
            f"{name} takes numbers from 1 to {most}, {why}, with commas: found {text!r}. "
            f"Fix: {setting(**{name: most})}"
        )
    return numbers


def _joined(given: str | Iterable[int]) -> str:
    """Return numbers as one text with commas."""
    return given if isinstance(given, str) else ",".join(map(str, given))


def _numbers(text: str, most: int | None, least: int = 1) -> list[int] | None:
    """Return the ascending numbers of a text; None if one is not from ``least`` to ``most``."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and least <= int(word) <= (most or int(word)) for word in words):
        return None
    return sorted({int(word) for word in words})


JSON = click.Option(["--json"], is_flag=True, help="Print JSON on stdout.")


def as_json(verb: Verb) -> Verb:
    """Add ``--json``."""
    return click.option("--json", is_flag=True, help="Print JSON on stdout.")(verb)


def echo_json(report: object) -> None:
    """Print a report as JSON on stdout."""
    click.echo(json_module.dumps(report, indent=2))


KERNEL_BLOCK = ("Kernels", [(kind.name, kind.description) for kind in KINDS.values()])


def scale_of(transform: float | str | None) -> float | None:
    """Return the number of ``--transform``.

    Raises
    ------
    InputError
        If it is ``auto``, or another text.
    """
    if isinstance(transform, str):
        why = " here, as only mercore encode chooses one" if transform == AUTO else ""
        raise InputError(
            f"transform is {transform!r}: expected a number{why}. Fix: {setting(transform=1)}, "
            f"or leave {option('transform')} out."
        )
    return transform
