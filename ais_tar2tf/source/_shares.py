"""How an index decides what each of several hosts reads, written down where hosts can be compared.

No host knows what index the others see. One that shares by an index and one that shares without read some records
twice and others never, so each says how it shares, and warns of an index that it found and does not believe.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ais_tar2tf.account import Account, Choice
from ais_tar2tf.indexing import Found
from ais_tar2tf.plan import Plan
from ais_tar2tf.reader import Shards

__all__ = ["note_share", "with_index"]

_LOG = logging.getLogger("ais_tar2tf")


def with_index(plan: Plan, shards: Shards, found: Found, account: Account) -> tuple[Plan, Shards]:
    """Return the plan with the counts of an index, and the shards with its places, where there is one to believe."""
    index, why = found.index, found.reason
    if index is not None:
        known = [index.get(name) for name in shards.names]
        counts = [0 if each is None else each.records for each in known]
        if plan.even in ("pad", "drop") and not all(each is not None and each.placed for each in known):
            why = f"the index at {found.url} holds counts alone, and even={plan.even!r} needs places"
        else:
            plan, shards = replace(plan, counts=counts), replace(shards, index=index)
            why = f"the index at {found.url} counts {sum(counts):,} records"
    if found.url and plan.counts is None:
        _note(account, "index", Choice("ignored", why), logging.WARNING)
    note_share(plan, why, account)
    return plan, shards


def note_share(plan: Plan, why: str, account: Account) -> None:
    """Note how hosts share an epoch evenly, where they do."""
    if plan.even is not None and plan.hosts > 1:
        _note(account, "share", Choice(f"{plan.host} of {plan.hosts}: {plan.sharing}", why), logging.INFO)


def _note(account: Account, name: str, choice: Choice, level: int) -> None:
    if account.stats.chosen.get(name) != choice:
        account.chose({name: choice})
        _LOG.log(level, "%s %s: %s", name, choice.value, choice.why)
