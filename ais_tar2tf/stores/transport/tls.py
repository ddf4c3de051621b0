"""The TLS rules of both HTTP clients (`pool.py`, `control.py`): options and environment become an SSL context.

No other module of this package makes an SSL context, and this module must not open connections. The package obstore
has its own TLS, to which `stores/obstore.py` passes `Tls.verify` and `Tls.ca`. `unanswered.py` uses a context without
verification, but only to test whether a server speaks TLS, and sends no data to this server.
"""

from __future__ import annotations

import os
import ssl
import warnings
from dataclasses import replace

from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Tls

__all__ = ["LazyContext", "ais_tls", "aws_tls", "context_of", "warn_if_unverified"]

_YES = frozenset({"1", "true", "yes", "y", "on", "t"})  # the values of AIS_SKIP_VERIFY_CRT that mean yes


def ais_tls(given: Tls) -> Tls:
    """Return `given`. Take options that it leaves out from the environment variables of AIStore's own clients."""
    environment = os.environ.get
    if given.certificate is None and environment("AIS_CRT"):
        given = replace(given, certificate=environment("AIS_CRT"), key=environment("AIS_CRT_KEY") or None)
    skipped = environment("AIS_SKIP_VERIFY_CRT", "").strip().lower() in _YES
    # If the options name a CA, servers are verified by this CA, even if AIS_SKIP_VERIFY_CRT is set.
    verify = given.verify and (given.ca is not None or not skipped)
    return replace(given, ca=given.ca or environment("AIS_CLIENT_CA") or None, verify=verify)


def aws_tls(given: Tls) -> Tls:
    """Return `given`. If it names no CA, take the CA from AWS_CA_BUNDLE, the variable that AWS's own tools read."""
    return replace(given, ca=given.ca or os.environ.get("AWS_CA_BUNDLE") or None)


def warn_if_unverified(tls: Tls, url: str) -> None:
    """Warn if the options disable verification."""
    if not tls.verify:
        warnings.warn(
            f"{url}: the server's certificate is not checked (Tls.verify, AIS_SKIP_VERIFY_CRT): anybody on the way "
            "can read the token and change the data; give the CA instead (Tls.ca, AIS_CLIENT_CA)",
            UserWarning,
            stacklevel=2,
        )


class LazyContext:
    """The SSL context of one client, made when the client first needs it, because loading the CAs takes 20 ms."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._made: ssl.SSLContext | None = None

    def get(self, shown: str) -> ssl.SSLContext:
        """Return the context. Errors name the URL `shown`."""
        if self._made is None:
            self._made = context_of(self._tls, shown)
        return self._made


def context_of(tls: Tls, shown: str) -> ssl.SSLContext:
    """Return the SSL context for the options.

    If `tls.ca` is None, the context trusts the CAs in the file that the environment variable SSL_CERT_FILE names, or,
    without this variable, the CAs of the system. Errors name the URL `shown`.

    Raises:
        StoreError: A file is missing, does not hold a certificate or key, or holds an encrypted key.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate:
            context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except (OSError, ValueError) as error:
        files = ", ".join(os.fspath(path) for path in (tls.ca, tls.certificate, tls.key) if path)
        raise StoreError(f"the TLS files cannot be used ({files}): {error}", url=shown) from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_password() -> str:
    """Raise an error for an encrypted key. Without this function, OpenSSL asks for a password on the terminal."""
    raise ValueError("the key is encrypted; give one that is not")
