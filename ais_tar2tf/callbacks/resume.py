"""Keras's `fit` and the order of records: which epoch is read, and going on in the middle of one."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ais_tar2tf.callbacks._keras import FitCallback, build
from ais_tar2tf.callbacks.state import SLOTS, State, checksum, differences, read_state, write_state
from ais_tar2tf.errors import CheckpointError, OptionError, OptionTypeError
from ais_tar2tf.locations import local_folder
from ais_tar2tf.options import whole_number
from ais_tar2tf.owned import sync
from ais_tar2tf.tfdata.begin import Place

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.staged import StagedDataset

__all__ = ["Resume"]

_STATE = "state.json"
_log = logging.getLogger("ais_tar2tf")


class Resume(FitCallback):
    """A callback for `fit`: with `folder`, a training that broke off goes on with the next batch.

    Weights and optimizer are kept after every epoch, and after every `every` batches, together with the place of the
    next record and the seed of the order. A new run that finds them reads exactly the records that are missing, also
    in the middle of a shuffled epoch and also when the seed was drawn. The files are deleted when `fit` ends.

    Without `folder` nothing is kept: the data only begins each of Keras's epochs in the order of that epoch. That
    belongs beside Keras's own `BackupAndRestore`, which begins a broken epoch again; it needs a dataset with `seed=`.

    Args:
        dataset: What `fit` gets: a dataset of `src.dataset(…)`, `load_from_tar(…)` or a mixture, or what
            `.shuffle()`, `.repeat()`, `.map()`, `.batch()`, `.padded_batch()`, `.prefetch()`, `.take()`, `.skip()`,
            `.shard()` and `.with_options()` make of it. Other stages, as `.filter()` or `.cache()`, are refused with
            `every`.
        folder: Where to keep the state, `state.json`, and the weights. Each host needs a folder of its own.
        every: After how many batches they are kept; None: after every epoch.
        batch: The records in a batch, where `dataset` is batched after it was given to `Resume`.

    Raises:
        CheckpointError: In `fit`: the folder is of another dataset (the message names each difference), or damaged.
        OptionError: The records of a batch cannot be counted; the message names the stage of the dataset.

    Put it first among the callbacks.

    Example:
        train = ais.load_from_tar("train-{000..146}.tar").shuffle().batch(32)
        model.fit(train, epochs=90, callbacks=[t2t.Resume(train, "backup", every=100)])
    """

    def __init__(
        self,
        dataset: StagedDataset,
        folder: str | os.PathLike[str] | None = None,
        *,
        every: int | None = None,
        batch: int | None = None,
    ) -> None:
        from ais_tar2tf.callbacks.following import Follower
        from ais_tar2tf.tfdata.staged import StagedDataset

        super().__init__()
        if not isinstance(dataset, StagedDataset):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' code
            raise OptionTypeError(_not_ours(dataset))
        self._follower = Follower(dataset, None if batch is None else whole_number("batch", batch, least=1))
        self._folder = None if folder is None else Path(local_folder(folder, "the folder of the state"))
        self._every = None if every is None else whole_number("every", every, least=1)
        self._batch_was_given = batch is not None
        if every is not None:
            self._check_every()
        self._limit = dataset.source.request.reading.read.limits.state_bytes
        self._kept: str | None = None  # the file of the weights that the state names
        self._reset()

    def _check_every(self) -> None:
        if self._folder is None:
            raise OptionError("every= is a number of batches, and needs a folder")
        if self._follower.counting.refused is not None:
            raise OptionError(_not_followed(self._follower.counting.refused))
        if self._follower.batch is None:
            raise OptionError("the dataset was batched elsewhere: say batch=, the records in one batch")

    def _reset(self) -> None:
        self._epoch = 0
        self._done = 0  # batches of this epoch that an earlier run did
        self._steps = 0  # batches of this epoch that this run did
        self._goes_on: State | None = None  # until the epoch that it names begins
        self._iterations: int | None = None  # of the optimizer, as it was restored
        self._begun = False
        self._ended_early = False

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        self._reset()
        if self._folder is None:
            return
        self._follower.check_steps(self.params.get("steps"))
        self._check_workers()
        if self._follower.endless and self._follower.counting.refused is not None:
            raise OptionError(_not_followed(self._follower.counting.refused))
        state = self._restored(self._folder)
        if state is not None:
            try:
                self._goes_on = state = self._at_a_batch(state)
            except CheckpointError as error:
                raise CheckpointError(f"{self._folder / _STATE}: {error}") from error
            self._epoch, self._done = state.epoch, state.batches
            self.model._initial_epoch = state.epoch  # as Keras's own BackupAndRestore does
        if self._every is not None or self._follower.endless or self._done:
            self._follower.follow()

    def _check_workers(self) -> None:
        from ais_tar2tf.tfdata.workers import several_workers

        if self._every is not None and several_workers() and not self._batch_was_given:
            raise OptionError(
                "a strategy of several workers gives each of them a part of every batch: give Resume batch=, the "
                "records that this worker trains on in one step, or leave every= out"
            )

    def _at_a_batch(self, state: State) -> State:
        """The same state, or the start of the next epoch where no batch of this one is left."""
        place, follower = state.place, self._follower
        assert place is not None
        if place == Place(place.epoch) or (state.batches < self._batches and follower.has_batch(place)):
            return state
        if follower.endless:
            return replace(state, place=Place(place.epoch + follower.epochs))
        return replace(state, epoch=state.epoch + 1, batches=0, place=Place((state.epoch + 1) * follower.epochs))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        state, self._goes_on = self._goes_on, None
        self._epoch, self._steps = epoch, 0
        if state is not None and state.epoch == epoch and state.place is not None:
            self._check_weights(state)
            self._follower.begin_at(state.place)
        else:
            self._done = 0
            if not self._begun or not self._follower.endless:
                self._follower.begin_at(Place(epoch * self._follower.epochs))
        self._begun = True
        self._follower.epoch_begins()

    def _check_weights(self, state: State) -> None:
        """Weights and place belong together: another callback must not have loaded others meanwhile."""
        if state.batches and self._iterations != self._optimizer_iterations():
            raise CheckpointError(
                f"{self._folder}: another callback (BackupAndRestore?) loaded other weights after Resume did, so "
                "records would be left out; use one of both with a folder"
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        before, done = self._done + self._steps, self._done + batch + 1
        self._follower.consumed(batch + 1 - self._steps)
        self._steps = batch + 1
        if self._every is not None and done // self._every > before // self._every:
            self._save(self._epoch, done, self._place())
        if self._done and not self.model.stop_training and self._is_last(done):
            # Keras would count a step for the batch that is not there, and believe that every epoch is as short.
            self.model.stop_training = self._ended_early = True

    def _is_last(self, done: int) -> bool:
        """Whether no batch is left of an epoch that an earlier run began."""
        return done >= self._batches or not (self._follower.endless or self._follower.has_next())

    @property
    def _batches(self) -> float:
        """The batches of a whole epoch, as far as Keras and the dataset know."""
        return min(self.params.get("steps") or float("inf"), self._follower.counting.most)

    def _place(self) -> Place:
        return self._follower.place(surplus=(getattr(self.model, "steps_per_execution", None) or 1) - 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self._ended_early:
            self.model.stop_training = self._ended_early = False
        if self._folder is not None:
            goes_on = self._follower.endless and self._steps
            following = self._place() if goes_on else Place((epoch + 1) * self._follower.epochs)
            self._save(epoch + 1, 0, following)
        self._done = self._steps = 0

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        if self._folder is None:
            return
        self._follower.leave()
        self.model._initial_epoch = 0
        for name in {_STATE, f"{_STATE}.part", *SLOTS, *([self._kept] if self._kept else [])}:
            (self._folder / name).unlink(missing_ok=True)
        self._kept = None

    def _save(self, epoch: int, batches: int, place: Place) -> None:
        """Write the weights into the slot that is free, then the state that names them."""
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        slot = SLOTS[self._kept == SLOTS[0]]
        weights = self._folder / slot
        self.model.save_weights(weights, overwrite=True)
        sync(weights)
        state = State(
            epoch=epoch,
            batches=batches,
            batch=self._follower.batch,
            seed=self._follower.seed,
            place=place,
            dataset=self._follower.described,
            weights=slot,
            weights_checksum=checksum(weights),
        )
        write_state(self._folder / _STATE, state)
        if self._kept is not None and self._kept not in SLOTS:  # of an earlier version, which its state named
            (self._folder / self._kept).unlink(missing_ok=True)
        self._kept = slot

    def _restored(self, folder: Path) -> State | None:
        """The state that the folder holds, with weights and optimizer as they were then; None when it holds none."""
        state = read_state(folder / _STATE, most=self._limit)
        if state is None:
            return None
        self._check_dataset(state, folder)
        self._load_weights(state, folder / state.weights)
        self._kept = state.weights
        self._iterations = self._optimizer_iterations()
        if state.place is None:
            return replace(state, place=Place(state.epoch, state.batches * (state.batch or 0)))
        return state

    def _check_dataset(self, state: State, folder: Path) -> None:
        """Take over a drawn seed, and refuse a dataset whose records come in another order."""
        follower, found = self._follower, list[str]()
        if state.batch != follower.batch and (state.batches or state.dataset is not None):
            found.append(f"it has batches of {state.batch} records, these have {follower.batch}")
        if state.dataset is not None:
            found += differences(state.dataset, follower.described)
        if state.seed is not None and not follower.agree_on_seed(state.seed):
            found.append(f"seed: {state.seed} then, {follower.seed} now")
        if found:
            raise CheckpointError(
                f"{folder / _STATE}: the training was saved with another dataset: {'; '.join(found)}. Make the "
                f"dataset as it was made then; or delete the file to begin again, after loading {state.weights} "
                "yourself if you want to keep the weights"
            )
        if state.seed is None and state.batches:
            _log.warning(
                "%s: an earlier version saved this training without its seed; unless seed= is what it was then, some "
                "records of the broken epoch are read twice and others are not read",
                folder / _STATE,
            )

    def _load_weights(self, state: State, weights: Path) -> None:
        if not self.model.built:
            build(self.model, self._follower.element_spec)
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        try:
            if state.weights_checksum and checksum(weights) != state.weights_checksum:
                raise CheckpointError("its checksum is not the one in the state")
            self.model.load_weights(weights)
        except (OSError, ValueError, KeyError) as error:
            if not self.model.built:
                raise CheckpointError(
                    f"{weights}: the weights of the training cannot be loaded before the model is built, and its "
                    "layers do not say what it takes. Give it a keras.Input, or call it on one batch before fit; "
                    "nothing is lost"
                ) from error
            raise CheckpointError(
                f"{weights}: the weights of the training cannot be loaded ({error}); they are damaged, or of another "
                f"model. Delete {_STATE} beside them to begin again"
            ) from error

    def _optimizer_iterations(self) -> int | None:
        from keras.ops import convert_to_numpy

        optimizer = self.model.optimizer
        if optimizer is None:
            return None
        iterations: Any = convert_to_numpy(optimizer.iterations)
        return int(iterations)


def _not_ours(dataset: Any) -> str:
    return (
        "Resume follows datasets of src.dataset(…), load_from_tar(…) and t2t.mix(…).dataset(…); "
        f"{dataset!r} is none, and was not made of one by methods of tf.data.Dataset alone. "
        "Give it the dataset that this one was made of, with batch=. "
        "Record files, as t2t.load reads them, are shards, too: t2t.open('out/*.tfrecord*').dataset(…)"
    )


def _not_followed(refused: str) -> str:
    return (
        f"Resume cannot go on in the middle of an epoch of this dataset: {refused}. Leave every= out to go on after "
        "whole epochs, or give Resume and fit a dataset without this stage"
    )
