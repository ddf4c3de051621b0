"""Liveness tokens: each iterator of a dataset has one, which shows when TensorFlow has destroyed the iterator.

TensorFlow calls no Python code when it destroys an iterator of tf.data, but it frees the arrays that it got from
Python. So each iterator keeps an array, its token, in the state of its stage `tf.data.Dataset.scan`. When the
iterator is destroyed, the token is freed, and a weak reference to the token becomes invalid. This module must not
close the streams of destroyed iterators. `stream_pool.py` closes them.

Tokens work only if TensorFlow shares aligned arrays with Python instead of copying them, and frees arrays soon after
use. TensorFlow guarantees neither. `can_observe_tokens` tests both once in each process.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from typing import Any

import numpy as np

from ais_tar2tf.base.allocation import aligned_bytes
from ais_tar2tf.tfdata.shutdown import tracked
from ais_tar2tf.tfdata.tf import tf

__all__ = ["NO_TOKEN", "LivenessTokens", "can_observe_tokens", "free_unused", "number_of"]

_numbers = itertools.count(1)

NO_TOKEN: Any = np.zeros(1, np.int64)
"""The token of an iterator before its first chunk; no other token has the number 0."""


class LivenessTokens:
    """The tokens of the iterators of one dataset, by number. A token is removed when TensorFlow has freed it."""

    def __init__(self) -> None:
        self._held: dict[int, weakref.ref[Any]] = {}

    def current(self, passed_in: Any) -> Any:
        """Return the token of the iterator whose state contained the array `passed_in`.

        An iterator that begins, or was restored from a checkpoint, gets a new token. For any other iterator, return
        the token itself, and not `passed_in`, which is only a view of the token. If each call put its view into the
        state, each view would keep the previous view alive.
        """
        held = self._held.get(number_of(passed_in))
        token = None if held is None else held()
        if token is None or token.ctypes.data != passed_in.ctypes.data:
            token = self._new()
        return token

    def is_held(self, number: int) -> bool:
        """Return whether the iterator whose token has this number may still be used."""
        return number in self._held

    def _new(self) -> Any:
        token, number = aligned_bytes(8).view(np.int64), next(_numbers)  # TensorFlow copies unaligned arrays
        token[0] = number
        held = self._held
        held[number] = weakref.ref(token, lambda _: held.pop(number, None) and None)
        return token


def number_of(token: Any) -> int:
    """Return the number of a token."""
    return int(token[0])


@tracked
def free_unused() -> None:
    """Give TensorFlow a new array, because it then frees the arrays that it no longer uses.

    Do nothing if eager execution is off in the whole program.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            with tf.device("CPU:0"):
                tf.convert_to_tensor(np.zeros(1, np.int64))


@functools.cache
def can_observe_tokens() -> bool:
    """Return whether this version of TensorFlow shares arrays with Python, and frees them soon after use."""
    tokens, handed = LivenessTokens(), list[Any]()
    handed.append(tokens.current(NO_TOKEN))
    number = number_of(handed[0])
    with tf.init_scope():
        if not tf.executing_eagerly():
            return False
        tensor = tf.function(lambda: tf.numpy_function(handed.pop, [], tf.int64), autograph=False)()
        shared = tokens.is_held(number)
        del tensor
        free_unused()
        return shared and not tokens.is_held(number)
