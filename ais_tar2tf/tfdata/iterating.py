"""Datasets and iterators that are TensorFlow's, except that an error of ours comes out as it was raised."""

from __future__ import annotations

import _thread
import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import original
from ais_tar2tf.tfdata.graphs import Dataset, tf

if TYPE_CHECKING:
    OwnedIterator = Any
else:
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator  # what `iter` gives; nothing public names it

__all__ = ["OurDataset", "OurIterator", "iterate"]


class OurDataset(Dataset):
    """The same dataset; its iterators raise errors of ours. `check` is called before an iteration begins."""

    def __init__(self, inner: Dataset, check: Callable[[], object] = lambda: None) -> None:
        self._inner = inner
        self._check = check
        super().__init__(inner._variant_tensor)

    def __iter__(self) -> Any:
        self._check()
        return iterate(self)

    def _inputs(self) -> list[Dataset]:
        return [self._inner]

    @property
    def element_spec(self) -> Any:
        return self._inner.element_spec


class OurIterator(OwnedIterator):
    """An iterator whose errors are ours, where they were before TensorFlow made text of them.

    All else is TensorFlow's: a checkpoint saves and restores it, a tf.function takes it.

    TensorFlow destroys an iterator only when its call that reads the next chunk has returned. Python's garbage
    collector may run inside this very call, and would then wait for itself. So an iterator that another thread
    than the main one drops is destroyed by a thread of its own.
    """

    def __del__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            return
        held = [self.__dict__.pop("_iterator_resource", None), self.__dict__.get("_dataset")]
        with contextlib.suppress(RuntimeError):  # the interpreter ends, or has no more threads
            _thread.start_new_thread(held.clear, ())

    def __next__(self) -> Any:
        try:
            return self._next_internal()
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        except tf.errors.OpError as error:
            _raise_original(error)
            raise

    def get_next(self) -> Any:
        return _ours(self._next_internal)

    def get_next_as_optional(self) -> Any:
        return _ours(super().get_next_as_optional)


def iterate(dataset: Dataset, dropped: Callable[[], object] = lambda: None) -> Any:
    """Return an iterator over a dataset; in a graph it is TensorFlow's own.

    `dropped` is called when Python drops the iterator, at any time and in any thread: it must not take a lock.
    """
    plain: Any = Dataset
    if not tf.executing_eagerly():
        return plain.__iter__(dataset)
    iterator = OurIterator(dataset)
    weakref.finalize(iterator, dropped).atexit = False
    return iterator


def _ours(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except tf.errors.OpError as error:
        _raise_original(error)
        raise


def _raise_original(error: Exception) -> None:
    """Raise the error of ours that is in one of TensorFlow's, whose own text adds nothing to it."""
    ours = original(error)
    try:
        if ours is not None:
            raise ours from ours.__cause__
    finally:
        del ours, error  # this frame is in their tracebacks: the iterator would live until the garbage collector runs
