"""The help says everything in whole sentences at 80 columns, its examples parse, and shells
complete words."""

import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mercore.jobs.background.registry import JobSpec, Registry
from mercore.jobs.background.state_folder import FOLDER, StateFolder
from mercore.jobs.cli import main
from mercore.jobs.encoder_options import SEED, fields_of, option_names
from mercore.jobs.face import declaring
from mercore.jobs.face.commands import call_of
from mercore.jobs.help import SECTIONS, VerbCommand, VerbGroup, sentence_of
from mercore.pipeline.encoders import ENCODERS
from mercore.stores import formats

COLUMNS = 80


def verbs_of(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All verbs under a group, with the words that name them."""
    for name, verb in group.commands.items():
        yield (*words, name), verb
        if isinstance(verb, click.Group):
            yield from verbs_of(verb, *words, name)


VERBS = dict(verbs_of(main))
every_verb = pytest.mark.parametrize("words", VERBS, ids=" ".join)


def help_of(*words: str, command: click.Command = main) -> str:
    """The help of a verb at 80 columns."""
    done = CliRunner().invoke(
        command, [*words, "--help"], prog_name="mercore", env={"COLUMNS": str(COLUMNS)}
    )
    assert done.exit_code == 0
    return done.output


def blocks_of(text: str) -> dict[str, str]:
    """The indented blocks of a help by their titles."""
    return dict(re.findall(r"^(\S.*):\n((?:  .*\n|\n(?=  ))+)", text, re.MULTILINE))


def joined(text: str) -> str:
    return " ".join(text.split())


# Groups of verbs


def test_every_verb_is_in_one_section() -> None:
    blocks = blocks_of(help_of())
    assert [title for title in blocks if title != "Options"] == list(SECTIONS)
    listed = [
        name
        for title in SECTIONS
        for name in re.findall(r"^  (\w+)  ", blocks[title], re.MULTILINE)
    ]
    assert sorted([*listed, "completion"]) == sorted(main.commands)
    assert listed[:4] == ["ingest", "append", "encode", "index"]  # in the order of a first use
    assert main.commands["completion"].hidden  # the last line shows it


def test_a_verb_without_a_section_does_not_vanish() -> None:
    verbs = [
        VerbCommand("new", help="Do what is new. And more."),
        VerbCommand("old", section=SECTIONS[0], help="Do what is old."),
        click.Command("foreign", help="Do what click does."),
    ]
    blocks = blocks_of(help_of(command=VerbGroup("group", commands=verbs)))
    assert blocks[SECTIONS[0]] == "  old      Do what is old.\n"
    assert blocks["Other"] == "  new      Do what is new.\n  foreign  Do what click does.\n"


@pytest.mark.parametrize("words", [(), ("submit",), ("plan",)], ids=" ".join)
def test_a_group_lists_whole_sentences(words: tuple[str, ...]) -> None:
    group = VERBS[words] if words else main
    assert isinstance(group, VerbGroup)
    text = help_of(*words)
    assert "..." not in text
    for name, verb in group.commands.items():
        if not verb.hidden:
            sentence = sentence_of(verb)
            assert sentence[0].isupper()
            assert sentence.endswith(".")
            assert f" {name} {sentence}" in joined(text)


@every_verb
def test_a_help_fits_into_80_columns(words: tuple[str, ...]) -> None:
    text = help_of(*words)
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    assert not {"\N{NON-BREAKING HYPHEN}", "\N{NO-BREAK SPACE}"} & set(text)


def test_the_help_says_how_completion_is_switched_on() -> None:
    assert 'eval "$(mercore completion bash)"' in help_of().splitlines()[-1]


def test_the_version_has_a_short_option() -> None:
    short, long = (CliRunner().invoke(main, [option]).output for option in ("-V", "--version"))
    assert short == long
    assert "version" in short


@every_verb
def test_the_help_of_an_option_names_options_of_the_same_verb(words: tuple[str, ...]) -> None:
    options = [each for each in VERBS[words].params if isinstance(each, click.Option)]
    own = {flag for option in options for flag in option.opts}
    for option in options:
        text = re.sub(r"mercore [\w-]+ --[a-z-]+", "", option.help or "")  # of another command
        assert set(re.findall(r"(?<!\w)--[a-z][a-z-]*", text)) <= own, option.name


def test_the_help_of_an_option_speaks_of_its_own_verb() -> None:
    said = {
        (verb, option.name): joined(option.help or "")
        for verb in ("encode", "index", "search", "verify", "compare", "report")
        for option in main.commands[verb].params
        if isinstance(option, click.Option)
    }
    ordered = {verb for (verb, name), text in said.items() if name == "batch" and "orders" in text}
    assert ordered == {"search"}
    limits = {verb: text for (verb, name), text in said.items() if name == "memory"}
    assert {verb for verb, text in limits.items() if "batches" in text} == {
        *("search", "verify", "compare", "report")
    }
    assert "fewer" not in said["compare", "threads"]  # they stay as many
    for name, kind in ENCODERS.items():
        listed = re.search(rf"[ ,]{name}[,.]", said["search", "exact"]) is not None
        assert listed == (kind().proves and not kind.bounds)


@pytest.mark.parametrize("words", [("ingest",), ("submit", "ingest")], ids=" ".join)
def test_the_help_of_ingest_lists_every_format(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "FLAT_SUFFIXES", (*formats.FLAT_SUFFIXES, ".new"))
    assert f"SOURCE is a file ({' '.join(formats.suffixes())}), a 2-D" in joined(help_of(*words))


# Examples


def test_every_verb_has_two_examples() -> None:
    assert {
        words: verb
        for words, verb in VERBS.items()
        if not isinstance(verb, VerbCommand) or len(verb.examples) < 2
    } == {}


@every_verb
def test_examples_parse(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a command of this verb, and the options agree as far as no store says otherwise."""
    parsed: list[click.Context] = []
    monkeypatch.setattr(click.Command, "invoke", lambda _, context: parsed.append(context))
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text('verb = "check"\nstore = "codes.zarr"\n')
    verb = VERBS[words]
    assert isinstance(verb, VerbCommand)
    shown = blocks_of(help_of(*words))["Examples"]
    for example in verb.examples:
        assert example in shown.replace("\n  ", "\n").strip()
        command = re.search(r"mercore [^|&#)]*", example.replace("\\\n", " "))
        assert command is not None
        main(shlex.split(command[0])[1:], prog_name="mercore", standalone_mode=False)
        context = parsed[-1]
        assert context.command_path.startswith(" ".join(("mercore", *words)))
        if context.command.name in (
            "search",
            "encode",
            "verify",
            "evaluate",
            "compare",
            "ingest",
            "gallery",
            "report",
        ):
            call = call_of(declaring.VERBS[context.command.name], context.params)
            assert call.options is not None
            call.options.check()


# Encoders


@pytest.mark.parametrize("words", [("encode",), ("submit", "encode"), ("plan", "encode")])
def test_encoders_are_explained_with_their_own_defaults(words: tuple[str, ...]) -> None:
    blocks = blocks_of(help_of(*words))
    told = joined(blocks["Encoders, with their options and defaults"])
    for name, kind in ENCODERS.items():
        assert kind.description.startswith("A code ")
        defaults = {
            f"--{option.replace('_', '-')}": getattr(kind(), field)
            for option, field in fields_of(name).items()
            if option != SEED
        }
        if name == "kpca-lsh":
            defaults["--components"] = "bits"
        if "--rank" in defaults:
            defaults["--rank"] = "all"
        pairs = " ".join(f"{option} {default}" for option, default in defaults.items())
        assert f"{name} {kind.description} {pairs}" in told
    assert "bound A sample decides between kpca-bound, pca-bound and bin-bound: " in told


def test_each_option_of_encoders_is_explained_once() -> None:
    text = help_of("encode")
    blocks = blocks_of(text)
    flags = [f"--{option.replace('_', '-')}" for option in option_names()]
    own = re.findall(r"^  (--[a-z-]+)", blocks["Options of encoders"], re.MULTILINE)
    assert own == flags[:-1]
    assert re.search(r"--random-state INTEGER +Seed of every random choice. \[default: 0\]", text)
    assert not set(own) & set(re.findall(r"^  (--[a-z-]+)", blocks["Options"], re.MULTILINE))


# Completion


def completed(*words: str, terminal: str = "bash", state: Path | None = None) -> list[str]:
    """What a shell is told when the Tab key is pressed after the last of the words."""
    environment = {
        "_MERCORE_COMPLETE": f"{terminal}_complete",
        "COMP_WORDS": shlex.join(["mercore", *words]),
        "COMP_CWORD": str(len(words)),
    }
    if state is not None:
        environment[FOLDER] = str(state)
    done = CliRunner().invoke(main, [], prog_name="mercore", env=environment)
    assert done.exit_code == 0
    return done.output.strip().splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["enc"], ["plain,encode", "plain,encoders"]),
        (["search", "ba"], ["file,ba"]),
        (["search", "", "qu"], ["file,qu"]),  # a variable that is not set stops no completion
        (["encode", "a", "b", "--kernel", "h"], ["file,h", "plain,hellinger"]),
        (["encode", "a", "b", "--kernel", "./own"], ["file,./own"]),
        (["encode", "a", "b", "--encoder", "bin"], ["plain,bin-bound"]),
        (["compare", "a", "b", "--encoder", "bin"], ["plain,bin-bound"]),
        (["export", "a", "b", "--kernel", "c"], ["file,c"]),
        (["submit", "en"], ["file,en", "plain,encode"]),
        (["submit", "encode", "a", "b", "--pre"], ["plain,--preprocessing"]),
        (["plan", "se"], ["plain,search"]),
        (["completion", ""], ["plain,bash", "plain,zsh", "plain,fish"]),
    ],
)
def test_words_are_completed(words: list[str], expected: list[str]) -> None:
    assert completed(*words) == expected


@pytest.mark.parametrize("verb", ["status", "logs", "wait", "cancel", "resume"])
def test_ids_of_jobs_are_completed(verb: str, tmp_path: Path) -> None:
    registry = Registry(StateFolder(tmp_path).registry_file)
    for job in ("check-1", "encode-2", "check-3"):
        registry.submit(job, JobSpec(job[:5], {}, [job[:5], "--", "a b"], None, []))
    registry.close()
    assert completed(verb, "", state=tmp_path) == [
        "plain,check-3",
        "plain,encode-2",
        "plain,check-1",
    ]
    assert completed(verb, "en", state=tmp_path) == ["plain,encode-2"]
    told = completed(verb, "check-1", terminal="zsh", state=tmp_path)
    assert told == ["plain", "check-1", "queued: mercore check -- 'a b'"]


def test_completion_makes_no_state_folder(tmp_path: Path) -> None:
    assert completed("status", "", state=tmp_path / "state") == []
    assert list(tmp_path.iterdir()) == []


def test_completion_is_silent_about_a_damaged_registry(tmp_path: Path) -> None:
    StateFolder(tmp_path).registry_file.write_bytes(b"no database" * 1000)
    assert completed("status", "", state=tmp_path) == []


@pytest.mark.parametrize("words", [("encode", "a", "b", "--encoder", ""), ("status", "")])
def test_completion_imports_nothing_heavy(words: tuple[str, ...], tmp_path: Path) -> None:
    Registry(StateFolder(tmp_path).registry_file).close()
    code = "import sys\nfrom mercore.jobs.cli import main\ntry:\n    main(prog_name='mercore')\n"
    code += "finally:\n    print('heavy:', *{'numba', 'zarr', 'scipy', 'dask'} & set(sys.modules))"
    environment = {
        "_MERCORE_COMPLETE": "bash_complete",
        "COMP_WORDS": shlex.join(["mercore", *words]),
        "COMP_CWORD": str(len(words)),
        FOLDER: str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("heavy:\n")
    assert done.stderr == ""


def test_bash_completes_the_name_of_a_file(tmp_path: Path) -> None:
    """A real shell on a terminal: the script is sourced, then the Tab key is pressed."""
    (tmp_path / "base.bvecs").touch()
    command = tmp_path / "mercore"
    python = f"{shlex.quote(sys.executable)} -c 'from mercore.jobs.cli import main; main(prog_name=\"mercore\")'"
    command.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    command.chmod(0o755)
    script = CliRunner().invoke(main, ["completion", "bash"], prog_name="mercore").output
    (tmp_path / "script").write_text(script)
    ours, terminal = pty.openpty()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "INPUTRC": os.devnull}
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    ) as shell:
        os.write(ours, b". ./script\nmercore info ba\t")
        shown, give_up = b"", time.monotonic() + 20
        while b"base.bvecs" not in shown and time.monotonic() < give_up:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 1 << 16)
        shell.kill()
    os.close(ours)
    os.close(terminal)
    assert b"base.bvecs" in shown, shown
