"""The fuzz targets: for each document format and each parser, a function that takes bytes.

A target returns, or raises one of the package's own errors. Another exception, a crash, or an input that takes more
than `SECONDS` or `MEGABYTES` is a finding.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import CheckpointError, ExportError, SchemaError, Tar2TFError
from ais_tar2tf.options import KIB, MIB, Limits, Timeouts

__all__ = ["MEGABYTES", "SECONDS", "TARGETS", "run"]

SECONDS = 10
"""The limit for one input: it detects hangs, and tolerates a busy machine."""

MEGABYTES = 2_048
"""The limit for the process, of which the libraries need a few hundred."""

LIMITS = Limits(
    member_bytes=1 * MIB, record_bytes=2 * MIB, header_bytes=64 * KIB, name_bytes=4 * KIB, sparse_bytes=4 * MIB,
    members=10_000, keys=10_000, directory_bytes=1 * MIB, window_bytes=16 * MIB, index_bytes=4 * MIB,
)  # fmt: skip

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    TARGETS[function.__name__.removeprefix("fuzz_")] = function
    return function


def run(name: str, data: bytes) -> None:
    """Run one target on one input. The package's own errors are accepted."""
    with contextlib.suppress(Tar2TFError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TARGETS[name](data)


# Documents


@target
def fuzz_manifest(data: bytes) -> None:
    from ais_tar2tf.recordfiles.export.manifest import Manifest

    manifest = Manifest.from_json(data, where="manifest.json")
    again = Manifest.from_json(manifest.to_json(), where="manifest.json")
    assert again == manifest
    _ = manifest.schema, [entry.records + entry.bytes for entry in manifest.splits.values()]


@target
def fuzz_index(data: bytes) -> None:
    """Our own format, webdataset's, and manifests, which tell as much."""
    from ais_tar2tf.streams.index.shards import Index

    index = Index.from_bytes(data)
    if index is None:
        return
    for shard in islice(index, 100):
        for record in {0, shard.records // 2, shard.records - 1} if 0 < shard.records < 10**6 else ():
            shard.key(record)
            if shard.placed:
                shard.offset(record)
    names = [shard.name for shard in islice(index, 100)]
    list(islice(index.pieces(names, range(min(5, index.records_of(names)))), 100))


@target
def fuzz_class_names(data: bytes) -> None:
    """The document as it is, and sealed, which chance would not do."""
    from ais_tar2tf.base.documents.sealed import document_bytes, parse_json
    from ais_tar2tf.streams.class_names import document_of, parse_classes

    parse_classes(data, where="classes.json")
    sealed = document_bytes(parse_json(data, where="classes.json", fail=SchemaError))
    named = parse_classes(sealed, where="classes.json")
    assert parse_classes(document_of(named), where="classes.json") == named
    for each in named[:10]:
        each.covers("train-00000.tar")


@target
def fuzz_csv(data: bytes) -> None:
    """Every row is found again at its place."""
    from ais_tar2tf.base.csv_files import RowReader, csv_rows

    with tempfile.NamedTemporaryFile(dir=_memory()) as file:
        file.write(data)
        file.flush()
        placed = list(islice(csv_rows(file.name), 20))
        with RowReader(file.name) as reader:
            assert all(reader.cells_at(row.offset) == row.cells for row in placed)


@target
def fuzz_journal(data: bytes) -> None:
    """A work folder with this journal, opened to go on."""
    from ais_tar2tf.recordfiles.export.journal import WorkFolder

    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = Path(folder) / "work"
        WorkFolder(path, {"plan": 1}).close()
        journal = path / "journal"
        first = journal.read_bytes().partition(b"\n")[0] + b"\n" if data[:1] == b"\0" else b""
        journal.write_bytes(first + data[1:])
        WorkFolder(path, {"plan": 1}).close()


@target
def fuzz_cache_block(data: bytes) -> None:
    from ais_tar2tf.stores.cache.block_cache import DamagedBlock
    from ais_tar2tf.stores.cache.block_file import BlockFileReader

    length = int.from_bytes(data[:3], "little")
    with tempfile.NamedTemporaryFile(dir=_memory()) as file:
        file.write(data[3:])
        file.flush()
        with contextlib.suppress(DamagedBlock):  # the cache then reads from the store
            reader = BlockFileReader(Path(file.name), length, "key")
            buffer = memoryview(bytearray(8 * KIB))
            for at in (0, length // 2, max(0, length - 1)):
                reader.read(at, buffer)
            reader.close()


@target
def fuzz_cache_object(data: bytes) -> None:
    from ais_tar2tf.stores import Identity
    from ais_tar2tf.stores.cache.disk import DiskBlockCache

    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        cache = DiskBlockCache(folder, 1 * MIB)
        cache.confirm("key", Identity("1", "", "", 5))
        (path,) = Path(folder).rglob("object.json")
        path.write_bytes(data)
        cache.confirmed("key")


@target
def fuzz_position(data: bytes) -> None:
    """Parse a position from a checkpoint, and check it against plans."""
    from ais_tar2tf.options import Shuffle
    from ais_tar2tf.streams.order import Plan, Position

    position = Position.from_text(data.decode("utf-8", "surrogateescape"))
    assert Position.from_text(position.to_text()) == position
    for plan in (Plan(5), Plan(5, Shuffle(window=4, seed=1))):
        with contextlib.suppress(CheckpointError):
            plan.check(position)
            following = plan.next_epoch(position)
            if following is not None:
                plan.order(following.epoch, following.seed)


@target
def fuzz_schema(data: bytes) -> None:
    from ais_tar2tf.values.schema import Schema

    schema = Schema.from_json(data)
    assert Schema.from_json(json.dumps(schema.to_json())) == schema
    schema.encode({"__key__": "k", "__shard__": "s", **dict.fromkeys(schema.names, b"1")})


@target
def fuzz_datum_metadata(data: bytes) -> None:
    from ais_tar2tf.datum.metadata import MAPPING, SHARD_INFO, parse_counts, parse_schema, read_json

    for name, read in ((SHARD_INFO, parse_counts), (MAPPING, parse_schema)):
        with contextlib.suppress(Tar2TFError):
            read(read_json(data, name), name)


@target
def fuzz_definition(data: bytes) -> None:
    """Parse the definition that a transformer's container gets."""
    from ais_tar2tf.cluster.etl.definition import Definition

    Definition.from_json(data.decode("utf-8", "surrogateescape"))


@target
def fuzz_document(data: bytes) -> None:
    """Parse and verify a sealed document, with each class of error."""
    from ais_tar2tf.base.documents.sealed import parse_json, seal, verify_seal

    fail = (CheckpointError, ExportError, SchemaError)[len(data) % 3]
    document = verify_seal(parse_json(data, where="x", fail=fail), where="x", fail=fail)
    assert verify_seal(seal(document), where="x", fail=fail) == document


# Archives


def _members(data: bytes) -> Iterator[Any]:
    """Yield the archive's members, fed in blocks whose length the first byte chooses."""
    archive = ShardArchive("shard", LIMITS)
    size = (1, 7, 100, 512, 4096, 1 << 20)[data[0] % 6] if data else 1
    body = memoryview(data)[1:]
    if len(body) > 20_000:
        size = max(size, 512)
    for at in range(0, len(body), size):
        for members in archive.feed(body[at : at + size]):
            yield archive, members
        if archive.needs_directory:
            return
    archive.finish()


def _records(data: bytes) -> None:
    from ais_tar2tf.records import Grouper
    from ais_tar2tf.values.example_grouper import ExampleGrouper

    account = Account("raise")
    grouper: Any = None
    kept = 0
    for archive, members in _members(data):
        if grouper is None:
            kind = ExampleGrouper if archive.container == "tfrecord" else Grouper
            grouper = kind("shard", account, LIMITS)
        for record in grouper.add(members).records:
            kept += sum(len(value) for value in record.values() if isinstance(value, bytes | str))
    assert kept <= 64 * max(len(data), MIB)


@target
def fuzz_tar(data: bytes) -> None:
    _records(data)


@target
def fuzz_compressed(data: bytes) -> None:
    """Read a compressed archive: gzip, zstd, lz4, bz2 or xz."""
    _records(data)


@target
def fuzz_tfrecord(data: bytes) -> None:
    _records(data)


@target
def fuzz_zip(data: bytes) -> None:
    """Read a zip from a store, as a stream and by its directory."""
    import ais_tar2tf as t2t
    from ais_tar2tf.stores.memory import MemoryStore

    store = MemoryStore(f"fuzz-{threading.get_ident()}")
    store.put("x.zip", data)
    with t2t.open(store.url("x.zip"), limits=LIMITS, index=False) as source:
        for record in source.records():
            assert record["__key__"]


# Values


@target
def fuzz_example(data: bytes) -> None:
    """Decode a serialized tf.train.Example."""
    from ais_tar2tf.values.features import decode, encode

    decoded = decode(data)
    with contextlib.suppress(SchemaError):  # `encode` cannot write every Example
        encode(decoded)


@target
def fuzz_npy(data: bytes) -> None:
    from ais_tar2tf.values.arrays import decode_npy, decode_npz

    for decode in (decode_npy, decode_npz):
        with contextlib.suppress(Tar2TFError):
            decode(data, 1 * MIB)


@target
def fuzz_values(data: bytes) -> None:
    """Decode JSON and msgpack, and sample the bytes for a card."""
    from ais_tar2tf.base.documents.parsing import json_value, msgpack_value
    from ais_tar2tf.cli.card.samples import SampleReservoir
    from ais_tar2tf.options import Card

    for read in (json_value, msgpack_value):
        with contextlib.suppress(Tar2TFError):
            read(data)
    SampleReservoir(Card()).add({"__key__": "k", "__shard__": "s", "x": data})


@target
def fuzz_hdf5(data: bytes) -> None:
    """Read HDF5 in the helper process, whose crash becomes an error of ours."""
    from ais_tar2tf.options import Hdf5
    from ais_tar2tf.values.hdf5 import read

    read(data, limit=1 * MIB, options=Hdf5(isolate=True, seconds=2))


@target
def fuzz_headers(data: bytes) -> None:
    from ais_tar2tf.values.file_headers import array_header, image_header, media_kind

    header = image_header(data)
    assert header is None or all(side >= 0 for side in (header.height, header.width))
    array_header(data)
    media_kind(data)


@target
def fuzz_template(data: bytes) -> None:
    from ais_tar2tf.base.urls.templates import expand

    names = expand(data.decode("utf-8", "surrogateescape"), limit=20_000)  # the time grows with the limit
    list(islice(names, 1_000))


# The network


@target
def fuzz_listing(data: bytes) -> None:
    """Parse a page of an AIStore listing."""
    from ais_tar2tf.stores.ais_listing import read_page

    for info in read_page(data, "ais://b")[0]:
        assert isinstance(info.name, str)


@target
def fuzz_ranges(data: bytes) -> None:
    """Parse an answer with several ranges, and an answer of GetBatch."""
    from ais_tar2tf.stores.ais_batch import unpack
    from ais_tar2tf.stores.multipart import pieces_of

    wanted = [(0, 10), (50, 60)]
    found = pieces_of(memoryview(data), wanted)
    if found is not None:
        assert [len(piece) for piece in found[0]] == [10, 10]
    pieces = unpack(data, [("b/a", 0, 5), ("b/b", 0, 5)])
    assert pieces is None or [len(piece) for piece in pieces] == [5, 5]


@target
def fuzz_http(data: bytes) -> None:
    """Read an HTTP answer from a local server that sends exactly these bytes."""
    from ais_tar2tf.stores.transport.bodies import body_of
    from ais_tar2tf.stores.transport.pool import HttpPool

    listener = _listener()
    listener.answer = data
    pool = HttpPool(Timeouts(connect=2, idle=2))
    with contextlib.closing(pool):
        answer = pool.request(listener.url, {"Range": "bytes=3-9"}, shown="http://x")
        body = body_of(answer, "http://x", 3, 10)
        if body is None:
            return
        with contextlib.closing(body):
            buffer = memoryview(bytearray(64 * KIB))
            read = 0
            while count := body.readinto(buffer):
                read += count
            assert read <= len(data)


class _Listener:
    """A server that sends `answer` on each connection, then closes it."""

    def __init__(self) -> None:
        import socket

        self.answer = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/x"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        import socket

        while True:
            wire, _ = self._socket.accept()
            with contextlib.suppress(OSError), wire:
                wire.settimeout(2)
                wire.recv(65536)
                wire.sendall(self.answer)
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(65536):
                    pass


@cache
def _listener() -> _Listener:
    return _Listener()


@cache
def _memory() -> str | None:
    """Return a folder in memory, or None if the system has none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
