"""Build tar shards with Python's tarfile."""

from __future__ import annotations

import functools
import gzip
import io
import tarfile
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from PIL import Image

Fields = Mapping[str, bytes]


def tar(records: Iterable[tuple[str, Fields]], *, tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return a tar of records (key, fields), each field in a member named `key.field`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
        for key, fields in records:
            for field, data in fields.items():
                info = tarfile.TarInfo(f"{key}.{field}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@functools.cache
def image(seed: int, image_format: str = "JPEG", size: tuple[int, int] = (40, 30)) -> bytes:
    """Return a small coloured image, always the same for one seed."""
    pixels = np.random.RandomState(seed).randint(0, 255, (size[1], size[0], 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, image_format)
    return buffer.getvalue()


def labelled(name: str, count: int, fields: Callable[[int], Fields] | None = None) -> bytes:
    """Return a tar of `count` records with the keys `name/000000…`, by default an image `jpg` and a label `cls`."""
    made = fields or (lambda number: {"jpg": image(number), "cls": b"%d" % (number % 10)})
    return tar((f"{name}/{number:06d}", made(number)) for number in range(count))


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def npy(array: object) -> bytes:
    """Return an array as the bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
