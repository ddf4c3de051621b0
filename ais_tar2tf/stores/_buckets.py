"""Whether the bucket into which something is to be written is there, asked before the data are read."""

from __future__ import annotations

from ais_tar2tf.errors import ShardNotFound, StoreError, TransportError
from ais_tar2tf.stores._base import Store

__all__ = ["check_bucket"]


def check_bucket(store: Store, prefix: str) -> None:
    """Raise unless there is a bucket for objects whose names begin with `prefix`; a listing of them tells.

    Where nothing can be listed, for want of rights or otherwise, the first object that is written will tell.

    Raises:
        ShardNotFound: There is no such bucket.
        TransportError: Nobody answers.
    """
    try:
        next(store.list(prefix), None)
    except ShardNotFound:
        raise ShardNotFound("there is no such bucket to write into; make it first", url=store.url("")) from None
    except TransportError:
        raise
    except StoreError:
        pass
