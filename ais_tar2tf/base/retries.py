"""The retry rule: whether a failed request is tried again, and after how many seconds.

`repeat` is the only retry loop of the package. This module must do no I/O, and must not wait by itself: the caller of
`repeat` passes a function that waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ais_tar2tf.errors import Silence, TransportError
from ais_tar2tf.options import Retry

__all__ = ["Tries", "is_progress", "repeat"]

_LOG = logging.getLogger("ais_tar2tf")  # logs only errors after which another try follows; the last error is raised
_Result = TypeVar("_Result")


@dataclass(slots=True)
class Tries:
    """The tries of one request. `after_failure` decides after each failed try whether another try follows."""

    retry: Retry
    failed: int = 0  # consecutive failed tries; counted from 1 again if bytes arrived in the latest of them
    _silent_seconds: float = 0.0  # seconds since the first try of an endpoint that never answered; 0 after an answer

    def after_failure(
        self, error: TransportError, draw: Callable[[], float], *, progress: bool = False
    ) -> float | None:
        """Return the seconds until the next try, or None if no try follows.

        An endpoint that has never answered is tried for `Retry.unreachable` seconds, or for `Retry.unanswered`
        seconds if it accepts connections. The next try is expected to take as long as the previous try. If the next
        try would end after these seconds have passed, the next try is not begun.

        For any endpoint, no try follows an error that is `final`, or a failure with which `failed` reaches
        `Retry.attempts`. If a try follows, `error.next_try` is set to the result.

        Args:
            error: The error of the try that has just failed.
            draw: Returns random numbers in [0, 1).
            progress: Whether bytes arrived since the previous failure.
        """
        self.failed = 1 if progress else self.failed + 1
        if error.final or self.failed >= self.retry.attempts:
            return None
        delay = self.retry.delay(self.failed, draw, asked=error.retry_after)
        silence = error.silence
        if silence is None:
            self._silent_seconds = 0.0
        else:
            self._silent_seconds = max(self._silent_seconds + silence.last, silence.seconds)
            if self._silent_seconds + delay + silence.last > self._patience(silence):
                return None
            self._silent_seconds += delay
        error.next_try = delay
        return delay

    def final_error(self, error: TransportError) -> TransportError:
        """Return the error to raise when no try follows.

        An error that is `final` is returned unchanged, because no retry can help. For any other error, the result's
        text states the number of tries, and the option that permits more tries.
        """
        if error.final:
            return error
        tries = f"{self.failed} {'try' if self.failed == 1 else 'tries'}"
        if error.silence is None or self.failed >= self.retry.attempts:
            without = " without progress" if self.failed > 1 else ""  # a single try may have received bytes
            why = f"given up after {tries}{without} (Retry.attempts)"
        else:
            why = (
                f"given up after {tries} in {self._silent_seconds:.1f} s, since nothing has ever answered there "
                f"(Retry.{'unanswered' if error.silence.accepts else 'unreachable'})"
            )
        # The message may end with a question, such as "; is the endpoint right, and is it up?". The question
        # stays at the end.
        fault, separator, question = error.message.removeprefix(f"{error.url}: ").partition("; is ")
        message = f"{fault}; {why}{separator}{question}"
        return TransportError(message, url=error.url, retry_after=error.retry_after, silence=error.silence)

    def _patience(self, silence: Silence) -> float:
        """Return the seconds for which an endpoint that has never answered is tried."""
        return self.retry.unanswered if silence.accepts else self.retry.unreachable


def repeat(
    once: Callable[[], _Result],
    retry: Retry,
    *,
    pause: Callable[[float], object],
    draw: Callable[[], float],
    on_retry: Callable[[TransportError], None],
    progress: Callable[[], bool] = lambda: False,
) -> _Result:
    """Call `once` until it succeeds, and return its result.

    Args:
        once: Makes one try.
        retry: Bounds on the number of tries, and the delays between tries.
        pause: Waits for a number of seconds.
        draw: Returns random numbers in [0, 1).
        on_retry: Called with the error of a failed try before the next try. It is not called for the last error.
        progress: Returns whether bytes arrived since the previous failure. If they did, the count of failed tries
            begins again at 1.

    Raises:
        TransportError: The tries failed, and `retry` allows no further try. Errors of other types are not retried.
    """
    tries = Tries(retry)
    while True:
        try:
            return once()
        except TransportError as error:
            delay = tries.after_failure(error, draw, progress=progress())
            if delay is None:
                raise tries.final_error(error) from error.__cause__
            on_retry(error)
            _LOG.info("%s. Trying again, up to %d tries without progress.", error, retry.attempts)
        pause(delay)


def is_progress(count: int, seconds: float, min_rate: float) -> bool:
    """Return whether `count` bytes arrived in `seconds` at `min_rate` bytes a second or faster.

    Without this minimum rate, a server that sends one byte in each try would be retried for ever.

    >>> is_progress(0, 0.0, 1024), is_progress(1, 0.2, 1024), is_progress(1_000, 0.2, 1024)
    (False, False, True)
    """
    return count > 0 and count >= seconds * min_rate
