"""Where a token comes from, when it is renewed, and that it is never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import AccessDenied, OptionError, StoreError
from ais_tar2tf.options import Read, Retry
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.transport.tokens import Token
from tests.support.fault_server import Fault, FaultServer, ais
from tests.support.own_errors import everything_printed

READ = Read(retry=Retry(attempts=2, first_delay=0.001))
OBJECT = "v1/objects/bucket/x.tar?provider=ais"
BUCKET = "v1/buckets/bucket?provider=ais"


@pytest.fixture
def content_server() -> Iterator[FaultServer]:
    with FaultServer() as found:
        found.add("bucket/x.tar", ais(b"content"))
        yield found


def test_the_argument_comes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(tmp_path / "token"))
    assert Token(None, "ais://b").value() == "from-file"
    monkeypatch.setenv("AIS_AUTHN_TOKEN", " from-environment ")
    assert Token(None, "ais://b").value() == "from-environment"
    assert Token(lambda: "from-function", "ais://b").value() == "from-function"
    assert Token("given", "ais://b").value() == "given"


@pytest.mark.parametrize(
    ("text", "value"), [('{"token": "abc"}', "abc"), (" abc\n", "abc"), ("{}", None), ("{no json", None), ("", None)]
)
def test_a_file_is_text_or_what_aistores_command_line_writes(
    tmp_path: Path, text: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / ".config" / "ais" / "cli"
    home.mkdir(parents=True)
    (home / "auth.token").write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AIS_AUTHN_TOKEN_FILE")
    assert Token(None, "ais://b").value() == value


def test_a_named_token_file_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="AIS_AUTHN_TOKEN_FILE names a file that cannot be read"):
        Token(None, "ais://b").value()


@pytest.mark.parametrize("bad", ["two words", "a\r\nX: y", "ü"])
def test_a_token_that_is_invalid_in_a_header_is_refused_and_not_shown(bad: str) -> None:
    for make in (lambda: Token(bad, "ais://b"), lambda: Token(lambda: bad, "ais://b").value()):
        with pytest.raises(StoreError, match="this is no token") as caught:
            make()
        assert bad not in everything_printed(caught.value).replace(repr(bad), "")


def test_a_failed_provider_is_reported_without_its_message() -> None:
    def provider() -> str:
        raise LookupError("vault")

    with pytest.raises(StoreError, match=r"the token provider failed \(LookupError\)"):
        Token(provider, "ais://b").value()
    with pytest.raises(StoreError, match="returned int; a token is a str"):
        Token(lambda: 7, "ais://b").value()  # pyright: ignore[reportArgumentType]


def test_several_threads_renew_a_refused_token_once() -> None:
    given = iter(["one", "two", "three"])
    token = Token(lambda: next(given), "ais://b")
    assert token.value() == "one"
    assert token.renew("one")
    assert token.renew("one")  # it has been renewed already
    assert token.value() == "two"
    assert token.secrets() == ("one", "two")
    assert not Token("fixed", "ais://b").renew("fixed")
    assert "two" not in repr(token)


ASKS: dict[str, tuple[str, Callable[[AisStore], object]]] = {
    "open": (OBJECT, lambda store: store.open("x.tar").close()),
    "head": (OBJECT, lambda store: store.head("x.tar")),
    "put": (OBJECT, lambda store: store.put("x.tar", b"")),
    "list": (BUCKET, lambda store: list(store.list(""))),
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_refused_token_is_replaced_once(content_server: FaultServer, ask: str) -> None:
    target, call = ASKS[ask]
    given = iter(["old-token", "new-token", "third-token"])
    store = AisStore("bucket", READ, endpoint=content_server.url, token=lambda: next(given))
    content_server.script[target].append(Fault(status=401))
    call(store)
    sent = [
        request.headers.get("authorization") for request in content_server.requests if request.target == f"/{target}"
    ]
    assert sent[:2] == ["Bearer old-token", "Bearer new-token"]
    assert set(sent[2:]) <= {"Bearer new-token"}
    store.close()


@pytest.mark.parametrize("ask", ASKS)
def test_a_token_that_is_refused_twice_is_an_error(content_server: FaultServer, ask: str) -> None:
    target, call = ASKS[ask]
    given = iter(["old-token", "new-token", "third-token"])
    store = AisStore("bucket", READ, endpoint=content_server.url, token=lambda: next(given))
    body = b'{"message": "old-token and new-token were revoked"}'
    content_server.script[target].extend([Fault(status=401, body=body, headers={"Hdr-Error": body.decode()})] * 2)
    with pytest.raises(AccessDenied, match="401") as caught:
        call(store)
    assert "-token" not in everything_printed(caught.value)
    assert next(given) == "third-token"
    store.close()


def test_a_token_for_a_store_that_takes_none_is_refused() -> None:
    for url in ("s3://bucket/x.tar", "http://host/x.tar", "data/x.tar"):
        with pytest.raises(OptionError, match=r"token= has no effect for .* begin with ais://"):
            t2t.open(url, token="a-token")
    with t2t.open("memory://bucket/x.tar", token="a-token") as source:
        assert list(source.shards) == ["memory://bucket/x.tar"]
