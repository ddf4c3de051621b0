"""Schemas: inference from records, merging, JSON, tables, and records stored by a schema."""

from __future__ import annotations

import io
import json
import tracemalloc
import wave

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import Limits
from ais_tar2tf.values import features
from ais_tar2tf.values.file_headers import array_header, image_header
from ais_tar2tf.values.schema import Field, Inference, Schema, Sparse, infer
from tests.support import shards as made
from tests.support.shards import npy


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def wav(seconds=0.01):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(int(16000 * seconds)))
    return buffer.getvalue()


# Headers


def saved(image, image_format, **options):
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def pictures():
    colour = Image.fromarray(np.random.RandomState(0).randint(0, 255, (7, 11, 3), np.uint8))
    yield "jpeg", saved(colour, "JPEG")
    yield "jpeg", saved(colour, "JPEG", progressive=True)
    yield "jpeg", saved(colour.convert("L"), "JPEG")
    yield "jpeg", saved(colour, "JPEG", comment=b"x" * 3000, exif=Image.Exif())
    for mode in ("RGB", "L", "RGBA", "LA", "P", "1"):
        yield "png", saved(colour.convert(mode), "PNG")
    yield "png", saved(colour.convert("P"), "PNG", transparency=0)
    yield "png", saved(Image.fromarray(np.zeros((7, 11), np.uint16)), "PNG")
    yield "gif", saved(colour, "GIF")
    yield "bmp", saved(colour, "BMP")
    yield "bmp", saved(colour.convert("RGBA"), "BMP")


@pytest.mark.parametrize("at", range(len(list(pictures()))))
def test_image_headers_agree_with_tensorflow(at):
    image_format, data = list(pictures())[at]
    header = image_header(data)
    decoded = tf.io.decode_image(
        data, expand_animations=False, dtype=tf.uint16 if header.dtype == "uint16" else tf.uint8
    )
    assert (header.height, header.width, header.channels) == tuple(decoded.shape)
    assert header.format == image_format
    for end in range(len(data)):  # a cut header never raises an exception or gives another size
        assert image_header(data[:end]) in (None, header) or image_format == "png"


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": Image.Exif(), "icc_profile": b"x" * 20}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_webp_headers(mode, options):
    image = Image.new(mode, (11, 7))
    header = image_header(saved(image, "WEBP", **options))
    assert (header.format, header.height, header.width) == ("webp", 7, 11)


@given(
    st.binary(max_size=60), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"RIFF1234WEBPVP8L"])
)
def test_noise_is_no_image(data, mark):
    header = image_header(mark + data)
    assert header is None or header.height * header.width * header.channels > 0


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "i1", "?", "c8", "M8[s]"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_array_headers(dtype, shape):
    array = np.zeros(shape, dtype)
    header = array_header(npy(array))
    assert header.shape == shape
    assert np.dtype(header.dtype) == array.dtype.newbyteorder("=")
    for end in range(header.begin):
        assert array_header(npy(array)[:end]) is None


def test_arrays_of_objects_are_not_supported():
    assert array_header(npy(np.array([{}], dtype=object))) is None
    assert array_header(npy(np.zeros(2, [("a", "i4")]))) is None


# Inference


JPEG = ("image", False, False, False, None, "jpeg")
FLOATS = [npy(np.zeros((2, 3), "f4")), npy(np.zeros((4, 3), "f4"))]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("jpg", [made.image(1), made.image(2)], Field("jpg", "uint8", (30, 40, 3), "image", format="jpeg")),
        ("jpg", [made.image(1), made.image(2, size=(5, 30))], Field("jpg", "uint8", (30, None, 3), *JPEG)),
        ("seg.png", [made.image(1, "PNG")], Field("seg.png", "uint8", (30, 40, 3), "image", format="png")),
        ("image", [made.image(1, "PNG"), made.image(1)], Field("image", "uint8", (30, 40, 3), "image")),
        ("cls", [b"7", b" 12\n"], Field("cls", "int64", (), "text")),
        ("cls", [b"7", b"1.5"], Field("cls", "float64", (), "text")),
        ("cls", [b"7", b"cat"], Field("cls", "string", (), "text", vocabulary=("7", "cat"))),
        ("cls", ["cat", "dog"], Field("cls", "string", (), "list", vocabulary=("cat", "dog"))),
        ("txt", ["é".encode(), b""], Field("txt", "string", (), "text")),
        ("bin", [b"\x00\xff", b"abc"], Field("bin", "bytes")),
        ("json", [b'{"a": 1}', b"3"], Field("json", "object", (), "json")),
        ("meta", [{"a": 1}], Field("meta", "object", (), "json")),
        ("npy", FLOATS, Field("npy", "float32", (None, 3), "npy")),
        ("npz", [npz(a=np.zeros(2))], Field("npz", "object", (), "npz")),
        ("wav", [wav()], Field("wav", "float32", (None, None), "audio")),
        ("x", [True, False], Field("x", "bool")),
        ("x", [1, True], Field("x", "int64")),
        ("x", [1, 0.5], Field("x", "float32")),
        ("x", [2**64 - 1], Field("x", "uint64", (), "raw")),
        ("x", [[1, 2], [3, 4]], Field("x", "int64", (2,))),
        ("x", [[1, 2], [3]], Field("x", "int64", (None,))),
        ("x", [[], [0.5]], Field("x", "float32", (None,))),
        ("x", [[]], Field("x", "any", (0,))),
        ("x", [[[1, 2], [3, 4]]], Field("x", "int64", (2, 2))),
        ("x", [[[1, 2], [3]]], Field("x", "int64", (2, None), ragged=True)),
        ("x", [[[1, 2]], [[1], [2]], []], Field("x", "int64", (None, None))),
        ("x", [["a", "b"]], Field("x", "string", (2,))),
        ("x", [[b"a"], ["b"]], Field("x", "bytes", (1,))),
        ("x", [np.zeros((2, 3), "f4"), np.zeros((5, 4), "f4")], Field("x", "float32", (None, None))),
        ("x", [np.zeros(2, "u1"), np.zeros(2, "i2")], Field("x", "int16", (2,))),
        ("x", [np.zeros(2, "f8")], Field("x", "float64", (2,), "raw")),
        ("x", [np.zeros(2, "f4"), np.zeros(2, "f8")], Field("x", "float64", (2,), "raw")),
        ("x", [np.zeros(2, "c8")], Field("x", "complex64", (2,), "raw")),
        ("x", [tf.ragged.constant([[1], [2, 3]])], Field("x", "int32", (2, None), ragged=True)),
        ("x", [tf.SparseTensor([[0, 1]], [1.5], [3, 4])], Field("x", "float32", (3, 4), sparse=True)),
        ("x", [tf.constant([1, 2])], Field("x", "int32", (2,))),
        ("x", [tf.constant(b"ab")], Field("x", "string", (), "text")),
    ],
)  # fmt: skip
def test_inference(name, values, expected):
    for order in (values, values[::-1]):
        schema = infer({name: value} for value in order)
        assert schema[name] == expected
        for value in order:
            schema.check({name: value})


def test_a_field_that_some_records_lack_is_optional():
    schema = infer([{"a": 1}, {"a": 1, "b": b"x"}, {"a": 2, "c": None}])
    assert [(field.name, field.optional) for field in schema] == [("a", False), ("b", True)]
    assert schema.records == 3


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("x", [1, b"\x00"], r"'x' is int64 \(list\) and bytes \(list\)"),
        ("x", [1, [1]], r"'x' is int64 \(list\) and int64 \(1,\) \(list\)"),
        ("x", [np.zeros((2, 2)), np.zeros(2)], r"float64 \(2, 2\) \(raw\) and float64 \(2,\) \(raw\)"),
        ("jpg", [b"<html>"], r"'jpg' is string \(text\), and its name says image"),
        ("json", [b"{"], r"'json' is string \(text\), and its name says json"),
        ("npy", [npy(np.array([{}], dtype=object))], "its name says npy"),
        ("x", [object()], "object is not bytes"),
        ("x", [2**64], "64 bits"),
        ("x", [[1, [2]]], "mixes lists"),
    ],
)
def test_a_record_that_does_not_fit_names_itself_and_both_types(name, values, text):
    inference = Inference()
    *good, bad = values
    for value in good:
        inference.add({"__key__": "good", "__shard__": "s.tar", name: value})
    before = inference.schema
    with pytest.raises(SchemaError, match=text) as caught:
        inference.add({"__key__": "n/7", "__shard__": "s.tar", "other": 1, name: bad})
    assert str(caught.value).startswith("s.tar, record 'n/7': ")
    assert inference.schema == before


def test_a_vocabulary_has_a_bound():
    limits = Limits(vocabulary=3, label_chars=5)
    words = [b"a", b"b", b"c"]
    assert infer(({"cls": word} for word in words), limits=limits)["cls"].vocabulary == ("a", "b", "c")
    assert infer(({"cls": word} for word in [*words, b"d"]), limits=limits)["cls"].vocabulary is None
    assert infer(({"cls": word} for word in [*words, b"too long"][1:]), limits=limits)["cls"].vocabulary is None
    named = Inference(labels=["species"])
    named.add({"species": "owl"})
    assert named.schema["species"].vocabulary == ("owl",)


def records(count):
    image = made.image(0)
    for number in range(count):
        yield {
            "__key__": f"{number}", "__shard__": "s", "jpg": image, "cls": b"%d" % (number % 1000),
            "txt": b"text %d" % number, "boxes": [[number, 1]] * (number % 5), "x": 0.5,
        }  # fmt: skip


def grown(count):
    """Return the growth of the memory peak over the second half of `count` records."""
    inference = Inference()
    stream = records(count)
    for _ in range(count // 2):
        inference.add(next(stream))
    tracemalloc.start()
    try:
        for record in stream:
            inference.add(record)
        return inference, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_refused_record_adds_no_fields():
    inference = Inference(limits=Limits(fields=2))
    inference.add({"x": 1})
    with pytest.raises(SchemaError, match="nothing holds both"):
        inference.add({"y": 1, "x": "text"})
    inference.add({"x": 2, "z": 1})
    with pytest.raises(SchemaError, match=r"over 2 different fields, Limits\.fields"):
        inference.add({"y": 1})
    assert inference.schema.names == ["x", "z"]
    with pytest.raises(SchemaError, match=r"over 2 different fields, Limits\.fields"):
        Inference(limits=Limits(fields=2)).add({"x": 1, "y": 2, "z": 3})


def test_inference_needs_constant_memory():
    inference, peak = grown(4_000)
    assert peak < 100_000
    assert inference.schema.records == 4_000


@pytest.mark.full
@pytest.mark.timeout(600)
def test_inference_over_a_million_records_needs_constant_memory():
    inference, peak = grown(1_000_000)
    assert peak < 100_000
    assert inference.schema.records == 1_000_000


# Merging, text, JSON

DTYPES = st.sampled_from(
    ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "string", "bytes"]
)
SHAPES = st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3).map(tuple)


@st.composite
def fields(draw):
    dtype = draw(DTYPES)
    return Field(
        draw(st.sampled_from("abcd")),
        dtype,
        draw(SHAPES),
        "raw" if dtype == "float64" else "list",
        optional=draw(st.booleans()),
    )


@st.composite
def schemas(draw):
    chosen = draw(st.lists(fields(), max_size=4, unique_by=lambda field: field.name))
    return Schema(tuple(chosen), records=draw(st.one_of(st.none(), st.integers(1, 9))), sampled=draw(st.booleans()))


def merged(one, other):
    try:
        return one.merge(other)
    except SchemaError:
        return None


def by_name(schema):
    return None if schema is None else (sorted(schema.fields, key=lambda field: field.name), schema.records)


@given(schemas(), schemas(), schemas())
@settings(max_examples=300, deadline=None)
def test_merging_does_not_depend_on_order(one, other, third):
    assert merged(one, one).fields == one.fields
    assert by_name(merged(one, other)) == by_name(merged(other, one))
    left, right = merged(one, other), merged(other, third)
    if left is not None and right is not None and merged(left, third) is not None:
        assert by_name(merged(left, third)) == by_name(merged(one, right))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
@settings(deadline=None)  # what else runs on the machine is no failure
def test_the_schema_of_all_is_that_of_the_parts(kinds, data):
    values = [1, 0.5, True, np.int8(3)]
    every = [{"x": values[kind], "y": [0] * kind, "cls": f"c{kind}"} for kind in kinds]
    cut = data.draw(st.integers(1, len(every)))
    parts = infer(every[:cut]).merge(infer(every[cut:]))
    assert parts == infer(every)


@given(schemas())
@settings(deadline=None)  # what else runs on the machine is no failure
def test_json_both_ways(schema):
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert Schema.from_json(schema.to_text()) == schema


def test_json_of_everything():
    every = (
        Field("a", "uint8", (None, None, 3), "image", format="jpeg", optional=True),
        Field("b", "string", (), "text", vocabulary=("é", "x")),
        Field("c", "int64", (None, None), ragged=True),
        Field("d", "float32", (3, 4), sparse=True),
    )
    schema = Schema(every, records=5, sampled=True)
    assert Schema.from_json(schema.to_text()) == schema


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"version": 2, "fields": []}', '{"version": 1, "fields": [{"name": "x"}]}',
     '{"version": 1, "fields": [{"name": "x", "dtype": "no such type"}]}',
     '{"version": 1, "fields": [{"name": "x", "dtype": "int64", "encoding": "pickle"}]}',
     '{"version": 1, "fields": [{"name": "x", "dtype": "object_"}]}',
     '{"version": 1, "fields": [{"name": "x", "dtype": "int64", "shape": ["y"]}]}',
     '{"version": 1, "fields": [{"name": "x", "dtype": "int64", "shape": [-1]}]}',
     '{"version": 1, "fields": [{"name": "x", "dtype": "int64", "more": 1}]}'],
)  # fmt: skip
def test_a_malformed_schema_is_refused(text):
    with pytest.raises(SchemaError):
        Schema.from_json(text)


def test_as_a_table():
    schema = Schema(
        (
            Field("jpg", "uint8", (None, 40, 3), "image", format="jpeg"),
            Field("cls", "string", (), "text", optional=True, vocabulary=("<a>", "b", "c", "d")),
        ),
        records=64,
        sampled=True,
    )
    assert str(schema).splitlines() == [
        "2 fields, from a sample: the first 64 records",
        "field  type              stored as",
        "jpg    uint8 (?, 40, 3)  image jpeg",
        "cls    string            text        optional; 4 labels: <a>, b, c, …",
    ]
    assert "&lt;a&gt;" in schema._repr_html_()
    assert "from a sample" in schema._repr_html_()
    assert "from all 64 records" in str(Schema(schema.fields, records=64))
    assert str(Schema()).startswith("0 fields, as declared")


def test_two_fields_with_one_stored_name():
    with pytest.raises(SchemaError, match="both stored as 'x/shape'"):
        Schema((Field("x", "int64", (None, None)), Field("x/shape", "int64", (2,))))


# Records


def same(one, other):
    if isinstance(one, Sparse):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return one == other


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "uint32", "float16", "float32"])
@pytest.mark.parametrize("encoding", ["list", "raw"])
@pytest.mark.parametrize(("said", "size"), [((), ()), ((3,), (3,)), ((None,), (0,)), ((None, 2), (3, 2)),
                                            ((None, None), (0, 2)), ((2, None, None), (2, 3, 4))])  # fmt: skip
def test_arrays_are_read_back(dtype, encoding, said, size):
    array = np.asarray(np.random.RandomState(2).rand(*size) * 100).astype(dtype)
    schema = Schema((Field("x", dtype, said, encoding),))
    back = schema.decode(schema.encode({"x": array}))["x"]
    assert np.array_equal(back, array)
    assert np.shape(back) == size
    assert size == () or back.dtype == array.dtype


@pytest.mark.parametrize(
    "dtype", ["float64", "uint64", "complex64", "datetime64[s]", "timedelta64[ms]", ">f8", "<u8"]
)
def test_exact_types_are_read_back_exactly(dtype):
    array = (np.random.RandomState(2).rand(2, 3) * 2**52).astype("int64").astype(dtype)
    if array.dtype.kind == "u":
        array += np.asarray(2**63 + 1, array.dtype)
    schema = infer([{"x": array}])
    assert schema["x"].encoding == "raw"
    back = schema.decode(schema.encode({"x": array}))["x"]
    assert np.array_equal(back, array)
    assert back.dtype == array.dtype.newbyteorder("=")


NESTED = st.lists(st.lists(st.integers(-9, 2**40), max_size=3), max_size=4)
ROWS = st.fixed_dictionaries(
    {
        "n": NESTED,
        "s": st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=3),
        "d": st.lists(st.lists(st.lists(st.binary(max_size=2), max_size=2), max_size=2), max_size=2),
        "i": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "t": st.text(st.characters(exclude_categories=["Cs"])),
        "b": st.booleans(),
        "raw": st.binary(),
    },
    optional={"maybe": st.integers(0, 5)},
)


def check_round_trip(rows):
    declared = Schema(
        (
            Field("n", "int64", (None, None), ragged=True), Field("s", "string", (None,)),
            Field("d", "bytes", (None, None, None), ragged=True), Field("i", "int64"), Field("f", "float32"),
            Field("t", "string"), Field("b", "bool"), Field("raw", "bytes"), Field("maybe", "int64", optional=True),
        )
    )  # fmt: skip
    for row in rows:
        back = declared.decode(declared.encode(row))
        assert back == row


@given(st.lists(ROWS, min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_records_are_read_back(rows):
    check_round_trip(rows)


@pytest.mark.full
@pytest.mark.timeout(900)
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ROWS, min_size=1, max_size=1))
def test_ten_thousand_records_are_read_back(rows):
    check_round_trip(rows)


@given(
    st.lists(
        st.fixed_dictionaries({"n": NESTED, "x": st.lists(st.floats(width=32), max_size=3)}), min_size=1, max_size=4
    )
)
@settings(max_examples=100, deadline=None)
def test_an_inferred_schema_stores_its_records(rows):
    schema = infer(rows)
    for row in rows:
        back = schema.decode(schema.encode(row))
        assert np.array_equal(
            back["x"], np.asarray(row["x"], back["x"].dtype if row["x"] else None), equal_nan=True
        ) or (not row["x"])
        nested = back["n"] if isinstance(back["n"], list) else back["n"].tolist()
        assert nested == row["n"] or not any(row["n"])


def test_sparse_values_are_read_back():
    schema = Schema((Field("x", "float32", (3, None), sparse=True),))
    value = Sparse(np.array([[0, 1], [2, 0]]), np.array([1.5, 2.5], "f4"), np.array([3, 4]))
    assert same(schema.decode(schema.encode({"x": value}))["x"], value)
    dense = np.zeros((3, 4), "f4")
    dense[0, 1], dense[2, 0] = 1.5, 2.5
    assert same(schema.decode(schema.encode({"x": dense}))["x"], value)
    assert same(schema.decode(schema.encode({"x": tf.sparse.from_dense(dense)}))["x"], value)


def test_files_are_stored_unchanged():
    record = {
        "jpg": made.image(1),
        "cls": b" 7\n",
        "json": b'{"a": 1}',
        "npy": npy(np.zeros(3)),
        "txt": b"hi",
        "wav": wav(),
    }
    schema = infer([record])
    assert schema.decode(schema.encode(record)) == record
    assert features.decode(schema.encode(record)).keys() == record.keys()
    given_as_values = {**record, "cls": 7, "json": {"a": 1}, "txt": "hi"}
    assert schema.decode(schema.encode(given_as_values)) == {**record, "cls": b"7"}


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (Field("x", "int64"), b"\x00", r"'x' is bytes \(list\), the schema says int64 \(list\)"),
        (Field("x", "int64"), 1.5, r"'x' is float32 \(list\), the schema says int64"),
        (Field("x", "uint8"), 300, r"'x' is int64 \(list\), the schema says uint8"),
        (Field("x", "uint8"), -1, "the schema says uint8"),
        (Field("x", "int64", (2,)), [1, 2, 3], r"'x' is int64 \(3,\) \(list\), the schema says int64 \(2,\)"),
        (Field("x", "int64"), [1], r"'x' is int64 \(1,\)"),
        (Field("x", "float32"), 1e300, "does not fit into float32"),
        (Field("x", "string"), 1, "the schema says string"),
        (Field("x", "string", (2,)), ["a", 1], "the schema says string"),
        (Field("x", "int64", (2, 2)), [[1, 2], [3]], "ragged int64"),
        (Field("x", "int64", (None, None), ragged=True), [1, 2], "the schema says ragged int64"),
        (Field("x", "float32", (2, 2), sparse=True), np.zeros((3, 2), "f4"), "the schema says sparse float32"),
        (Field("x", "uint8", (30, 40, 3), "image", format="jpeg"), made.image(1, size=(4, 4)), r"uint8 \(4, 4, 3\)"),
        (Field("x", "uint8", (30, 40, 3), "image", format="jpeg"), made.image(1, "PNG"), "image png"),
        (Field("x", "uint8", (30, 40, 3), "image"), b"<html>", "is string"),
        (Field("cls", "int64", (), "text"), b"cat", "is string"),
        (Field("cls", "string", (), "text", vocabulary=("a",)), b"b", "not in its vocabulary"),
        (Field("cls", "string", (), vocabulary=("a",)), "b", "not in its vocabulary"),
        (Field("x", "float32", (2,), "npy"), npy(np.zeros(3, "f4")), r"float32 \(3,\) \(npy\)"),
        (Field("x", "object", (), "json"), {1, 2}, "is not JSON"),
        (Field("x", "int64"), None, "'x' is missing"),
        (Field("y", "int64", optional=True), 1, "'x' is not in the schema"),
    ],
)
def test_a_record_that_does_not_fit_the_schema_names_itself(field, value, text):
    schema = Schema((field,))
    with pytest.raises(SchemaError, match=text) as caught:
        schema.encode({"__key__": "n/7", "__shard__": "s.tar", field.name if field.name != "y" else "x": value})
    assert str(caught.value).startswith("s.tar, record 'n/7': ")


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        (Field("x", "int64"), {"x": b"text"}),
        (Field("x", "int64"), {"x": [1, 2]}),
        (Field("x", "int64"), {"x": 0.5}),
        (Field("x", "int64"), {}),
        (Field("x", "int64", (2,)), {"x": [1, 2, 3]}),
        (Field("x", "int64", (2, None)), {"x": [1, 2, 3]}),
        (Field("x", "float64", (2,), "raw"), {"x": b"1234567"}),
        (Field("x", "float64", (2,), "raw"), {"x": [b"", b""]}),
        (Field("x", "string", (3,)), {"x": [b"a"]}),
        (Field("x", "int64", (None, None)), {"x": [1, 2, 3]}),
        (Field("x", "int64", (None, None)), {"x": [1, 2, 3], "x/shape": [7, 7]}),
        (
            Field("x", "int64", (None, None), ragged=True),
            {"x/ragged_flat_values": [1], "x/ragged_row_lengths_0": [2]},
        ),
        (Field("x", "float32", (3,), sparse=True), {"x/values": [0.5]}),
    ],
)
def test_features_that_do_not_fit_the_schema_are_errors(field, stored):
    with pytest.raises(SchemaError, match="x"):
        Schema((field,)).decode(features.encode(stored))
