"""Records that do not all have the same fields, as a folder of images has of which some are .jpg and some .png."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.errors import MappingError, MissingField, SchemaError
from ais_tar2tf.options import Limits
from ais_tar2tf.records import Records
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.tfdata.given import GivenRecord, differences, given
from ours import raises_ours

COUNT = 30
LENGTH = {"output_types": tf.int64, "output_shapes": ()}


def photo(number):
    """A record of the folder: every third image is a png."""
    png = number % 3 == 0
    image = made.image(number, "PNG" if png else "JPEG")
    return {"png" if png else "jpg": image, "cls": b"%d" % (number % 4)}


@pytest.fixture
def memory(request):
    return MemoryStore(f"mixed-{zlib.crc32(request.node.name.encode())}")


@pytest.fixture
def mixed(memory):
    for part in range(3):
        numbers = range(part * 10, part * 10 + 10)
        memory.put(f"mixed-{part}.tar", made.tar((f"{number:03d}", photo(number)) for number in numbers))
    return memory.url("mixed-{0..2}.tar")


@pytest.fixture
def sorted_by_class(memory):
    """The first 100 records are all jpg, which is more than a sample; the others are png."""
    records = [{"jpg": b"j" * (n + 1), "cls": b"0"} for n in range(100)] + [{"png": b"", "cls": b"1"}] * 5
    memory.put("classes.tar", made.tar((f"{n:03d}", record) for n, record in enumerate(records)))
    return memory.url("classes.tar")


def by_in(record):
    return len(record["jpg"] if "jpg" in record else record["png"])


def by_get(record):
    return len(record.get("jpg") or record["png"])


def by_key_error(record):
    try:
        return len(record["png"])
    except KeyError:
        return len(record["jpg"])


def by_pop(record):
    return len(record.pop("png", None) or record.pop("jpg"))


def by_iteration(record):
    return sum(len(value) for name, value in record.items() if name in ("jpg", "png"))


LENGTHS = [len(next(body for name, body in photo(n).items() if name != "cls")) for n in range(COUNT)]


@pytest.mark.parametrize("function", [by_in, by_get, by_key_error, by_pop, by_iteration])
@pytest.mark.parametrize("fields", [(), ("jpg?", "png?", "cls")])
@pytest.mark.parametrize("graph", [None, False])
def test_python_gets_each_record_with_the_fields_that_it_has(mixed, function, fields, graph):
    """Whatever a mapping asks a record, it gets the answer that `records()` gives."""
    source = t2t.open(mixed)
    source = source.select(*fields) if fields else source
    assert [function(dict(record)) for record in source.records()] == LENGTHS
    found = source.dataset(function, graph=graph, **LENGTH)
    assert list(found.as_numpy_iterator()) == LENGTHS


def test_python_gets_records_as_they_are(mixed):
    seen = []

    def note(record):
        seen.append(dict(record))
        return 0

    list(t2t.open(mixed).dataset(note, graph=False, parallel=1, **LENGTH))
    assert seen == list(t2t.open(mixed).records())


def test_fields_that_the_sample_did_not_have_are_there(sorted_by_class):
    """A record's own fields count, not those of the first records; an empty file is there, and is empty."""
    source = t2t.open(sorted_by_class, limits=Limits(chunk_records=64))
    found = list(source.dataset(by_in, graph=False, **LENGTH).as_numpy_iterator())
    assert found == [*range(1, 101), 0, 0, 0, 0, 0]


def test_a_mapping_that_reads_none_of_the_differing_fields(mixed):
    source = t2t.open(mixed)
    labels = [n % 4 for n in range(COUNT)]
    assert list(source.dataset(lambda r: int(r["cls"]), graph=False, **LENGTH).as_numpy_iterator()) == labels
    in_graph = source.dataset(lambda r: tf.strings.to_number(r["cls"], tf.int64))
    assert list(in_graph.as_numpy_iterator()) == labels


def test_a_field_is_missing_when_python_asks_for_it(mixed):
    with raises_ours(
        MissingField, r"mixed-0\.tar, record '000': the mapping reads field 'jpg', .* there are: png, cls"
    ):
        list(t2t.open(mixed).dataset(lambda r: len(r["jpg"]), graph=False, **LENGTH))
    source = t2t.open(mixed, on_error="skip-record")
    found = source.dataset(lambda r: len(r.pop("jpg")), graph=False, **LENGTH)
    assert list(found.as_numpy_iterator()) == [length for n, length in enumerate(LENGTHS) if n % 3]
    assert source.stats.skipped == {"MissingField": COUNT // 3}


def test_another_key_error_is_the_mappings_own(mixed):
    with raises_ours(MappingError, "the mapping failed: KeyError: 'jpg'"):
        list(t2t.open(mixed).dataset(lambda _: {}["jpg"], graph=False, **LENGTH))


@pytest.mark.parametrize("how", [{}, {"batch": 8}, {"decode": True}])
@pytest.mark.parametrize("on_error", ["raise", "skip-record"])
def test_elements_of_different_fields_are_refused_at_once_with_the_cure(mixed, how, on_error):
    """A dataset's elements have the same fields. Skipping would leave nothing."""
    cure = r"select\('image=jpg;png', 'cls'\) .* select\('jpg\?', 'png\?', 'cls'\)"
    with pytest.raises(MissingField, match=rf"mixed-0\.tar, record '000': field 'jpg' is missing .*{cure}"):
        t2t.open(mixed, on_error=on_error).dataset(**how)


def test_both_cures_read_all_records(mixed):
    source = t2t.open(mixed)
    one = list(source.select("image=jpg;png", "cls").dataset(batch=7).unbatch().as_numpy_iterator())
    assert [len(element["image"]) for element in one] == LENGTHS
    each = list(source.select("jpg?", "png?", "cls").dataset().as_numpy_iterator())
    assert [len(element["jpg"]) + len(element["png"]) for element in each] == LENGTHS
    assert {element["jpg"] for n, element in enumerate(each) if n % 3 == 0} == {b""}
    decoded = source.select("image=jpg;png", "cls").dataset(decode=True)
    assert [element["image"].shape for element in decoded] == [(30, 40, 3)] * COUNT


def test_a_field_beside_the_image_that_some_records_lack(memory):
    """Where some records have all fields, one that does not is told when it comes, or skipped."""
    records = [{"jpg": b"j", **({"json": b"{}"} if n % 2 else {})} for n in range(10)]
    memory.put("beside.tar", made.tar((f"{n}", record) for n, record in enumerate(records)))
    with raises_ours(MissingField, r"record '0': field 'json' is missing .*select 'json\?' if it may be absent"):
        list(t2t.open(memory.url("beside.tar")).dataset())
    skipping = t2t.open(memory.url("beside.tar"), on_error="skip-record")
    assert len(list(skipping.dataset())) == 5
    assert skipping.stats.skipped == {"MissingField": 5}
    with pytest.raises(
        SchemaError, match=r"asks whether .* select\('json\?', 'jpg'\) reads fields that may be absent"
    ):
        t2t.open(memory.url("beside.tar")).dataset(lambda r: r["jpg"] if "json" in r else r["jpg"] + "!")


# Graphs.


def in_graph(record):
    return tf.strings.length(record["jpg"] if "jpg" in record else record["png"])


def get_in_graph(record):
    return tf.strings.length(record.get("jpg", record["cls"]))


def all_in_graph(record):
    return tf.add_n([tf.strings.length(value) for value in record.values()])


def caught_in_graph(record):
    try:
        return tf.strings.length(record["json"])
    except KeyError:
        return tf.constant(0)


@pytest.mark.parametrize("function", [in_graph, get_in_graph, all_in_graph])
def test_what_a_graph_cannot_answer_runs_as_python_or_is_refused(mixed, function):
    source = t2t.open(mixed)
    asks = "asks whether a record has '(jpg|png|json)', which a graph cannot answer"
    cure = r"needs output_types and output_shapes: .*select\('image=jpg;png', 'cls'\)"
    with pytest.raises(SchemaError, match=f"{asks}, so it runs as Python, and {cure}"):
        source.dataset(function)
    with pytest.raises(SchemaError, match=f"graph=True, but this mapping {asks}; select"):
        source.dataset(function, graph=True)
    expected = [int(function(dict(record))) for record in source.records()]
    found = source.dataset(function, output_types=tf.int32, output_shapes=())
    assert list(found.as_numpy_iterator()) == expected


def test_a_selection_answers_a_graph(mixed):
    """Fields that are selected are there, others are not, and those that may be absent are a matter of the record."""

    def asks(record):
        return tf.strings.length(record["image"] if "image" in record and "json" not in record else record["cls"])

    source = t2t.open(mixed)
    assert list(source.select("image=jpg;png", "cls").dataset(asks, graph=True).as_numpy_iterator()) == LENGTHS
    with pytest.raises(SchemaError, match=r"asks whether a record has 'jpg'.*in a graph, read the field without"):
        source.select("jpg?", "png?", "cls").dataset(in_graph)
    both = source.select("jpg?", "png?", "cls").dataset(lambda r: tf.strings.length(r["jpg"] + r["png"]), graph=True)
    assert list(both.as_numpy_iterator()) == LENGTHS


@pytest.mark.parametrize("function", [in_graph, get_in_graph, caught_in_graph])
@pytest.mark.parametrize("batch", [None, 7])
def test_a_question_about_alike_records_is_answered_by_the_first_of_them(memory, function, batch):
    records = [(f"{n:03d}", {"jpg": b"j" * (n + 1), "cls": b"1"}) for n in range(200)]
    memory.put("alike.tar", made.tar(records))
    expected = [int(function({"jpg": r["jpg"], "cls": r["cls"]} | r)) for _, r in records]
    source = t2t.open(memory.url("alike.tar"), limits=Limits(chunk_records=64))
    found = source.dataset(function, graph=True, batch=batch)
    found = found if batch is None else found.unbatch()
    assert list(found.as_numpy_iterator()) == expected


def json_or_length(record):
    return tf.strings.length(record.get("json", record["jpg"]))


@pytest.mark.parametrize("function", [json_or_length, caught_in_graph])
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("late", [100, 150, 199])
def test_a_later_record_with_a_field_that_was_taken_for_absent_is_named(memory, function, small, late):
    """The first records are no proof, and nobody gets their answer for a record that differs."""
    records = [(f"{n:03d}", {"jpg": b"j", **({"json": b"{}"} if n == late else {})}) for n in range(200)]
    memory.put("late.tar", made.tar(records))
    source = t2t.open(memory.url("late.tar"), limits=Limits(chunk_records=64), on_error="skip-record")
    found = source.dataset(function)
    with raises_ours(SchemaError, rf"record '{late:03d}': it has a field 'json', and the first records had none"):
        list(found.small_checkpoints() if small else found)
    asked = t2t.open(memory.url("late.tar")).dataset(
        lambda r: len(r.get("json", b"j")), graph=False, output_types=tf.int32, output_shapes=()
    )
    assert list(asked.as_numpy_iterator()) == [1 + (n == late) for n in range(200)]


def test_a_later_record_without_a_field_that_was_taken_for_present_is_named(sorted_by_class):
    source = t2t.open(sorted_by_class, limits=Limits(chunk_records=64))
    with raises_ours(MissingField, r"field 'jpg' is missing .*select 'jpg\?' if it may be absent"):
        list(source.dataset(in_graph))
    with raises_ours(MissingField, "field 'jpg' is missing"):  # asked only, and not read
        list(source.dataset(lambda r: tf.strings.length(r["cls"]) if "jpg" in r else tf.constant(0)))
    found = source.dataset(in_graph, graph=False, output_types=tf.int32, output_shapes=())
    assert list(found.as_numpy_iterator()) == [*range(1, 101), 0, 0, 0, 0, 0]


def test_what_a_function_takes_out_of_a_record_or_adds_is_its_own(memory):
    memory.put("own.tar", made.tar((f"{n}", {"jpg": b"j" * n, "cls": b"1"}) for n in range(5)))

    def function(record):
        record["extra"] = record.pop("jpg")
        assert "jpg" not in record
        assert "extra" in record
        return tf.strings.length(record["extra"])

    found = t2t.open(memory.url("own.tar")).dataset(function, graph=True)
    assert list(found.as_numpy_iterator()) == [*range(5)]


def test_a_graph_that_reads_a_field_names_the_record_without_it(mixed):
    with raises_ours(MissingField, r"record '000': field 'jpg' is missing .*select 'jpg\?' if it may be absent"):
        list(t2t.open(mixed).dataset(lambda r: tf.strings.length(r["jpg"])))


def test_the_default_pair_in_a_function_of_ones_own(mixed, memory):
    memory.put("png.tar", made.labelled("p", 4, lambda n: {"png": made.image(n, "PNG"), "cls": b"1"}))
    alike = t2t.open(memory.url("png.tar")).dataset(lambda r: t2t.default_record_to_pair(r), graph=True)
    assert [int(label) for _, label in alike] == [1] * 4
    with pytest.raises(SchemaError, match="asks whether a record has 'jpg', which a graph cannot answer"):
        t2t.open(mixed).dataset(lambda r: t2t.default_record_to_pair(r))
    assert len(list(t2t.open(mixed).dataset(t2t.default_record_to_pair))) == COUNT


@pytest.mark.parametrize("selected", [("image=jpg;png", "cls"), ("jpg?", "png?", "cls"), ("jpg=jpg;png", "cls")])
def test_the_default_pair_is_of_what_the_cures_select(mixed, selected):
    expected = [each[0].numpy().mean() for each in t2t.open(mixed).dataset(t2t.default_record_to_pair)]
    source = t2t.open(mixed).select(*selected)
    for dataset in (
        source.dataset(t2t.default_record_to_pair),
        source.dataset(lambda record: t2t.default_record_to_pair(record), graph=True),
        source.dataset().map(t2t.default_record_to_pair),
    ):
        assert [each[0].numpy().mean() for each in dataset] == expected


def test_the_default_pair_of_an_export_of_different_images(mixed, tmp_path):
    t2t.open(mixed).export(tmp_path / "out", types={"cls": "int64"})
    pairs = list(t2t.load(tmp_path / "out").dataset("train").map(t2t.default_record_to_pair))
    assert sorted(int(label) for _, label in pairs) == sorted(n % 4 for n in range(COUNT))
    assert all(float(tf.reduce_max(image)) > 0 for image, _ in pairs)


def test_the_default_example_of_a_field_named_image(mixed):
    for record in t2t.open(mixed).select("image=jpg;png", "cls").records():
        feature = t2t.default_record_to_example(record).features.feature
        assert feature["image_raw"].bytes_list.value[0] == record["image"]


def test_decoded_fields_are_read_when_the_mapping_asks_for_them(mixed):
    labels = t2t.open(mixed).dataset(lambda r: r["cls"] + 0, decode=True)
    assert list(labels.as_numpy_iterator()) == [n % 4 for n in range(COUNT)]

    def mean(record):
        return np.float32((record["jpg"] if "jpg" in record else record["png"]).mean())

    how = {"output_types": tf.float32, "output_shapes": ()}
    means = list(t2t.open(mixed).dataset(mean, decode=True, **how).as_numpy_iterator())
    bodies = [record.get("jpg", record.get("png")) for record in t2t.open(mixed).records()]
    assert means == pytest.approx([np.asarray(Image.open(io.BytesIO(body))).mean() for body in bodies], abs=1)


# How they get there.


@pytest.mark.parametrize("at", [0, 1, 7, 29])
def test_a_checkpoint_goes_on_with_records_as_they_are(mixed, at):
    def dataset():
        return t2t.open(mixed, limits=Limits(chunk_records=4)).dataset(
            by_in, graph=False, shuffle=True, seed=3, **LENGTH
        )

    whole = [int(each) for each in dataset()]
    assert sorted(whole) == sorted(LENGTHS)
    iterator = iter(dataset())
    for _ in range(at):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator)
    state = saved.write("ram://mixed-fields/" + str(at))
    again = iter(dataset())
    tf.train.Checkpoint(iterator=again).read(state)
    assert [int(each) for each in again] == whole[at:]


def test_small_checkpoints_keep_the_meaning_of_an_absent_field(mixed):
    def fails(record):
        return tf.io.decode_image(record["jpg"] + record["png"], expand_animations=False)[0, 0, 0]

    source = t2t.open(mixed).select("jpg?", "png?")
    plain = list(source.dataset(fails).as_numpy_iterator())
    assert list(source.dataset(fails).small_checkpoints().as_numpy_iterator()) == plain


def test_sources_of_a_mixture_with_different_fields(memory):
    memory.put("a.tar", made.labelled("a", 5, lambda n: {"jpg": b"j" * (n + 1), "cls": b"1"}))
    memory.put("b.tar", made.labelled("b", 5, lambda n: {"png": b"p" * (n + 11), "cls": b"1"}))
    mixture = t2t.mix([t2t.open(memory.url(f"{name}.tar")) for name in "ab"], at_end="drop", seed=1)
    found = mixture.dataset(by_in, graph=False, **LENGTH)
    assert sorted(found.as_numpy_iterator()) == [*range(1, 6), *range(11, 16)]
    with pytest.raises(SchemaError, match=r"lacks jpg, unlike .*select\(\) the fields that are meant"):
        mixture.dataset()
    with pytest.raises(SchemaError, match=r"has a field 'png', unlike the mixture's first source.*select\(\)"):
        mixture.dataset(lambda r: tf.strings.length(r["cls"]) if "png" not in r else tf.constant(0))


def test_records_of_example_files(tmp_path):
    """Features differ as members do; a number among them arrives as the array that `records()` gives."""
    path = str(tmp_path / "mixed.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for n in range(100):
            feature = {"jpg": b"j" * n} if n < 80 else {"png": b"p" * n, "size": [n, n]}
            writer.write(t2t.features.encode(feature))
    seen = [
        len(record["jpg"]) if "jpg" in record else int(sum(record["size"])) for record in t2t.open(path).records()
    ]

    def size(record):
        return len(record["jpg"]) if "jpg" in record else record["size"].sum()

    assert list(t2t.open(path).dataset(size, graph=False, **LENGTH).as_numpy_iterator()) == seen


@pytest.mark.parametrize(
    "records",
    [
        [],
        [{"jpg": b"1", "cls": b""}] * 3,
        [{"jpg": b"1"}, {"cls": b"2"}, {}],
        [{"-jpg": b"", "+": b"x", "naïve": b"n"}, {"jpg": b"1", "cls": b"2", "\udcff": b"\xff"}],
    ],
)
def test_a_row_and_its_difference_are_the_record(records):
    """Whatever fields are called."""
    names = ("jpg", "cls", "__key__", "__shard__")
    whole = [record | {"__key__": "a\udce9", "__shard__": "s"} for record in records]
    chunk = Records(whole)
    columns = [
        [each.encode("utf-8", "surrogateescape") for each in chunk.column(name)]
        if name.startswith("__")
        else chunk.column(name, b"")
        for name in names
    ]
    rows = list(zip(*columns, strict=True))
    found = [given(names, row, difference) for row, difference in zip(rows, differences(chunk, names), strict=True)]
    assert found == whole
    assert all(isinstance(record.copy(), GivenRecord) for record in found)


# What a mapping in Python returns.


def returning(memory, value, types, shapes, **options):
    memory.put("r.tar", made.labelled("r", 3, lambda n: {"cls": b"%d" % n}))
    source = t2t.open(memory.url("r.tar"), **options)
    how = {"output_types": types, "output_shapes": shapes}
    return source, source.dataset(lambda r: value(int(r["cls"])), graph=False, **how)


@pytest.mark.parametrize(
    ("value", "types", "shapes", "told"),
    [
        (lambda n: np.zeros(2 + (n == 1), "f4"), tf.float32, (2,), r"shape \(3,\), and output_shapes says \(2,\)"),
        (
            lambda n: (np.zeros(()) if n == 1 else np.zeros(1), 1),
            (tf.float64, tf.int32),
            ((None,), ()),
            r"shape \(\)",
        ),
        (lambda n: np.array([n, 0.7 if n == 1 else 1.0]), tf.int32, (2,), "0.7 would become 0;"),
        (lambda n: 300.9 if n == 1 else 3.0, tf.uint8, (), "is no uint8, .* 300.9 would become"),
        (lambda n: 300 if n == 1 else 3, tf.uint8, (), "300 would become 44"),
        (lambda n: -n if n == 1 else 3, tf.uint16, (), "-1 would become 65535"),
        (lambda n: 2**40 if n == 1 else 3, tf.int32, (), "1099511627776 would become 0"),
        (lambda n: np.nan if n == 1 else 3.0, tf.int64, (), "nan would become"),
        (lambda n: n + 1, tf.bool, (), "[23] would become True"),
        (lambda n: 1e300 if n == 1 else 1.0, tf.float32, (), "is no float32, as output_types says: overflow"),
        (lambda n: None if n == 1 else 1.0, tf.float32, (), "None would become nan"),
        (lambda n: "7.5" if n == 1 else "7", tf.int32, (), "'7.5'"),
        (lambda n: 7 if n == 1 else "7", tf.string, (), "is int, and output_types says text"),
        (
            lambda n: (1,) * (1 + n),
            (tf.int32, tf.int32),
            ((), ()),
            "it returned [13] values?, and output_types has 2",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_record(memory, value, types, shapes, told):
    with raises_ours(MappingError, rf"r\.tar, record 'r/.*: the mapping failed: .*{told}"):
        list(returning(memory, value, types, shapes)[1])
    source, dataset = returning(memory, value, types, shapes, on_error="skip-record")
    assert len(list(dataset)) + source.stats.skipped["MappingError"] == 3


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "expected"),
    [
        (np.array([1.0, 255.0]), tf.uint8, (2,), [1, 255]),  # whole numbers stay what they are
        (np.array([1, 2], "i8"), tf.int32, (None,), [1, 2]),
        (np.array([0.1, np.inf]), tf.float32, (2,), np.array([0.1, np.inf], "f4")),  # floats may lose digits
        (np.array([1, 3]), tf.float16, None, [1, 3]),
        (np.array([True, False]), tf.int32, (2,), [1, 0]),
        (np.array([0, 1]), tf.bool, (2,), [False, True]),
        ("7", tf.int32, (), 7),
        (b" 7.5", tf.float32, (), 7.5),
        (tf.constant([1.5]), tf.bfloat16, (1,), [1.5]),
        (np.array(["a", "é"]), tf.string, (2,), [b"a", "é".encode()]),
    ],
)
def test_a_value_that_keeps_its_meaning_is_cast(memory, value, dtype, shape, expected):
    shape = tf.TensorShape(shape)
    found = list(returning(memory, lambda _: value, dtype, shape)[1])
    assert len(found) == 3
    assert found[0].dtype == dtype
    np.testing.assert_array_equal(found[0].numpy(), expected)
