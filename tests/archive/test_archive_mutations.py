"""Damage tars of every kind at random, from a seed, and compare our reader with Go's archive/tar.

There must be no crash, no untyped error, no slow read and no exceeded limit. Our reader may differ from Go's only in
the classes below. Without Go, it is compared with Python's tarfile.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from tests.support import tar_mutations as mutations
from tests.support.tar_mutations import BLOCK, Reading

_SECONDS = 1.0  # that reading an archive of a few KB may take
_BATCH = 2_000
_EVERYDAY, _FULL = 10_000, 1_000_000

STRICTER: dict[str, str] = {
    "there is more behind the end mark": "Go stops at the end mark, whatever comes behind it; here it would be lost",
    "ends without its end mark": "Go takes the end of the bytes for the end mark",
    "ends within a block of 512 bytes": "Go doesn't ask for the rest of the last member's last block",
    "ends within its end mark": "Go has seen enough of it",
    "ends behind an extension header": "Go forgets a header that nothing follows",
    "the end mark stands behind an extension header": "the same",
    "a PAX header says": "Go doesn't check what stands in a header that nothing follows",
    "a sparse member of an unknown version": "Go gives its stored bytes as the file",
    "a sparse map is malformed": "Go gives the stored bytes when it is another version that is malformed",
    "a sparse map has an offset without a length": "Go doesn't look at a header that nothing follows",
    "a PAX header is malformed": "the same",
    "says a negative size": "Go doesn't look at the size of a link or a directory",
    "goes on from another volume": "Go takes it for a member of its own",
    "a global PAX header sets the size": "Go takes a global header for a remark, and reads on with other sizes",
    "a global PAX header stands between": "Go forgets what was said of the next member",
    "has over 64 bits": "Go doesn't look at the size of a link or a directory",
    "Limits.name_bytes": "the limits of this test",
    "Limits.header_bytes": "the limits of this test",
    "Limits.sparse_bytes": "the limits of this test",
}
"""Archives that are errors for us and not for Go: texts of our errors, and the reason."""


def _numbers_nobody_needs(data: bytes) -> bool:
    """Return whether device numbers, or GNU's or star's times, are invalid. Go refuses these, and we ignore them."""
    for at in range(0, len(data) - BLOCK + 1, BLOCK):
        header = data[at : at + BLOCK]
        if header[257:262] != b"ustar":
            continue
        fields = [header[329:337], header[337:345]]
        if header[257:265] == b"ustar  \0":
            fields += [header[345:357], header[357:369]]
        if header[508:] == b"tar\0":
            fields += [header[476:488], header[488:500]]
        if any(field.strip(b" \0").partition(b"\0")[0].strip(b"01234567") for field in fields):
            return True
    return False


LOOSER: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "devices and times": ("invalid tar header", _numbers_nobody_needs),
    # Go expands directories and devices that PAX declares as sparse.
    "sparse directories": (
        "unexpected EOF|missing sparse data|unexpected data|too large",
        lambda d: b"GNU.sparse" in d,
    ),
    # Our Go program refuses every entry above the limit, also one that is no file.
    "large members that are no files": ("too large", lambda data: len(data) > 0),
}
"""Archives that are errors for Go and not for us: texts of Go's errors, and conditions on the archive."""


def classify(data: bytes, ours: Reading, others: Reading) -> str:
    """Return the class of a known difference between two readers, or "" for an unknown one."""
    count = min(len(ours.files), len(others.files))
    if ours.files[:count] != others.files[:count]:
        return ""
    if ours.error and others.error:
        return "both refuse"
    if not ours.error and not others.error:
        return "the same" if ours.files == others.files else ""
    if ours.error:
        return next((name for name in STRICTER if name in ours.error), "")
    for name, (says, holds) in LOOSER.items():
        if re.search(says, others.error) and holds(data):
            return name
    return ""


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[bytes]], list[Reading]]:
    """Return a function that reads archives with Go, or with tarfile if Go is missing."""
    go = mutations.find_go()
    if go is None:
        return mutations.read_by_tarfile
    program = mutations.build_go(go, tmp_path_factory.mktemp("go"))
    return lambda archives: mutations.read_by_go(program, archives)


def _batches(archives: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(islice(archives, _BATCH)):
        yield batch


def _compare(count: int, seed: int, ask: Callable[[list[bytes]], list[Reading]]) -> Counter[str]:
    is_go = ask is not mutations.read_by_tarfile
    chance, classes = random.Random(seed), Counter[str]()
    for batch in _batches(mutations.mutations(count, seed)):
        for data, others in zip(batch, ask(batch), strict=True):
            ours = _read(data, chance)
            name = classify(data, ours, others)
            if not name and not is_go and ours.files[: len(others.files)] == others.files:
                name = "tarfile stops"  # tarfile silently stops at headers that it cannot read
            if not name and not is_go and (ours.error or others.error or mutations.tarfile_differs(data)):
                name = "tarfile differs"  # tarfile reads damage differently; members that both read must be equal
            assert name, f"seed {seed}: {ours} here, {others} there: {data!r}"
            classes[name] += 1
    return classes


def _read(data: bytes, chance: random.Random) -> Reading:
    began = time.perf_counter()
    whole = mutations.read_by_us(data)
    seconds = time.perf_counter() - began
    if seconds > _SECONDS:  # check CPU time, in case the machine was busy
        cpu = time.process_time()
        mutations.read_by_us(data)
        assert time.process_time() - cpu < _SECONDS, data
    headers = chance.choice(["native", "walk", "careful", "table"])
    cuts = [chance.randrange(len(data) + 1) for _ in range(chance.randrange(4))]
    in_pieces = mutations.read_by_us(data, cuts, headers)
    assert in_pieces == whole, (data, cuts, headers)
    return whole


def test_mutations_are_read_as_go_reads_them(ask: Callable[[list[bytes]], list[Reading]]) -> None:
    classes = _compare(_EVERYDAY, 1, ask)
    assert classes.total() == _EVERYDAY
    assert classes["the same"] > _EVERYDAY // 20
    assert classes["both refuse"] > _EVERYDAY // 20


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_million_mutations(seed: int, ask: Callable[[list[bytes]], list[Reading]]) -> None:
    classes = _compare(_FULL // 10, seed, ask)
    print(*(f"{count:>9,}  {name}" for name, count in classes.most_common()), sep="\n")
    assert classes.total() == _FULL // 10


def test_without_go_tarfile_is_compared() -> None:
    """Without Go, tarfile reads the same, as far as both read."""
    classes = _compare(2_000, 1, mutations.read_by_tarfile)
    assert classes["the same"] > 100
