"""The base class of groupers. A grouper makes records of the members of one shard.

This module and its subclasses must not open files or connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ais_tar2tf.archive import Members
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ArchiveError, LimitExceeded, RecordError
from ais_tar2tf.options import Limits
from ais_tar2tf.records.keys import KeySet
from ais_tar2tf.records.selection import Selection
from ais_tar2tf.records.table import RecordBatch

__all__ = ["RecordGrouper"]


class RecordGrouper(ABC):
    """Makes records of the members of one shard. Call `add` for members as they are parsed, and `finish` at the end.

    The last record found so far is *pending*: it is not returned before the next record begins, or the shard ends. So
    the position after the returned records is where the pending record begins, and never the end of the shard. A
    grouper may also give back the members of the last record, and get them again with the next block.
    """

    def __init__(self, shard: str, account: Account, limits: Limits, selection: Selection | None) -> None:
        self._shard = shard
        self._account = account
        self._limits = limits
        self._selection = selection
        self._keys = KeySet()
        self._failure: ArchiveError | RecordError | None = None  # raised by the next call

    @property
    @abstractmethod
    def pending_offset(self) -> int | None:
        """The offset of the first record that was not returned; None before the first record and after the last."""

    @property
    def number(self) -> int:
        """The number of records before the pending record if the records have numbers as keys; otherwise 0."""
        return 0

    def add(self, members: Members) -> RecordBatch:
        """Add members, and return the records that are complete.

        If complete records precede an error, this call returns them, and the next call raises the error.

        Raises:
            ArchiveError: A limit is exceeded.
            RecordError: A record has an error that the policy `on_error` does not skip.
        """
        self.raise_failure()
        batch = RecordBatch()
        try:
            self._add(members, batch)
        except (ArchiveError, RecordError) as error:
            self._failure = error
            if not batch.records:
                raise
        return batch

    @abstractmethod
    def finish(self, end: int | None = None) -> RecordBatch:
        """Return the pending record, if there is one.

        The record extends to the offset `end`, which may be None if the caller does not use the extent of the record.
        """

    @property
    def failed(self) -> bool:
        """Whether an error occurred. The pending record may then be incomplete."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise the error that an earlier call met, if there is one."""
        if self._failure is not None:
            raise self._failure

    @abstractmethod
    def _add(self, members: Members, batch: RecordBatch) -> None:
        """Add members, and append the records that are complete to `batch`."""

    def _limit(self, limit: str, message: str, offset: int) -> LimitExceeded:
        return LimitExceeded(f"{message}, Limits.{limit}", shard=self._shard, offset=offset)
