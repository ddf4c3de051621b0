"""Parsers and specifications that a schema gives to TensorFlow and TFDS."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.parse_specs import element_spec, parse, parse_spec, parser, tfds_features
from ais_tar2tf.values.schema import Field, Schema, Sparse, infer
from tests.support import shards as made

RANDOM = np.random.RandomState(3)
SPARSE = tf.SparseTensor([[0, 1], [2, 0]], [1.5, 2.5], [3, 4])

CASES = {
    "scalar": (Field("x", "int64"), 7),
    "flag": (Field("x", "bool"), True),
    "small": (Field("x", "uint8", (2, 3)), RANDOM.randint(0, 255, (2, 3)).astype("u1")),
    "half": (Field("x", "float16", (2,)), np.array([0.5, 2], "f2")),
    "text": (Field("x", "string"), "é"),
    "texts": (Field("x", "string", (2, 1)), [["a"], ["b"]]),
    "bytes": (Field("x", "bytes"), b"\x00\xff"),
    "list": (Field("x", "int32", (None,)), np.arange(3, dtype="i4")),
    "empty list": (Field("x", "int32", (None,)), np.zeros(0, "i4")),
    "rows": (Field("x", "float32", (None, 2)), np.ones((3, 2), "f4")),
    "columns": (Field("x", "float32", (2, None)), np.arange(6, dtype="f4").reshape(2, 3)),
    "two unknown": (Field("x", "float32", (None, 2, None)), np.arange(12, dtype="f4").reshape(3, 2, 2)),
    "word lists": (Field("x", "string", (None,)), ["a", "b"]),
    "file": (Field("x", "uint8", (30, 40, 3), "image", format="jpeg"), made.image(1)),
    **{
        f"raw {dtype}": (Field("x", dtype, (2,), "raw"), np.array([1, 3], dtype))
        for dtype in ("bool", "int8", "uint16", "uint32", "uint64", "int64", "float16", "float64", "complex64")
    },
    "raw rows": (Field("x", "float64", (None, 2), "raw"), np.ones((3, 2))),
    "raw two unknown": (Field("x", "float64", (None, None), "raw"), np.ones((3, 2))),
}


def encoded(value):
    return np.vectorize(lambda text: text.encode() if isinstance(text, str) else text, otypes=[object])(value)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["eager", "in a dataset"])
def test_a_parsed_record_equals_the_stored_one(case, mode):
    field, value = CASES[case]
    schema = Schema((field,))
    data = schema.encode({"x": value})
    if mode == "eager":
        found = parse(schema, data)["x"]
    else:
        dataset = tf.data.Dataset.from_tensors(data).map(parser(schema))
        (found,) = (element["x"] for element in dataset)
        assert dataset.element_spec == element_spec(schema)
    wanted = encoded(value) if field.dtype in ("string", "bytes") else value
    np.testing.assert_array_equal(found.numpy(), wanted)
    assert element_spec(schema)["x"].is_compatible_with(found)


@pytest.mark.parametrize(
    "case", ["scalar", "small", "text", "texts", "list", "rows", "file", "raw float64", "raw uint32"]
)
def test_batches_are_parsed_in_one_call(case):
    field, value = CASES[case]
    schema = Schema((field,))
    data = schema.encode({"x": value})
    found = parse(schema, tf.constant([data, data]))["x"]
    wanted = encoded(value) if field.dtype in ("string", "bytes") else value
    for one in found:
        np.testing.assert_array_equal(one.numpy(), wanted)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("raw")])
@pytest.mark.parametrize("present", ["", "1", "0", "11", "00", "101", "01"])
def test_optional_raw_arrays_have_the_same_rows_in_a_batch(case, present):
    """A batch is a ragged tensor of what the examples give one by one, as it is for an optional list."""
    field, value = CASES[case]
    schema = Schema((replace(field, optional=True),))
    data = [schema.encode({"x": value} if each == "1" else {}) for each in present]
    if None in field.shape:
        with pytest.raises(SchemaError, match="one example at a time"):
            parse(schema, tf.constant(data, tf.string))
        return
    dataset = tf.data.Dataset.from_tensors(tf.constant(data, tf.string)).map(parser(schema))
    for found in (parse(schema, tf.constant(data, tf.string))["x"], next(iter(dataset))["x"]):
        assert isinstance(found, tf.RaggedTensor)
        assert found.row_splits.dtype == tf.int64
        assert found.nrows() == len(data)
        for one, example in zip(found, data, strict=True):
            np.testing.assert_array_equal(one.numpy(), parse(schema, example)["x"].numpy())
            assert one.shape[1:] == field.shape


def test_fields_that_cannot_be_batched_are_named():
    for case in ("columns", "two unknown", "raw rows"):
        field, value = CASES[case]
        schema = Schema((field,))
        with pytest.raises(SchemaError, match="one example at a time"):
            parse(schema, tf.constant([schema.encode({"x": value})]))


NESTED = st.lists(st.lists(st.lists(st.integers(-9, 2**40), max_size=3), max_size=3), max_size=3)


@given(NESTED)
@settings(max_examples=30, deadline=None)
def test_ragged_fields(rows):
    schema = Schema((Field("x", "int64", (None, None, None), ragged=True),))
    found = parse(schema, schema.encode({"x": rows}))["x"]
    assert found.to_list() == rows
    assert element_spec(schema)["x"].is_compatible_with(found)
    assert schema.decode(schema.encode({"x": rows})) == {"x": rows}


def test_ragged_fields_of_rows():
    schema = Schema((Field("x", "float32", (None, None, 2), ragged=True),))
    rows = [[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]]
    found = parse(schema, schema.encode({"x": rows}))["x"]
    assert found.to_list() == rows
    dataset = tf.data.Dataset.from_tensors(schema.encode({"x": rows})).map(parser(schema))
    assert next(iter(dataset))["x"].to_list() == rows
    assert element_spec(schema)["x"].is_compatible_with(found)


@pytest.mark.parametrize("shape", [(3, 4), (None, 4)])
def test_sparse_fields(shape):
    schema = Schema((Field("x", "float32", shape, sparse=True),))
    found = parse(schema, schema.encode({"x": SPARSE}))["x"]
    np.testing.assert_array_equal(tf.sparse.to_dense(found), tf.sparse.to_dense(SPARSE))
    assert element_spec(schema)["x"].is_compatible_with(found)


@pytest.mark.parametrize(
    ("field", "value", "absent"),
    [
        (Field("x", "int64", optional=True), 3, []),
        (Field("x", "int64", (2,), optional=True), [3, 4], []),
        (Field("x", "string", optional=True), "a", b""),
        (Field("x", "int64", (None,), optional=True), [1], []),
        (Field("x", "uint8", (30, 40, 3), "image", optional=True), made.image(1), b""),
        (Field("x", "int64", (None, None), ragged=True, optional=True), [[1], [2, 3]], []),
    ],
)
def test_optional_fields_may_be_absent(field, value, absent):
    schema = Schema((field, Field("y", "int64")))
    there = parse(schema, schema.encode({"x": value, "y": 1}))["x"]
    assert there.numpy() is not None
    gone = parse(schema, schema.encode({"y": 1}))["x"]
    assert (gone.to_list() if hasattr(gone, "to_list") else np.asarray(gone.numpy()).tolist()) == absent


@pytest.mark.parametrize("value", [[], [[], []], np.zeros((0, 4), np.float32), np.zeros(0, np.int64)])
def test_lists_that_are_empty_in_every_record(value):
    schema = infer([{"x": value, "y": 1}])
    payload = schema.encode({"x": value, "y": 1})
    assert parse(schema, payload)["x"].shape == schema["x"].shape
    assert parse(schema, [payload] * 3)["x"].shape == (3, *schema["x"].shape)
    assert element_spec(schema)["x"].is_compatible_with(parse(schema, payload)["x"])


@pytest.mark.parametrize("value", [np.float64(0.1), tf.constant([1.5], tf.bfloat16)])
def test_numbers_of_numpys_and_tensorflows_types_come_back_exactly(value):
    schema = infer([{"x": value}])
    assert schema.decode(schema.encode({"x": value}))["x"] == np.asarray(value)


def test_an_inferred_schema_parses_its_records():
    rows = [
        {"jpg": made.image(n), "cls": b"%d" % n, "boxes": [[0.5, 1.0]] * n, "name": f"n{n}", "words": ["a"] * n}
        for n in range(4)
    ]
    schema = infer(rows)
    dataset = tf.data.Dataset.from_tensor_slices([schema.encode(row) for row in rows]).map(parser(schema))
    for row, found in zip(rows, dataset, strict=True):
        assert found["jpg"].numpy() == row["jpg"]
        assert found["boxes"].numpy().tolist() == row["boxes"]
        assert found["words"].numpy().tolist() == [b"a"] * len(row["words"])
    assert isinstance(parse_spec(schema)["cls"], tf.io.FixedLenFeature)


def test_tfds_reads_the_records():
    tfds = pytest.importorskip("tensorflow_datasets")
    fields = (
        Field("image", "uint8", (None, None, 3), "image", format="jpeg"),
        Field("text", "string"),
        Field("cls", "int64", (), "text"),
        Field("x", "float32", (2, 3)),
        Field("n", "int64", (None,)),
        Field("r", "int64", (None, None), ragged=True),
        Field("raw", "float64", (2,), "raw"),
        Field("b", "bool"),
    )
    schema = Schema(fields)
    features = tfds_features(schema)
    record = {
        "image": made.image(1), "text": "é", "cls": b"7", "x": np.ones((2, 3), "f4"), "n": [1, 2, 3],
        "r": [[1], [2, 3]], "raw": np.array([0.1, 0.2]), "b": True,
    }  # fmt: skip
    found = features.deserialize_example(schema.encode(record))
    assert found["image"].shape == (30, 40, 3)
    np.testing.assert_array_equal(found["image"], tf.io.decode_jpeg(made.image(1)))
    assert found["text"].numpy() == "é".encode()
    assert found["cls"].numpy() == b"7"
    assert found["n"].numpy().tolist() == [1, 2, 3]
    assert found["r"].to_list() == [[1], [2, 3]]
    assert found["raw"].numpy().tolist() == [0.1, 0.2]
    assert bool(found["b"])
    np.testing.assert_array_equal(found["x"], record["x"])
    restored = tfds.features.FeaturesDict.from_json(features.to_json())
    assert restored.keys() == features.keys()
    with pytest.raises(SchemaError, match="TFDS"):
        tfds_features(Schema((Field("x", "float32", (3,), sparse=True),)))


def test_sparse_tuples_and_tensors_are_stored_alike():
    schema = Schema((Field("x", "float32", (3, 4), sparse=True),))
    ours = Sparse(SPARSE.indices.numpy(), SPARSE.values.numpy(), SPARSE.dense_shape.numpy())
    assert schema.encode({"x": ours}) == schema.encode({"x": SPARSE})
