"""A port without HTTP, or with the other scheme, is reported after one try; a silent one after one time-out."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf import stores
from ais_tar2tf.base.retries import Tries
from ais_tar2tf.errors import Silence, TransportError
from ais_tar2tf.options import Read, Retry, Timeouts
from ais_tar2tf.stores.transport.contact import Contacts
from tests.servers.certificates import Certificates
from tests.support import shards as made
from tests.support.fault_server import PATIENCE, Fault, FaultServer, ais
from tests.support.web_server import WebServer

_BRIEF = Retry(attempts=3, first_delay=0.001, max_delay=0.001)
_PLAIN = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
_TLS_RECORD = b"\x16"  # the first byte of a handshake


@pytest.fixture(autouse=True)
def new_contacts(monkeypatch: pytest.MonkeyPatch) -> Contacts:
    """Simulate a process in which no endpoint has answered yet."""
    contacts = Contacts()
    for name, module in list(sys.modules.items()):
        if name.startswith("ais_tar2tf.stores") and hasattr(module, "CONTACTS"):
            monkeypatch.setattr(module, "CONTACTS", contacts)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    return contacts


class Listener:
    """Accepts connections on 127.0.0.1, calls `serve` with each, and counts them."""

    def __init__(self, serve: Callable[[socket.socket, int], None]) -> None:
        self.count = 0
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._socket)
        self._threads[0].join(PATIENCE)  # accepts no more
        for taken in self._taken:
            _end(taken)
        for thread in self._threads:
            thread.join(PATIENCE)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken = self._socket.accept()[0]
                self._taken.append(taken)
                self.count += 1
                thread = threading.Thread(target=self._one, args=(taken, self.count), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _one(self, taken: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            self._serve(taken, number)


def _end(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def says(data: bytes) -> Callable[[socket.socket, int], None]:
    return lambda taken, _: taken.sendall(data)


def _closes(taken: socket.socket, _: int) -> None:
    taken.close()


def _context(certified: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certified.server, certified.server_key)
    return context


def _tls_port(certified: Certificates, answers: bool) -> Callable[[socket.socket, int], None]:
    """Simulate a TLS port that answers a plain request, or closes its connection."""
    context = _context(certified)

    def serve(taken: socket.socket, _: int) -> None:
        if answers and taken.recv(1, socket.MSG_PEEK) != _TLS_RECORD:
            taken.recv(65_536)
            taken.sendall(_PLAIN)
            taken.close()
            return
        try:
            context.wrap_socket(taken, server_side=True).close()
        except OSError:
            taken.close()

    return serve


def _store(url: str, endpoint: str, read: Read | None = None) -> Any:
    scheme, bucket, _ = stores.split_url(url)
    return stores.open_store(scheme, bucket, read or Read(), endpoint=endpoint)


def _take(records: Any) -> None:
    next(iter(records))


WAYS: dict[str, Callable[[str], object]] = {
    "GET": lambda url: _take(t2t.open(f"{url}/x-{{0..3}}.tar").records()),
    "GET of AIStore": lambda url: _take(t2t.open("ais://b/x.tar", endpoint=url).records()),
    "HEAD": lambda url: _store("ais://b", url).head("x"),
    "listing": lambda url: list(_store("ais://b", url).list("")),
    "PUT": lambda url: _store("ais://b", url).put("x", b"data"),
    "GET of S3": lambda url: _take(t2t.open("s3://b/x.tar", endpoint=url).records()),
    "listing of S3": lambda url: list(_store("s3://b", url).list("")),
    "GET of GCS": lambda url: _take(t2t.open("gs://b/x.tar", endpoint=url).records()),
    "a bucket of GCS": lambda url: _store("gs://b", url).create(),
}


def failure(way: str, url: str) -> TransportError:
    with pytest.raises(TransportError) as caught:
        WAYS[way](url)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("banner", "shown"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it sent 'SSH-2.0-OpenSSH_9.6'; is this the right port?"),
        (b"J\0\0\0\x0a8.0.33\x1b[2J", r"it sent 'J\x00\x00\x00'; is this the right port?"),  # it ends with no line
    ],
)
def test_another_protocol_is_reported_at_once(way: str, banner: bytes, shown: str) -> None:
    with Listener(says(banner)) as server:
        error = failure(way, f"http://{server.netloc}")
        assert f"the server at {server.netloc} does not speak HTTP: {shown}" in str(error)
        assert server.count <= 4  # one a shard; obstore's own request, and one that tells more


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answers", [True, False], ids=["answers in plain", "closes"])
def test_http_to_a_tls_port_names_the_other_scheme(way: str, answers: bool, certified: Certificates) -> None:
    with Listener(_tls_port(certified, answers)) as server:
        error = failure(way, f"http://{server.netloc}")
        assert "speaks TLS" in str(error)
        assert f"write https://{server.netloc}" in str(error)
        assert server.count <= 6  # our request, obstore's, and a handshake for each connection


@pytest.mark.parametrize("way", WAYS)
def test_https_to_a_plain_port_names_the_other_scheme(way: str) -> None:
    with WebServer() as server:
        error = failure(way, server.url.replace("http:", "https:"))
        assert "does not speak TLS" in str(error)
        assert f"write {server.url}" in str(error)


def test_a_plain_server_that_refuses_is_not_reported_as_tls() -> None:
    """A plain server may also answer the first request with 400."""
    with FaultServer() as server:
        server.add("bucket/x.tar", ais(b""), [Fault(status=400)])
        with pytest.raises(t2t.errors.StoreError, match="the server answered 400"):
            _store(server.url, server.url).head("bucket/x.tar")


@pytest.mark.parametrize("way", ["GET", "GET of AIStore", "HEAD", "listing"])
def test_a_new_endpoint_that_closes_is_retried_for_a_short_time(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retry, "delay", lambda *_, **__: 0.01)
    with Listener(_closes) as server:
        error = failure(way, f"http://{server.netloc}")
        assert "is the endpoint right, and is it up?" in str(error)
        assert server.count >= Retry().attempts


@pytest.mark.parametrize("way", ["GET", "GET of AIStore", "GET of S3", "GET of GCS"])
def test_only_one_loop_retries(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retry, "delay", lambda *_, **__: 0.001)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    error = failure(way, f"http://127.0.0.1:{port}")
    assert f"no connection to http://127.0.0.1:{port}" in str(error)
    assert str(error).count("given up after 11 tries") == str(error).count("given up") == 1


def test_a_shard_is_not_skipped_because_nothing_has_ever_answered(new_contacts: Contacts) -> None:
    """Otherwise all shards would be skipped, each after a time-out, and the run would succeed without a record."""
    with Listener(_closes) as server:
        endpoint = f"http://{server.netloc}"
        read: dict[str, Any] = {"endpoint": endpoint, "on_error": "skip-shard", "retry": _BRIEF}
        with pytest.raises(TransportError, match="the request failed"):
            _take(t2t.open("ais://b/x-{0..99}.tar", **read).records())
        assert server.count < 20
        new_contacts.note_answer(("http", server.netloc))
        with t2t.open("ais://b/x-{0..3}.tar", **read) as source:
            assert list(source.records()) == []
            assert source.stats.skipped == {"TransportError": 4}


def ended(silence: float, retry: Retry) -> tuple[int, float]:
    """Return the number of requests and the seconds until the error, if each request is silent for `silence`."""
    tries, now = Tries(retry), 0.0
    while True:
        now += silence
        error = TransportError("no", url="u", silence=Silence(now, silence, accepts=True))
        delay = tries.after_failure(error, lambda: 0.5)
        if delay is None:
            assert "Retry.unanswered" in str(tries.final_error(error))
            return tries.failed, now
        now += delay


def test_silence_and_quick_failures_are_limited_to_one_time_out() -> None:
    assert ended(Timeouts().idle, Retry()) == (1, 20.0)  # the first request may use the whole time
    count, seconds = ended(5.0, Retry())
    assert count == 3
    assert seconds < 20
    count, seconds = ended(0.001, Retry())  # closed at once, as by a server that is starting
    assert count > 5
    assert 10 < seconds <= 20


def test_the_time_of_one_request_counts_where_others_are_far_apart() -> None:
    """The delays are longer than the time after which a new request starts a new count."""
    tries, delays = Tries(Retry()), list[float]()
    error = TransportError("no", url="u", silence=Silence(0.0, 0.0, accepts=True))
    while (delay := tries.after_failure(error, lambda: 0.99)) is not None:
        delays.append(delay)
    assert sum(delays) <= 20


@pytest.mark.parametrize("way", ["GET of AIStore", "HEAD"])
def test_a_silent_server_ends_after_the_time_that_one_answer_may_take(way: str) -> None:
    timeouts, retry = Timeouts(idle=0.3), Retry(unanswered=0.3)
    asks: dict[str, Callable[[str], object]] = {
        "HEAD": lambda url: _store("ais://b", url, Read(timeouts=timeouts, retry=retry)).head("x"),
        "GET of AIStore": lambda url: _take(
            t2t.open("ais://b/x.tar", endpoint=url, timeouts=timeouts, retry=retry).records()
        ),
    }
    with Listener(lambda *_: None) as server, pytest.raises(TransportError) as caught:
        asks[way](f"http://{server.netloc}")
    assert "given up after 1 try in 0." in str(caught.value)
    assert "since nothing has ever answered there (Retry.unanswered); is the endpoint right" in str(caught.value)
    assert server.count == 1


def test_a_first_answer_that_is_slow_is_no_error() -> None:
    slow = threading.Event()  # never set

    def late() -> None:
        slow.wait(1.5)

    with FaultServer() as server:
        server.add("bucket/s.tar", ais(made.labelled("s", 3)), [Fault(before=late)])
        with t2t.open("ais://bucket/s.tar", endpoint=server.url) as source:
            assert len(list(source.records())) == 3
            assert source.stats.retries == 0


def test_an_endpoint_that_has_answered_is_always_retried(new_contacts: Contacts) -> None:
    def serve(taken: socket.socket, number: int) -> None:
        taken.sendall(b"no HTTP\r\n" if number < 3 else b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata")

    with Listener(serve) as server:
        new_contacts.note_answer(("http", server.netloc))
        store = _store(f"http://{server.netloc}", "", Read(retry=_BRIEF))
        assert store.head("x").size == 4
        store.close()
        assert server.count == 3


def test_a_proxy_that_is_none_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to CONNECT shows that the proxy is none."""
    with Listener(says(b"SSH-2.0-OpenSSH_9.6\r\n")) as server:
        monkeypatch.setenv("https_proxy", f"http://{server.netloc}")
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(TransportError, match=r"no connection to https://host\.invalid"):
            _take(t2t.open("https://host.invalid/x.tar", retry=_BRIEF).records())


def test_a_process_that_ends_after_a_failed_cloud_listing_is_not_aborted() -> None:
    """obstore's thread may still use the interpreter at exit. Each of these programs once aborted in 1 of 15 runs."""
    code = (
        "import sys; from ais_tar2tf import stores; from ais_tar2tf.options import *\n"
        "read = Read(timeouts=Timeouts(idle=0.1), retry=Retry(unanswered=0.1))\n"
        "try: list(stores.open_store('s3', 'b', read, endpoint=sys.argv[1]).list(''))\n"
        "except ConnectionError: print('told')\n"
    )
    with Listener(lambda *_: None) as server:
        command = [sys.executable, "-c", code, f"http://{server.netloc}"]
        for _ in range(6):
            done = subprocess.run(command, capture_output=True, check=False, timeout=100, text=True)
            assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


def test_doctor_does_not_wait_twice_for_a_faulty_endpoint() -> None:
    from typer.testing import CliRunner

    from ais_tar2tf.cli.app import app

    with Listener(says(b"SSH-2.0\r\n")) as server:
        command = ["doctor", "--no-tensorflow", "ais://b/x.tar", "--endpoint", f"http://{server.netloc}"]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 5
        assert "1 at fault" in done.stderr


def test_the_command_line_prints_one_line(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from ais_tar2tf.cli.app import app

    with Listener(says(b"220 mail ESMTP\r\n")) as server:
        url = f"http://{server.netloc}"
        out = str(tmp_path / "out")
        for verb in (["ls", "ais://b"], ["index", "ais://b/x.tar"], ["convert", "ais://b/x.tar", out]):
            done = CliRunner().invoke(app, [*verb, "--endpoint", url])
            assert done.exit_code == 5
            assert "it sent '220 mail ESMTP'" in " ".join(done.stderr.split())


@pytest.mark.parametrize("place", ["ais://b/x.tar", "s3://b/x.tar", "gs://b/x.tar", ""])
def test_the_command_line_explains_certificates(place: str, certified: Certificates) -> None:
    from typer.testing import CliRunner

    from ais_tar2tf.cli.app import app

    with FaultServer(tls=_context(certified)) as server:
        where = [place, "--endpoint", server.url] if place else [f"{server.url}/x.tar"]
        for verb in ("ls", "inspect"):
            done = CliRunner().invoke(app, [verb, *where])
            told = " ".join(done.stderr.split())
            assert f"TLS with {server.url[8:]} failed (CERTIFICATE_VERIFY_FAILED: certificate verify failed" in told
            assert "next: trust its CA: export AIS_CLIENT_CA=" in told
            assert done.exit_code == 5


@pytest.mark.parametrize("answers", [True, False], ids=["answers in plain", "closes"])
def test_doctor_names_the_other_scheme(answers: bool, certified: Certificates) -> None:
    from typer.testing import CliRunner

    from ais_tar2tf.cli.app import app

    with Listener(_tls_port(certified, answers)) as server:
        done = CliRunner().invoke(app, ["doctor", "--no-tensorflow", "--endpoint", f"http://{server.netloc}"])
        assert f"it speaks TLS: write https://{server.netloc}" in " ".join(done.stdout.split())
        assert done.exit_code == 5


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
