"""When a failed request is tried again, and when no more: one count of tries for everybody who retries. No I/O.

Waiting is the caller's: `repeat` is given what to wait with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ais_tar2tf.errors import Silence, TransportError
from ais_tar2tf.options import Retry

__all__ = ["Tries", "is_progress", "repeat"]

_Result = TypeVar("_Result")


@dataclass(slots=True)
class Tries:
    """The tries of one request."""

    retry: Retry
    failed: int = 0  # one after the other, without progress
    _silent: float = 0.0  # seconds, of this request, from an endpoint that has never answered

    def after_failure(
        self, error: TransportError, draw: Callable[[], float], *, progress: bool = False
    ) -> float | None:
        """Return the seconds until the next try; None when there is none.

        An endpoint that has never answered is tried for `Retry.unreachable` or `Retry.unanswered` seconds; a try that
        would end later, if it takes as long as the last one, is not begun.

        Args:
            error: What the last try ended with.
            draw: Returns random numbers in [0, 1).
            progress: Something came since the failure before.
        """
        self.failed = 1 if progress else self.failed + 1
        if error.final or self.failed >= self.retry.attempts:
            return None
        delay = self.retry.delay(self.failed, draw, asked=error.retry_after)
        silence = error.silence
        if silence is not None:
            self._silent = max(self._silent + silence.last, silence.seconds)
            if self._silent + delay + silence.last > self._patience(silence):
                return None
            self._silent += delay
        error.next_try = delay
        return delay

    def given_up(self, error: TransportError) -> TransportError:
        """Return the error to raise when there is no next try: how often it was tried, and which option rules."""
        if error.final:
            return error
        tries = f"{self.failed} {'try' if self.failed == 1 else 'tries'}"
        if error.silence is None or self.failed >= self.retry.attempts:
            why = f"given up after {tries} without progress (Retry.attempts)"
        else:
            why = (
                f"given up after {tries} in {self._silent:.1f} s, since nothing has ever answered there "
                f"(Retry.{'unanswered' if error.silence.accepts else 'unreachable'})"
            )
        what, mark, next_step = error.message.removeprefix(f"{error.url}: ").partition("; is ")
        message = f"{what}; {why}{mark}{next_step}"
        return TransportError(message, url=error.url, retry_after=error.retry_after, silence=error.silence)

    def _patience(self, silence: Silence) -> float:
        """Return the seconds for which an endpoint that has never answered is tried."""
        return self.retry.unanswered if silence.accepts else self.retry.unreachable


def repeat(
    once: Callable[[], _Result],
    retry: Retry,
    *,
    pause: Callable[[float], None],
    draw: Callable[[], float],
    failed: Callable[[TransportError], None],
) -> _Result:
    """Return what `once` returns, calling it again after a TransportError for as long as `retry` allows.

    Args:
        once: Makes one request.
        retry: How often, and how far apart.
        pause: Waits for so many seconds.
        draw: Returns random numbers in [0, 1).
        failed: Is told of each error behind which there is another try.
    """
    tries = Tries(retry)
    while True:
        try:
            return once()
        except TransportError as error:
            delay = tries.after_failure(error, draw)
            if delay is None:
                raise tries.given_up(error) from error.__cause__
            failed(error)
        pause(delay)


def is_progress(came: int, seconds: float, least_rate: float) -> bool:
    """Return whether so many bytes in so many seconds are more than nothing: a byte with each try is not.

    >>> is_progress(0, 0.0, 1024), is_progress(1, 0.2, 1024), is_progress(1_000, 0.2, 1024)
    (False, False, True)
    """
    return came > 0 and came >= seconds * least_rate
