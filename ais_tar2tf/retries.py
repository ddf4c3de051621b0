"""When a failed request is tried again, and when no more: one count of tries for everybody who retries. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ais_tar2tf.options import Retry

__all__ = ["Tries", "is_progress"]


@dataclass(slots=True)
class Tries:
    """Of one request."""

    retry: Retry
    failed: int = 0  # one after the other, without progress

    def after_failure(
        self, draw: Callable[[], float], *, progress: bool = False, asked: float | None = None
    ) -> float | None:
        """Seconds until the next try; None: there is none. `progress`: something came since the failure before."""
        self.failed = 1 if progress else self.failed + 1
        if self.failed >= self.retry.attempts:
            return None
        return self.retry.delay(self.failed, draw, asked=asked)


def is_progress(came: int, seconds: float, least_rate: float) -> bool:
    """Return whether so many bytes in so many seconds are more than nothing: a byte with each try is not.

    >>> is_progress(0, 0.0, 1024), is_progress(1, 0.2, 1024), is_progress(1_000, 0.2, 1024)
    (False, False, True)
    """
    return came > 0 and came >= seconds * least_rate
