"""The tf.train.Example codec, compared with TensorFlow's serializer and parser, also on invalid bytes."""

from __future__ import annotations

import enum
import math
import pickle
import struct

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ais_tar2tf import errors
from ais_tar2tf.values import features
from ais_tar2tf.values.features import varint

FULL = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COLUMNS = st.one_of(
    st.lists(st.binary(max_size=300), max_size=4),
    st.lists(INT64, max_size=20),
    st.lists(st.integers(0, 300), max_size=40),
    st.lists(FLOAT32, max_size=20),
)
RECORDS = st.dictionaries(NAMES, COLUMNS, max_size=6)


def made_by_tensorflow(record):
    feature = {}
    for name, values in record.items():
        if not values:
            feature[name] = tf.train.Feature()
        elif isinstance(values[0], bytes):
            feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif isinstance(values[0], float):
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=feature))


def as_lists(record):
    return {name: values if isinstance(values, list) else values.tolist() for name, values in record.items()}


def check_both_ways(record):
    ours, theirs = features.encode(record), made_by_tensorflow(record)
    assert tf.train.Example.FromString(ours) == theirs
    assert as_lists(features.decode(theirs.SerializeToString())) == record
    assert as_lists(features.decode(ours)) == record
    if len(record) == 1:
        assert ours == theirs.SerializeToString()


@given(RECORDS)
@settings(max_examples=400, deadline=None)
@example({"": [b""]})
@example({"x": []})
@example({"x": [2**63 - 1] * 13 + [-(2**63)]})
@example({"x": [0] * 100 + [127, 128, 16383, 16384]})
@example({"x": [200] * 50})
def test_tensorflow_writes_and_reads_the_same(record):
    check_both_ways(record)


@pytest.mark.full
@pytest.mark.timeout(900)
@FULL
@given(RECORDS)
def test_tensorflow_writes_and_reads_the_same_ten_thousand_times(record):
    check_both_ways(record)


def parsed(record, spec):
    return tf.io.parse_example(tf.constant([features.encode(record)]), spec)


@given(st.lists(INT64, max_size=30), st.lists(FLOAT32, max_size=30), st.lists(st.binary(max_size=20), max_size=5))
@settings(max_examples=60, deadline=None)
def test_parse_example_reads_it(integers, floats, strings):
    names = {"i": tf.int64, "f": tf.float32, "s": tf.string}
    found = parsed(
        {"i": integers, "f": floats, "s": strings}, {name: tf.io.VarLenFeature(t) for name, t in names.items()}
    )
    assert found["i"].values.numpy().tolist() == integers
    assert found["f"].values.numpy().tolist() == floats
    assert found["s"].values.numpy().tolist() == strings


WHOLE = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", [*WHOLE, "float16", "float32", "float64", ">i4", ">f4", ">f8", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (40,), (5, 7)])
def test_arrays_of_every_dtype(dtype, shape):
    kind = tf.bfloat16.as_numpy_dtype if dtype == "bfloat16" else np.dtype(dtype)
    array = np.asarray(np.random.RandomState(1).rand(*shape) * 200).astype(kind)
    found = features.decode(features.encode({"x": array}))["x"]
    assert found.dtype == (np.int64 if dtype in (*WHOLE, ">i4") else np.float32)
    np.testing.assert_array_equal(found, array.astype(found.dtype).reshape(-1))
    theirs = tf.train.Example.FromString(features.encode({"x": array})).features.feature["x"]
    assert list(getattr(theirs, theirs.WhichOneof("kind")).value) == found.tolist()
    assert features.encode({"x": array[::-1] if shape else array}) == features.encode(
        {"x": np.ascontiguousarray(array[::-1]) if shape else array}
    )


class Colour(enum.Enum):
    RED = 7
    BLUE = "blue"


class Order(enum.IntEnum):
    SECOND = 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, [1]),
        (np.bool_(1), [1]),
        (Colour.RED, [7]),
        (Colour.BLUE, [b"blue"]),
        (Order.SECOND, [2]),
        ([Colour.RED, Order.SECOND], [7, 2]),
        (np.uint64(2**63 - 1), [2**63 - 1]),
        ("é", ["é".encode()]),
        ("\udcff", [b"\xff"]),
        (np.array(["a", "bc"]), [b"a", b"bc"]),
        (np.array([b"a", "bc"], dtype=object), [b"a", b"bc"]),
        (bytearray(b"x"), [b"x"]),
        (memoryview(b"x"), [b"x"]),
        ([1, 2.5, True], [1.0, 2.5, 1.0]),
        ([[1, 2], [3, 4]], [1, 2, 3, 4]),
        ([np.arange(2), np.arange(2)], [0, 1, 0, 1]),
        (np.float64(0.5), [0.5]),
        (float("inf"), [math.inf]),
        (-3, [-3]),
    ],
)
def test_values(value, expected):
    (found,) = as_lists(features.decode(features.encode({"x": value}))).values()
    assert found == expected
    theirs = tf.train.Example.FromString(features.encode({"x": value})).features.feature["x"]
    assert list(getattr(theirs, theirs.WhichOneof("kind")).value) == expected


def test_none_is_left_out():
    assert features.decode(features.encode({"x": None, "y": 1})).keys() == {"y"}


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.uint64(2**63), errors.FeatureOverflow, "does not fit into an int64"),
        (np.array([1, 2**64 - 1], np.uint64), errors.FeatureOverflow, "does not fit into an int64"),
        (-(2**63) - 1, errors.FeatureOverflow, "does not fit into an int64"),
        (1e39, errors.FeatureOverflow, "does not fit into a float32"),
        ([1e39], errors.FeatureOverflow, "does not fit into a float32"),
        (np.complex64(1), errors.NoFeature, "complex64"),
        (np.datetime64("2020-01-01"), errors.NoFeature, "datetime64"),
        (np.zeros(2, [("a", "i4")]), errors.NoFeature, "raw bytes"),
        ("\ud800", errors.NoFeature, "surrogate"),
        ([[1], 2], errors.NoFeature, "mixes lists"),
        ([b"a", 1], errors.NoFeature, "mixes text with numbers"),
        ({1}, errors.NoFeature, "set"),
        (object(), errors.NoFeature, "object"),
    ],
)
def test_an_error_of_a_value_without_form_names_its_feature(value, error, text):
    with pytest.raises(error, match=text) as caught:
        features.encode({"the field": value})
    assert "'the field'" in str(caught.value)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), error)  # noqa: S301  # made here


def test_ragged_values_are_read_by_tensorflow():
    rows = [[[1, 2], []], [], [[3]]]
    spec = {
        "x": tf.io.RaggedFeature(
            tf.int64,
            "x/ragged_flat_values",
            [
                tf.io.RaggedFeature.RowLengths("x/ragged_row_lengths_0"),
                tf.io.RaggedFeature.RowLengths("x/ragged_row_lengths_1"),
            ],
            row_splits_dtype=tf.int64,
        )
    }
    rows2 = [[["a", "b"], ["c"]], [["d"]]]
    for value in ([[1, 2], [3]], tf.ragged.constant([[1, 2], [3]], tf.int64)):
        assert as_lists(features.decode(features.encode({"x": value}))) == {
            "x/ragged_flat_values": [1, 2, 3],
            "x/ragged_row_lengths_0": [2, 1],
        }
    # The outermost length is that of the list itself, so the first row lengths are those of its items.
    found = features.decode(features.encode({"x": rows}))
    assert as_lists(found) == {
        "x/ragged_flat_values": [1, 2, 3],
        "x/ragged_row_lengths_0": [2, 0, 1],
        "x/ragged_row_lengths_1": [2, 0, 1],
    }
    assert tf.io.parse_single_example(features.encode({"x": rows}), spec)["x"].to_list() == rows
    assert as_lists(features.decode(features.encode({"x": rows2})))["x/ragged_flat_values"] == [
        b"a",
        b"b",
        b"c",
        b"d",
    ]


def test_ragged_and_sparse_text_is_read_by_tensorflow():
    rows = [[b"a", b"b"], [], [b"c"]]
    ragged = tf.io.RaggedFeature(
        tf.string,
        "x/ragged_flat_values",
        [tf.io.RaggedFeature.RowLengths("x/ragged_row_lengths_0")],
        row_splits_dtype=tf.int64,
    )
    payload = features.encode({"x": tf.ragged.constant(rows)})
    assert tf.io.parse_single_example(payload, {"x": ragged})["x"].to_list() == rows
    sparse = tf.io.SparseFeature(["x/indices_0", "x/indices_1"], "x/values", tf.string, [1, 3])
    payload = features.encode({"x": tf.sparse.from_dense([["", "a", "b"]])})
    found = tf.io.parse_single_example(payload, {"x": sparse})["x"]
    assert tf.sparse.to_dense(found).numpy().tolist() == [[b"", b"a", b"b"]]


@given(st.lists(st.lists(INT64, max_size=4), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_ragged_lists_are_read_back(rows):
    tensor = tf.ragged.constant(rows, tf.int64, ragged_rank=1)
    spec = {
        "x": tf.io.RaggedFeature(
            tf.int64,
            "x/ragged_flat_values",
            [tf.io.RaggedFeature.RowLengths("x/ragged_row_lengths_0")],
            row_splits_dtype=tf.int64,
        )
    }
    assert tf.io.parse_single_example(features.encode({"x": tensor}), spec)["x"].to_list() == rows


def test_sparse_values_are_read_by_tensorflow():
    tensor = tf.SparseTensor([[0, 1], [2, 0]], [1.5, 2.5], [3, 4])
    spec = {"x": tf.io.SparseFeature(["x/indices_0", "x/indices_1"], "x/values", tf.float32, [3, 4])}
    found = tf.io.parse_single_example(features.encode({"x": tensor}), spec)["x"]
    np.testing.assert_array_equal(tf.sparse.to_dense(found), tf.sparse.to_dense(tensor))
    assert as_lists(features.decode(features.encode({"x": tensor})))["x/shape"] == [3, 4]


def entry(name, feature):
    body = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(feature)]) + feature
    return b"\x0a" + bytes([len(body)]) + body


def wrapped(entries):
    return b"\x0a" + bytes([len(entries)]) + entries


UNUSUAL = {
    "floats not packed": entry(b"x", b"\x12\x0a\x0d" + struct.pack("<f", 1) + b"\x0d" + struct.pack("<f", 2)),
    "integers not packed": entry(b"x", b"\x1a\x04\x08\x05\x08\x06"),
    "two chunks": entry(b"x", b"\x1a\x06\x0a\x01\x05\x0a\x01\x06"),
    "two lists of a kind": entry(b"x", b"\x1a\x03\x0a\x01\x05\x1a\x03\x0a\x01\x06"),
    "two lists of two kinds": entry(b"x", b"\x0a\x03\x0a\x01a\x1a\x03\x0a\x01\x06"),
    "the same name twice": entry(b"x", b"\x1a\x03\x0a\x01\x05") + entry(b"x", b"\x1a\x03\x0a\x01\x06"),
    "unknown fields": entry(b"x", b"\x1a\x07\x0a\x01\x05\x1a\x02ab") + b"\x10\x05" + b"\x1d1234" + b"\x2112345678",
    "no feature": b"\x0a\x03\x0a\x01x",
    "no name": b"\x0a\x07\x12\x05\x1a\x03\x0a\x01\x05",
    "nothing": b"",
    "an empty chunk": entry(b"x", b"\x1a\x02\x0a\x00"),
    "feature before name": b"\x0a\x0a\x12\x05\x1a\x03\x0a\x01\x05\x0a\x01x",
}


@pytest.mark.parametrize("what", UNUSUAL)
@pytest.mark.parametrize("again", [1, 2])
def test_unusual_encodings_are_read_as_protobuf_reads_them(what, again):
    data = wrapped(UNUSUAL[what])
    theirs = tf.train.Example.FromString(data).features.feature
    for _ in range(again):
        ours = as_lists(features.decode(data))
        assert ours.keys() == theirs.keys()
        for name, values in ours.items():
            kind = theirs[name].WhichOneof("kind")
            assert values == (list(getattr(theirs[name], kind).value) if kind else [])


SOUND = features.encode(
    {"image": b"\xff\xd8" * 70, "label": 300, "floats": [0.5] * 3, "many": list(range(0, 4000, 99))}
)


def test_an_example_cut_anywhere_is_an_error_with_its_offset():
    for end in range(1, len(SOUND)):
        with pytest.raises(errors.MalformedExample) as caught:
            features.decode(SOUND[:end])
        assert 0 <= caught.value.offset <= end
        assert pickle.loads(pickle.dumps(caught.value)).offset == caught.value.offset  # noqa: S301  # made here


@pytest.mark.parametrize("before", [b"", b"\x05", b"\xac\x02", b"\xac\x02" * 20])
@pytest.mark.parametrize("broken", [b"\x80", b"\xff" * 9, b"\x80" * 10 + b"\x01"])
def test_an_endless_number_is_named_by_its_begin(before, broken):
    """However many numbers there are, and whether the data end or ten bytes say that the number goes on."""
    with pytest.raises(errors.MalformedExample) as caught:
        varint.integers(before + broken, 1000)
    assert caught.value.offset == 1000 + len(before)
    with pytest.raises(errors.MalformedExample) as caught:
        varint.read(before + broken, len(before), len(before + broken))
    assert caught.value.offset == len(before)


def test_cut_within_floats_that_were_seen_before():
    whole = features.encode({"x": [1.0, 2.0]})
    features.decode(whole)
    for cut in range(1, 9):
        with pytest.raises(errors.MalformedExample):
            features.decode(whole[:1] + bytes((whole[1] - cut,)) + whole[2:-cut])


def test_entries_that_protobuf_drops_silently_are_errors():
    whole = features.encode({"x": 1})
    other = whole.replace(b"\x12\x05", b"\x7a\x05")  # the values, under an unknown field number
    assert not tf.train.Example.FromString(other).features.feature
    with pytest.raises(errors.MalformedExample, match="something else"):
        features.decode(other)


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"x": np.zeros(3, "V8")}, errors.NoFeature),
        ({"x": [1.5, 10**400]}, errors.FeatureOverflow),
        ({3: 1}, errors.NoFeature),
    ],
)
def test_a_value_without_form_raises_an_error_of_this_package(record, error):
    with pytest.raises(error):
        features.encode(record)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_example_is_read_as_by_protobuf_or_refused(data):
    features.decode(SOUND)
    damaged = bytearray(SOUND)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(SOUND) - 1))] = data.draw(st.integers(0, 255))
    try:
        theirs = tf.train.Example.FromString(bytes(damaged)).features.feature
    except Exception:  # noqa: BLE001  # protobuf's error has several types
        theirs = None
    try:
        ours = features.decode(bytes(damaged))
    except errors.MalformedExample:
        return  # our parser may be stricter than protobuf
    assert theirs is not None
    assert ours.keys() == theirs.keys()
    for name, values in as_lists(ours).items():
        kind = theirs[name].WhichOneof("kind")
        np.testing.assert_array_equal(values, list(getattr(theirs[name], kind).value) if kind else [])


@given(st.binary(max_size=80))
@settings(deadline=None)  # what else runs on the machine is no failure
def test_noise_is_refused_or_read_as_by_protobuf(data):
    try:
        ours = features.decode(data)
    except errors.MalformedExample:
        return
    assert tf.train.Example.FromString(data).features.feature.keys() == ours.keys()


def test_memoryviews_and_bytearrays_are_read():
    for kind in (bytearray, memoryview):
        assert features.decode(kind(SOUND))["label"].tolist() == [300]


def test_more_names_and_lengths_than_are_remembered(monkeypatch):
    from ais_tar2tf.values.features import decoding as _decode
    from ais_tar2tf.values.features import encoding as _encode

    monkeypatch.setattr(_decode, "_MAX_CACHED", 10)
    monkeypatch.setattr(_encode, "_MAX_CACHED", 10)
    for number in range(50):
        record = {f"n{number}": b"x" * number, "label": number * 1000}
        assert as_lists(features.decode(features.encode(record))) == {
            f"n{number}": [b"x" * number],
            "label": [number * 1000],
        }
    assert len(_decode._known) <= 10
    assert len(_encode._heads) <= 10
    assert len(_decode._short) <= 10
