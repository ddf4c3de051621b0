"""AIStore with AuthN: denied access, tokens that are replaced during an epoch, and places where they never appear."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import requests

import ais_tar2tf as t2t
from ais_tar2tf.errors import AccessDenied
from ais_tar2tf.options import Limits, Retry
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.streams.arguments import read_options
from tests.servers.cluster import AuthCluster
from tests.servers.process import wait_until
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name
from tests.support.own_errors import everything_printed
from tests.support.relays import Relay

SHARDS = 6
RECORDS = 40
EXPECTED = [f"s{shard}/{number:06d}" for shard in range(SHARDS) for number in range(RECORDS)]
# The read-ahead is small, so that later shards are requested after the token was revoked.
NARROW = {
    "limits": Limits(read_ahead_bytes=64 * 1024),
    "retry": Retry(attempts=2, first_delay=0.01),
    "connections": 1,
}

pytestmark = pytest.mark.servers("authn")


@pytest.fixture(scope="module")
def authn_bucket(authn: AuthCluster) -> str:
    """Fill a bucket with shards of 4 MB, more than sockets and read-ahead hold."""
    name = new_name()
    store = AisStore(name, read_options(), endpoint=authn.url, token=authn.service.admin)
    store.create()
    for number in range(SHARDS):
        data = made.labelled(f"s{number}", RECORDS, lambda _: {"bin": bytes(100_000)})
        store.put(f"train-{number}.tar", data)
    store.close()
    return name


@pytest.mark.parametrize("token", [None, "nonsense", "a.b.c"])
def test_without_a_good_token_access_is_denied(authn: AuthCluster, authn_bucket: str, token: str | None) -> None:
    src = t2t.open(f"ais://{authn_bucket}/train-0.tar", endpoint=authn.url, token=token)
    with pytest.raises(AccessDenied, match="401") as caught:
        next(src.records())
    assert caught.value.status == 401
    assert token is None or token not in everything_printed(caught.value)
    src.close()


def test_with_too_few_rights_access_is_denied(authn: AuthCluster, authn_bucket: str) -> None:
    authn.service.add_lister("lister", "password-of-lister", authn.url)
    token = authn.service.token("lister", "password-of-lister")
    src = t2t.open(f"ais://{authn_bucket}/train-0.tar", endpoint=authn.url, token=token)
    with pytest.raises(AccessDenied, match="403") as caught:
        next(src.records())
    assert caught.value.status == 403
    assert token not in everything_printed(caught.value)
    src.close()


def test_a_target_denies_direct_requests(authn: AuthCluster, authn_bucket: str) -> None:
    src = t2t.open(f"{authn.cluster.target_urls[0]}/v1/objects/{authn_bucket}/train-0.tar")
    with pytest.raises(AccessDenied, match="403"):
        next(src.records())
    src.close()


@pytest.mark.parametrize("way", ["callable", "file", "environment"])
def test_a_token_that_is_replaced_in_an_epoch_loses_no_record(
    authn: AuthCluster,
    authn_bucket: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    first, second = (authn.service.token() for _ in range(2))
    current, path = [first], tmp_path / "token"
    given = (lambda: current[-1]) if way == "callable" else None
    if way == "file":
        path.write_text(first)
        monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(path))
    elif way == "environment":
        monkeypatch.setenv("AIS_AUTHN_TOKEN", first)
    src = t2t.open(f"ais://{authn_bucket}/train-{{0..{SHARDS - 1}}}.tar", endpoint=authn.url, token=given, **NARROW)
    keys: list[str] = []
    for record in src.records():
        keys.append(record["__key__"])
        if len(keys) == RECORDS + 1:
            current.append(second)
            if way == "file":
                path.write_text(f'{{"token": "{second}"}}')
            elif way == "environment":
                monkeypatch.setenv("AIS_AUTHN_TOKEN", second)
            # The token is cached and used until it is refused.
            authn.service.revoke(first)
            _wait_until_refused(authn, authn_bucket, first)
    src.close()
    assert keys == EXPECTED
    assert first not in caplog.text
    assert second not in caplog.text


def test_a_revoked_token_is_an_error(authn: AuthCluster, authn_bucket: str) -> None:
    token = authn.service.token()
    asked: list[int] = []

    def provider() -> str:
        asked.append(1)
        return token

    src = t2t.open(
        f"ais://{authn_bucket}/train-{{0..{SHARDS - 1}}}.tar", endpoint=authn.url, token=provider, **NARROW
    )
    records = src.records()
    next(records)
    authn.service.revoke(token)
    _wait_until_refused(authn, authn_bucket, token)
    with pytest.raises(AccessDenied, match="401") as caught:
        list(records)
    assert token not in everything_printed(caught.value)
    assert token not in repr(src)
    assert 2 <= len(asked) <= 1 + SHARDS  # once for each refusal
    src.close()


def test_the_token_is_sent_to_the_proxy_and_to_no_target(authn: AuthCluster, authn_bucket: str) -> None:
    token = authn.service.admin
    with Relay([authn.url, *authn.cluster.target_urls]) as relay:
        src = t2t.open(f"ais://{authn_bucket}/train-*.tar", endpoint=relay.url(0), token=token)
        assert sum(1 for _ in src.records()) == len(EXPECTED)
        src.close()
    sent = [relay.sent(number) for number in range(3)]
    assert token.encode() in sent[0]
    assert sent[1] or sent[2]
    assert b"uthorization" not in sent[1] + sent[2]
    assert token.encode() not in sent[1] + sent[2]


def _wait_until_refused(authn: AuthCluster, bucket: str, token: str) -> None:
    """Revoke a token, and wait until AuthN has sent it to the cluster."""

    def refused() -> bool:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{authn.url}/v1/objects/{bucket}/train-0.tar"
        return requests.head(url, headers=headers, timeout=5).status_code == 401

    wait_until(refused, "the token is refused", 20)
