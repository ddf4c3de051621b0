"""Foreign names, keys and messages never become commands to a terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ais_tar2tf.base.escaping import escaped, one_line
from ais_tar2tf.cli.app import app
from ais_tar2tf.cli.console import Console, json_text
from tests.support import shards as made
from tests.support.fault_server import Fault, FaultServer

CLEAR = "\x1b[2J\x1b]0;title\x07\x9b31m"
COMMAND = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(st.text(alphabet=st.characters(codec=None)))
def test_no_control_character_is_left(text: str) -> None:
    shown = one_line(text)
    assert not any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") for character in shown)
    assert escaped(text).replace("\n", "\\n").replace("\t", "\\t") == shown
    shown.encode()


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_other_characters_are_kept(text: str) -> None:
    assert one_line(text) == escaped(text) == text


@given(st.recursive(st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_has_the_same_content_without_control_characters(document: Any) -> None:
    text = json_text(document)
    assert json.loads(text) == document
    assert not COMMAND.search(text)


def test_foreign_text_is_not_markup(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = Console()
    console.data(console.styled(f"a\x1b[31m\0[31m{CLEAR}", "bold"))
    assert capsys.readouterr().out == "\x1b[1ma\\x1b[31m\\x00[31m\\x1b[2J\\x1b]0;title\\x07\\x9b31m\x1b[0m\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Write shards whose names, keys and fields contain terminal commands. One record is damaged."""
    folder = tmp_path / f"da{CLEAR}ta"
    folder.mkdir()
    records = [(f"r/{CLEAR}{number}", {"cls": b"1", f"x{CLEAR}": b"2"}) for number in range(3)]
    (folder / f"a{CLEAR}.tar").write_bytes(made.tar(records))
    (folder / "b.tar").write_bytes(made.tar([(f"q/{CLEAR}", {"jpg": b"no picture", "cls": CLEAR.encode()})] * 2))
    return folder


def shown(*arguments: object, **environment: str) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("--json",), ("-v",)], ids=["plain", "json", "verbose"])
def test_no_verb_prints_a_terminal_command(hostile: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    out = tmp_path / f"o{CLEAR}ut"
    for arguments in (
        ("ls", f"{hostile}/"),
        ("ls", f"{hostile}/nothing*.tar"),
        ("inspect", f"{hostile}/"),
        ("inspect", hostile / "b.tar"),
        ("index", f"{hostile}/"),
        ("convert", hostile / f"a{CLEAR}.tar", out),
        ("convert", hostile / "b.tar", tmp_path / "other"),
        ("verify", out),
        ("verify", tmp_path / f"no{CLEAR}"),
        ("card", f"{hostile}/", "-o", tmp_path / f"c{CLEAR}.html"),
    ):
        text = shown(*arguments, *options)
        assert text
        assert not COMMAND.search(text), (arguments, text)


@pytest.mark.parametrize("verb", ["ls", "inspect", "index"])
def test_a_servers_message_is_no_terminal_command(verb: str) -> None:
    message = json.dumps({"message": f"no{CLEAR}", "status": 403}).encode()
    with FaultServer() as server:
        refusal = Fault(status=403, body=message, headers={"Hdr-Error": f"a{chr(0x9B)}b"})
        for path in ("v1/buckets/b", "v1/objects/b/x.tar"):
            for door in (path, f"{path}?provider=ais"):
                server.script[door].extend([refusal] * 20)
        text = "".join(shown(verb, url, "--endpoint", server.url) for url in ("ais://b/x.tar", "ais://b/"))
        assert server.requests
    assert "error" in text
    assert not COMMAND.search(text), text
