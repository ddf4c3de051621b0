"""Misspelt addresses work if their meaning is certain; otherwise the error names the right spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import OptionTypeError, ShardNotFound, StoreError, TemplateError
from ais_tar2tf.options import Read
from ais_tar2tf.source import Source
from ais_tar2tf.stores.ais_endpoint import endpoint_url
from ais_tar2tf.stores.cloud import CloudStore
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made


@pytest.fixture
def spelled_endpoint(tmp_path: Path) -> Iterator[str]:
    """The endpoint of a server with the bucket `b`, which has shards, also in its folder `sub`."""
    (tmp_path / "b" / "sub").mkdir(parents=True)
    for name in ("0.tar", "1.tar", "sub/0.tar", "whole", "whole.d"):
        (tmp_path / "b" / name).write_bytes(made.labelled(name, 2))
    with t2t.serve(tmp_path, port=0) as server:
        yield server.url


def read(source: Source) -> list[str]:
    """Return the shards that records came from, in order."""
    return list(dict.fromkeys(record["__shard__"].split("/", 3)[3] for record in source.records()))


@pytest.mark.parametrize("spelling", ["{}/v1", "{}/v1/", "{}/", " {}\n"])
def test_an_endpoint_may_end_with_the_version_of_the_api(spelled_endpoint: str, spelling: str) -> None:
    assert read(t2t.open("ais://b/{0..1}.tar", endpoint=spelling.format(spelled_endpoint))) == ["0.tar", "1.tar"]
    assert endpoint_url(spelling.format("h:51080")) == "http://h:51080"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("localhost 51080", "http://localhost:51080"),
        ("http://localhost  51080/", "http://localhost:51080"),
        ("http:/h:51080", "http://h:51080"),
        ("https:h", "https://h"),
        ("http://h:51080/v1/objects/b", "http://h:51080"),
        ("h/ais/v1/buckets", "http://h/ais"),
    ],
)
def test_a_misspelt_endpoint_is_refused_with_a_suggestion(
    monkeypatch: pytest.MonkeyPatch, wrong: str, meant: str
) -> None:
    monkeypatch.setenv("AIS_ENDPOINT", wrong)
    for given in (None, wrong):
        with pytest.raises(StoreError, match=f"this is no endpoint; did you mean {meant}\\?$"):
            endpoint_url(given)


def test_an_s3_endpoint_without_its_scheme_is_refused_with_a_suggestion() -> None:
    with pytest.raises(StoreError, match=r"did you mean http://h:9000\?"):
        CloudStore("s3", "b", Read(), endpoint="h:9000")
    with pytest.raises(StoreError) as refused:
        CloudStore("s3", "b", Read(), endpoint="me:secret@h:9000")
    assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize("bucket", ["b", "b/", "ais://b", "ais://b/"])
def test_a_bucket_may_be_written_as_its_url(spelled_endpoint: str, bucket: str) -> None:
    ais = t2t.AisDataset(bucket, spelled_endpoint)
    assert repr(ais) == f"AisDataset(AisStore(ais://b at {spelled_endpoint}))"
    assert read(ais.source("1.tar")) == ["1.tar"]


@pytest.mark.parametrize(
    ("bucket", "advice"),
    [
        ("b/sub/", "did you mean 'b', and 'sub' in the template?"),
        ("ais://b/sub", "did you mean 'b', and 'sub' in the template?"),
        ("http://h:51080", "the bucket comes first, and then the endpoint"),
        ("s3://b", "a URL like this is read by t2t.open"),
    ],
)
def test_an_invalid_bucket_is_refused_with_a_suggestion(spelled_endpoint: str, bucket: str, advice: str) -> None:
    with pytest.raises(StoreError) as refused:
        t2t.AisDataset(bucket, spelled_endpoint)
    assert str(refused.value).endswith(f"a bucket's name is not empty and has no slash; {advice}")


def test_a_template_may_be_written_as_a_url_of_the_bucket(spelled_endpoint: str) -> None:
    ais = t2t.AisDataset("b", spelled_endpoint)
    assert read(ais.source("ais://b/{0..1}.tar")) == ["0.tar", "1.tar"]
    assert read(ais.source(["1.tar", "ais://b/0.tar"])) == ["1.tar", "0.tar"]
    assert read(ais.source("ais://b/sub/")) == ["sub/0.tar"]
    for every in ("ais://b", "ais://b/"):
        assert set(read(ais.source(every))) == {"0.tar", "1.tar", "sub/0.tar", "whole", "whole.d"}
    for elsewhere in ("ais://c/0.tar", "ais://bb/0.tar", "s3://b/0.tar", f"{spelled_endpoint}/v1/objects/b/0.tar"):
        with pytest.raises(TemplateError, match="is not in the bucket 'b', whose shards are read here"):
            ais.source(elsewhere)


def test_a_folder_without_its_slash_is_refused_with_a_suggestion(spelled_endpoint: str) -> None:
    for opened in (
        lambda: t2t.open("ais://b/sub", endpoint=spelled_endpoint),
        lambda: t2t.AisDataset("b", spelled_endpoint).source("sub"),
    ):
        with pytest.raises(ShardNotFound, match="but a folder of that name; did you mean 'ais://b/sub/'"):
            opened()
    assert read(t2t.open("ais://b/{whole,sub/0.tar}", endpoint=spelled_endpoint)) == ["whole", "sub/0.tar"]
    with pytest.raises(ShardNotFound, match="there is no such object or bucket"):
        list(t2t.open("ais://b/none", endpoint=spelled_endpoint).records())


def test_an_object_that_has_the_name_of_a_folder_too_is_read() -> None:
    store = MemoryStore("both")
    for name in ("sub", "sub/0.tar"):
        store.put(name, made.labelled("n", 2))
    assert read(t2t.open("memory://both/sub")) == ["sub"]


def test_option_names_of_other_programs_are_refused_with_a_suggestion(spelled_endpoint: str) -> None:
    with pytest.raises(OptionTypeError, match=r"AisDataset\(\) has no option 'endpoint'; did you mean 'proxy_url'\?"):
        t2t.AisDataset("b", endpoint=spelled_endpoint)  # type: ignore[call-arg]
    with pytest.raises(OptionTypeError, match=r"open\(\) has no option 'proxy_url'; did you mean 'endpoint'\?"):
        t2t.open("ais://b", proxy_url=spelled_endpoint)  # type: ignore[call-arg]
    with pytest.raises(OptionTypeError, match=r"has no option 'num_parallel_calls'; did you mean 'parallel'\?"):
        t2t.open("ais://b", endpoint=spelled_endpoint).dataset(num_parallel_calls=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("option", "methods"),
    [
        ("batch", r"\.dataset\(\) or \.records\(\)"),
        ("shuffle", r"\.dataset\(\) or \.records\(\)"),
        ("graph", r"\.dataset\(\)"),
    ],
)
def test_an_option_of_datasets_is_not_one_of_open(option: str, methods: str) -> None:
    with pytest.raises(
        OptionTypeError, match=rf"open\(\) has no option '{option}'; give it to {methods} of what open"
    ):
        t2t.open("memory://both/sub", **{option: 3})  # type: ignore[call-arg]


@pytest.mark.servers("minio")
def test_an_endpoint_that_speaks_s3_is_told_apart(minio: Any) -> None:
    for call in (
        lambda: t2t.open("ais://ready/x.tar", endpoint=minio.url).schema,
        lambda: t2t.open("ais://ready/", endpoint=minio.url),
        lambda: t2t.open("ais://ready/sub/x.tar", endpoint=minio.url)[0],
        lambda: t2t.pack([{"__key__": "a", "txt": "x"}], "ais://ready/x.tar", endpoint=minio.url),
    ):
        with pytest.raises(StoreError, match="speaks S3, and is no AIStore proxy: write s3://ready/"):
            call()
