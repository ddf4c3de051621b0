"""Helpers for the tests of record files: write shards, digest folders, read TFRecords, kill exports."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import shards as made

ROOT = Path(__file__).parents[2]


def fields(number: int) -> dict[str, bytes]:
    return {"jpg": bytes([number % 256]) * (300 + number % 700), "cls": b"%d" % (number % 10)}


def source(folder: Path, counts: Sequence[int]) -> str:
    """Write one shard for each of `counts`, with that many records, and return their template."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard, count in enumerate(counts):
        (folder / f"s-{shard}.tar").write_bytes(made.labelled(f"n{shard}", count, fields))
    return f"{folder}/s-{{0..{len(counts) - 1}}}.tar"


def tree(folder: Path) -> dict[str, str]:
    """Return the digest of every file by its path, including hidden files."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def examples(files: Sequence[str]) -> list[Any]:
    """Return the tf.train.Examples that TensorFlow reads from TFRecord files."""
    import tensorflow as tf  # here, because most of these tests do not need it

    return [tf.train.Example.FromString(data.numpy()) for data in tf.data.TFRecordDataset(list(files))]


def keys(files: Sequence[str]) -> list[str]:
    return [each.features.feature["__key__"].bytes_list.value[0].decode() for each in examples(files)]


EXPORT = (
    "import sys, ais_tar2tf as t2t\n"
    "t2t.open(sys.argv[1]).export(sys.argv[2], format=sys.argv[3], shard_records=40, workers=int(sys.argv[4]))"
)


def start_export(template: str, out: Path, kind: str, workers: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", EXPORT, template, str(out), kind, str(workers)], cwd=ROOT)


_MORE_KILLS = 12


def killed_runs(template: str, out: Path, kind: str, workers: int, seconds: float, kills: int, seed: int) -> int:
    """Kill an export at random moments within `seconds`, check the published files each time, then let it finish.

    When an export finishes before it is killed, later kills come earlier, because the machine may have become faster.
    If no kill was early enough, up to 12 more are tried.

    Returns:
        How many exports were killed.
    """
    import tensorflow as tf

    draw = random.Random(seed)
    killed = 0
    for number in range(kills + _MORE_KILLS):
        if number >= kills and killed:
            break
        process = start_export(template, out, kind, workers)
        try:
            process.wait(draw.random() * seconds)
            seconds *= 0.7
        except subprocess.TimeoutExpired:
            process.kill()
            killed += 1
        process.wait()
        for path in out.glob("dataset-*"):
            for _ in tf.data.TFRecordDataset([os.fspath(path)]):  # raises DataLossError if a checksum is wrong
                pass
    last = start_export(template, out, kind, workers)
    assert last.wait(60) == 0
    return killed
