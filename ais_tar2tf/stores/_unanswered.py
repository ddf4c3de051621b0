"""What a request without an answer says of its endpoint: nobody is there, nothing comes, it speaks no HTTP or TLS.

The texts of these failures are shown: they hold no URL. One thing is asked here, and only of an endpoint that has
never answered: whether it speaks TLS.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from urllib.parse import urlsplit

from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.escaping import one_line
from ais_tar2tf.options import Timeouts
from ais_tar2tf.stores._contact import CONTACTS, NO_ANSWER, NO_CONNECTION, Endpoint
from ais_tar2tf.stores._routes import route_to

__all__ = ["check_first_answer", "no_answer", "no_connection", "note_failure", "speaks_tls"]

_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"}
)  # what OpenSSL finds where a TLS record should begin
_MISTRUST = re.compile(r"CERTIFICATE_VERIFY_FAILED[^()]*|[a-z ]*alert(?! internal error)[a-z ]*|certificate required")
_TLS_ALERT = "\x15\x03"  # the record in which a TLS server refuses what it cannot read
_SHOWN = 60  # characters of an answer that is none
_BAD_REQUEST = 400  # what servers that expect TLS answer to plain HTTP, where they answer at all
_MOST_WAITED = 3.0  # seconds for a handshake, which is asked of a server that has just closed a connection


def no_connection(error: BaseException, endpoint: Endpoint, shown: str) -> StoreError:
    """Return the error for a connection that did not come about, or not with TLS."""
    scheme, netloc = endpoint
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return TransportError(
            f"the server at {netloc} does not speak TLS; if it is a plain HTTP server, write http://{netloc}",
            url=shown,
            silence=NO_CONNECTION,
            final=True,
        )
    if isinstance(error, ssl.SSLError) and (reason := _MISTRUST.search(str(error))):
        return _mistrust(reason[0], netloc, shown)
    message = f"no connection to {scheme}://{netloc} ({_text(error)}); is the endpoint right, and is it up?"
    if isinstance(error, UnicodeError):
        return StoreError(message, url=shown)  # trying again would not help
    return TransportError(message, url=shown, silence=NO_CONNECTION)


def no_answer(error: BaseException, endpoint: Endpoint, shown: str) -> StoreError:
    """Return the error for a request that was sent and got no answer, or none in HTTP."""
    netloc = endpoint[1]
    if isinstance(error, ssl.SSLError) and (reason := _MISTRUST.search(str(error))):
        return _mistrust(reason[0], netloc, shown)  # TLS 1.3 asks for the client's certificate behind the handshake
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        line = str(error.args[0])
        if line.startswith(_TLS_ALERT):
            return _expects_tls(netloc, shown)
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
    """Return the error of a try for a URL, begun at a time, completed by what is known of its endpoint.

    Where an endpoint that has never answered closed a connection, it is asked whether it speaks TLS.
    """
    endpoint = urlsplit(url)[:2]
    closed = error.silence is not None and error.silence.accepts and not isinstance(error.__cause__, TimeoutError)
    if closed and not error.final and _expects_another(endpoint, timeouts):
        error = _expects_tls(endpoint[1], error.url)
    CONTACTS.note_failure(error, endpoint, began)
    return error


def check_first_answer(status: int, url: str, shown: str, timeouts: Timeouts) -> None:
    """Note that the endpoint of a URL answered.

    Raises:
        TransportError: This is how a server that expects TLS answers to plain HTTP.
    """
    endpoint = urlsplit(url)[:2]
    if status == _BAD_REQUEST and _expects_another(endpoint, timeouts):
        raise _expects_tls(endpoint[1], shown)
    CONTACTS.note_answer(endpoint)


def _expects_tls(netloc: str, shown: str) -> TransportError:
    return TransportError(
        f"the server at {netloc} speaks TLS, and was asked without; write https://{netloc}",
        url=shown,
        silence=NO_ANSWER,
        final=True,
    )


def _mistrust(reason: str, netloc: str, shown: str) -> StoreError:
    """Return the error for a certificate, the server's or ours, that the other side does not accept."""
    why = reason.replace("]", ":").strip()
    return StoreError(f"TLS with {netloc} failed ({why}); is the CA right (Tls.ca, AIS_CLIENT_CA)?", url=shown)


def _expects_another(endpoint: Endpoint, timeouts: Timeouts) -> bool:
    """Return whether an endpoint without TLS that has never answered turns out to speak TLS."""
    scheme, netloc = endpoint
    if scheme != "http" or CONTACTS.has_answered(endpoint) or route_to(scheme, netloc).before_path:
        return False
    return speaks_tls(netloc, min(timeouts.connect, _MOST_WAITED))


def speaks_tls(netloc: str, seconds: float) -> bool:
    """Try a handshake; nothing is sent over the connection, so whose certificate it is does not matter."""
    parts = urlsplit(f"//{netloc}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), seconds) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it refuses us, in TLS
    except OSError:
        return False


def _text(error: BaseException) -> str:
    return one_line(str(error)) or type(error).__name__
