"""What is decompressed ahead: the same records, errors in their place, and no thread left."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import ArchiveError, StoreError, TruncatedArchive
from ais_tar2tf.fetch.ahead import Ahead
from faults import Fault, FaultServer, ais
from leftovers import our_threads
from shards import tar

URL = "memory://x"
RECORDS = 300
NOISE = os.urandom(RECORDS * 10_000)  # does not deflate: the shard stays larger than what is decoded without a thread


def giving(gives: list[Any]) -> Ahead[Any]:
    left = iter(gives)

    def step() -> Any:
        given = next(left)
        if isinstance(given, BaseException):
            raise given
        return given

    return Ahead(step, URL)


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = our_threads()
    yield
    assert our_threads() <= before


@pytest.mark.usefixtures("no_thread_left")
def test_items_come_in_order_and_none_is_made_ahead_of_a_none() -> None:
    ahead = giving([b"a", None, None, b"b", b""])
    assert [ahead.take() for _ in range(5)] == [b"a", None, None, b"b", b""]
    ahead.close()


@pytest.mark.usefixtures("no_thread_left")
def test_the_next_one_is_made_while_the_last_one_is_used() -> None:
    made = threading.Event()
    gives: Iterator[Callable[[], bytes | None]] = iter([lambda: b"first", lambda: made.set() or b"second"])
    ahead = Ahead(lambda: next(gives)(), URL)
    assert ahead.take() == b"first"
    assert made.wait(20)
    assert ahead._coming is not None
    assert ahead._coming.result() == b"second"
    ahead.close()


@pytest.mark.usefixtures("no_thread_left")
def test_an_error_comes_in_its_place_and_stays() -> None:
    error = ArchiveError("it is damaged", shard="x", offset=3)
    ahead = giving([b"a", error, b""])
    assert ahead.take() == b"a"
    for _ in range(2):
        with pytest.raises(ArchiveError) as caught:
            ahead.take()
        assert caught.value is error
    ahead.close()


def test_without_a_thread_the_reader_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ahead = giving([b"a", b"b", b""])
    assert [ahead.take() for _ in range(3)] == [b"a", b"b", b""]
    ahead.close()


# Whole shards.


def field(number: int) -> bytes:
    return NOISE[number * 10_000 : (number + 1) * 10_000]


@pytest.fixture(scope="module")
def packed() -> bytes:
    records = ((f"{number:06d}", {"bin": field(number)}) for number in range(RECORDS))
    return gzip.compress(tar(records), 1, mtime=0)


@pytest.fixture
def shard(tmp_path: Path, packed: bytes) -> Path:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(packed)
    return path


def by_tarfile(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
    return found


@pytest.fixture(params=["file", "http", "ais"])
def url(request: pytest.FixtureRequest, shard: Path) -> Iterator[str]:
    if request.param == "file":
        yield str(shard)
        return
    (shard.parent / "bucket").mkdir()
    shard.rename(shard.parent / "bucket" / shard.name)
    with t2t.serve(shard.parent, port=0) as server:
        base = f"{server.url}/v1/objects" if request.param == "http" else "ais:/"
        os.environ["AIS_ENDPOINT"] = server.url
        yield f"{base}/bucket/{shard.name}"
        del os.environ["AIS_ENDPOINT"]


@pytest.mark.usefixtures("no_thread_left")
def test_records_are_those_of_tarfile(url: str, packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "oracle").write_bytes(packed)
    with t2t.open(url) as source:
        found = {f"{record['__key__']}.bin": record["bin"] for record in source.records()}
        assert source.stats.bytes == len(packed)
    assert found == by_tarfile(tmp_path / "oracle")


@pytest.mark.usefixtures("no_thread_left")
def test_a_break_leaves_no_thread(url: str) -> None:
    with t2t.open(url) as source:
        for _ in source.records():
            break


@pytest.mark.usefixtures("no_thread_left")
def test_a_thread_decodes(shard: Path) -> None:
    with t2t.open(str(shard)) as source:
        coming = source.records()
        for _ in range(RECORDS // 2):
            next(coming)
        assert any(thread.name.startswith("ais_tar2tf-ahead") for thread in our_threads())


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("share", [0.4, 0.7, 0.99, 0.999999])
def test_a_cut_shard_gives_what_is_before_the_cut_and_an_error(shard: Path, packed: bytes, share: float) -> None:
    shard.write_bytes(packed[: int(len(packed) * share)])
    seen: list[bytes] = []
    with t2t.open(str(shard)) as source:
        bodies = (record["bin"] for record in source.records())
        with pytest.raises(TruncatedArchive):
            seen.extend(bodies)
    assert seen == [field(number) for number in range(len(seen))]
    assert len(seen) >= RECORDS * share - 110  # a block is decoded whole or not at all


@pytest.mark.usefixtures("no_thread_left")
def test_behind_a_damaged_shard_the_next_one_is_read(shard: Path, packed: bytes) -> None:
    damaged = bytearray(packed)
    damaged[len(damaged) // 2] ^= 0xFF
    damaged[-6] ^= 0xFF  # of gzip's own checksum: a flip in what is stored is no damage to deflate
    shard.write_bytes(damaged)
    other = shard.with_name("y.tar.gz")
    other.write_bytes(packed)
    with t2t.open([str(shard), str(other)], on_error="skip-shard") as source:
        seen = [(record["__shard__"], record["__key__"]) for record in source.records()]
        assert source.stats.skipped == {"ArchiveError": 1}
    assert [key for name, key in seen if name.endswith("y.tar.gz")] == [f"{at:06d}" for at in range(RECORDS)]


@pytest.mark.usefixtures("no_thread_left")
def test_a_reader_that_was_closed_says_so(shard: Path) -> None:
    source = t2t.open(str(shard))
    coming = source.records()
    for _ in range(RECORDS // 2):
        next(coming)
    source.close()
    with pytest.raises(StoreError, match="closed"):
        for _ in coming:
            pass


def test_concatenated_members_and_a_dataset(shard: Path) -> None:
    buffer = io.BytesIO()
    half = RECORDS // 2
    whole = tar((f"{number:06d}", {"bin": field(number)}) for number in range(RECORDS))
    for piece in (whole[: half * 10_752 + 77], whole[half * 10_752 + 77 :]):
        buffer.write(gzip.compress(piece, 1))
    shard.write_bytes(buffer.getvalue())
    with t2t.open(str(shard)) as source:
        bodies = [element["bin"].numpy() for element in source.dataset()]
    assert bodies == [field(number) for number in range(RECORDS)]


@pytest.mark.usefixtures("no_thread_left")
def test_a_shard_whose_length_is_told_late() -> None:
    """Without a length it may be long; the resume says that it is short."""
    records = ((f"{number:06d}", {"bin": field(number)}) for number in range(60))
    short = gzip.compress(tar(records), 1, mtime=0)
    with FaultServer() as server:
        server.add("bucket/x.tar.gz", ais(short), [Fault(framing="chunked", after=300_000, then="short")])
        with t2t.open("ais://bucket/x.tar.gz", endpoint=server.url, connections=1) as source:
            assert [record["bin"] for record in source.records()] == [field(number) for number in range(60)]
            assert source.stats.resumes == 1


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("begin", [1, 150, RECORDS - 1])
def test_from_a_record_on(url: str, begin: int) -> None:
    with t2t.open(url) as source:
        bodies = [element["bin"].numpy() for element in source.dataset(start_at=begin)]
    assert bodies == [field(number) for number in range(begin, RECORDS)]


@pytest.mark.usefixtures("no_thread_left")
def test_a_checkpoint_goes_on_in_the_middle(url: str, tmp_path: Path) -> None:
    with t2t.open(url) as source:
        dataset = source.dataset(batch=10)
        iterator = iter(dataset)
        for _ in range(12):
            next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
        other = iter(dataset)
        tf.train.Checkpoint(iterator=other).restore(saved)
        rest = [body for batch in other for body in batch["bin"].numpy()]
    assert rest == [field(number) for number in range(120, RECORDS)]
