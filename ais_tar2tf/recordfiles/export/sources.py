"""The sources of an export, and the check whether they have changed since they were read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import ExportError, ShardNotFound
from ais_tar2tf.recordfiles.export.journal import SourceShard
from ais_tar2tf.recordfiles.export.manifest import SourceObject
from ais_tar2tf.stores import Identity, Store

__all__ = ["Sources", "check_same", "source_objects"]


@dataclass(frozen=True)
class Sources:
    """The shards that an export reads. No URL from a document is requested unless it is the URL of such a shard."""

    store: Store
    names: Sequence[str]

    def check(self, recorded: Iterable[SourceObject], out: str) -> None:
        """Raise `ExportError` if a shard is no longer the object that is recorded as read for the export `out`.

        Objects that no longer exist are skipped: users may delete shards once they are exported.
        """
        names = {self.store.url(name): name for name in self.names}
        for source in recorded:
            identity, name = Identity(*source.identity), names.get(shown_url(source.url))
            if identity == Identity() or name is None:
                continue
            with contextlib.suppress(ShardNotFound):
                check_same(identity, self.store.head(name).identity, source.url, out)


def check_same(recorded: Identity, found: Identity, what: str, out: str) -> None:
    """Raise `ExportError` if the identity of `what`, as recorded for the export `out`, is not the one found."""
    if recorded.differs_from(found):
        raise ExportError(f"{what}: changed since it was exported to {out}; exists='replace' reads everything again")


def source_objects(shards: Iterable[SourceShard]) -> list[SourceObject]:
    """Return the entries for a manifest of shards that were read."""
    return [SourceObject(shard.url, *shard.identity) for shard in shards]
