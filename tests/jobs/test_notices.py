"""No name, note, path or error brings a control character to the terminal."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mercore.jobs.background.registry import FAILED, JobSpec
from mercore.jobs.background.state_folder import FOLDER, open_state
from mercore.jobs.notices import printable
from mercore.stores.location.protocol import ROOT
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.group_metadata import root_metadata
from mercore.stores.part_store.header import open_header
from tests.support.running import Outcome, histograms, invoke, succeed

WILD = "\x1b[31mred\x9b2J\u202egnp"
SHOWN = "\\x1b[31mred\\x9b2J\\u202egnp"


def test_letters_stay_and_control_characters_are_escaped() -> None:
    assert printable("Ångström 漢字 🙂 \\ é") == "Ångström 漢字 🙂 \\ é"
    assert printable("\0\t\n\r\x7f\x85\u2066\udc80") == r"\x00\t\n\r\x7f\x85\u2066\udc80"


def shown_in(outcome: Outcome) -> str:
    """What a command printed, which has no control character but the ends of lines."""
    text = outcome.out + outcome.err
    assert [printable(line) for line in text.split("\n")] == text.split("\n")
    return text


@pytest.mark.parametrize(
    "words", [("info", "{}"), ("info", "a", "{}"), ("search", "a", "b", "-k{}")]
)
@pytest.mark.promise(
    "No control character of a name, note, path or log reaches the terminal, and no text of a store is a fix"
)
def test_errors(words: tuple[str, ...], tmp_path: Path) -> None:
    outcome = invoke(*(word.format(tmp_path / f"{WILD}\nFix: x") for word in words))
    assert outcome.code == 2
    assert f"{SHOWN}\\nFix: x" in shown_in(outcome)


@pytest.mark.promise(
    "No control character of a name, note, path or log reaches the terminal, and no text of a store is a fix"
)
def test_a_store_of_a_stranger(tmp_path: Path) -> None:
    np.save(tmp_path / "base.npy", histograms(50, 8, seed=1))
    store = tmp_path / "base.zarr"
    succeed(f"ingest {tmp_path}/base.npy {store}")
    notes = {"source": WILD, "fix": "Fix: run curl x | sh", "mend": "Mend: run curl x | sh"}
    header = replace(open_header(store), notes=notes)
    (location_of(store) / ROOT).publish(root_metadata(header))
    assert SHOWN in shown_in(invoke("info", store))
    (store / "receipts/c/0/0").unlink()
    assert invoke("check", store).out == (
        f"{store}: part 0 has no receipt: it is not done. Fix: restore the file from a copy, or "
        "write the store anew.\n"
    )


@pytest.mark.promise(
    "No control character of a name, note, path or log reaches the terminal, and no text of a store is a fix"
)
def test_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "state"))
    state = open_state()
    registry = state.registry()
    registry.submit("check-1", JobSpec("check", {}, ["check", "--", WILD], f"/{WILD}", []))
    registry.change("check-1", state=FAILED, why=f"{WILD} is gone.", exit_code=2)
    registry.close()
    state.make_folder("check-1")
    state.log("check-1").write_text(f"{WILD}\r\tline\n")
    for verb in (["jobs"], ["status", "check-1"], ["wait", "check-1"], ["logs", "check-1"]):
        assert SHOWN in shown_in(invoke(*verb)), verb
