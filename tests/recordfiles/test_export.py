"""load_from_tar(path=…) writes one TFRecord file completely or not at all; and tests of the Example encoder."""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from ais_tar2tf import AisDataset, default_record_parser, default_record_to_example
from ais_tar2tf.errors import ExportError, MappingError, MissingField
from ais_tar2tf.recordfiles.export import write_payloads
from ais_tar2tf.values import features
from tests.support import shards as made


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A bucket with one shard. The image of record 3 cannot be decoded, and the label of record 5 is no number."""
    import ais_tar2tf as t2t

    def fields(i):
        return {"jpg": b"no image" if i == 3 else made.image(i), "cls": b"cat" if i == 5 else b"1"}

    (tmp_path / "root" / "b").mkdir(parents=True)
    (tmp_path / "root" / "b" / "a.tar").write_bytes(made.labelled("x", 8, fields))
    with t2t.serve(tmp_path / "root") as server:
        yield server.url


def read(path) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset([str(path)])]


def test_the_default_example(imagenet_dataset, tmp_path):
    path = tmp_path / "train.record"
    assert imagenet_dataset.load_from_tar("train-0.tar.gz", path=path) == [str(path)]
    (first, *_) = records = read(path)
    assert len(records) == 16
    feature = tf.train.Example.FromString(first).features.feature
    numbers = {name: feature[name].int64_list.value[0] for name in ("height", "width", "depth", "label")}
    assert numbers == {"height": 30, "width": 40, "depth": 3, "label": 0}
    assert feature["image_raw"].bytes_list.value[0] == made.image(0)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["example", "bytes", "dict"])
def test_a_custom_example(imagenet_dataset, tmp_path, kind):
    def own(record):
        assert set(record) == {"__key__", "__shard__", "jpg", "cls"}
        values = {"key": record["__key__"], "label": int(record["cls"]), "half": 0.5}
        if kind == "dict":
            return values
        example = tf.train.Example.FromString(features.encode(values))
        return example if kind == "example" else example.SerializeToString()

    imagenet_dataset.load_from_tar("train-{0..1}.tar.gz", path=tmp_path / "own.record", record_to_example=own)
    examples = [tf.train.Example.FromString(data) for data in read(tmp_path / "own.record")]
    assert [e.features.feature["key"].bytes_list.value[0] for e in examples][:2] == [b"n0/000000", b"n0/000001"]
    assert len(examples) == 32
    assert examples[3].features.feature["half"].float_list.value[0] == 0.5


def test_an_empty_path_means_in_memory(imagenet_dataset):
    assert isinstance(imagenet_dataset.load_from_tar("train-0.tar.gz", ""), tf.data.Dataset)


def test_values_that_are_no_examples_are_an_error(imagenet_dataset, tmp_path):
    with pytest.raises(MappingError, match=r"n0/000000.*returned list"):
        imagenet_dataset.load_from_tar(
            "train-0.tar.gz", path=tmp_path / "x", record_to_example=lambda record: [record]
        )
    assert not list(tmp_path.iterdir())


def test_bytes_that_are_no_example(imagenet_dataset, tmp_path):
    for path in (tmp_path / "x", tmp_path / "y-{}"):
        with pytest.raises(MappingError, match=r"record 'n0/000000'.*MalformedExample") as caught:
            imagenet_dataset.load_from_tar(
                "train-0.tar.gz", path=path, record_to_example=lambda record: record["jpg"]
            )
        assert caught.value.key == "n0/000000"
    assert not list(tmp_path.iterdir())


def test_failures_keep_the_existing_file(broken, tmp_path):
    path = tmp_path / "out.record"
    path.write_bytes(b"old")
    ais = AisDataset("b", broken)
    with pytest.raises(MappingError, match=r"ais://b/a.tar, record 'x/000003'.*Unknown image"):
        ais.load_from_tar("a.tar", path=path)
    with pytest.raises(MissingField, match="default record_to_example needs an image"):
        ais.load_from_tar(
            "a.tar",
            path=path,
            record_to_example=lambda r: default_record_to_example(
                {**r, "jpg": 0} if 0 else {k: v for k, v in r.items() if k != "jpg"}
            ),
        )
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir() if p.name != "root"] == ["out.record"]


def test_failures_can_be_skipped(broken, tmp_path):
    ais = AisDataset("b", broken, on_error="skip-record")
    ais.load_from_tar("a.tar", path=tmp_path / "out.record")
    assert len(read(tmp_path / "out.record")) == 6


@pytest.mark.parametrize("where", ["missing/out.record", "folder"])
def test_a_path_that_cannot_be_written_is_an_error(imagenet_dataset, tmp_path, where):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExportError, match=where):
        imagenet_dataset.load_from_tar("train-0.tar.gz", path=tmp_path / where)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


KILLED = """
import sys
from ais_tar2tf.recordfiles.export import write_payloads
def payloads():
    for number in range(10**9):
        if number == 5000:
            print("busy", flush=True)
        yield b"x" * 1000
write_payloads(sys.argv[1], payloads())
"""


def test_killed_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.record"
    path.write_bytes(b"old")
    root = str(Path(__file__).parents[2])
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout.readline() == b"busy\n"
        os.kill(process.pid, signal.SIGKILL)
    assert path.read_bytes() == b"old"


def test_framing_is_tensorflows(tmp_path):
    payloads = [b"", b"a", bytes(range(256)) * 300]
    assert write_payloads(tmp_path / "ours", iter(payloads)) == [str(tmp_path / "ours")]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for payload in payloads:
            writer.write(payload)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


class Colour(enum.Enum):
    RED = 7


scalars = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=50),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
)
values = st.one_of(scalars, *(st.lists(kind, max_size=5) for kind in (st.binary(max_size=9), st.integers(-9, 2**62))))


@given(st.dictionaries(st.text(min_size=1, max_size=20), values, max_size=6))
def test_encode_is_read_by_tensorflow(record):
    example = tf.train.Example.FromString(features.encode(record))
    assert set(example.features.feature) == set(record)
    for name, value in record.items():
        feature = example.features.feature[name]
        kind = feature.WhichOneof("kind")
        found = list(getattr(feature, kind).value) if kind else []  # an empty list has any kind
        flat = value if isinstance(value, list) else [value]
        assert found == [v.encode() if isinstance(v, str) else v for v in flat]


def test_encode_takes_arrays_tensors_and_enums():
    example = tf.train.Example.FromString(
        features.encode({"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "t": tf.constant([1.5]), "e": Colour.RED})
    )
    feature = example.features.feature
    assert list(feature["a"].int64_list.value) == [0, 1, 2, 3, 4, 5]
    assert list(feature["t"].float_list.value) == [1.5]
    assert list(feature["e"].int64_list.value) == [7]


@pytest.mark.parametrize(("value", "error"), [({}, TypeError), (["a", 1], TypeError), (2**63, OverflowError)])
def test_encode_refuses_unsupported_values(value, error):
    with pytest.raises(error):
        features.encode({"x": value})


def test_the_guides_helpers():
    assert features.bytes_feature(tf.constant("a")).bytes_list.value[0] == b"a"
    assert features.float_feature(0.5).float_list.value[0] == 0.5
    assert list(features.float_feature_array([0.5, 1]).float_list.value) == [0.5, 1]
    for one in (True, np.uint8(1), np.bool_(1)):
        assert features.int64_feature(one).int64_list.value[0] == 1


def test_the_parser_works_on_batches_of_one(imagenet_dataset, tmp_path):
    imagenet_dataset.load_from_tar("train-0.tar.gz", path=tmp_path / "x")
    image, label = default_record_parser(read(tmp_path / "x")[4])
    assert image.shape == (224, 224, 3)
    assert int(label) == 4
