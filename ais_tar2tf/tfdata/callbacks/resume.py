"""The `Resume` callback: continues an interrupted training with the next batch.

It also makes each epoch of Keras read the records in the order of that epoch.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.documents.folders import sync
from ais_tar2tf.base.urls.locations import local_folder
from ais_tar2tf.errors import CheckpointError, OptionError, OptionTypeError
from ais_tar2tf.options import whole_number
from ais_tar2tf.tfdata.callbacks.keras import FitCallback, build
from ais_tar2tf.tfdata.callbacks.state import SLOTS, State, checksum, differences, read_state, write_state
from ais_tar2tf.tfdata.progress import EpochOffset

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.derived import DerivedDataset

__all__ = ["Resume"]

_STATE = "state.json"
_log = logging.getLogger("ais_tar2tf")


class Resume(FitCallback):
    """A callback for `fit` that continues an interrupted training with the next batch.

    With `folder`, the callback saves the weights and the optimizer's state after every epoch, or after every `every`
    batches, together with the place of the next record and the seed of the order. A new run finds these files, and
    reads exactly the records that the training has not consumed, even in the middle of a shuffled epoch, and even if
    the seed was drawn. The files are deleted when `fit` ends.

    Without `folder`, nothing is saved. The callback then only makes each epoch of Keras read the records in the order
    of that epoch. Use it together with Keras's own `BackupAndRestore`, which repeats an interrupted epoch from its
    start. The dataset then needs `seed=`.

    Put `Resume` first in the list of callbacks.

    Args:
        dataset: The dataset that `fit` gets. It is a dataset of `src.dataset(…)`, of `load_from_tar(…)` or of a
            mixture, or was derived from one by `.shuffle()`, `.repeat()`, `.map()`, `.batch()`, `.padded_batch()`,
            `.ragged_batch()`, `.prefetch()`, `.take()`, `.skip()`, `.shard()` or `.with_options()`. With `every`, and
            for an endless dataset, any other stage, such as `.filter()` or `.cache()`, is refused.
        folder: The folder for the state (`state.json`) and the weights. Each host needs a folder of its own.
        every: The number of batches between two saves; None to save after every epoch.
        batch: The number of records in a batch, if a dataset derived from `dataset` makes the batches.

    Raises:
        CheckpointError: In `fit`: the files in `folder` are damaged, or belong to a training with another dataset.
            The message names each difference.
        OptionError: The options do not fit, or batches cannot be counted. The message says why.
        OptionTypeError: `dataset` does not read shards.

    Example:
        train = ais.load_from_tar("train-{000..146}.tar").shuffle().batch(32)
        model.fit(train, epochs=90, callbacks=[t2t.Resume(train, "backup", every=100)])
    """

    def __init__(
        self,
        dataset: DerivedDataset,
        folder: str | os.PathLike[str] | None = None,
        *,
        every: int | None = None,
        batch: int | None = None,
    ) -> None:
        from ais_tar2tf.tfdata.callbacks.following import Follower
        from ais_tar2tf.tfdata.derived import DerivedDataset

        super().__init__()
        if not isinstance(dataset, DerivedDataset):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' code
            raise OptionTypeError(_not_ours(dataset))
        self._follower = Follower(dataset, None if batch is None else whole_number("batch", batch, minimum=1))
        self._folder = None if folder is None else Path(local_folder(folder, "the folder of the state"))
        self._every = None if every is None else whole_number("every", every, minimum=1)
        self._batch_was_given = batch is not None
        if every is not None:
            self._check_every()
        self._limit = dataset.source.request.reading.read.limits.state_bytes
        self._saved_weights: str | None = None  # the file of weights that the saved state names
        self._reset()

    def _check_every(self) -> None:
        if self._folder is None:
            raise OptionError("every= is a number of batches, and needs a folder")
        self._check_countable()
        if self._follower.batch is None:
            raise OptionError("the dataset was batched elsewhere: say batch=, the records in one batch")

    def _check_countable(self) -> None:
        refused = self._follower.counting.refused
        if refused is not None:
            remedy = "" if self._every is None else "Leave every= out to go on after whole epochs, or g"
            raise OptionError(
                f"Resume cannot go on in the middle of an epoch of this dataset: {refused}. {remedy or 'G'}ive "
                "Resume and fit a dataset without this stage"
            )

    def _reset(self) -> None:
        self._epoch = 0
        self._earlier_batches = 0  # the number of batches of this epoch that an earlier run consumed
        self._batches = 0  # the number of batches of this epoch that this run consumed
        self._restored: State | None = None  # the restored state, until the epoch that it names begins
        self._restored_iterations: int | None = None  # the optimizer's count of steps after it was restored
        self._has_begun = False
        self._stopped_epoch = False  # whether this callback set `stop_training` to end an epoch

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        self._reset()
        if self._folder is None:
            return
        self._follower.check_steps(self.params.get("steps"))
        self._check_workers()
        if self._follower.endless:
            self._check_countable()
        state = self._restore(self._folder)
        if state is not None:
            try:
                self._restored = state = self._at_next_batch(state)
            except CheckpointError as error:
                raise CheckpointError(f"{self._folder / _STATE}: {error}") from error
            self._epoch, self._earlier_batches = state.epoch, state.batches
            self.model._initial_epoch = state.epoch  # as Keras's own BackupAndRestore does
        if self._every is not None or self._follower.endless or self._earlier_batches:
            self._follower.follow()

    def _check_workers(self) -> None:
        from ais_tar2tf.tfdata.tf import has_several_workers

        if self._every is not None and has_several_workers() and not self._batch_was_given:
            raise OptionError(
                "a strategy of several workers gives each of them a part of every batch: give Resume batch=, the "
                "records that this worker trains on in one step, or leave every= out"
            )

    def _at_next_batch(self, state: State) -> State:
        """Return the state; if Keras's epoch has no more batches, return it for the start of the next epoch.

        An endless dataset goes on in the middle of its own epoch, if that has more batches.
        """
        place, follower = state.place, self._follower
        assert place is not None
        is_over = state.batches >= self._max_batches
        if place == EpochOffset(place.epoch) or (not is_over and follower.has_batch(place)):
            return state
        if follower.endless:
            next_place = place if follower.has_batch(place) else EpochOffset(place.epoch + follower.epochs)
            state = replace(state, place=next_place)
            return replace(state, epoch=state.epoch + 1, batches=0) if is_over else state
        return replace(
            state, epoch=state.epoch + 1, batches=0, place=EpochOffset((state.epoch + 1) * follower.epochs)
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        state, self._restored = self._restored, None
        self._epoch, self._batches = epoch, 0
        if state is not None and state.epoch == epoch and state.place is not None:
            self._check_weights(state)
            self._follower.begin_at(state.place)
        else:
            self._earlier_batches = 0
            if not self._has_begun or not self._follower.endless:
                self._follower.begin_at(EpochOffset(epoch * self._follower.epochs))
        self._has_begun = True
        self._follower.epoch_begins()

    def _check_weights(self, state: State) -> None:
        """Refuse weights that another callback loaded after this one: they do not belong to the restored place."""
        if state.batches and self._restored_iterations != self._optimizer_iterations():
            raise CheckpointError(
                f"{self._folder}: another callback (BackupAndRestore?) loaded other weights after Resume did, so "
                "records would be left out; use one of both with a folder"
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        before, done = self._earlier_batches + self._batches, self._earlier_batches + batch + 1
        self._follower.consumed(batch + 1 - self._batches)
        self._batches = batch + 1
        if self._every is not None and done // self._every > before // self._every:
            self._save(self._epoch, done, self._offset())
        if self._earlier_batches and not self.model.stop_training and self._is_last(done):
            # Otherwise Keras requests another batch, counts it as a step, and expects every epoch to be this short.
            self.model.stop_training = self._stopped_epoch = True

    def _is_last(self, done: int) -> bool:
        """Return whether an epoch that an earlier run began has no more batches."""
        return done >= self._max_batches or not (self._follower.endless or self._follower.has_next())

    @property
    def _max_batches(self) -> float:
        """The number of batches in a whole epoch; infinity if neither Keras nor the dataset knows the number."""
        return min(self.params.get("steps") or float("inf"), self._follower.counting.max_elements)

    def _offset(self) -> EpochOffset:
        return self._follower.offset(surplus=(getattr(self.model, "steps_per_execution", None) or 1) - 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self._stopped_epoch:
            self.model.stop_training = self._stopped_epoch = False
        if self._folder is not None:
            is_within = self._follower.endless and self._batches
            next_place = self._offset() if is_within else EpochOffset((epoch + 1) * self._follower.epochs)
            self._save(epoch + 1, 0, next_place)
        self._earlier_batches = self._batches = 0

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        if self._folder is None:
            return
        self._follower.leave()
        self.model._initial_epoch = 0
        for name in {_STATE, f"{_STATE}.part", *SLOTS, *([self._saved_weights] if self._saved_weights else [])}:
            (self._folder / name).unlink(missing_ok=True)
        self._saved_weights = None

    def _save(self, epoch: int, batches: int, place: EpochOffset) -> None:
        """Write the weights to the file that the saved state does not name, and then a state that names this file."""
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        slot = SLOTS[self._saved_weights == SLOTS[0]]
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
        if self._saved_weights is not None and self._saved_weights not in SLOTS:  # written by an earlier version
            (self._folder / self._saved_weights).unlink(missing_ok=True)
        self._saved_weights = slot

    def _restore(self, folder: Path) -> State | None:
        """Load the weights and the optimizer from the folder. Return the saved state; None if there is none."""
        state = read_state(folder / _STATE, most=self._limit)
        if state is None:
            return None
        self._check_dataset(state, folder)
        self._load_weights(state, folder / state.weights)
        self._saved_weights = state.weights
        self._restored_iterations = self._optimizer_iterations()
        if state.place is None:
            return replace(state, place=EpochOffset(state.epoch, state.batches * (state.batch or 0)))
        return state

    def _check_dataset(self, state: State, folder: Path) -> None:
        """Refuse a dataset whose order of records differs from that of the saved training. Use the saved seed."""
        follower, differing = self._follower, list[str]()
        if state.batch != follower.batch and (state.batches or state.dataset is not None):
            differing.append(f"it has batches of {state.batch} records, these have {follower.batch}")
        if state.dataset is not None:
            differing += differences(state.dataset, follower.described)
        if state.seed is not None and not follower.agree_on_seed(state.seed):
            differing.append(f"seed: {state.seed} then, {follower.seed} now")
        if differing:
            raise CheckpointError(
                f"{folder / _STATE}: the training was saved with another dataset: {'; '.join(differing)}. Make the "
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
