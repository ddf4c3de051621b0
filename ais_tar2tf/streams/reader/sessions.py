"""Sessions: the open streams over one list of shards, and the tuning of the reading that they share."""

from __future__ import annotations

import weakref
from dataclasses import replace

from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import Read
from ais_tar2tf.streams.reader.base import Stream
from ais_tar2tf.streams.reader.shard_list import Shards

__all__ = ["ReadSession"]


class ReadSession:
    """The reading of a list of shards, by any number of streams.

    A session made by `over` or `among` shares its streams with the original: closing one closes the streams of both.
    """

    def __init__(
        self, shards: Shards, *, tuning: Tuning | None = None, streams: weakref.WeakSet[Stream] | None = None
    ) -> None:
        self.shards: Shards = shards
        self.tuning: Tuning = tuning or Tuning(shards.read)
        self._streams = weakref.WeakSet[Stream]() if streams is None else streams

    def over(self, shards: Shards) -> ReadSession:
        """Return a session over other shards or fields. It shares the tuning if its read options are the same."""
        tuning = self.tuning if shards.read == self.shards.read else None
        return ReadSession(shards, tuning=tuning, streams=self._streams)

    def among(self, read: Read, readers: int) -> ReadSession:
        """Return a session for one of `readers` readers that read at the same time, each with the options `read`."""
        return ReadSession(
            replace(self.shards, read=read), tuning=self.tuning.among(read, readers), streams=self._streams
        )

    def add(self, stream: Stream) -> None:
        """Add a stream, which `close` will close. The reference to the stream is weak."""
        self._streams.add(stream)

    def close(self) -> None:
        """Close all streams, also those that other sessions added, and the store."""
        for stream in list(self._streams):
            stream.close()
        self.shards.store.close()
