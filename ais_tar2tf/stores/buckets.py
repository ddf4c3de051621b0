"""A check for writers: whether the bucket exists, before any data are read."""

from __future__ import annotations

from ais_tar2tf.errors import ShardNotFound, StoreError, TransportError
from ais_tar2tf.stores.base import Store

__all__ = ["check_bucket"]


def check_bucket(store: Store, prefix: str) -> None:
    """Raise an error if a listing of `prefix` shows that the bucket does not exist.

    Return without an error if the bucket cannot be listed, for example for want of rights: the first write shows it.

    Raises:
        ShardNotFound: The bucket does not exist.
        TransportError: The server does not answer.
    """
    try:
        next(store.list(prefix), None)
    except ShardNotFound:
        raise ShardNotFound("there is no such bucket to write into; make it first", url=store.url("")) from None
    except TransportError:
        raise
    except StoreError:
        pass
