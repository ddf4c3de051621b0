"""Signed URLs, whose query grants access, and the form in which they may be shown. No I/O."""

from __future__ import annotations

import re

__all__ = ["shown_url"]

_HIDDEN = "…"  # in place of a query
_SECRET = re.compile(  # names of query parameters that grant access, or accompany one that does
    r"x-(amz|goog|ms|oss|cos|obs|bce)-.*|.*(signature|token|secret|password|credential|api[-_]?key).*"
    r"|(aws|google|oss)access(key)?id|key-pair-id|policy|expires|sig|sign|hmac|auth(orization)?|jwt|code|key|pass"
    r"|se|sp|sv|sr|st|spr|sip|skoid|sktid|skt|ske|sks|skv"
)
_KEY = re.compile(r"[\w%+~=-]+")  # a query that is only a key; the `?` of a glob is followed by other characters
_LONG = 32  # characters: so long a value may be a key, whatever its name is


def shown_url(url: str) -> str:
    """Return a URL without a query that grants access, for errors, logs and documents.

    A query is hidden if a parameter has a name that signed URLs use, or a value that is long enough for a key.

    >>> shown_url("https://host/a.tar?download=1")
    'https://host/a.tar?download=1'
    >>> shown_url("https://host/a.tar?X-Amz-Date=20260101&X-Amz-Signature=0123456789abcdef")
    'https://host/a.tar?…'
    """
    address, mark, query = url.partition("?")
    if not mark:
        return url
    for parameter in re.split("[&;]", query):
        name, _, value = parameter.partition("=")
        key = value or (name if _KEY.fullmatch(name) else "")
        if len(key) >= _LONG or _SECRET.fullmatch(name.lower()) is not None:
            return f"{address}?{_HIDDEN}"
    return url
