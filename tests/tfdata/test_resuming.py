"""t2t.Resume: an interrupted training continues with exactly the missing records, or is refused with the reason."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.sealed import document_bytes
from ais_tar2tf.errors import CheckpointError, OptionError
from ais_tar2tf.options import Limits, Shuffle
from ais_tar2tf.tfdata.callbacks.state import SLOTS, read_state
from ais_tar2tf.tfdata.counting import STAGES, Counting
from ais_tar2tf.tfdata.derived import DerivedDataset
from ais_tar2tf.tfdata.progress import EpochOffset, ProgressLog
from tests.support import shards as made

ROOT = Path(__file__).parents[2]
SHARDS, EACH = 4, 25
TOTAL = SHARDS * EACH
SMALL = Limits(chunk_records=9)  # gives several chunks in each epoch


@pytest.fixture(scope="module")
def resuming_folder(tmp_path_factory) -> Path:
    """Write 100 records in four shards, with an index in `indexed/`, and other shards of these names in `more/`."""
    path = tmp_path_factory.mktemp("resuming")
    for place in (path, path / "indexed", path / "more"):
        place.mkdir(exist_ok=True)
        for number in range(SHARDS):
            shard = made.labelled(f"s{number}", EACH, lambda i, n=number: {"cls": b"%d" % (n * EACH + i)})
            (place / f"{number}.tar").write_bytes(shard)
    t2t.index(f"{path}/indexed/{{0..3}}.tar")
    return path


def number(record):
    return tf.strings.to_number(record["cls"], tf.int32)


class Recorder(tf.keras.Model):
    """A model that keeps the records of every batch. Its only weight counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = self.add_weight(shape=(), initializer="zeros", name="batches")
        self.built = True
        self.seen: list[list[int]] = []
        self.compile(optimizer="sgd", run_eagerly=True)

    def train_step(self, data):
        self.seen.append(data.numpy().ravel().tolist())
        self.batches.assign_add(1)
        return {"batches": self.batches}

    def test_step(self, data):
        del data
        return {"batches": self.batches}


class Break(tf.keras.callbacks.Callback):
    """Interrupts the training after `after` batches, as the end of the process would."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002  # Keras names it
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def fit(dataset, *callbacks, epochs=2, **how) -> Recorder:
    model = Recorder()
    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Your input ran out of data"
        )  # without a length, so that Keras has to count the batches
        model.fit(dataset, epochs=epochs, verbose=0, callbacks=list(callbacks), **how)
    return model


# Exactly the missing records


def source(folder: Path, *, indexed: bool = False):
    return t2t.open(f"{folder}/{'indexed/' if indexed else ''}{{0..3}}.tar", limits=SMALL)


def of_mixture(folder: Path, at_end: str, seed: int | None, **how):
    src = source(folder)
    mixture = t2t.mix([src, source(folder, indexed=True)], weights=[2, 1], at_end=at_end)
    return mixture.dataset(number, shuffle=Shuffle(window=20), seed=seed, **how).batch(8), mixture


def of_source(folder: Path, seed: int | None, make, *, indexed: bool = False, **how):
    src = source(folder, indexed=indexed)
    shuffle = how.pop("shuffle", Shuffle(window=20, shards=2))
    return make(src.dataset(number, shuffle=shuffle, seed=seed, **how)), src


def described(dataset):
    options = tf.data.Options()
    options.deterministic = True
    return dataset.map(lambda n: n + 0, num_parallel_calls=2).batch(7).prefetch(2).with_options(options)


CASES = {
    "shuffle": lambda f, seed: (lambda src: (src.dataset(number).shuffle(20, seed).batch(8).prefetch(2), src))(
        source(f)
    ),
    "described": lambda f, seed: of_source(f, seed, described),
    "described, indexed": lambda f, seed: of_source(f, seed, described, indexed=True),
    "batch=": lambda f, seed: of_source(f, seed, lambda d: d, batch=8, indexed=True),
    "batch=, drop": lambda f, seed: of_source(f, seed, lambda d: d, batch=8, drop_remainder=True),
    "drop": lambda f, seed: of_source(f, seed, lambda d: d.batch(9, drop_remainder=True), indexed=True),
    "batches of batches": lambda f, seed: of_source(f, seed, lambda d: d.batch(4).batch(2, drop_remainder=True)),
    "in order": lambda f, _: of_source(f, None, lambda d: d.batch(8), shuffle=None),
    "global": lambda f, seed: of_source(f, seed, lambda d: d.batch(8), shuffle="global", indexed=True),
    "padded": lambda f, seed: of_source(f, seed, lambda d: d.map(lambda n: n[tf.newaxis]).padded_batch(8)),
    "repeat=2": lambda f, seed: of_source(f, seed, lambda d: d.batch(16), repeat=2),
    "skip": lambda f, seed: of_source(f, seed, lambda d: d.batch(8).skip(2)),
    "take": lambda f, seed: of_source(f, seed, lambda d: d.take(60).batch(5), indexed=True),
    "take, length unknown": lambda f, seed: of_source(f, seed, lambda d: d.batch(5).take(11)),
    "shard": lambda f, seed: of_source(f, seed, lambda d: d.shard(3, 1).batch(3)),
    "shard=": lambda f, seed: of_source(f, seed, lambda d: d.batch(4), shard=(1, 2)),
    "shard=, pad": lambda f, seed: of_source(f, seed, lambda d: d.batch(4), shard=(2, 3), even="pad"),
    "more hosts than shards": lambda f, seed: of_source(f, seed, lambda d: d.batch(1), shard=(5, 7), even="drop"),
    "start_at": lambda f, seed: of_source(f, seed, lambda d: d.batch(8), start_at=15),
    "mixture, stop": lambda f, seed: of_mixture(f, "stop", seed),
    "mixture, drop": lambda f, seed: of_mixture(f, "drop", seed),
    "mixture, repeat, shard=": lambda f, seed: of_mixture(f, "repeat", seed, shard=(0, 2)),
}


EVERY_DAY = (
    "shuffle",
    "described, indexed",
    "batch=",
    "batches of batches",
    "global",
    "take, length unknown",
    "skip",
    "shard=, pad",
    "mixture, repeat, shard=",
)


class Length(tf.keras.callbacks.Callback):
    """Records the number of batches of the first epoch."""

    batches = 0

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  # Keras names it
        self.batches = self.batches or len(self.model.seen)


@pytest.mark.parametrize(
    "case", [case if case in EVERY_DAY else pytest.param(case, marks=pytest.mark.full) for case in CASES]
)
def test_a_training_continues_with_the_missing_records(resuming_folder, tmp_path, case):
    """Interrupt a training without a seed in epoch 1, and one with a seed at the end of epoch 1 or in epoch 2."""
    make = CASES[case]

    def run(name: str, seed: int | None, after: int, every: int) -> tuple[list[list[int]], int]:
        dataset, src = make(resuming_folder, seed)
        return fit(dataset, t2t.Resume(dataset, tmp_path / name, every=every), Break(after)).seen, src.stats.seed

    def check(name: str, given: int | None, after: int, every: int) -> None:
        seen, seed = run(name, given, after, every)
        dataset, _ = make(resuming_folder, seed)
        length = Length()
        expected = fit(dataset, t2t.Resume(dataset), length).seen
        assert seen == expected[:after]
        kept = json.loads((tmp_path / name / "state.json").read_text())
        done = kept["epoch"] * length.batches + kept["batches"]
        assert after - every < done <= after
        assert run(name, given, 0, every)[0] == expected[done:]
        assert not list((tmp_path / name).iterdir())

    check("unseeded", None, 5, 3)
    dataset, _ = make(resuming_folder, 3)
    length = Length()
    fit(dataset, length, epochs=1)
    check("seeded", 3, length.batches + (2 if len(case) % 2 else 0), 2)


ENDLESS = {
    "repeat=": lambda d: d.repeat().batch(7),
    "after batches": lambda d: d.batch(7).repeat().prefetch(2),
    "after a map": lambda d: d.map(lambda n: n + 0).repeat().batch(9),
    "between batches": lambda d: d.batch(3, drop_remainder=True).repeat().batch(2),
}


@pytest.mark.parametrize("chain", ENDLESS)
def test_a_dataset_without_an_end(resuming_folder, tmp_path, chain):
    """With `steps_per_epoch`, one iterator serves all epochs, and its position is kept."""

    def data(seed: int | None):
        src = source(resuming_folder)
        return ENDLESS[chain](src.dataset(number, shuffle=Shuffle(window=20, shards=2), seed=seed)), src

    def run(seed: int | None, *callbacks, **resume):
        dataset, src = data(seed)
        kept = t2t.Resume(dataset, **resume)
        return fit(dataset, kept, *callbacks, epochs=5, steps_per_epoch=8).seen, src.stats.seed

    backup = {"folder": tmp_path, "every": 3}
    seen, seed = run(None, Break(29), **backup)  # batch 4 of epoch 3, and of the data's second or third epoch
    assert (len(seen), json.loads((tmp_path / "state.json").read_text())["batches"]) == (29, 3)
    rest, _ = run(None, **backup)
    expected, _ = run(seed)
    assert len(expected) == 40
    assert seen == expected[:29]
    assert rest == expected[27:]


@pytest.mark.parametrize("chain", ENDLESS)
def test_an_interruption_at_the_last_batch_of_an_epoch_of_a_dataset_without_an_end(resuming_folder, tmp_path, chain):
    """The next epoch of Keras begins where the last batch ended, in the middle of an epoch of the data."""

    def run(*callbacks):
        chosen = source(resuming_folder).dataset(number, shuffle=Shuffle(window=20, shards=2), seed=1)
        dataset = ENDLESS[chain](chosen)
        kept = t2t.Resume(dataset, tmp_path, every=4)
        return fit(dataset, kept, *callbacks, epochs=5, steps_per_epoch=8).seen

    seen = run(Break(16))
    state = json.loads((tmp_path / "state.json").read_text())
    assert (len(seen), state["epoch"], state["batches"]) == (16, 1, 8)
    rest = run()
    expected = run()
    assert len(expected) == 40
    assert seen + rest == expected


def test_weights_match_the_batches_that_were_read(resuming_folder, tmp_path):
    """Use Keras's own loop, an optimizer with state, validation, and several batches in each step."""

    def data(seed=None):
        def pair(record):
            value = tf.strings.to_number(record["cls"], tf.float32)
            return tf.reshape(value, (1,)), value / 100

        return source(resuming_folder, indexed=True).dataset(pair, shuffle=True, seed=seed).batch(8)

    def run(*callbacks, epochs=3):
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.Adam(0.01), "mse", steps_per_execution=2)
        validation = source(resuming_folder).dataset(lambda r: (tf.ones((1,)), tf.strings.length(r["cls"]))).batch(10)
        with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Your input ran out of data")
            history = model.fit(train, epochs=epochs, verbose=0, callbacks=callbacks, validation_data=validation)
            assert "val_loss" in history.history
        return model.get_weights(), int(model.optimizer.iterations)

    train = data()
    run(t2t.Resume(train, tmp_path, every=3), Break(11))  # of two batches each: 22 of 39
    kept = json.loads((tmp_path / "state.json").read_text())
    assert (kept["epoch"], kept["batches"]) == (1, 6)
    train = data()
    weights, iterations = run(t2t.Resume(train, tmp_path, every=3))
    train = data(kept["seed"])
    expected, expected_iterations = run(t2t.Resume(train))
    assert iterations == expected_iterations == 39
    for one, other in zip(weights, expected, strict=True):
        tf.debugging.assert_near(one, other, rtol=1e-5)


class Called(tf.keras.Model):
    """A model whose layers do not declare its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = tf.keras.layers.Dense(1)

    def call(self, batch):
        return self.layer(batch)


class Unlike(Called):
    """A model whose layer gets another input than the dataset's elements."""

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0][:, :1])[:, 0] - data[1])
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}

    def call(self, batch):
        if batch.shape[-1] != 1:
            raise TypeError("one feature")
        return super().call(batch)


def without_input() -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])


@pytest.mark.parametrize("made", [without_input, Called, Unlike])
def test_a_model_that_is_built_by_its_first_batch(resuming_folder, tmp_path, made):
    """Weights are loaded before the first batch, or an error names the remedy and keeps the weights."""

    def run(*callbacks, epochs=2):
        def pair(record):
            value = tf.strings.to_number(record["cls"], tf.float32)
            return tf.stack([value, value]) / 100 if made is Unlike else value[tf.newaxis] / 100, value / 100

        tf.keras.utils.set_random_seed(1)
        model = made()
        model.compile(tf.keras.optimizers.Adam(0.01), "mse")
        train = source(resuming_folder, indexed=True).dataset(pair, shuffle=True, seed=3, batch=20)
        with contextlib.suppress(KeyboardInterrupt):
            model.fit(train, epochs=epochs, verbose=0, callbacks=[t2t.Resume(train, tmp_path, every=1), *callbacks])
        return model.get_weights(), int(model.optimizer.iterations)

    run(Break(3))
    if made is Unlike:
        with pytest.raises(CheckpointError, match=r"before the model is built.*keras\.Input.*nothing is lost"):
            run()
        assert (tmp_path / "state.json").exists()
        return
    weights, iterations = run()
    expected, steps = run()
    assert iterations == steps
    for one, other in zip(weights, expected, strict=True):
        tf.debugging.assert_near(one, other, rtol=1e-5)


TRAINING = """
import json
from pathlib import Path
import tensorflow as tf
import ais_tar2tf as t2t
from tests.tfdata.test_resuming import SMALL, Recorder, number

folder, backup, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sources = [t2t.open(f"{folder}/{{0..3}}.tar", limits=SMALL), t2t.open(f"{folder}/more/{{0..3}}.tar", limits=SMALL)]
if how == "mixture, shard=":
    mixed = t2t.mix(sources, weights=[2, 1], at_end="drop")
    train = mixed.dataset(number, shuffle=True, shard=(1, 2)).map(lambda n: n).batch(5).prefetch(2)
else:
    train = sources[0].dataset(number).shuffle().batch(5).prefetch(2)

class Told(Recorder):
    def train_step(self, data):
        print(json.dumps(data.numpy().tolist()), flush=True)
        return super().train_step(data)

validation = sources[1].dataset(number, batch=50)
Told().fit(
    train, epochs=2, verbose=0, validation_data=validation, callbacks=[t2t.Resume(train, backup, every=1)]
)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["shuffle", pytest.param("mixture, shard=", marks=pytest.mark.full)])
def test_a_training_that_is_killed(resuming_folder, tmp_path, how):
    """Kill a training without a seed at any moment of the second epoch. Another process reads the rest."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n{TRAINING}"
    command = [
        sys.executable,
        "-W",
        "ignore:Your input ran out",
        "-c",
        code,
        str(resuming_folder),
        str(tmp_path),
        how,
    ]
    epochs = _unbroken(resuming_folder, how)
    of_epoch = len(epochs[0]) // 5
    seen: list[list[int]] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as training:
        for line in training.stdout:
            seen.append(json.loads(line))
            if len(seen) == of_epoch + 3:
                training.kill()
    assert training.returncode == -9
    state = read_state(tmp_path / "state.json", most=1 << 20)
    done = state.epoch * of_epoch + state.batches  # the state may be older than the last printed batches
    assert of_epoch <= done <= len(seen)
    rest = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=250)
    seen = seen[:done] + [json.loads(line) for line in rest.stdout.splitlines()]
    assert len(seen) == 2 * of_epoch
    for epoch, unbroken in zip((seen[:of_epoch], seen[of_epoch:]), epochs, strict=True):
        read = [n for batch in epoch for n in batch]
        assert Counter(read) == Counter(unbroken)
        assert read == unbroken or how == "shuffle"  # its seed is random
    assert seen[:of_epoch] != seen[of_epoch:]


def _unbroken(folder: Path, how: str) -> list[list[int]]:
    """Return the records of two epochs, in order if the seed is known."""
    if how == "shuffle":
        return [list(range(TOTAL))] * 2
    sources = [t2t.open(f"{folder}/{more}{{0..3}}.tar", limits=SMALL) for more in ("", "more/")]
    dataset = t2t.mix(sources, weights=[2, 1], at_end="drop").dataset(number, shuffle=True, shard=(1, 2))
    return [[int(n) for n in dataset] for _ in range(2)]


# Another dataset is refused


def kept(folder: Path, backup: Path, dataset=None) -> None:
    """Run a training that is interrupted after three batches."""
    dataset = (
        source(folder).dataset(number, shuffle=Shuffle(window=20, seed=5)).batch(8) if dataset is None else dataset
    )
    fit(dataset, t2t.Resume(dataset, backup, every=1), Break(3))
    assert (backup / "state.json").exists()


def test_another_dataset_is_refused(resuming_folder, tmp_path):
    kept(resuming_folder, tmp_path)
    before = (tmp_path / "state.json").read_bytes()

    def data(template="{0..3}.tar", shuffle=None, batch=8, **how):
        src = t2t.open(f"{resuming_folder}/{template}", limits=SMALL)
        return src.dataset(number, shuffle=shuffle or Shuffle(window=20, seed=5), **how).batch(batch)

    indexed = source(resuming_folder, indexed=True)
    differing = {
        "seed: 5 then, 6 now": data(shuffle=Shuffle(window=20, seed=6)),
        "number of shards: 4 then, 3 now": data("{0..2}.tar"),
        r"names of shards \(their hash\)": data("{0,1,3,2}.tar"),
        "has batches of 8 records, these have 9": data(batch=9),
        "shuffle window: 20 then, 21 now": data(shuffle=Shuffle(window=21, seed=5)),
        "shuffle: windows then, global now": indexed.dataset(number, shuffle="global", seed=5).batch(8),
        "host: 0 of 1 then, 1 of 3 now": data(shard=(1, 3)),
        "repeat: 1 then, 2 now": data(repeat=2),
        "start_at: 0 then, 4 now": data(start_at=4),
        "weights: nothing then": t2t.mix([indexed, indexed]).dataset(number).batch(8),
    }
    for what, dataset in differing.items():
        said = rf"state\.json: the training was saved with another dataset: .*{what}"
        with pytest.raises(CheckpointError, match=said):
            fit(dataset, t2t.Resume(dataset, tmp_path, every=1))
        assert (tmp_path / "state.json").read_bytes() == before
    same = data()
    assert len(fit(same, t2t.Resume(same, tmp_path, every=1), epochs=1).seen) == 10  # of 13


def test_options_that_do_not_change_the_order_may_change(resuming_folder, tmp_path):
    """The mapping, the fields, the chunks and the folder of the shards may change."""
    kept(resuming_folder, tmp_path)
    moved = tmp_path / "elsewhere" / resuming_folder.name
    moved.mkdir(parents=True)
    for shard in range(SHARDS):
        os.link(resuming_folder / f"{shard}.tar", moved / f"{shard}.tar")
    src = t2t.open(f"{moved}/{{0..3}}.tar")
    other = src.dataset(shuffle=Shuffle(window=20, seed=5)).map(lambda record: tf.strings.length(record["cls"]))
    other = other.prefetch(9).batch(8)
    assert len(fit(other, t2t.Resume(other, tmp_path, every=5), epochs=1).seen) == 10


def test_stages_that_cannot_be_traced_are_refused(resuming_folder, tmp_path):
    """A stage that cannot be traced back to records is refused by its name when the callback is created."""
    src = source(resuming_folder)
    plain = src.dataset(number, shuffle=True)
    refused = {
        "filter": plain.filter(lambda n: n > 3).batch(8),
        "cache": plain.cache().batch(8),
        "shuffle": plain.batch(8).shuffle(10),
        "unbatch": plain.batch(8).unbatch().batch(4),
        "interleave": plain.interleave(lambda n: tf.data.Dataset.from_tensors(n)).batch(8),
        "concatenate": plain.concatenate(plain).batch(8),
        "enumerate": plain.enumerate().batch(8),
        r"repeat\(3\)": plain.batch(8).repeat(3),
        r"take\(\) and then .repeat": plain.take(50).repeat().batch(8),
        r"map\(deterministic=False\)": plain.map(lambda n: n, num_parallel_calls=2, deterministic=False).batch(8),
        "on_error= leaves out": t2t.open(f"{resuming_folder}/{{0..3}}.tar", on_error="skip-record").dataset(
            number, batch=8
        ),
    }
    for stage, dataset in refused.items():
        assert isinstance(dataset, tf.data.Dataset)
        with pytest.raises(OptionError, match=rf"cannot go on in the middle of an epoch of this dataset: .*{stage}"):
            t2t.Resume(dataset, tmp_path, every=2)
        t2t.Resume(dataset, tmp_path)  # whole epochs
    with pytest.raises(OptionError, match="say batch="):
        t2t.Resume(plain, tmp_path, every=2)
    for other in (
        tf.data.Dataset.range(9).batch(3),
        t2t.load(written(resuming_folder, tmp_path)).dataset(batch=3),
        [1, 2],
    ):
        with pytest.raises(TypeError, match=r"none, and was not made of one.*t2t\.open\('out/"):
            t2t.Resume(other, tmp_path)


def written(folder: Path, tmp_path: Path) -> Path:
    source(folder).export(tmp_path / "out", shard_records=30)
    return tmp_path / "out"


def test_record_files_work_as_the_error_suggests(resuming_folder, tmp_path):
    out = written(resuming_folder, tmp_path)

    def data():
        return t2t.open(f"{out}/*.tfrecord*", limits=SMALL).dataset(number).shuffle(20).batch(8)

    dataset = data()
    first = fit(dataset, t2t.Resume(dataset, tmp_path / "kept", every=1), Break(6), epochs=1)
    dataset = data()
    second = fit(dataset, t2t.Resume(dataset, tmp_path / "kept", every=1), epochs=1)
    assert sorted(n for batch in first.seen + second.seen for n in batch) == list(range(TOTAL))


def test_whole_epochs_of_stages_that_cannot_be_traced(resuming_folder, tmp_path):
    """Without `every`, a dataset with a filter continues with the next epoch."""

    def data():
        return source(resuming_folder).dataset(number, shuffle=True, seed=4).filter(lambda n: n % 3 == 0).batch(8)

    dataset = data()
    whole = fit(dataset, t2t.Resume(dataset), epochs=3).seen
    each = len(whole) // 3
    dataset = data()
    fit(dataset, t2t.Resume(dataset, tmp_path), Break(each + 2), epochs=3)
    dataset = data()
    assert fit(dataset, t2t.Resume(dataset, tmp_path), epochs=3).seen == whole[each:]


class Peek(tf.keras.callbacks.Callback):
    """Reads elements of the dataset that the training uses."""

    def __init__(self, dataset) -> None:
        super().__init__()
        self.dataset = dataset

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        next(iter(self.dataset))


def test_fit_must_read_the_dataset_of_resume(resuming_folder, tmp_path):
    """`fit` must use the dataset of `Resume`, otherwise positions of unused records would be saved."""
    dataset, other = (source(resuming_folder).dataset(number, shuffle=True, batch=8) for _ in range(2))
    with pytest.raises(CheckpointError, match="fit does not read the dataset that Resume was given"):
        fit(other, t2t.Resume(dataset, tmp_path / "a", every=1))
    with pytest.raises(CheckpointError, match="through stages that Resume does not know"):
        fit(dataset.unbatch().batch(2), t2t.Resume(dataset, tmp_path / "b", every=1))
    with pytest.raises(OptionError, match=r"takes 5 batches for an epoch.*by \.repeat\(\)"):
        fit(dataset, t2t.Resume(dataset, tmp_path / "c", every=1), steps_per_epoch=5)
    repeated = dataset.repeat()
    with pytest.raises(CheckpointError, match="another iterator of this dataset began"):
        fit(repeated, t2t.Resume(repeated, tmp_path / "d", every=1), Peek(repeated), steps_per_epoch=20)


def test_other_readers_of_the_same_dataset_do_no_harm(resuming_folder, tmp_path):
    """Other iterators of the training's dataset are told apart, as evaluation often uses the same dataset."""

    def run(*callbacks, seed=7):
        dataset = source(resuming_folder).dataset(number, shuffle=Shuffle(window=20), seed=seed).batch(8)
        callbacks = (t2t.Resume(dataset, tmp_path, every=2), Peek(dataset), *callbacks)
        return fit(dataset, *callbacks, validation_data=dataset)

    whole = run().seen
    assert run(Break(18)).seen == whole[:18]
    assert run().seen == whole[17:]  # 13 and 4


class Optimizing(tf.keras.callbacks.Callback):
    """Counts the optimizer's steps, as `fit` does for models with trainable weights."""

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        self.model.optimizer.iterations.assign_add(1)


def test_keras_own_backup_next_to_resume(resuming_folder, tmp_path):
    """Two callbacks that load weights conflict. This is an error instead of lost records."""

    def run(*callbacks):
        dataset = source(resuming_folder).dataset(number, shuffle=True, seed=4).batch(8)
        backup = tf.keras.callbacks.BackupAndRestore(str(tmp_path / "keras"))
        return fit(dataset, t2t.Resume(dataset, tmp_path / "ours", every=2), backup, *callbacks)

    run(Optimizing(), Break(18))
    with pytest.raises(CheckpointError, match=r"another callback \(BackupAndRestore\?\) loaded other weights"):
        run()


# The folder


def test_only_files_of_resume_are_deleted(resuming_folder, tmp_path):
    theirs = ["epoch-05.weights.h5", "epoch-1-2.weights.h5", "best.keras", "resume-2.weights.h5", "state.json.bak"]
    for name in theirs:
        (tmp_path / name).write_bytes(b"theirs")
    kept(resuming_folder, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*theirs, "state.json", *SLOTS])
    dataset = source(resuming_folder).dataset(number, shuffle=Shuffle(window=20, seed=5)).batch(8)
    fit(dataset, t2t.Resume(dataset, tmp_path, every=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(theirs)
    assert {(tmp_path / name).read_bytes() for name in theirs} == {b"theirs"}


def test_a_state_of_an_earlier_version(resuming_folder, tmp_path, caplog):
    """A state without seed and position: its batches are skipped, in the order of `seed=`."""

    def data(seed):
        return source(resuming_folder).dataset(number, shuffle=Shuffle(window=20, seed=seed)).batch(8)

    dataset = data(5)
    whole = fit(dataset, t2t.Resume(dataset)).seen
    kept(resuming_folder, tmp_path)
    weights = json.loads((tmp_path / "state.json").read_text())["weights"]
    (tmp_path / weights).rename(tmp_path / "epoch-0-3.weights.h5")
    old = {"epoch": 0, "batches": 3, "batch": 8, "weights": "epoch-0-3.weights.h5"}
    (tmp_path / "state.json").write_text(json.dumps(old))
    dataset = data(5)
    first = fit(dataset, t2t.Resume(dataset, tmp_path, every=2), Break(3))
    assert first.seen == whole[3:6]
    assert "saved this training without its seed" in caplog.text
    assert not (tmp_path / "epoch-0-3.weights.h5").exists()  # it was named in the old state
    dataset = data(5)
    assert fit(dataset, t2t.Resume(dataset, tmp_path, every=2)).seen == whole[6:]
    (tmp_path / "state.json").write_text(json.dumps({**old, "batch": 9}))
    with pytest.raises(CheckpointError, match="batches of 9 records, these have 8"):
        fit(dataset, t2t.Resume(dataset, tmp_path, every=2))


@pytest.fixture(scope="module")
def backup(resuming_folder, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("backup")
    kept(resuming_folder, path)
    return path


def test_every_flipped_bit_of_the_state_is_detected(backup, tmp_path):
    """Each flipped bit and each cut is an error that names the file, or does not change the content."""
    data, path = (backup / "state.json").read_bytes(), tmp_path / "state.json"
    expected = read_state(backup / "state.json", most=1 << 20)
    flips = [(at, bit) for at in range(len(data)) for bit in range(8)]
    refused = 0
    for at, bit in random.Random(1).sample(flips, 1_000):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :])
        try:
            found = read_state(path, most=1 << 20)
        except CheckpointError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
        else:
            assert found == expected
    assert refused > 950
    for end in range(0, len(data) - 2, 7):
        path.write_bytes(data[:end])
        with pytest.raises(CheckpointError, match=r"state\.json"):
            read_state(path, most=1 << 20)


def hostile(state: dict) -> dict[str, bytes]:
    """Return invalid documents by the reason why they are invalid."""
    plain = {name: value for name, value in state.items() if name != "document_checksum"}

    def sealed(**changed) -> bytes:
        return document_bytes({**plain, **changed})

    old = {"epoch": 0, "batches": 1, "batch": 8}
    return {
        "not JSON": b"weights",
        "nested": b"[" * 1_000_000,
        "nested position": sealed(place={**plain["place"], "position": "[" * 1_000_000}),
        "no object": b"[1]",
        "no checksum": json.dumps(plain).encode(),
        "of a newer version": sealed(format=3),
        "text for a number": sealed(epoch="0"),
        "a fraction": sealed(batches=1.5),
        "true": sealed(epoch=True),
        "negative": sealed(batches=-1),
        "huge": sealed(batches=10**30),
        "no place": sealed(place=None),
        "another position": sealed(place={**plain["place"], "position": "[2]"}),
        "a list for the dataset": sealed(dataset=[]),
        "weights elsewhere": sealed(weights="../resume-0.weights.h5"),
        "absolute weights": sealed(weights="/etc/passwd"),
        "weights of others": sealed(weights="best.weights.h5"),
        "old weights elsewhere": json.dumps({**old, "weights": "../epoch-0-1.weights.h5"}).encode(),
        "old weights of others": json.dumps({**old, "weights": "epoch-05.weights.h5"}).encode(),
        "old without weights": json.dumps(old).encode(),
        "weights of another checksum": sealed(weights_checksum="xxh3-128:00"),
    }


def test_a_hostile_state(resuming_folder, backup, tmp_path):
    documents = hostile(json.loads((backup / "state.json").read_text()))
    shutil.copytree(backup, tmp_path, dirs_exist_ok=True)
    dataset = source(resuming_folder).dataset(number, shuffle=Shuffle(window=20, seed=5)).batch(8)
    resume = t2t.Resume(dataset, tmp_path, every=1)
    for what, data in documents.items():
        (tmp_path / "state.json").write_bytes(data)
        with pytest.raises(CheckpointError, match=rf"{tmp_path}/(state\.json|resume-.\.weights\.h5): ") as found:
            fit(dataset, resume)
        assert len(str(found.value)) < 1_000, what
        assert (tmp_path / "state.json").read_bytes() == data
    with (tmp_path / "state.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(CheckpointError, match=r"state\.json.*Limits\.state_bytes"):
        fit(dataset, resume)
    (tmp_path / "state.json").unlink()
    (tmp_path / "state.json").mkdir()
    with pytest.raises(CheckpointError, match=r"state\.json: .*cannot be read"):
        fit(dataset, resume)


def test_damaged_weights_are_refused(resuming_folder, backup, tmp_path):
    shutil.copytree(backup, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / json.loads((tmp_path / "state.json").read_text())["weights"]
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    dataset = source(resuming_folder).dataset(number, shuffle=Shuffle(window=20, seed=5)).batch(8)
    with pytest.raises(CheckpointError, match=r"resume-.\.weights\.h5: .*checksum"):
        fit(dataset, t2t.Resume(dataset, tmp_path, every=1))
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"resume-.\.weights\.h5: .*cannot be loaded"):
        fit(dataset, t2t.Resume(dataset, tmp_path, every=1))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_hostile_position(resuming_folder, mixed):
    """Each value of a position, replaced by an invalid one, is our error and never reads from another place."""
    src = source(resuming_folder)
    sources = t2t.mix([src, src]) if mixed else src
    reading = sources.dataset(number, shuffle=True, seed=1).source.request.reading
    text = reading.begin(0, 1, 1).to_text()
    assert reading.parse(text).to_text() == text
    for path in paths(json.loads(text)):
        for value in (None, -7, "x", [], {}, 1.5, [[[]]]):
            changed = json.loads(text)
            inner = changed
            for step in path[:-1]:
                inner = inner[step]
            if value == -7 and path == (3,):  # a seed may be negative
                continue
            if (
                value == "x" and isinstance(inner[path[-1]], str) and len(path) > 2
            ):  # any text is a valid part of an identity
                continue
            if value is None and path[-2:] == (3, 3):  # the size of a shard may be unknown
                continue
            inner[path[-1]] = value
            with pytest.raises(CheckpointError):
                reading.parse(json.dumps(changed))
    for hostile_text in ("[" * 100_000, "{}", "", "1", "null", '"' + "x" * 1000):
        with pytest.raises(CheckpointError):
            reading.parse(hostile_text)


def paths(value, *, below: tuple = ()) -> list[tuple]:
    """Return the path to every value in nested lists."""
    if not isinstance(value, list):
        return []
    here = [(*below, at) for at in range(len(value))]
    return here + [path for way, each in zip(here, value, strict=True) for path in paths(each, below=way)]


# Stages, compared with TensorFlow


def random_chain(draw: random.Random) -> list[tuple[str, tuple, dict]]:
    stages = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(["map", "batch", "batch", "prefetch", "skip", "shard"])
        drop = draw.random() < 0.4
        stages.append(
            {
                "map": ("map", (tf.identity,), {}),
                "batch": ("batch", (draw.randint(1, 4),), {"drop_remainder": drop}),
                "prefetch": ("prefetch", (tf.data.AUTOTUNE,), {}),
                "skip": ("skip", (draw.randint(0, 3),), {}),
                "shard": ("shard", (draw.randint(2, 3), draw.randint(0, 1)), {}),
            }[kind]
        )
        if kind == "batch" and not drop:
            break  # batches of different sizes cannot be batched
    return stages


def test_elements_need_the_counted_records(resuming_folder):
    draw = random.Random(3)
    for _ in range(12):
        stages, records = random_chain(draw), draw.randint(1, 40)
        counted = source(resuming_folder).dataset(number)
        plain, rest = tf.data.Dataset.range(records), tf.data.Dataset.range(records)
        for name, arguments, options in stages:
            counted = getattr(counted, name)(*arguments, **options)
            plain = getattr(plain, name)(*arguments, **options)
        assert isinstance(counted, DerivedDataset)
        counting = counted.counting
        elements = [each.tolist() for each in plain.as_numpy_iterator()]
        assert counting.refused is None
        assert counting.elements(records) == len(elements), stages
        assert counting.elements(counting.min_records) == 1
        assert counting.elements(counting.min_records - 1) == 0
        done = draw.randint(0, len(elements))
        rest = rest.skip(done * counting.records)
        for name, arguments, options in stages:
            rest = getattr(rest, name)(*arguments, **options)
        assert [each.tolist() for each in rest.as_numpy_iterator()] == elements[done:], stages


def test_every_stage_of_tensorflow_is_known(resuming_folder):
    """`Resume` must know every method that makes a dataset, because it cannot trace unknown stages."""
    dataset = source(resuming_folder).dataset(number)
    kind, others = tf.data.Dataset, {"apply", "as_numpy_iterator", "cardinality", "fingerprint", "get_single_element"}
    others |= {"options", "reduce", "save"}
    names = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    static = {name for name in names if isinstance(inspect.getattr_static(kind, name), staticmethod)}
    unknown = names - static - others - set(STAGES)
    assert not unknown
    assert isinstance(dataset.apply(lambda d: d.batch(3)), DerivedDataset)
    assert dataset.batch(tf.constant(3, tf.int64)).counting == dataset.batch(3).counting == Counting.batches(3)
    assert dataset.batch(3).source is dataset


@pytest.mark.parametrize("number", [2, 3, 9])
def test_an_iterator_that_has_not_begun_is_not_in_the_log(number):
    log = ProgressLog()
    for key in range(2):
        log.began(key, EpochOffset(key))
    assert log.find(number) is None
