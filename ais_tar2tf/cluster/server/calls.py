"""Parses an HTTP request to the embedded server into a `Call`, and turns a refusal into a response.

This module must not touch the disk.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar, cast
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlsplit

from aiohttp import web

from ais_tar2tf.cluster.server import refusals
from ais_tar2tf.cluster.server.connections import BODY_SECONDS

__all__ = [
    "Call",
    "ReceivedRequest",
    "decoded_target",
    "in_time",
    "parse",
    "peer_of",
    "read_action",
    "read_body",
    "refuse",
    "split_target",
    "whole_number",
]

T = TypeVar("T")

_NOT_SERVED = frozenset(  # query parameters that give a request a meaning which this server does not support
    {"append_type", "etl_pipeline", "object_to", "uploadId"}
)


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as it was received, for tests that check what a client sent.

    Attributes:
        node: The node that received the request, "proxy" or "target".
        method: The HTTP method.
        path: The path as sent, percent-encoded.
        query: The query as sent, percent-encoded.
        range: The Range header; None if the request had no such header.
        authorized: Whether there was an Authorization header.
    """

    node: str
    method: str
    path: str
    query: str
    range: str | None
    authorized: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request. `bucket` and `name` are percent-decoded, but not yet checked: they may contain `..`."""

    request: web.BaseRequest
    resource: str  # the first part of the path after /v1/: objects, buckets, health or daemon
    bucket: str
    name: str
    query: Mapping[str, str]


def split_target(request: web.BaseRequest) -> tuple[str, str]:
    """Return a request's path and query exactly as sent. A URL class would normalize `..`, and decode twice."""
    target = request.raw_path.partition("#")[0]
    if not target.startswith("/"):
        parts = urlsplit(target)
        return parts.path, parts.query
    path, _, query = target.partition("?")
    return path, query


def decoded_target(request: web.BaseRequest) -> tuple[str, list[tuple[str, str]]]:
    """Return the percent-decoded path and query parameters of a request.

    The result does not depend on which characters the client has percent-encoded.
    """
    path, query = split_target(request)
    return unquote(path, errors="surrogateescape"), parse_qsl(query, keep_blank_values=True, errors="surrogateescape")


def parse(request: web.BaseRequest) -> Call:
    """Parse `/v1/<resource>/<bucket>/<name>?<query>`."""
    path, query_string = split_target(request)
    root, _, rest = path.removeprefix("/").partition("/")
    resource, _, rest = rest.partition("/")
    bucket, _, name = rest.partition("/")
    if root == "s3":
        raise refusals.not_served("/s3/")
    if root != "v1":
        raise refusals.no_such_call(request.method, path, peer_of(request))
    query = dict(parse_qsl(query_string, keep_blank_values=True))
    _check_query(query)
    return Call(request, resource, _decode(bucket), _decode(name), query)


def _check_query(query: Mapping[str, str]) -> None:
    if query.get("provider", "") not in ("", "ais"):
        raise refusals.bad_provider(query["provider"])
    if query.get("namespace", "") not in ("", "@#"):
        raise refusals.not_served("a bucket namespace")
    for parameter in _NOT_SERVED:
        if query.get(parameter):
            raise refusals.not_served(f"{parameter}=")


def _decode(quoted: str) -> str:
    try:
        return unquote_to_bytes(quoted.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise refusals.bad_request(f"{quoted!r} is not UTF-8 after percent-decoding") from error


async def read_action(request: web.BaseRequest) -> tuple[str, dict[str, object]]:
    """Return the action in a JSON body, and the action's value; ("", {}) for an empty body.

    aiohttp refuses a body of more than 1 MiB.
    """
    fields = await read_body(request, "[*apc.ActMsg]")
    return str(fields.get("action") or ""), _as_dict(fields.get("value") or {})


async def read_body(request: web.BaseRequest, what: str) -> dict[str, object]:
    """Return the JSON object in the body of a request; {} for an empty body. `what` names the object in an error."""
    body = await in_time(request.read(), "the body did not arrive completely within")
    try:
        message: object = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise refusals.unreadable(f"{what} ({request.method}), err: {error}") from error
    return _as_dict(message)


async def in_time(received: Awaitable[T], late: str = "nothing of the body came for") -> T:
    """Wait for `received`, a piece of a request's body or the whole body, and return these bytes.

    If they take longer than `BODY_SECONDS`, refuse the request. The error's text is `late`, followed by this time.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await received
    except TimeoutError as error:
        raise refusals.RefusedError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"{late} {BODY_SECONDS:.0f} s",
            headers={"Connection": "close"},
        ) from error


def whole_number(fields: Mapping[str, object], name: str) -> int:
    """Return the number that the field `name` holds, perhaps as text; 0 if the field is absent."""
    raw = fields.get(name) or 0
    try:
        return int(str(raw))  # AIStore's flags are a string that holds a number
    except ValueError as error:
        raise refusals.bad_request(f"{name} must be a whole number, not {str(raw)[:100]!r}") from error


def _as_dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise refusals.bad_request(
            "the body must be a JSON object with an action and, where it needs one, a value object"
        )
    return cast("dict[str, object]", value)


def refuse(request: web.BaseRequest, refusal: refusals.RefusedError, *, node: str) -> web.Response:
    """Return the response to a refused request.

    The body is AIStore's error document. The response to HEAD has the document in a header instead.
    """
    document = {
        "tcode": refusal.code,
        "message": f"{node}: {refusal.message}" if refusal.names_node else refusal.message,
        "method": request.method,
        "url_path": unquote(split_target(request)[0], errors="replace"),
        "remote_addr": peer_of(request),
        "caller": "",
        "node": node,
        "status": int(refusal.status),
    }
    text = json.dumps({key: value for key, value in document.items() if key != "tcode" or value})
    headers = {"X-Content-Type-Options": "nosniff", "Content-Type": "application/json", **refusal.headers}
    if request.method == "HEAD":
        return web.Response(status=refusal.status, headers={**headers, "Hdr-Error": text})
    return web.Response(status=refusal.status, headers=headers, body=f"{text}\n".encode())


def peer_of(request: web.BaseRequest) -> str:
    address = request.get_extra_info("peername")
    return f"{address[0]}:{address[1]}" if address else ""
