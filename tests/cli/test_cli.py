"""The command line: stdout, stderr, exit codes, and the effects of each verb on a bucket."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import Result

import ais_tar2tf as t2t
from ais_tar2tf import errors
from ais_tar2tf.base.monitoring import waits
from ais_tar2tf.base.retries import repeat
from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, folded
from ais_tar2tf.cli.diagnosis import Rates, judge
from ais_tar2tf.cli.failures import code_of, remedy_for
from ais_tar2tf.cli.stages import StageMeasurement
from tests.servers.process import free_ports
from tests.support import shards as made
from tests.support.command_line import process, run
from tests.support.fault_server import Fault, FaultServer, plain
from tests.support.kinds_of_stores import new_name

ROOT = Path(t2t.__file__).parents[1]
VERBS = (
    "demo",
    "ls",
    "inspect",
    "card",
    "convert",
    "finish",
    "verify",
    "index",
    "pack",
    "put",
    "serve",
    "bench",
    "doctor",
)


@pytest.fixture
def train_folder(tmp_path: Path) -> Path:
    """Write two good shards in a folder that is also a bucket of `train_server`."""
    bucket = tmp_path / "buckets" / "b"
    bucket.mkdir(parents=True)
    for number in range(2):
        (bucket / f"train-{number}.tar").write_bytes(made.labelled(f"n{number}", 10))
    return bucket


@pytest.fixture
def train_server(train_folder: Path, monkeypatch: pytest.MonkeyPatch):
    with t2t.serve(train_folder.parent) as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        yield server


def cut(folder: Path) -> None:
    """Add a third shard, which is cut."""
    (folder / "train-2.tar").write_bytes(made.labelled("n2", 10)[:12_345])


# All verbs


def test_every_verb_has_help():
    told = run("--help").stdout
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\w", told, re.MULTILINE), verb
        shown = run(verb, "--help")
        assert shown.exit_code == 0
        assert "Usage" in shown.stdout


def test_help_is_quick():
    """Measure CPU time, which does not depend on other load."""
    script = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'ais_tar2tf', '--help'], check=True, stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime)"
    )
    costs = [
        float(
            subprocess.run(
                [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT
            ).stdout
        )
        for _ in range(3)
    ]
    assert min(costs) < 0.5  # 0.2 on an idle machine


def test_help_fits_80_columns_and_its_examples_can_be_copied():
    told = run("--help", COLUMNS="80").stdout
    assert "..." not in told.partition("Commands:")[2].partition("Begin with")[0]  # no sentence is cut
    for verb in VERBS:
        shown = run(verb, "--help", COLUMNS="80").stdout
        assert max(map(len, shown.splitlines())) <= 80
        for example in re.findall(
            r"^    (.*)$", shown.partition("Example")[2].partition("Arguments:")[0], re.MULTILINE
        ):
            assert example.startswith(f"ais-tar2tf {verb}"), example


def test_version_is_the_package_s():
    assert run("--version").stdout == f"ais-tar2tf {t2t.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["ls"],
        ["ls", "--nonsense", "x"],
        ["convert", "a", "b", "--resume", "--exists", "replace"],
        ["convert", str(ROOT), "b", "--shard-size", "9Q"],
        ["convert", str(ROOT), "b", "--shard-size", "9Q", "--dry-run"],
        ["convert", str(ROOT), "b", "--format", "none", "--dry-run"],
        ["convert", str(ROOT), "b", "--on-error", "none", "--dry-run"],
        ["convert", str(ROOT), "b", "--shard", "2/2", "--dry-run"],
    ],
    ids=" ".join,
)
def test_misuse_ends_with_2_and_shows_the_usage(arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "--help" in done.stderr or "-h" in done.stderr


def test_completion_is_offered():
    told = process("--show-completion", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "--show-completion" in run("--help").stdout
    assert told.returncode in (0, 2)


def test_completion_completes_verbs():
    told = process(_AIS_TAR2TF_COMPLETE="complete_bash", COMP_WORDS="ais-tar2tf in", COMP_CWORD="1")
    assert "inspect" in told.stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TemplateError("x"), 2),
        (errors.ShardNotFound("x", url="u"), 3),
        (errors.AccessDenied("x", url="u"), 4),
        (errors.TransportError("x", url="u"), 5),
        (errors.ObjectChanged("x", url="u"), 6),
        (errors.ChecksumMismatch("x", url="u"), 6),
        (errors.TruncatedArchive("x", shard="s", offset=1), 6),
        (errors.UnsupportedArchive("x", shard="s", offset=1), 6),
        (errors.MissingField("x", shard="s", key="k"), 6),
        (errors.MappingError("x", shard="s", key="k"), 6),
        (errors.SchemaError("x"), 6),
        (errors.StoreError("x", url="u"), 2),
        (errors.ExportError("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_are_exit_codes(error, code):
    assert code_of(error) == code
    assert remedy_for(error, "convert", "http://host")


@pytest.mark.parametrize("verb", ["ls", "inspect", "card", "convert", "index", "bench", "doctor"])
@pytest.mark.parametrize(
    ("template", "remedy"),
    [
        ("train-{0..3.tar", "write a range of numbers as 'train-{000..146}.tar', in quotes"),
        ("train-{0..999999999}.tar", "name fewer shards at a time"),
    ],
)
def test_an_invalid_template_ends_with_2_and_a_remedy(verb, template, remedy, train_server, tmp_path):
    done = run(*arguments_of(verb, f"ais://b/{template}", tmp_path))
    assert done.exit_code == 2
    assert template.rpartition("/")[2] in done.stdout + done.stderr
    assert remedy in done.stdout + done.stderr


def test_data_is_on_stdout_and_narration_on_stderr(train_folder):
    done = process("ls", train_folder)
    assert done.returncode == 0
    assert [line.split()[-1] for line in done.stdout.splitlines()] == [
        str(train_folder / f"train-{n}.tar") for n in (0, 1)
    ]
    assert "2 objects" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert process("ls", train_folder, "-q").stderr == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_messages_are_wrapped_between_words_in_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    told = "ais://b/a-very-long-name-that-no-line-can-hold-at-all.tar: the archive ends within a member"
    lines = folded(told, stream=Terminal()).splitlines()
    assert [line.strip() for line in lines] == [told[:58], "the archive ends within a member"]
    assert lines[1].startswith(" " * 7)
    assert folded(told, stream=io.StringIO()) == told  # a pipe gets the text unchanged
    monkeypatch.setattr(sys, "stderr", Terminal())
    Console().error("no", remedy := "ais-tar2tf doctor ais://bucket/with/a/long/name/ --endpoint http://host:51080")
    assert remedy in sys.stderr.getvalue()  # in one piece, so that it can be copied


@pytest.mark.parametrize(
    ("environment", "coloured"), [({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)]
)
def test_no_color_is_respected(environment, coloured, tmp_path):
    done = process("ls", tmp_path / "nothing.tar", **environment)
    assert ("\x1b" in done.stderr) == coloured


def test_a_closed_pipe_is_no_error(train_folder):
    for number in range(3_000):
        (train_folder / f"x-{number:05d}.tar").touch()
    command = f"'{sys.executable}' -m ais_tar2tf ls '{train_folder}' -q | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_with_vv_the_traceback_is_shown():
    done = run("ls", "ais://b", "-vv")
    assert isinstance(done.exception, errors.StoreError)


@pytest.mark.parametrize("verb", ["ls", "inspect", "card", "convert", "verify"])
def test_these_verbs_do_not_import_tensorflow(verb, train_folder, tmp_path):
    assert run("convert", train_folder, tmp_path / "done", "--workers", "1").exit_code == 0
    arguments = {
        "ls": [train_folder],
        "inspect": [train_folder],
        "card": [train_folder, "-o", tmp_path / "card.html"],
        "convert": [train_folder, tmp_path / "out", "--workers", "1"],
        "verify": [tmp_path / "done"],
    }[verb]
    script = (
        "import sys; from ais_tar2tf.cli.app import app\n"
        f"try: app({[verb, *map(str, arguments)]!r})\n"
        "except SystemExit as end: print(end.code, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True, timeout=200
    )
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr


# ls, put, serve


def test_ls_lists_objects(train_server, train_folder):
    done = run("ls", "ais://b", "--json")
    sizes = {f"ais://b/{each.name}": each.stat().st_size for each in train_folder.iterdir()}
    document = json.loads(done.stdout)
    assert {each["url"]: each["size"] for each in document["objects"]} == sizes
    assert (document["count"], document["bytes"]) == (2, sum(sizes.values()))
    assert (
        run("ls", "ais://b/train-{0..1}.tar").stdout
        == run("ls", "ais://b/*.tar").stdout
        == run("ls", "ais://b/").stdout
    )


def test_ls_of_a_missing_object_ends_with_3_and_a_remedy(train_server):
    done = run("ls", "ais://b/train-{0..3}.tar")
    assert done.exit_code == 3
    assert "ais://b/train-2.tar" in done.stderr
    assert "ais-tar2tf ls ais://b/" in done.stderr
    assert run("ls", "ais://b/none/").exit_code == 3


@pytest.fixture
def nobody(monkeypatch) -> str:
    """An endpoint that refuses connections, and stores that retry without delays."""

    def without_delays(once, retry, *, pause, draw, **more):
        return repeat(once, retry, pause=lambda _: None, draw=lambda: 0.0, **more)

    monkeypatch.setattr(waits, "repeat", without_delays)
    return f"http://127.0.0.1:{free_ports(1)[0]}"


def test_ls_of_an_unreachable_store_ends_with_5(nobody):
    done = run("ls", "ais://b", "--endpoint", nobody)
    assert done.exit_code == 5
    assert f"next:  see where it fails: ais-tar2tf doctor ais://b/ --endpoint {nobody}" in done.stderr
    assert "Trying again" not in one_line(done)  # a wait of two seconds is reported: tests/base/test_waits.py
    assert one_line(run("ls", "ais://b", "--endpoint", nobody, "-v")).count("Trying again") > 1
    assert "Trying again" not in one_line(run("ls", "ais://b", "--endpoint", nobody, "-q"))


def one_line(done: Result) -> str:
    """Return what a verb printed to stderr, without the line breaks of the terminal."""
    return " ".join(done.stderr.split())


def test_ls_lists_buckets(train_server, train_folder, tmp_path):
    (train_folder.parent / "other").mkdir()
    done = run("ls", "ais://")
    assert done.stdout == "ais://b\nais://other\n"
    assert "ais-tar2tf ls ais://b" in done.stderr
    assert json.loads(run("ls", "ais://", "--json").stdout) == {"buckets": ["ais://b", "ais://other"]}
    (tmp_path / "empty").mkdir()
    with t2t.serve(tmp_path / "empty") as empty:
        done = run("ls", "ais://", "--endpoint", empty.url)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "there are no buckets yet\n")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ais://none", "ais-tar2tf ls ais://\n"),  # for a missing bucket, the step lists the buckets
        ("ais://none/", "ais-tar2tf ls ais://\n"),
        ("ais://b/none/", "ais-tar2tf ls ais://b/\n"),
        ("ais://b/none.tar", "ais-tar2tf ls ais://b/\n"),
    ],
)
def test_a_missing_object_is_answered_with_a_suggestion(train_server, url, told):
    assert told in run("ls", url).stderr


def test_without_an_endpoint_the_error_explains_how_to_set_it(monkeypatch):
    monkeypatch.delenv("AIS_ENDPOINT", raising=False)
    done = run("ls", "ais://b")
    assert done.exit_code == 2
    assert re.search(r"^next: .*--endpoint .*AIS_ENDPOINT.*ais-tar2tf demo$", done.stderr, re.MULTILINE)


# Exit codes of each verb: missing objects, denied access, unreachable servers, damaged data

READERS = {
    "ls": ["URL"],
    "inspect": ["URL"],
    "card": ["URL", "-o", "OUT.html"],
    "convert": ["URL", "OUT", "--workers", "1"],
    "verify": ["FOLDER"],
    "index": ["URL"],
    "bench": ["URL", "--no-tensorflow", "--seconds", "0.05"],
    "doctor": ["URL", "--no-tensorflow"],
}
WRITERS = {"pack": ["FILES", "ais://new/x-{}.tar"], "put": ["FILES", "ais://new"]}


def arguments_of(verb: str, url: str, tmp_path: Path) -> list[str]:
    (tmp_path / "files").mkdir(exist_ok=True)
    (tmp_path / "files" / "a.txt").write_text("text", encoding="utf-8")
    given = {"URL": url, "FOLDER": url.rpartition("/")[0], "FILES": str(tmp_path / "files")}
    words = {**READERS, **WRITERS}[verb]
    return [verb, *(given.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in words)]


@pytest.mark.parametrize("verb", READERS)
def test_a_missing_object_ends_with_3(verb, train_server, tmp_path):
    done = run(*arguments_of(verb, "ais://b/none-{0..1}.tar", tmp_path))
    assert (done.exit_code, "Traceback" in done.stderr) == (3, False), done.stderr


@pytest.mark.parametrize("verb", [*READERS, *WRITERS])
def test_denied_access_ends_with_4(verb, train_folder, tmp_path):
    with t2t.serve(train_folder.parent, token="right") as server:
        done = run(*arguments_of(verb, "ais://b/train-0.tar", tmp_path), AIS_ENDPOINT=server.url)
    assert done.exit_code == 4, done.stderr


@pytest.mark.parametrize("verb", [*READERS, *WRITERS])
def test_an_unreachable_server_ends_with_5(verb, nobody, tmp_path, monkeypatch):
    monkeypatch.setattr("ais_tar2tf.fetch.downloader.Downloader._pause", lambda *_: None)
    done = run(*arguments_of(verb, "ais://b/train-0.tar", tmp_path), AIS_ENDPOINT=nobody)
    assert done.exit_code == 5, done.stderr


@pytest.mark.parametrize(("verb", "code"), [("inspect", 6), ("convert", 6), ("index", 6), ("ls", 0), ("card", 0)])
def test_damaged_data_end_with_6_if_they_end_the_verb(verb, code, train_server, train_folder, tmp_path):
    cut(train_folder)
    done = run(*arguments_of(verb, "ais://b/train-2.tar", tmp_path))
    assert done.exit_code == code, done.stderr


def test_a_wrong_token_ends_with_4_and_is_not_shown(train_folder, monkeypatch):
    with t2t.serve(train_folder.parent, token="right") as server:
        monkeypatch.setenv("AIS_AUTHN_TOKEN", "wrong-secret")
        done = run("ls", "ais://b", "--endpoint", server.url)
    assert done.exit_code == 4
    assert "wrong-secret" not in done.stdout + done.stderr


def test_put_stores_and_continues(train_server, train_folder, tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("a.tar", "deep/b.tar"):
        (tmp_path / "in" / name).write_bytes(name.encode())
    assert json.loads(run("put", tmp_path / "in", "ais://new/x", "--dry-run", "--json").stdout)["stored"] == [
        "ais://new/x/a.tar",
        "ais://new/x/deep/b.tar",
    ]
    assert not (train_folder.parent / "new").exists()
    done = run("put", tmp_path / "in", "ais://new/x")
    assert done.stdout.split() == ["ais://new/x/a.tar", "ais://new/x/deep/b.tar"]
    assert (train_folder.parent / "new" / "x" / "deep" / "b.tar").read_bytes() == b"deep/b.tar"
    again = json.loads(run("put", tmp_path / "in", "ais://new/x/", "--json").stdout)
    assert (len(again["stored"]), len(again["kept"])) == (0, 2)
    assert run("put", tmp_path / "nothing", "ais://new").exit_code == 3


@pytest.mark.parametrize("given", [("a/1.tar", "b/1.tar"), ("a", "b"), ("a", "b/1.tar")])
def test_put_refuses_two_files_with_the_same_name(tmp_path, given):
    """The second would replace the first, or count as already stored if both have the same size."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.tar").write_bytes(folder.encode())
    bucket = f"memory://{new_name()}"
    done = run("put", *(tmp_path / each for each in given), f"{bucket}/")
    assert done.exit_code == exits.USAGE
    assert f"{tmp_path}/a/1.tar and {tmp_path}/b/1.tar would both be stored as '1.tar'" in done.stderr
    assert "nothing was stored" in done.stderr
    assert run("put", tmp_path / "a", tmp_path / "a" / "1.tar", f"{bucket}/").exit_code == 0  # the same file


def test_one_file_is_put_under_a_given_name(train_server, tmp_path):
    (tmp_path / "a.tar").write_bytes(b"a")
    for where, stored in (
        ("x/b.tar", "x/b.tar"),
        ("x/b.tar/", "x/b.tar/a.tar"),
        ("x", "x/a.tar"),
        ("x.tgz", "x.tgz/a.tar"),
        ("", "a.tar"),
    ):
        assert run("put", tmp_path / "a.tar", f"ais://new/{where}", "-n").stdout == f"ais://new/{stored}\n"


def test_serve_serves_until_ctrl_c(train_folder):
    for other in (".git", "my photos"):  # no names of buckets
        (train_folder.parent / other).mkdir()
    server = subprocess.Popen(
        [sys.executable, "-m", "ais_tar2tf", "serve", train_folder.parent, "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = server.stdout.readline().strip()
        assert json.loads(run("ls", "ais://b", "--json", "--endpoint", url).stdout)["count"] == 2
        server.send_signal(signal.SIGINT)
        out, told = server.communicate(timeout=200)
    finally:
        server.kill()
        server.wait()
    assert (server.returncode, out) == (0, "")
    assert "Traceback" not in told
    assert f"serving {train_folder.parent}: b\n" in told
    handler = signal.getsignal(signal.SIGINT)
    assert run("serve", train_folder / "nothing").exit_code == 3
    assert signal.getsignal(signal.SIGINT) is handler


# inspect and card


def test_inspect_prints_schema_and_counts(train_server):
    document = json.loads(run("inspect", "ais://b", "--json").stdout)
    assert (document["records"], document["shards"], document["bad"]["count"]) == (20, 2, 0)
    assert [field["name"] for field in document["schema"]["fields"]] == ["jpg", "cls"]
    shown = run("inspect", "ais://b/train-{0..1}.tar").stdout
    assert re.search(r"^jpg +uint8 \(30, 40, 3\) +image jpeg +always", shown, re.MULTILINE)
    assert json.loads(run("inspect", "ais://b", "--json", "--records", "3").stdout)["read"]["whole"] is False
    only = json.loads(run("inspect", "ais://b", "--json", "--fields", "cls,txt?").stdout)
    assert [field["name"] for field in only["schema"]["fields"]] == ["cls"]


def test_inspect_finds_all_faults_and_ends_with_6(train_folder):
    cut(train_folder)
    with tarfile.open(train_folder / "train-3.tar", "w") as archive:
        for name in ("n3/a.cls", "n3/stray", "n3/b.cls"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"1"))
    done = run("inspect", train_folder, "--json")
    assert done.exit_code == 6
    document = json.loads(done.stdout)
    assert document["bad"]["by_kind"] == {"TruncatedArchive": 1, "StrayMember": 1}
    assert [bad["shard"] for bad in document["bad"]["first"]] == [
        str(train_folder / f"train-{n}.tar") for n in (2, 3)
    ]
    assert document["records"] > 22


def test_a_card_is_one_file_also_for_bad_records(train_folder, tmp_path):
    cut(train_folder)
    out = tmp_path / "card.html"
    done = run("card", train_folder, "-o", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n")
    page = out.read_text(encoding="utf-8")
    assert "TruncatedArchive" in page
    assert page.count("<img") > 20
    assert [each.name for each in tmp_path.iterdir() if "card" in each.name] == ["card.html"]
    assert run("card", train_folder, "-o", tmp_path / "none" / "card.html").exit_code == 2
    assert not (tmp_path / "other.html").exists()
    rehearsed = run("card", train_folder, "-o", tmp_path / "other.html", "--dry-run", "--json")
    assert json.loads(rehearsed.stdout)["shards"] == 3
    assert run("card", train_folder / "none", "-o", tmp_path / "other.html", "--dry-run").exit_code == 3
    assert not (tmp_path / "other.html").exists()


def test_inspect_and_card_of_an_export(train_folder, tmp_path):
    out = tmp_path / "out"
    assert run("convert", train_folder, out, "--workers", "1").exit_code == 0
    assert json.loads(run("inspect", out, "--json").stdout)["records"] == 20
    page = tmp_path / "card.html"
    assert json.loads(run("card", out, "--dry-run", "--json").stdout)["shards"] == 1
    document = json.loads(run("card", out, "-o", page, "--json").stdout)
    assert (document["card_bytes"], document["records"]) == (page.stat().st_size, 20)
    assert "t2t.load(" in (tmp_path / "card.html").read_text(encoding="utf-8")


# convert, verify, pack


def test_a_kind_of_fault_is_shown_a_few_times(train_folder):
    rows = [{"__key__": str(number), **({"a": "x"} if number == 0 else {"b": "x"})} for number in range(20)]
    t2t.pack(rows, train_folder / "mixed.tar")
    done = run("inspect", train_folder / "mixed.tar", "--fields", "a")
    assert done.exit_code == 6
    assert re.search(r"^ +19 × MissingField$", done.stdout, re.MULTILINE)
    assert done.stdout.count("field 'a' is missing") == 3


def test_convert_makes_the_bucket_and_reports_if_nothing_was_to_do(train_server):
    assert run("convert", "ais://b", "ais://made", "--workers", "1").exit_code == 0
    assert run("verify", "ais://made").stdout.startswith("whole: 1 file, 20 records, ")
    again = run("convert", "ais://b", "ais://made", "--workers", "1")
    assert (again.exit_code, "written before" in again.stderr) == (0, True)


def test_convert_and_verify(train_server, tmp_path):
    out = tmp_path / "out"
    rehearsed = json.loads(run("convert", "ais://b/", out, "--dry-run", "--json").stdout)
    assert rehearsed["shards"] == 2
    assert not out.exists()
    done = run("convert", "ais://b/train-{0..1}.tar", out, "--shard-records", "8", "--workers", "1", "--json")
    document = json.loads(done.stdout)
    assert document["splits"]["train"] == {
        "records": 20, "bytes": document["splits"]["train"]["bytes"], "files": 3, "skipped": {},
    }  # fmt: skip
    assert [Path(each).name for each in document["files"]] == [
        f"dataset-train.tfrecord-0000{n}-of-00003" for n in range(3)
    ]
    assert json.loads(run("verify", out, "--json").stdout)["records"] == 20
    assert run("convert", "ais://b/train-{0..1}.tar", out, "--shard-records", "8", "--workers", "1").exit_code == 0
    assert run("convert", "ais://b/train-{0..1}.tar", out, "--shard-records", "9").exit_code == 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_verify_ends_with_6_and_names_the_file(train_folder, tmp_path, damage):
    out = tmp_path / "out"
    run("convert", train_folder, out, "--workers", "1", "--shard-records", "8")
    file = sorted(out.glob("*.tfrecord*"))[1]
    data = bytearray(file.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "cut":
        file.write_bytes(data[:-3])
    else:
        file.unlink()
    done = run("verify", out)
    assert done.exit_code == 6
    assert file.name in done.stderr
    assert done.stdout == ""
    document = json.loads(run("verify", out, "--json").stdout)
    assert (document["whole"], file.name in document["fault"]) == (False, True)


def test_verify_of_nothing_ends_with_3(tmp_path):
    assert run("verify", tmp_path).exit_code == 3


def test_verify_of_a_damaged_manifest_ends_with_6(train_folder, tmp_path):
    out = tmp_path / "out"
    run("convert", train_folder, out, "--workers", "1")
    manifest = out / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"records": 20', b'"records": 21'))
    done = run("verify", out)
    assert done.exit_code == 6
    assert "--exists replace" in done.stderr


def test_inspect_promises_more_bad_records_only_if_there_are_more(tmp_path):
    twice = [(key, {"cls": b"1"}) for key in ("a", "b", "a", "b")]
    no_fields = [(name, {"": b""}) for name in ("c", "d")]
    (tmp_path / "x.tar").write_bytes(made.tar([*twice, *no_fields]))
    shown = run("inspect", tmp_path / "x.tar").stdout
    assert "2 × " in shown
    assert "--json names more" not in shown


def test_skipped_records_are_reported_and_end_with_7(train_folder, tmp_path):
    cut(train_folder)
    assert run("convert", train_folder, tmp_path / "strict", "--workers", "1").exit_code == 6
    done = run("convert", train_folder, tmp_path / "out", "--on-error", "skip-shard", "--workers", "1")
    assert done.exit_code == 7
    assert "1 × TruncatedArchive skipped" in done.stderr
    assert re.search(r"^train .* 1 +0$", done.stdout, re.MULTILINE)


class _HeldBack(SimpleHTTPRequestHandler):
    """Serves a folder, whose last shard is not sent before an event is set."""

    released: ClassVar = threading.Event()

    def do_GET(self):
        if self.path.endswith("train-9.tar"):
            self.released.wait(90)
        super().do_GET()

    def log_message(self, *_):
        pass


def test_ctrl_c_reports_progress_and_the_same_command_resumes(train_folder, tmp_path):
    for number in range(2, 10):
        (train_folder / f"train-{number}.tar").write_bytes(made.labelled(f"n{number}", 300))
    out = tmp_path / "out"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_HeldBack, directory=train_folder)) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{web.server_port}/train-{{0..9}}.tar"
        arguments = ["convert", url, str(out), "--workers", "1", "--shard-records", "100"]
        running = subprocess.Popen(
            [sys.executable, "-m", "ais_tar2tf", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        begun = time.monotonic()
        while not any(out.rglob("*")) and running.poll() is None and time.monotonic() < begun + 60:
            os.sched_yield()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=200)
        _HeldBack.released.set()
        assert running.returncode == 7, told
        assert "the same command goes on" in told
        assert "Traceback" not in told
        assert not (out / "manifest.json").exists()
        assert process(*arguments).returncode == 0
        web.shutdown()
    assert json.loads(run("verify", out, "--json").stdout)["records"] == 20 + 8 * 300


def test_an_index_gives_a_length_and_single_records(train_server, train_folder, tmp_path):
    assert json.loads(run("index", "ais://b", "--dry-run", "--json").stdout)["shards"] == 2
    assert len(list(train_folder.iterdir())) == 2
    document = json.loads(run("index", "ais://b", "--json").stdout)
    assert document == {"records": 20, "shards": [{"shard": f"train-{n}.tar", "records": 10} for n in range(2)]}
    source = t2t.open("ais://b/train-{0..1}.tar", endpoint=train_server.url)
    assert (len(source), source[12]["__key__"]) == (20, "n1/000002")
    assert run("inspect", "ais://b").exit_code == 0  # the index is no shard
    assert run("index", "ais://b", "-o", tmp_path / "wids.json").exit_code == 0
    wids = json.loads((tmp_path / "wids.json").read_text(encoding="utf-8"))
    assert sum(shard["nsamples"] for shard in wids["shardlist"]) == 20
    cut(train_folder)
    assert run("index", "ais://b/train-{0..2}.tar").exit_code == 6


def test_pack_makes_shards_of_a_folder(train_server, tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "pets" / label / f"{number}.jpg").write_bytes(made.image(number))
    assert json.loads(run("pack", tmp_path / "pets", "ais://pets/{:03d}.tar", "-n", "--json").stdout)["records"] == 6
    done = run("pack", tmp_path / "pets", "ais://pets/{:03d}.tar", "--shard-records", "4", "--no-shuffle")
    assert done.stdout.split() == ["ais://pets/000.tar", "ais://pets/001.tar"]
    labels = [record["cls"] for record in t2t.open("ais://pets/{000..001}.tar", endpoint=train_server.url).records()]
    assert labels == [b"0"] * 3 + [b"1"] * 3
    assert run("pack", tmp_path / "pets", "ais://pets/{:03d}.tar").exit_code == 1
    assert run("pack", tmp_path / "none", "ais://pets/x-{:03d}.tar").exit_code == 3
    nameless = run("pack", tmp_path / "pets", "ais://nameless/")
    assert (nameless.exit_code, "'ais://nameless/train-{:05d}.tar'" in nameless.stderr) == (2, True)
    assert run("pack", tmp_path / "none", "ais://sourceless/x-{}.tar").exit_code == 3
    assert run("ls", "ais://").stdout.split() == ["ais://b", "ais://pets"]  # no other bucket was created


# doctor, bench, demo


def test_doctor_finds_nothing_wrong_here(train_server):
    done = run("doctor", "ais://b", "--no-tensorflow", "--json")
    document = json.loads(done.stdout)
    assert document["healthy"] is True
    assert done.exit_code == 0
    states = {check["what"]: check["state"] for check in document["checks"]}
    for what in (
        "Python",
        "memory",
        "disk",
        "credentials",
        "endpoint",
        "DNS",
        "connection",
        "health",
        "clock",
        "data",
    ):
        assert states[what] == "ok", what
    assert "first byte" in states


def test_doctor_reports_faults_and_remedies(train_folder, monkeypatch):
    done = run("doctor", "--no-tensorflow", "--endpoint", f"http://127.0.0.1:{free_ports(1)[0]}")
    assert done.exit_code == 5
    assert re.search(r"✗ connection .*\n +→ is the cluster up", done.stdout)
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "wrong-secret")
    with t2t.serve(train_folder.parent, token="right") as server:
        done = run("doctor", "ais://b", "--no-tensorflow", "--endpoint", server.url)
    assert done.exit_code == 4
    assert "it is refused" in done.stdout
    assert "wrong-secret" not in done.stdout + done.stderr


def test_doctor_detects_a_wrong_clock_and_missing_tls(train_server):
    from ais_tar2tf.cli import network_checks

    found = {
        finding.what: finding for finding in network_checks.endpoint(train_server.url, now=lambda: time.time() - 3600)
    }
    assert found["clock"].state == "fault"
    assert re.match(r"(59 min|1 h 00 min) .*apart from the server's", found["clock"].found)
    found = {finding.what: finding for finding in network_checks.endpoint(train_server.url.replace("http", "https"))}
    assert found["TLS"].state == "fault"
    assert "http://" in found["TLS"].remedy


@pytest.mark.parametrize(
    ("status", "state"),
    [(200, "ok"), (401, "fault"), (403, "fault"), (302, "remark"), (404, "remark"), (500, "remark"), (503, "remark")],
)
@pytest.mark.parametrize("token", ["", "secret"])
def test_doctor_judges_a_token_only_by_an_answer_about_it(monkeypatch, status, state, token):
    from ais_tar2tf.cli import network_checks

    monkeypatch.setenv("AIS_AUTHN_TOKEN", token)
    with FaultServer() as server:
        server.add("v1/health", plain(b""))
        faults = [Fault(status=status, headers={"Location": "/"})] if status > 200 else []
        server.add("v1/buckets", plain(b"[]"), faults)
        (check,) = (each for each in network_checks.endpoint(server.url) if each.what == "token")
    assert check.state == state
    assert (f"/v1/buckets answers {status}" in check.found) is (state == "remark")


def rate(name: str, bytes_per_second: float) -> StageMeasurement:
    return StageMeasurement(name, 1.0, bytes_per_second, bytes_per_second / 1e4)


@pytest.mark.parametrize(
    ("download", "parse", "decode", "bottleneck"),
    [(50e6, 500e6, 300e6, "download"), (900e6, 100e6, 300e6, "parse"), (900e6, 500e6, 20e6, "decode")],
)
def test_the_slowest_stage_is_the_bottleneck(download, parse, decode, bottleneck):
    downloads = [(2, rate("download, 2", download)), (8, rate("download, 8", download * 1.5))]
    rates = Rates(downloads, rate("parse", parse), rate("tf.data", 600e6), rate("decode", decode))
    verdict = judge(rates, 1e4, 4, batch=128)
    assert verdict.bottleneck == bottleneck
    assert verdict.connections == (8 if bottleneck == "download" else 2)
    assert (", parallel=4" in verdict.code) == (bottleneck == "decode")
    assert verdict.advice
    assert judge(rates, 4e6, 4, batch=128).batch == 16


@pytest.mark.parametrize(
    ("cumulative", "bottleneck"),
    [
        ((100e6, 95e6, 90e6), "parse"),  # the stages after parsing take hardly any time of their own
        ((100e6, 40e6, 38e6), "tf.data"),
        ((100e6, 90e6, 40e6), "decode"),
        ((100e6, 110e6, 90e6), "parse"),  # noise, or a stage with fewer fields
        ((100e6, 90e6, 0.0), "decode"),
        ((100e6,), "parse"),
    ],
)
def test_a_stage_is_judged_by_the_time_that_it_adds(cumulative, bottleneck):
    stages = [rate(name, each) for name, each in zip(("parse", "tf.data", "decode"), cumulative, strict=False)]
    verdict = judge(Rates([(2, rate("download, 2", 900e6))], *stages), 1e4, 4, batch=128)
    assert verdict.bottleneck == bottleneck


def test_bench_measures_this_bucket(train_server, tmp_path):
    page = tmp_path / "bench.html"
    done = run("bench", "ais://b/train-{0..1}.tar", "--seconds", "0.05", "--no-tensorflow", "--json", "-o", page)
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["stages"]) == 5
    assert all(stage["bytes_per_second"] > 0 for stage in document["stages"])
    assert document["bottleneck"] in ("download", "parse")
    assert document["sample"]["records"] == 20
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert text.count("<li><span") == 5
    assert run("bench", "ais://b/none-{0..1}.tar", "--no-tensorflow").exit_code == 3
    assert run("bench", "ais://b/none/", "--no-tensorflow").exit_code == 3


def test_bench_with_tensorflow(train_folder):
    done = run("bench", train_folder, "--seconds", "0.05", "--batch", "8")
    assert done.exit_code == 0, done.stderr
    for name in ("into tf.data", "decode and resize images", "all together, from the store"):
        assert re.search(rf"^{name} .*records/s$", done.stdout, re.MULTILINE), name
    assert "bottleneck: " in done.stdout


def test_the_demo_needs_no_data(tmp_path):
    done = process("demo", "shown", "--no-train", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1,024 records" in done.stdout
    assert (tmp_path / "shown" / "card.html").is_file()
    again = process("demo", "shown", "--no-train", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "an earlier demo" in again.stderr


def test_ctrl_c_in_the_demo_names_the_remaining_files(tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ais_tar2tf.cli.verbs.demo.train_on", interrupted)
    done = run("demo", tmp_path / "shown")
    assert done.exit_code == exits.INTERRUPTED
    assert f"what was made stays in {tmp_path / 'shown'}" in done.stderr
    assert (tmp_path / "shown" / "card.html").is_file()


@pytest.mark.servers("aistore")
def test_the_whole_way_on_a_real_aistore(aistore, train_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("AIS_ENDPOINT", aistore.url)
    bucket = f"ais://{new_name()}"
    assert len(run("put", train_folder, bucket).stdout.split()) == 2
    url, out, page = f"{bucket}/train-{{0..1}}.tar", tmp_path / "out", tmp_path / "card.html"
    assert json.loads(run("ls", bucket, "--json").stdout)["count"] == 2
    assert json.loads(run("inspect", bucket, "--json").stdout)["records"] == 20
    assert run("card", url, "-o", page).exit_code == 0
    assert page.read_text(encoding="utf-8").count("<img") == 20
    assert run("convert", url, out, "--workers", "1").exit_code == 0
    assert json.loads(run("verify", out, "--json").stdout)["records"] == 20
    assert json.loads(run("index", url, "--json").stdout)["records"] == 20
    doctor = run("doctor", bucket, "--no-tensorflow")
    assert doctor.exit_code == 0, doctor.stdout
    assert run("ls", f"{bucket}/none.tar").exit_code == 3
    assert run("bench", url, "--seconds", "0.05", "--no-tensorflow").exit_code == 0


# Mistakes of beginners


@pytest.mark.parametrize(
    "given",
    [("put", "FOLDER", ""), ("put", "", "FOLDER"), ("ls", ""), ("card", "FOLDER", "-o", ""), ("pack", "FOLDER", "")],
)
def test_an_empty_argument_is_refused_before_anything_is_done(given, tmp_path):
    """An empty path is the current folder or the root, and `put DIR "$UNSET"` would write there."""
    (tmp_path / "a.jpg").write_bytes(b"a")
    done = run(*[str(tmp_path) if each == "FOLDER" else each for each in given])
    assert done.exit_code == 2
    assert "an argument is empty; is a variable of the shell not set?" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.jpg"]


def test_a_bucket_without_its_store_is_no_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tar").write_bytes(b"a")
    done = run("put", "a.tar", "imagenet")
    assert done.exit_code == 2
    assert "say the store too: ais://imagenet, or ./imagenet" in done.stderr
    assert run("put", "a.tar", "./imagenet").exit_code == 0
    assert (tmp_path / "imagenet" / "a.tar").exists()


@pytest.mark.parametrize("verb", ["pack", "convert"])
def test_a_size_of_a_few_bytes_is_refused_with_a_suggestion(verb, train_folder, tmp_path):
    done = run(verb, train_folder, f"{tmp_path}/x-{{}}.tar", "--shard-size", "100")
    assert done.exit_code == 2
    assert "100 is a number of bytes; say a unit, as 100MB" in done.stderr


def test_a_failing_file_system_is_no_usage_error():
    error = errors.StoreError("the file system said: No space left on device", url="/full/0.tar")
    error.__cause__ = OSError(28, "No space left on device")
    assert code_of(error) == 1
    assert "another place" in remedy_for(error)
    assert remedy_for(errors.AccessDenied("may not be read", url="/0.tar")) == (
        "see who may read and write it: ls -ld /"
    )


def test_an_entry_that_cannot_be_read_ends_a_listing_by_an_error(tmp_path):
    (tmp_path / "0.tar").write_bytes(b"")
    (tmp_path / "1.tar").symlink_to("1.tar")  # a link to itself
    done = run("ls", str(tmp_path))
    assert done.exit_code == 1
    assert "1.tar: the file system said: " in done.stderr


def test_inspect_counts_shards_without_records_and_files_of_an_export(train_folder, tmp_path):
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    assert "shards   1 (1 without records)" in run("inspect", tmp_path / "empty.tar").stdout
    assert run("convert", train_folder, tmp_path / "out", "--shard-records", "2").exit_code == 0
    files = len([path for path in (tmp_path / "out").iterdir() if "tfrecord-" in path.name])
    assert files > 1
    assert f"shards   {files}\n" in run("inspect", tmp_path / "out").stdout
