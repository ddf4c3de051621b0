"""Datasets derived from a `ShardDataset`.

Each derived dataset knows its source and, if this is possible, the number of records that form one of its elements.
`counting.py` computes this number. This module must not change elements.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import StoreError
from ais_tar2tf.tfdata.batch_errors import BatchShapeErrors, explain_batch_errors
from ais_tar2tf.tfdata.counting import COUNT_ARGUMENTS, STAGES, UNKNOWN_ARGUMENT, Counting
from ais_tar2tf.tfdata.iterators import WrappedDataset, iterate
from ais_tar2tf.tfdata.tf import Dataset, tf

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset

__all__ = ["DerivedDataset"]


class DerivedDataset(WrappedDataset):
    """A tf.data.Dataset derived from a `ShardDataset`, for example by `.map(…).batch(32).prefetch(2)`.

    The dataset behaves like tf.data's own. In addition, `source` is the `ShardDataset`, and `counting` states how
    many records form one element, or why this number is unknown.
    """

    def __init__(
        self,
        inner: Dataset,
        source: ShardDataset | None,
        counting: Counting,
        make_portable: Callable[[], DerivedDataset] | None = None,
    ) -> None:
        self._source = source
        self._make_portable = make_portable
        self._process = os.getpid()
        self.counting: Counting = counting
        # Kept alive here, because the module `errors` has only a weak reference to this object.
        self._batch_errors: BatchShapeErrors | None = None
        super().__init__(inner)

    @property
    def source(self) -> ShardDataset:
        """The dataset that reads the shards."""
        assert self._source is not None
        return self._source

    def __iter__(self) -> Any:
        if os.getpid() != self._process:
            raise StoreError(
                "TensorFlow's threads do not survive a fork: make this dataset in the child", url=self.source.url
            )
        self.source.start.loops += 1
        return iterate(self, self.source.note_dropped)

    def __reduce__(self) -> tuple[Any, ...]:
        raise StoreError(
            "a dataset calls Python functions of its own process: send the source, and make the dataset there",
            url=self.source.url,
        )

    def apply(self, transformation_func: Callable[[Any], Any]) -> Any:
        """Call a function with this dataset, and return its result, as tf.data's own method does.

        Args:
            transformation_func: The function, such as `tf.data.experimental.service.distribute(…)`.
        """
        is_distributed = transformation_func.__module__.endswith(".data_service_ops")
        return super(DerivedDataset, self.portable() if is_distributed else self).apply(transformation_func)

    def portable(self) -> DerivedDataset:
        """Return this dataset without the native operation, which the processes of remote workers lack.

        Such a process can then execute the graph as far as the check that explains why it must not.
        """
        assert self._make_portable is not None
        return self._make_portable()

    def explain_batches(self) -> None:
        """If values of different shapes cannot be batched, make the error name the field of these values."""
        self._batch_errors = explain_batch_errors(self.element_spec)


def _counted(name: str) -> Callable[..., Any]:
    """Return the method `name` of tf.data.Dataset, changed so that the method returns a `DerivedDataset`."""
    original = getattr(Dataset, name)
    signature = inspect.signature(original)

    @wraps(original)
    def stage(self: DerivedDataset, *arguments: Any, **options: Any) -> DerivedDataset:
        made = original(self, *arguments, **options)
        bound = signature.bind(self, *arguments, **options)
        bound.apply_defaults()
        counting = self.counting.after(name, _count_arguments(bound.arguments))
        if name == "shard":
            self.source.agree_on_seed()
        staged = DerivedDataset(made, self.source, counting, lambda: stage(self.portable(), *arguments, **options))
        if name == "batch":
            staged.explain_batches()
        return staged

    return stage


def _count_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a stage, such as `.batch()`, that decide how many records form an element.

    A tensor becomes a Python number, or `UNKNOWN_ARGUMENT` if its value is known only when a graph runs. The result
    also has an entry `deterministic`: the value that the user gave to this option of tf.data, or None.
    """
    values = {name: arguments[name] for name in COUNT_ARGUMENTS & arguments.keys()}
    for name, value in values.items():
        if value is not None:
            constant = tf.get_static_value(tf.convert_to_tensor(value))
            values[name] = constant.item() if constant is not None and constant.size == 1 else UNKNOWN_ARGUMENT
    options = arguments.get("options")
    values["deterministic"] = arguments.get("deterministic") if options is None else options.deterministic
    return values


for _name in STAGES:
    if hasattr(Dataset, _name):  # some stages exist only in some versions of TensorFlow
        setattr(DerivedDataset, _name, _counted(_name))
