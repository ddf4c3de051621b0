"""Checks of the numbers in an archive against `Limits`."""

from __future__ import annotations

from ais_tar2tf.errors import LimitExceeded
from ais_tar2tf.options import Limits

__all__ = ["check_limit", "check_member_count"]


def check_limit(limits: Limits, name: str, value: int, subject: str, shard: str, offset: int) -> None:
    """Raise `LimitExceeded` when the `value` bytes of a subject exceed the limit of that name."""
    limit: int = getattr(limits, name)
    if value > limit:
        raise LimitExceeded(f"{subject} has {value:,} bytes, Limits.{name} is {limit:,}", shard=shard, offset=offset)


def check_member_count(limits: Limits, count: int, shard: str, offset: int) -> None:
    """Raise `LimitExceeded` when an archive has more than `Limits.members` members."""
    if count > limits.members:
        raise LimitExceeded(f"there are over {limits.members:,} members, Limits.members", shard=shard, offset=offset)
