"""The network checks of the verb `doctor`: name resolution, connection, TLS, health, clock, token, first byte.

Each check is a small request, whose result is a `CheckResult`. The checks must not change anything in the cluster.
"""

from __future__ import annotations

import email.utils
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.checks import FAULT, OK, REMARK, CheckResult
from ais_tar2tf.cli.console import duration, quantity
from ais_tar2tf.cli.failures import code_of, remedy_for
from ais_tar2tf.errors import StoreError, Tar2TFError
from ais_tar2tf.options import Tls
from ais_tar2tf.stores.transport.tls import ais_tls, context_of
from ais_tar2tf.stores.transport.tokens import Token
from ais_tar2tf.stores.transport.unanswered import speaks_tls

__all__ = ["data", "endpoint"]

_TIMEOUT = 5.0  # seconds for each check of an endpoint
_MOST_SKEW = 60.0  # seconds by which two clocks may differ; tokens and signed requests tolerate some minutes
_UNCHECKED = "anybody on the way can read the token: unset AIS_SKIP_VERIFY_CRT, and name the CA in AIS_CLIENT_CA"
_SLOW_FIRST_BYTE = 0.5  # seconds; a first byte that takes longer is reported as slow


def endpoint(given: str | None, now: Callable[[], float] = time.time) -> Iterator[CheckResult]:
    """Check the connection to AIStore's proxy step by step; yield the result of each step.

    The first fault ends the checks. Only the token is still checked after a fault of the clock.

    Args:
        given: The value of the option --endpoint, or None.
        now: Returns the time in seconds since 1970. Tests pass their own clock.
    """
    from ais_tar2tf.stores.ais_endpoint import endpoint_url

    try:
        url = endpoint_url(given)
    except StoreError as error:
        remedy = (
            "export AIS_ENDPOINT=http://host:51080, or --endpoint; to try without a cluster: ais-tar2tf serve DIR"
        )
        state = FAULT if given or os.environ.get("AIS_ENDPOINT") else REMARK
        yield CheckResult("endpoint", state, str(error).partition(": ")[2].partition(":")[0], remedy, exits.USAGE)
        return
    yield CheckResult("endpoint", OK, url)
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    for step in (_resolved(host), _connected(host, port)):
        yield step
        if step.state == FAULT:
            return
    if parts.scheme == "https":
        secured = _secured(host, port, ais_tls(Tls()))
        yield secured
        if secured.state == FAULT:
            return
    yield from _health(url, now)


def _resolved(host: str) -> CheckResult:
    """Check whether a host name has an address."""
    try:
        addresses = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        remedy = "check the host's name, and /etc/hosts or the VPN that should know it"
        return CheckResult("DNS", FAULT, f"{host} has no address: {error.strerror or error}", remedy, exits.NETWORK)
    if addresses == [host]:
        return CheckResult("DNS", OK, f"{host} is an address")
    return CheckResult("DNS", OK, f"{host} is {', '.join(addresses[:3])}{' …' if len(addresses) > 3 else ''}")


def _connected(host: str, port: int) -> CheckResult:
    """Check whether a server accepts connections at a port."""
    began = time.perf_counter()
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT).close()
    except OSError as error:
        remedy = "is the cluster up, the port right (AIStore's proxy: 51080), and no firewall between?"
        return CheckResult("connection", FAULT, f"{host}:{port}: {error.strerror or error}", remedy, exits.NETWORK)
    return CheckResult("connection", OK, f"{host}:{port} answers in {duration(time.perf_counter() - began)}")


def _secured(host: str, port: int, tls: Tls) -> CheckResult:
    """Check whether a server speaks TLS, and whether its certificate is trusted."""
    try:
        with (
            socket.create_connection((host, port), timeout=_TIMEOUT) as plain,
            context_of(tls, host).wrap_socket(plain, server_hostname=host) as secure,
        ):
            trusted = "the certificate is trusted" if tls.verify else "the certificate is not checked"
            return CheckResult("TLS", OK if tls.verify else REMARK, f"{secure.version()}, {trusted}", _UNCHECKED)
    except ssl.SSLCertVerificationError as error:
        remedy = "trust the cluster's own authority: AIS_CLIENT_CA=/path/to/ca.pem"
        return CheckResult(
            "TLS", FAULT, f"the certificate is not trusted: {error.verify_message}", remedy, exits.NETWORK
        )
    except OSError as error:
        remedy = "does this port speak TLS? If not, the endpoint begins with http://"
        return CheckResult("TLS", FAULT, f"no TLS there: {error}", remedy, exits.NETWORK)


def _health(url: str, now: Callable[[], float]) -> Iterator[CheckResult]:
    """Check whether an AIStore proxy reports that it is healthy; if it does, check its clock and the token."""
    import requests

    tls = ais_tls(Tls())
    try:
        answer = requests.get(f"{url}/v1/health", timeout=_TIMEOUT, allow_redirects=False, **_tls_options(tls))
    except requests.RequestException as error:
        remedy = _other_scheme(url) or "something listens there that is no HTTP server: check the port"
        yield CheckResult("health", FAULT, f"no answer ({type(error).__name__})", remedy, exits.NETWORK)
        return
    if not answer.ok:
        no_proxy = "wait until the cluster is ready; a 404 or 400 says that this is no AIStore proxy"
        remedy = _other_scheme(url) or no_proxy
        yield CheckResult("health", FAULT, f"/v1/health answers {answer.status_code}", remedy, exits.NETWORK)
        return
    yield CheckResult("health", OK, "/v1/health answers 200")
    yield from _clock(answer.headers.get("Date"), now())
    yield _token(url, tls)


def _other_scheme(url: str) -> str:
    """Return a remedy if the URL begins with http:// but its port speaks TLS; else return an empty string."""
    scheme, netloc = urlsplit(url)[:2]
    return f"it speaks TLS: write https://{netloc}" if scheme == "http" and speaks_tls(netloc, _TIMEOUT) else ""


def _tls_options(tls: Tls) -> dict[str, Any]:
    """Return TLS options as arguments of `requests.get`."""
    certificate = (tls.certificate, tls.key) if tls.key else tls.certificate
    return {"verify": (tls.ca or True) if tls.verify else False, "cert": certificate}


def _token(url: str, tls: Tls) -> CheckResult:
    """List the buckets, to check whether the cluster accepts the token, or whether it requires none."""
    import requests

    try:
        token = Token(None, url).value()
    except StoreError as error:
        return CheckResult("token", FAULT, str(error), "set AIS_AUTHN_TOKEN, or repair that file", exits.ACCESS)
    options: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"} if token else {}, **_tls_options(tls)}
    try:
        answer = requests.get(
            f"{url}/v1/buckets", json={"action": "list"}, timeout=_TIMEOUT, allow_redirects=False, **options
        )
    except (requests.RequestException, ValueError) as error:
        return CheckResult("token", REMARK, f"not told ({type(error).__name__})", "see the lines above")
    if answer.status_code in (401, 403):
        found = "it is refused: expired, revoked, or of another cluster" if token else "one is asked for, none is set"
        return CheckResult("token", FAULT, found, "log in again, and set AIS_AUTHN_TOKEN", exits.ACCESS)
    if not 200 <= answer.status_code < 300:
        found = f"not told (/v1/buckets answers {answer.status_code})"
        return CheckResult("token", REMARK, found, "try again later; if it stays so, look into the log of the proxy")
    return CheckResult("token", OK, "accepted" if token else "none is asked for")


def _clock(date: str | None, now: float) -> Iterator[CheckResult]:
    """Compare the clock of the server, as its Date header states it, with the clock of this machine.

    Yield no result if there is no Date header, or a malformed one.
    """
    if date is None:
        return
    try:
        server_time = email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        return
    skew = abs(now - server_time)
    if skew > _MOST_SKEW:
        remedy = "set the clock (timedatectl set-ntp true): tokens seem expired, or not yet valid"
        yield CheckResult("clock", FAULT, f"{duration(skew)} apart from the server's", remedy)
    else:
        yield CheckResult("clock", OK, f"within {duration(_MOST_SKEW)} of the server's")


def data(url: str, given: str | None) -> Iterator[CheckResult]:
    """Check that a URL names at least one object, and that the first byte of the first object arrives quickly.

    Args:
        url: The URL of an object, a template, a bucket or a folder.
        given: The value of the option --endpoint, or None.
    """
    from ais_tar2tf.cli.places import objects, store_of
    from ais_tar2tf.stores import split_url

    try:
        first = next(objects([url], given), None)
        if first is None:
            remedy = f"put something there: ais-tar2tf put FILE… {url}"
            yield CheckResult("data", FAULT, f"nothing at {url}", remedy, exits.NOT_FOUND)
            return
        shard, info = first
        yield CheckResult("data", OK, f"{shard}, {quantity(info.size or 0)}")
        store, _ = store_of(url, given)
        with closing(store):
            began = time.perf_counter()
            with closing(store.open(info.name or split_url(shard)[2])) as body:
                body.readinto(memoryview(bytearray(1)))
            seconds = time.perf_counter() - began
    except Tar2TFError as error:
        yield CheckResult("data", FAULT, str(error), remedy_for(error, "doctor", given), code_of(error))
        return
    if seconds > _SLOW_FIRST_BYTE:
        remedy = "many small requests will be slow: prefer large shards, and more connections= over a long line"
        yield CheckResult("first byte", REMARK, f"after {duration(seconds)}", remedy)
    else:
        yield CheckResult("first byte", OK, f"after {duration(seconds)}")
