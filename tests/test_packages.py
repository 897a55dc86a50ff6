"""One namespace: ``mercore`` is all that is installed, and it is this tree's."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

import mercore
from mercore import jobs, pipeline, stores

HERE = Path(__file__).parents[1]
EXTRAS = "arrow", "demo", "hdf5", "images", "report", "s3"
LOCK = HERE / ".ci/lock.txt"


def test_the_packages_come_from_this_tree_and_not_from_an_older_copy() -> None:
    assert {
        Path(str(package.__file__)).resolve().parents[1] for package in (jobs, pipeline, stores)
    } == {HERE}
    assert (Path(str(mercore.__file__)).parent / "py.typed").is_file()


def test_no_generic_name_is_installed() -> None:
    installed = {name for name, owners in packages_distributions().items() if "mercore" in owners}
    assert installed <= {"mercore"} | {
        name for name in installed if name.startswith("__editable__")
    }


def test_the_lock_has_every_dependency_with_hashes() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    named = chain(project["dependencies"], *map(project["optional-dependencies"].get, EXTRAS))
    locked = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash", LOCK.read_text(), re.MULTILINE))
    for each in map(Requirement, named):
        assert each.specifier.contains(locked[each.name]), each
    pins = [line for line in LOCK.read_text().splitlines() if line[0] not in " #"]
    assert len(pins) == len(locked)


def test_the_citation_is_of_this_version() -> None:
    version = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (HERE / ".github/CITATION.cff").read_text()


def test_actions_are_named_by_their_commits() -> None:
    texts = [path.read_text() for path in (HERE / ".github/workflows").glob("*.yml")]
    used = [each for text in texts for each in re.findall(r"uses: (.+)", text)]
    assert len(used) > 5
    assert not [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)]


def test_a_folder_may_hold_files_of_the_names_of_our_packages(tmp_path: Path) -> None:
    for name in ("jobs", "pipeline", "stores"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('a file of the user')\n")
    program = (
        "import mercore, mercore.jobs.cli, mercore.pipeline, mercore.stores; print('imported')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout == "imported\n"
    command = [str(Path(sys.executable).with_name("mercore")), "--version"]
    assert (
        "mercore"
        in subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    )
