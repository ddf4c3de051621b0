"""Answers that arrive too slowly end with our error. Slow readers do not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.cluster.etl.delivery import deliver
from ais_tar2tf.cluster.etl.peers import Peers
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import KIB, Retry, Timeouts
from ais_tar2tf.stores import Identity, ObjectInfo
from ais_tar2tf.stores.cloud_body import StreamBody
from ais_tar2tf.stores.transport.bodies import HttpBody, body_of
from ais_tar2tf.stores.transport.control import ControlPlane
from ais_tar2tf.stores.transport.pace import Pace
from ais_tar2tf.stores.transport.pool import HttpPool
from tests.support import shards as made
from tests.support.fault_server import Fault, FaultServer, plain, tagged
from tests.support.web_server import WebServer

ONCE = Retry(attempts=1)
DATA = bytes(range(256)) * 4096  # 1 MiB


class Clock:
    """A clock that advances by a second for each wait, which reads the clock before and after."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.now = 0.0
        self._seconds = seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


def opened(pool: HttpPool, url: str) -> HttpBody:
    body = body_of(pool.request(url, {}, shown=url), "x", 0, None)
    assert body is not None
    return body


def drain(body: HttpBody) -> None:
    buffer = memoryview(bytearray(100))
    while body.readinto(buffer):
        pass


# The rule


def test_a_rate_is_checked_after_enough_waiting() -> None:
    pace = Pace(Timeouts(least_rate=100, slow=30, idle=20))
    for _ in range(29):
        pace.note(1, 1.0)
    with pytest.raises(TimeoutError, match=r"30 bytes came in 30 s, Timeouts\.least_rate is 100 a second"):
        pace.note(1, 1.0)


def test_a_sufficient_rate_never_ends() -> None:
    pace = Pace(Timeouts(least_rate=100, slow=30))
    for _ in range(1000):
        pace.note(100, 1.0)


def test_an_answer_that_was_fast_must_stay_fast() -> None:
    pace = Pace(Timeouts(least_rate=100, slow=30))
    pace.note(10**12, 30.0)
    pace.note(29, 29.0)
    with pytest.raises(TimeoutError):
        pace.note(1, 1.0)


def test_any_rate() -> None:
    pace = Pace(Timeouts(least_rate=0))
    for _ in range(1000):
        pace.note(0, 1.0)


def test_a_rate_is_not_checked_before_the_idle_time_out() -> None:
    """An `idle` of ten minutes allows a server to compute for ten minutes and then send little."""
    pace = Pace(Timeouts(least_rate=1024, slow=30, idle=600))
    pace.note(500, 400.0)
    pace.note(500, 199.0)
    with pytest.raises(TimeoutError):
        pace.note(500, 1.0)


# Bodies


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_slow_body(fault_server: FaultServer, framing: Any) -> None:
    """Each byte takes a second, so that 1 MiB would take 12 days."""
    fault_server.add("x", plain(DATA), [Fault(framing=framing)])
    clock = Clock()
    pool = HttpPool(Timeouts(least_rate=16 * KIB), clock=clock)
    body = opened(pool, f"{fault_server.url}/x")
    with pytest.raises(TransportError, match=r"the body broke off .*Timeouts\.least_rate is 16384"):
        drain(body)
    assert clock.now < 400
    body.close()
    pool.close()


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_slow_reader(fault_server: FaultServer, framing: Any) -> None:
    """Hours between two reads of the caller are not counted."""
    fault_server.add("x", plain(DATA), [Fault(framing=framing)])
    clock = Clock(0.0)
    pool = HttpPool(Timeouts(least_rate=1_000_000), clock=clock)
    body = opened(pool, f"{fault_server.url}/x")
    found = bytearray()
    buffer = memoryview(bytearray(4096))
    while count := body.readinto(buffer):
        found += buffer[:count]
        clock.now += 10_000
    assert found == DATA
    body.close()
    pool.close()


def test_a_slow_body_from_url_to_error(fault_server: FaultServer) -> None:
    """A slow body ends with an error, tested from the URL on, with the real clock."""
    fault_server.add("x.tar", tagged(made.tar([("a", {"txt": bytes(100_000)})])), [Fault(piece=10, pause=0.01)] * 9)
    timeouts = Timeouts(idle=0.2, slow=0.2, least_rate=100_000)
    with (
        t2t.open(
            f"{fault_server.url}/x.tar", timeouts=timeouts, retry=Retry(attempts=2, first_delay=0.001)
        ) as source,
        pytest.raises(TransportError, match=r"Timeouts\.least_rate is 100000 .*given up after 2 tries"),
    ):
        list(source.records())


def test_a_connection_for_each_byte_is_no_progress(fault_server: FaultServer) -> None:
    """Every answer breaks off after ten bytes, so the retry budget is spent."""
    data = made.tar([("a", {"txt": bytes(20_000)})])
    fault_server.add("x.tar", tagged(data), [Fault(after=10)] * 1000)
    timeouts, retry = Timeouts(least_rate=1e9), Retry(attempts=5, first_delay=0.001, max_delay=0.001)
    with (
        t2t.open(f"{fault_server.url}/x.tar", timeouts=timeouts, retry=retry) as source,
        pytest.raises(TransportError, match="given up after 5 tries"),
    ):
        list(source.records())
    assert len(fault_server.ranges("x.tar")) < 20


def test_answers_that_break_off_are_progress_without_a_minimum_rate(fault_server: FaultServer) -> None:
    data = made.tar([("a", {"txt": b"hello"})])
    fault_server.add("x.tar", tagged(data), [Fault(after=300)] * 1000)
    timeouts, retry = Timeouts(least_rate=0), Retry(attempts=2, first_delay=0.001, max_delay=0.001)
    with t2t.open(f"{fault_server.url}/x.tar", timeouts=timeouts, retry=retry) as source:
        assert [record["txt"] for record in source.records()] == [b"hello"]
        assert source.stats.retries > 10


class _Result:
    """Simulates obstore's result of a GET, whose stream yields one chunk and then nothing."""

    range = (0, 10)

    async def stream(self, _: int) -> AsyncIterator[bytes]:
        yield b"12345"
        await asyncio.Event().wait()


def test_a_slow_stream_of_obstore() -> None:
    timeouts = Timeouts(slow=0.01, idle=0.01, least_rate=1e9)
    body = StreamBody(_Result(), ObjectInfo("x", 10, Identity()), "gs://b/x", None, timeouts)
    buffer = memoryview(bytearray(10))
    assert body.readinto(buffer) == 5
    with pytest.raises(TransportError, match=r"Timeouts\.least_rate"):
        body.readinto(buffer)
    body.close()
    assert body.readinto(buffer) == 0


# Headers, and answers without a body


def test_slow_headers(fault_server: FaultServer) -> None:
    """Headers of four megabytes arrive slowly, one line per second."""
    many = {f"X-{number}": "x" * 50_000 for number in range(80)}
    fault_server.add("x", plain(b"abc"), [Fault(headers=many)] * 4)
    clock = Clock()
    pool = HttpPool(Timeouts(least_rate=100_000), clock=clock)
    with pytest.raises(TransportError, match=r"the request failed .*Timeouts\.least_rate"):
        pool.request(f"{fault_server.url}/x", {}, shown="http://h/x")
    assert clock.now < 100
    pool.close()


def test_a_server_that_sends_interim_answers_is_not_slow(fault_server: FaultServer) -> None:
    """Each interim answer takes a second or more."""
    fault_server.add("x", plain(b"abc"), [Fault(interim=(102,) * 10)])
    pool = HttpPool(Timeouts(least_rate=1e6, slow=5, idle=5), clock=Clock(4.0))
    body = opened(pool, f"{fault_server.url}/x")
    assert body.readinto(memoryview(bytearray(10))) == 3
    body.close()
    pool.close()


def test_slow_answers_of_the_control_plane(fault_server: FaultServer) -> None:
    name = "v1/buckets/bucket?provider=ais"
    for fault in (Fault(status=200, body=bytes(4_000_000)), Fault(status=200, headers={"X": "x" * 60_000})):
        fault_server.add(name, plain(b""), [fault])
        clock = Clock()
        control = ControlPlane(fault_server.url, None, Timeouts(least_rate=1e6, slow=2, idle=2), ONCE, clock=clock)
        with pytest.raises(TransportError, match="the request failed"):
            control.call("GET", f"{fault_server.url}/{name}", shown="ais://bucket")
        control.close()


def test_slow_answers_of_the_control_plane_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    with WebServer() as web:
        web.objects["x"] = bytes(4_000_000)
        monkeypatch.setenv("http_proxy", web.url)
        for least_rate in (1e6, 0):
            timeouts = Timeouts(least_rate=least_rate, slow=2, idle=2)
            control = ControlPlane("http://h.invalid", None, timeouts, ONCE, clock=Clock())
            drips = pytest.raises(TransportError, match="the request failed while its answer came")
            with drips if least_rate else contextlib.nullcontext():
                control.call("GET", "http://h.invalid/x", shown="ais://bucket")
            control.close()


def test_slow_answers_of_the_next_transformer() -> None:
    """The next transformer answers byte by byte."""
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        with listener.accept()[0] as taken, contextlib.suppress(OSError):
            while b"0\r\n\r\n" not in taken.recv(65_536):
                pass
            taken.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(500):
                taken.sendall(b"1\r\nx\r\n")
                if over.wait(0.01):
                    return
            taken.sendall(b"0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        node = f"127.0.0.1:{listener.getsockname()[1]}"
        timeouts = Timeouts(idle=0.2, slow=0.2, least_rate=100_000)
        done = deliver(
            [b"data"],
            f"http://{node}/b/x",
            target="",
            path="b/x",
            arguments="",
            timeouts=timeouts,
            peers=Peers("", [node], timeouts),
        )
        assert done.content is not None
        with (
            contextlib.closing(done.content) as content,
            pytest.raises(TransportError, match=r"Timeouts\.least_rate"),
        ):
            list(content)
        over.set()
        thread.join()
