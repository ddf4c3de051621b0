"""Write all files that users keep on disk in the format of this version, for tests of later versions.

    venv/bin/python tests/golden/make.py FOLDER

`FOLDER` must not exist. `tests/project/test_golden.py` reads the folders next to this file and checks their content.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made

URL = "memory://golden/{0..2}.tar"
READ = 5  # records before each checkpoint


def label(record: dict[str, Any]) -> Any:
    return tf.strings.to_number(record["x"], tf.int32)


def dataset(**options: Any) -> Any:
    return t2t.open(URL, index=False).dataset(label, shuffle=True, seed=7, repeat=2, **options)


def batches() -> Any:
    return t2t.open(URL, index=False).dataset(
        lambda record: (tf.reshape(label(record), (1,)), label(record)), shuffle=True, seed=7, batch=2
    )


def mixture() -> Any:
    sources = [t2t.open(f"memory://golden/{number}.tar", index=False) for number in range(3)]
    return t2t.mix(sources, seed=7, at_end="drop").dataset(label)


def model() -> Any:
    made_model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    made_model.compile("sgd", "mse")
    return made_model


class Break(tf.keras.callbacks.Callback):
    """Interrupts a training after `batches` batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, *_: Any) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def write(out: Path) -> None:
    """Write each kind of file into a new folder."""
    (out / "checkpoint").mkdir(parents=True)
    for name, kept in {"plain": dataset(), "small": dataset().small_checkpoints(), "mixture": mixture()}.items():
        iterator = iter(kept)
        for _ in range(READ):
            next(iterator)
        tf.train.Checkpoint(iterator=iterator).write(str(out / "checkpoint" / name))
    with t2t.open(URL, index=False) as source:
        source.export(out / "export", shard_records=5, idx=True, types={"x": "int64"})
    t2t.index(URL, out=str(out / "index.t2t"))
    t2t.index(URL, out=str(out / "wids.json"))
    for _ in t2t.open(URL, index=False, cache=str(out / "cache")).records():
        pass
    try:
        train = batches()
        model().fit(train, epochs=3, callbacks=[t2t.Resume(train, str(out / "resume"), every=1), Break(8)], verbose=0)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    store = MemoryStore("golden")
    for number in range(3):
        store.put(f"{number}.tar", made.labelled(f"s{number}", 4, lambda n: {"x": b"%d" % n}))
    write(Path(sys.argv[1]))
