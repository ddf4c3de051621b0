"""Download of shards: ranges of their bytes become blocks, in order, and ahead of the reader.

This package has the only threads on the path of a byte. It must not parse what it downloads, and never mixes bytes of
two versions of a shard. `Fetcher` is the entry; `state.py` has the tables of the states of a download.

    fetcher.py        the reader's side, and the worker threads
    planner.py        which ranges are requested (sequential.py, jumping.py)
    downloader.py     requests a range, with retries (receiver.py, combined.py)
    state.py          the state that all of them share
"""

from __future__ import annotations

from ais_tar2tf.fetch.fetcher import Fetcher, close_all
from ais_tar2tf.fetch.ranges import ShardRange

__all__ = ["Fetcher", "ShardRange", "close_all"]
