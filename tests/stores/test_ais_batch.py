"""Unpack answers of GetBatch: exactly the requested ranges, or None."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

import pytest

from ais_tar2tf.stores.ais_batch import unpack

RANGES = [("b/a", 0, 5), ("b/b", 7, 5)]


def answer(*members: tuple[str, bytes], pax: Mapping[str, str] | None = None, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a tar. All members have the type `kind` and the same PAX records."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(body), kind, name
            info.pax_headers = dict(pax or {})
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def test_exactly_the_requested_ranges_are_unpacked() -> None:
    bodies = [("b/a", b"12345"), ("b/b", b"67890")]
    assert unpack(answer(*bodies), RANGES) == [b"12345", b"67890"]
    for other in (bodies[:1], bodies[::-1], [*bodies, bodies[0]], [bodies[0], ("b/b", b"6789")]):
        assert unpack(answer(*other), RANGES) is None


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_members_that_are_no_files_are_refused(kind: bytes) -> None:
    """Links point to themselves here, and state the requested size."""
    data = bytearray(answer(("b/a", b"12345"), kind=kind))
    info = tarfile.TarInfo("b/a")
    info.size, info.type, info.linkname = 5, kind, "b/a"
    data[:512] = info.tobuf()
    assert unpack(bytes(data), [("b/a", 0, 5)]) is None


@pytest.mark.parametrize(
    ("pax", "body"),
    [
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, b"12345"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, b"no\n12"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, b"9\n1\n2"),
        ({"GNU.sparse.map": "a,b"}, b"12345"),
        ({"size": "-1000000"}, b"12345"),
        ({"GNU.sparse.size": "no"}, b"12345"),
    ],
)
def test_malformed_sparse_members_are_refused(pax: dict[str, str], body: bytes) -> None:
    assert unpack(answer(("b/a", body), pax=pax), [("b/a", 0, 5)]) is None


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
@pytest.mark.parametrize("size", [1 << 62, 1 << 70, 1 << 86])
def test_members_of_an_absurd_size_are_refused(kind: bytes, size: int) -> None:
    info = tarfile.TarInfo("b/a")
    info.size, info.type = size, kind
    assert unpack(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096), [("b/a", 0, 5)]) is None
