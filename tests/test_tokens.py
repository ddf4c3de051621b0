"""Where a token comes from, when it is asked for again, and that it is shown nowhere."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ais_tar2tf.errors import AccessDenied, StoreError
from ais_tar2tf.options import Read, Retry
from ais_tar2tf.stores._token import Token
from ais_tar2tf.stores.ais import AisStore
from faults import Fault, FaultServer, ais

READ = Read(retry=Retry(attempts=2, first_delay=0.001))
OBJECT = "v1/objects/bucket/x.tar?provider=ais"
BUCKET = "v1/buckets/bucket?provider=ais"


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as found:
        found.add("bucket/x.tar", ais(b"content"))
        yield found


def told(error: BaseException) -> str:
    return "".join([str(error), repr(error), repr(error.args), *traceback.format_exception(error)])


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


def test_a_file_that_was_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError, match="AIS_AUTHN_TOKEN_FILE names a file that cannot be read"):
        Token(None, "ais://b").value()


@pytest.mark.parametrize("bad", ["two words", "a\r\nX: y", "ü"])
def test_a_token_that_no_header_carries_is_refused_unseen(bad: str) -> None:
    for make in (lambda: Token(bad, "ais://b"), lambda: Token(lambda: bad, "ais://b").value()):
        with pytest.raises(StoreError, match="no header carries") as caught:
            make()
        assert bad not in told(caught.value).replace(repr(bad), "")


def test_a_provider_that_fails_is_told_without_what_it_said() -> None:
    def provider() -> str:
        raise LookupError("vault")

    with pytest.raises(StoreError, match=r"the token provider failed \(LookupError\)"):
        Token(provider, "ais://b").value()
    with pytest.raises(StoreError, match="returned int; a token is a str"):
        Token(lambda: 7, "ais://b").value()  # pyright: ignore[reportArgumentType]


def test_several_threads_with_one_refused_token_ask_once() -> None:
    given = iter(["one", "two", "three"])
    token = Token(lambda: next(given), "ais://b")
    assert token.value() == "one"
    assert token.renew("one")
    assert token.renew("one")  # it is another one already
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
def test_a_refused_token_is_replaced_once(server: FaultServer, ask: str) -> None:
    target, call = ASKS[ask]
    given = iter(["old-token", "new-token", "third-token"])
    store = AisStore("bucket", READ, endpoint=server.url, token=lambda: next(given))
    server.script[target].append(Fault(status=401))
    call(store)
    sent = [request.headers.get("authorization") for request in server.requests if request.target == f"/{target}"]
    assert sent[:2] == ["Bearer old-token", "Bearer new-token"]
    assert set(sent[2:]) <= {"Bearer new-token"}
    store.close()


@pytest.mark.parametrize("ask", ASKS)
def test_a_token_refused_twice_is_told(server: FaultServer, ask: str) -> None:
    target, call = ASKS[ask]
    given = iter(["old-token", "new-token", "third-token"])
    store = AisStore("bucket", READ, endpoint=server.url, token=lambda: next(given))
    body = b'{"message": "old-token and new-token were revoked"}'
    server.script[target].extend([Fault(status=401, body=body, headers={"Hdr-Error": body.decode()})] * 2)
    with pytest.raises(AccessDenied, match="401") as caught:
        call(store)
    assert "-token" not in told(caught.value)
    assert next(given) == "third-token"
    store.close()
