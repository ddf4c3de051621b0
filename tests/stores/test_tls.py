"""TLS with a custom CA and client certificate, and without verification, which warns."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.options import Retry, Tls
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.http import HttpStore
from ais_tar2tf.streams.arguments import read_options
from tests.servers.aistore import AIStore
from tests.servers.aistore import Tls as ServerTls
from tests.servers.build import EVERYDAY
from tests.servers.certificates import Certificates
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name
from tests.support.web_server import WebServer

DATA = bytes(range(256)) * 1000
QUICK = Retry(attempts=1)


@pytest.fixture(params=[False, True], ids=["any client", "known clients"])
def tls_web(request: pytest.FixtureRequest, certified: Certificates) -> Iterator[WebServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certified.server, certified.server_key)
    if request.param:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certified.ca)
    with WebServer(tls=context) as server:
        server.objects["x.tar"] = DATA
        yield server


def content(store: HttpStore | AisStore) -> bytes:
    assert store.head("x.tar").size == len(DATA)
    body, found, buffer = store.open("x.tar"), bytearray(), memoryview(bytearray(100_000))
    while count := body.readinto(buffer):
        found += buffer[:count]
    body.close()
    store.close()
    return bytes(found)


def test_own_ca_and_certificate(tls_web: WebServer, certified: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")  # the argument takes precedence
    tls = Tls(ca=certified.ca, certificate=certified.client, key=certified.client_key)
    assert content(HttpStore(tls_web.url, read_options(retry=QUICK, tls=tls))) == DATA


@pytest.mark.parametrize("tls", [Tls(), Tls(ca="own", verify=True)], ids=["nothing", "no certificate"])
def test_missing_certificates_are_reported(tls_web: WebServer, certified: Certificates, tls: Tls, request) -> None:
    """Without the CA, we do not trust the server; without a certificate, the server does not trust us."""
    known_clients = "known" in request.node.name
    if tls.ca and not known_clients:
        return
    tls = Tls(ca=certified.ca) if tls.ca else tls
    for ask in ("open", "head"):
        store = HttpStore(tls_web.url, read_options(retry=QUICK, tls=tls))
        with pytest.raises(StoreError if tls.ca is None else (StoreError, TransportError)) as caught:
            getattr(store, ask)("x.tar")
        assert tls.ca or "CERTIFICATE_VERIFY_FAILED" in str(caught.value)
        store.close()


def test_disabling_verification_warns(tls_web: WebServer, certified: Certificates) -> None:
    tls = Tls(certificate=certified.client, key=certified.client_key, verify=False)
    with pytest.warns(UserWarning, match="certificate is not checked"):
        store = HttpStore(tls_web.url, read_options(retry=QUICK, tls=tls))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        assert content(store) == DATA


@pytest.mark.parametrize("wrong", ["missing", "no certificate"])
def test_unusable_files_are_named(tls_web: WebServer, tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "ca.pem"
    if wrong != "missing":
        path.write_text("nothing of the kind")
    for ask in ("open", "head"):
        store = HttpStore(tls_web.url, read_options(retry=QUICK, tls=Tls(ca=str(path))))
        with pytest.raises(StoreError, match=r"TLS"):
            getattr(store, ask)("x.tar")
        store.close()


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(ValueError, match=r"Tls\.certificate"):
        Tls(key="key.pem")


@pytest.fixture(params=[False, True], ids=["any client", "known clients"])
def tls_cluster(
    request: pytest.FixtureRequest, certified: Certificates, tmp_path: Path
) -> Iterator[tuple[AIStore, Certificates]]:
    tls = ServerTls(
        certified.ca,
        certified.server,
        certified.server_key,
        clients=request.param,
        client=(certified.client, certified.client_key),
    )
    with AIStore(EVERYDAY["aisnode"].path, tmp_path / "aistore", tls=tls) as found:
        yield found, certified


@pytest.mark.full
@pytest.mark.servers("own-aistore")
def test_a_real_cluster_over_tls(
    tls_cluster: tuple[AIStore, Certificates], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """All settings come from the environment, as for AIStore's own clients."""
    server, certified = tls_cluster
    monkeypatch.setenv("AIS_ENDPOINT", server.url)
    monkeypatch.setenv("AIS_CLIENT_CA", certified.ca)
    monkeypatch.setenv("AIS_CRT", certified.client)
    monkeypatch.setenv("AIS_CRT_KEY", certified.client_key)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    bucket = new_name()
    store = AisStore(bucket, read_options())
    store.create()
    store.put("x.tar", made.labelled("n", 30))
    store.put("big.tar", bytes(20 << 20))
    store.close()
    with t2t.open(f"ais://{bucket}/x*.tar") as src:
        assert [record["__key__"] for record in src.records()] == [f"n/{number:06d}" for number in range(30)]
    if "known clients" in request.node.name:
        with monkeypatch.context() as nobody:
            nobody.delenv("AIS_CRT")
            nobody.delenv("AIS_CRT_KEY")
            with t2t.open(f"ais://{bucket}/x.tar", retry=QUICK) as src, pytest.raises((StoreError, TransportError)):
                list(src.records())
    monkeypatch.delenv("AIS_CLIENT_CA")
    with t2t.open(f"ais://{bucket}/x.tar", retry=QUICK) as src, pytest.raises(StoreError, match="CERTIFICATE_VERIFY"):
        list(src.records())
    monkeypatch.setenv("AIS_SKIP_VERIFY_CRT", "true")
    with pytest.warns(UserWarning, match="AIS_SKIP_VERIFY_CRT"):
        src = t2t.open(f"ais://{bucket}/x.tar")
    with src:
        assert sum(1 for _ in src.records()) == 30
