"""Answers that drip end with an error of ours, and readers that take their time do not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.cluster.etl.delivery import deliver
from ais_tar2tf.cluster.etl.peers import Peers
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import KIB, Retry, Timeouts
from ais_tar2tf.stores import Identity, ObjectInfo
from ais_tar2tf.stores._cloud_body import StreamBody
from ais_tar2tf.stores._control import ControlPlane
from ais_tar2tf.stores._http import HttpBody, HttpPool, body_of
from ais_tar2tf.stores._pace import Pace
from faults import Fault, FaultServer, plain, tagged
from web import WebServer

ONCE = Retry(attempts=1)
DATA = bytes(range(256)) * 4096  # 1 MiB


class Clock:
    """Each wait for the server, which looks at it before and behind, takes a second."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.now = 0.0
        self._seconds = seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def opened(pool: HttpPool, url: str) -> HttpBody:
    body = body_of(pool.ask(url, {}, shown=url), "x", 0, None)
    assert body is not None
    return body


def drain(body: HttpBody) -> None:
    buffer = memoryview(bytearray(100))
    while body.readinto(buffer):
        pass


# The rule


def test_a_rate_is_judged_when_enough_was_waited() -> None:
    pace = Pace(Timeouts(least_rate=100, slow=30, idle=20))
    for _ in range(29):
        pace.note(1, 1.0)
    with pytest.raises(TimeoutError, match=r"30 bytes came in 30 s, Timeouts\.least_rate is 100 a second"):
        pace.note(1, 1.0)


def test_a_rate_that_suffices_goes_on_for_ever() -> None:
    pace = Pace(Timeouts(least_rate=100, slow=30))
    for _ in range(1000):
        pace.note(100, 1.0)


def test_an_answer_that_was_fast_once_has_to_stay_useful() -> None:
    pace = Pace(Timeouts(least_rate=100, slow=30))
    pace.note(10**12, 30.0)
    pace.note(29, 29.0)
    with pytest.raises(TimeoutError):
        pace.note(1, 1.0)


def test_any_rate() -> None:
    pace = Pace(Timeouts(least_rate=0))
    for _ in range(1000):
        pace.note(0, 1.0)


def test_who_may_be_silent_for_long_is_not_judged_before() -> None:
    """`idle` of ten minutes is for a server that computes for so long, and then brings little."""
    pace = Pace(Timeouts(least_rate=1024, slow=30, idle=600))
    pace.note(500, 400.0)
    pace.note(500, 199.0)
    with pytest.raises(TimeoutError):
        pace.note(500, 1.0)


# Bodies


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_body_that_drips(server: FaultServer, framing: Any) -> None:
    """Read by single bytes, each of which takes a second: 1 MiB would take 12 days."""
    server.add("x", plain(DATA), [Fault(framing=framing)])
    clock = Clock()
    pool = HttpPool(Timeouts(least_rate=16 * KIB), clock=clock)
    body = opened(pool, f"{server.url}/x")
    with pytest.raises(TransportError, match=r"the body broke off .*Timeouts\.least_rate is 16384"):
        drain(body)
    assert clock.now < 400
    body.close()
    pool.close()


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_reader_that_takes_its_time(server: FaultServer, framing: Any) -> None:
    """Hours between two reads are nobody's fault but its own."""
    server.add("x", plain(DATA), [Fault(framing=framing)])
    clock = Clock(0.0)
    pool = HttpPool(Timeouts(least_rate=1_000_000), clock=clock)
    body = opened(pool, f"{server.url}/x")
    found = bytearray()
    buffer = memoryview(bytearray(4096))
    while count := body.readinto(buffer):
        found += buffer[:count]
        clock.now += 10_000
    assert found == DATA
    body.close()
    pool.close()


def test_a_body_that_really_drips_through_all_of_it(server: FaultServer) -> None:
    """The same without a clock of ours, from the URL to the error."""
    server.add("x.tar", tagged(made.tar([("a", {"txt": bytes(100_000)})])), [Fault(piece=10, pause=0.01)] * 9)
    timeouts = Timeouts(idle=0.2, slow=0.2, least_rate=100_000)
    with (
        t2t.open(f"{server.url}/x.tar", timeouts=timeouts, retry=Retry(attempts=2, first_delay=0.001)) as source,
        pytest.raises(TransportError, match=r"Timeouts\.least_rate is 100000 .*given up after 2 tries"),
    ):
        list(source.records())


def test_a_connection_for_each_byte_is_no_progress(server: FaultServer) -> None:
    """Every answer brings ten bytes and breaks off: the budget of retries is spent on them."""
    data = made.tar([("a", {"txt": bytes(20_000)})])
    server.add("x.tar", tagged(data), [Fault(after=10)] * 1000)
    timeouts, retry = Timeouts(least_rate=1e9), Retry(attempts=5, first_delay=0.001, max_delay=0.001)
    with (
        t2t.open(f"{server.url}/x.tar", timeouts=timeouts, retry=retry) as source,
        pytest.raises(TransportError, match="given up after 5 tries"),
    ):
        list(source.records())
    assert len(server.ranges("x.tar")) < 20


def test_answers_that_break_off_are_progress_where_any_rate_is(server: FaultServer) -> None:
    data = made.tar([("a", {"txt": b"hello"})])
    server.add("x.tar", tagged(data), [Fault(after=300)] * 1000)
    timeouts, retry = Timeouts(least_rate=0), Retry(attempts=2, first_delay=0.001, max_delay=0.001)
    with t2t.open(f"{server.url}/x.tar", timeouts=timeouts, retry=retry) as source:
        assert [record["txt"] for record in source.records()] == [b"hello"]
        assert source.stats.retries > 10


class _Result:
    """What obstore returns for a GET: its stream gives one chunk, and then nothing for ever."""

    range = (0, 10)

    async def stream(self, _: int) -> AsyncIterator[bytes]:
        yield b"12345"
        await asyncio.Event().wait()


def test_a_stream_of_obstore_that_drips() -> None:
    timeouts = Timeouts(slow=0.01, idle=0.01, least_rate=1e9)
    body = StreamBody(_Result(), ObjectInfo("x", 10, Identity()), "gs://b/x", None, timeouts)
    buffer = memoryview(bytearray(10))
    assert body.readinto(buffer) == 5
    with pytest.raises(TransportError, match=r"Timeouts\.least_rate"):
        body.readinto(buffer)
    body.close()
    assert body.readinto(buffer) == 0


# Headers, and what is not a body


def test_headers_that_drip(server: FaultServer) -> None:
    """Four megabytes of them, where a line a second would do."""
    many = {f"X-{number}": "x" * 50_000 for number in range(80)}
    server.add("x", plain(b"abc"), [Fault(headers=many)] * 4)
    clock = Clock()
    pool = HttpPool(Timeouts(least_rate=100_000), clock=clock)
    with pytest.raises(TransportError, match=r"the request failed .*Timeouts\.least_rate"):
        pool.ask(f"{server.url}/x", {}, shown="http://h/x")
    assert clock.now < 100
    pool.close()


def test_a_server_that_says_that_it_works_is_not_slow(server: FaultServer) -> None:
    """Each interim answer takes a second, or more."""
    server.add("x", plain(b"abc"), [Fault(interim=(102,) * 10)])
    pool = HttpPool(Timeouts(least_rate=1e6, slow=5, idle=5), clock=Clock(4.0))
    body = opened(pool, f"{server.url}/x")
    assert body.readinto(memoryview(bytearray(10))) == 3
    body.close()
    pool.close()


def test_answers_of_the_control_plane_that_drip(server: FaultServer) -> None:
    name = "v1/buckets/bucket?provider=ais"
    for fault in (Fault(status=200, body=bytes(4_000_000)), Fault(status=200, headers={"X": "x" * 60_000})):
        server.add(name, plain(b""), [fault])
        clock = Clock()
        control = ControlPlane(server.url, None, Timeouts(least_rate=1e6, slow=2, idle=2), ONCE, clock=clock)
        with pytest.raises(TransportError, match="the request failed"):
            control.call("GET", f"{server.url}/{name}", shown="ais://bucket")
        control.close()


def test_answers_of_the_control_plane_that_drip_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_the_next_transformer_sends_back_drips() -> None:
    """Byte by byte."""
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
