"""Cases that differ in a number: one test runs all of them, and a failure names the one."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]
MOST_SHOWN = 80


@contextmanager
def in_case(**values: object) -> Iterator[None]:
    """Add a note such as ``case: style = sparse, d = 31`` to an error of the ``with`` block."""
    try:
        yield
    except Exception as error:
        shown = [f"{name} = {str(value)[:MOST_SHOWN]}" for name, value in values.items()]
        error.add_note(f"case: {', '.join(shown)}")
        raise


def loop_over(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test once per value; ``names`` and ``values`` are those of ``parametrize``.

    It is one test for pytest, and a failure names its case. Each case has its own ``monkeypatch``
    and an empty ``tmp_path``; all other fixtures are made once.
    """
    cases = list(values)
    keys = (names,) if isinstance(names, str) else names

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run_all(*args: Any, **fixtures: Any) -> None:
            assert cases
            for number, case in enumerate(cases):
                chosen = dict(zip(keys, (case,) if isinstance(names, str) else case, strict=True))
                with in_case(**chosen), pytest.MonkeyPatch.context() as patch:
                    test(*args, **own_fixtures(fixtures, number, patch), **chosen)

        signature = inspect.signature(test)
        left = [each for each in signature.parameters.values() if each.name not in keys]
        assert len(left) + len(keys) == len(signature.parameters)
        run_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run_all

    return decorate


def own_fixtures(
    fixtures: dict[str, Any], number: int, patch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The fixtures, with those replaced that a case may change for the next one."""
    own: dict[str, Any] = {}
    if "monkeypatch" in fixtures:
        own["monkeypatch"] = patch
    if "tmp_path" in fixtures:
        folder: Path = fixtures["tmp_path"] / f"case-{number}"
        folder.mkdir()
        own["tmp_path"] = folder
    return {**fixtures, **own}
