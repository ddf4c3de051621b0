"""Tools for stored exceptions: their causes, copies, and the frames that their tracebacks keep alive."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TypeVar

__all__ = ["copied", "drop_frames", "with_causes"]

_Error = TypeVar("_Error", bound=BaseException)

_NOT_USERS = ("ais_tar2tf", "tensorflow")


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, then its cause or the error during whose handling it was raised, and so on; each error once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def drop_frames(error: BaseException, *, keep_user_code: bool) -> None:
    """Release the frames of an error and of its causes. Frames of this package hold buffers and open streams.

    With `keep_user_code`, tracebacks begin at the first frame that is outside of this package and of TensorFlow.
    """
    for each in with_causes(error):
        frames = each.__traceback__ if keep_user_code else None
        while frames is not None and _top_package(frames.tb_frame.f_globals) in _NOT_USERS:
            frames = frames.tb_next
        each.__traceback__ = frames


def _top_package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def copied(error: _Error, *, cause: BaseException | None) -> _Error:
    """Return a copy of an error, to raise it. A traceback of `error` itself would keep frames alive."""
    equal = copy(error)
    equal.__cause__ = cause
    return equal
