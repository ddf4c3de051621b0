"""The same without dSort: this process draws the order, and the cluster puts each new shard's records together.

A record is asked for as the range of its shard that it takes (GetBatch), so its headers come along, and ranges put
one behind the other are a tar. Where records begin is known from an index, or the shards are read for it.
"""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ExportError, SchemaError, StoreError, UnsupportedArchive
from ais_tar2tf.indexing import beside, find
from ais_tar2tf.options import Read
from ais_tar2tf.reader import Shards, read_places
from ais_tar2tf.shard_index import ShardIndex
from ais_tar2tf.stores.ais import AisStore

__all__ = ["shuffle_here"]

_END = bytes(1024)
_BLOCK = 512
_HERE = ("random", "none")
_ASKED_AT_ONCE = 4_096  # records of one batch: a request of some 400 KB


class _Piece(NamedTuple):
    shard: int
    start: int
    length: int


def shuffle_here(
    source: AisStore,
    names: Sequence[str],
    store: AisStore,
    out_names: Iterator[str],
    size: int,
    *,
    order: str | tuple[str, str],
    seed: int,
    read: Read,
) -> list[str]:
    """The URLs that were written. One new shard at a time is held whole."""
    if order not in _HERE:
        raise SchemaError(f"without dSort, order is one of {', '.join(_HERE)}, not {order!r}")
    pieces = [piece for at, known in enumerate(_placed(source, names, read)) for piece in _pieces(at, known)]
    if order == "random":
        random.Random(seed).shuffle(pieces)  # noqa: S311  # the same again for the same seed
    written: list[str] = []
    for records in _by_size(pieces, size):
        name = next(out_names, None)
        if name is None:
            raise ExportError(f"{len(written):,} names are too few for shards of {size:,} bytes; name more")
        store.put(name, b"".join(_fetched(source, names, records)) + _END)
        written.append(store.url(name))
    return written


def _placed(source: AisStore, names: Sequence[str], read: Read) -> Iterator[ShardIndex]:
    """Where records are: of a true index, else from the shards' own bytes."""
    shards = Shards(source, names, read)
    index = find(shards, beside(shards)).index
    known = [None if index is None else index.get(name) for name in names]
    if all(each is not None and each.placed for each in known):
        yield from (each for each in known if each is not None)
        return
    for name, mark, seen in read_places(shards, Account()):
        if mark.compressed or any(offset % _BLOCK for offset in seen.offsets):
            raise UnsupportedArchive(
                "without dSort only plain tars are shuffled: of others no range is a record",
                shard=source.url(name),
                offset=0,
            )
        yield ShardIndex.of(name, mark.identity, seen.offsets, seen.extents, seen.sizes, compressed=False)


def _pieces(shard: int, known: ShardIndex) -> Iterator[_Piece]:
    if known.compressed or known.unit != _BLOCK:
        raise UnsupportedArchive("without dSort only plain tars are shuffled", shard=known.name, offset=0)
    at = known.first
    for extent in known.all_extents():
        yield _Piece(shard, at, extent)
        at += extent


def _by_size(pieces: Sequence[_Piece], size: int) -> Iterator[list[_Piece]]:
    """Runs of at most `size` bytes; a record that alone has more stands alone."""
    run: list[_Piece] = []
    total = len(_END)
    for piece in pieces:
        if run and total + piece.length > size:
            yield run
            run, total = [], len(_END)
        run.append(piece)
        total += piece.length
    if run:
        yield run


def _fetched(source: AisStore, names: Sequence[str], pieces: Sequence[_Piece]) -> Iterator[bytes]:
    for begin in range(0, len(pieces), _ASKED_AT_ONCE):
        asked = pieces[begin : begin + _ASKED_AT_ONCE]
        answer = source.batch([(names[piece.shard], piece.start, piece.length) for piece in asked])
        with tarfile.open(fileobj=io.BytesIO(answer), mode="r:") as archive:
            for piece, member in zip(asked, archive, strict=True):
                body = archive.extractfile(member)
                data = body.read() if body is not None else b""
                if len(data) != piece.length or not member.name.endswith(names[piece.shard]):
                    raise StoreError(
                        f"of the batch came {member.name!r} with {len(data):,} bytes instead of {piece.length:,}: "
                        "the shard is not there any more, or shorter",
                        url=source.url(names[piece.shard]),
                    )
                yield data
