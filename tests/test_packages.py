"""The names ``stores``, ``pipeline`` and ``jobs`` are generic: nothing else that is installed may have them."""

from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

import jobs
import pipeline
import stores


@pytest.mark.parametrize("package", [jobs, pipeline, stores], ids=lambda package: str(package.__name__))
def test_only_mercore_has_a_package_of_this_name(package: ModuleType) -> None:
    distributions = packages_distributions()
    if not any("mercore" in names for names in distributions.values()):
        pytest.skip("mercore is not installed here: its packages are read from the working directory")
    assert set(distributions[package.__name__]) == {"mercore"}
    assert package.__file__ is not None
    assert (Path(package.__file__).parent / "py.typed").is_file()


def test_the_tests_take_the_packages_from_here_and_not_from_an_older_copy() -> None:
    here = Path(__file__).parents[1]
    assert {Path(str(package.__file__)).parents[1] for package in (jobs, pipeline, stores)} == {here}
