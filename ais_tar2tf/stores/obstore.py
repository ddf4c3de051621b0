"""Configures obstore for a bucket, and turns its failures into our errors. No other module imports obstore."""

from __future__ import annotations

import configparser
import importlib
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import AccessDenied, MissingDependency, ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import Read, Tls
from ais_tar2tf.stores.transport.answers import error_for, is_endpoint
from ais_tar2tf.stores.transport.contact import NO_ANSWER, NO_CONNECTION

__all__ = [
    "DEFAULT_REGION",
    "endpoint_of",
    "error_of",
    "is_on",
    "is_public",
    "make",
    "obstore",
    "status_of",
]

DEFAULT_REGION = "us-east-1"
"""The region of S3 where none is configured."""

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "az": ("AZURE_STORAGE_ENDPOINT",),
}
_PROVIDERS = {
    "s3": "Amazon S3",
    "gs": "Google Cloud Storage",
    "az": "Azure Storage",
}
_REQUEST = timedelta(days=2)  # obstore's timeout for a whole request, which may take hours while bytes arrive
_UNUSED = timedelta(seconds=2)  # obstore keeps an unused connection open for this time
_TRIES = timedelta(minutes=3)  # the time of all tries of one request that obstore retries
_STATUS = re.compile(r"status code: (\d{3})[^:]*: ?(<.*?</Error>)?", re.DOTALL)
_NO_CONNECTION = re.compile(r"\bkind: Connect\b")  # in the error of reqwest that obstore shows
_TIMEOUT = re.compile(r"\bkind: Timeout\b|\bTimedOut\b")
_YES = frozenset({"1", "true", "yes"})
_CREDENTIALS = re.compile(r"credential|169\.254\.|metadata|oauth|token", re.IGNORECASE)


def obstore() -> Any:
    """Import obstore.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        import obstore
    except ImportError as error:
        raise MissingDependency("obstore", extra="cloud") from error
    return obstore


def endpoint_of(scheme: str, given: str | None) -> str | None:
    """Return the given endpoint, or else the environment's; None stands for the provider's own endpoint.

    Raises:
        StoreError: The endpoint is malformed.
    """
    endpoint = given or next(filter(None, map(os.environ.get, _ENDPOINTS[scheme])), None)
    if endpoint is None:
        return None
    if not given and scheme == "gs" and "://" not in endpoint:
        endpoint = f"http://{endpoint}"  # Google's own tools read it so
    if not is_endpoint(endpoint):
        with_scheme = f"http://{endpoint}"
        advice = f"; did you mean {with_scheme}?" if is_endpoint(with_scheme) and "://" not in endpoint else ""
        message = f"the endpoint is no http(s)://host[:port][/path], or holds a password{advice}"
        raise StoreError(message, url=f"{scheme}://")
    return endpoint.rstrip("/")


def is_public(scheme: str, endpoint: str | None) -> bool:
    """Return whether requests are sent without a signature, as for public buckets and emulators."""
    if scheme == "gs" and endpoint is not None and endpoint == endpoint_of("gs", None):
        return True
    names = {"s3": "AWS_SKIP_SIGNATURE", "gs": "GOOGLE_SKIP_SIGNATURE", "az": "AZURE_SKIP_SIGNATURE"}
    return is_on(names[scheme])


def is_on(name: str) -> bool:
    """Return whether a variable of the environment has a value such as `true`."""
    return os.environ.get(name, "").strip().lower() in _YES


def make(scheme: str, bucket: str, endpoint: str | None, read: Read, tls: Tls, *, retries: bool) -> tuple[Any, str]:
    """Return obstore's own store, and the region that it signs for. With `retries`, obstore itself retries."""
    obstore()
    stores: Any = importlib.import_module("obstore.store")
    options: dict[str, Any] = {
        "client_options": _client_options(read, tls, endpoint),
        "retry_config": _retries(read) if retries else {"max_retries": 0},
    }
    if scheme == "s3":
        s3_config = _s3_config(endpoint)
        return stores.S3Store(bucket, config=s3_config, **options), s3_config["region"]
    config: dict[str, Any] = {"base_url" if scheme == "gs" else "endpoint": endpoint} if endpoint else {}
    if scheme == "gs" and is_public(scheme, endpoint):
        config["skip_signature"] = True
    kind = stores.GCSStore if scheme == "gs" else stores.AzureStore
    return kind(bucket, config=config, **options), ""


def _s3_config(endpoint: str | None) -> dict[str, Any]:
    """Return the options of S3 that obstore does not read in the AWS_… variables itself.

    obstore sends path-style URLs unless AWS_VIRTUAL_HOSTED_STYLE_REQUEST is set.
    """
    profile = {} if os.environ.get("AWS_ACCESS_KEY_ID") else _profile()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    config: dict[str, Any] = {"region": region or profile.get("region") or DEFAULT_REGION}
    if profile.get("aws_access_key_id"):
        config["access_key_id"] = profile["aws_access_key_id"]
        config["secret_access_key"] = profile.get("aws_secret_access_key", "")
        if profile.get("aws_session_token"):
            config["session_token"] = profile["aws_session_token"]
    if endpoint:
        config["endpoint"] = endpoint
    return config


def _profile() -> dict[str, str]:
    """Return the section AWS_PROFILE of the files that `aws configure` writes; empty without such files."""
    name = os.environ.get("AWS_PROFILE") or "default"
    found: dict[str, str] = {}
    files = (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    )
    for variable, default, section in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(Path(os.environ.get(variable) or default).expanduser(), encoding="utf-8")
            found |= dict(parser.items(section)) if parser.has_section(section) else {}
        except (configparser.Error, OSError, UnicodeDecodeError, RuntimeError):
            continue  # the environment may still have all that is needed
    return found


def _client_options(read: Read, tls: Tls, endpoint: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=read.timeouts.connect),
        "read_timeout": timedelta(seconds=read.timeouts.idle),
        "timeout": _REQUEST,
        "pool_idle_timeout": _UNUSED,
        "allow_http": (endpoint or "").startswith("http://"),
        "allow_invalid_certificates": not tls.verify,
    }
    if tls.ca:
        try:
            options["root_certificate"] = Path(tls.ca).read_bytes()
        except OSError as error:
            raise StoreError(f"the CA cannot be read ({error.strerror})", url=os.fspath(tls.ca)) from error
    return options


def _retries(read: Read) -> dict[str, Any]:
    retry = read.retry
    backoff = {
        "init_backoff": timedelta(seconds=retry.first_delay),
        "max_backoff": timedelta(seconds=retry.max_delay),
        "base": 2,
    }
    return {"max_retries": retry.attempts - 1, "backoff": backoff, "retry_timeout": _TRIES}


def status_of(error: Exception) -> int | None:
    """Return the status of the answer that obstore reports as a failure; None if there was no answer."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found is not None else None


def error_of(error: Exception, url: str, endpoint: str | None = None) -> StoreError:
    """Return the error for a failure of obstore, with the server's message; other text may hold a signature."""
    text = str(error)
    if isinstance(error, FileNotFoundError) or type(error).__name__ == "NotFoundError":
        return ShardNotFound("there is no such object or bucket", url=url)
    found = _STATUS.search(text)
    if found is not None:
        return error_for(int(found[1]), url, {}, (found[2] or "").encode())
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return AccessDenied("access denied; check the credentials", url=url)
    if "MissingAccount" in text:
        return AccessDenied("no storage account is named; set AZURE_STORAGE_ACCOUNT_NAME", url=url)
    if isinstance(error, TypeError) or type(error).__name__ == "InvalidPathError":
        return StoreError("obstore takes no name with an empty part, '.' or '..' between its slashes", url=url)
    if _CREDENTIALS.search(text):
        return AccessDenied(
            "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or what your provider "
            "calls them), or AWS_SKIP_SIGNATURE=true for a public bucket",
            url=url,
        )
    if _NO_CONNECTION.search(text):
        message = (
            f"no connection to {endpoint or _PROVIDERS[url.partition(':')[0]]}; is the endpoint right, and is it up?"
        )
        return TransportError(message, url=url, silence=NO_CONNECTION)
    is_timeout = _TIMEOUT.search(text) is not None
    why = "timed out" if is_timeout else type(error).__name__
    failure = TransportError(
        f"the request failed ({why}); is the endpoint right, and is it up?",
        url=url,
        silence=NO_ANSWER,
    )
    failure.__cause__ = TimeoutError("timed out") if is_timeout else None
    return failure
