"""Every parser against what fuzzing found interesting: kept inputs are replayed, and good ones with small damage."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

import pytest

from tests.fuzz.good import inputs
from tests.fuzz.targets import SECONDS, TARGETS, run

CORPUS = Path(__file__).parent / "fuzz" / "corpus"
_MOST_GROWN = 256 * 1024  # KiB of memory that a target may take for any of these inputs
_DAMAGED = 60  # variants of each good input


@pytest.fixture(scope="module")
def good() -> dict[str, list[bytes]]:
    return inputs()


def test_every_target_has_good_inputs(good: dict[str, list[bytes]]) -> None:
    assert good.keys() == TARGETS.keys()


def damaged(data: bytes, draw: random.Random) -> bytes:
    """One of: a flipped bit, a cut, a repeated or a removed part, another number."""
    changed = bytearray(data)
    at, length = draw.randrange(len(data) + 1), draw.randrange(1, 20)
    kind = draw.randrange(5)
    if kind == 0 and at < len(changed):
        changed[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        del changed[at:]
    elif kind == 2:
        changed[at:at] = changed[at : at + length]
    elif kind == 3:
        del changed[at : at + length]
    else:
        changed[at : at + length] = draw.choice([b"\xff" * length, bytes(length), b"9" * length, b"-1", b'"', b"[["])
    return bytes(changed)


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_read_is_an_answer_or_an_error_of_ours(name: str, good: dict[str, list[bytes]]) -> None:
    draw = random.Random(name)
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    variants = [damaged(data, draw) for data in good[name] for _ in range(_DAMAGED)]
    for data in good[name]:
        TARGETS[name](data)  # a good input raises nothing, not even ours
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in [b"", *kept, *variants]:
        began = time.process_time()
        run(name, data)
        assert time.process_time() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _MOST_GROWN
