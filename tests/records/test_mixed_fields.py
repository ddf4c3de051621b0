"""Records with different fields, as from a folder of images of which some are .jpg and some .png."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import ais_tar2tf as t2t
from ais_tar2tf.errors import MappingError, MissingField, SchemaError
from ais_tar2tf.options import Limits
from ais_tar2tf.records import Records
from ais_tar2tf.tfdata.mappings.python_record import PythonRecord, field_differences, unpack_record
from tests.support import shards as made
from tests.support.own_errors import raises_ours

COUNT = 30
LENGTH = {"output_types": tf.int64, "output_shapes": ()}


def photo(number):
    """Return a record of the folder, in which every third image is a png."""
    png = number % 3 == 0
    image = made.image(number, "PNG" if png else "JPEG")
    return {"png" if png else "jpg": image, "cls": b"%d" % (number % 4)}


@pytest.fixture
def mixed_template(memory):
    for part in range(3):
        numbers = range(part * 10, part * 10 + 10)
        memory.put(f"mixed-{part}.tar", made.tar((f"{number:03d}", photo(number)) for number in numbers))
    return memory.url("mixed-{0..2}.tar")


@pytest.fixture
def sorted_by_class(memory):
    """Write 100 records with a jpg, more than a sample, and then records with a png."""
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
def test_python_gets_each_record_with_the_fields_that_it_has(mixed_template, function, fields, graph):
    """A Python mapping gets the same records as `records()` gives."""
    source = t2t.open(mixed_template)
    source = source.select(*fields) if fields else source
    assert [function(dict(record)) for record in source.records()] == LENGTHS
    found = source.dataset(function, graph=graph, **LENGTH)
    assert list(found.as_numpy_iterator()) == LENGTHS


def test_python_gets_records_as_they_are(mixed_template):
    seen = []

    def note(record):
        seen.append(dict(record))
        return 0

    list(t2t.open(mixed_template).dataset(note, graph=False, parallel=1, **LENGTH))
    assert seen == list(t2t.open(mixed_template).records())


def test_fields_that_the_sample_lacks_are_given(sorted_by_class):
    """A mapping gets each record's own fields, not those of the first records, and empty files as empty fields."""
    source = t2t.open(sorted_by_class, limits=Limits(chunk_records=64))
    found = list(source.dataset(by_in, graph=False, **LENGTH).as_numpy_iterator())
    assert found == [*range(1, 101), 0, 0, 0, 0, 0]


def test_a_mapping_that_reads_none_of_the_differing_fields(mixed_template):
    source = t2t.open(mixed_template)
    labels = [n % 4 for n in range(COUNT)]
    assert list(source.dataset(lambda r: int(r["cls"]), graph=False, **LENGTH).as_numpy_iterator()) == labels
    in_graph = source.dataset(lambda r: tf.strings.to_number(r["cls"], tf.int64))
    assert list(in_graph.as_numpy_iterator()) == labels


def test_a_field_is_missing_when_python_asks_for_it(mixed_template):
    with raises_ours(
        MissingField, r"mixed-0\.tar, record '000': the mapping reads field 'jpg', .* there are: png, cls"
    ):
        list(t2t.open(mixed_template).dataset(lambda r: len(r["jpg"]), graph=False, **LENGTH))
    source = t2t.open(mixed_template, on_error="skip-record")
    found = source.dataset(lambda r: len(r.pop("jpg")), graph=False, **LENGTH)
    assert list(found.as_numpy_iterator()) == [length for n, length in enumerate(LENGTHS) if n % 3]
    assert source.stats.skipped == {"MissingField": COUNT // 3}


def test_another_key_error_is_the_mappings_own(mixed_template):
    with raises_ours(MappingError, "the mapping failed: KeyError: 'jpg'"):
        list(t2t.open(mixed_template).dataset(lambda _: {}["jpg"], graph=False, **LENGTH))


@pytest.mark.parametrize("how", [{}, {"batch": 8}, {"decode": True}])
@pytest.mark.parametrize("on_error", ["raise", "skip-record"])
def test_elements_of_different_fields_are_refused_with_a_remedy(mixed_template, how, on_error):
    """All elements of a dataset have the same fields, so different ones are an error, even if errors are skipped."""
    cure = r"select\('image=jpg;png', 'cls'\) .* select\('jpg\?', 'png\?', 'cls'\)"
    with pytest.raises(MissingField, match=rf"mixed-0\.tar, record '000': field 'jpg' is missing .*{cure}"):
        t2t.open(mixed_template, on_error=on_error).dataset(**how)


def test_both_remedies_read_all_records(mixed_template):
    source = t2t.open(mixed_template)
    one = list(source.select("image=jpg;png", "cls").dataset(batch=7).unbatch().as_numpy_iterator())
    assert [len(element["image"]) for element in one] == LENGTHS
    each = list(source.select("jpg?", "png?", "cls").dataset().as_numpy_iterator())
    assert [len(element["jpg"]) + len(element["png"]) for element in each] == LENGTHS
    assert {element["jpg"] for n, element in enumerate(each) if n % 3 == 0} == {b""}
    decoded = source.select("image=jpg;png", "cls").dataset(decode=True)
    assert [element["image"].shape for element in decoded] == [(30, 40, 3)] * COUNT


def test_a_field_that_some_records_lack(memory):
    """A record that lacks a field of other records is an error in its turn, or is skipped."""
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


# Graphs


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
def test_questions_that_a_graph_cannot_answer_run_as_python_or_are_refused(mixed_template, function):
    source = t2t.open(mixed_template)
    asks = "asks whether a record has '(jpg|png|json)', which a graph cannot answer"
    cure = r"needs output_types and output_shapes: .*select\('image=jpg;png', 'cls'\)"
    with pytest.raises(SchemaError, match=f"{asks}, so it runs as Python, and {cure}"):
        source.dataset(function)
    with pytest.raises(SchemaError, match=f"graph=True, but this mapping {asks}; select"):
        source.dataset(function, graph=True)
    expected = [int(function(dict(record))) for record in source.records()]
    found = source.dataset(function, output_types=tf.int32, output_shapes=())
    assert list(found.as_numpy_iterator()) == expected


def test_a_selection_tells_a_graph_which_fields_exist(mixed_template):
    """In a graph, selected fields exist, others do not, and optional ones depend on the record."""

    def asks(record):
        return tf.strings.length(record["image"] if "image" in record and "json" not in record else record["cls"])

    source = t2t.open(mixed_template)
    assert list(source.select("image=jpg;png", "cls").dataset(asks, graph=True).as_numpy_iterator()) == LENGTHS
    with pytest.raises(SchemaError, match=r"asks whether a record has 'jpg'.*in a graph, read the field without"):
        source.select("jpg?", "png?", "cls").dataset(in_graph)
    both = source.select("jpg?", "png?", "cls").dataset(lambda r: tf.strings.length(r["jpg"] + r["png"]), graph=True)
    assert list(both.as_numpy_iterator()) == LENGTHS


@pytest.mark.parametrize("function", [in_graph, get_in_graph, caught_in_graph])
@pytest.mark.parametrize("batch", [None, 7])
def test_a_question_about_equal_records_is_answered_by_the_first(memory, function, batch):
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
    """The first records may differ from later ones, and a later record never gets their answer."""
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
    with raises_ours(MissingField, "field 'jpg' is missing"):  # the field is only tested, not read
        list(source.dataset(lambda r: tf.strings.length(r["cls"]) if "jpg" in r else tf.constant(0)))
    found = source.dataset(in_graph, graph=False, output_types=tf.int32, output_shapes=())
    assert list(found.as_numpy_iterator()) == [*range(1, 101), 0, 0, 0, 0, 0]


def test_a_function_may_remove_and_add_fields(memory):
    memory.put("own.tar", made.tar((f"{n}", {"jpg": b"j" * n, "cls": b"1"}) for n in range(5)))

    def function(record):
        record["extra"] = record.pop("jpg")
        assert "jpg" not in record
        assert "extra" in record
        return tf.strings.length(record["extra"])

    found = t2t.open(memory.url("own.tar")).dataset(function, graph=True)
    assert list(found.as_numpy_iterator()) == [*range(5)]


def test_a_graph_that_reads_a_field_names_the_record_without_it(mixed_template):
    with raises_ours(MissingField, r"record '000': field 'jpg' is missing .*select 'jpg\?' if it may be absent"):
        list(t2t.open(mixed_template).dataset(lambda r: tf.strings.length(r["jpg"])))


def test_the_default_pair_inside_a_users_function(mixed_template, memory):
    memory.put("png.tar", made.labelled("p", 4, lambda n: {"png": made.image(n, "PNG"), "cls": b"1"}))
    alike = t2t.open(memory.url("png.tar")).dataset(lambda r: t2t.default_record_to_pair(r), graph=True)
    assert [int(label) for _, label in alike] == [1] * 4
    with pytest.raises(SchemaError, match="asks whether a record has 'jpg', which a graph cannot answer"):
        t2t.open(mixed_template).dataset(lambda r: t2t.default_record_to_pair(r))
    assert len(list(t2t.open(mixed_template).dataset(t2t.default_record_to_pair))) == COUNT


@pytest.mark.parametrize("selected", [("image=jpg;png", "cls"), ("jpg?", "png?", "cls"), ("jpg=jpg;png", "cls")])
def test_the_default_pair_uses_the_selected_fields(mixed_template, selected):
    expected = [each[0].numpy().mean() for each in t2t.open(mixed_template).dataset(t2t.default_record_to_pair)]
    source = t2t.open(mixed_template).select(*selected)
    for dataset in (
        source.dataset(t2t.default_record_to_pair),
        source.dataset(lambda record: t2t.default_record_to_pair(record), graph=True),
        source.dataset().map(t2t.default_record_to_pair),
    ):
        assert [each[0].numpy().mean() for each in dataset] == expected


def test_the_default_pair_of_an_export_of_different_images(mixed_template, tmp_path):
    t2t.open(mixed_template).export(tmp_path / "out", types={"cls": "int64"})
    pairs = list(t2t.load(tmp_path / "out").dataset("train").map(t2t.default_record_to_pair))
    assert sorted(int(label) for _, label in pairs) == sorted(n % 4 for n in range(COUNT))
    assert all(float(tf.reduce_max(image)) > 0 for image, _ in pairs)


def test_the_default_example_of_a_field_named_image(mixed_template):
    for record in t2t.open(mixed_template).select("image=jpg;png", "cls").records():
        feature = t2t.default_record_to_example(record).features.feature
        assert feature["image_raw"].bytes_list.value[0] == record["image"]


def test_decoded_fields_are_read_when_the_mapping_asks_for_them(mixed_template):
    labels = t2t.open(mixed_template).dataset(lambda r: r["cls"] + 0, decode=True)
    assert list(labels.as_numpy_iterator()) == [n % 4 for n in range(COUNT)]

    def mean(record):
        return np.float32((record["jpg"] if "jpg" in record else record["png"]).mean())

    how = {"output_types": tf.float32, "output_shapes": ()}
    means = list(t2t.open(mixed_template).dataset(mean, decode=True, **how).as_numpy_iterator())
    bodies = [record.get("jpg", record.get("png")) for record in t2t.open(mixed_template).records()]
    assert means == pytest.approx([np.asarray(Image.open(io.BytesIO(body))).mean() for body in bodies], abs=1)


# Checkpoints, mixtures and record files


@pytest.mark.parametrize("at", [0, 1, 7, 29])
def test_a_checkpoint_is_resumed_with_different_fields(mixed_template, at, tmp_path):
    def dataset():
        return t2t.open(mixed_template, limits=Limits(chunk_records=4)).dataset(
            by_in, graph=False, shuffle=True, seed=3, **LENGTH
        )

    whole = [int(each) for each in dataset()]
    assert sorted(whole) == sorted(LENGTHS)
    iterator = iter(dataset())
    for _ in range(at):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator)
    state = saved.write(str(tmp_path / f"state-{at}"))
    again = iter(dataset())
    tf.train.Checkpoint(iterator=again).read(state)
    assert [int(each) for each in again] == whole[at:]


def test_small_checkpoints_keep_the_meaning_of_an_absent_field(mixed_template):
    def fails(record):
        return tf.io.decode_image(record["jpg"] + record["png"], expand_animations=False)[0, 0, 0]

    source = t2t.open(mixed_template).select("jpg?", "png?")
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
    """Records of example files may also have different fields. A number is an array, as in `records()`."""
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
def test_a_row_and_its_difference_restore_the_record(records):
    """Rows and differences restore records with any names of fields."""
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
    found = [
        unpack_record(names, row, difference)
        for row, difference in zip(rows, field_differences(chunk, names), strict=True)
    ]
    assert found == whole
    assert all(isinstance(record.copy(), PythonRecord) for record in found)


# Results of Python mappings


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
        (np.array([1.0, 255.0]), tf.uint8, (2,), [1, 255]),  # integral values are kept
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
