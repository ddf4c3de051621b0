"""Grants: signatures by which the target accepts a request that the proxy redirected. No I/O.

When a token is configured, the proxy checks the token and redirects to the target. The redirect's query carries

    pid=<the proxy's id>&utm=<nanoseconds>&grant=<expiry>.<HMAC-SHA256 in hex>

The first two parameters are AIStore's own. The HMAC covers the method, the decoded path, the expiry and all other
parameters of the query. Its key is random, and never leaves the server.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable

__all__ = ["GRANT", "LIFETIME", "Grants"]

GRANT = "grant"
"""The query parameter that holds a grant."""

LIFETIME = 300
"""Seconds that a grant is valid: a client follows the redirect at once, or after a few retries."""

_LONGEST = 100  # characters of a grant: ten digits, a dot and 64 hex digits are fewer


class Grants:
    """Signs redirected requests, and checks the signatures of requests at the target."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def sign(self, method: str, path: str, query: Iterable[tuple[str, str]]) -> str:
        """Return a grant for a request; `path` and `query` are decoded, and `query` has no grant yet."""
        expiry = str(int(self._clock()) + LIFETIME)
        return f"{expiry}.{self._signature(method, path, query, expiry)}"

    def allows(self, method: str, path: str, query: Iterable[tuple[str, str]]) -> bool:
        """Return whether the query holds a grant for exactly this request that has not expired."""
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
        stated = signature.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(stated, self._signature(method, path, others, expiry).encode())

    def _signature(self, method: str, path: str, query: Iterable[tuple[str, str]], expiry: str) -> str:
        parts = [method, path, expiry, *(part for pair in sorted(query) for part in pair)]
        # Each part has its length before it, so that different lists of parts never give the same message.
        data = b"".join(
            f"{len(raw)}:".encode() + raw for raw in (p.encode("utf-8", "surrogateescape") for p in parts)
        )
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()
