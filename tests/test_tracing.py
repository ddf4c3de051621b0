"""Which mappings become a graph, and which run as Python; nothing but the mapping decides it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.stores.memory import MemoryStore

ROOT = Path(__file__).parent.parent

# Each runs in a process of its own, in which TensorFlow is not imported: {url} is a server's, with the bucket `b`.
FIRST = {
    "load_from_tar": 't2t.AisDataset("b", {url!r}).load_from_tar("s-{{0..1}}.tar")',
    "load": 't2t.AisDataset("b", {url!r}).load("s-{{0..1}}.tar")',
    "map": 't2t.open("ais://b/s-{{0..1}}.tar", endpoint={url!r}).dataset(lambda r: (r["jpg"], r["cls"]))',
    "mix": 't2t.mix([t2t.open("ais://b/s-{{0..1}}.tar", endpoint={url!r})], weights=[1])'
    ".dataset(t2t.default_record_to_pair)",
}


@pytest.mark.parametrize("call", FIRST.values(), ids=FIRST)
def test_a_mapping_is_traced_as_the_first_thing_in_a_process(tmp_path, call):
    (tmp_path / "b").mkdir()
    for number in range(2):
        shard = made.labelled(f"s{number}", 3, lambda i: {"jpg": made.image(i), "cls": b"%d" % i})
        (tmp_path / "b" / f"s-{number}.tar").write_bytes(shard)
    with t2t.serve(tmp_path) as server:
        script = (
            "import sys, ais_tar2tf as t2t\n"
            "assert 'tensorflow' not in sys.modules\n"
            f"print([int(label) for _, label in {call.format(url=server.url)}])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False, cwd=ROOT
        )
    assert done.stdout.strip() == "[0, 1, 2, 0, 1, 2]", done.stderr


def test_a_thread_that_draws_meanwhile_makes_nobody_suspicious():
    store = MemoryStore("drawing")
    store.put("a.tar", made.labelled("s", 3, lambda i: {"cls": b"%d" % i}))
    ended = threading.Event()

    def draw():
        while not ended.is_set():
            np.random.rand(10)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        labels = [int(n) for n in t2t.open(store.url("a.tar")).dataset(lambda r: tf.strings.to_number(r["cls"]))]
    finally:
        ended.set()
        thread.join()
    assert labels == [0, 1, 2]
