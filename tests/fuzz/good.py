"""Build good inputs for each target, from which fuzzing starts in addition to the corpus."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path

import h5py
import numpy as np

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.sealed import document_bytes
from ais_tar2tf.cluster.etl import Definition
from ais_tar2tf.ops import Decode, Resize
from ais_tar2tf.options import Shuffle
from ais_tar2tf.recordfiles.export.journal import WorkFolder
from ais_tar2tf.recordfiles.export.manifest import Manifest
from ais_tar2tf.stores.cache.block_file import BlockFileWriter
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.order import Plan
from tests.support import archives
from tests.support import shards as made

__all__ = ["inputs"]

_MEMBERS = [("a/0.cls", b"1"), ("a/0.txt", b"hello"), ("a/1.cls", b"2"), ("a/1.txt", bytes(700))]


def inputs() -> dict[str, list[bytes]]:
    """Return good inputs by the names of the targets."""
    with tempfile.TemporaryDirectory() as folder:
        exported = _exported(Path(folder))
        journal = _journal(Path(folder))
    everything = archives.in_every_format(_MEMBERS)
    example = t2t.features.encode({"a": b"x", "b": [1, 2], "c": 0.5})
    listing = {"entries": [{"name": "a.tar", "size": "12", "version": "1"}], "continuation_token": "a.tar"}
    position = Plan(5, Shuffle(window=4, seed=1)).begin(0, 1, 2).to_text().encode()
    numbers, both = io.BytesIO(), io.BytesIO()
    np.save(numbers, np.arange(6, dtype="float32").reshape(2, 3))
    np.savez(both, a=np.arange(3), b=np.zeros((2, 2)))
    definition = Definition.of([Decode("jpg", channels=3), Resize("jpg", (8, 8))], ["jpg", "cls"])
    return {
        "manifest": [exported["manifest"]],
        "class_names": [
            json.dumps(
                {
                    "version": 1,
                    "classes": [
                        {"shards": ["a-{:03d}.tar", "b-{}.tar"], "field": "cls", "numbers": {"ant": 0, "bee": 1}}
                    ],
                }
            ).encode()
        ],
        "csv": [b"filename,label\n0.jpg,ant\n1.jpg,bee\n", b'\xef\xbb\xbf"a\r\nb","say ""hi"""\r\n\r\n,\r\n'],
        "index": [exported["index"], exported["wids"], exported["manifest"]],
        "journal": [b"\0" + journal.partition(b"\n")[2], b"\1" + journal],
        "cache_block": [_block()],
        "cache_object": [json.dumps({"key": "key", "identity": ["1", "", "", 5]}).encode()],
        "position": [position, Plan(3).begin(0, 0, 1).to_text().encode()],
        "schema": [exported["schema"]],
        "datum_metadata": [b'{"train": {"a.tfrecord": 3}}', b'{"x": {"type": "int", "shape": [], "dense": true}}'],
        "definition": [definition.to_json().encode()],
        "document": [document_bytes({"a": [1, {"b": None}]}), b'{"a": 1}'],
        "tar": [b"\3" + made.tar([("r/0", {"cls": b"1", "jpg": bytes(600)})])],
        "compressed": [b"\5" + data for name, data in everything.items() if not name.endswith((".tar", ".zip"))],
        "tfrecord": [b"\5" + exported["tfrecord"]],
        "zip": [archives.zip_of(_MEMBERS), archives.zip_of(_MEMBERS, piped=True, comment=b"c")],
        "example": [example],
        "hdf5": [_hdf5()],
        "values": [b'{"a": [1, {"b": null}]}', bytes([0x92, 1, 0x81, 0xA1]) + b"a\x02", made.image(1, "PNG")],
        "npy": [numbers.getvalue(), both.getvalue()],
        "headers": [made.image(1), made.image(2, "PNG"), made.image(3, "BMP"), made.image(4, "WEBP")],
        "template": [b"train-{000..146}.tar", b"{a,b{1..3}}/x\\{.tar", b"a/**/*.tar"],
        "listing": [json.dumps(listing).encode()],
        "ranges": [
            b"\r\n--x\r\nContent-Range: bytes 0-9/100\r\n\r\n0123456789"
            b"\r\n--x\r\nContent-Range: bytes 50-59/100\r\n\r\n0123456789\r\n--x--\r\n"
        ],
        "http": [
            b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 3-9/20\r\nContent-Length: 7\r\n\r\n0123456",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
            b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nETag: "x"\r\n\r\nuntil the end',
        ],
    }


def _exported(folder: Path) -> dict[str, bytes]:
    """Return the files that an export and two indexes write."""
    store = MemoryStore("fuzz-seeds")
    store.put("a.tar", made.tar([(f"r/{number}", {"cls": b"1", "txt": b"hello"}) for number in range(3)]))
    with t2t.open("memory://fuzz-seeds/a.tar", index=False) as source:
        source.export(folder / "out")
        (written,) = (folder / "out").glob("*.tfrecord*")
        schema = json.dumps(source.schema.to_json()).encode()
    t2t.index("memory://fuzz-seeds/a.tar", out=folder / "index")
    t2t.index("memory://fuzz-seeds/a.tar", out=folder / "wids.json")
    manifest = (folder / "out" / "manifest.json").read_bytes()
    assert Manifest.from_json(manifest, where="seed").splits
    return {
        "manifest": manifest,
        "tfrecord": written.read_bytes(),
        "index": (folder / "index").read_bytes(),
        "wids": (folder / "wids.json").read_bytes(),
        "schema": schema,
    }


def _block() -> bytes:
    """Return a file of a cached block, preceded by the block's length."""
    with tempfile.TemporaryDirectory() as folder:
        handle = os.open(folder, os.O_RDONLY)
        writer = BlockFileWriter(handle, "block", "key")
        writer.add(memoryview(b"0123456789"))
        writer.commit()
        os.close(handle)
        return (10).to_bytes(3, "little") + (Path(folder) / "block").read_bytes()


def _hdf5() -> bytes:
    """Return an HDF5 file with compressed chunks, a missing chunk, variable-length text and an attribute."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        values = file.create_dataset("x", (6, 4), "f4", chunks=(4, 4), compression="gzip", shuffle=True)
        values[:4] = np.arange(16).reshape(4, 4)
        file["text"] = np.array(["a", "bc"], dtype=h5py.string_dtype())
        file["x"].attrs["units"] = "m"
    return buffer.getvalue()


def _journal(folder: Path) -> bytes:
    WorkFolder(folder / "work", {"plan": 1}).close()
    return (folder / "work" / "journal").read_bytes()
