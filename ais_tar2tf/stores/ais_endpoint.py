"""Reads the endpoint of an AIStore cluster from the arguments or the environment. Errors suggest a correction."""

from __future__ import annotations

import os
import re

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import StoreError
from ais_tar2tf.stores.transport.answers import is_endpoint

__all__ = ["check_bucket_name", "endpoint_url"]

_CORRECTIONS = (
    (re.compile(r"^http://(https?):/*"), r"\1://"),  # `http:/host`, after it got a scheme
    (re.compile(r"\s+"), ":"),  # `host 51080`
    (re.compile(r"/v1/(objects|buckets|cluster|daemon|health)\b.*"), ""),  # the URL of a call
)
"""Frequent mistakes in endpoints, and the text that replaces each in the advice."""


def endpoint_url(given: str | None) -> str:
    """Return the given endpoint, or else the one in AIS_ENDPOINT.

    An endpoint without a scheme gets `http://`. A `/v1` of the API at its end is dropped.

    Raises:
        StoreError: There is no endpoint, or it is malformed.
    """
    endpoint = (given or os.environ.get("AIS_ENDPOINT", "")).strip()
    if not endpoint:
        raise StoreError(
            "no endpoint: give proxy_url= (or endpoint=), or set AIS_ENDPOINT to something like http://host:51080",
            url="ais://",
        )
    endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
    corrected = endpoint = endpoint.rstrip("/").removesuffix("/v1")
    for mistake, correction in _CORRECTIONS:
        corrected = mistake.sub(correction, corrected)
    if corrected != endpoint or not is_endpoint(endpoint):
        is_clear = corrected != endpoint and is_endpoint(corrected)
        advice = f"did you mean {corrected}?" if is_clear else "one looks like http://host:51080, without a password"
        host = endpoint.rpartition("@")[2].rpartition("://")[2].partition("?")[0]
        raise StoreError(f"this is no endpoint; {advice}", url=f"{endpoint.partition('://')[0]}://{host}")
    return endpoint


def check_bucket_name(name: str, provider: str) -> None:
    """Raise StoreError for a text that is not a bucket's name. The error suggests a correction if possible."""
    if name not in ("", ".", "..") and "/" not in name:
        return
    scheme, _, rest = name.rpartition("://")
    bucket, _, template = rest.partition("/")
    advice = "; a URL like this is read by t2t.open"
    if scheme in ("http", "https"):
        advice = "; the bucket comes first, and then the endpoint"
    elif scheme in ("", provider):
        advice = f"; did you mean {bucket!r}" if bucket not in ("", ".", "..") else ""
        advice += f", and {template!r} in the template?" if advice and template else "?" if advice else ""
    shown = name if scheme else f"{provider}://{name}"
    raise StoreError(f"a bucket's name is not empty and has no slash{advice}", url=shown_url(shown))
