"""Options in messages: one text for Python callers, one for the command line."""

import pickle

import pytest

from mercore.jobs.notices import in_options
from mercore.stores.errors import InputError
from mercore.stores.wording import BEGIN, command, option, render, setting

CASES = [
    (option("part_rows"), "part_rows", "--part-rows"),
    (option("k"), "k", "-k"),
    (setting(k=10), "k=10", "-k 10"),
    (setting(exact=True, kernel="rbf"), 'exact=True, kernel="rbf"', "--exact --kernel rbf"),
    (
        command("encode", "my rows.zarr", "CODES", kernel="χ.py", force=True),
        'mercore.encode("my rows.zarr", CODES, kernel="χ.py", force=True)',
        "mercore encode 'my rows.zarr' CODES --kernel χ.py --force",
    ),
]


@pytest.mark.parametrize(("mark", "keywords", "options"), CASES)
@pytest.mark.promise(
    "The command line and Python refuse the same, each in its own words, and show a path as it was given"
)
def test_each_front_end_writes_options_in_its_own_words(
    mark: str, keywords: str, options: str
) -> None:
    error = InputError(f"runs--old/data--k.zarr: found --k. Fix: {mark}, or {mark}.")
    text = "runs--old/data--k.zarr: found --k. Fix: {0}, or {0}."
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == text.format(keywords)  # noqa: S301
    assert render(error.message, in_options) == text.format(options)


def test_a_text_without_the_end_of_a_mark_stays_as_it_is() -> None:
    assert render(f"{BEGIN}data") == f"{BEGIN}data"
