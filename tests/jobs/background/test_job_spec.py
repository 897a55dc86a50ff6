"""A job's spec: the options that were given, with whole paths; its id; and the command line that it
stands for."""

from pathlib import Path

import click
import pytest
from click.core import ParameterSource

from mercore.jobs.background.job_spec import (
    given_options,
    job_id,
    sources_of,
    words_in,
    words_of,
    written_by,
)
from mercore.jobs.cli import main
from mercore.stores.errors import FormatError, InputError, NotFoundError

check, compare, encode, export, ingest, search = (
    main.commands[name] for name in ("check", "compare", "encode", "export", "ingest", "search")
)
VERBS = {"encode": encode, "search": search, "compare": compare}


def options_of(verb: click.Command, *words: str, folder: Path = Path("/data")) -> dict[str, object]:
    """Return the options that a command line gives a verb."""
    return given_options(verb.make_context(verb.name, list(words)), folder)


def test_only_what_was_given_counts_and_paths_are_whole() -> None:
    given = options_of(
        encode, "base", "/other/codes", "--kernel", "own.py", "--atoms", "64", "--memory", "1GiB"
    )
    assert given == {
        "vectors": "/data/base",
        "codes": "/other/codes",
        "kernel": "/data/own.py",
        "atoms": 64,
        "memory": 2**30,
    }
    assert (
        options_of(encode, "s3://bucket/base", "codes", "--kernel", "chi2")["vectors"]
        == "s3://bucket/base"
    )
    assert options_of(export, "codes", "index", "--kernel", "own.py")["kernel"] == "/data/own.py"


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (encode, "base codes --kernel rbf --gamma 1e-05 --encoder kpca-pq --workers 2".split()),
        (search, ["codes", "-odd", "-k", "7", "--exact", "--out", "hits.npz"]),
        (
            compare,
            "b q --kernel chi2 --kernel own.py --encoder pq --encoder kpca:landmarks=9".split(),
        ),
    ],
)
def test_its_words_give_the_same_options_again(verb: click.Command, words: list[str]) -> None:
    given = options_of(verb, *words[2:], "--", *words[:2])
    name, *again = words_of(verb, given)
    assert name == verb.name
    assert options_of(verb, *again, folder=Path("/elsewhere")) == given
    assert len(given) >= 4


@pytest.mark.promise("The same spec is the same job, and submitting it again resumes it")
def test_the_id_is_of_what_decides_the_result() -> None:
    one: dict[str, object] = {"vectors": "/a", "codes": "/b", "kernel": "chi2"}
    assert job_id("encode", one) == job_id(
        "encode", {**one, "workers": 2, "memory": 5, "scheduler": "tcp://x:1"}
    )
    others = [{**one, "kernel": "cosine"}, {**one, "codes": "/c"}, {**one, "atoms": 9}]
    assert len({job_id("encode", each) for each in (one, *others)} | {job_id("search", one)}) == 5


def test_what_a_job_writes_and_reads() -> None:
    options = {"store": "/codes", "queries": "/q", "vectors": "/v", "out": "/hits", "k": 3}
    assert written_by(search, options) == ["/hits"]
    assert sorted(sources_of(search, options)) == ["/codes", "/q", "/v"]
    assert written_by(check, {"store": "/codes"}) == []
    assert sources_of(ingest, {"source": "/s", "store": "/t"}) == ["/s"]
    assert sources_of(search, {"store": "/codes", "queries": "/q", "vectors": None}) == [
        "/codes",
        "/q",
    ]
    exported = {"codes": "/c", "index": "/i", "queries": "/q", "points": "/p"}
    assert sources_of(export, exported) == ["/c", "/q"]
    assert written_by(export, exported) == ["/i", "/p"]


def test_a_set_of_rows_is_a_range_or_a_path() -> None:
    for given, kept, read in [("0:1000", "0:1000", []), ("ids.npy", "/data/ids.npy", ["ids.npy"])]:
        options = options_of(search, "codes", "queries", "--among", given)
        assert options["among"] == kept
        files = sources_of(search, options)
        assert [Path(path).name for path in files] == ["codes", "queries", *read]


def test_a_path_has_one_spelling(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    (folder / "blob").touch()
    (folder / "base.npy").symlink_to(
        "blob"
    )  # a name whose suffix says the format, as caches of downloads have them
    spellings = (
        "codes",
        "../real/codes",
        "../link/codes",
        str(tmp_path / "link/codes"),
        "x/../codes",
        "./codes",
    )
    for folder_now in (folder, tmp_path / "link"):
        for spelling in spellings:
            given = options_of(encode, "base.npy", spelling, "--kernel", "chi2", folder=folder_now)
            assert (given["vectors"], given["codes"]) == (
                str(folder / "base.npy"),
                str(folder / "codes"),
            )
            assert sources_of(encode, given) == [str(folder / "blob")]
            assert written_by(encode, given) == [str(folder / "codes")]
    assert options_of(encode, "..", ".", "--kernel", "chi2", folder=folder)["vectors"] == str(
        tmp_path
    )


def test_no_job_is_named_by_a_number_that_is_not_finite() -> None:
    for text in ("nan", "inf"):
        context = click.Context(encode)
        context.params = {"gamma": float(text)}
        context.set_parameter_source("gamma", ParameterSource.COMMANDLINE)
        with pytest.raises(InputError) as error:
            given_options(context, Path("/data"))
        message = f"gamma is {text}: expected a finite number. Fix: correct it, or leave gamma out."
        assert str(error.value) == message


def test_a_file_states_a_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        'verb = "compare"\nvectors = "b"\nqueries = "q"\nkernel = ["chi2", "cosine"]\nencoder = '
        '"pq"\nmemory = "2GB"\n'
    )
    words = words_in(str(path), VERBS)
    assert words == [
        *"compare --kernel chi2 --kernel cosine --encoder pq --memory 2GB -- b q".split()
    ]
    path.write_text(
        'verb = "search"\nstore = "s"\nqueries = "q"\nexact = true\nk = 3\nout = "h.npz"\n'
    )
    assert words_in(str(path), VERBS) == "search -k 3 --exact --out h.npz -- s q".split()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("verb = ", FormatError, r"^job\.toml is no TOML: .*\. Fix: correct it\.$"),
        (
            'verb = "demo"',
            InputError,
            r"^job\.toml: verb is 'demo', expected one of encode, search, compare\. Fix: ",
        ),
        ("atoms = 3", InputError, r"^job\.toml: verb is None, expected one of "),
        (
            'verb = "encode"\natom = 3',
            InputError,
            r"^job\.toml: encode has no option atom: expected vectors, codes, ",
        ),
        (
            'verb = "encode"\nvectors = "v"',
            InputError,
            r"^job\.toml: codes is missing, which encode needs\. Fix: add",
        ),
        (
            'verb = ["encode"]',
            InputError,
            r"^job\.toml: verb is \['encode'\], expected one of encode, search, ",
        ),
        (
            "verb = {a = 1}",
            InputError,
            r"^job\.toml: verb is \{'a': 1\}, expected one of encode, search, ",
        ),
    ],
)
def test_a_file_that_states_none_is_refused(
    text: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(text)
    with pytest.raises(error, match=message):
        words_in("job.toml", VERBS)


@pytest.mark.parametrize(
    ("verb", "line", "message"),
    [
        ("encode", "atoms = {}", "atoms is {}, expected text or a finite number"),
        ("encode", "atoms = true", "atoms is True, expected text or a finite number"),
        ("encode", "atoms = false", "atoms is False, expected text or a finite number"),
        ("encode", "atoms = [8, 9]", "atoms is [8, 9], expected text or a finite number"),
        ("encode", "gamma = nan", "gamma is nan, expected text or a finite number"),
        ("search", "relaxed = -inf", "relaxed is -inf, expected text or a finite number"),
        ("search", 'out = "a\\u0000b"', "out is 'a\\x00b', expected text or a finite number"),
        ("search", 'store = ["a", "b"]', "store is ['a', 'b'], expected text or a finite number"),
        ("search", "exact = 3", "exact is 3, expected true or false"),
        ("search", 'exact = "yes"', "exact is 'yes', expected true or false"),
        (
            "compare",
            'kernel = ["chi2", true]',
            "kernel is ['chi2', True], expected text, or a list of texts",
        ),
    ],
)
def test_a_value_that_its_name_cannot_have_is_refused(
    verb: str, line: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'verb = "{verb}"\n{line}\n')
    with pytest.raises(InputError) as error:
        words_in(str(path), VERBS)
    assert str(error.value) == f"{path}: {message}. Fix: correct it."


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        NotFoundError,
        match=r"^nowhere\.toml cannot be read: No such file or directory, expected a job",
    ):
        words_in("nowhere.toml", VERBS)


def test_every_verb_that_can_be_submitted_takes_the_verbs_own_options() -> None:
    submit = main.commands["submit"]
    assert isinstance(submit, click.Group)
    for name, command in submit.commands.items():
        custom = [
            parameter
            for parameter in main.commands[name].params
            if parameter.name not in ("json", "every")
        ]
        assert command.params == custom
