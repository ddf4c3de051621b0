"""The token rules of both HTTP clients (`pool.py`, `control.py`): where a token comes from, and when it is renewed.

No error or log may show a token. A client must send its token to its endpoint only.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ais_tar2tf.base import forking
from ais_tar2tf.base.documents.sealed import parse_json
from ais_tar2tf.errors import AccessDenied, SchemaError, StoreError
from ais_tar2tf.options import Limits

__all__ = ["UNAUTHORIZED", "Token", "TokenSource", "authorized", "secrets_of"]

_Result = TypeVar("_Result")

TokenSource = str | Callable[[], str]
"""A token, or a function that returns a token. If a server refuses the token, the function is called again."""

_DEFAULT_FILE = "~/.config/ais/cli/auth.token"  # written by AIStore's own command line
_MAX_REMEMBERED = 8  # tokens that are hidden in messages: a late answer may repeat an earlier token
UNAUTHORIZED = 401
_FILE_BYTES = Limits().token_bytes


class Token:
    """The token of one store.

    The first of these sources that exists is used: the argument `given`, the environment variable AIS_AUTHN_TOKEN,
    the file that AIS_AUTHN_TOKEN_FILE names, the file of AIStore's command line. A token that was given as text never
    changes. A token from any other source is read again when a server refuses it.
    """

    def __init__(self, given: TokenSource | None, shown: str) -> None:
        self._given = given or None
        self._shown = shown
        self._lock = forking.lock()
        self._remembered: deque[str] = deque(maxlen=_MAX_REMEMBERED)
        self._value: str | None = None
        self._is_read = False
        if isinstance(given, str):
            self.value()  # report a malformed token now; a function is called only when a token is needed

    def __repr__(self) -> str:
        return "Token()"

    def value(self) -> str | None:
        """Return the current token, or None if no source has a token."""
        with self._lock:
            if not self._is_read:
                self._read()
            return self._value

    def renew(self, refused: str | None) -> bool:
        """Read the token again, unless another thread has done so. Return whether there is a new token."""
        with self._lock:
            if self._value == refused and not isinstance(self._given, str):
                self._read()
            return self._value is not None and self._value != refused

    def secrets(self) -> tuple[str, ...]:
        """Return the current and earlier tokens, which must be hidden in every message of a server."""
        with self._lock:
            return tuple(self._remembered)

    def _read(self) -> None:
        value = self._found().strip() or None
        if value and not (value.isascii() and value.isprintable() and " " not in value):
            raise StoreError(
                "this is no token: a token is one word of printable ASCII characters, without 'Bearer' before it",
                url=self._shown,
            )
        self._value, self._is_read = value, True
        if value and value not in self._remembered:
            self._remembered.append(value)

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
        """Return the token in the token file: plain text, or {"token": "…"}, which AIStore's command line writes."""
        named = os.environ.get("AIS_AUTHN_TOKEN_FILE", "")
        try:
            path = Path(named or _DEFAULT_FILE).expanduser()
            with path.open("rb") as file:  # the file may be a pipe: `AIS_AUTHN_TOKEN_FILE=<(vault …)`
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


def authorized(token: Token | None, request: Callable[[Mapping[str, str]], _Result]) -> _Result:
    """Call `request` with the token in a header. If the token is refused, renew it and call `request` again."""
    if token is None:
        return request({})
    value = token.value()
    try:
        return request(_bearer(value))
    except AccessDenied as error:
        if error.status != UNAUTHORIZED or not token.renew(value):
            raise
    return request(_bearer(token.value()))


def secrets_of(token: Token | None) -> tuple[str, ...]:
    """Return the tokens that must be hidden in every message of a server."""
    return token.secrets() if token is not None else ()


def _bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _in_json(text: str, where: str) -> str:
    """Return the token in a JSON document. No error shows the document."""
    found = parse_json(text, where=where, fail=SchemaError).get("token") or ""
    if not isinstance(found, str):
        raise SchemaError(f"{where}: the token is no text")
    return found
