"""Record an exchange with an AIStore cluster without ids, times and ports, so that two clusters can be compared."""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgpack
import requests

MSGPACK = "application/msgpack"
_TIMEOUT = 20
# These headers depend on the connection or the time, not on the request.
_NOT_COMPARED = frozenset({"Date", "Ais-Atime", "Server", "Connection", "Keep-Alive"})
_IDS = frozenset({"Ais-Location", "Ais-Mirror-Paths", "Ais-Cluster-Uptime", "Ais-Node-Uptime", "Ais-Bucket-Props"})
_NODE = re.compile(r"\b[pt]\[[^\]]*\]")
# The rest of these messages is the text of a JSON or regexp parser, which differs between Go and Python.
_UNREADABLE = re.compile(r"(failed to unmarshal [^,]*, err: |error parsing regexp: ).*", re.DOTALL)
_JOB = re.compile(r"(/v1/ml/moss/[^/]+/).*")  # the last part is the id of a batch job
_PEER = re.compile(r"127\.0\.0\.1:\d+")
_TIMES = frozenset({"remote_addr", "uuid", "UUID", "caller", "node", "location", "t"})


@dataclass(frozen=True)
class Call:
    """A request to send. `{bucket}` in its path stands for the name of a new bucket."""

    method: str
    path: str
    body: Any = None  # bytes are sent unchanged, other values as JSON
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        headers = ";".join(f"{name}={value}" for name, value in self.headers.items())
        body = "" if self.body is None else repr(self.body)[:60]
        return f"{self.method} {self.path} {headers} {body}".strip()


def exchange(url: str, bucket: str, request: Call) -> list[dict[str, Any]]:
    """Send a request, follow its redirects, and return all answers in order."""
    address = f"{url}{request.path.format(bucket=bucket)}"
    answers: list[dict[str, Any]] = []
    for _ in range(3):
        answer = _send(address, request)
        answers.append(_comparable(answer, bucket))
        if not answer.is_redirect:
            break
        address = answer.headers["Location"]
    return answers


def _send(address: str, request: Call) -> requests.Response:
    body = request.body
    content = {"data": body} if body is None or isinstance(body, bytes) else {"json": body}
    # A new session opens a new connection; without its default headers, only the request's own are sent.
    with requests.Session() as session:
        session.headers.clear()
        prepared = session.prepare_request(
            requests.Request(request.method, address, headers=request.headers, **content)
        )
        prepared.url = address  # undo how requests normalized the URL
        return session.send(prepared, timeout=_TIMEOUT, allow_redirects=False)


def _comparable(answer: requests.Response, bucket: str) -> dict[str, Any]:
    headers = {name.title(): value for name, value in answer.headers.items()}
    if answer.request.method == "HEAD":  # Go omits a length of 0, aiohttp writes it
        headers.setdefault("Content-Length", "0")
    kept = {name: _without_ids(value, bucket) for name, value in headers.items() if name not in _NOT_COMPARED}
    if "Location" in kept:
        parts = urlsplit(kept["Location"])
        grant = re.sub(r"(pid|utm)=[^&]*", r"\1=*", parts.query)
        path = _JOB.sub(r"\1*", parts.path)
        kept["Location"] = f"{parts.scheme}://TARGET{path}?{grant}"
    body = _body(answer, bucket)
    if not isinstance(body, bytes) or answer.is_redirect:
        kept.pop("Content-Length", None)  # it depends on the lengths of ids, times and ports
    if isinstance(body, list) and not answer.is_redirect:
        kept.pop(
            "Transfer-Encoding", None
        )  # Go states a length if the answer fits into its buffer, and sends chunks otherwise
    for name in _IDS & kept.keys():
        kept[name] = "*"
    if "Hdr-Error" in headers:
        kept["Hdr-Error"] = _json(headers["Hdr-Error"], bucket)
    return {"status": answer.status_code, "headers": kept, "body": b"" if answer.is_redirect else body}


def _body(answer: requests.Response, bucket: str) -> Any:
    kind = answer.headers.get("Content-Type", "")
    if not answer.content:
        return b""
    if kind.startswith("application/json"):
        return _json(answer.text, bucket)
    if kind == "application/x-tar":  # compare the members, because Go and Python write different tar headers
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            inside = [(member.name, archive.extractfile(member)) for member in archive]
            return [(_without_ids(name, bucket), body.read() if body else None) for name, body in inside]
    if kind.startswith(MSGPACK):
        return _tidy(msgpack.unpackb(answer.content), bucket)
    return answer.content


def _json(text: str, bucket: str) -> Any:
    return _tidy(json.loads(text), bucket)


def _tidy(value: Any, bucket: str) -> Any:
    if isinstance(value, dict):
        return {key: "*" if key in _TIMES and each else _tidy(each, bucket) for key, each in value.items()}
    if isinstance(value, list):
        return [_tidy(each, bucket) for each in value]
    return _without_ids(value, bucket) if isinstance(value, str) else value


def _without_ids(text: str, bucket: str) -> str:
    text = _NODE.sub("NODE", text).replace(bucket, "BUCKET")
    return _UNREADABLE.sub(r"\1*", _PEER.sub("PEER", text))
