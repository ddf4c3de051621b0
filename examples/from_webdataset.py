"""Compare webdataset's calls with ours, on the same shards.

    python examples/from_webdataset.py

| webdataset | here |
|---|---|
| `wds.WebDataset(urls)` | `t2t.open(urls).records()` |
| `.decode("rgb8")`, `.to_tuple("jpg", "cls")` | a mapping: `dataset(pair)`, traced as a graph |
| `.rename(image="jpg;png")` | `select("image=jpg;png")` |
| `.shuffle(1000)` | `dataset(shuffle=1000, seed=1)`, the same order in every run |
| `.batched(32)` | `dataset(batch=32)` |
| `nodesplitter=wds.split_by_node` | `dataset(shard=(host, hosts))` |
| `handler=wds.warn_and_continue` | `on_error="skip-record"`, counted in `stats` |
| `wds.ShardWriter("out-%d.tar", maxcount=1000)` | `t2t.pack(rows, "out-{}.tar", shard_records=1000)` |
| `wds.TarWriter` for files that TensorFlow reads | `t2t.open(urls).export("out/")` |
"""

from __future__ import annotations

import tempfile
from typing import Any

import ais_tar2tf as t2t


def ours(urls: str) -> list[tuple[str, str]]:
    return [(record["__key__"], record["txt"].decode()) for record in t2t.open(urls).select("txt").records()]


def theirs(urls: str) -> list[tuple[str, str]]:
    import webdataset as wds

    return [(record["__key__"], record["txt"].decode()) for record in wds.WebDataset(urls, shardshuffle=False)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        urls = f"{folder}/train-{{0..2}}.tar"
        rows: Any = ({"__key__": f"a/{number:04d}", "txt": f"text {number}"} for number in range(90))
        t2t.pack(rows, f"{folder}/train-{{}}.tar", shard_size=None, shard_records=30)
        here = ours(urls)
        print(f"{len(here)} records here")
        try:
            there = theirs(urls)
        except ImportError:
            print("webdataset is not installed: pip install webdataset")
            return
        print(f"{len(there)} records there; the same ones in the same order: {here == there}")


if __name__ == "__main__":
    main()
