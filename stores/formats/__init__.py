"""Foreign vector files: one module per format; each file opens as a ``Source``."""

import glob
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePath

from mercore.stores import plugins
from mercore.stores.errors import FormatError, InputError, NotFoundError
from mercore.stores.formats import bigann, binary, texmex
from mercore.stores.formats.array import AnyRows, Sliced, open_array
from mercore.stores.formats.binary import BinarySource, Layout, open_binary
from mercore.stores.formats.npy import PREFIX_BYTES, npy_layout
from mercore.stores.formats.npz import open_npz
from mercore.stores.formats.source import RowRange, Source, parse_rows
from mercore.stores.formats.streams import GZIP, STDIN, Stream, StreamSource, open_gzip, open_stdin
from mercore.stores.location.local_file import path_status
from mercore.stores.location.publish import storage_errors
from mercore.stores.location.resolve import location_of, refuse_url, scheme_of
from mercore.stores.plugins import PluginRegistry
from mercore.stores.wording import command, option, setting

Opener = Callable[[str, str | None], Source]

MEMBER = "::"
TINY_IMAGES = "tinyimages"


def _open_arrow(path: str, member: str | None, paths: Sequence[str] = ()) -> Source:
    """Open a Parquet or Arrow file, or the files ``paths`` as one source."""
    from mercore.stores.formats.arrow import ArrowSource  # pyarrow takes a while to load

    return ArrowSource(path, paths or [path], member)


def _open_hdf5(path: str, member: str | None) -> Source:
    from mercore.stores.formats.hdf5 import Hdf5Source  # few need it

    return Hdf5Source(path, member)


# Formats whose rows have equal bytes: read at positions, or as a stream.
FLAT: dict[str, Layout] = {
    **{name: partial(texmex.texmex_layout, stored) for name, stored in texmex.STORED.items()},
    **{name: partial(bigann.bigann_layout, stored) for name, stored in bigann.STORED.items()},
    "npy": npy_layout,
    **{name: partial(binary.raw_layout, *row) for name, row in binary.RAW_STORED.items()},
}
# Formats that hold several arrays or columns: FILE::NAME names one.
_OWN: dict[str, Opener] = {
    "npz": open_npz,
    **dict.fromkeys(("parquet", "arrow", "feather"), _open_arrow),
    **dict.fromkeys(("h5", "hdf5"), _open_hdf5),
}
FLAT_SUFFIXES = tuple(f".{name}" for name in FLAT if name not in binary.RAW_STORED)
TABLES = (".parquet", ".arrow", ".feather")  # files that a folder or a pattern may name

__all__ = [
    "CONTAINERS",
    "FLAT",
    "AnyRows",
    "Sliced",
    "Source",
    "open_source",
    "split_member",
    "suffixes",
]


def _suffix_name(_package: str, suffix: str, opener: object) -> str:
    """Return the name of a format of another package: the suffix, which no other format has."""
    if suffix in FLAT:
        raise InputError(f"there is another reader of .{suffix}")
    if not callable(opener):
        raise InputError(f"found {opener!r}, expected a function of a path and a member")
    return suffix


CONTAINERS = PluginRegistry(plugins.FORMATS, _OWN, _suffix_name)


def suffixes() -> tuple[str, ...]:
    """Return the suffixes of all formats, with their dots."""
    return (*FLAT_SUFFIXES, *(f".{name}" for name in CONTAINERS))


def open_source(
    path: AnyRows,
    *,
    form: str | None = None,
    rows: str | None = None,
    ingesting: bool = False,
    once: bool = False,
) -> Source:
    """Open rows: a file, a Zarr array, a folder of tables or images, or an array in memory.

    Parameters
    ----------
    form : the name of the file's format; None: its suffix says it
    rows : a range such as ``1000:2000``; None: all rows
    ingesting : whether images, and files that can be read only once, will do
    once : whether the rows of an Arrow stream may be read only once: see ``open_array``

    Raises
    ------
    NotFoundError
        If there is nothing at ``path``.
    FormatError
        If the suffix is unknown, the header does not fit the format or the file's size, or an array
        is not 2-D.
    InputError
        If ``form`` or ``rows`` is wrong, or the source will not do.
    StorageError
        If the operating system refuses.
    """
    span = (0, None) if rows is None else parse_rows(rows)
    if not isinstance(path, str):
        _refuse_format(form, "an array")
        return _ranged(open_array(path, once=once and rows is None), span)
    if _is_stream(path, form):
        _check_ingesting(path, ingesting, "a stream is read forward once")
        return _open_stream(path, form, span)
    base, member = split_member(path)
    if _is_local_folder(base):
        _refuse_format(form, f"the folder {base}")
        return _open_folder(base, member, span, ingesting=ingesting)
    if paths := _matching(base):
        return _ranged(_open_arrow(path, member, paths), span)
    name = _format_of(path, form)
    source = _ranged(_open_file(path if name in FLAT else base, name, member), span)
    return _described(source, name, ingesting=ingesting)


def check_format(form: str | None) -> None:
    """Refuse an unknown format."""
    if form is not None:
        _format_of("", form)


def split_member(path: str) -> tuple[str, str | None]:
    """Return the file and the array or column of ``FILE::NAME``; None if the path names none."""
    base, mark, member = path.rpartition(MEMBER)
    if not mark or not base or not member or (not scheme_of(path) and _is_there(path)):
        return path, None
    return base, member


def _is_there(path: str) -> bool:
    with storage_errors("read", path):
        return Path(path).exists()


def _is_local_folder(path: str) -> bool:
    """Return whether a path is a folder of this machine; an object must exist."""
    if not scheme_of(path):
        return _is_there(path) and stat.S_ISDIR(path_status(path).st_mode)
    location = location_of(path)
    if location.is_folder():
        refuse_url(path, "a Zarr array of another tool")
    if not location.exists():
        raise NotFoundError(f"{path}: no such file or folder. Fix: check the path.")
    return False


def _split_format(text: str) -> tuple[str, bool]:
    """Return the name of a format, and whether it is compressed by gzip."""
    name = text.lower().removeprefix(".")
    compressed = name.endswith(GZIP)
    return name.removesuffix(GZIP), compressed


def _suffix_of(path: str) -> str:
    """Return the suffix of a path, with the one before ``.gz``."""
    found = PurePath(path).suffixes
    last = 2 if found and found[-1].lower() == GZIP else 1
    return "".join(found[-last:])


def _is_stream(path: str, form: str | None) -> bool:
    return path == STDIN or _split_format(form or _suffix_of(path))[1]


def _format_of(path: str, form: str | None) -> str:
    """Return the name of a file's format.

    Raises
    ------
    InputError
        If ``form`` is no name of a format.
    FormatError
        If the suffix is none of a format.
    """
    name, _ = _split_format(form or _suffix_of(split_member(path)[0]))
    if name in FLAT or name in CONTAINERS or (form and name.startswith(binary.RAW)):
        return name
    if form is not None:
        raise InputError(
            f"format is {form!r}: expected one of {', '.join((*FLAT, *CONTAINERS))}, "
            f"or {binary.RAW_EXAMPLE}. Fix: {setting(format='fvecs')}"
        )
    if not scheme_of(path) and path != STDIN:
        path_status(path)
    raise FormatError(
        f"{path}: unknown suffix {_suffix_of(path)!r}, expected {' '.join(FLAT_SUFFIXES)} "
        f"(with .gz too), {' '.join(suffixes()[len(FLAT_SUFFIXES) :])}, or a Zarr array's folder. "
        f"Fix: name the true format with {option('format')}, or convert the file."
    )


def _layout_of(name: str) -> Layout:
    """Return the function that returns the layout of a flat format."""
    return FLAT[name] if name in FLAT else partial(binary.raw_layout, *binary.raw_format(name))


def _open_file(path: str, name: str, member: str | None) -> Source:
    """Open a file of a named format."""
    if name in CONTAINERS:
        return CONTAINERS[name](path, member)
    layout, file = _layout_of(name), open_binary(path)
    return BinarySource(file, layout(file.read_prefix(PREFIX_BYTES), path, file.size))


def _open_stream(path: str, form: str | None, span: tuple[int, int | None]) -> Source:
    """Open stdin, or a file that gzip compressed."""
    if path == STDIN and form is None:
        raise InputError(
            f"-: stdin has no suffix, expected its format. Fix: {setting(format='fvecs')}"
        )
    name = _format_of(path, form)
    if name in CONTAINERS:
        raise FormatError(
            f"{path}: {name} cannot be read as a stream, expected {', '.join(FLAT)}, or "
            f"{binary.RAW_EXAMPLE}. Fix: decompress or save it, and name the file."
        )
    compressed = _split_format(form or _suffix_of(path))[1]
    stream: Stream = open_stdin(compressed=compressed) if path == STDIN else open_gzip(path)
    layout = _layout_of(name)(stream.peek(PREFIX_BYTES), stream.name, None)
    source = StreamSource(stream, layout, first=span[0], last=span[1])
    return _described(source, name, ingesting=True)


def _open_folder(
    path: str, member: str | None, span: tuple[int, int | None], *, ingesting: bool
) -> Source:
    """Open a folder: a Zarr array, or Parquet or Arrow files, or images."""
    from mercore.stores.formats.zarr_array import METADATA, open_zarr  # takes a while to load

    if any((Path(path) / name).exists() for name in METADATA):
        return _ranged(open_zarr(path), span)
    tables = _tables_in(path)
    if tables:
        return _ranged(_open_arrow(path, member, tables), span)
    from mercore.stores.formats.images import ImageFolder, Images, image_files

    files = image_files(path)
    if not files:
        return open_zarr(path)  # which says what it expected
    _check_ingesting(path, ingesting, "images become vectors (GIST) when they are ingested")
    return Images(_ranged(ImageFolder(path, files), span), by_colour=False)


def _tables_in(folder: str) -> list[str]:
    """Return the Parquet and Arrow files of a folder, in the order of their names."""
    return sorted(
        str(each)
        for each in Path(folder).iterdir()
        if each.suffix.lower() in TABLES and not each.name.startswith((".", "_"))
    )


def table_files(path: str) -> tuple[list[str], str | None]:
    """Return the Parquet and Arrow files of a path, a folder or a pattern, and the named column.

    There are no files if it names another one.
    """
    base, column = split_member(path)
    if Path(base).is_dir():
        return _tables_in(base), column
    is_table = PurePath(base).suffix.lower() in TABLES
    return _matching(base) or [base] * is_table, column


def _matching(pattern: str) -> list[str]:
    """Return the files that a pattern with ``*`` names, in order; none if it is a path."""
    if scheme_of(pattern) or _is_there(pattern) or not glob.has_magic(pattern):
        return []
    paths = sorted(glob.glob(pattern))  # noqa: PTH207 - a whole path
    if not paths:
        raise NotFoundError(f"{pattern}: no file has such a name. Fix: check the pattern.")
    wrong = [path for path in paths if PurePath(path).suffix.lower() not in TABLES]
    if wrong:
        raise FormatError(
            f"{wrong[0]}: a pattern may name {' '.join(TABLES)} files alone. Fix: name the files "
            "one by one."
        )
    return paths


def _ranged(source: Source, span: tuple[int, int | None]) -> Source:
    """Return the rows of a source that ``--rows`` names."""
    n, (first, last) = source.shape[0], span
    if span == (0, None):
        return source
    if first >= n or (last or 0) > n:
        raise InputError(
            f"rows are {first}:{'' if last is None else last}: {source.name} has {n} rows. Fix: "
            f"{setting(rows=f'0:{n}')}"
        )
    return RowRange(source, first, n if last is None else last)


def _described(source: Source, name: str, *, ingesting: bool) -> Source:
    """Return pixels as images that are to be described, and other rows as they are."""
    if name != TINY_IMAGES:
        return source
    from mercore.stores.formats.images import Images

    _check_ingesting(source.name, ingesting, "images become vectors (GIST) when they are ingested")
    return Images(source, by_colour=True)


def _check_ingesting(path: str, ingesting: bool, why: str) -> None:
    """Refuse what only ``ingest`` can read."""
    if not ingesting:
        ingest = command("ingest", path, "STORE")
        raise InputError(f"{path}: {why}. Fix: {ingest}, and name the store.")


def _refuse_format(form: str | None, what: str) -> None:
    """Refuse ``--format`` where it would have no effect."""
    if form is not None:
        raise InputError(
            f"{option('format')} has no use here: {what} states its own. Fix: leave "
            f"{option('format')} out."
        )
