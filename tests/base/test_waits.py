"""Unreachable endpoints are errors soon, unless they have answered before, and long waits are reported."""

from __future__ import annotations

import logging
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ais_tar2tf as t2t
from ais_tar2tf import stores
from ais_tar2tf.base import periodic
from ais_tar2tf.base.monitoring import waits
from ais_tar2tf.base.monitoring.waits import Reports, Wait
from ais_tar2tf.base.retries import Tries
from ais_tar2tf.cli.app import app
from ais_tar2tf.errors import Silence, TransportError
from ais_tar2tf.options import Read, Retry
from ais_tar2tf.stores.transport.answers import error_for
from ais_tar2tf.stores.transport.contact import NO_CONNECTION, Contacts
from tests.servers.process import free_ports
from tests.support import shards as made
from tests.support.fault_server import PATIENCE, Fault, FaultServer, ais

_UNKNOWN = "http://no-such-host.invalid"
_TIMES = 6.0  # as fast
_SLOWEST = 15.0  # seconds on a busy machine; a known server is waited for at least 22


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def fast_contacts(monkeypatch: pytest.MonkeyPatch) -> Contacts:
    """Simulate a process in which no endpoint has answered and nothing was reported, with short time-outs."""
    contacts = Contacts(lambda: _TIMES * time.monotonic())
    modules = [
        name
        for name, module in sys.modules.items()
        if name.startswith("ais_tar2tf.stores") and hasattr(module, "CONTACTS")
    ]
    for name in modules:
        monkeypatch.setattr(sys.modules[name], "CONTACTS", contacts)
    monkeypatch.setattr(waits, "REPORTS", Reports())
    return contacts


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    return f"http://127.0.0.1:{free_ports(1)[0]}"


# The rule, with a fake clock


def test_tries_end_when_a_new_endpoint_was_silent_for_four_seconds() -> None:
    clock = Clock()
    contacts, tries, slept = Contacts(clock), Tries(Retry()), 0.0
    while True:
        error = TransportError("no", url="u", silence=contacts.note_refusal(("http", "h"), clock.now))
        delay = tries.after_failure(error, lambda: 0.5)
        if delay is None:
            break
        clock.now += delay
        slept += delay
    assert 1.5 < slept <= 4
    assert re.search(
        r"given up after 5 tries in 2\.[23] s, since nothing has ever answered there \(Retry\.unreachable\)$",
        str(tries.final_error(error)),
    )


def test_an_endpoint_that_has_answered_gets_the_full_time() -> None:
    clock = Clock()
    contacts, tries, slept = Contacts(clock), Tries(Retry()), 0.0
    contacts.note_answer(("http", "h"))
    while True:
        error = TransportError("no", url="u", silence=contacts.note_refusal(("http", "h"), clock.now))
        delay = tries.after_failure(error, lambda: 0.5)
        if delay is None:
            break
        slept += delay
    assert slept > 22
    assert tries.failed == Retry().attempts
    assert str(tries.final_error(error)).endswith("given up after 11 tries without progress (Retry.attempts)")


def test_the_silence_of_another_endpoint_is_counted_anew() -> None:
    """A proxy was silent, answered, and redirected to a target that is silent now."""
    tries = Tries(Retry(unreachable=4))
    for silence in (Silence(3.5, 0), None, Silence(0.1, 0)):
        assert tries.after_failure(TransportError("no", url="u", silence=silence), lambda: 0.5) is not None


def test_a_single_try_may_have_received_bytes() -> None:
    tries, error = Tries(Retry(attempts=1)), TransportError("no", url="u")
    assert tries.after_failure(error, lambda: 0.5, progress=True) is None
    assert str(tries.final_error(error)) == "u: no; given up after 1 try (Retry.attempts)"


def test_a_try_that_would_end_too_late_is_not_begun() -> None:
    """A host that is silent for three seconds gets no second request."""
    error = TransportError("no", url="u", silence=Silence(3.0, 3.0))
    assert Tries(Retry()).after_failure(error, lambda: 0.5) is None
    assert Tries(Retry(unreachable=10)).after_failure(error, lambda: 0.5) is not None


def test_requests_one_after_another_share_the_time() -> None:
    clock = Clock()
    contacts = Contacts(clock)
    contacts.note_refusal(("http", "h"), clock.now)
    clock.now += 4
    silence = contacts.note_refusal(("http", "h"), clock.now)
    assert silence is not None
    assert silence.seconds == 4
    clock.now += 6  # a new attempt: the server may have been started meanwhile
    assert contacts.note_refusal(("http", "h"), clock.now) == Silence(0, 0)
    assert contacts.note_refusal(("http", "other"), clock.now) == Silence(0, 0)


def test_only_a_new_endpoint_makes_others_forgotten() -> None:
    clock = Clock()
    contacts = Contacts(clock)
    for number in range(1_000):
        contacts.note_refusal(("http", str(number)), clock.now)
    clock.now += 4
    for name in ("7", "999"):
        assert contacts.note_refusal(("http", name), clock.now) == Silence(4, 0)
    assert contacts.note_refusal(("http", "new"), clock.now) == Silence(0, 0)
    assert contacts.note_refusal(("http", "8"), clock.now) == Silence(0, 0)


def test_zero_tries_once() -> None:
    error = TransportError("no", url="u", silence=NO_CONNECTION)
    assert Tries(Retry(unreachable=0)).after_failure(error, lambda: 0.5) is None


def test_other_processes_know_which_endpoints_have_answered(fast_contacts: Contacts) -> None:
    """A worker that starts while the cluster restarts knows which endpoints have answered."""
    with FaultServer() as server:
        server.add("bucket/x.tar", ais(made.labelled("s", 3)))
        store = stores.open_store("ais", "bucket", Read(), endpoint=server.url)
        store.head("x.tar")
        reopen = stores.portable_opener(store)
        store.close()
    code = (
        "import pickle, sys; from ais_tar2tf.stores.transport.contact import CONTACTS\n"
        "pickle.load(sys.stdin.buffer)().close(); print(CONTACTS.answered())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(reopen), capture_output=True, check=True)
    assert done.stdout.decode().strip() == str(fast_contacts.answered())
    assert server.url.removeprefix("http://") in done.stdout.decode()


# All stores


def _take(records: Any) -> None:
    next(iter(records))


def _store(url: str, endpoint: str) -> Any:
    scheme, bucket, _ = stores.split_url(url)
    return stores.open_store(scheme, bucket, Read(), endpoint=endpoint)


WAYS: dict[str, Callable[[str, Path], object]] = {
    "GET": lambda host, _: _take(t2t.open(f"{host}/x-{{0..3}}.tar").records()),
    "GET of AIStore": lambda host, _: _take(t2t.open("ais://b/x.tar", endpoint=host).records()),
    "several connections": lambda host, _: _take(t2t.open(f"{host}/x.tar", connections=3).records()),
    "HEAD": lambda host, _: _store("ais://b", host).head("x"),
    "HEAD of HTTP": lambda host, _: _store(host, host).head("x"),
    "listing": lambda host, _: list(_store("ais://b", host).list("")),
    "PUT": lambda host, _: _store("ais://b", host).put("x", b"data"),
    "listing of S3": lambda host, _: list(_store("s3://b", host).list("")),
    "GET of S3": lambda host, _: _take(t2t.open("s3://b/x.tar", endpoint=host).records()),
    "listing of Azure": lambda host, _: list(_store("az://b", host).list("")),
    "a mixture": lambda host, _: _take(t2t.mix([t2t.open(f"{host}/x.tar"), t2t.open(f"{host}/y.tar")]).records()),
    "a cache": lambda host, _: _take(t2t.open(f"{host}/x.tar", cache="memory").records()),
    "load": lambda host, _: t2t.load("ais://b/out/", endpoint=host),
    "a dataset": lambda host, _: _take(t2t.open(f"{host}/x.tar").dataset()),
    "an export": lambda host, out: t2t.open(f"{host}/x.tar").export(str(out / "out")),
    "a share of skipped shards": lambda host, _: list(
        t2t.open(f"{host}/x-{{0..9}}.tar", on_error="skip-shard").records()
    ),
    "dSort": lambda host, _: t2t.cluster.shuffle(
        "ais://b/x-{0..1}.tar", "ais://b/y-{}.tar", endpoint=host, shard_size="1MB"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_connection_ends_within_five_seconds(way: str, refusing: str, tmp_path: Path) -> None:
    began = time.monotonic()
    try:
        WAYS[way](refusing, tmp_path)
    except TransportError as error:
        assert f"no connection to {refusing}" in str(error)  # noqa: PT017
        assert "tries in" in str(error) or "1 try in" in str(error)  # noqa: PT017
        assert "is the endpoint right, and is it up?" in str(error)  # noqa: PT017
    else:
        assert way == "a share of skipped shards"
    assert time.monotonic() - began < _SLOWEST


def test_four_seconds_are_four_seconds(fast_contacts: Contacts, refusing: str, tmp_path: Path) -> None:
    """Measure with the real clock."""
    fast_contacts._clock = time.monotonic
    began = time.monotonic()
    with pytest.raises(TransportError):
        WAYS["GET"](refusing, tmp_path)
    assert 1 < time.monotonic() - began < _SLOWEST


@pytest.mark.parametrize("way", ["GET", "listing", "listing of S3"])
def test_an_unknown_host_ends_within_five_seconds(way: str, tmp_path: Path, refusing: str) -> None:
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"no connection to http://no-such-host\.invalid"):
        WAYS[way](_UNKNOWN, tmp_path)
    assert time.monotonic() - began < _SLOWEST


@pytest.mark.parametrize(
    "verb",
    [
        ["ls", "ais://b"],
        ["inspect", "ais://b/x.tar"],
        ["doctor", "--no-tensorflow", "ais://b/"],
        ["convert", "ais://b/x.tar"],
        ["index", "ais://b/x.tar"],
    ],
)
def test_verbs_end_within_five_seconds_and_report_the_wait(verb: list[str], refusing: str, tmp_path: Path) -> None:
    began = time.monotonic()
    more = [str(tmp_path / "out")] if verb[0] == "convert" else []
    done = CliRunner().invoke(app, [*verb, *more, "--endpoint", refusing])
    assert time.monotonic() - began < _SLOWEST
    assert done.exit_code == 5
    if verb[0] != "doctor":
        assert done.stderr.count("waiting for ") <= 1
        assert "given up after" in done.stderr
    assert "Traceback" not in done.stderr


# Reported waits


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Reports:
    """Reports with a threshold of zero: every wait is reported at the next check."""
    reports = Reports(long=0.0)
    monkeypatch.setattr(waits, "REPORTS", reports)
    monkeypatch.setattr(periodic, "_TICK", 0.01)
    return reports


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_long_wait_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    wait = Wait("ais://b/x.tar", reports=Reports(clock))
    with wait:
        for _ in range(10):
            assert wait.on_tick()
            clock.now += 0.4
        assert warnings_of(caplog) == [
            "ais://b/x.tar: waiting for 2 s: the server sends nothing. options.Timeouts(idle=…) bounds the wait."
        ]
    assert not wait.on_tick()
    assert [record.name for record in caplog.records] == ["ais_tar2tf"]


def test_causes_are_reported_once_each(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    reports = Reports(clock)
    for number in range(50):
        url = f"ais://b/x-{number}.tar"
        busy = TransportError(f"the server answered 503 (request {number} of many)", url=url)
        broken = TransportError(f"the body broke off (it ended {number} bytes early)", url=url)
        for error in (busy, broken, None):
            reports.report(url, 2.0, error)
    assert len(warnings_of(caplog)) == 3
    reports.report("ais://other/x.tar", 2.0, None)
    assert len(warnings_of(caplog)) == 4  # a different bucket
    clock.now += 700
    reports.report("ais://b/x-1.tar", 2.0, None)
    assert len(warnings_of(caplog)) == 5  # the wait still lasts, or began again


def test_a_long_wait_that_the_server_requested_is_reported_repeatedly(caplog: pytest.LogCaptureFixture) -> None:
    clock, headers = Clock(), {"Retry-After": "3600"}
    error = error_for(429, "ais://b/x.tar", headers, b"")
    assert isinstance(error, TransportError)
    assert Tries(Retry()).after_failure(error, lambda: 0.5) == 60
    with Wait(error.url, reports=Reports(clock)) as wait:
        wait.because(error)
        for _ in range(60):
            wait.on_tick()
            clock.now += 1
    first, second = warnings_of(caplog)
    assert "waiting for 2 s: the server answered 429" in first
    assert "asked for 3,600 s (Retry-After); the next try is 60 s after its answer" in first
    assert "waiting for 32 s" in second


def test_no_secret_and_no_command_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    error = TransportError("no way to https://user:pass@host/x?X-Amz-Signature=secret \x1b[2J", url="https://host/x")
    Reports().report("https://user:pass@host/x.tar?sig=secret&se=2026", 2.0, error)
    (text,) = warnings_of(caplog)
    assert "secret" not in text
    assert "pass" not in text
    assert "\x1b" not in text
    assert "https://host/x.tar?…" in text


def _read_all(server: FaultServer) -> list[Any]:
    with t2t.open("ais://bucket/s.tar", endpoint=server.url, retry=Retry(first_delay=0.001, max_delay=0.3)) as source:
        return list(source.records())


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("where", ["before the first byte", "in the body"])
def test_a_slow_body_is_reported_during_the_wait(where: str, caplog: pytest.LogCaptureFixture) -> None:
    data, told = made.labelled("s", 30), threading.Event()
    caplog.handler.addFilter(lambda _: told.set() or True)
    slow = (
        Fault(before=lambda: told.wait(PATIENCE) and None)
        if where == "before the first byte"
        else Fault(after=3_000, wait=told)
    )
    with FaultServer() as server:
        server.add("bucket/s.tar", ais(data), [slow])
        assert len(_read_all(server)) == 30
    assert told.is_set()
    assert "the server sends nothing" in warnings_of(caplog)[0]


@pytest.mark.usefixtures("short")
def test_a_busy_cluster_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()

    def filtered(record: logging.LogRecord) -> bool:
        if "answered 503" in record.getMessage() and record.levelno == logging.WARNING:
            told.set()
        return True

    caplog.handler.addFilter(filtered)
    with FaultServer() as server:
        busy = [Fault(status=503) for _ in range(7)]
        busy.append(Fault(status=503, before=lambda: told.wait(PATIENCE) and None))  # until the report
        server.add("bucket/s.tar", ais(made.labelled("s", 30)), busy)
        assert len(_read_all(server)) == 30
    assert told.is_set()
    assert sum("the server answered 503" in text for text in warnings_of(caplog)) == 1


@pytest.mark.usefixtures("short")
def test_a_slow_listing_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A slow HEAD request of the control plane is reported."""
    told = threading.Event()
    caplog.handler.addFilter(lambda _: told.set() or True)
    with FaultServer() as server:
        server.add("bucket/s.tar", ais(b"data"), [Fault(before=lambda: told.wait(PATIENCE) and None)])
        store = stores.open_store("ais", "bucket", Read(), endpoint=server.url)
        assert store.head("s.tar").size == 4
        store.close()
    assert warnings_of(caplog)[0].startswith("ais://bucket/s.tar: waiting for ")


def test_a_short_wait_is_not_reported(short: Reports, caplog: pytest.LogCaptureFixture) -> None:
    short.long = 1_000.0
    with FaultServer() as server:
        server.add("bucket/s.tar", ais(made.labelled("s", 30)))
        assert len(_read_all(server)) == 30
    assert warnings_of(caplog) == []


_SHOWN = """
import sys, threading
from ais_tar2tf.base.monitoring import waits; from ais_tar2tf.base import periodic
waits.REPORTS.long = 0.0
periodic._TICK = 0.01
exec(sys.argv[3])
import ais_tar2tf as t2t
print(len(list(t2t.open("ais://bucket/s.tar", endpoint=sys.argv[1]).records())))
"""


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("", "ais://bucket/s.tar: waiting for 0 s: the server sends nothing."),
        ("import logging; logging.basicConfig()", "WARNING:ais_tar2tf:ais://bucket/s.tar: waiting for"),
        ("import logging; logging.getLogger('ais_tar2tf').setLevel(logging.ERROR)", ""),
    ],
)
def test_reports_are_visible_with_any_logging_setup(setting: str, shown: str) -> None:
    with FaultServer() as server:
        data = made.labelled("s", 30)
        server.add("bucket/s.tar", ais(data), [Fault(piece=len(data) // 4, pause=0.1)])
        command = [sys.executable, "-c", _SHOWN, server.url, "", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "30\n"
    assert shown in done.stderr
    assert bool(done.stderr) == bool(shown)
    assert len(done.stderr.splitlines()) <= 1
