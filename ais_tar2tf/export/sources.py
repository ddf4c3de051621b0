"""Whether the objects that an export read are still those that it read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ais_tar2tf.errors import ExportError, ShardNotFound
from ais_tar2tf.export.manifest import SourceObject
from ais_tar2tf.export.work import SourceShard
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores import Identity, Store

__all__ = ["Sources", "check_same", "objects_of"]


@dataclass(frozen=True)
class Sources:
    """The shards that an export reads. A document names them by URL; none but these is ever asked for."""

    store: Store
    names: Sequence[str]

    @cached_property
    def _by_url(self) -> dict[str, str]:
        return {self.store.url(name): name for name in self.names}

    def check(self, known: Iterable[SourceObject], out: str) -> None:
        """Raise `ExportError` when one of the objects changed since it was read for `out`.

        An object that is gone cannot be told from one that was kept, and is passed over.
        """
        for source in known:
            identity, name = Identity(*source.identity), self._by_url.get(shown_url(source.url))
            if identity == Identity() or name is None:
                continue
            with contextlib.suppress(ShardNotFound):
                check_same(identity, self.store.head(name).identity, source.url, out)


def check_same(known: Identity, found: Identity, url: str, out: str) -> None:
    """Raise `ExportError` when an object is another one than was read for `out`."""
    if known.differs_from(found):
        raise ExportError(f"{url}: changed since it was exported to {out}; exists='replace' reads everything again")


def objects_of(shards: Iterable[SourceShard]) -> list[SourceObject]:
    """Return the objects of shards that were read."""
    return [SourceObject(shard.url, *shard.identity) for shard in shards]
