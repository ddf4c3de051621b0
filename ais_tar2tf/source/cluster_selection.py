"""Lets AIStore send only the selected members of shards."""

from __future__ import annotations

from dataclasses import replace

from ais_tar2tf.streams.in_cluster.store import Extracted, MembersStore
from ais_tar2tf.streams.reader import Shards

__all__ = ["with_selected_members"]


def with_selected_members(shards: Shards, extracted: Extracted, *, always: bool) -> Shards | None:
    """Return the shards in a store that asks AIStore for the selected members; None if no fields are selected.

    Args:
        shards: Shards in AIStore.
        extracted: Counts the shards from which AIStore selected members, and the bytes.
        always: Ask for members wherever AIStore can select them, even if that moves more bytes.
    """
    if shards.selection is None or not len(shards.names):
        return None
    store = MembersStore(
        shards.store, shards.names[0], shards.selection, shards.grouping, always=always, extracted=extracted
    )
    # AIStore's answers have no length and support no ranges.
    return replace(shards, store=store, read=replace(shards.read, connections=1, most_connections=0), index=None)
