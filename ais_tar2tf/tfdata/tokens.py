"""Tokens, which tell when TensorFlow has destroyed an iterator.

TensorFlow calls no Python when it destroys an iterator of tf.data. But it frees the arrays that Python handed to
it. So the state of each iterator holds such an array, the token of the iterator: once the token is freed, nobody can
go on with the iterator.

This rests on what TensorFlow does and does not promise: that it shares aligned arrays instead of copying them, and
frees them at the next chance. `observed` tries it once in a process.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from typing import Any

import numpy as np

from ais_tar2tf.tfdata.calls import watched
from ais_tar2tf.tfdata.graphs import tf

__all__ = ["NO_TOKEN", "Tokens", "free_unused", "number_of", "observed"]

_ALIGNMENT = 64  # bytes; TensorFlow copies arrays whose memory begins elsewhere
_numbers = itertools.count(1)

NO_TOKEN: Any = np.zeros(1, np.int64)
"""What an iterator has before its first chunk; no token has the number 0."""


class Tokens:
    """The tokens of the iterators of one dataset, by number, as long as TensorFlow holds them."""

    def __init__(self) -> None:
        self._held: dict[int, weakref.ref[Any]] = {}

    def of(self, given: Any) -> Any:
        """Return the token that an iterator has, or a new one where it begins or was restored from a checkpoint.

        The token is always the same array: a view of it, handed back with every chunk, would hold all views before.
        """
        held = self._held.get(number_of(given))
        token = None if held is None else held()
        if token is None or token.ctypes.data != given.ctypes.data:
            token = self._new()
        return token

    def is_held(self, number: int) -> bool:
        """Return whether the iterator with this token may still be continued."""
        return number in self._held

    def _new(self) -> Any:
        memory = np.zeros(3 * _ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % _ALIGNMENT
        token, number = memory[begin : begin + 8].view(np.int64), next(_numbers)
        token[0] = number
        held = self._held
        held[number] = weakref.ref(token, lambda _: held.pop(number, None) and None)
        return token


def number_of(token: Any) -> int:
    """Return the number of a token."""
    return int(token[0])


@watched
def free_unused() -> None:
    """Let TensorFlow free arrays that it needs no longer: it does so when it is next given one."""
    with tf.init_scope():
        if tf.executing_eagerly():
            with tf.device("CPU:0"):
                tf.convert_to_tensor(np.zeros(1, np.int64))


@functools.cache
def observed() -> bool:
    """Return whether this TensorFlow shares arrays that Python hands to it, and frees them when it should."""
    tokens, handed = Tokens(), list[Any]()
    handed.append(tokens.of(NO_TOKEN))
    number = number_of(handed[0])
    with tf.init_scope():
        if not tf.executing_eagerly():
            return False
        tensor = tf.function(lambda: tf.numpy_function(handed.pop, [], tf.int64), autograph=False)()
        shared = tokens.is_held(number)
        del tensor
        free_unused()
        return shared and not tokens.is_held(number)
