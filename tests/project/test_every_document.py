"""Every document that the package writes is read with flipped bits and cuts: either the same content or our error."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.sealed import parse_lines
from ais_tar2tf.errors import CheckpointError, ExportError, Tar2TFError
from ais_tar2tf.options import MIB, Shuffle
from ais_tar2tf.recordfiles.export.journal import JOURNAL_LINE
from ais_tar2tf.recordfiles.export.manifest import Manifest, RecordFile
from ais_tar2tf.recordfiles.export.staging import StagedPart
from ais_tar2tf.recordfiles.formats.dali_index import offsets_in
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.cache.disk import DiskBlockCache
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.class_names import ClassNames, document_of, parse_classes
from ais_tar2tf.streams.index.shards import Index
from ais_tar2tf.streams.order import Plan, Position
from ais_tar2tf.tfdata.callbacks.state import State, read_state, write_state
from ais_tar2tf.tfdata.progress import EpochOffset
from ais_tar2tf.tfrecorder.config import config_text, parse_config
from ais_tar2tf.tfrecorder.helpers.fields import FieldType
from ais_tar2tf.tornet.record_file import Task
from ais_tar2tf.tornet.record_file import document_bytes as account_of
from ais_tar2tf.values.schema import Schema
from tests.support import shards as made

FLIPS, CUTS = 250, 60  # of each document

Read = Callable[[bytes], Any]


class Document(NamedTuple):
    written: bytes
    read: Read
    prefixes: bool = False  # a cut document is read as a prefix: an unfinished last entry is ignored


def _index(data: bytes) -> Any:
    """Compare without folders, because users may change the shards' URLs in an index in another program's format."""
    index = Index.from_bytes(data)
    if index is None:
        raise ExportError("no index")
    return [
        (
            shard.name.rpartition("/")[2],
            shard.records,
            shard.identity,
            [shard.key(at) for at in range(shard.records)],
            shard.placed,
        )
        + (tuple(shard.begins()) if shard.placed else ())
        for shard in index
    ]


def _in_file(path: Path, read: Callable[[Path], Any]) -> Read:
    def reading(data: bytes) -> Any:
        path.write_bytes(data)
        return read(path)

    return reading


def _exported(folder: Path) -> Iterator[tuple[str, Document]]:
    url = "memory://every-document/{0..1}.tar"
    with t2t.open(url, index=False) as source:
        (file, *_) = source.export(folder / "out", idx=True)
        source.export(folder / "hosts", shard=(0, 2), align="shard")
    yield "manifest", Document((folder / "out" / "manifest.json").read_bytes(), _manifest)
    (part,) = (folder / "hosts").rglob("*.json")
    yield "part", Document(part.read_bytes(), lambda data: StagedPart.from_json(data, where="part.json").to_json())
    size = Path(file).stat().st_size
    described = RecordFile(Path(file).name, 12, size, "")

    def offsets(data: bytes) -> Any:
        path = folder / "x.idx"
        path.write_bytes(data)
        with path.open("rb") as lines:
            return list(offsets_in(lines, described, url="x.idx"))

    yield "DALI's index", Document(Path(f"{file}.idx").read_bytes(), offsets)
    for name in ("index.t2t", "wids.json"):
        t2t.index(url, out=folder / name)
        yield name, Document((folder / name).read_bytes(), _index)
    t2t.index("memory://every-document/2.tar.gz", out=folder / "compressed.t2t")
    yield "compressed.t2t", Document((folder / "compressed.t2t").read_bytes(), _index)


def _manifest(data: bytes) -> Any:
    return Manifest.from_json(data, where="manifest.json").to_json()


def _journal(folder: Path) -> Document:
    """Return the journal of an export that was interrupted after its last shard."""
    kept: list[bytes] = []

    def stop(shown: Any) -> None:
        raise KeyboardInterrupt

    with t2t.open("memory://every-document/{0..1}.tar", index=False) as source, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ais_tar2tf.recordfiles.export.publish.Publisher.publish", lambda *_: stop(None))
        with pytest.raises(KeyboardInterrupt):
            source.export(folder / "half", workers=1, shard_records=5)
    kept += [path.read_bytes() for path in (folder / "half").rglob("journal")]

    def facts(data: bytes) -> Any:
        return parse_lines(data.splitlines(keepends=True), JOURNAL_LINE, where="journal", fail=ExportError)

    return Document(kept[0], facts, prefixes=True)


def _state(folder: Path) -> Document:
    place = EpochOffset(epoch=1, records=7, position=Plan(3).begin(0, 0, 1).to_text(), skip=0)
    state = State(
        epoch=1, batches=3, batch=2, seed=5, place=place, dataset={"shards": "x", "n": 3},
        weights="resume-0.weights.h5", weights_checksum="xxh3-128:0",
    )  # fmt: skip
    write_state(folder / "state.json", state)
    read = _in_file(folder / "s", lambda path: read_state(path, most=MIB))
    return Document((folder / "state.json").read_bytes(), read)


def _cache_object(folder: Path) -> Document:
    cache = DiskBlockCache(folder / "cache", MIB)
    cache.confirm("key", Identity("1", "etag", "xxhash2:1", 5))
    (path,) = (folder / "cache").rglob("object.json")

    def known(path: Path) -> Any:
        found = cache.confirmed("key")
        if found is None:
            raise ExportError("the store is asked again")
        return found.identity

    return Document(path.read_bytes(), _in_file(path, known))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    folder = tmp_path_factory.mktemp("documents")
    store = MemoryStore("every-document")
    for number in range(2):
        store.put(f"{number}.tar", made.labelled(f"s{number}", 6, lambda n: {"cls": b"%d" % n, "txt": b"%d" % n}))
    store.put("2.tar.gz", gzip.compress(made.labelled("s2", 6, lambda n: {"txt": b"%d" % n})))
    classes = (ClassNames(("ant", "bee"), ("a-{:03d}.tar", "b-{}.tar")),)
    task = Task(folder / "tornet-train.tfrecord-00000-of-00001", folder, (), "tfrecord", "zlib")
    position = Plan(5, Shuffle(window=4, seed=1)).begin(0, 1, 2).to_text().encode()
    with t2t.open("memory://every-document/0.tar", index=False) as source:
        schema = source.schema
    config = config_text({"a": FieldType.TYPE_ARRAY_INT32}, {"a": (2, 3)}, {"train": {"records": 3, "bytes": 100}})
    return {
        **dict(_exported(folder)),
        "journal": _journal(folder),
        "state of a training": _state(folder),
        "object of a cache": _cache_object(folder),
        "classes.json": Document(document_of(classes), lambda data: parse_classes(data, where="classes.json")),
        "account of TorNet": Document(
            account_of({"bytes": 77}), _in_file(task.summary_path, lambda _: task.payload_bytes)
        ),
        "position": Document(position, lambda data: Position.from_text(data.decode("utf-8", "surrogateescape"))),
        "configuration of TFRecorder": Document(config, lambda data: parse_config(data, where="x")),
        "schema": Document(schema.to_text().encode(), Schema.from_json),
    }


NAMES = [
    "manifest", "part", "DALI's index", "index.t2t", "wids.json", "compressed.t2t", "journal", "state of a training",
    "object of a cache", "classes.json", "account of TorNet", "position", "configuration of TFRecorder",
]  # fmt: skip


def damaged(data: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield the document with one flipped bit at many places, and cut at many lengths."""
    for _ in range(FLIPS):
        at, bit = draw.randrange(len(data)), draw.randrange(8)
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        yield f"bit {bit} of byte {at}", bytes(changed)
    for length in {1, 2, len(data) - 1, *(draw.randrange(1, len(data)) for _ in range(CUTS))}:
        yield f"cut to {length}", data[:length]


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_document_gives_the_same_content_or_our_error(name: str, documents: dict[str, Document]) -> None:
    document = documents[name]
    whole = document.read(document.written)
    refused = 0
    for harm, data in damaged(document.written, random.Random(name)):
        try:
            found = document.read(data)
        except Tar2TFError:
            refused += 1
            continue
        is_prefix = document.prefixes and found == whole[: len(found)]
        assert found == whole or is_prefix, (name, harm)
    assert refused > (FLIPS if not document.prefixes else CUTS) // 2


def test_every_document_is_tested(documents: dict[str, Document]) -> None:
    """All documents are tested. Only a schema has no checksum, because the documents that contain it have one."""
    assert documents.keys() - {"schema"} == set(NAMES)
    document = documents["schema"]
    for _, data in damaged(document.written, random.Random(0)):
        try:
            Schema.from_json(data)
        except Tar2TFError:
            continue


def test_a_damaged_position_is_a_checkpoint_error(documents: dict[str, Document]) -> None:
    with pytest.raises(CheckpointError):
        documents["position"].read(b"[]")
