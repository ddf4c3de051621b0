"""Datasets made of ours by stages of tf.data: they still know their source, and the records in each element."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import StoreError
from ais_tar2tf.tfdata.counting import AMOUNTS, STAGES, UNKNOWN, Counting
from ais_tar2tf.tfdata.graphs import Dataset, tf
from ais_tar2tf.tfdata.iterating import iterate
from ais_tar2tf.tfdata.unequal import Unequal, find_unequal

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset

__all__ = ["StagedDataset"]


class StagedDataset(Dataset):
    """A tf.data.Dataset made of a `ShardDataset`, as by `.map(…).batch(32).prefetch(2)`.

    It is tf.data's own dataset in every respect. In addition, `source` is the dataset that it was made of, and
    `counting` says how many records one element takes, or why that cannot be known.
    """

    def __init__(self, inner: Dataset, source: ShardDataset | None, counting: Counting) -> None:
        self._inner = inner
        self._source = source
        self._process = os.getpid()
        self.counting: Counting = counting
        self._unequal: Unequal | None = None  # known by its weak reference as long as this dataset lives
        super().__init__(inner._variant_tensor)

    @property
    def source(self) -> ShardDataset:
        """The dataset that this one was made of; it reads the shards."""
        assert self._source is not None
        return self._source

    def __iter__(self) -> Any:
        if os.getpid() != self._process:
            raise StoreError(
                "TensorFlow's threads do not survive a fork: make this dataset in the child", url=self.source.url
            )
        self.source.begin.loops += 1
        return iterate(self, self.source.note_dropped)

    def __reduce__(self) -> tuple[Any, ...]:
        raise StoreError(
            "a dataset calls Python of the process that made it: send the source, and make the dataset there",
            url=self.source.url,
        )

    def explain_batches(self) -> None:
        """Let the error of a batch that cannot be made name the field."""
        self._unequal = find_unequal(self.element_spec)

    def _inputs(self) -> list[Dataset]:
        return [self._inner]

    @property
    def element_spec(self) -> Any:
        return self._inner.element_spec


def _stage(name: str) -> Callable[..., Any]:
    """A method of tf.data.Dataset whose result is a StagedDataset."""
    original = getattr(Dataset, name)
    signature = inspect.signature(original)

    @wraps(original)
    def stage(self: StagedDataset, *arguments: Any, **options: Any) -> StagedDataset:
        made = original(self, *arguments, **options)
        bound = signature.bind(self, *arguments, **options)
        bound.apply_defaults()
        counting = self.counting.after(name, _known(bound.arguments))
        if name == "shard":
            self.source.agree_on_seed()
        staged = StagedDataset(made, self.source, counting)
        if name == "batch":
            staged.explain_batches()
        return staged

    return stage


def _known(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a stage that decide how it counts, as Python's own numbers."""
    known = {name: arguments[name] for name in AMOUNTS & arguments.keys()}
    for name, value in known.items():
        if value is not None:
            found = tf.get_static_value(tf.convert_to_tensor(value))
            known[name] = found.item() if found is not None and found.size == 1 else UNKNOWN
    options = arguments.get("options")
    known["deterministic"] = arguments.get("deterministic") if options is None else options.deterministic
    return known


for _name in STAGES:
    if hasattr(Dataset, _name):  # which of them there are depends on TensorFlow's version
        setattr(StagedDataset, _name, _stage(_name))
