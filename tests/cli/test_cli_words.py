"""After a mistake, the command line prints the error and a next step that works."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import ais_tar2tf as t2t
from ais_tar2tf.cli.app import app
from ais_tar2tf.cli.failures import remedy_for
from ais_tar2tf.errors import AccessDenied, ExportError, OptionError, StoreError
from ais_tar2tf.recordfiles.export import write_payloads
from tests.support import shards as made

VERBS = ("ls", "inspect", "card", "convert", "finish", "verify", "index", "pack", "put", "serve", "bench")
_COMMAND = re.compile(r"ais-tar2tf ((?:ls|inspect|doctor) [^;…]*?)(?: \(|; | shows|$)", re.MULTILINE)


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner(env={"COLUMNS": "300", **environment}).invoke(app, [str(each) for each in arguments])


def steps_of(done: Result) -> list[str]:
    return [line.partition("next:")[2].strip() for line in done.stderr.splitlines() if line.startswith("next:")]


@pytest.fixture
def words_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with shards, images and other files. Its subfolder `buckets` is served."""
    monkeypatch.chdir(tmp_path)
    for folder in ("shards", "empty", "buckets/b/sub", "buckets/void", "photos/ant", "photos/bee", "more files"):
        Path(folder).mkdir(parents=True)
    for number in range(2):
        data = made.labelled(f"n{number}", 4)
        Path(f"shards/train-{number}.tar").write_bytes(data)
        Path(f"buckets/b/sub/train-{number}.tar").write_bytes(data)
        Path(f"photos/ant/{number}.jpg").write_bytes(made.image(number))
        Path(f"photos/bee/{number}.jpg").write_bytes(made.image(number))
    Path("cut.tar").write_bytes(Path("shards/train-0.tar").read_bytes()[:2_000])
    Path("more files/bad.tar").write_bytes(b"no archive" * 100)
    Path("notes.txt").write_text("a note\n")
    Path("table.csv").write_text("filename,label\nnone.jpg,1\n")
    with t2t.serve("buckets", port=0) as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        yield tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_without_arguments_names_the_missing_ones(verb: str) -> None:
    done = run(verb)
    assert (done.exit_code, done.stdout) == (2, "")
    usage = done.stderr.splitlines()[0]
    for each in usage.partition("[OPTIONS] ")[2].replace("...", "").split():
        assert f"{each} (" in done.stderr.partition("missing: ")[2]
    assert steps_of(done)[0].startswith(f"ais-tar2tf {verb} --help; for example: ais-tar2tf {verb} ")


@pytest.mark.parametrize(
    ("verb", "given", "missing"),
    [("convert", "shards/", "OUT"), ("put", "notes.txt", "URL"), ("pack", "photos/", "URL")],
)
def test_the_missing_argument_is_the_one_after_the_given_ones(verb: str, given: str, missing: str) -> None:
    for arguments in ([given], [given, "--json"], ["-q", given]):
        done = run(verb, *arguments)
        assert done.exit_code == 2
        assert f"error: missing: {missing} (" in done.stderr
        assert done.stderr.count("missing: ") == 1


def test_a_wrong_option_is_reported_before_a_missing_argument() -> None:
    assert "No such option: --nosuch" in run("convert", "x", "--nosuch").stderr
    assert "a whole number is expected" in run("inspect", "x", "--records", "many").stderr
    assert "did you mean 'inspect'" in run("inpect").stderr.replace("Did", "did")
    assert run("convert", "--help").exit_code == 0


WRONG = """
ls none.tar
ls none
ls empty
ls 'shards/*.zip'
ls ais://nobucket
ls ais://void
ls ais://b/none/
ls ais:/b
ls aws://b/x
ls ais:///x.tar
ls 'shards/train-{0..999999999}.tar'
ls 'shards/train-{0..3.tar'
ls shards --endpoint http://127.0.0.1:1
inspect none.tar
inspect empty
inspect photos
inspect notes.txt
inspect 'more files/bad.tar'
inspect cut.tar
inspect shards --fields nosuch
inspect shards --fields jgp
inspect shards --fields ,
inspect shards --grouping dot
inspect 'shards/train-{}.tar'
inspect 'shards/train-{0-1}.tar'
inspect 'shards/{split}-0.tar'
card empty
card notes.txt
card shards out.html
card shards -o empty
card shards -o none/x.html
card shards -o notes.txt/x.html
card shards -o s3://b/x.html
card shards -o /dev/null
card shards --fields nosuch
bench empty
bench notes.txt
bench shards -o /dev/null
index empty
index cut.tar
index shards -o notes.txt/x
index shards --counts-only
verify none
verify shards
verify ais://b
finish none
finish shards
convert none.tar out
convert photos out
convert notes.txt out
convert cut.tar out
convert 'more files/bad.tar' out
convert shards notes.txt
convert shards notes.txt/x
convert shards /dev/null/x
convert shards http://127.0.0.1:1/x
convert shards aws://b/x
convert shards out --format tfrecrd
convert shards out --on-error skip
convert shards out --grouping dot
convert shards out --shard 3/3
convert shards out --shard 1of3
convert shards out --types cls
convert shards out --types nosuch=int64
convert shards out --fields nosuch
convert shards out --shard-size 1XB
convert shards/train-0.tar shards/train-1.tar
pack photos 'p/%05d.tar'
pack photos p/
pack photos 'p/{split}-{}.tar'
pack photos 'p/x-{}.tar' --splits
pack photos 'p/x-{}.tar' --classes ant
pack photos 'p/x-{}.tar' --labels folder
pack photos 'notes.txt/x-{}.tar'
pack photos http://127.0.0.1:1/x.tar
pack notes.txt 'p/x-{}.tar'
pack table.csv 'p/x-{}.tar'
pack empty 'p/x-{}.tar'
pack none 'p/x-{}.tar'
pack photos 'ais://nobucket/x-{}.tar' --no-create
put none.tar ais://b/
put notes.txt bucket
put notes.txt notes.txt/
put notes.txt ais://
put notes.txt http://127.0.0.1:1/
serve none
serve notes.txt
serve photos --host 192.0.2.1
"""


@pytest.mark.parametrize("line", [line for line in WRONG.splitlines() if line])
def test_every_failure_has_a_next_step_that_can_be_taken(line: str, words_folder: Path) -> None:
    done = run(*shlex.split(line))
    assert done.exit_code in range(1, 8), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    (step,) = steps_of(done)
    assert step
    for word in re.findall(r"ais-tar2tf (\w+)", step):
        assert run(word, "--help").exit_code == 0
    for command in _COMMAND.findall(step):
        taken = shlex.split(command)
        assert taken != shlex.split(line)
        again = run(*taken, *(["--no-tensorflow"] if taken[0] == "doctor" else []))
        assert again.exit_code not in (1, 2), again.output


@pytest.mark.parametrize("verb", [("inspect",), ("inspect", "--json"), ("card", "-o", "c.html")])
def test_a_misspelt_field_is_refused_with_a_suggestion(words_folder: Path, verb: tuple[str, ...]) -> None:
    Path("many.tar").write_bytes(made.labelled("m", 300))
    for shards, tried in (("shards", "the 8 records"), ("many.tar", "the first 64 records")):
        done = run(*verb, shards, "--fields", "jgp,cls")
        assert (done.exit_code, done.stdout, Path("c.html").exists()) == (2, "", False)
        assert f"error: --fields jgp,cls fits none of {tried}: " in done.stderr
        assert "did you mean 'jpg'?" in done.stderr
        assert steps_of(done) == [f"see which fields there are: ais-tar2tf inspect --records 1 {shards}"]
    Path("shards/other.tar").write_bytes(made.labelled("o", 2, lambda _: {"cls": b"1"}))
    some = run(*verb, "shards", "--fields", "jpg")
    assert (some.exit_code, "fits none" in some.stderr) == (6 if verb[0] == "inspect" else 0, False)


def test_a_type_of_an_unknown_field_is_refused_with_a_suggestion(words_folder: Path) -> None:
    done = run("convert", "shards", "out", "--types", "clas=int64", "--workers", "1")
    assert "types= names field 'clas', and there are: jpg, cls; did you mean 'cls'?" in done.stderr


def test_a_failed_command_does_not_block_the_corrected_one(words_folder: Path) -> None:
    assert run("convert", "shards/train-{00..01}.tar", "out").exit_code == 3
    assert run("convert", "shards/train-{0..1}.tar", "out", "--workers", "1").exit_code == 0
    assert (
        run("convert", "shards/train-0.tar", "out", "--workers", "1").exit_code == 1
    )  # the first export is complete


def test_an_output_folder_with_other_files_is_reported_or_refused(words_folder: Path) -> None:
    before = {path: path.read_bytes() for path in Path("more files").iterdir()}
    refused = run("convert", "shards", "more files", "--exists", "error")
    assert (refused.exit_code, "more files/bad.tar: something else is there" in refused.stderr) == (1, True)
    assert {path: path.read_bytes() for path in Path("more files").iterdir()} == before
    told = run("convert", "shards", "more files", "--workers", "1")
    assert told.exit_code == 0
    assert "warning: more files holds other files, as bad.tar; they stay" in told.stderr
    assert Path("more files/bad.tar").read_bytes() == before[Path("more files/bad.tar")]
    assert "warning" not in run("convert", "shards", "more files").stderr  # the folder already has an export
    with pytest.raises(ExportError, match="something else is there"):
        t2t.open("shards").export("photos", workers=1, exists="error")


def test_an_export_explains_its_output_argument(words_folder: Path) -> None:
    source = t2t.open("shards")
    with pytest.raises(OptionError, match=r"out is empty: name a folder or a URL; '\.' is"):
        source.export("", workers=1)
    for out in ("notes.txt", "notes.txt/out"):
        with pytest.raises(ExportError, match="a file is in the way; out is a folder, or a URL"):
            source.export(out, workers=1)
    with pytest.raises(OptionError, match="100 is a number of bytes; say a unit, as 100MB"):
        source.export("sized", workers=1, shard_size="100")
    assert len(source.export("sized", workers=1, shard_size="1000B")) == len(
        source.export("counted", workers=1, shard_size=1_000)
    )


def test_shards_that_are_loaded_as_record_files_name_what_opens_them(words_folder: Path) -> None:
    with pytest.raises(ExportError, match=r"no export was finished there; shards are read by t2t\.open$"):
        t2t.load("shards")


@pytest.mark.parametrize("exists", ["resume", "replace"])
def test_python_warns_of_an_output_folder_with_other_files(
    words_folder: Path, caplog: pytest.LogCaptureFixture, exists: str
):
    t2t.open("shards").export("more files", workers=1, exists=exists)
    assert "more files holds other files, as bad.tar; they stay. An empty folder keeps" in caplog.text
    caplog.clear()
    t2t.open("shards").export("more files", workers=1, exists=exists)
    t2t.open("shards").export("empty", workers=1, exists=exists)
    assert not caplog.text


@pytest.mark.parametrize("name", ["features.json", "cls.labels.txt"])
def test_documents_of_another_data_set_are_not_overwritten(words_folder: Path, name: str) -> None:
    assert run("pack", "photos", "classed/{}.tar").exit_code == 0
    Path("tfds").mkdir()
    Path("tfds", name).write_text("{}")
    done = run("convert", "classed", "tfds", "--workers", "1", "--types", "cls=int64")
    assert (done.exit_code, "this file exists, and no manifest lists it" in done.stderr) == (1, True)
    assert [(each.name, each.read_text()) for each in Path("tfds").iterdir()] == [(name, "{}")]


@pytest.mark.parametrize("exists", ["resume", "replace", "error"])
@pytest.mark.parametrize("theirs", [b'{"name": "an extension of a browser"}', b"no JSON", b""])
def test_a_manifest_of_another_program_is_refused(words_folder: Path, theirs: bytes, exists: str) -> None:
    Path("more files/manifest.json").write_bytes(theirs)
    done = run("convert", "shards", "more files", "--exists", exists)
    assert (done.exit_code, Path("more files/manifest.json").read_bytes()) == (1, theirs)
    assert "more files/manifest.json: another program's file is there" in done.stderr
    assert steps_of(done) == ["choose another OUT, or move that file away"]
    with pytest.raises(ExportError, match="no manifest of an export: name another folder"):
        t2t.load("more files")


def test_a_device_is_not_replaced_by_a_file(words_folder: Path) -> None:
    os.mkfifo("pipe.html")
    assert run("card", "shards", "-o", "pipe.html").exit_code == 2
    assert run("bench", "shards", "-o", "pipe.html").exit_code == 2
    os.mkfifo("pipe.txt")
    assert run("put", "notes.txt", "./pipe.txt").exit_code == 1
    with pytest.raises(ExportError, match="a device or a pipe"):
        write_payloads("pipe.html", [b"a"])
    assert Path("pipe.html").is_fifo()
    assert Path("pipe.txt").is_fifo()


CALLS = {
    "open": lambda given: t2t.open("shards", **given),
    "iter_records": lambda given: t2t.iter_records("shards/train-{0..1}.tar", **given),
    "index": lambda given: t2t.index("shards", "elsewhere", **given),
    "load": lambda given: t2t.load("done", **given),
    "export": lambda given: t2t.open("shards").export("out", workers=1, **given),
    "finish": lambda given: t2t.finish("done", **given),
    "pack": lambda given: t2t.pack([{"__key__": "a", "txt": "x"}], "packed/{}.tar", **given),
}


@pytest.mark.parametrize("given", [{"endpoint": "http://127.0.0.1:1"}, {"token": "secret"}, {"token": str}])
@pytest.mark.parametrize("call", CALLS)
def test_an_endpoint_or_a_token_for_a_path_is_refused(
    words_folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, given: dict[str, Any]
) -> None:
    t2t.open("shards").export("done", workers=1)
    before = sorted(words_folder.rglob("*"))
    with pytest.raises(OptionError, match=f"^{next(iter(given))}= has no effect for .*; say 'ais://") as refused:
        CALLS[call](given)
    assert "secret" not in str(refused.value)
    assert sorted(words_folder.rglob("*")) == before
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "of another program")
    CALLS[call]({})


def test_an_endpoint_for_one_of_two_arguments_is_accepted(words_folder: Path) -> None:
    url = os.environ.pop("AIS_ENDPOINT")
    for urls, out in (("shards", "ais://b/index"), ("ais://b/sub/", "index")):
        assert len(t2t.index(urls, out, endpoint=url)) == 2
        assert len(t2t.open(urls, index=out, endpoint=url)) == 8
    for urls, out in (("shards", "ais://b/out"), ("ais://b/sub/", "out")):
        assert run("convert", urls, out, "--endpoint", url, "--workers", "1").exit_code == 0
    for urls in ("http://h/0.tar", "https://h/0.tar"):
        with pytest.raises(OptionError, match="token= has no effect for"):
            t2t.open(urls, token="x")
    with pytest.raises(StoreError, match="no store for this scheme"):
        t2t.open("aiss://b/0.tar", endpoint=url, token="x")


@pytest.mark.parametrize("verb", [("card",), ("bench", "--no-tensorflow", "--seconds", "0.05")])
def test_a_page_replaces_pages_and_nothing_else(words_folder: Path, verb: tuple[str, ...]) -> None:
    mine = {path: path.read_bytes() for path in map(Path, ("shards/train-0.tar", "notes.txt"))}
    for path in mine:
        refused = run(*verb, "shards", "-o", path)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert (
            f"--out {path}: this file is there, and is no page of ais-tar2tf; choose another name" in refused.stderr
        )
    assert {path: path.read_bytes() for path in mine} == mine
    Path("page.html").touch()
    for _ in range(2):
        assert run(*verb, "shards", "-o", "page.html").exit_code == 0
    refused = run(*verb, "shards", "-o", "more files")
    assert (refused.exit_code, "say --out 'more files/card.html'" in refused.stderr) == (2, True)
    refused = run(*verb, "shards", "-o", "none/page.html")
    assert (refused.exit_code, "there is no folder none; make it" in refused.stderr) == (2, True)


@pytest.mark.parametrize("name", ["shards/train-0.tar", "notes.txt", "records/manifest.json", "settings.json"])
def test_an_index_replaces_indexes_and_nothing_else(words_folder: Path, name: str) -> None:
    t2t.open("shards").export("records", workers=1)
    Path("settings.json").write_text('{"mine": 1} // and my remark')
    before = Path(name).read_bytes()
    refused = run("index", "shards", "-o", name)
    assert (refused.exit_code, Path(name).read_bytes()) == (1, before)
    assert f"{name}: this file is there, and is no index" in refused.stderr
    assert steps_of(refused) == ["the same command with another --out; that file stays as it is"]
    for out in ("index.t2t", "wids.json"):
        assert run("index", "shards", "-o", out).exit_code == 0
        Path(out).write_bytes(Path(out).read_bytes()[:-2])  # a damaged index is written again
        assert run("index", "shards", "-o", out).exit_code == 0


def test_a_page_without_a_record_is_a_failure(words_folder: Path) -> None:
    done = run("card", "more files/bad.tar", "-o", "c.html")
    assert (done.exit_code, Path("c.html").is_file()) == (6, True)
    assert "no record could be read" in done.stderr


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (AccessDenied("x", url="ais://b/0.tar"), "ais-tar2tf doctor ais://b/ --endpoint http://h"),
        (AccessDenied("x", url="s3://b/0.tar"), "ais-tar2tf doctor s3://b/"),
        (AccessDenied("x", url="/none at all/0.tar"), "ls -ld /"),
        (StoreError("x", url="ais://b/my shards/0.tar"), "ais-tar2tf doctor 'ais://b/my shards/'"),
    ],
)
def test_a_next_step_can_be_copied(error: Exception, step: str) -> None:
    assert remedy_for(error, "convert", "http://h").endswith(step)


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        (PermissionError(13, "Permission denied"), "let this user write there"),
        (OSError(28, "No space left on device"), "make room"),
        (NotADirectoryError(20, "Not a directory"), "choose another place"),
    ],
)
def test_outputs_that_cannot_be_written_have_a_suitable_next_step(cause: OSError, step: str) -> None:
    error = ExportError("out: nothing can be written there")
    error.__cause__ = cause
    assert step in remedy_for(error, "convert")
