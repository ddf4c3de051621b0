"""When a failed request is tried again, and when no more: one count of tries for everybody who retries. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import Retry

__all__ = ["Tries", "is_progress"]


@dataclass(slots=True)
class Tries:
    """The tries of one request."""

    retry: Retry
    failed: int = 0  # one after the other, without progress

    def after_failure(
        self, error: TransportError, draw: Callable[[], float], *, progress: bool = False
    ) -> float | None:
        """Return the seconds until the next try; None when there is none.

        Args:
            error: What the last try ended with.
            draw: Returns random numbers in [0, 1).
            progress: Something came since the failure before.
        """
        self.failed = 1 if progress else self.failed + 1
        if self.failed >= self.retry.attempts:
            return None
        delay = self.retry.delay(self.failed, draw, asked=error.retry_after)
        silence = error.silence
        if silence is not None and silence.seconds + delay + silence.last > self.retry.unreachable:
            return None
        return delay

    def given_up(self, error: TransportError) -> TransportError:
        """Return the error to raise when there is no next try: how often it was tried, and which option rules."""
        tries = f"{self.failed} {'try' if self.failed == 1 else 'tries'}"
        if error.silence is None or self.failed >= self.retry.attempts:
            why = f"given up after {tries} without progress (Retry.attempts)"
        else:
            why = (
                f"given up after {tries} in {error.silence.seconds:.1f} s, since nothing has ever answered there "
                "(Retry.unreachable)"
            )
        what, mark, next_step = error.message.removeprefix(f"{error.url}: ").partition("; is ")
        message = f"{what}; {why}{mark}{next_step}"
        return TransportError(message, url=error.url, retry_after=error.retry_after, silence=error.silence)


def is_progress(came: int, seconds: float, least_rate: float) -> bool:
    """Return whether so many bytes in so many seconds are more than nothing: a byte with each try is not.

    >>> is_progress(0, 0.0, 1024), is_progress(1, 0.2, 1024), is_progress(1_000, 0.2, 1024)
    (False, False, True)
    """
    return came > 0 and came >= seconds * least_rate
