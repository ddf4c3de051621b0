"""The token that lets us in: where it comes from, and another one when it is refused. It is shown nowhere."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ais_tar2tf import forking
from ais_tar2tf.documents import parse_json
from ais_tar2tf.errors import SchemaError, StoreError
from ais_tar2tf.options import Limits

__all__ = ["Token", "TokenSource"]

TokenSource = str | Callable[[], str]

_FILE = "~/.config/ais/cli/auth.token"  # where AIStore's own command line leaves it
_REMEMBERED = 8  # tokens that were valid once and may still stand in a late answer
_FILE_BYTES = Limits().token_bytes


class Token:
    """The argument, else AIS_AUTHN_TOKEN, else the file that AIS_AUTHN_TOKEN_FILE names, else that of AIStore's CLI.

    What was given as text stays as it is; everything else is asked again when a server refuses what it gave.
    """

    def __init__(self, given: TokenSource | None, shown: str) -> None:
        self._given = given or None
        self._shown = shown
        self._lock = forking.lock()
        self._seen: deque[str] = deque(maxlen=_REMEMBERED)
        self._value: str | None = None
        self._asked = False
        if isinstance(given, str):
            self.value()  # so that a wrong one is told early; a function is asked when it is needed

    def __repr__(self) -> str:
        return "Token()"

    def value(self) -> str | None:
        """The token in use; None where there is none."""
        with self._lock:
            if not self._asked:
                self._ask()
            return self._value

    def renew(self, refused: str | None) -> bool:
        """Whether there is another one than the one that was refused. Several threads may come with the same one."""
        with self._lock:
            if self._value == refused and not isinstance(self._given, str):
                self._ask()
            return self._value is not None and self._value != refused

    def secrets(self) -> tuple[str, ...]:
        """What must be cut out of everything that is shown."""
        with self._lock:
            return tuple(self._seen)

    def _ask(self) -> None:
        value = self._found().strip() or None
        if value and not (value.isascii() and value.isprintable() and " " not in value):
            raise StoreError(
                "the token holds characters that no header carries: it is one word, without 'Bearer' before it",
                url=self._shown,
            )
        self._value, self._asked = value, True
        if value and value not in self._seen:
            self._seen.append(value)

    def _found(self) -> str:
        if isinstance(self._given, str):
            return self._given
        if self._given is not None:
            return self._from_provider(self._given)
        return os.environ.get("AIS_AUTHN_TOKEN", "").strip() or self._from_file()

    def _from_provider(self, provider: Callable[[], str]) -> str:
        try:
            value: Any = provider()
        except Exception as error:
            raise StoreError(f"the token provider failed ({type(error).__name__})", url=self._shown) from error
        if not isinstance(value, str):
            raise StoreError(f"the token provider returned {type(value).__name__}; a token is a str", url=self._shown)
        return value

    def _from_file(self) -> str:
        """As text, or as AIStore's command line writes it: {"token": "…"}."""
        named = os.environ.get("AIS_AUTHN_TOKEN_FILE", "")
        try:
            path = Path(named or _FILE).expanduser()
            with path.open("rb") as file:  # which may be a pipe: `AIS_AUTHN_TOKEN_FILE=<(vault …)`
                data = file.read(_FILE_BYTES + 1)
            if len(data) > _FILE_BYTES:
                raise SchemaError(f"{path}: it has over {_FILE_BYTES:,} bytes, Limits.token_bytes")
            text = data.decode()
            return _in_json(text, str(path)) if text.lstrip().startswith("{") else text
        except (OSError, ValueError, RuntimeError) as error:
            if not named:
                return ""
            why = error.message if isinstance(error, SchemaError) else type(error).__name__
            raise StoreError(
                f"AIS_AUTHN_TOKEN_FILE names a file that cannot be read ({why})", url=self._shown
            ) from None


def _in_json(text: str, where: str) -> str:
    """Raise errors that do not show what the file holds."""
    found = parse_json(text, where=where, fail=SchemaError).get("token") or ""
    if not isinstance(found, str):
        raise SchemaError(f"{where}: the token is no text")
    return found
