"""The index agrees with tarfile and wids, is kept in a file, and is used only while the shards are unchanged."""

from __future__ import annotations

import bz2
import io
import json
import random
import re
import sys
import tarfile
import types
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.errors import IndexMissing, LimitExceeded, ObjectChanged, SchemaError, ShardNotFound, StoreError
from ais_tar2tf.options import Limits, Retry
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.index.entry import ShardIndex
from ais_tar2tf.streams.index.format import header_of
from ais_tar2tf.streams.index.shards import INDEX_NAME, Index, folder_of
from tests.support import shards as made

T = TypeVar("T")
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def put(store: MemoryStore, shards: int = 3) -> str:
    for number in range(shards):
        store.put(f"a/{number}.tar", made.labelled(f"s{number}", 4 + number, lambda i: {"x": b"%d" % i}))
    return store.url(f"a/{{0..{shards - 1}}}.tar")


# Content


@pytest.mark.parametrize("tar_format", FORMATS)
@pytest.mark.parametrize("squeezed", [False, True])
def test_against_tarfile(memory, tar_format, squeezed):
    """Compare offsets and sizes of records with tarfile, for short and long names and members of 0 to 3,000 bytes."""
    names = [f"{'n' * (30 * (i % 5))}ü/{i:03d}" for i in range(60)]
    data = made.tar(
        ((name, {"jpg": bytes(50 * i), "cls": b"x" * (i % 3)}) for i, name in enumerate(names)), tar_format=tar_format
    )
    memory.put("a.tar", made.gzipped(data) if squeezed else data)
    (entry,) = t2t.index(memory.url("a.tar"))
    places, sizes, ends = defaultdict(list), defaultdict(int), defaultdict(int)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            key = member.name.partition(".")[0]
            places[key].append(member.offset)
            sizes[key] += member.size
            ends[key] = max(ends[key], member.offset_data + -(-member.size // 512) * 512)
    assert entry.records == len(places) == 60
    assert [entry.offset(i) for i in range(60)] == [offsets[0] for offsets in places.values()]
    assert entry.sizes.tolist() == list(sizes.values())
    assert entry.offset(60) == max(ends.values())
    assert entry.compressed == squeezed
    assert entry.identity == memory.head("a.tar").identity


def test_the_first_record_of_a_compressed_shard_that_is_larger_than_its_content(memory):
    contents = [random.Random(number).randbytes(1 << 20) for number in range(3)]
    memory.put("a.tar.bz2", bz2.compress(made.tar((f"{n}", {"bin": data}) for n, data in enumerate(contents))))
    url = memory.url("a.tar.bz2")
    (entry,) = t2t.index(url)
    source = t2t.open(url, retry=Retry(attempts=1))
    assert entry.offset(1) < entry.identity.size // 3 + 1
    assert source[0]["bin"] == contents[0]
    assert [record["bin"] for record in source[0:2]] == contents[:2]
    assert [next(iter(source.records(shard=(host, 3), even="drop")))["bin"] for host in range(3)] == contents


def test_an_index_next_to_the_shards_and_elsewhere(memory, tmp_path):
    url = put(memory)
    assert repr(t2t.index(url)) == "<Index of 3 shards with 15 records>"
    assert memory.head(f"a/{INDEX_NAME}").size < 600
    assert len(t2t.open(url)) == 15
    assert len(t2t.open(url.replace("{0..2}", "1"))) == 5  # one index for all in the folder
    folder = tmp_path / "kept"
    folder.mkdir()
    t2t.index(url, folder)
    assert (folder / INDEX_NAME).is_file()
    t2t.index(url, tmp_path / "by.name")
    memory.put(f"a/{INDEX_NAME}", b"something else")
    with pytest.raises(IndexMissing, match="is no index"):
        len(t2t.open(url))
    for out in (folder, tmp_path / "by.name", f"{folder}/{INDEX_NAME}", f"file://{folder}/"):
        assert len(t2t.open(url, index=out)) == 15
    with pytest.raises(ShardNotFound):
        len(t2t.open(url, index=tmp_path / "nothing"))


def test_sources_and_mixtures_are_iterated_with_and_without_an_index(memory):
    url = put(memory)
    records = list(t2t.open(url).records())
    assert list(t2t.open(url)) == list(t2t.mix([t2t.open(url)])) == records
    with pytest.raises(TypeError, match="needs an index"):
        len(t2t.open(url))
    t2t.index(url)
    assert list(t2t.open(url)) == records
    assert [record for _, record in zip(range(3), t2t.open(url), strict=False)] == records[:3]


def test_an_index_is_no_shard(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.tar").write_bytes(made.labelled(f"s{number}", 2))
    for pattern in (f"{tmp_path}/", f"{tmp_path}/*", f"{tmp_path}/*.t*"):
        t2t.index(pattern)
        assert len(list(t2t.open(pattern).shards)) == 3
        assert len(t2t.open(pattern)) == len(list(t2t.open(pattern).records())) == 6


def test_only_changed_shards_are_read_again(memory):
    url = put(memory)
    t2t.index(url)
    read = t2t.open(url)
    read.write_index()
    assert read.stats.shards == 0
    memory.put("a/1.tar", made.labelled("new", 9))
    read.write_index()
    assert read.stats.shards == 1
    assert len(t2t.open(url)) == 4 + 9 + 6


def test_a_damaged_shard_is_not_indexed(memory):
    memory.put("a.tar", made.labelled("t", 50)[:-12_000])
    with pytest.raises(t2t.errors.TruncatedArchive):
        t2t.index(memory.url("a.tar"))
    with pytest.raises(ShardNotFound):
        memory.head(INDEX_NAME)


def test_inputs_without_an_index_are_refused(memory, imagenet):
    url = put(memory)
    with pytest.raises(SchemaError, match="grouping with a name"):
        t2t.index(url, grouping=lambda name: (name, "x"))
    with pytest.raises(StoreError, match="say out="):
        t2t.index(f"{imagenet.url}/v1/objects/imagenet/train-0.tar.gz")
    with pytest.raises(LimitExceeded, match=r"Limits\.index_bytes"):
        t2t.index(url, limits=Limits(index_bytes=50))


@pytest.mark.parametrize("size", [1 << 32, 1 << 40])
def test_a_record_that_is_too_large_for_an_index(size):
    """An extent is stored in units of 512 bytes, but the size of the fields in bytes."""
    identity = Identity("v", "e", "xxhash2:0", size)
    for extent, fields in ((size * 512, 1), (size + 512, size)):
        with pytest.raises(SchemaError, match="'s' has a record that is too large for an index"):
            ShardIndex.from_places("s", identity, [0, 512], [512, extent], [1, fields], compressed=False)
    ShardIndex.from_places("s", identity, [0], [1 << 32], [(1 << 32) - 1], compressed=False)


# The file

NUMBERS = st.integers(0, 1 << 33)
SHARD = st.builds(
    lambda name, first, sizes, unit, compressed, size: ShardIndex.from_places(
        name,
        Identity("v", "e", "xxhash2:0", size),
        np.cumsum([first * unit, *[s * unit for s in sizes[:-1]]])[: len(sizes)].tolist(),
        [s * unit for s in sizes],
        sizes,
        compressed=compressed,
    ),
    st.text(min_size=1),
    NUMBERS,
    st.lists(st.integers(0, 1 << 31), max_size=20),
    st.sampled_from([1, 512]),
    st.booleans(),
    st.none() | NUMBERS,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(SHARD, max_size=5, unique_by=lambda shard: shard.name))
def test_the_file_keeps_everything(shards):
    index = Index("last-dot", shards)
    again = Index.from_bytes(index.to_bytes())
    assert again is not None
    assert again.grouping == "last-dot"
    assert again.to_bytes() == index.to_bytes()
    for one, other in zip(index, again, strict=True):
        assert header_of(one) == header_of(other)
        assert [one.offset(i) for i in range(one.records + 1)] == [other.offset(i) for i in range(one.records + 1)]
        assert (one.sizes == other.sizes).all()


def test_a_cut_or_changed_file_is_damaged(memory):
    put(memory)
    data = t2t.index(memory.url("a/{0..2}.tar")).to_bytes()
    for end in range(8, len(data)):
        with pytest.raises(SchemaError, match="damaged"):
            Index.from_bytes(data[:end])
    with pytest.raises(SchemaError, match="another length"):
        Index.from_bytes(data + b"x")
    with pytest.raises(SchemaError, match="has format 2"):
        Index.from_bytes(data.replace(b'"version":1', b'"version":2'))
    with pytest.raises(SchemaError, match="damaged"):
        Index.from_bytes(data.replace(b'"records":4', b'"records":-'))
    for nothing in (b"", b"t2tinde", b"<html>", b"{}", b'{"__kind__": "other"}', b"[1]"):
        assert Index.from_bytes(nothing) is None


@pytest.mark.parametrize(
    ("names", "folder"),
    [
        ([], ""),
        (["a"], ""),
        (["a/b", "a/c"], "a/"),
        (["a/b", "ab/c"], ""),
        (["/a", "/b"], "/"),
        (["/x/a/1", "/x/b/1"], "/x/"),
        (["a/b/c", "a/b"], "a/"),
    ],
)
def test_the_common_folder_of_names(names, folder):
    assert folder_of(names) == folder


# wids


def _import_without_torch(monkeypatch):
    """Provide the names of torch that `wids` imports for its samplers, which the test does not use."""

    class Dataset(Generic[T]):
        pass

    for name in ("torch", "torch.distributed", "torch.utils", "torch.utils.data"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["torch"].distributed = sys.modules["torch.distributed"]
    sys.modules["torch.utils.data"].Dataset, sys.modules["torch.utils.data"].Sampler = Dataset, object


def test_an_index_as_wids_and_back(tmp_path, monkeypatch):
    """The library `wids` reads our index with the same number of records, and we read it back."""
    _import_without_torch(monkeypatch)
    import wids

    for number in range(3):
        (tmp_path / f"{number}.tar").write_bytes(
            made.labelled(f"s{number}", 4 + number, lambda i: {"txt": b"%d" % i})
        )
    url, out = f"{tmp_path}/{{0..2}}.tar", tmp_path / "shards.json"
    t2t.index(url, out)
    theirs = wids.ShardListDataset(str(out), cache_dir=str(tmp_path / "cache"), keep=True, transformations=[])
    assert len(theirs) == 15
    source = t2t.open(url, index=out)
    assert len(source) == 15
    assert [theirs[i]["__key__"] for i in (0, 4, 14)] == [source[i]["__key__"] for i in (0, 4, 14)]
    assert source[2:12] == list(source.records())[2:12]
    assert source.dataset().cardinality() == 15
    relative = json.loads(out.read_text())
    for shard in relative["shardlist"]:
        shard["url"] = Path(shard["url"]).name
    out.write_text(json.dumps(relative))
    assert len(t2t.open(url, index=out)) == 15
    relative["shardlist"][0]["nsamples"] = "many"
    out.write_text(json.dumps(relative))
    with pytest.raises(SchemaError, match="wids-shard-index-v1"):
        len(t2t.open(url, index=out))


def test_a_wids_index_that_was_changed_is_refused_until_its_checksum_is_deleted(tmp_path):
    (tmp_path / "0.tar").write_bytes(made.labelled("s", 4, lambda i: {"txt": b"%d" % i}))
    out = tmp_path / "shards.json"
    t2t.index(f"{tmp_path}/0.tar", out)
    changed = out.read_bytes().replace(b'"nsamples": 4', b'"nsamples": 3')
    with pytest.raises(SchemaError, match='delete "checksum" and its value, and the comma before them'):
        Index.from_bytes(changed)
    shortened = re.sub(rb',\s*"checksum": "[^"]*"', b"", changed)
    assert shortened != changed
    assert [each.records for each in Index.from_bytes(shortened)] == [3]


@pytest.mark.parametrize("squeezed", [False, True])
def test_records_of_a_record_file_keep_their_numbers(tmp_path, squeezed):
    """All records begin at multiples of 512, as in a tar. Their keys are their numbers in the file."""
    path = tmp_path / "s.tfrecord"
    with tf.io.TFRecordWriter(str(path), "GZIP" if squeezed else "") as writer:
        for number in range(20):
            size = next(each for each in range(1024) if len(_example(number, each)) + 16 == 512 * (1 + number % 2))
            writer.write(_example(number, size))
    t2t.index(path)
    keys = [f"{number:09d}" for number in range(20)]
    for start in range(20):
        dataset = t2t.open(path).dataset(lambda record: record["__key__"], start_at=start)
        assert [key.decode() for key in dataset.as_numpy_iterator()] == keys[start:]


def _example(number, size):
    features = {"n": t2t.features.int64_feature(number), "x": t2t.features.bytes_feature(bytes(size))}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


# Validity


@pytest.mark.parametrize("file_format", ["tar", "tfrecord"])
def test_a_manifest_has_the_length_of_exported_files(memory, tmp_path, file_format):
    files = t2t.open(put(memory)).export(tmp_path, format=file_format, shard_records=6)
    source = t2t.open(sorted(files)).select("x")
    assert len(source) == 15
    assert source.dataset(batch=4).cardinality() == len(list(source.dataset(batch=4))) == 4
    assert source[14]["x"] == b"5"
    assert len(t2t.open(sorted(files)[1:], index=tmp_path / "manifest.json")) == 9
    longer = Path(sorted(files)[0])
    longer.write_bytes(longer.read_bytes() + bytes(512))
    assert t2t.open(sorted(files)).select("x").dataset().cardinality() < 0


def test_an_index_that_is_older_than_a_shard_is_not_used(memory):
    url = put(memory)
    t2t.index(url)
    assert t2t.open(url).dataset().cardinality() == 15
    memory.put("a/1.tar", made.labelled("other", 2, lambda _: {"x": b""}))
    source = t2t.open(url)
    with pytest.raises(IndexMissing, match=r"older than shard 'a/1.tar', whose checksum"):
        len(source)
    dataset = source.dataset()
    assert dataset.cardinality() < 0
    assert len(list(dataset)) == 4 + 2 + 6


def test_an_index_that_is_too_large_is_ignored(memory):
    """Some servers answer every request with a document. It is ignored unless the user names it as the index."""
    url, limits = put(memory), Limits(index_bytes=100)
    memory.put(f"a/{INDEX_NAME}", bytes(101))
    source = t2t.open(url, limits=limits)
    assert len(list(source.dataset())) == 15
    with pytest.raises(IndexMissing, match=r"over 100 bytes, Limits\.index_bytes"):
        len(source)
    with pytest.raises(LimitExceeded):
        len(t2t.open(url, limits=limits, index=memory.url(f"a/{INDEX_NAME}")))


def test_an_index_of_other_shards_is_not_used(memory):
    put(memory)
    t2t.index(memory.url("a/{0..1}.tar"))
    with pytest.raises(IndexMissing, match=r"does not know shard 'a/2.tar'"):
        len(t2t.open(memory.url("a/{0..2}.tar")))
    with pytest.raises(IndexMissing, match="of grouping='first-dot'"):
        len(t2t.open(memory.url("a/{0..1}.tar"), grouping="last-dot"))


def test_a_shard_that_changes_while_its_index_is_used(memory):
    url = put(memory)
    t2t.index(url)
    source = t2t.open(url)
    assert len(source) == 15
    memory.put("a/1.tar", made.labelled("other", 2, lambda _: {"x": b""}))
    assert source[0]["__key__"] == "s0/000000"
    with pytest.raises(ObjectChanged, match="since its index"):
        source[5]


def test_an_index_with_wrong_counts_is_detected(memory):
    """The identities match the shards, so only the number of records shows the error."""
    url = put(memory)
    index = t2t.index(url)
    for more in (-1, 1):
        wrong = Index(
            "first-dot", [replace(e, records=e.records + more, unit=0, extents=None, sizes=None) for e in index]
        )
        memory.put(f"a/{INDEX_NAME}", wrong.to_bytes())
        dataset = t2t.open(url).dataset()
        assert dataset.cardinality() == 15 + 3 * more
        with pytest.raises(Exception, match=r"(the|its) index says"):
            list(dataset.prefetch(100))


def test_over_http_an_index_is_found_and_used_for_ranges(tmp_path, imagenet):
    """On a server without listing, the first and last shards are checked at once, all others when they are read."""
    root = tmp_path / "root"
    bucket = root / "b"
    bucket.mkdir(parents=True)
    for number in range(3):
        (bucket / f"{number}.tar").write_bytes(
            made.labelled(f"s{number}", 40, lambda i: {"jpg": bytes(100_000), "cls": b"%d" % i})
        )
    t2t.index(f"{bucket}/{{0..2}}.tar")
    with t2t.serve(root) as server:
        web = f"{server.target_url}/v1/objects/b/{{0..2}}.tar"
        t2t.index("ais://b/{0..2}.tar", endpoint=server.url)
        for source in (t2t.open("ais://b/{0..2}.tar", endpoint=server.url), t2t.open(web)):
            assert len(source) == 120
            server.requests.clear()
            assert source[77]["cls"] == b"37"
            bodies = [seen for seen in server.requests if seen.node.startswith("t")]
            assert [seen.range is not None for seen in bodies] == [True]
            source.close()


def test_a_missing_index_costs_one_request_and_no_retry(imagenet):
    source = t2t.open("ais://imagenet/train-{0..3}.tar.gz", endpoint=imagenet.url, retry=Retry(attempts=1))
    source.dataset()
    imagenet.requests.clear()
    for _ in range(3):
        source.dataset()
    assert not imagenet.requests


def test_files_are_published_whole(tmp_path, monkeypatch):
    (tmp_path / "0.tar").write_bytes(made.labelled("s", 3))
    t2t.index(f"{tmp_path}/0.tar")
    before = (tmp_path / INDEX_NAME).read_bytes()
    monkeypatch.setattr(FileStore, "put", lambda *_: (_ for _ in ()).throw(StoreError("full", url="x")))
    (tmp_path / "0.tar").write_bytes(made.labelled("s", 5))
    with pytest.raises(StoreError, match="full"):
        t2t.index(f"{tmp_path}/0.tar")
    assert (tmp_path / INDEX_NAME).read_bytes() == before


def test_a_wids_index_of_signed_urls_drops_the_signature():
    """Other programs write whole URLs. We drop the query, which may contain a signature."""
    key = "0123456789abcdef" * 3

    def wids(*urls: str) -> bytes:
        shards = [{"url": url, "nsamples": 2, "filesize": 10240} for url in urls]
        return json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}).encode()

    index = Index.from_bytes(wids(f"https://h/a.tar?sig={key}", "https://h/b.tar"))
    assert index is not None
    assert index.records_of([f"a.tar?sig={key[::-1]}", "b.tar"]) == 4
    with pytest.raises(SchemaError, match="a shard twice"):
        Index.from_bytes(wids(f"https://h/a.tar?sig={key}", f"https://h/a.tar?sig={key[::-1]}"))
