"""The transformer, asked as AIStore's targets ask: what comes back is what the same mapping gives here."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

import shards as made
from ais_tar2tf.cluster.etl import Transformer
from ais_tar2tf.ops import Decode, Rename, Resize, Rotate, SelectDict

CONVERSIONS = [Rename(image="jpg;png"), Decode("image", channels=3), Resize("image", (8, 9)), Rotate("image", 30)]
SELECTIONS = [SelectDict({"image": "image", "label": "cls"})]
SHARD = made.labelled("n0", 7)


def to_example(record: dict[str, Any]) -> dict[str, Any]:
    """Of a module, so that another process finds it."""
    return {"name": record["__key__"], "size": len(record["jpg"])}


DEFINITIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "ops": {"conversions": CONVERSIONS, "selections": SELECTIONS},
    "function": {"record_to_example": to_example},
    "tar": {"conversions": CONVERSIONS, "selections": SELECTIONS, "output": "tar"},
}


def put(url: str, path: str, body: Any, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("PUT", path, body, headers or {})
    answer = connection.getresponse()
    answer.everything = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def test_hpush(tmp_path):
    for name, how in DEFINITIONS.items():
        t = Transformer(**how)
        with t.serve() as s:
            a = put(s.url, "/b/train-0.tar", SHARD)
            assert a.status == 200, a.everything
            print(name, len(a.everything), s.url)
            assert a.everything == b"".join(t.run([SHARD], "ais://b/train-0.tar"))
            assert put(s.url, "/b/x.tar", b"garbage" * 1000).status == 422
