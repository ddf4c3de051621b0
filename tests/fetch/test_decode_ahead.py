"""Decompression ahead of the reader gives the same records, errors in their place, and leaves no thread."""

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
from ais_tar2tf.fetch.decode_ahead import DecodeAhead
from tests.support.fault_server import Fault, FaultServer, ais
from tests.support.leftovers import our_threads
from tests.support.shards import tar

URL = "memory://x"
RECORDS = 300
NOISE = os.urandom(
    RECORDS * 10_000
)  # incompressible, so the shard is larger than the limit below which no thread is used


def giving(gives: list[Any]) -> DecodeAhead[Any]:
    left = iter(gives)

    def step() -> Any:
        given = next(left)
        if isinstance(given, BaseException):
            raise given
        return given

    return DecodeAhead(step, URL)


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = our_threads()
    yield
    assert our_threads() <= before


@pytest.mark.usefixtures("no_thread_left")
def test_items_come_in_order_and_none_is_made_ahead_after_none() -> None:
    ahead = giving([b"a", None, None, b"b", b""])
    assert [ahead.next() for _ in range(5)] == [b"a", None, None, b"b", b""]
    ahead.close()


@pytest.mark.usefixtures("no_thread_left")
def test_the_next_item_is_made_while_the_last_one_is_used() -> None:
    made = threading.Event()
    gives: Iterator[Callable[[], bytes | None]] = iter([lambda: b"first", lambda: made.set() or b"second"])
    ahead = DecodeAhead(lambda: next(gives)(), URL)
    assert ahead.next() == b"first"
    assert made.wait(20)
    assert ahead._next_result is not None
    assert ahead._next_result.result() == b"second"
    ahead.close()


@pytest.mark.usefixtures("no_thread_left")
def test_an_error_is_raised_in_its_place_and_again() -> None:
    error = ArchiveError("it is damaged", shard="x", offset=3)
    ahead = giving([b"a", error, b""])
    assert ahead.next() == b"a"
    for _ in range(2):
        with pytest.raises(ArchiveError) as caught:
            ahead.next()
        assert caught.value is error
    ahead.close()


def test_without_a_thread_the_reader_makes_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ahead = giving([b"a", b"b", b""])
    assert [ahead.next() for _ in range(3)] == [b"a", b"b", b""]
    ahead.close()


# Whole shards


def field(number: int) -> bytes:
    return NOISE[number * 10_000 : (number + 1) * 10_000]


@pytest.fixture(scope="module")
def gzip_shard() -> bytes:
    records = ((f"{number:06d}", {"bin": field(number)}) for number in range(RECORDS))
    return gzip.compress(tar(records), 1, mtime=0)


@pytest.fixture
def gzip_file(tmp_path: Path, gzip_shard: bytes) -> Path:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip_shard)
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
def gzip_url(request: pytest.FixtureRequest, gzip_file: Path) -> Iterator[str]:
    if request.param == "file":
        yield str(gzip_file)
        return
    (gzip_file.parent / "bucket").mkdir()
    gzip_file.rename(gzip_file.parent / "bucket" / gzip_file.name)
    with t2t.serve(gzip_file.parent, port=0) as server:
        base = f"{server.url}/v1/objects" if request.param == "http" else "ais:/"
        os.environ["AIS_ENDPOINT"] = server.url
        yield f"{base}/bucket/{gzip_file.name}"
        del os.environ["AIS_ENDPOINT"]


@pytest.mark.usefixtures("no_thread_left")
def test_records_are_those_of_tarfile(gzip_url: str, gzip_shard: bytes, tmp_path: Path) -> None:
    (tmp_path / "oracle").write_bytes(gzip_shard)
    with t2t.open(gzip_url) as source:
        found = {f"{record['__key__']}.bin": record["bin"] for record in source.records()}
        assert source.stats.bytes == len(gzip_shard)
    assert found == by_tarfile(tmp_path / "oracle")


@pytest.mark.usefixtures("no_thread_left")
def test_a_break_leaves_no_thread(gzip_url: str) -> None:
    with t2t.open(gzip_url) as source:
        for _ in source.records():
            break


@pytest.mark.usefixtures("no_thread_left")
def test_a_thread_decompresses(gzip_file: Path) -> None:
    with t2t.open(str(gzip_file)) as source:
        coming = source.records()
        for _ in range(RECORDS // 2):
            next(coming)
        assert any(thread.name.startswith("ais_tar2tf-ahead") for thread in our_threads())


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("share", [0.4, 0.7, 0.99, 0.999999])
def test_a_cut_shard_gives_the_records_before_the_cut_and_an_error(
    gzip_file: Path, gzip_shard: bytes, share: float
) -> None:
    gzip_file.write_bytes(gzip_shard[: int(len(gzip_shard) * share)])
    seen: list[bytes] = []
    with t2t.open(str(gzip_file)) as source:
        bodies = (record["bin"] for record in source.records())
        with pytest.raises(TruncatedArchive):
            seen.extend(bodies)
    assert seen == [field(number) for number in range(len(seen))]
    assert len(seen) >= RECORDS * share - 110  # a block is decoded completely or not at all


@pytest.mark.usefixtures("no_thread_left")
def test_after_a_damaged_shard_the_next_one_is_read(gzip_file: Path, gzip_shard: bytes) -> None:
    damaged = bytearray(gzip_shard)
    damaged[len(damaged) // 2] ^= 0xFF
    damaged[-6] ^= 0xFF  # a byte of gzip's checksum, because deflate does not detect a flip in stored data
    gzip_file.write_bytes(damaged)
    other = gzip_file.with_name("y.tar.gz")
    other.write_bytes(gzip_shard)
    with t2t.open([str(gzip_file), str(other)], on_error="skip-shard") as source:
        seen = [(record["__shard__"], record["__key__"]) for record in source.records()]
        assert source.stats.skipped == {"ArchiveError": 1}
    assert [key for name, key in seen if name.endswith("y.tar.gz")] == [f"{at:06d}" for at in range(RECORDS)]


@pytest.mark.usefixtures("no_thread_left")
def test_a_closed_reader_raises_an_error(gzip_file: Path) -> None:
    source = t2t.open(str(gzip_file))
    coming = source.records()
    for _ in range(RECORDS // 2):
        next(coming)
    source.close()
    with pytest.raises(StoreError, match="closed"):
        for _ in coming:
            pass


def test_concatenated_members_and_a_dataset(gzip_file: Path) -> None:
    buffer = io.BytesIO()
    half = RECORDS // 2
    whole = tar((f"{number:06d}", {"bin": field(number)}) for number in range(RECORDS))
    for piece in (whole[: half * 10_752 + 77], whole[half * 10_752 + 77 :]):
        buffer.write(gzip.compress(piece, 1))
    gzip_file.write_bytes(buffer.getvalue())
    with t2t.open(str(gzip_file)) as source:
        bodies = [element["bin"].numpy() for element in source.dataset()]
    assert bodies == [field(number) for number in range(RECORDS)]


@pytest.mark.usefixtures("no_thread_left")
def test_a_shard_whose_length_is_known_late() -> None:
    """A shard without a length may be long. The resume shows that it is short."""
    records = ((f"{number:06d}", {"bin": field(number)}) for number in range(60))
    short = gzip.compress(tar(records), 1, mtime=0)
    with FaultServer() as server:
        server.add("bucket/x.tar.gz", ais(short), [Fault(framing="chunked", after=300_000, then="short")])
        with t2t.open("ais://bucket/x.tar.gz", endpoint=server.url, connections=1) as source:
            assert [record["bin"] for record in source.records()] == [field(number) for number in range(60)]
            assert source.stats.resumes == 1


@pytest.mark.usefixtures("no_thread_left")
@pytest.mark.parametrize("begin", [1, 150, RECORDS - 1])
def test_reading_from_a_record_on(gzip_url: str, begin: int) -> None:
    with t2t.open(gzip_url) as source:
        bodies = [element["bin"].numpy() for element in source.dataset(start_at=begin)]
    assert bodies == [field(number) for number in range(begin, RECORDS)]


@pytest.mark.usefixtures("no_thread_left")
def test_a_checkpoint_is_resumed_in_the_middle(gzip_url: str, tmp_path: Path) -> None:
    with t2t.open(gzip_url) as source:
        dataset = source.dataset(batch=10)
        iterator = iter(dataset)
        for _ in range(12):
            next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
        other = iter(dataset)
        tf.train.Checkpoint(iterator=other).restore(saved)
        rest = [body for batch in other for body in batch["bin"].numpy()]
    assert rest == [field(number) for number in range(120, RECORDS)]
