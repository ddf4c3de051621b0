"""The two engines, and what a tar reader finds, in a form that tests compare."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ais_tar2tf.archive import Members
from ais_tar2tf.archive.tar import TarReader
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.native import engine
from ais_tar2tf.options import Limits

ENGINES = ("native", "python")
needs_native = pytest.mark.skipif(engine().name != "native", reason=f"pure Python runs: {engine().why}")

Found = tuple[list[tuple[str, int, bytes]], int, str]
"""Name, offset and bytes of each member; the number of ignored members; the error, empty if there was none."""


def members_read(reader: TarReader, groups: Iterable[Members]) -> Found:
    """Take all groups of members, which come from `reader`, and finish the reader."""
    found: list[tuple[str, int, bytes]] = []
    try:
        for members in groups:
            rows = zip(members.names, members.offsets, members.starts, members.sizes, strict=True)
            found += [(name, offset, bytes(members.data[at : at + size])) for name, offset, at, size in rows]
        reader.finish()
    except Tar2TFError as error:
        return found, reader.ignored, f"{type(error).__name__}: {error}"
    return found, reader.ignored, ""


def members_of(data: bytes, headers: str, step: int) -> Found:
    """Read a tar in blocks of `step` bytes; `headers` says how its headers are found."""
    reader = TarReader("shard", Limits(), headers=headers)  # type: ignore[arg-type]
    blocks = (data[begin : begin + step] for begin in range(0, len(data), step))
    return members_read(reader, (members for block in blocks for members in reader.feed(block)))
