"""Replay the fuzzing corpus on every parser, and good inputs with small damage."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

import pytest

from tests.fuzz.good import inputs
from tests.fuzz.targets import SECONDS, TARGETS, run

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
_MAX_GROWTH = 256 * 1024  # KiB by which a target's memory may grow
_DAMAGED = 60  # variants of each good input


@pytest.fixture(scope="module")
def good() -> dict[str, list[bytes]]:
    return inputs()


def test_every_target_has_good_inputs(good: dict[str, list[bytes]]) -> None:
    assert good.keys() == TARGETS.keys()


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Flip a bit, cut the data, repeat or remove a part, or change a number."""
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
def test_every_input_is_parsed_or_raises_our_error(name: str, good: dict[str, list[bytes]]) -> None:
    draw = random.Random(name)
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    variants = [damaged(data, draw) for data in good[name] for _ in range(_DAMAGED)]
    for data in good[name]:
        TARGETS[name](data)  # a good input raises no error at all
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in [b"", *kept, *variants]:
        began = time.process_time()
        run(name, data)
        assert time.process_time() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _MAX_GROWTH
