"""What obstore is told of a bucket, and what its failures mean. The only place that imports it."""

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
from ais_tar2tf.stores._answers import error_for, is_endpoint
from ais_tar2tf.stores._contact import NO_ANSWER, NO_CONNECTION

__all__ = [
    "DEFAULT_REGION",
    "Region",
    "endpoint_of",
    "error_of",
    "is_public",
    "is_set",
    "make",
    "obstore",
    "status_of",
]

DEFAULT_REGION = "us-east-1"  # what S3 itself takes for none
_EMULATOR = "STORAGE_EMULATOR_HOST"  # of GCS, in the environment: Google's own tools send it no signatures
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": (_EMULATOR,),
    "az": ("AZURE_STORAGE_ENDPOINT",),
}
_PROVIDERS = {"s3": "Amazon S3", "gs": "Google Cloud Storage", "az": "Azure Storage"}  # whose endpoints need no name
_LONGEST = timedelta(days=2)  # obstore bounds a whole request; ours may take hours while bytes keep coming
_IDLE = timedelta(seconds=2)  # that obstore keeps its connections for the next request
_LISTING = timedelta(minutes=3)  # for all tries of one request of its own
_STATUS = re.compile(r"status code: (\d{3})[^:]*: ?(<.*?</Error>)?", re.DOTALL)
_NO_CONNECTION = re.compile(r"\bkind: Connect\b")  # in the error that obstore shows of reqwest's
_SILENT = re.compile(r"\bkind: Timeout\b|\bTimedOut\b")
_YES = frozenset({"1", "true", "yes"})
_CREDENTIALS = re.compile(r"credential|169\.254\.|metadata|oauth|token", re.IGNORECASE)

Region = str


def obstore() -> Any:
    try:
        import obstore
    except ImportError as error:
        raise MissingDependency("obstore", extra="cloud") from error
    return obstore


def endpoint_of(scheme: str, given: str | None) -> str | None:
    """The endpoint that was given, else that of the environment; None: the provider's own."""
    endpoint = given or next(filter(None, map(os.environ.get, _ENDPOINTS[scheme])), None)
    if endpoint is None:
        return None
    if not given and scheme == "gs" and "://" not in endpoint:
        endpoint = f"http://{endpoint}"  # as Google's own tools read it
    if not is_endpoint(endpoint):
        whole = f"http://{endpoint}"
        advice = f"; did you mean {whole}?" if is_endpoint(whole) and "://" not in endpoint else ""
        told = f"the endpoint is no http(s)://host[:port][/path], or holds a password{advice}"
        raise StoreError(told, url=f"{scheme}://")
    return endpoint.rstrip("/")


def is_public(scheme: str, endpoint: str | None) -> bool:
    """Return whether requests go without a signature."""
    if scheme == "gs" and endpoint is not None and endpoint == endpoint_of("gs", None):
        return True
    names = {"s3": "AWS_SKIP_SIGNATURE", "gs": "GOOGLE_SKIP_SIGNATURE", "az": "AZURE_SKIP_SIGNATURE"}
    return is_set(names[scheme])


def is_set(name: str) -> bool:
    """Return whether a variable of the environment says yes."""
    return os.environ.get(name, "").strip().lower() in _YES


def make(
    scheme: str, bucket: str, endpoint: str | None, read: Read, tls: Tls, *, retries: bool
) -> tuple[Any, Region]:
    """Make obstore's own store, which tries again by itself or not; return it with the region that it signs for."""
    obstore()
    stores: Any = importlib.import_module("obstore.store")
    options: dict[str, Any] = {
        "client_options": _client_options(read, tls, endpoint),
        "retry_config": _retries(read) if retries else {"max_retries": 0},
    }
    if scheme == "s3":
        config = _s3_config(endpoint)
        return stores.S3Store(bucket, config=config, **options), config["region"]
    where: dict[str, Any] = {"base_url" if scheme == "gs" else "endpoint": endpoint} if endpoint else {}
    if scheme == "gs" and is_public(scheme, endpoint):
        where["skip_signature"] = True
    kind = stores.GCSStore if scheme == "gs" else stores.AzureStore
    return kind(bucket, config=where, **options), ""


def _s3_config(endpoint: str | None) -> dict[str, Any]:
    """Path style, unless the environment says otherwise; what is not said here obstore reads in AWS_… itself."""
    profile = {} if os.environ.get("AWS_ACCESS_KEY_ID") else _profile()
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    config: dict[str, Any] = {"region": named or profile.get("region") or DEFAULT_REGION}
    if profile.get("aws_access_key_id"):
        config["access_key_id"] = profile["aws_access_key_id"]
        config["secret_access_key"] = profile.get("aws_secret_access_key", "")
        if profile.get("aws_session_token"):
            config["session_token"] = profile["aws_session_token"]
    if endpoint:
        config["endpoint"] = endpoint
    return config


def _profile() -> dict[str, str]:
    """Key and region of AWS_PROFILE in the files that `aws configure` writes; nothing where there are none."""
    name = os.environ.get("AWS_PROFILE") or "default"
    found: dict[str, str] = {}
    files = (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    )
    for variable, usual, section in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(Path(os.environ.get(variable) or usual).expanduser(), encoding="utf-8")
            found |= dict(parser.items(section)) if parser.has_section(section) else {}
        except (configparser.Error, OSError, UnicodeDecodeError, RuntimeError):
            continue  # a file of somebody else's that we cannot read: the environment may still say it all
    return found


def _client_options(read: Read, tls: Tls, endpoint: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=read.timeouts.connect),
        "read_timeout": timedelta(seconds=read.timeouts.idle),
        "timeout": _LONGEST,
        "pool_idle_timeout": _IDLE,
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
    return {"max_retries": retry.attempts - 1, "backoff": backoff, "retry_timeout": _LISTING}


def status_of(error: Exception) -> int | None:
    """Return the status that a server answered, where a failure of obstore's is an answer."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found is not None else None


def error_of(error: Exception, url: str, endpoint: str | None = None) -> StoreError:
    """What a failure of obstore's means. Its text is not shown: it holds addresses, and may hold their signatures."""
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
    silent = _SILENT.search(text) is not None
    why = "timed out" if silent else type(error).__name__
    failure = TransportError(
        f"the request failed ({why}); is the endpoint right, and is it up?",
        url=url,
        silence=NO_ANSWER,
    )
    failure.__cause__ = TimeoutError("timed out") if silent else None
    return failure
