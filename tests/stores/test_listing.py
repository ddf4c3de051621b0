"""Listings of faulty servers: endless pages, pages without names, repeated pages, and names out of order."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.sax.saxutils import escape

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import StoreError, TemplateError, UnsafeName
from ais_tar2tf.options import Limits, Read, Retry, Timeouts
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.cloud import CloudStore

Page = tuple[list[str], str]  # names, and the token of the next page
READ = Read(timeouts=Timeouts(connect=2, idle=5, listing=0.5), retry=Retry(attempts=2, first_delay=0.001))
NAMES = [f"{number:02}.tar" for number in range(15)]


class Lister:
    """Answers listings of AIStore and S3. `pages` maps a request's number to names and the next token."""

    def __init__(self) -> None:
        self.pages: Callable[[int], Page] = lambda _: ([], "")
        self.asked = 0
        lister = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                names, following = lister.pages(lister.asked)
                lister.asked += 1
                body = (_aistore if self.path.startswith("/v1/") else _s3)(names, following)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _aistore(names: list[str], following: str) -> bytes:
    entries = [{"name": name, "size": "1"} for name in names]
    return json.dumps({"entries": entries, "continuation_token": following}).encode()


def _s3(names: list[str], following: str) -> bytes:
    when = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size>"
    found = "".join(f"<Contents><Key>{escape(name)}</Key>{when}</Contents>" for name in names)
    token = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
    more = f"<IsTruncated>{'true' if following else 'false'}</IsTruncated>"
    return f"<ListBucketResult><Name>b</Name>{more}{token}{found}</ListBucketResult>".encode()


@pytest.fixture
def lister() -> Iterator[Lister]:
    lister = Lister()
    yield lister
    lister.close()


@pytest.fixture(params=["ais", "s3"])
def listed_store(request: pytest.FixtureRequest, lister: Lister, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    made = AisStore if request.param == "ais" else lambda *a, **k: CloudStore("s3", *a, **k)  # type: ignore[misc]
    store = made("bucket", READ, endpoint=lister.url)
    yield store
    store.close()


def scripted(*pages: Page) -> Callable[[int], Page]:
    return lambda number: pages[min(number, len(pages) - 1)]


def listed(store: Any, prefix: str = "") -> list[str]:
    return [info.name for info in store.list(prefix)]


def test_pages_without_names_are_skipped(lister: Lister, listed_store: Any) -> None:
    lister.pages = scripted(([], "1"), (NAMES[:5], "2"), ([], "3"), ([], "4"), (NAMES[5:], "5"), ([], ""))
    assert listed(listed_store) == NAMES


def test_endless_pages_without_names(lister: Lister, listed_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page has a different token."""
    monkeypatch.setattr("ais_tar2tf.stores.ais_listing.MAX_EMPTY_PAGES", 20)
    lister.pages = lambda number: ([], f"t{number}")
    with pytest.raises(StoreError, match="the listing does not go on"):
        listed(listed_store)


def test_endless_pages_without_names_after_some_names(
    lister: Lister, listed_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ais_tar2tf.stores.ais_listing.MAX_EMPTY_PAGES", 20)
    lister.pages = lambda number: (NAMES if not number else [], f"t{number}")
    with pytest.raises(StoreError, match="the listing does not go on"):
        listed(listed_store)


OVERLAPPING: dict[str, list[Page]] = {
    "overlap": [(NAMES[:5], "1"), (NAMES[3:8], "2"), (NAMES[4:9], "")],  # 15 names, 9 distinct ones
    "by one name": [(NAMES[:5], "1"), (NAMES[4:9], "")],
    "a page twice": [(NAMES[:5], "1"), (NAMES[:5], "2"), (NAMES[5:], "")],
    "in another order": [(NAMES[5:], "1"), (NAMES[:5], "")],
    "backwards": [(NAMES[::-1], "")],
    "twice on a page": [([*NAMES, NAMES[-1]], "")],
}


@pytest.mark.parametrize("pages", OVERLAPPING.values(), ids=OVERLAPPING)
def test_a_name_that_is_repeated_or_out_of_order(lister: Lister, listed_store: Any, pages: list[Page]) -> None:
    lister.pages = scripted(*pages)
    with pytest.raises(StoreError, match="its pages overlap or are not in the order of names"):
        listed(listed_store)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_tokens_that_form_a_cycle(lister: Lister, listed_store: Any, length: int) -> None:
    """The names of a cycle of pages are repeated, however long the cycle is."""
    pages = [([NAMES[number]], f"t{number}") for number in range(length)]
    lister.pages = lambda number: pages[number % length]
    with pytest.raises(StoreError, match=r"overlap|repeats|does not go on"):
        listed(listed_store)


def test_endless_names(lister: Lister, listed_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless ordered names do not match the template, so the number of matches is no bound."""
    monkeypatch.setattr(listed_store, "_read", Read(limits=Limits(listed=500)))
    lister.pages = lambda number: ([f"{10**9 + number * 100 + each}.tar" for each in range(100)], f"t{number}")
    found = listed_store.list("")
    assert len(list(itertools.islice(found, 500))) == 500
    with pytest.raises(StoreError, match=r"Limits\.listed"):
        next(found)


def test_endless_names_that_match(lister: Lister) -> None:
    lister.pages = lambda number: ([f"{10**9 + number * 100 + each}.tar" for each in range(100)], f"t{number}")
    with pytest.raises(TemplateError, match=r"Limits\.template"):
        t2t.open("ais://bucket/*.tar", endpoint=lister.url, limits=Limits(template=300))
    assert lister.asked < 70  # pages, and requests for names that pages hide


def test_a_name_that_is_too_long(lister: Lister, listed_store: Any) -> None:
    lister.pages = scripted((["x" * 100_000], ""))
    with pytest.raises(StoreError, match=r"Limits\.name_bytes"):
        listed(listed_store)


def test_a_name_that_leaves_the_bucket(lister: Lister) -> None:
    lister.pages = scripted((["a/../../b.tar"], ""))
    store = AisStore("bucket", READ, endpoint=lister.url)
    with pytest.raises(UnsafeName):
        listed(store)
    store.close()


def test_an_abandoned_listing_keeps_no_event_loop(lister: Lister, listed_store: Any) -> None:
    lister.pages = lambda number: ([f"{10**9 + number * 1000 + each}.tar" for each in range(1000)], f"t{number}")
    found = listed_store.list("")
    next(found)
    found.close()


def test_a_listing_inside_a_running_event_loop(lister: Lister, listed_store: Any) -> None:
    """List inside a running event loop, as in a notebook."""
    lister.pages = scripted((NAMES[:5], "1"), (NAMES[5:], ""))

    async def within() -> list[str]:
        return listed(listed_store)

    assert asyncio.run(within()) == NAMES
    lister.pages = lambda number: ([], f"t{number}")
    if isinstance(listed_store, CloudStore):

        async def for_ever() -> list[str]:
            return listed(listed_store)

        with pytest.raises(StoreError, match=r"Timeouts\.listing"):
            asyncio.run(for_ever())
