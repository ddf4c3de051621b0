"""The read plan of a source: which records this host reads, and in which order. An index adds counts and offsets.

No host knows which index the other hosts find. With `even`, if one host divides the records by an index and another
host without it, some records are read twice and others never. So each host then logs how it divides them. It warns of
an index that it found and does not use.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import xxhash

from ais_tar2tf.base.monitoring.stats import Account, AutoChoice
from ais_tar2tf.errors import IndexMissing, OptionError
from ais_tar2tf.options import Shuffle
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.stores.cache import in_whole_blocks
from ais_tar2tf.streams.arguments import host_of
from ais_tar2tf.streams.datasets import SourceReading
from ais_tar2tf.streams.index.files import FoundIndex
from ais_tar2tf.streams.index.shards import Index
from ais_tar2tf.streams.order import Plan
from ais_tar2tf.streams.reader import Shards

__all__ = ["plan_reading"]

_log = logging.getLogger("ais_tar2tf")


def plan_reading(
    opened: OpenedShards, shuffle: Shuffle | None, shard: Any = None, even: str | None = None
) -> SourceReading:
    """Return the shards in the order in which `records` and `dataset` read them on this host.

    Args:
        opened: The shards.
        shuffle: The shuffle; None for the order of the shards.
        shard: This host's share, in any form that `Source.dataset` accepts.
        even: How all hosts get equally many records; None if they may get different numbers.

    Raises:
        OptionError: `even` or a global shuffle was given together with an `on_error` that may skip records.
        IndexMissing: The order needs an index, and there is none.
    """
    names, account = opened.shards.names, opened.account
    host, hosts = host_of(shard)
    plan = replace(Plan(len(names), shuffle, host, hosts, even), names_digest=_hash_of_names(names))
    if even is not None and not account.raises:
        raise OptionError(f"even={even!r} needs on_error='raise': a host that skips a record has fewer records")
    shards = _shards_of_members(opened, plan)
    if shards is not None:
        _note_share(plan, "no index is used, because the cluster selects fields", account)
    else:
        shards = opened.shards
        if account.raises:  # without skips only: an index counts bad records, too
            plan, shards = _with_index(plan, shards, opened.index.found, account)
    if plan.by_records:
        if not account.raises:
            raise OptionError("shuffle='global' needs on_error='raise': its order counts every record")
        size = _checked_total_size(shards, opened.index.required())
        shards = replace(shards, store=in_whole_blocks(shards.store, size))
    return SourceReading(opened.session.over(shards), plan)


def _shards_of_members(opened: OpenedShards, plan: Plan) -> Shards | None:
    """Return the shards from which AIStore sends only the selected members, or None if the plan needs whole shards.

    The windows of a shuffle are bounded in bytes of whole shards, and an index holds offsets in whole shards.
    """
    needs_whole = opened.in_cluster is None and (plan.shuffle is not None or opened.index.found.index is not None)
    return None if plan.by_records or needs_whole else opened.with_members


def _checked_total_size(shards: Shards, index: Index) -> int:
    """Return the bytes of all shards, after checking that single records can be read from each of them."""
    total = 0
    for name in shards.names:
        entry = index.get(name)
        if entry is None or not entry.placed or entry.compressed:
            why = "is compressed" if entry is not None and entry.compressed else "has no offsets in the index"
            raise IndexMissing(
                f"the shard {why}, so shuffle='global' cannot read its records one by one; use "
                "shuffle=True, or t2t.pack the records as plain tars",
                url=shards.store.url(name),
            )
        total += entry.identity.size or 0
    return total


def _with_index(plan: Plan, shards: Shards, found: FoundIndex, account: Account) -> tuple[Plan, Shards]:
    """Add the counts of an index to the plan, and its offsets to the shards, if an index may be used."""
    index, why = found.index, found.reason
    if index is not None:
        entries = [index.get(name) for name in shards.names]
        counts = [0 if entry is None else entry.records for entry in entries]
        if plan.even in ("pad", "drop") and not all(entry is not None and entry.placed for entry in entries):
            why = f"the index at {found.url} holds counts alone, and even={plan.even!r} needs offsets"
        else:
            plan, shards = replace(plan, counts=counts), replace(shards, index=index)
            why = f"the index at {found.url} counts {sum(counts):,} records"
    if found.url and plan.counts is None:
        _log_choice(account, "index", AutoChoice("ignored", why), logging.WARNING)
    _note_share(plan, why, account)
    return plan, shards


def _note_share(plan: Plan, why: str, account: Account) -> None:
    """Log how the hosts divide an epoch, if all of them get equally many records."""
    if plan.even is not None and plan.hosts > 1:
        _log_choice(account, "share", AutoChoice(f"{plan.host} of {plan.hosts}: {plan.sharing}", why), logging.INFO)


def _log_choice(account: Account, name: str, choice: AutoChoice, level: int) -> None:
    if account.stats.chosen.get(name) != choice:
        account.note_choices({name: choice})
        _log.log(level, "%s %s: %s", name, choice.value, choice.why)


def _hash_of_names(names: Sequence[str]) -> str:
    """Hash the number of shards and three of their names, without folders. A checkpoint is bound to this hash."""
    some = [names[at].rpartition("/")[2] for at in {0, len(names) // 2, len(names) - 1}] if len(names) else []
    return xxhash.xxh3_64_hexdigest("\0".join([str(len(names)), *some]).encode("utf-8", "surrogateescape"))
