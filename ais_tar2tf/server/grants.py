"""Grants: how the proxy lets a client in at the target, for one request and a short time; it must not do I/O.

With a token configured, the proxy checks the token and redirects to the target. The redirect's query carries

    pid=<the proxy's id>&utm=<nanoseconds>&grant=<expiry>.<HMAC-SHA256 in hex>

as AIStore's does, and the grant. The HMAC covers the method, the decoded path, the expiry and all other parameters
of the query, under a key that is drawn when the server starts and never leaves it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable

__all__ = ["GRANT", "LIFETIME", "Grants"]

GRANT = "grant"
"""The parameter of the query that holds a grant."""

LIFETIME = 300
"""Seconds from the redirect until the target has to be asked: a client follows at once, or after a few retries."""

_LONGEST = 100  # characters of a grant: ten digits, a dot and 64 hex digits are fewer


class Grants:
    """Signs requests for the target and checks what clients bring there."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def sign(self, method: str, path: str, query: Iterable[tuple[str, str]]) -> str:
        """Return the value of `GRANT` for a request; `path` and `query` are decoded, `query` is without the grant."""
        expiry = str(int(self._clock()) + LIFETIME)
        return f"{expiry}.{self._signature(method, path, query, expiry)}"

    def allows(self, method: str, path: str, query: Iterable[tuple[str, str]]) -> bool:
        """Return whether the request carries a grant for just itself that has not expired."""
        others: list[tuple[str, str]] = []
        grant = ""
        for name, value in query:
            if name == GRANT:
                grant = value
            else:
                others.append((name, value))
        expiry, _, signature = grant.partition(".")
        if len(grant) > _LONGEST or not (expiry.isascii() and expiry.isdecimal()) or int(expiry) < self._clock():
            return False
        return hmac.compare_digest(signature.encode(), self._signature(method, path, others, expiry).encode())

    def _signature(self, method: str, path: str, query: Iterable[tuple[str, str]], expiry: str) -> str:
        parts = [method, path, expiry, *(part for pair in sorted(query) for part in pair)]
        # Lengths first, so that no two lists of parts give the same message.
        data = b"".join(
            f"{len(raw)}:".encode() + raw for raw in (p.encode("utf-8", "surrogateescape") for p in parts)
        )
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()
