"""What HTTP's answers mean: statuses as our errors, headers as identities, and where a redirect may lead. No I/O."""

from __future__ import annotations

import html
import json
import re
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import quote, urljoin, urlsplit

from ais_tar2tf.errors import AccessDenied, ObjectChanged, SchemaError, ShardNotFound, StoreError, TransportError
from ais_tar2tf.stores._identity import Identity, validator_of
from ais_tar2tf.stores._reach import is_protected
from ais_tar2tf.values import json_value

__all__ = [
    "Headers",
    "as_sent",
    "error_for",
    "followed",
    "identity_of",
    "is_address",
    "is_endpoint",
    "length_of",
    "said_in",
]

_NOT_IMPLEMENTED = 501  # the one 5xx that stays, however often one asks
_MESSAGE = 300  # characters of it that are shown
_SENDABLE = "%/?:@&=+$,;!~*'()[]"  # beside letters, digits and -._: what a request line carries as it is
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_LENGTH = re.compile("[0-9]{1,18}")
_DENIED = {
    401: "check the token (AIS_AUTHN_TOKEN or token=) or the credentials",
    403: "this token or key is not known, or has too few rights",
}
_XML_MESSAGE = re.compile(rb"<Message>([^<]*)</Message>")  # in S3's errors, AIStore's own /s3 among them
_OF_S3 = "x-amz-request-id"  # in every answer of S3 and MinIO, and in none of AIStore's own API
_ERROR_BODY = 4096  # bytes of an error's explanation that are read


class Headers(Protocol):
    """Of an answer, whatever the case of their names: http.client's, or those of requests."""

    def get(self, name: str, default: str, /) -> str: ...


def error_for(
    status: int, url: str, headers: Headers, body: bytes = b"", secrets: tuple[str, ...] = ()
) -> StoreError:
    """What a status that is no success means. Servers repeat tokens in their messages: `secrets` are cut out."""
    said = _explain(body) or _explain(headers.get("Hdr-Error", "").encode())
    for secret in secrets:
        said = said.replace(secret, "[token]")
    because = f" ({said[:_MESSAGE]})" if said else ""
    if url.startswith("ais://") and (_XML_MESSAGE.search(body[:_ERROR_BODY]) or headers.get(_OF_S3, "")):
        meant = f"s3://{url.partition('://')[2]}"
        return StoreError(f"this endpoint speaks S3, and is no AIStore proxy: write {meant}{because}", url=url)
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
    """The message in an error's body: AIStore sends JSON, S3 XML, others a page that helps nobody."""
    in_xml = _XML_MESSAGE.search(body[:_ERROR_BODY])
    if in_xml is not None:
        return html.unescape(in_xml[1].decode("utf-8", "replace"))
    try:
        parsed: Any = json.loads(body[:_ERROR_BODY].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return ""
    return str(parsed.get("message", "")) if isinstance(parsed, dict) else ""


def said_in(content: bytes, kind: str, url: str) -> Any:
    """Return what an answer of the control plane says in JSON; `kind` says for the error what it should be."""
    try:
        return json_value(content)
    except SchemaError as error:
        raise StoreError(f"the answer is no {kind} ({error}); is the endpoint an AIStore proxy?", url=url) from error


def _retry_after(headers: Headers) -> float | None:
    """In seconds. The form with a date counts from the answer's own: whose clock is right does not matter."""
    said, date = headers.get("Retry-After", ""), headers.get("Date", "")
    try:
        if not said.endswith("GMT"):
            value = float(said)
        else:
            value = (parsedate_to_datetime(said) - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return value if value >= 0 else None


def as_sent(written: str) -> str:
    """A path with its query as a request line may carry it; what is percent-encoded already stays so.

    >>> as_sent("a b/ü%20#1.tar?x=1")
    'a%20b/%C3%BC%20%231.tar?x=1'
    """
    return _STRAY_PERCENT.sub("%25", quote(written, safe=_SENDABLE))


def is_address(url: str) -> bool:
    """Whether this is http(s)://host[:port]…, without a name and password, which would stand in every error."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        return False


def is_endpoint(url: str) -> bool:
    """Whether this is an address that a path can be put behind."""
    return is_address(url) and "?" not in url and "#" not in url


def followed(url: str, location: str, shown: str) -> str:
    """Where a redirect leads, verbatim; refused if it gives up TLS, holds a password, or leads to a cloud's metadata.

    Servers that don't encode a Location send UTF-8, which HTTP's libraries take for Latin-1.
    """
    location = quote(location, safe=f"{_SENDABLE}#", encoding="latin-1")
    try:
        parts = urlsplit(location)
        target = location if parts.scheme else urljoin(url, location)
        where = f"{parts.scheme}://{parts.hostname}"
    except ValueError:
        target, where = "", "something that is no URL"
    downgraded = url.startswith("https:") and not target.startswith("https:")
    if not is_address(target) or downgraded or _lets_in(url, target):
        raise StoreError(f"a redirect to {where} is not followed", url=shown)
    return target


def _lets_in(url: str, target: str) -> bool:
    """A server elsewhere has no business with what is next to us."""
    return is_protected(urlsplit(target).hostname or "") and not is_protected(urlsplit(url).hostname or "")


def length_of(headers: Headers) -> int | None:
    """Content-Length, where that is said, and is a number."""
    said = headers.get("Content-Length", "")
    return int(said) if _LENGTH.fullmatch(said) else None


def identity_of(headers: Headers, size: int | None) -> Identity:
    kind, digest = headers.get("Ais-Checksum-Type", ""), headers.get("Ais-Checksum-Value", "")
    return Identity(
        version=headers.get("Ais-Version", ""),
        etag=validator_of(headers.get("ETag", ""), headers.get("Last-Modified", ""), headers.get("Date", "")),
        checksum=f"{kind}:{digest}" if kind not in ("", "none") and digest else "",
        size=size,
    )
