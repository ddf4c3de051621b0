"""Calls obstore for one bucket. Its failures become errors of this package, and are retried as `Retry` says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ais_tar2tf.base.monitoring.waits import repeat_and_report
from ais_tar2tf.errors import StoreError, Tar2TFError, TransportError
from ais_tar2tf.options import Read, Tls
from ais_tar2tf.stores.obstore import error_of, make, obstore, status_of
from ais_tar2tf.stores.transport.contact import CONTACTS, Endpoint
from ais_tar2tf.stores.transport.pool import HttpPool
from ais_tar2tf.stores.transport.unanswered import check_first_answer, note_failure

__all__ = ["ObstoreClient"]

_T = TypeVar("_T")
_SIGNED_FOR = timedelta(minutes=15)  # a signed URL is used at once, but clocks may differ by minutes


class ObstoreClient:
    """A client for one bucket. Safe to use again after `close`.

    Until the endpoint has answered, obstore makes single tries, so that a wrong endpoint is reported soon. Later,
    obstore itself retries by the numbers of `Retry`: only obstore can retry one part of an upload, or one page of a
    listing.
    """

    def __init__(
        self, scheme: str, bucket: str, endpoint: str | None, read: Read, tls: Tls, *, pool: HttpPool
    ) -> None:
        self._scheme = scheme
        self._bucket = bucket
        self._endpoint = endpoint
        self._read = read
        self._tls = tls
        self._pool = pool
        self._contact: Endpoint = urlsplit(endpoint)[:2] if endpoint else (scheme, bucket)
        self._retries = False  # whether `_made` retries
        self._made: Any = None
        self.region: str = self._make()
        self._can_sign = True  # False after obstore has shown that it has no key

    def call(self, ask: Callable[[Any], _T], shown: str, *, silent: bool = False) -> _T:
        """Return the result of `ask` for obstore's store. A failed call is retried.

        Args:
            ask: Makes one call.
            shown: The URL for errors.
            silent: Whether a long wait is not reported, because much is being sent.

        Raises:
            StoreError: The call failed.
        """
        return repeat_and_report(lambda: self.call_once(ask, shown), self._read.retry, shown, silent=silent)

    def call_once(self, ask: Callable[[Any], _T], shown: str) -> _T:
        """Make a call as `call` does, but only once."""
        began, retries = CONTACTS.now(), CONTACTS.has_answered(self._contact)
        try:
            result = ask(self._store(retries=retries))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # obstore's errors and Python's own have no other common base
            failure, status = error_of(error, shown, self._endpoint), status_of(error)
        else:
            CONTACTS.note_answer(self._contact)
            return result
        if status is not None and self._endpoint is not None:
            check_first_answer(status, self._endpoint, shown, self._read.timeouts)
        elif isinstance(failure, TransportError):
            failure = self._completed(failure, began)
        if isinstance(failure, TransportError):
            failure.final = failure.final or retries
        raise failure from failure.__cause__

    def _completed(self, failure: TransportError, began: float) -> TransportError:
        """Return the error to raise for a failed try, after setting its `silence`.

        The silence is how long the endpoint has not answered; None if it has answered.

        obstore tells little about the endpoint. So if the endpoint has never answered, and did not time out just now,
        this sends a request of its own.
        """
        if failure.silence is None:
            CONTACTS.note_answer(self._contact)
        if self._endpoint is None or failure.silence is None or CONTACTS.has_answered(self._contact):
            CONTACTS.note_failure(failure, self._contact, began)
            return failure
        if isinstance(failure.__cause__, TimeoutError):
            return note_failure(failure, self._endpoint, began, self._read.timeouts)
        try:
            self._pool.request(f"{self._endpoint}/", {}, shown=failure.url, method="HEAD").drain()
        except TransportError as error:
            return error
        failure.silence = None
        return failure

    def sign(self, method: str, name: str, shown: str) -> str | None:
        """Return a URL that permits one method on one object for some minutes; None if obstore has no key.

        Raises:
            StoreError: The name cannot be signed, or, for S3, the credentials are missing.
        """
        if not self._can_sign:
            return None
        try:
            store = self._store(retries=CONTACTS.has_answered(self._contact))
            return obstore().sign(store, method, name, _SIGNED_FOR)
        except Exception as error:  # noqa: BLE001
            if self._scheme == "s3" or isinstance(error, TypeError):
                raise error_of(error, shown) from None
            self._can_sign = False
            return None

    def close(self) -> None:
        self._made = None  # obstore's store closes its connections when it is freed

    def _make(self) -> str:
        """Make obstore's store, and return the region that it signs for."""
        try:
            self._made, region = make(
                self._scheme, self._bucket, self._endpoint, self._read, self._tls, retries=self._retries
            )
        except Tar2TFError:
            raise
        except Exception as error:  # noqa: BLE001  # obstore misses something in the environment
            raise error_of(error, f"{self._scheme}://{self._bucket}/") from None
        return region

    def _store(self, *, retries: bool) -> Any:
        if self._made is None or retries != self._retries:
            self._retries = retries
            self._make()
        return self._made
