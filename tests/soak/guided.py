"""Mutated files that are chosen by the code that they reach, by atheris (libFuzzer).

``python -m tests.soak.guided NAME SECONDS CORPUS`` reads mutations of the file NAME of
``tests/support/fuzzing.py``, and of those that earlier runs kept. A file that reaches new branches
is kept in the folder CORPUS, and mutated again. An error that is not one of mercore's ends the
process with a traceback, and its file is written beside CORPUS.

``python -m tests.soak.guided --keep FOLDER`` makes ``corpus.zip`` of the folders in FOLDER.
"""

import sys
import zipfile
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory

KEPT = Path(__file__).with_name("corpus.zip")
LONGEST = 1 << 10  # bytes of a file that is kept


def fuzz(name: str, seconds: int, corpus: Path) -> None:
    """Fuzz the readers of a format for some seconds; the process ends."""
    import atheris

    with atheris.instrument_imports(include=["mercore.stores"]):
        stores = import_module("mercore.stores")
        for module in walk_packages(stores.__path__, "mercore.stores."):
            import_module(module.name)
    # only now: what is imported before is not instrumented
    from numpy.random import default_rng

    from tests.support.fuzzing import mutated, original, read_file

    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([original(name), *kept().get(name, [])]):
        (corpus / str(number)).write_bytes(data)
    with TemporaryDirectory() as folder:

        def once(data: bytes) -> None:
            read_file(name, data, Path(folder))

        def mutate(data: bytes, most: int, seed: int) -> bytes:
            if seed % 2:
                return bytes(atheris.Mutate(data, most))
            return mutated(data, default_rng(seed))[:most]

        words = [f"-max_total_time={seconds}", "-rss_limit_mb=4096", "-timeout=20"]
        words += [f"-artifact_prefix={corpus}-", str(corpus)]
        atheris.Setup([sys.argv[0], *words], once, custom_mutator=mutate)
        atheris.Fuzz()


def kept() -> dict[str, list[bytes]]:
    """Return the files that earlier runs kept, by the name that they are read under."""
    files: dict[str, list[bytes]] = {}
    if KEPT.exists():
        with zipfile.ZipFile(KEPT) as archive:
            for each in archive.namelist():
                files.setdefault(each.rpartition("/")[0], []).append(archive.read(each))
    return files


def keep(folder: Path) -> None:
    """Write the archive of the files that runs with these corpora kept."""
    with zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.glob("*/*")):
            if file.stat().st_size <= LONGEST:
                where = zipfile.ZipInfo(f"{file.parent.name}/{file.name}")  # of a fixed date
                archive.writestr(where, file.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    if sys.argv[1] == "--keep":
        keep(Path(sys.argv[2]))
    else:
        fuzz(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
