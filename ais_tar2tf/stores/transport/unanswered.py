"""The errors for requests without an answer: no server listens, it sends nothing, or it sends neither HTTP nor TLS.

The texts of these failures hold no URL, so they are shown. An endpoint of plain HTTP that has never answered is
tested for TLS. This module sends nothing else.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from urllib.parse import urlsplit

from ais_tar2tf.base.escaping import one_line
from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import Timeouts, Tls
from ais_tar2tf.stores.transport.contact import CONTACTS, NO_ANSWER, NO_CONNECTION, Endpoint
from ais_tar2tf.stores.transport.routes import route_to
from ais_tar2tf.stores.transport.tls import context_of

__all__ = ["check_first_answer", "no_answer", "no_connection", "note_failure", "speaks_tls"]

_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"}
)  # OpenSSL's reasons for bytes that are no TLS record
_MISTRUST = re.compile(r"CERTIFICATE_VERIFY_FAILED[^()]*|[a-z ]*alert(?! internal error)[a-z ]*|certificate required")
_TLS_ALERT = "\x15\x03"  # the beginning of the record in which a TLS server refuses plain HTTP
_SHOWN = 60  # characters of an answer that is not HTTP
_BAD_REQUEST = 400  # the answer of some TLS servers to plain HTTP; others close the connection
_MAX_HANDSHAKE = 3.0  # seconds, as the server has just closed or answered another connection


def no_connection(error: BaseException, endpoint: Endpoint, shown: str) -> StoreError:
    """Return the error for a connection that failed, or whose TLS handshake failed."""
    scheme, netloc = endpoint
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return TransportError(
            f"the server at {netloc} does not speak TLS; if it is a plain HTTP server, write http://{netloc}",
            url=shown,
            silence=NO_CONNECTION,
            final=True,
        )
    if isinstance(error, ssl.SSLError) and (reason := _MISTRUST.search(str(error))):
        return _untrusted(reason[0], netloc, shown)
    message = f"no connection to {scheme}://{netloc} ({_text(error)}); is the endpoint right, and is it up?"
    if isinstance(error, UnicodeError):
        return StoreError(message, url=shown)  # a retry would not help: the host's name is malformed
    return TransportError(message, url=shown, silence=NO_CONNECTION)


def no_answer(error: BaseException, endpoint: Endpoint, shown: str) -> StoreError:
    """Return the error for a request that was sent, and got no answer or one that is not HTTP."""
    netloc = endpoint[1]
    if isinstance(error, ssl.SSLError) and (reason := _MISTRUST.search(str(error))):
        return _untrusted(reason[0], netloc, shown)  # TLS 1.3 checks the client's certificate after the handshake
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        line = str(error.args[0])
        if line.startswith(_TLS_ALERT):
            return _tls_expected(netloc, shown)
        received = one_line(line[:_SHOWN].rstrip())
        usual = " (AIStore's proxy: 51080)" if shown.startswith("ais:") else ""
        return TransportError(
            f"the server at {netloc} does not speak HTTP: it sent '{received}'; is this the right port?{usual}",
            url=shown,
            silence=NO_ANSWER,
            final=True,
        )
    return TransportError(
        f"the request failed ({type(error).__name__}: {_text(error)}); is the endpoint right, and is it up?",
        url=shown,
        silence=NO_ANSWER,
    )


def note_failure(error: TransportError, url: str, began: float, timeouts: Timeouts) -> TransportError:
    """Return the error of a try that began at the time `began`, completed with the silence of its endpoint.

    An endpoint that has never answered, and closed the connection, is tested for TLS.
    """
    endpoint = urlsplit(url)[:2]
    closed = error.silence is not None and error.silence.accepts and not isinstance(error.__cause__, TimeoutError)
    if closed and not error.final and _speaks_tls_instead(endpoint, timeouts):
        error = _tls_expected(endpoint[1], error.url)
    CONTACTS.note_failure(error, endpoint, began)
    return error


def check_first_answer(status: int, url: str, shown: str, timeouts: Timeouts) -> None:
    """Note that the endpoint of a URL answered.

    Raises:
        TransportError: The answer is that of a TLS server to plain HTTP.
    """
    endpoint = urlsplit(url)[:2]
    if status == _BAD_REQUEST and _speaks_tls_instead(endpoint, timeouts):
        raise _tls_expected(endpoint[1], shown)
    CONTACTS.note_answer(endpoint)


def _tls_expected(netloc: str, shown: str) -> TransportError:
    return TransportError(
        f"the server at {netloc} speaks TLS, and was asked without; write https://{netloc}",
        url=shown,
        silence=NO_ANSWER,
        final=True,
    )


def _untrusted(reason: str, netloc: str, shown: str) -> StoreError:
    """Return the error for a certificate, the server's or ours, that the other side does not accept."""
    why = reason.replace("]", ":").strip()
    return StoreError(f"TLS with {netloc} failed ({why}); is the CA right (Tls.ca, AIS_CLIENT_CA)?", url=shown)


def _speaks_tls_instead(endpoint: Endpoint, timeouts: Timeouts) -> bool:
    """Return whether a plain endpoint that has never answered turns out to speak TLS."""
    scheme, netloc = endpoint
    if scheme != "http" or CONTACTS.has_answered(endpoint) or route_to(scheme, netloc).before_path:
        return False
    return speaks_tls(netloc, min(timeouts.connect, _MAX_HANDSHAKE))


def speaks_tls(netloc: str, seconds: float) -> bool:
    """Return whether a server begins a TLS handshake. No data is sent, so its certificate is not verified."""
    parts = urlsplit(f"//{netloc}")
    context = context_of(Tls(verify=False), netloc)
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), seconds) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # the server refuses us, but it does so in TLS
    except OSError:
        return False


def _text(error: BaseException) -> str:
    return one_line(str(error)) or type(error).__name__
