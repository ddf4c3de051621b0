"""Create a CA for a test, and certificates that it signs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme

__all__ = ["Certificates", "make"]


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files."""

    ca: str
    server: str
    server_key: str
    client: str
    client_key: str


def make(folder: Path) -> Certificates:
    """Create a CA and the certificates of a server on this machine and of a client."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    found = {"ca": str(folder / "ca.pem")}
    for role, names in (("server", ("127.0.0.1", "localhost")), ("client", ("tester@example.org",))):
        issued = authority.issue_cert(*names)
        certificate, key = folder / f"{role}.pem", folder / f"{role}.key"
        for blob in issued.cert_chain_pems:
            blob.write_to_path(certificate, append=True)
        issued.private_key_pem.write_to_path(key)
        found |= {role: str(certificate), f"{role}_key": str(key)}
    return Certificates(**found)
