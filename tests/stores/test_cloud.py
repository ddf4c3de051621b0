"""s3, gs and az beyond the contract: endpoints, credentials, refused arguments, and secrets that are never shown."""

from __future__ import annotations

import base64
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import AccessDenied, MissingDependency, ObjectChanged, ShardNotFound, StoreError
from ais_tar2tf.options import Read, Retry, Timeouts
from ais_tar2tf.stores import Body, open_store
from ais_tar2tf.stores.cloud import CloudStore
from ais_tar2tf.streams.arguments import read_options
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name
from tests.support.own_errors import everything_printed
from tests.support.relays import Relay
from tests.support.web_server import WebServer

DATA = bytes(range(256)) * 300 + b"odd"
QUICK = Read(timeouts=Timeouts(connect=2, idle=5), retry=Retry(attempts=2, first_delay=0.001, max_delay=0.01))
AZURE_KEY = base64.b64encode(b"k" * 64).decode()


def drain(body: Body) -> bytes:
    found, buffer = bytearray(), memoryview(bytearray(65536))
    while count := body.readinto(buffer):
        found += buffer[:count]
    body.close()
    return bytes(found)


@pytest.fixture
def cloud_web() -> Iterator[WebServer]:
    with WebServer() as server:
        server.objects["bucket/x.tar"] = DATA
        server.objects["bucket/empty.tar"] = b""
        yield server


@pytest.fixture(params=["s3 signed", "s3 public", "gs public", "az signed", "az public"])
def cloud_store(
    request: pytest.FixtureRequest, cloud_web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CloudStore]:
    """A store over a plain web server, which needs no signature."""
    scheme, way = request.param.split()
    public = {"s3": "AWS_SKIP_SIGNATURE", "gs": "GOOGLE_SKIP_SIGNATURE", "az": "AZURE_SKIP_SIGNATURE"}
    signed = {
        "s3": {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret"},
        "az": {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY},
    }
    variables = {public[scheme]: "true"} if way == "public" else signed[scheme]
    if scheme == "az":
        variables |= {"AZURE_STORAGE_ACCOUNT_NAME": "account"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    endpoint = f"{cloud_web.url}/bucket" if scheme == "az" else cloud_web.url
    if scheme == "az":
        cloud_web.objects |= {
            name.replace("bucket/", "bucket/bucket/"): data for name, data in cloud_web.objects.items()
        }
    found = CloudStore(scheme, "bucket", QUICK, endpoint=endpoint)
    yield found
    found.close()


@pytest.mark.parametrize(("start", "stop"), [(0, None), (5, None), (100, 70_000), (0, 10), (len(DATA) - 1, None)])
def test_ranges_signed_and_streamed(
    cloud_store: CloudStore, cloud_web: WebServer, start: int, stop: int | None
) -> None:
    body = cloud_store.open("x.tar", start, stop)
    assert body.start == start
    assert body.info.size == len(DATA)
    assert body.info.identity == cloud_store.head("x.tar").identity
    assert drain(body) == DATA[start:stop]


def test_empty_and_missing_objects(cloud_store: CloudStore, cloud_web: WebServer) -> None:
    assert drain(cloud_store.open("empty.tar")) == b""
    assert drain(cloud_store.open("empty.tar", 0, 10)) == b""
    for ask in (cloud_store.open, cloud_store.head):
        with pytest.raises(ShardNotFound) as caught:
            ask("no-such.tar")
        assert caught.value.url == cloud_store.url("no-such.tar")


def test_a_stream_can_be_abandoned(cloud_store: CloudStore) -> None:
    body = cloud_store.open("x.tar")
    assert body.readinto(memoryview(bytearray(10))) == 10
    body.close()
    body.close()


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_environment_of_aws_tools(cloud_web: WebServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {name: cloud_web.url, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(variable, value)
    store = open_store("s3", "bucket", QUICK)
    assert drain(store.open("x.tar")) == DATA
    assert cloud_web.requests[0][1].startswith("/bucket/x.tar?X-Amz-")
    assert "us-east-1" in cloud_web.requests[0][1]
    store.close()


@pytest.mark.parametrize("with_scheme", [True, False])
def test_the_emulator_of_googles_tools(
    cloud_web: WebServer, with_scheme: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator accepts requests without credentials, and the environment has none."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud_web.url if with_scheme else cloud_web.url.partition("://")[2])
    store = open_store("gs", "bucket", QUICK)
    assert drain(store.open("x.tar")) == DATA
    store.close()


def test_a_profile_is_read(cloud_web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = lab-id\naws_secret_access_key = s\n")
    (tmp_path / "config").write_text("[profile lab]\nregion = eu-lab-7\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    store = CloudStore("s3", "bucket", QUICK, endpoint=cloud_web.url)
    assert drain(store.open("x.tar")) == DATA
    assert "lab-id%2F" in cloud_web.requests[0][1]
    assert "eu-lab-7" in cloud_web.requests[0][1]
    store.close()


@pytest.mark.parametrize("wrong", ["host", "ftp://host", "http://me:secret@host"])
def test_an_invalid_endpoint_is_refused(wrong: str) -> None:
    with pytest.raises(StoreError, match="endpoint") as caught:
        CloudStore("s3", "bucket", QUICK, endpoint=wrong)
    assert "secret" not in everything_printed(caught.value)


def test_a_changed_object_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with WebServer() as web:
        web.objects["bucket/a.tar"] = DATA
        store = CloudStore("s3", "bucket", QUICK, endpoint=web.url)
        before = store.open("a.tar", 0, 1000)
        before.close()
        web.objects["bucket/a.tar"] = DATA[::-1]
        later = store.open("a.tar", 1000)
        later.close()
        with pytest.raises(ObjectChanged, match="etag"):
            before.info.identity.check(later.info.identity, store.url("a.tar"))
        store.close()


def test_without_the_extra_the_error_is_one_line() -> None:
    script = (
        "import sys; sys.modules['obstore'] = None\n"
        "import ais_tar2tf as t2t\n"
        "try: t2t.open('s3://bucket/x.tar')\n"
        "except t2t.errors.MissingDependency as error: print(error)"
    )
    root = str(Path(t2t.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == (
        "obstore is needed here and is not installed: pip install 'ais_tar2tf[cloud]', or in a clone of the project "
        "./setup.sh with cloud"
    )
    assert issubclass(MissingDependency, ImportError)


# A real MinIO


@pytest.fixture
def minio_bucket(minio: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in minio.environment.items():
        monkeypatch.setenv(name, value)
    store = CloudStore("s3", name := new_name(), read_options())
    store.create()
    for number in range(3):
        store.put(f"train-{number}.tar", made.labelled(f"n{number}", 10))
    store.put("train/deep.tar", made.labelled("d", 1))
    store.close()
    return name


@pytest.mark.servers("minio")
def test_globs_and_prefixes_on_minio(minio_bucket: str) -> None:
    with t2t.open(f"s3://{minio_bucket}/train-[01].tar") as src:
        assert [url.rpartition("/")[2] for url in src.shards] == ["train-0.tar", "train-1.tar"]
        assert sum(1 for _ in src.records()) == 20
    with t2t.open(f"s3://{minio_bucket}/train/") as src:
        assert [url.removeprefix(f"s3://{minio_bucket}/") for url in src.shards] == ["train/deep.tar"]


@pytest.mark.servers("minio")
@pytest.mark.parametrize(
    ("name", "value"), [("AWS_SECRET_ACCESS_KEY", "wrong-secret"), ("AWS_ACCESS_KEY_ID", "nobody-known")]
)
def test_wrong_credentials_are_denied_and_not_shown(
    minio_bucket: str, name: str, value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(name, value)
    store = CloudStore("s3", minio_bucket, QUICK)
    for ask in (store.open, store.head, lambda name: list(store.list(name)), lambda name: store.put(name, b"")):
        with pytest.raises(AccessDenied, match="403") as caught:
            ask("train-0.tar")
        assert caught.value.status == 403
        assert "X-Amz" not in everything_printed(caught.value)
        assert "wrong-secret" not in everything_printed(caught.value)
    assert "X-Amz" not in caplog.text
    assert "X-Amz" not in repr(store)
    store.close()


@pytest.mark.servers("minio")
def test_a_missing_bucket_is_an_error(minio_bucket: str) -> None:
    store = CloudStore("s3", "no-such-bucket", QUICK)
    for ask in (store.open, store.head, lambda name: list(store.list(name))):
        with pytest.raises(ShardNotFound):
            ask("x.tar")
    store.close()


@pytest.mark.servers("minio")
def test_the_secret_is_never_sent(minio_bucket: str, minio: Any) -> None:
    with Relay([minio.url]) as relay:
        with t2t.open(f"s3://{minio_bucket}/train-*.tar", endpoint=relay.url(0)) as src:
            assert sum(1 for _ in src.records()) == 30
        sent = relay.sent(0)
    assert b"X-Amz-Signature" in sent
    assert minio.environment["AWS_SECRET_ACCESS_KEY"].encode() not in sent


# AIStore's own /s3, and buckets of S3 through AIStore


@pytest.mark.servers("aistore", "minio")
def test_a_big_put_over_s3(aistore: Any, minio_bucket: str) -> None:
    data = bytes(range(256)) * (20 << 12)
    for endpoint in (f"{aistore.url}/s3", None):
        store = CloudStore("s3", new_name(), read_options(), endpoint=endpoint)
        store.create()
        store.put("big.tar", data)
        assert store.head("big.tar").size == len(data)
        store.close()


@pytest.mark.full
@pytest.mark.servers("aws")
def test_a_bucket_of_s3_through_aistore(aistore_aws: Any, minio_bucket: str) -> None:
    with t2t.AisDataset(minio_bucket, aistore_aws.url, provider="s3") as ais:
        records = list(ais.source("train-{0..2}.tar").records())
        listed = list(ais.source("train-*.tar").shards)
    assert [record["__key__"] for record in records] == [f"n{a}/{b:06d}" for a in range(3) for b in range(10)]
    assert len(listed) == 3
