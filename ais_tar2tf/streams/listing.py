"""Tells which names of a listing are shards, and sorts names as people do: `a-2` before `a-10`.

This module must not do I/O.
"""

from __future__ import annotations

import re

from ais_tar2tf.streams.index.shards import is_sidecar

__all__ = ["is_shard", "natural_order"]

_OTHER_EXTENSIONS = frozenset({
    # documents
    "asc", "cfg", "conf", "crc32c", "css", "csv", "docx", "htm", "html", "idx", "index", "ini", "ipynb", "js", "json",
    "jsonl", "log", "md", "md5", "names", "ndjson", "pbtxt", "pdf", "py", "rst", "sh", "sha1", "sha256", "sha512",
    "sig", "svg", "toml", "tsv", "txt", "xlsx", "xml", "yaml", "yml",
    # files that are packed into shards
    "avi", "bmp", "cls", "flac", "gif", "h5", "hdf5", "heic", "jpe", "jpeg", "jpg", "mkv", "mov", "mp3", "mp4", "nc",
    "npy", "ogg", "png", "ppm", "pt", "pth", "safetensors", "tif", "tiff", "wav", "webm", "webp",
})  # fmt: skip
_NOT_SHARDS = frozenset({"_SUCCESS", "LICENSE", "LICENCE", "MD5SUMS", "NOTICE", "README", "SHA256SUMS", "Thumbs.db"})
_DIGITS = re.compile(r"([0-9]+)")


def is_shard(name: str) -> bool:
    """Return whether a file in a folder may be a shard, judging by its name.

    A shard may have any name, except the names of hidden files, indexes, documents, and files that are packed into
    shards.

    >>> [name for name in ("a/0.tar", "a/.DS_Store", "a/classes.json", "a/x.jpg", "a/part-7") if is_shard(name)]
    ['a/0.tar', 'a/part-7']
    """
    last = name.rpartition("/")[2]
    stem, dot, extension = last.rpartition(".")
    if last.startswith(".") or last in _NOT_SHARDS or is_sidecar(name):
        return False
    return not (dot and stem and extension.lower() in _OTHER_EXTENSIONS)


def natural_order(name: str) -> tuple[list[tuple[str, int, str]], str]:
    """Return a key that sorts names as people do. Digits in names are compared as numbers.

    >>> sorted(["s-10.tar", "s-9.tar", "s-1.tar"], key=natural_order)
    ['s-1.tar', 's-9.tar', 's-10.tar']
    """
    *pairs, rest = _DIGITS.split(name)
    numbered = zip(pairs[::2], (digits.lstrip("0") for digits in pairs[1::2]), strict=True)
    return [*((text, len(digits), digits) for text, digits in numbered), (rest, -1, "")], name
