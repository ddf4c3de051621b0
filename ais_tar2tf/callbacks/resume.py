"""Keras's `fit` and the order of records: which epoch is read, and going on in the middle of one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ais_tar2tf.callbacks._keras import FitCallback
from ais_tar2tf.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.dataset import ShardDataset

__all__ = ["Resume"]

_STATE = "state.json"


class Resume(FitCallback):
    """A callback for `fit`: the data's epoch is always Keras's; with `folder`, training goes on where it was.

    `dataset` is what `src.dataset(…)` or its `shuffle` gave; `fit` may get whatever was made of it. Without `folder`
    it belongs beside Keras's own `BackupAndRestore`, which begins a broken epoch again: then in the same order.
    With `folder`, weights and the optimizer are kept after every epoch, and after every `every` batches of `batch`
    records (by default the dataset's own); a run that finds them goes on with the next batch. They are deleted when
    `fit` ends. Put it first among the callbacks.
    """

    def __init__(
        self,
        dataset: ShardDataset,
        folder: str | os.PathLike[str] | None = None,
        *,
        every: int | None = None,
        batch: int | None = None,
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self._folder = None if folder is None else Path(folder)
        self._every = every
        self._batch = batch or dataset.batch_size
        if every is not None and (every < 1 or self._folder is None):
            raise OptionError("every= is a number of batches, and needs a folder")
        if every is not None and self._batch is None:
            raise OptionError("the dataset was batched elsewhere: say batch=, the records in one batch")
        self._epoch = 0
        self._done = 0  # batches of the first epoch that an earlier run did
        self._ended_early = False

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        state = self._restored()
        if state is None:
            return
        self._epoch, self._done = state["epoch"], state["batches"]
        if self._done >= self._batches:
            self._epoch, self._done = self._epoch + 1, 0
        self.model._initial_epoch = self._epoch  # as Keras's own BackupAndRestore does

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        if epoch != self._epoch:
            self._epoch, self._done = epoch, 0
        self._dataset.begin_at(epoch, self._done * (self._batch or 0))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        done = self._done + batch + 1
        if self._every is not None and done % self._every == 0:
            self._save(self._epoch, done)
        if self._done and done >= self._batches and not self.model.stop_training:
            # This epoch is shorter than Keras was told, and asking for one batch more would count as a step.
            self.model.stop_training = self._ended_early = True

    @property
    def _batches(self) -> float:
        """Of a whole epoch, as far as Keras was told."""
        return self.params.get("steps") or float("inf")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self._ended_early:
            self.model.stop_training = self._ended_early = False
        self._done = 0
        if self._folder is not None:
            self._save(epoch + 1, 0)

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        if self._folder is None:
            return
        self.model._initial_epoch = 0
        (self._folder / _STATE).unlink(missing_ok=True)
        self._sweep(keep=None)

    def _save(self, epoch: int, batches: int) -> None:
        """Weights first, under a name of their own; then, at once, the state that names them."""
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        weights = f"epoch-{epoch}-{batches}.weights.h5"
        self.model.save_weights(self._folder / weights, overwrite=True)
        beside = self._folder / f"{_STATE}.part"
        beside.write_text(json.dumps({"epoch": epoch, "batches": batches, "batch": self._batch, "weights": weights}))
        beside.replace(self._folder / _STATE)
        self._sweep(keep=weights)

    def _sweep(self, keep: str | None) -> None:
        assert self._folder is not None
        for old in self._folder.glob("epoch-*.weights.h5"):
            if old.name != keep:
                old.unlink(missing_ok=True)

    def _restored(self) -> dict[str, Any] | None:
        """Weights and optimizer as they were; where that was."""
        if self._folder is None or not (self._folder / _STATE).exists():
            return None
        state: dict[str, Any] = json.loads((self._folder / _STATE).read_text())
        if state["batches"] and state["batch"] != self._batch:
            raise CheckpointError(
                f"{self._folder} is of batches of {state['batch']} records, these have {self._batch}: "
                "make the dataset as it was made then, or delete the folder"
            )
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self.model.load_weights(self._folder / state["weights"])
        return state
