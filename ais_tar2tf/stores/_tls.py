"""TLS as it was asked for: by an argument, else by the environment. The only place where verification is given up."""

from __future__ import annotations

import os
import ssl
import warnings
from dataclasses import replace

from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Tls

__all__ = ["ais_tls", "aws_tls", "context_of", "warn_if_unverified"]

_YES = frozenset({"1", "true", "yes", "y", "on", "t"})


def ais_tls(given: Tls) -> Tls:
    """With what AIStore's own clients find in the environment."""
    environment = os.environ.get
    if given.certificate is None and environment("AIS_CRT"):
        given = replace(given, certificate=environment("AIS_CRT"), key=environment("AIS_CRT_KEY") or None)
    skipped = environment("AIS_SKIP_VERIFY_CRT", "").strip().lower() in _YES
    verify = given.verify and (given.ca is not None or not skipped)
    return replace(given, ca=given.ca or environment("AIS_CLIENT_CA") or None, verify=verify)


def aws_tls(given: Tls) -> Tls:
    """With what the users of AWS's own tools set."""
    return replace(given, ca=given.ca or os.environ.get("AWS_CA_BUNDLE") or None)


def warn_if_unverified(tls: Tls, url: str) -> None:
    if not tls.verify:
        warnings.warn(
            f"{url}: the server's certificate is not checked (Tls.verify, AIS_SKIP_VERIFY_CRT): anybody on the way "
            "can read the token and change the data; name the CA in its place (Tls.ca, AIS_CLIENT_CA)",
            UserWarning,
            stacklevel=2,
        )


def context_of(tls: Tls, shown: str) -> ssl.SSLContext:
    """For connections of http.client."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate:
            context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except (OSError, ValueError) as error:
        files = ", ".join(os.fspath(path) for path in (tls.ca, tls.certificate, tls.key) if path)
        raise StoreError(f"the TLS files do not serve ({files}): {error}", url=shown) from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_password() -> str:
    """Without this OpenSSL would ask on the terminal."""
    raise ValueError("the key is encrypted; give one that is not")
