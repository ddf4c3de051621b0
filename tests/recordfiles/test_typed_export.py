"""Record files store labels as numbers, and give (image, label) pairs in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from typer.testing import CliRunner

import ais_tar2tf as t2t
from ais_tar2tf.errors import MissingField, OptionError, SchemaError
from ais_tar2tf.values.schema import Field
from tests.support import shards as made

CLASSES = ("ant", "bee", "cat")
EACH = 4


@pytest.fixture
def typed_shard(tmp_path: Path) -> str:
    """Pack folders of classes. Each record has a jpg, and the number of its class as text."""
    for at, name in enumerate(CLASSES):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for number in range(EACH):
            (folder / f"{number}.jpg").write_bytes(made.image(at * EACH + number))
    (shard,) = t2t.pack(tmp_path / "photos", tmp_path / "train-{}.tar", progress=False)
    return shard


def labels(out: Any) -> list[int]:
    return sorted(record["cls"] for record in t2t.load(out).records())


WANTED = sorted([*range(len(CLASSES))] * EACH)


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
@pytest.mark.parametrize("how", ["types", "type", "schema"])
def test_labels_are_numbers_with_the_names_of_their_classes(
    how: str, kind: str, typed_shard: str, tmp_path: Path
) -> None:
    src, out = t2t.open(typed_shard), tmp_path / "out"
    options: dict[str, Any] = {
        "types": {"types": {"cls": "int64"}},
        "type": {"types": {"cls": int}},
        "schema": {"schema": src.schema.with_field(Field("cls", "int64"))},
    }[how]
    files = src.export(out, format=kind, progress=False, **options)
    assert src.export(out, format=kind, progress=False, **options) == files, "the same plan is finished"
    loaded = t2t.load(out)
    assert labels(out) == WANTED
    assert loaded.classes == CLASSES
    assert loaded.dataset("train").element_spec["cls"] == tf.TensorSpec((), tf.int64)
    assert json.loads((out / "features.json").read_text())["featuresDict"]["features"]["cls"]["classLabel"]
    feature = tfds.builder_from_directory(out).info.features["cls"]
    assert isinstance(feature, tfds.features.ClassLabel)
    assert tuple(feature.names) == CLASSES
    assert loaded.verify().records == len(WANTED)


def test_numbers_of_other_types_and_other_fields(tmp_path: Path) -> None:
    rows = [(f"{at}", {"cls": b" %d\n" % at, "score": b"%d.5" % at, "txt": b"7"}) for at in range(3)]
    (tmp_path / "s.tar").write_bytes(made.tar(rows))
    t2t.open(tmp_path / "s.tar").export(tmp_path / "out", types={"cls": np.int32, "score": "float32"}, progress=False)
    found = list(t2t.load(tmp_path / "out").records())
    assert [(each["cls"], each["score"], each["txt"]) for each in found] == [(n, n + 0.5, b"7") for n in range(3)]


@pytest.mark.parametrize(
    ("written", "why"), [(b"cat", "not a number"), (b"1_0", "not a number"), (b"300", "does not fit")]
)
@pytest.mark.parametrize("how", ["types", "schema"])
def test_values_that_are_no_such_numbers_are_reported_or_skipped(
    how: str, written: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / "s.tar").write_bytes(made.tar([("good", {"cls": b"1"}), ("bad", {"cls": written})]))
    schema = t2t.schema.Schema((Field("cls", "uint8"),))
    options: dict[str, Any] = {"types": {"cls": "uint8"}} if how == "types" else {"schema": schema}
    why = why if how == "types" else f"the schema says uint8.*{why}"
    with pytest.raises(SchemaError, match=f"'?bad'?.*{why}"):
        t2t.open(tmp_path / "s.tar").export(tmp_path / "out", progress=False, **options)
    patient = t2t.open(tmp_path / "s.tar", on_error="skip-record")
    patient.export(tmp_path / "patient", progress=False, **options)
    assert labels(tmp_path / "patient") == [1]
    assert sum(patient.stats.skipped.values()) == 1


def test_a_number_that_some_records_lack(tmp_path: Path) -> None:
    rows = [("a", {"cls": b"5", "txt": b"x"}), ("b", {"txt": b"y"})]
    (tmp_path / "s.tar").write_bytes(made.tar(rows))
    src = t2t.open(tmp_path / "s.tar")
    schema = src.schema.with_field(Field("cls", "int64", optional=True))
    src.export(tmp_path / "out", schema=schema, progress=False)
    loaded = t2t.load(tmp_path / "out")
    assert [record.get("cls") for record in loaded.records()] == [5, None]
    assert [each["cls"].tolist() for each in loaded.dataset("train").as_numpy_iterator()] == [[5], []]
    with pytest.raises(SchemaError, match=r"record 'b': field 'cls' is missing.*say optional=True"):
        src.export(tmp_path / "other", schema=src.schema.with_field(Field("cls", "int64")), progress=False)
    with pytest.raises(MissingField, match="where some records lack it, give schema= with a Field"):
        src.export(tmp_path / "other", types={"cls": "int64"}, progress=False)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (Field("cls", "float64"), "text becomes one number of these types: int64, .*float32"),
        (Field("cls", "int64", (1,)), "text becomes one number"),
        (Field("cls", "bool"), "text becomes one number"),
        (Field("jpg", "uint8", (2, 2, 3)), r"t2t.schema.infer\(records\) makes a schema of what all records are"),
    ],
)
def test_a_schema_of_other_values_is_an_error_with_a_remedy(
    field: Field, told: str, typed_shard: str, tmp_path: Path
) -> None:
    src = t2t.open(typed_shard)
    with pytest.raises(SchemaError, match=f"field '{field.name}' is .*, the schema says .*{told}"):
        src.export(tmp_path / "out", schema=src.schema.with_field(field), progress=False)
    with pytest.raises(SchemaError, match=r"'jpg' is not in the schema.*with_field.*leave it out by src.select"):
        src.export(tmp_path / "out", schema=src.schema.select(["cls"]), progress=False)
    src.export(tmp_path / "out", schema=t2t.schema.infer(src.records()), progress=False)
    assert t2t.load(tmp_path / "out").schema["cls"] == src.schema["cls"]


def test_numbers_of_record_files_are_numbers_already(typed_shard: str, tmp_path: Path) -> None:
    files = t2t.open(typed_shard).export(tmp_path / "out", types={"cls": "int64"}, progress=False)
    src = t2t.open(files)
    with pytest.raises(SchemaError, match="field 'cls': it is no text: leave it out of types="):
        src.export(tmp_path / "other", types={"cls": "int64"}, progress=False)
    src.export(tmp_path / "other", schema=src.schema, progress=False)
    assert labels(tmp_path / "other") == WANTED


def test_types_without_effect_are_refused(typed_shard: str, tmp_path: Path) -> None:
    src, out, types = t2t.open(typed_shard), tmp_path / "out", {"cls": "int64"}
    with pytest.raises(OptionError, match="types= has no effect with format='tar'"):
        src.export(out, types=types, format="tar")
    with pytest.raises(OptionError, match="types= has no effect with schema="):
        src.export(out, types=types, schema=src.schema)
    with pytest.raises(OptionError, match="types= has no effect with record_to_example="):
        src.export(out, types=types, record_to_example=t2t.default_record_to_example)
    for wrong in ("string", "int46", "float64", bool):
        with pytest.raises(OptionError, match="numbers in record files are int64"):
            src.export(out, types={"cls": wrong})
    with pytest.raises(MissingField, match="types= names field 'label'"):
        src.export(out, types={"label": "int64"}, progress=False)


def test_workers_and_job_arrays_write_numbers_too(typed_shard: str, tmp_path: Path) -> None:
    src, types = t2t.open([typed_shard, typed_shard]), {"cls": "int64"}
    src.export(tmp_path / "one", types=types, align="shard", workers=2, progress=False)
    for host in range(2):
        src.export(tmp_path / "array", types=types, align="shard", shard=(host, 2), progress=False)
    t2t.finish(tmp_path / "array")
    assert labels(tmp_path / "one") == labels(tmp_path / "array") == sorted(WANTED * 2)
    assert t2t.load(tmp_path / "array").classes == CLASSES


def test_the_command_line_writes_numbers(typed_shard: str, tmp_path: Path) -> None:
    from ais_tar2tf.cli.app import app

    done = CliRunner().invoke(app, ["convert", typed_shard, str(tmp_path / "out"), "--types", "cls=int64"])
    assert done.exit_code == 0, done.output
    assert labels(tmp_path / "out") == WANTED
    for wrong in ("cls", "cls=", "cls=text"):
        done = CliRunner().invoke(app, ["convert", typed_shard, str(tmp_path / "other"), "--types", wrong])
        assert done.exit_code == 2


@pytest.mark.parametrize(
    "options",
    [{}, {"types": {"cls": "int64"}}, {"record_to_example": t2t.default_record_to_example}, {"format": "tar"}],
    ids=["raw", "types", "example", "tar"],
)
def test_pairs_in_one_line(options: dict[str, Any], typed_shard: str, tmp_path: Path) -> None:
    t2t.open(typed_shard).export(tmp_path / "out", progress=False, **options)
    train = t2t.load(tmp_path / "out").dataset("train").map(t2t.default_record_to_pair)
    assert train.element_spec == (tf.TensorSpec((224, 224, 3), tf.float32), tf.TensorSpec((), tf.int32))
    found = list(train.as_numpy_iterator())
    assert sorted(int(label) for _, label in found) == WANTED
    wanted = list(t2t.open(typed_shard).dataset(t2t.default_record_to_pair, label_is_number=True).as_numpy_iterator())
    for (image, label), (other, number) in zip(found, wanted, strict=True):
        assert label == number
        np.testing.assert_array_equal(image, other)


def test_pairs_of_other_images_and_without_images(tmp_path: Path) -> None:
    (tmp_path / "s.tar").write_bytes(made.tar([("a", {"png": made.image(1, "PNG"), "cls": b"2"})]))
    t2t.open(tmp_path / "s.tar").export(tmp_path / "out", progress=False)
    ((image, label),) = t2t.load(tmp_path / "out").dataset("train").map(t2t.default_record_to_pair)
    assert (image.shape, int(label)) == ((224, 224, 3), 2)
    t2t.open(tmp_path / "s.tar").select("cls").export(tmp_path / "bare", progress=False)
    with pytest.raises(Exception, match=r"SchemaError: the default pair needs an image \(jpg"):  # TensorFlow wraps it
        t2t.load(tmp_path / "bare").dataset("train").map(t2t.default_record_to_pair)


OF_EXPORTS = r"read t2t.load\(folder\).dataset\(split\), and map t2t.default_record_to_pair"


@pytest.mark.parametrize("types", [None, {"cls": "int64"}])
def test_the_parser_of_pairs_names_the_parser_of_other_examples(types: Any, typed_shard: str, tmp_path: Path) -> None:
    files = t2t.open(typed_shard).export(tmp_path / "out", types=types, progress=False)
    examples = tf.data.TFRecordDataset(files)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"this Example has no .*image_raw.*{OF_EXPORTS}"):
        list(examples.map(t2t.default_record_parser))
    with pytest.raises(Exception, match=f"SchemaError: .*this is a tensor.*{OF_EXPORTS}"):  # TensorFlow wraps it
        examples.map(t2t.default_record_to_pair)
    with pytest.raises(Exception, match=r"SchemaError: .*not its fields: map t2t.default_record_to_pair"):
        t2t.load(tmp_path / "out").dataset("train").map(t2t.default_record_parser)


def test_tensorflow_reads_an_export_by_its_spec(typed_shard: str, tmp_path: Path) -> None:
    t2t.open(typed_shard).export(tmp_path / "out", types={"cls": "int64"}, progress=False)
    loaded = t2t.load(tmp_path / "out")
    spec = t2t.parsing.parse_spec(loaded.schema)
    examples = tf.data.TFRecordDataset(loaded.files("train"))
    parsed = examples.map(lambda each: tf.io.parse_single_example(each, spec))
    for found, wanted in zip(parsed.as_numpy_iterator(), loaded.records(), strict=True):
        assert (found["cls"], found["jpg"], found["__key__"].decode()) == tuple(
            wanted[name] for name in ("cls", "jpg", "__key__")
        )
