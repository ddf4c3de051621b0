"""When a failed request is tried again, and when no more: one count of tries for everybody who retries. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ais_tar2tf.options import Retry

__all__ = ["Tries"]


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
