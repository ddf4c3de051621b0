"""Datasets are resumed: checkpoints in other processes, `start_at`, lengths, `fit`, and no unnecessary requests."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import CheckpointError, ObjectChanged
from ais_tar2tf.options import Limits, Shuffle
from ais_tar2tf.tfdata.callbacks.resume import Resume
from tests.support import shards as made
from tests.support.leftovers import our_threads
from tests.support.own_errors import raises_ours

ROOT = Path(__file__).parents[2]
RECORDS = 66
BATCH = 7
SHUFFLE = Shuffle(window=12, shards=2, turn=4, seed=9)


def pair(record):
    return record["__key__"], tf.strings.to_number(record["cls"], tf.int32)


def checkpointed(url: str, mapped: bool):
    """Return a dataset with two lanes, a window, batches and a prefetch."""
    source = t2t.open(url, limits=Limits(chunk_records=5))
    if mapped:
        return source.dataset(pair, shuffle=SHUFFLE).batch(BATCH).map(lambda key, _: key).prefetch(2)
    return source.dataset(shuffle=SHUFFLE).map(lambda record: record["__key__"]).batch(BATCH).prefetch(2)


@pytest.fixture(scope="module")
def resume_template(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("shards")
    for number in range(4):
        shard = made.labelled(f"s{number}", 15 + number, lambda i: {"jpg": b"x" * 700, "cls": b"%d" % i})
        (path / f"train-{number}.tar").write_bytes(made.gzipped(shard) if number == 2 else shard)
    return f"{path}/train-{{0..3}}.tar"


def keys(dataset) -> list[str]:
    return [element["__key__"].numpy().decode() for element in dataset]


def batches(iterator) -> list[list[str]]:
    return [batch.numpy().astype(str).tolist() for batch in iterator]


def python(script: str, *arguments: str, **how) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n{script}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, **how
    )


# Checkpoints in other processes.

RESTORE_ALL = """
import json
import tensorflow as tf
from tests.tfdata.test_resume import batches, checkpointed, repeated
rests = []
for mapped, path in json.loads(sys.argv[2]):
    iterator = iter(repeated(sys.argv[1]) if mapped is None else checkpointed(sys.argv[1], mapped))
    tf.train.Checkpoint(iterator=iterator).restore(path)
    rests.append(batches(iterator))
print(json.dumps(rests))
"""


def test_every_checkpoint_of_an_epoch_is_resumed_in_a_new_process(resume_template, tmp_path):
    saved, expected = [], []
    for mapped in (False, True):
        iterator = iter(checkpointed(resume_template, mapped))
        checkpoint = tf.train.Checkpoint(iterator=iterator)
        paths, seen = [checkpoint.save(str(tmp_path / f"{mapped}"))], []
        for batch in iterator:
            seen.append(batch.numpy().astype(str).tolist())
            paths.append(checkpoint.save(str(tmp_path / f"{mapped}")))
        assert sum(map(len, seen)) == RECORDS
        saved += [(mapped, path) for path in paths]
        expected += [seen[number:] for number in range(len(paths))]
    with python(RESTORE_ALL, resume_template, json.dumps(saved)) as child:
        assert json.loads(child.stdout.read().splitlines()[-1]) == expected


def repeated(url: str):
    """As tf.data's users say it."""
    dataset = t2t.open(url).dataset().shuffle(12, seed=4).repeat(3)
    return dataset.map(lambda record: record["__key__"]).batch(BATCH).prefetch(2)


def test_epochs_after_a_checkpoint_are_the_same(resume_template, tmp_path):
    iterator = iter(repeated(resume_template))
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    paths, seen = [], []
    for batch in iterator:
        seen.append(batch.numpy().astype(str).tolist())
        paths.append(checkpoint.save(str(tmp_path / "repeated")))
    flat = [key for batch in seen for key in batch]
    epochs = [flat[begin : begin + RECORDS] for begin in (0, RECORDS, 2 * RECORDS)]
    assert len(flat) == 3 * RECORDS
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    chosen = range(0, len(paths), 4)
    with python(RESTORE_ALL, resume_template, json.dumps([(None, paths[number]) for number in chosen])) as child:
        assert json.loads(child.stdout.read().splitlines()[-1]) == [seen[number + 1 :] for number in chosen]


def test_an_iterator_after_a_restored_one_begins_the_next_epoch(resume_template, tmp_path):
    first = t2t.open(resume_template).dataset(shuffle=SHUFFLE, repeat=2)
    passes = [keys(first), keys(first)]
    assert passes == [
        keys(t2t.open(resume_template).dataset(shuffle=SHUFFLE, repeat=4))[at : at + 132] for at in (0, 132)
    ]
    dataset = t2t.open(resume_template).dataset(shuffle=SHUFFLE, repeat=2)
    iterator = iter(dataset)
    begun = [next(iterator)["__key__"].numpy().decode() for _ in range(20)]
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "first"))
    again = t2t.open(resume_template).dataset(shuffle=SHUFFLE, repeat=2)
    iterator = iter(again)
    tf.train.Checkpoint(iterator=iterator).restore(path)
    assert begun + keys(iterator) == passes[0]
    assert keys(again) == passes[1]


def test_repeat_is_ours_where_it_means_the_same(resume_template):
    source = t2t.open(resume_template)
    plain = keys(source.dataset())
    assert keys(source.dataset().repeat().take(100)) == (plain * 2)[:100]
    assert keys(source.dataset(repeat=2).repeat(2)) == plain * 4
    assert keys(source.dataset().repeat(0)) == []
    assert [len(batch) for batch in source.dataset(lambda r: r["__key__"], batch=60).repeat(2)] == [60, 6] * 2
    assert keys(source.dataset(start_at=60).repeat(2)) == plain[60:] * 2
    dataset = source.dataset(shuffle=SHUFFLE)
    dataset.begin_at(5, 60)
    assert keys(dataset.repeat(1)) == keys(dataset)
    assert len(keys(dataset)) == 6
    with pytest.raises(ValueError, match="count is 1 or more, not -2"):
        dataset.repeat(-2)


def of_small_chunks(url: str, index: bool, mapping=None, **how):
    source = t2t.open(url, limits=Limits(chunk_records=5), index=index)
    return source.dataset(mapping, batch=BATCH, **{"shuffle": SHUFFLE, **how}).map(
        lambda *element: element[0] if mapping else element[0]["__key__"]
    )


@pytest.fixture
def indexed_template(resume_template, tmp_path) -> str:
    for path in Path(resume_template).parent.glob("*.tar"):
        shutil.copy2(path, tmp_path)
    url = f"{tmp_path}/{Path(resume_template).name}"
    t2t.index(url)
    return url


@pytest.mark.parametrize("mapping", [None, pair])
@pytest.mark.parametrize("had_index", [False, True])
def test_a_checkpoint_is_resumed_when_an_index_was_added_or_removed(indexed_template, tmp_path, mapping, had_index):
    for how in ({}, {"shuffle": None}, {"repeat": 2}, {"shard": (1, 3)}, {"drop_remainder": True}):
        iterator = iter(of_small_chunks(indexed_template, had_index, mapping, **how))
        next(iterator)
        path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
        rest = batches(iterator)
        again = iter(of_small_chunks(indexed_template, not had_index, mapping, **how))
        tf.train.Checkpoint(iterator=again).restore(path)
        assert batches(again) == rest
    assert rest
    for even in ("pad", "drop", "stop"):  # shares that an index alone can tell
        # so many epochs that a checkpoint cannot hold them all as prefetched batches
        iterator = iter(of_small_chunks(indexed_template, had_index, mapping, repeat=300, shard=(1, 3), even=even))
        next(iterator)
        path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
        again = iter(of_small_chunks(indexed_template, not had_index, mapping, repeat=300, shard=(1, 3), even=even))
        tf.train.Checkpoint(iterator=again).restore(path)
        with raises_ours(CheckpointError, ""):
            batches(again)


@pytest.mark.parametrize("shuffle", [None, True, Shuffle(window=7, shards=2, turn=2, seed=1)])
def test_positions_are_bound_to_shards_from_the_first_record_on(resume_template, shuffle):
    """A position inside a window is bound to all shards of the window, which will be read again."""
    seen = []
    reading = (
        t2t.open(resume_template, limits=Limits(chunk_records=2)).dataset(shuffle=shuffle)._reader.request.reading
    )
    position = reading.begin(0, 3, 1)
    with contextlib.closing(reading.open(position, Account())) as stream:
        while stream.next_chunk():
            seen.append(stream.position)
    begun = [mark for at in seen for mark in at.marks if (at.emitted or mark.offset) and mark.step < 4]
    assert len(begun) > len(seen) // 2
    assert all(mark.identity.version and mark.identity.size for mark in begun)


def test_a_changed_object_is_an_error_also_with_an_index(indexed_template, tmp_path):
    iterator = iter(of_small_chunks(indexed_template, True, repeat=300))
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    for shard in tmp_path.glob("*.tar"):
        shard.write_bytes(shard.read_bytes() + bytes(1024))
    again = iter(of_small_chunks(indexed_template, True, repeat=300))
    tf.train.Checkpoint(iterator=again).restore(path)
    with raises_ours(ObjectChanged, "replaced"):
        batches(again)


KILLED = """
import tensorflow as tf
from tests.tfdata.test_resume import batches, checkpointed
iterator = iter(checkpointed(sys.argv[1], True))
done = tf.Variable(0, dtype=tf.int64)
manager = tf.train.CheckpointManager(tf.train.Checkpoint(iterator=iterator, done=done), sys.argv[2], max_to_keep=3)
for batch in iterator:
    done.assign_add(1)
    manager.save()
    print(int(done), flush=True)
    if done == 6:
        sys.stdin.read()  # until it is killed
"""


def test_a_killed_run_is_resumed(resume_template, tmp_path):
    whole = batches(checkpointed(resume_template, True))
    with python(KILLED, resume_template, str(tmp_path), stdin=subprocess.PIPE) as child:
        assert [int(child.stdout.readline()) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        child.kill()
    assert child.returncode == -9
    iterator, done = iter(checkpointed(resume_template, True)), tf.Variable(0, dtype=tf.int64)
    tf.train.Checkpoint(iterator=iterator, done=done).restore(tf.train.latest_checkpoint(str(tmp_path)))
    assert int(done) == 6
    assert batches(iterator) == whole[6:]


def test_a_checkpoint_holds_no_window(memory, tmp_path):
    """A checkpoint contains no records of a window of 50 records of 100 KB, except those of an unfinished batch."""
    memory.put("a.tar", made.labelled("a", 60, lambda i: {"jpg": bytes([i]) * 100_000, "cls": b"%d" % i}))
    source = t2t.open(memory.url("a.tar"), limits=Limits(chunk_records=4))
    iterator = iter(source.dataset(lambda r: (r["jpg"], r["__key__"]), shuffle=Shuffle(window=50, seed=1)))
    first = [next(iterator)[1].numpy() for _ in range(9)]
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    size = sum(path.stat().st_size for path in tmp_path.glob("c*"))
    assert size < 2_500_000  # chunks of four records in flight; the window has 5 MB
    small = iter(source.select("cls").dataset(shuffle=Shuffle(window=50, seed=1)))
    assert [next(small)["__key__"].numpy() for _ in range(9)] == first
    tf.train.Checkpoint(iterator=small).save(str(tmp_path / "small"))
    assert sum(path.stat().st_size for path in tmp_path.glob("small*")) < 10_000
    assert saved


def test_a_checkpoint_of_another_dataset_is_refused(resume_template, tmp_path):
    iterator = iter(t2t.open(resume_template).dataset(shuffle=SHUFFLE))
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    for other in (
        t2t.open(resume_template.replace("{0..3}", "{0..2}")).dataset(shuffle=SHUFFLE),
        t2t.open(resume_template).dataset(shuffle=Shuffle(window=13, shards=2, turn=4, seed=9)),
        t2t.open(resume_template).dataset(shuffle=SHUFFLE, shard=(0, 2)),
    ):
        fresh = iter(other)
        tf.train.Checkpoint(iterator=fresh).restore(saved)
        with raises_ours(CheckpointError, "of another dataset"):
            list(fresh)


# start_at

START_AT = """
import json, tensorflow as tf, ais_tar2tf as t2t
from tests.tfdata.test_resume import SHUFFLE, keys
urls, starts = json.loads(sys.argv[1])
def found(url):
    return [keys(t2t.open(url).dataset(shuffle=SHUFFLE, start_at=start)) for start in starts]
print(json.dumps([found(url) for url in urls]))
"""


def test_start_at_every_record_in_a_new_process(resume_template, tmp_path):
    """`start_at` gives the same records with and without an index."""
    shutil.copytree(Path(resume_template).parent, tmp_path / "indexed")
    indexed = f"{tmp_path}/indexed/{Path(resume_template).name}"
    t2t.index(indexed)
    whole = keys(t2t.open(resume_template).dataset(shuffle=SHUFFLE))
    starts = [*range(0, RECORDS, 4), RECORDS]
    with python(START_AT, json.dumps([[resume_template, indexed], list(starts)])) as child:
        found = json.loads(child.stdout.read().splitlines()[-1])
    assert found == [[whole[start:] for start in starts]] * 2


def test_start_at_reads_only_the_rest(tmp_path):
    """With an index, nine tenths of a shard are not requested; without one, they are read and dropped."""
    bucket = tmp_path / "b"
    bucket.mkdir()
    (bucket / "a.tar").write_bytes(made.labelled("a", 500, lambda i: {"jpg": bytes(20_000), "cls": b"%d" % i}))
    with t2t.serve(tmp_path) as server:
        t2t.index("ais://b/a.tar", endpoint=server.url)
        for index, most in ((True, 1_500_000), (False, 12_000_000)):
            source = t2t.open("ais://b/a.tar", endpoint=server.url, index=index)
            found = keys(source.dataset(shuffle=Shuffle(window=40, seed=2), start_at=450))
            assert len(found) == 50
            assert source.stats.bytes < most
            assert source.stats.records_emitted == 50


# Length


def test_lengths(resume_template, tmp_path):
    for path in Path(resume_template).parent.glob("*.tar"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    url = f"{tmp_path}/{Path(resume_template).name}"
    assert t2t.open(url).dataset().cardinality() == tf.data.UNKNOWN_CARDINALITY
    t2t.index(url)
    source = t2t.open(url)
    asked = [
        ({}, 66),
        ({"batch": 7}, 10),
        ({"batch": 7, "drop_remainder": True}, 9),
        ({"start_at": 60}, 6),
        ({"start_at": 66}, 0),
        ({"repeat": 3}, 198),
        ({"repeat": 3, "batch": 7, "start_at": 1}, 29),
        ({"shard": (1, 4)}, 16),
        ({"shard": (1, 4), "shuffle": SHUFFLE}, None),
        ({"shard": (1, 4), "shuffle": SHUFFLE, "even": "pad"}, 17),
        ({"shard": (1, 4), "shuffle": SHUFFLE, "even": "drop"}, 16),
        ({"shard": (1, 4), "even": "stop"}, 15),
        ({"shuffle": SHUFFLE, "batch": 4}, 17),
    ]
    for how, expected in asked:
        for mapping in (None, pair):
            dataset = source.dataset(mapping, **how)
            if expected is None:
                assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
            else:
                assert dataset.cardinality() == expected == len(list(dataset)), how
    assert source.dataset(repeat=None).cardinality() == tf.data.INFINITE_CARDINALITY
    assert t2t.open(url, index=False).dataset(repeat=None).cardinality() == tf.data.INFINITE_CARDINALITY
    assert source.dataset().shuffle(10).batch(5).cardinality() == 14
    skipping = t2t.open(url, on_error="skip-record")
    assert skipping.dataset().cardinality() == tf.data.UNKNOWN_CARDINALITY
    with pytest.raises(ValueError, match="needs on_error='raise'"):
        skipping.dataset(shard=(0, 2), even="pad")
    static = source.dataset(pair, batch=7, drop_remainder=True).element_spec
    assert static[0].shape == (7,)


def test_the_environment_names_the_host_on_request(resume_template, monkeypatch):
    for name in ("TF_CONFIG", "SLURM_PROCID", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="does not say which host"):
        t2t.open(resume_template).dataset(shard="env")
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "3")
    assert t2t.hosts() == (1, 3)
    assert keys(t2t.open(resume_template).dataset(shard="env")) == keys(
        t2t.open(resume_template).dataset(shard=(1, 3))
    )
    context = tf.distribute.InputContext(num_input_pipelines=3, input_pipeline_id=1)
    assert keys(t2t.open(resume_template).dataset(shard=context)) == keys(
        t2t.open(resume_template).dataset(shard=(1, 3))
    )
    with pytest.raises(ValueError, match="'env', not 'all'"):
        t2t.open(resume_template).dataset(shard="all")


# fit


class Noted(tf.keras.callbacks.Callback):
    """Records the values of the progress bar, and can end the training in the middle."""

    def __init__(self, stop_at: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.steps, self.batches, self.stop_at, self.epoch = [], Counter(), stop_at, 0

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002  # Keras names it
        self.steps.append(self.params["steps"])
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        self.batches[self.epoch] += 1
        if self.stop_at == (self.epoch, batch):
            raise KeyboardInterrupt


class Seen(tf.keras.Model):
    """A model whose weights record the numbers of the records that it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.add_weight(shape=(1,), initializer="zeros", name="total")
        self.built = True
        self.seen: list[list[int]] = []

    def call(self, numbers):
        tf.py_function(lambda n: self.seen.append(n.numpy().tolist()), [numbers], [])
        return tf.reshape(tf.cast(numbers, tf.float32), (-1, 1)) * self.total


@pytest.fixture
def labelled(tmp_path) -> str:
    for number in range(4):
        shard = made.labelled(f"s{number}", 10, lambda i, n=number: {"cls": b"%d" % (n * 10 + i)})
        (tmp_path / f"{number}.tar").write_bytes(shard)
    url = f"{tmp_path}/{{0..3}}.tar"
    t2t.index(url)
    return url


def numbers_of(url: str):
    def number(record):
        value = tf.strings.to_number(record["cls"], tf.int32)
        return value, tf.cast(value, tf.float32)

    return t2t.open(url).dataset(number, shuffle=Shuffle(window=8, seed=3), batch=6)


def fit(dataset, *callbacks, epochs=3, verbose=0) -> Seen:
    model = Seen()
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
    with contextlib.suppress(KeyboardInterrupt):
        model.fit(dataset, epochs=epochs, shuffle=False, callbacks=list(callbacks), verbose=verbose)
    return model


def test_fit_knows_how_long_an_epoch_is(labelled, capsys):
    noted = Noted()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(numbers_of(labelled), noted, epochs=2, verbose=1)
    assert noted.steps == [7, 7]
    assert noted.batches == {0: 7, 1: 7}
    lines = capsys.readouterr().out.replace("\x08", "\n").replace("\r", "\n")
    assert lines.count("7/7") >= 2
    assert "7/Unknown" not in lines


def test_fit_continues_in_the_middle_of_an_epoch(labelled, tmp_path):
    """A training that ends after batch 4 of epoch 1, and its continuation, read the records of a whole training."""
    whole_data = numbers_of(labelled)
    whole = fit(whole_data, Resume(whole_data))
    assert [len(batch) for batch in whole.seen] == [6, 6, 6, 6, 6, 6, 4] * 3
    for stop, every in (((1, 3), 2), ((1, 6), 2), ((1, 6), 7), ((2, 2), 4)):
        folder = tmp_path / f"backup-{stop[0]}-{stop[1]}-{every}"
        first_data = numbers_of(labelled)
        first = fit(first_data, Resume(first_data, folder, every=every), Noted(stop_at=stop))
        again_data = numbers_of(labelled)
        noted = Noted()
        again = fit(again_data, Resume(again_data, folder, every=every), noted)
        done = stop[0] * 7 + stop[1] + 1
        assert first.seen == whole.seen[:done]
        kept = stop[0] * 7 + (stop[1] + 1) // every * every
        assert again.seen == whole.seen[kept:]
        np.testing.assert_allclose(again.total.numpy(), whole.total.numpy(), rtol=1e-5)
        assert again.optimizer.iterations == 21
        assert sum(noted.batches.values()) == 21 - kept
        assert not list(folder.glob("*.h5"))
        assert not (folder / "state.json").exists()


def test_keras_own_backup_repeats_the_interrupted_epoch_in_its_order(labelled, tmp_path):
    whole_data = numbers_of(labelled)
    whole = fit(whole_data, Resume(whole_data))
    backup = tf.keras.callbacks.BackupAndRestore
    first_data = numbers_of(labelled)
    fit(first_data, Resume(first_data), backup(str(tmp_path / "keras")), Noted(stop_at=(1, 3)))
    again_data = numbers_of(labelled)
    again = fit(again_data, backup(str(tmp_path / "keras")), Resume(again_data))
    assert again.seen == whole.seen[7:]
    np.testing.assert_allclose(again.total.numpy(), whole.total.numpy(), rtol=1e-5)


def test_requirements_of_a_resuming_callback(labelled, tmp_path):
    dataset = numbers_of(labelled)
    with pytest.raises(ValueError, match="needs a folder"):
        Resume(dataset, every=2)
    unbatched = t2t.open(labelled).dataset()
    with pytest.raises(ValueError, match="say batch="):
        Resume(unbatched, tmp_path, every=2)
    fit(dataset, Resume(dataset, tmp_path / "b", every=2), Noted(stop_at=(0, 3)))
    with pytest.raises(CheckpointError, match="batches of 6 records, these have 5"):
        fit(dataset, Resume(dataset, tmp_path / "b", every=2, batch=5))


# No stream is opened unnecessarily


@pytest.fixture
def counted(tmp_path):
    """Serve two shards for training and one for validation, and record which bodies are sent."""
    bucket = tmp_path / "b"
    bucket.mkdir()
    for number in range(3):
        shard = made.labelled(f"s{number}", 30, lambda i, n=number: {"cls": b"%d" % (n * 30 + i)})
        (bucket / f"{number}.tar").write_bytes(shard)
    with t2t.serve(tmp_path) as server:
        yield server


def opened(server) -> Counter[str]:
    found = Counter(seen.path[-5:] for seen in server.requests if seen.node.startswith("t"))
    server.requests.clear()
    return found


def test_training_and_validation(counted):
    def data(names, **how):
        source = t2t.open(f"ais://b/{names}.tar", endpoint=counted.url, limits=Limits(chunk_records=4))
        return source.dataset(lambda r: (tf.strings.to_number(r["cls"], tf.int32), 0.0), batch=5, **how)

    train, test = data("{0..1}", shuffle=Shuffle(window=9, seed=1, shards=2)), data("2")
    model = Seen()
    model.compile("sgd", "mse")
    opened(counted)
    model.fit(train, validation_data=test, epochs=2, shuffle=False, verbose=0)
    assert opened(counted) == {"0.tar": 2, "1.tar": 2, "2.tar": 2}
    seen = [number for batch in model.seen for number in batch]
    assert sorted(seen) == sorted(list(range(90)) * 2)


def test_two_concurrent_iterators_of_one_dataset_and_two_epochs(counted):
    source = t2t.open("ais://b/{0..1}.tar", endpoint=counted.url, limits=Limits(chunk_records=4))
    dataset = source.dataset(shuffle=Shuffle(window=9, seed=1, shards=2, reshuffle_each_epoch=False))
    opened(counted)
    both = [(a["__key__"].numpy(), b["__key__"].numpy()) for a, b in tf.data.Dataset.zip((dataset, dataset))]
    assert all(a == b for a, b in both)
    assert len(both) == 60
    assert opened(counted) == {"0.tar": 2, "1.tar": 2}

    reshuffled = source.dataset(shuffle=Shuffle(window=9, seed=1, shards=2))
    one, other = iter(reshuffled), iter(reshuffled)
    firsts = [next(one)["__key__"].numpy() for _ in range(40)]
    others = [next(other)["__key__"].numpy() for _ in range(40)]
    firsts += [element["__key__"].numpy() for element in one]
    others += [element["__key__"].numpy() for element in other]
    assert sorted(firsts) == sorted(others)
    assert len(firsts) == 60
    assert firsts != others  # these are two different epochs
    assert opened(counted) == {"0.tar": 2, "1.tar": 2}


def test_epochs_of_repeat_open_each_shard_once(counted):
    dataset = t2t.open("ais://b/{0..2}.tar", endpoint=counted.url).dataset(
        shuffle=Shuffle(window=9), seed=1, repeat=3
    )
    opened(counted)
    before = our_threads()
    assert len(list(dataset)) == 270
    assert opened(counted) == {"0.tar": 3, "1.tar": 3, "2.tar": 3}
    assert len(our_threads() - before) < 10
