"""Records in TensorFlow: elements, their order, checkpoints, and errors inside a pipeline."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import (
    ArchiveError,
    MappingError,
    MissingField,
    ObjectChanged,
    SchemaError,
    ShardNotFound,
    StoreError,
    TruncatedArchive,
)
from ais_tar2tf.options import Limits, Shuffle
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made

SHARDS, RECORDS = 5, 23


def pair(record):
    return record["__key__"], tf.strings.to_number(record["cls"], tf.int32)


@pytest.fixture(scope="module")
def memory_template() -> str:
    """Store five shards of 23 records with `jpg` (no real image) and `cls`. Two shards are compressed."""
    store = MemoryStore("tfdata")
    for number in range(SHARDS):
        shard = made.labelled(f"s{number}", RECORDS, lambda i: {"jpg": bytes([i]) * (100 * i), "cls": b"%d\n" % i})
        store.put(f"train-{number}.tar", made.gzipped(shard) if number % 2 else shard)
    return "memory://tfdata/train-{0..4}.tar"


def keys(dataset) -> list[str]:
    return [element["__key__"].numpy().decode() for element in dataset]


def in_order(bucket) -> list[str]:
    return [record["__key__"] for record in t2t.open(bucket).records()]


# Elements


@pytest.mark.parametrize("size", [10, 20_000])
@pytest.mark.parametrize("batch", [1, 7, 64, 200])
def test_batches_have_the_records_in_order_whatever_their_size(memory, size, batch):
    """Small records come in chunks of whole batches, large ones one by one."""
    count = 150
    for number in range(2):
        memory.put(
            f"{number}.tar", made.labelled(f"s{number}", count, lambda i: {"cls": b"%d" % i, "bin": bytes(size)})
        )
    dataset = t2t.open(memory.url("{0..1}.tar"), limits=Limits(chunk_records=64)).dataset(batch=batch, repeat=2)
    batches = [[int(each) for each in element["cls"].numpy()] for element in dataset]
    assert [len(each) for each in batches[:-1]] == [batch] * (len(batches) - 1)
    assert [each for part in batches for each in part] == [*range(count)] * 4


def test_a_record_that_lacks_a_field_of_the_first_records(memory):
    """The first records define the fields. A record that lacks one is an error, or is skipped."""
    fields = [{"jpg": b"j", "cls": b"1"}] * 100 + [{"jpg": b"j"}] + [{"jpg": b"j", "cls": b"1", "more": b"m"}] * 9
    memory.put("a.tar", made.tar((f"{number:03d}", each) for number, each in enumerate(fields)))
    with pytest.raises(MissingField, match=r"a\.tar, record '100': field 'cls' is missing .*select 'cls\?'"):
        keys(t2t.open(memory.url("a.tar"), limits=Limits(chunk_records=64)).dataset())
    source = t2t.open(memory.url("a.tar"), limits=Limits(chunk_records=64), on_error="skip-record")
    assert len(keys(source.dataset())) == 109
    assert source.stats.skipped == {"MissingField": 1}


def test_a_pass_after_an_iterator_that_could_not_begin(memory):
    """An iterator that begins in the middle opens a shard. Its error is raised once, not in later passes."""
    shard = made.labelled("r", 10, lambda n: {"cls": b"%d" % n})
    memory.put("r.tar", shard)
    dataset = t2t.open(memory.url("r.tar")).dataset(lambda r: tf.strings.to_number(r["cls"]), start_at=3)
    memory.put("r.tar", b"no tar" * 1000)
    with pytest.raises(ArchiveError):
        list(dataset)
    memory.put("r.tar", shard)
    for _ in range(2):
        assert [int(number) for number in dataset] == [*range(3, 10)]


def test_without_a_mapping_elements_are_the_records(memory_template):
    elements = list(t2t.open(memory_template).dataset().as_numpy_iterator())
    records = [
        {name: value.encode() if isinstance(value, str) else value for name, value in record.items()}
        for record in t2t.open(memory_template).records()
    ]
    assert elements == records
    assert len(elements) == SHARDS * RECORDS


def test_elements_have_only_the_selected_fields(memory_template):
    dataset = t2t.open(memory_template).select("label=cls", "json?").dataset()
    first = next(iter(dataset))
    assert set(first) == {"label", "json", "__key__", "__shard__"}
    assert first["json"] == b""
    assert dataset.element_spec["label"] == tf.TensorSpec((), tf.string)


@pytest.mark.parametrize("drop", [False, True])
def test_batches(memory_template, drop):
    sizes = [len(b["cls"]) for b in t2t.open(memory_template).dataset(batch=10, drop_remainder=drop)]
    assert sizes == [10] * 11 + ([] if drop else [5])
    mapped = [len(label) for _, label in t2t.open(memory_template).dataset(pair, batch=10, drop_remainder=drop)]
    assert mapped == sizes


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_the_default_pair_takes_any_image(memory, image_format):
    extension = {"JPEG": "jpeg"}.get(image_format, image_format.lower())
    encoded = made.image(3, image_format)
    memory.put("a.tar", made.labelled("a", 2, lambda _: {extension: encoded, "cls": b" 7\n"}))
    dataset = t2t.open(memory.url("a.tar")).dataset(t2t.default_record_to_pair)
    try:
        decoded = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError:  # TensorFlow decodes WEBP from 2.20 on
        with pytest.raises(MappingError, match=r"record 'a/000000'.*image file format"):
            next(iter(dataset))
        return
    image, label = next(iter(dataset))
    expected = tf.image.resize(decoded / 255, (224, 224))
    np.testing.assert_allclose(image, expected, atol=1e-6)
    assert label == 7
    assert label.dtype == tf.int32


def test_shards_may_mix_image_formats(memory):
    kinds = [("jpg", "JPEG"), ("png", "PNG")]
    memory.put(
        "a.tar", made.labelled("a", 4, lambda i: {kinds[i % 2][0]: made.image(i, kinds[i % 2][1]), "cls": b"1"})
    )
    assert len(list(t2t.open(memory.url("a.tar")).dataset(t2t.default_record_to_pair))) == 4


def test_a_mapping_reads_only_the_fields_it_touches(memory):
    memory.put(
        "a.tar", made.labelled("a", 3, lambda i: {"jpg": b"x" * 1000, "cls": b"1", **({"x": b""} if i else {})})
    )
    source = t2t.open(memory.url("a.tar"))
    assert [int(label) for label in source.dataset(lambda r: tf.strings.to_number(r["cls"]))] == [1, 1, 1]
    with pytest.raises(MissingField, match=r"a/000000.*field 'x' is missing \(there are: cls, jpg\)"):
        list(source.dataset(lambda r: r["x"]))


def test_an_unknown_field_is_an_error_at_once(memory_template):
    with pytest.raises(MissingField, match="the mapping reads field 'jpgg'; there are: jpg, cls"):
        t2t.open(memory_template).dataset(lambda r: tf.io.decode_jpeg(r["jpgg"]))


def test_mappings_may_return_any_structure(memory_template):
    def nest(record):
        return {
            "length": tf.strings.length(record["jpg"]),
            "both": (record["cls"], tf.strings.split(record["__key__"], "/")),
        }

    dataset = t2t.open(memory_template).dataset(nest)
    assert len(list(dataset)) == SHARDS * RECORDS
    assert set(dataset.element_spec) == {"length", "both"}


def test_ragged_results(memory_template):
    dataset = t2t.open(memory_template).dataset(lambda r: tf.strings.split([r["__key__"]], "/"))
    assert next(iter(dataset)).to_list() == [[b"s0", b"000000"]]


def test_a_mapping_may_return_the_whole_record(memory_template):
    def add(record):
        record["more"] = tf.strings.length(record["jpg"])
        return record

    assert set(next(iter(t2t.open(memory_template).dataset(add)))) == {"jpg", "cls", "more", "__key__", "__shard__"}


# Python mappings


def test_an_untraceable_mapping_needs_types_and_shapes(memory_template):
    with pytest.raises(SchemaError, match="needs output_types and output_shapes"):
        t2t.open(memory_template).dataset(lambda r: json.loads(r["cls"]))
    with pytest.raises(SchemaError, match="needs output_shapes"):
        t2t.open(memory_template).dataset(lambda r: json.loads(r["cls"]), output_types=tf.int32)


def test_a_python_mapping_gets_plain_values(memory_template):
    def plain(record):
        assert isinstance(record["__key__"], str)
        return np.full((2, 3), json.loads(record["cls"]), np.float32), record["__key__"].upper(), record["cls"]

    dataset = t2t.open(memory_template).dataset(
        plain, output_types=(tf.float32, tf.string, tf.int32), output_shapes=((2, 3), (), ())
    )
    array, key, label = list(dataset)[24]
    assert (array.numpy() == 1).all()
    assert (key, int(label)) == (b"S1/000001", 1)
    assert dataset.element_spec[0] == tf.TensorSpec((2, 3), tf.float32)


def test_python_randomness_is_not_frozen(memory_template):
    def noisy(record):
        return record["cls"], random.random()

    dataset = t2t.open(memory_template).dataset(noisy, output_types=(tf.string, tf.float32), output_shapes=((), ()))
    assert len({float(value) for _, value in dataset}) > 100


def test_a_random_choice_is_randomness(memory_template):
    def flipped(record):
        return record["cls"] if np.random.rand() < 2 else record["jpg"]

    with pytest.raises(SchemaError, match="draws random numbers in Python"):
        t2t.open(memory_template).dataset(flipped)


# Order


def test_the_order_is_that_of_the_template(memory_template):
    expected = in_order(memory_template)
    for connections, parallel in ((1, None), (4, 3)):
        source = t2t.open(memory_template, connections=connections)
        assert keys(source.dataset()) == expected
        assert [key.numpy().decode() for key, _ in source.dataset(pair, parallel=parallel)] == expected


def test_shuffling_is_a_function_of_the_seed_and_the_epoch(memory_template):
    source = t2t.open(memory_template)
    option = Shuffle(window=20, shards=2, turn=3, seed=5)
    dataset = source.dataset(shuffle=option)
    first, second = keys(dataset), keys(dataset)
    assert Counter(first) == Counter(second) == Counter(in_order(memory_template))
    assert first != second
    again = source.dataset(lambda record: dict(record), shuffle=option, parallel=4)
    assert [keys(again), keys(again)] == [first, second]
    assert keys(t2t.open(memory_template, connections=3).dataset(shuffle=option)) == first
    assert keys(source.dataset(shuffle=replace(option, seed=6))) != first
    assert keys(source.dataset(shuffle=option, repeat=2)) == first + second
    fixed = source.dataset(shuffle=Shuffle(seed=5, reshuffle_each_epoch=False))
    assert keys(fixed) == keys(fixed)


def test_shuffle_without_an_argument(memory_template):
    dataset = t2t.open(memory_template).dataset(pair)
    shuffled = dataset.shuffle()
    assert shuffled.element_spec == dataset.element_spec
    found = [key.numpy().decode() for key, _ in shuffled]
    assert found != in_order(memory_template)
    assert sorted(found) == sorted(in_order(memory_template))
    window = [key.numpy().decode() for key, _ in dataset.shuffle(4, seed=1)]
    assert window == [key.numpy().decode() for key, _ in dataset.shuffle(buffer_size=4, seed=1)]


@pytest.mark.parametrize("shuffle", [None, Shuffle(seed=3, window=10)])
def test_hosts_share_the_shards(memory_template, shuffle):
    parts = [keys(t2t.open(memory_template).dataset(shard=(host, 3), shuffle=shuffle)) for host in range(3)]
    assert Counter(key for part in parts for key in part) == Counter(in_order(memory_template))
    dataset = t2t.open(memory_template).dataset(shard=(0, 3))
    assert dataset.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("shuffle", [None, Shuffle(seed=3, window=10, shards=2)])
def test_start_at_a_records_number(memory_template, shuffle, mapped):
    def ask(start_at):
        dataset = t2t.open(memory_template).dataset(pair if mapped else None, shuffle=shuffle, start_at=start_at)
        return [key.numpy() for key, _ in dataset] if mapped else keys(dataset)

    whole = ask(0)
    assert len(whole) == 115
    for start in (1, 40, 114, 115):
        assert ask(start) == whole[start:]


def test_iterating_does_not_disturb_another_iterator(imagenet):
    source = t2t.open("ais://imagenet/train-{0..3}.tar.gz", endpoint=imagenet.url, limits=Limits(chunk_records=4))
    dataset = source.dataset()
    imagenet.requests.clear()
    for one, other in zip(dataset, dataset, strict=True):
        assert one["__key__"] == other["__key__"]
    bodies = [seen for seen in imagenet.requests if seen.node.startswith("t")]
    assert len(bodies) == 2 * 4  # each shard once for each of both iterators


# Checkpoints; see also test_resume.py


@pytest.fixture
def train_template(tmp_path) -> str:
    for number in range(4):
        shard = made.labelled(f"s{number}", 15 + number, lambda i: {"jpg": b"x" * 700, "cls": b"%d" % i})
        (tmp_path / f"train-{number}.tar").write_bytes(made.gzipped(shard) if number == 2 else shard)
    return f"{tmp_path}/train-{{0..3}}.tar"


def test_a_checkpoint_is_small_and_an_object_that_changed_is_an_error(train_template, tmp_path):
    iterator = iter(
        t2t.open(train_template, limits=Limits(chunk_records=2)).dataset(shuffle=Shuffle(seed=1, window=1000))
    )
    for _ in range(3):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "small"))
    assert sum(path.stat().st_size for path in tmp_path.glob("small*")) < 20_000

    plain = train_template.replace("{0..3}", "0")
    iterator = iter(t2t.open(plain, limits=Limits(chunk_records=2)).dataset())
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "changed"))
    path = Path(plain)
    path.write_bytes(path.read_bytes() + bytes(512))
    fresh = iter(t2t.open(plain, limits=Limits(chunk_records=2)).dataset())
    tf.train.Checkpoint(iterator=fresh).restore(saved)
    with pytest.raises(ObjectChanged, match=r"the object was replaced"):
        list(fresh)


# Errors


@pytest.fixture
def damaged(memory) -> str:
    """Store 50 records: the labels of 7 and 49 are no numbers, and the image of 33 cannot be decoded."""

    def fields(i):
        return {"jpg": made.image(i) if i != 33 else b"no image", "cls": b"cat" if i in (7, 49) else b"%d" % (i % 10)}

    memory.put("bad.tar", made.labelled("bad", 50, fields))
    return memory.url("bad.tar")


def test_an_error_inside_the_pipeline_names_shard_and_key(damaged):
    iterator = iter(t2t.open(damaged).dataset(t2t.default_record_to_pair))
    assert len([next(iterator) for _ in range(7)]) == 7
    with pytest.raises(MappingError, match=rf"{damaged}, record 'bad/000007'.*could not.*convert string: cat"):
        next(iterator)


def test_a_failing_last_record_does_not_end_the_epoch_early(damaged):
    labels = t2t.open(damaged).dataset(lambda r: tf.strings.to_number(r["cls"]), start_at=40)
    with pytest.raises(MappingError, match="bad/000049"):
        list(labels)


@pytest.mark.parametrize("batch", [None, 8])
def test_records_that_do_not_decode_can_be_skipped_and_are_counted(damaged, batch):
    source = t2t.open(damaged, on_error="skip-record")
    elements = list(
        source.dataset(t2t.default_record_to_pair, batch=batch).unbatch()
        if batch
        else source.dataset(t2t.default_record_to_pair)
    )
    assert len(elements) == 47
    assert source.stats.skipped == {"MappingError": 3}
    assert (source.stats.records_read, source.stats.records_emitted) == (50, 47)


def test_a_callable_gets_the_errors(damaged):
    seen = []
    source = t2t.open(damaged, on_error=lambda error: seen.append(error) or True)
    assert len(list(source.dataset(t2t.default_record_to_pair))) == 47
    assert [(type(error), error.key) for error in seen] == [
        (MappingError, "bad/000007"),
        (MappingError, "bad/000033"),
        (MappingError, "bad/000049"),
    ]


def test_an_epoch_in_which_all_records_fail_is_an_error(memory):
    memory.put("a.tar", made.labelled("a", 3, lambda _: {"cls": b"x"}))
    with pytest.raises(MappingError, match="a/000000"):
        list(t2t.open(memory.url("a.tar")).dataset(lambda r: tf.strings.to_number(r["cls"])))


@pytest.mark.parametrize("raised", [StopIteration, ValueError, KeyError, tf.errors.OutOfRangeError, MemoryError])
def test_no_exception_of_a_mapping_ends_the_dataset_early(memory_template, raised):
    def fails(record):
        if record["__key__"] == "s1/000003":
            raise raised(None, None, "over") if raised is tf.errors.OutOfRangeError else raised("over")
        return json.loads(record["cls"])

    dataset = t2t.open(memory_template).dataset(fails, output_types=tf.int32, output_shapes=())
    with pytest.raises(MappingError, match=r"train-1.tar, record 's1/000003'"):
        list(dataset)
    skipping = t2t.open(memory_template, on_error="skip-record")
    assert len(list(skipping.dataset(fails, output_types=tf.int32, output_shapes=()))) == SHARDS * RECORDS - 1
    assert skipping.stats.skipped == {"MappingError": 1}


@pytest.mark.parametrize("mapping", [None, pair])
@pytest.mark.parametrize("cut", [1, 5_000, 30_000])
def test_a_truncated_shard_is_an_error_of_the_dataset(memory, mapping, cut):
    shard = made.labelled("t", 50, lambda _: {"jpg": b"x" * 1000, "cls": b"1"})
    memory.put("a.tar", shard)
    memory.put("b.tar", shard[: len(shard) - 10_240 - cut].rstrip(b"\0"))
    iterator = iter(t2t.open(memory.url("{a,b}.tar")).dataset(mapping))
    for _ in range(50):
        next(iterator)
    with pytest.raises(TruncatedArchive, match=r"b\.tar"):
        list(iterator)


@pytest.mark.parametrize("mapping", [None, pair])
def test_a_missing_shard_is_an_error_of_the_dataset(memory, mapping):
    memory.put("a.tar", made.labelled("a", 3))
    with pytest.raises(ShardNotFound, match=r"b\.tar"):
        list(t2t.open(memory.url("{a,b}.tar")).dataset(mapping))
    skipping = t2t.open(memory.url("{a,b}.tar"), on_error="skip-shard")
    assert len(list(skipping.dataset(mapping))) == 3
    assert skipping.stats.skipped == {"ShardNotFound": 1}


def test_errors_of_the_first_records_are_raised_when_the_dataset_is_made(memory):
    with pytest.raises(ShardNotFound):
        t2t.open(memory.url("nothing.tar")).dataset()


@pytest.mark.parametrize("wrong", [0, -2, 1.5, True, "2"])
@pytest.mark.parametrize("name", ["batch", "repeat", "parallel", "start_at", "shuffle", "shard"])
def test_an_invalid_number_is_refused_when_the_dataset_is_made(memory_template, name, wrong):
    """TensorFlow would misunderstand some of these values, and crash with others."""
    if (name, wrong) in {("start_at", 0), ("shuffle", True)}:
        return
    with pytest.raises((ValueError, TypeError), match=name if name != "shuffle" else r"[Ss]huffle"):
        t2t.open(memory_template).dataset(**{name: (wrong, 0) if name == "shard" and wrong == 0 else wrong})


def test_numbers_may_be_numpys_and_tensorflows(memory_template):
    source, two = t2t.open(memory_template), np.int64(2)
    for how in ({"shuffle": two, "seed": two}, {"start_at": two}, {"repeat": two}, {"shard": (np.int32(1), two)}):
        plain = {name: tuple(map(int, each)) if name == "shard" else int(each) for name, each in how.items()}
        assert keys(source.dataset(**how)) == keys(source.dataset(**plain))
    assert keys(source.dataset().shuffle(tf.constant(9), two)) == keys(source.dataset(shuffle=9, seed=2))
    mapped = source.dataset(pair, batch=two, parallel=tf.data.AUTOTUNE)
    assert [len(batch) for batch, _ in mapped][:3] == [2, 2, 2]
    mixture = [t2t.mix([source, source], seed=seed).dataset(start_at=start) for seed, start in ((two, two), (2, 2))]
    assert keys(mixture[0]) == keys(mixture[1])
    assert Limits(chunk_bytes=1e6).chunk_bytes == 1_000_000
    with pytest.raises(TypeError, match=r"Limits\.chunk_bytes is a whole number, not '1MB'"):
        Limits(chunk_bytes="1MB")
    with pytest.raises(TypeError, match=r"Timeouts\.idle is a number, not '5'"):
        t2t.options.Timeouts(idle="5")


# Nothing is left


def test_no_tuning_thread_delays_the_end_of_an_epoch(memory_template):
    """TensorFlow's tuning thread sleeps twice as long each time, and an iterator ends only after the thread wakes."""
    datasets = [
        t2t.open(memory_template).dataset(),
        t2t.open(memory_template).dataset(lambda record: tf.strings.length(record["jpg"])),
    ]
    for dataset in datasets:
        assert dataset.batch(2).options().autotune.enabled is False
        tuned = tf.data.Options()
        tuned.autotune.enabled = True
        assert (
            dataset.with_options(tuned).options().autotune.enabled is True
        )  # the user's own option takes precedence


def test_a_dropped_iterator_leaves_no_stream_for_long(memory_template):
    before = set(threading.enumerate())
    source = t2t.open(memory_template, limits=Limits(chunk_records=2), timeouts=t2t.options.Timeouts(dropped=0.1))
    dataset = source.dataset()
    for _ in dataset:
        break
    deadline = threading.Event()
    for _ in range(400):
        left = [
            t
            for t in set(threading.enumerate()) - before
            if t.name.startswith("ais_tar2tf") or isinstance(t, threading.Timer)
        ]
        if not left:
            break
        deadline.wait(0.05)
    assert not left


def test_closing_the_source_ends_its_streams(memory_template):
    with t2t.open(memory_template, limits=Limits(chunk_records=2)) as source:
        records = source.records()
        next(records)
    with pytest.raises(StoreError, match="closed"):
        list(records)


def test_closing_the_source_ends_its_threads():
    """Check in a new process, because datasets of other tests start and end threads at any time."""
    program = """
import threading
import ais_tar2tf as t2t
t2t.pack([{"__key__": f"{n}", "txt": "x"} for n in range(99)], "memory://b/{}.tar", shard_records=9, create=True)
with t2t.open("memory://b/{0..10}.tar", limits=t2t.options.Limits(chunk_records=2)) as source:
    records = source.records()
    next(records)
    print("ais_tar2tf-fetch" in {thread.name for thread in threading.enumerate()})
print([thread.name for thread in threading.enumerate() if thread.name == "ais_tar2tf-fetch"])
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n[]\n"


def test_a_dataset_survives_the_closing_of_its_source(memory_template):
    source = t2t.open(memory_template, limits=Limits(chunk_records=2))
    found = []
    for number, element in enumerate(source.dataset()):
        found.append(element["__key__"].numpy().decode())
        if number % 20 == 0:
            source.close()
    assert found == in_order(memory_template)
