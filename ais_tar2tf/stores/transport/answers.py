"""The meaning of HTTP: an answer's status becomes an error of this package, and its headers become an identity.

The module also checks URLs, and encodes them for requests. It must not do I/O.
"""

from __future__ import annotations

import html
import json
import re
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.errors import AccessDenied, ObjectChanged, SchemaError, ShardNotFound, StoreError, TransportError
from ais_tar2tf.stores.base import ObjectInfo
from ais_tar2tf.stores.identity import Identity, validator_of

__all__ = [
    "SENDABLE",
    "Headers",
    "as_sent",
    "error_for",
    "identity_of",
    "info_in",
    "is_address",
    "is_endpoint",
    "length_of",
    "parsed_json",
]

_NOT_IMPLEMENTED = 501  # the only status from 500 on that is not retried: a retry would get the same answer
_MESSAGE_CHARACTERS = 300  # an error shows at most this many characters of a server's message
SENDABLE = "%/?:@&=+$,;!~*'()[]"
"""Characters that a request line carries unencoded, in addition to letters, digits and `-._`."""

_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_LENGTH = re.compile("[0-9]{1,18}")  # less than an exabyte
_DENIED = {
    401: "check the token (AIS_AUTHN_TOKEN or token=) or the credentials",
    403: "this token or key is not known, or has too few rights",
}
_XML_MESSAGE = re.compile(rb"<Message>([^<]*)</Message>")  # in error bodies of S3, and of AIStore's S3 interface /s3
_S3_HEADER = "x-amz-request-id"  # every answer of S3 and MinIO has this header, and no answer of AIStore's own API
_ERROR_BODY = 4096  # only so many bytes of an error's body are searched for a message


class Headers(Protocol):
    """The headers of an answer from `http.client` or `requests`. Lookups ignore the case of names."""

    def get(self, name: str, default: str, /) -> str: ...


def error_for(
    status: int, url: str, headers: Headers, body: bytes = b"", secrets: tuple[str, ...] = ()
) -> StoreError:
    """Return the error for a request that failed with a status.

    Args:
        status: The status of the answer.
        url: The URL that the error names.
        headers: The headers of the answer.
        body: The beginning of the answer's body.
        secrets: Tokens that the error must not show. The server's message may repeat them.
    """
    message = _explain(body) or _explain(headers.get("Hdr-Error", "").encode())
    for secret in secrets:
        message = message.replace(secret, "[token]")
    because = f" ({message[:_MESSAGE_CHARACTERS]})" if message else ""
    if url.startswith("ais://") and (_XML_MESSAGE.search(body[:_ERROR_BODY]) or headers.get(_S3_HEADER, "")):
        correct = f"s3://{url.partition('://')[2]}"
        return StoreError(f"this endpoint speaks S3, and is no AIStore proxy: write {correct}{because}", url=url)
    if status in (401, 403):
        denied = _DENIED[status]
        return AccessDenied(f"access denied, status {status}; {denied}{because}", url=url, status=status)
    if status == 404:
        return ShardNotFound(f"there is no such object or bucket, or its target is down{because}", url=url)
    if status in (412, 416):
        return ObjectChanged(f"the object is not what it was, status {status}{because}", url=url)
    if status in (408, 425, 429) or (status >= 500 and status != _NOT_IMPLEMENTED):
        return TransportError(f"the server answered {status}{because}", url=url, retry_after=_retry_after(headers))
    return StoreError(f"the server answered {status}{because}", url=url)


def _explain(body: bytes) -> str:
    """Return the message in the body of an error, or "" if the body has none.

    AIStore sends JSON, S3 sends XML, and other servers send pages without a useful message.
    """
    in_xml = _XML_MESSAGE.search(body[:_ERROR_BODY])
    if in_xml is not None:
        return html.unescape(in_xml[1].decode("utf-8", "replace"))
    try:
        parsed: Any = json.loads(body[:_ERROR_BODY].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return ""
    return str(parsed.get("message", "")) if isinstance(parsed, dict) else ""


def parsed_json(content: bytes, kind: str, url: str) -> Any:
    """Parse the content of an answer as JSON. If it is not JSON, the error names the answer by `kind`."""
    try:
        return json_value(content)
    except SchemaError as error:
        raise StoreError(f"the answer is no {kind} ({error}); is the endpoint an AIStore proxy?", url=url) from error


def _retry_after(headers: Headers) -> float | None:
    """Return the seconds that the header Retry-After states; None if the header is absent or malformed.

    If the header states a date, the seconds are counted from the answer's header Date, because our clock may
    be wrong.
    """
    stated, date = headers.get("Retry-After", ""), headers.get("Date", "")
    try:
        if not stated.endswith("GMT"):
            value = float(stated)
        else:
            value = (parsedate_to_datetime(stated) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return value if value >= 0 else None


def as_sent(written: str) -> str:
    """Return a path and query, encoded for a request line. Characters that are already encoded stay as they are.

    >>> as_sent("a b/ü%20#1.tar?x=1")
    'a%20b/%C3%BC%20%231.tar?x=1'
    """
    return _STRAY_PERCENT.sub("%25", quote(written, safe=SENDABLE))


def is_address(url: str) -> bool:
    """Return whether `url` is http(s)://host[:port]… and has no user or password, because errors would show them."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        return False


def is_endpoint(url: str) -> bool:
    """Return whether `url` is an address to which a path can be appended."""
    return is_address(url) and "?" not in url and "#" not in url


def length_of(headers: Headers, name: str = "Content-Length") -> int | None:
    """Return the number of bytes that the header `name` states; None if this header is absent or malformed."""
    stated = headers.get(name, "")
    return int(stated) if _LENGTH.fullmatch(stated) else None


def identity_of(headers: Headers, size: int | None) -> Identity:
    """Return the identity that the headers of an answer state for an object of size `size`."""
    kind, digest = headers.get("Ais-Checksum-Type", ""), headers.get("Ais-Checksum-Value", "")
    return Identity(
        version=headers.get("Ais-Version", ""),
        etag=validator_of(headers.get("ETag", ""), headers.get("Last-Modified", ""), headers.get("Date", "")),
        checksum=f"{kind}:{digest}" if kind not in ("", "none") and digest else "",
        size=size,
    )


def info_in(headers: Headers, name: str) -> ObjectInfo:
    """Return the properties of the object `name` that the headers of an answer to a HEAD request state."""
    size = length_of(headers)
    return ObjectInfo(name, size, identity_of(headers, size))
