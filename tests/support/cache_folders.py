"""Inspect a cache folder, and list the requests that a cache sends."""

from __future__ import annotations

import contextlib
from pathlib import Path

import ais_tar2tf as t2t


def requested_shards(server: t2t.serve) -> list[str]:
    """Return the paths of the tars downloaded since the last call. The proxy's redirects are left out."""
    requests = [each for each in list(server.requests) if each.method == "GET" and each.path.endswith(".tar")]
    server.requests.clear()
    return [each.path for each in requests]


def blocks(cache: Path) -> list[Path]:
    """Return the files that hold cached blocks."""
    return sorted(path for path in cache.rglob("*-*") if path.is_file())


def size_of(cache: Path) -> int:
    """Return the total size of the files in a cache folder.

    Other threads may be writing: the folder is read again until two readings agree.
    """
    sizes = None
    for _ in range(1_000):
        with contextlib.suppress(FileNotFoundError):
            before, sizes = sizes, {path: path.stat().st_size for path in cache.rglob("*") if path.is_file()}
            if sizes == before:
                break
    assert sizes is not None
    return sum(sizes.values())
