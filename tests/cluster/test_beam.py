"""Apache Beam, in its own Python environment, exports the same bytes as one process."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import MissingDependency
from tests.servers.environments import BEAM
from tests.support import shards as made
from tests.support.record_folders import ROOT, fields, source, tree

COUNTS = [30, 0, 13, 40, 1, 25, 7, 3, 0, 9, 22, 5]  # twelve shards, because s-10 must come after s-9
_TWO_PROCESSES = ["direct_num_workers=2", "direct_running_mode=multi_processing"]

_PIPELINE = """
import json, sys, apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from ais_tar2tf.cluster.beam import ConvertShards
urls, out, options = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
with beam.Pipeline(runner=FnApiRunner()) as pipeline:
    files = pipeline | beam.Create(urls) | ConvertShards(out, **options)
    files | beam.combiners.ToList() | beam.Map(lambda found: print(json.dumps(sorted(found))))
"""


def test_without_beam_the_extra_is_named():
    with pytest.raises(MissingDependency, match=r"ais_tar2tf\[beam\]"):
        t2t.cluster.beam.ConvertShards("out")


def _command(*arguments: str) -> list[str]:
    return [str(BEAM.path), *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments), env=_environment(), capture_output=True, text=True, timeout=280, check=False
    )


def _convert(template: str, out: Path, *more: str) -> list[str]:
    options = [word for option in _TWO_PROCESSES for word in ("--runner-option", option)]
    return ["-m", "ais_tar2tf", "convert", template, str(out), "--runner", "DirectRunner", *options, *more]


def _pipeline(urls: list, out: Path, **options) -> list[str]:
    done = _run("-c", _PIPELINE, json.dumps(urls), str(out), json.dumps(options))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def beam_template(tmp_path_factory) -> str:
    return source(tmp_path_factory.mktemp("source"), COUNTS)


@pytest.mark.full
@pytest.mark.servers("beam")
def test_two_processes_write_what_one_writes(beam_template, tmp_path):
    done = _run(*_convert(beam_template, tmp_path / "out", "--shard-records", "12", "--idx", "--json"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    files = t2t.open(beam_template).export(tmp_path / "one", align="shard", shard_records=12, idx=True, workers=1)
    assert [Path(file).name for file in document["files"]] == [Path(file).name for file in files]
    assert tree(tmp_path / "out") == tree(tmp_path / "one")
    again = _run(*_convert(beam_template, tmp_path / "out", "--shard-records", "12", "--idx"))
    assert again.returncode == 0, again.stderr
    assert tree(tmp_path / "out") == tree(tmp_path / "one")
    other = _run(*_convert(beam_template, tmp_path / "out", "--shard-records", "13"))
    assert other.returncode != 0
    assert "exists='replace'" in other.stderr


@pytest.mark.full
@pytest.mark.servers("beam")
def test_urls_come_in_any_order(beam_template, tmp_path):
    """URLs are sorted by name, with numbers as numbers, or by given numbers, for all options of export."""
    urls = list(t2t.open(beam_template).shards)
    options = {"splits": {"train": 0.7, "val": 0.3}, "format": "tar", "name": "mine"}
    t2t.open(beam_template).export(tmp_path / "one", align="shard", workers=1, **options)
    files = _pipeline(sorted(urls, reverse=True), tmp_path / "out", **options)
    assert tree(tmp_path / "out") == tree(tmp_path / "one")
    assert files == sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    backwards = urls[::-1]
    t2t.open(backwards).export(tmp_path / "two", align="shard", workers=1)
    _pipeline(list(enumerate(backwards)), tmp_path / "out-two")
    assert tree(tmp_path / "out-two") == tree(tmp_path / "two")


@pytest.mark.full
@pytest.mark.servers("beam")
def test_a_missing_shard_is_reported_in_one_line(beam_template, tmp_path):
    missing = beam_template.replace("..", "..1")  # s-0 to s-111
    done = _run(*_convert(missing, tmp_path / "out"))
    assert done.returncode == 1
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert re.fullmatch(
        r"error: ExportError: .*: the pipeline failed: ShardNotFound: .*s-\d+\.tar: .*no such file", told
    )
    assert done.stderr.rstrip().endswith(told)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".parts-train"]


class _Stalling(ThreadingHTTPServer):
    """An HTTP server of a folder that delays the answers for one file until `goes_on` is set."""

    def __init__(self, folder: Path, stalled: str) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
        self.stalled = stalled
        self.asked, self.goes_on = threading.Event(), threading.Event()


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.endswith(self.server.stalled):
            self.server.asked.set()
            self.server.goes_on.wait(200)
        super().do_GET()

    def copyfile(self, source, outputfile) -> None:
        try:
            super().copyfile(source, outputfile)
        except OSError:  # the client was killed
            return

    def log_message(self, *_) -> None:
        pass


@pytest.mark.full
@pytest.mark.servers("beam")
def test_a_worker_killed_in_the_middle(tmp_path):
    """The DirectRunner fails. A second run keeps the complete parts."""
    source(tmp_path / "in", [60] * 100)
    out = tmp_path / "out"
    with _Stalling(tmp_path / "in", "/s-70.tar") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        template = f"http://127.0.0.1:{server.server_port}/s-{{0..99}}.tar"
        process = subprocess.Popen(
            _command(*_convert(template, out)),
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert server.asked.wait(120)
            os.kill(_a_worker(process), signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        finally:
            _end(process)
            server.goes_on.set()
        assert not (out / "manifest.json").exists()
        before = {path: path.stat().st_mtime_ns for path in out.glob(".parts-train/*.json")}
        assert 0 < len(before) < 100
        again = subprocess.Popen(
            _command(*_convert(template, out)),
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while again.poll() is None:  # complete parts are not written again
            for path, then in before.items():
                with contextlib.suppress(FileNotFoundError):  # the file was published meanwhile
                    assert path.stat().st_mtime_ns == then
            time.sleep(0.05)
        assert again.returncode == 0
        t2t.open(template).export(tmp_path / "one", align="shard", workers=1)
        server.shutdown()
    assert tree(out) == tree(tmp_path / "one")


def _a_worker(process: subprocess.Popen) -> int:
    below = psutil.Process(process.pid).children(recursive=True)
    workers = [each.pid for each in below if "sdk_worker_main" in " ".join(each.cmdline())]
    assert len(workers) >= 2
    return workers[-1]


def _end(process: subprocess.Popen) -> None:
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    process.kill()
    for each in below:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.servers("beam")
def test_ten_thousand_tiny_shards(tmp_path):
    """Beam and a job array write the same manifest."""
    (tmp_path / "in").mkdir()
    for number in range(10_000):
        (tmp_path / "in" / f"s-{number}.tar").write_bytes(made.labelled(f"n{number}", 1 + number % 2, fields))
    template = f"{tmp_path}/in/s-{{0..9999}}.tar"
    for host in range(8):
        t2t.open(template).export(tmp_path / "array", align="shard", shard=(host, 8), workers=1)
    t2t.finish(tmp_path / "array")
    done = subprocess.run(
        _command(*_convert(template, tmp_path / "beam")), env=_environment(), capture_output=True, text=True,
        timeout=1000, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert tree(tmp_path / "beam") == tree(tmp_path / "array")
    assert len(t2t.load(tmp_path / "beam")) == 15_000


@pytest.mark.full
@pytest.mark.servers("beam")
def test_the_example_converts_as_one_process_does():
    done = _run(str(ROOT / "examples" / "beam.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "600 records, the same as without Beam: True"
