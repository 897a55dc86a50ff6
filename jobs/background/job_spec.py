"""The spec of a job: a verb and its given options, with paths that are valid in any folder."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mercore.jobs.background.registry import DONE, Job
from mercore.jobs.face.declaring import VERBS
from mercore.jobs.options import KernelName, StorePath, names_file
from mercore.stores.errors import FormatError, InputError, NotFoundError
from mercore.stores.location.resolve import real_path
from mercore.stores.spec import digest
from mercore.stores.wording import option

Options = dict[str, Any]

HOW = (
    "workers",
    "processes",
    "scheduler",
    "threads",
    "memory",
    "force",
)  # how a job runs: no part of its id


def given_options(context: click.Context, folder: Path) -> Options:
    """Return the given options of a verb by name; paths relative to ``folder`` become absolute.

    Raises
    ------
    InputError
        If a number is not finite.
    """
    given = {}
    for parameter in context.command.params:
        name = str(parameter.name)
        value = context.params.get(name)
        if value is None or context.get_parameter_source(name) is ParameterSource.DEFAULT:
            continue
        if _is_endless(value):
            raise InputError(
                f"{option(name)} is {value}: expected a finite number. Fix: correct it, or leave "
                f"{option(name)} out."
            )
        given[name] = _whole(parameter.type, value, folder)
    return given


def words_of(command: click.Command, options: Options) -> list[str]:
    """Return the command line of a verb with these options."""
    words, arguments = [], []
    for parameter in command.params:
        value = options.get(str(parameter.name))
        if value is None or value is False:
            continue
        if isinstance(parameter, click.Argument):
            arguments += [str(one) for one in _listed(value)]
        elif value is True:
            words.append(_flag(parameter))
        else:
            words += [word for one in _listed(value) for word in (_flag(parameter), str(one))]
    return [str(command.name), *words, "--", *arguments]


def job_id(verb: str, options: Options) -> str:
    """Return the id of a job: the verb, and a digest of the options that decide its result."""
    deciding = {name: value for name, value in options.items() if name not in HOW}
    return f"{verb}-{digest({'verb': verb, 'options': deciding})[:10]}"


def written_by(verb: click.Command, options: Options) -> list[str]:
    """Return the real paths that a job writes: its target first."""
    return [real_path(path) for path in _paths(verb, options, written=True)]


def sources_of(verb: click.Command, options: Options) -> list[str]:
    """Return the real paths that a job reads, in the same form as ``written_by``."""
    return [real_path(path) for path in _paths(verb, options, written=False)]


def stays_done(verbs: Mapping[str, click.Command], job: Job) -> bool:
    """Return whether a job needs no new run: it is done, its files exist, and it adds no new ones.

    ``verbs`` are those that can be submitted, by name.
    """
    from mercore.stores.location.resolve import location_of

    if not VERBS[job.verb].writes_once or job.state != DONE:
        return False
    return all(location_of(path).exists() for path in written_by(verbs[job.verb], job.options))


def _paths(verb: click.Command, options: Options, *, written: bool) -> list[str]:
    kinds = {str(parameter.name): parameter.type for parameter in verb.params}
    named = {
        name: kind
        for name, kind in kinds.items()
        if isinstance(kind, StorePath) and (kind.written if written else kind.read)
    }
    given = ((named[name], options[name]) for name in named if options.get(name) is not None)
    return [str(each) for kind, value in given for each in _listed(value) if kind.is_path(each)]


def _listed(value: Any) -> Sequence[Any]:  # noqa: ANN401
    """Return the values of an option that may be given more than once."""
    return value if isinstance(value, list | tuple) else [value]


def words_in(path: str, verbs: Mapping[str, click.Command]) -> list[str]:
    """Return the command line of a TOML file with ``verb``, its arguments and its options.

    Raises
    ------
    NotFoundError, FormatError
        If there is no such file, or it is not TOML.
    InputError
        If the verb cannot be submitted, or a name or value is wrong or missing.
    """
    spec = _read(path)
    verb = spec.pop("verb", None)
    if not isinstance(verb, str) or verb not in verbs:
        raise InputError(
            f'{path}: verb is {verb!r}, expected one of {", ".join(verbs)}. Fix: verb = "encode"'
        )
    known = {_key(parameter): parameter for parameter in verbs[verb].params}
    unknown = sorted(set(spec) - set(known))
    if unknown:
        raise InputError(
            f"{path}: {verb} has no option {', '.join(unknown)}: expected {', '.join(known)}. "
            "Fix: correct the name."
        )
    options = {
        str(known[key].name): _value(path, key, value, known[key]) for key, value in spec.items()
    }
    missing = [key for key, p in known.items() if isinstance(p, click.Argument) and key not in spec]
    if missing:
        raise InputError(
            f"{path}: {', '.join(missing)} is missing, which {verb} needs. Fix: add it."
        )
    return words_of(verbs[verb], options)


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise NotFoundError(
            f"{path} cannot be read: {error.strerror}, expected a job's spec. Fix: check the path."
        ) from None
    except ValueError as error:
        raise FormatError(f"{path} is no TOML: {error}. Fix: correct it.") from None


def _value(path: str, key: str, value: object, parameter: click.Parameter) -> object:
    """Return a value of a TOML file if it has a type of its parameter; click converts it later."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        good, expected = isinstance(value, bool), "true or false"
    elif _takes_several(parameter):
        good, expected = (
            all(map(_is_plain, value if isinstance(value, list) else [value])),
            "text, or a list of texts",
        )
    else:
        good, expected = _is_plain(value), "text or a finite number"
    if not good:
        raise InputError(f"{path}: {key} is {value!r}, expected {expected}. Fix: correct it.")
    return value


def _takes_several(parameter: click.Parameter) -> bool:
    """Return whether a parameter takes more than one value."""
    return parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)


def _is_plain(value: object) -> bool:
    """Return whether a value is a text without NUL, or a finite number."""
    if isinstance(value, str):
        return "\0" not in value
    return isinstance(value, int | float) and not isinstance(value, bool) and not _is_endless(value)


def _is_endless(value: object) -> bool:
    """Return whether a value is NaN or infinite."""
    return isinstance(value, float) and not math.isfinite(value)


def _key(parameter: click.Parameter) -> str:
    """Return the name of a parameter in a TOML file: that of the command line without dashes."""
    return (
        str(parameter.name)
        if isinstance(parameter, click.Argument)
        else _flag(parameter).lstrip("-")
    )


def _flag(parameter: click.Parameter) -> str:
    """Return the longest name of an option."""
    return max(parameter.opts, key=len)


def _whole(kind: object, value: Any, folder: Path) -> Any:  # noqa: ANN401
    """Return the value of an option with absolute paths."""
    if isinstance(value, tuple):
        return [_whole(kind, one, folder) for one in value]
    path = isinstance(kind, StorePath) and kind.is_path(value)
    if path or (isinstance(kind, KernelName) and names_file(value)):
        return whole_path(value, folder)
    return value


def whole_path(path: str, folder: Path) -> str:
    """Return a path that is valid in any folder; a URL is returned unchanged.

    Links are resolved but in the last name, whose suffix may name a format.
    """
    if "://" in path:
        return path
    if path == "-":
        raise InputError("-: a job has no stdin. Fix: save the rows, and name the file.")
    whole = folder / path
    return (
        real_path(str(whole))
        if whole.name == ".."
        else str(Path(real_path(str(whole.parent)), whole.name))
    )


def shown(words: Sequence[str]) -> str:
    """Return a command line as text for a shell."""
    import shlex

    return shlex.join(["mercore", *words])
