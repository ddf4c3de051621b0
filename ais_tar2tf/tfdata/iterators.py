"""Datasets and iterators that raise the errors of this package in place of TensorFlow's.

If a Python callback raises an error, TensorFlow raises an error of its own, which keeps only the text of the original
error. The iterators of this module find the original error by this text, and raise the original error. They must not
change the elements.
"""

from __future__ import annotations

import _thread
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import original
from ais_tar2tf.tfdata.tf import Dataset, tf

if TYPE_CHECKING:
    OwnedIterator = Any
else:
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator  # not public: the type of `iter(dataset)`

__all__ = ["ErrorTranslatingDataset", "ErrorTranslatingIterator", "WrappedDataset", "iterate"]


_FREEING_DELAY = 0.05  # seconds; the thread that drops the first tensor frees it within microseconds


class WrappedDataset(Dataset):
    """A dataset with the same TensorFlow graph as another dataset. Subclasses change only its Python methods."""

    def __init__(self, inner: Dataset) -> None:
        self._inner = inner
        super().__init__(inner._variant_tensor)

    def _inputs(self) -> list[Dataset]:
        return [self._inner]

    @property
    def element_spec(self) -> Any:
        return self._inner.element_spec


class ErrorTranslatingDataset(WrappedDataset):
    """A dataset whose iterators raise the original errors of callbacks.

    Args:
        inner: The dataset with the elements.
        check: Called before each iteration begins. If this function raises an error, the iteration does not begin.
    """

    def __init__(self, inner: Dataset, check: Callable[[], object] = lambda: None) -> None:
        self._check = check
        super().__init__(inner)

    def __iter__(self) -> Any:
        self._check()
        return iterate(self)


class ErrorTranslatingIterator(OwnedIterator):
    """TensorFlow's iterator, changed to raise the original errors of callbacks.

    TensorFlow destroys an iterator when the last tensor that refers to the iterator is freed. The thread that frees
    this tensor then waits until the running callback has returned. Python's garbage collector may free the tensor in
    the thread that runs this callback, or in a thread that holds a lock for which the callback waits. Either thread
    would wait forever. So this class keeps a second tensor that refers to the iterator. The second tensor is freed
    after the first, where no callback waits for the thread (`_Freeing`).
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)
        kept = [dataset, tf.identity(self._iterator_resource)]
        weakref.finalize(self._iterator_resource, _freeing.free, kept).atexit = False

    def __next__(self) -> Any:
        try:
            return self._next_internal()
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        except tf.errors.OpError as error:
            _raise_original(error)
            raise

    def get_next(self) -> Any:
        return _with_original_errors(self._next_internal)

    def get_next_as_optional(self) -> Any:
        return _with_original_errors(super().get_next_as_optional)


def iterate(dataset: Dataset, dropped: Callable[[], object] = lambda: None) -> Any:
    """Return an iterator that raises the original errors of callbacks. In a graph, return TensorFlow's iterator.

    Args:
        dataset: The dataset.
        dropped: Called when Python drops the iterator, but not for TensorFlow's iterator. The call may happen at any
            time and in any thread, also in a thread that holds a lock. So this function must not take a lock.
    """
    tensorflow_dataset: Any = Dataset
    if not tf.executing_eagerly():
        return tensorflow_dataset.__iter__(dataset)
    iterator = ErrorTranslatingIterator(dataset)
    weakref.finalize(iterator, dropped).atexit = False
    return iterator


class _Freeing:
    """Frees the second tensors of iterators, after their first tensors and outside of Python's garbage collection.

    `free` is called just before a first tensor is freed. A garbage collection may call it long before that, so the
    second tensor is then kept until the collection has ended.
    """

    def __init__(self) -> None:
        self._collecting: int | None = None  # the thread that collects garbage
        self._garbage: list[list[Any]] = []  # found by the running collection
        self._never_freed: list[list[Any]] = []  # where no thread could be started
        gc.callbacks.append(self._on_collection)

    def free(self, references: list[Any]) -> None:
        """Free the objects in a list: at once in the main thread, otherwise in a new thread."""
        thread = threading.get_ident()
        if self._collecting == thread:
            self._garbage.append(references)
        elif thread == threading.main_thread().ident:
            references.clear()
        else:
            self._start(references, _FREEING_DELAY)

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = threading.get_ident()
            return
        self._collecting = None
        if self._garbage:
            references, self._garbage = self._garbage, []
            self._start(references, 0)

    def _start(self, references: list[Any], delay: float) -> None:
        def clear() -> None:
            time.sleep(delay)
            references.clear()

        try:
            _thread.start_new_thread(clear, ())
        except RuntimeError:  # the interpreter is exiting, or has no room for another thread
            self._never_freed.append(references)


_freeing = _Freeing()


def _with_original_errors(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except tf.errors.OpError as error:
        _raise_original(error)
        raise


def _raise_original(error: Exception) -> None:
    """Raise the callback's error that TensorFlow replaced by `error`; return if no such error is found."""
    callback_error = original(error)
    try:
        if callback_error is not None:
            raise callback_error from callback_error.__cause__  # keeps TensorFlow's error out of the traceback
    finally:
        del callback_error, error  # break the cycle of tracebacks and frames, which would keep the iterator alive
