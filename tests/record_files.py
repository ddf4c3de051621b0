"""Helpers of the tests of record files: shards in a folder, trees of bytes, and the kills."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shards as made

ROOT = Path(__file__).parents[1]


def fields(number: int) -> dict[str, bytes]:
    return {"jpg": bytes([number % 256]) * (300 + number % 700), "cls": b"%d" % (number % 10)}


def source(folder: Path, counts: Sequence[int]) -> str:
    """Shards with so many records each; gives their template."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard, count in enumerate(counts):
        (folder / f"s-{shard}.tar").write_bytes(made.labelled(f"n{shard}", count, fields))
    return f"{folder}/s-{{0..{len(counts) - 1}}}.tar"


def tree(folder: Path) -> dict[str, str]:
    """The digest of every file by its path; what is hidden counts, too."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def examples(files: Sequence[str]) -> list[Any]:
    """What TensorFlow reads from TFRecord files; loaded late, for most of these tests do without."""
    import tensorflow as tf

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
    """Kill a running export at random moments of its `seconds`, and look at what has a final name; then let it end.

    Gives how often it was killed before it ended by itself. On a machine that has less to do by now, it ends sooner:
    then the moments are earlier ones, and there are some more of them where none was early enough.
    """
    import tensorflow as tf

    draw = random.Random(seed)
    happened = 0
    for number in range(kills + _MORE_KILLS):
        if number >= kills and happened:
            break
        process = start_export(template, out, kind, workers)
        try:
            process.wait(draw.random() * seconds)
            seconds *= 0.7
        except subprocess.TimeoutExpired:
            process.kill()
            happened += 1
        process.wait()
        for path in out.glob("dataset-*"):
            for _ in tf.data.TFRecordDataset([os.fspath(path)]):  # raises DataLossError where it does not verify
                pass
    last = start_export(template, out, kind, workers)
    assert last.wait(60) == 0
    return happened
