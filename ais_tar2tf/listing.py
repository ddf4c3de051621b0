"""What a listing means: which of its names are shards, and their order. Nothing is listed here."""

from __future__ import annotations

import re

from ais_tar2tf.shard_index import is_beside

__all__ = ["is_shard", "natural_order"]

_NO_SHARDS = frozenset({
    # documents, and what lies beside shards
    "asc", "cfg", "conf", "crc32c", "css", "csv", "docx", "htm", "html", "idx", "index", "ini", "ipynb", "js", "json",
    "jsonl", "log", "md", "md5", "names", "ndjson", "pbtxt", "pdf", "py", "rst", "sh", "sha1", "sha256", "sha512",
    "sig", "svg", "toml", "tsv", "txt", "xlsx", "xml", "yaml", "yml",
    # what is packed into shards
    "avi", "bmp", "cls", "flac", "gif", "h5", "hdf5", "heic", "jpe", "jpeg", "jpg", "mkv", "mov", "mp3", "mp4", "nc",
    "npy", "ogg", "png", "ppm", "pt", "pth", "safetensors", "tif", "tiff", "wav", "webm", "webp",
})  # fmt: skip
_NAMED_SO = frozenset({"_SUCCESS", "LICENSE", "LICENCE", "MD5SUMS", "NOTICE", "README", "SHA256SUMS", "Thumbs.db"})
_DIGITS = re.compile(r"([0-9]+)")


def is_shard(name: str) -> bool:
    """Return whether a file that is found in a folder may be a shard, by its name.

    An archive may have any name. Hidden files, documents, and files of kinds that are packed into shards are none.

    >>> [name for name in ("a/0.tar", "a/.DS_Store", "a/classes.json", "a/x.jpg", "a/part-7") if is_shard(name)]
    ['a/0.tar', 'a/part-7']
    """
    last = name.rpartition("/")[2]
    stem, dot, extension = last.rpartition(".")
    foreign = last.startswith(".") or last in _NAMED_SO or (bool(dot and stem) and extension.lower() in _NO_SHARDS)
    return not foreign and not is_beside(name)


def natural_order(name: str) -> tuple[list[tuple[str, int, str]], str]:
    """Return a key that sorts names as people do: numbers in them count as numbers.

    >>> sorted(["s-10.tar", "s-9.tar", "s-1.tar"], key=natural_order)
    ['s-1.tar', 's-9.tar', 's-10.tar']
    """
    *pairs, rest = _DIGITS.split(name)
    numbered = zip(pairs[::2], (digits.lstrip("0") for digits in pairs[1::2]), strict=True)
    return [*((text, len(digits), digits) for text, digits in numbered), (rest, -1, "")], name
