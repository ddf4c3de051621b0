"""Class names from classes.json appear in exports, in manifests, and as class labels of TFDS."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from typer.testing import CliRunner

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.sealed import CHECKSUM, seal
from ais_tar2tf.cli.app import app
from ais_tar2tf.errors import ExportError, SchemaError
from ais_tar2tf.streams.class_names import ClassNames, document_of, parse_classes
from tests.support import shards as made
from tests.support.web_server import WebServer

NAMES = ("Sun flower", "daisy", "rose")


def labelled(record):
    """A user's mapping, whose attribute `label` names the feature that is the label."""
    return {"image": record["jpg"], "kind": int(record["cls"])}


labelled.label = "kind"


@pytest.fixture(scope="module")
def class_shards(tmp_path_factory) -> Path:
    """Write three shards of 20 labelled images each, and their classes.json."""
    root = tmp_path_factory.mktemp("classes")
    for name in NAMES:
        (root / "in" / name).mkdir(parents=True)
        for number in range(20):
            (root / "in" / name / f"{number}.jpg").write_bytes(made.image(number))
    t2t.pack(root / "in", f"{root}/shards/train-{{}}.tar", shard_records=20)
    return root / "shards"


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
@pytest.mark.parametrize(("function", "feature"), [(t2t.default_record_to_example, "label"), (labelled, "kind")])
def test_tfds_has_the_names_of_the_classes(class_shards, tmp_path, kind, function, feature):
    t2t.open(f"{class_shards}/").export(tmp_path / "out", format=kind, record_to_example=function, workers=1)
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    label = builder.info.features[feature]
    assert isinstance(label, tfds.features.ClassLabel)
    assert (label.num_classes, label.names) == (3, list(NAMES))
    found = [int(example[feature]) for example in builder.as_data_source("train")] if kind == "array_record" else [
        int(example[feature]) for example in builder.as_dataset("train").as_numpy_iterator()
    ]  # fmt: skip
    assert found == [int(record["cls"]) for record in t2t.iter_records(f"{class_shards}/")]
    loaded = t2t.load(tmp_path / "out")
    assert loaded.classes == NAMES
    assert loaded.manifest.splits["train"].classes == {feature: NAMES}
    told = CliRunner().invoke(app, ["inspect", str(tmp_path / "out")])
    assert "classes  3: Sun flower 0, daisy 1, rose 2" in told.stdout


def test_features_of_a_function_have_names_only_if_it_declares_a_label(class_shards, tmp_path):
    t2t.open(f"{class_shards}/").export(
        tmp_path / "out", record_to_example=lambda r: {"cls": 7 - int(r["cls"])}, workers=1
    )
    assert t2t.load(tmp_path / "out").classes == ()
    features = tfds.builder_from_directory(str(tmp_path / "out")).info.features
    assert not isinstance(features["cls"], tfds.features.ClassLabel)


def test_an_export_without_a_function_has_the_names_of_cls(class_shards, tmp_path):
    t2t.open(f"{class_shards}/").export(tmp_path / "out", format="tar", workers=1)
    assert t2t.load(tmp_path / "out").classes == NAMES


def test_a_job_array_has_the_same_names(class_shards, tmp_path):
    options = {"record_to_example": t2t.default_record_to_example, "align": "shard", "workers": 1}
    for host in range(2):
        t2t.open(f"{class_shards}/").export(tmp_path / "many", shard=(host, 2), **options)
    t2t.finish(tmp_path / "many")
    t2t.open(f"{class_shards}/").export(tmp_path / "one", **options)
    assert {path.name: path.read_bytes() for path in (tmp_path / "many").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()
    }
    assert t2t.load(tmp_path / "many").classes == NAMES


def test_an_export_with_other_names_is_a_different_export(class_shards, tmp_path):
    shutil.copytree(class_shards, tmp_path / "shards")
    source = t2t.open(f"{tmp_path}/shards/train-{{0..2}}.tar")
    written = source.export(tmp_path / "out", workers=1)
    assert source.export(tmp_path / "out", workers=1) == written
    (tmp_path / "shards" / "classes.json").write_bytes(document_of([ClassNames(("a", "b", "c"), ("train-{}.tar",))]))
    with pytest.raises(ExportError, match="exists='replace'"):
        source.export(tmp_path / "out", workers=1)
    source.export(tmp_path / "out", workers=1, exists="replace")
    assert t2t.load(tmp_path / "out").classes == ("a", "b", "c")


def test_names_that_tfds_would_change_are_left_out(tmp_path):
    """TFDS reads one name from each line and strips it. Names that this would change are not written."""
    for number, name in enumerate(["a\nb", " c"]):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "0.jpg").write_bytes(made.image(number))
    t2t.pack(tmp_path / "in", f"{tmp_path}/x.tar")
    t2t.open(f"{tmp_path}/x.tar").export(tmp_path / "out", record_to_example=t2t.default_record_to_example, workers=1)
    label = tfds.builder_from_directory(str(tmp_path / "out")).info.features["label"]
    assert (label.num_classes, label.names) == (2, ["0", "1"])
    assert t2t.load(tmp_path / "out").classes == t2t.open(f"{tmp_path}/x.tar").classes == (" c", "a\nb")


def test_splits_with_different_names_have_no_common_names(class_shards, tmp_path):
    shutil.copytree(class_shards, tmp_path / "shards")
    names = ClassNames(("a", "b", "c"), ("train-{}.tar",))
    for split in ("train", "test"):
        t2t.open(f"{tmp_path}/shards/train-*.tar").export(
            tmp_path / "out", split=split, record_to_example=t2t.default_record_to_example, workers=1
        )
        (tmp_path / "shards" / "classes.json").write_bytes(document_of([names]))
    loaded = t2t.load(tmp_path / "out")
    assert (loaded.classes, loaded.manifest.classes) == ((), {})
    assert loaded.manifest.splits["test"].classes == {"label": names.names}


@pytest.mark.parametrize(
    "wrong", [{"label": "abc"}, {"label": [1]}, {"../x": ["a"]}, [], {"label": {"a": 0}}], ids=repr
)
def test_a_manifest_with_other_classes_is_damaged(class_shards, tmp_path, wrong):
    t2t.open(f"{class_shards}/").export(tmp_path / "out", record_to_example=t2t.default_record_to_example, workers=1)
    path = tmp_path / "out" / "manifest.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    del document[CHECKSUM]
    document["splits"]["train"]["classes"] = wrong
    path.write_text(json.dumps(seal(document)), encoding="utf-8")
    with pytest.raises(ExportError, match=r"manifest\.json: the document is damaged"):
        t2t.load(tmp_path / "out")


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2, "classes": []},
        {"version": 1, "classes": {}},
        {"version": 1, "classes": [{"shards": ["x"], "field": "cls"}]},
        {"version": 1, "classes": [{"shards": "x", "field": "cls", "numbers": {"a": 0}}]},
        {"version": 1, "classes": [{"shards": [], "field": 1, "numbers": {"a": 0}}]},
        {"version": 1, "classes": [{"shards": [], "field": "cls", "numbers": {"a": 1}}]},
        {"version": 1, "classes": [{"shards": [], "field": "cls", "numbers": {"a": 0, "b": 0}}]},
        {"version": 1, "classes": [{"shards": [], "field": "cls", "numbers": {"a": True, "b": 0}}]},
        {"version": 1, "classes": [{"shards": [], "field": "cls", "numbers": [["a", 0]]}]},
    ],
    ids=str,
)
def test_our_documents_with_invalid_content_are_damaged(wrong):
    with pytest.raises(SchemaError, match=r"x/classes\.json: the document is damaged"):
        parse_classes(json.dumps(seal(wrong)).encode(), where="x/classes.json")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"0": "ant"}', b"<html>", b"\xff" * 10, b'{"version": 1}'])
def test_foreign_documents_give_no_names(data):
    assert parse_classes(data, where="x") == ()


def test_every_cut_of_a_document_is_damaged():
    """Every cut is damage, except an empty file, which may belong to another program."""
    whole = document_of([ClassNames(("ant", "bê\udcffe"), ("train-{:05d}.tar", "val-{}.tar"))])
    assert parse_classes(whole, where="x") == (ClassNames(("ant", "bê\udcffe"), ("train-{:05d}.tar", "val-{}.tar")),)
    assert parse_classes(b"", where="x") == ()
    for end in range(1, len(whole) - 2):
        with pytest.raises(SchemaError, match="the document is damaged"):
            parse_classes(whole[:end], where="x")


@pytest.mark.parametrize(
    ("template", "covered", "others"),
    [
        (
            "train-{:05d}.tar",
            ["train-00000.tar", "train-123456.tar"],
            ["train-.tar", "xtrain-0.tar", "train-0.tar.gz"],
        ),
        ("a{}b{}.tar", ["a0b0.tar"], ["a0b.tar"]),
        ("one.tar", ["one.tar"], ["oneXtar", "one.tar0"]),
        ("v[1]+{}.tar", ["v[1]+3.tar"], ["v1+3.tar"]),
    ],
)
def test_which_shards_a_template_covers(template, covered, others):
    names = ClassNames((), (template,))
    assert all(map(names.covers, covered))
    assert not any(map(names.covers, others))


def test_a_template_with_many_numbers_is_matched_quickly():
    began = time.process_time()
    assert not ClassNames((), ("{}" * 200 + "x",)).covers("0" * 5_000)
    assert not ClassNames((), ("{}-" * 200 + "x",)).covers("0-" * 5_000)
    assert time.process_time() - began < 5


def test_a_web_server_may_have_no_classes(class_shards):
    with WebServer() as web:
        for path in class_shards.iterdir():
            web.objects[f"shards/{path.name}"] = path.read_bytes()
        web.objects["none/train-0.tar"] = (class_shards / "train-0.tar").read_bytes()
        assert t2t.open(f"{web.url}/shards/train-{{0..2}}.tar").classes == NAMES
        assert t2t.open(f"{web.url}/none/train-0.tar").classes == ()
        assert t2t.open(f"{web.url}/shards/train-0.tar?signed=a/b").classes == ()
    assert [target for _, target in web.requests] == ["/shards/classes.json", "/none/classes.json"]


@pytest.mark.parametrize("kind", ["tfrecord", "array_record", "tar"])
def test_exported_files_that_are_opened_as_shards_have_their_names(class_shards, tmp_path, kind):
    """The manifest next to the files has the names, also for several splits in one folder."""
    source, out = t2t.open(f"{class_shards}/"), tmp_path / "out"
    source.export(out, format=kind, splits={"train": 0.5, "val": 0.5}, shard_records=9, workers=1)
    loaded = t2t.load(out)
    if kind == "array_record":  # cannot be opened as shards, but its manifest still has the names
        assert t2t.open(loaded.files("train")).classes == NAMES
        return
    for opened in (t2t.open(f"{out}/"), t2t.open(f"{out}/*-train*"), t2t.open(loaded.files("val")), t2t.open(out)):
        assert opened.classes == NAMES
        assert next(opened.records())["cls"] in (b"0", b"1", b"2")
    assert t2t.mix([t2t.open(out), source]).classes == NAMES
    told = CliRunner().invoke(app, ["inspect", f"{out}/dataset-val*", "--json"])
    assert json.loads(told.stdout)["classes"] == {"cls": {"Sun flower": 0, "daisy": 1, "rose": 2}}
    t2t.open(out).export(tmp_path / "again", workers=1)
    assert t2t.load(tmp_path / "again").classes == NAMES


def test_a_custom_label_keeps_its_names_and_its_field(class_shards, tmp_path):
    t2t.open(f"{class_shards}/").export(tmp_path / "out", record_to_example=labelled, workers=1)
    opened = t2t.open(tmp_path / "out")
    assert opened.classes == NAMES
    opened.export(tmp_path / "again", workers=1)
    assert t2t.load(tmp_path / "again").manifest.classes == {"kind": NAMES}


def test_files_without_their_manifest_have_no_names(class_shards, tmp_path):
    (file,) = t2t.open(f"{class_shards}/").export(tmp_path / "out", workers=1)
    shutil.copy(file, tmp_path / "out" / "other-00000-of-00001.tfrecord")
    assert t2t.open([file, tmp_path / "out" / "other-00000-of-00001.tfrecord"]).classes == ()
    shutil.copy(file, tmp_path)
    assert t2t.open(tmp_path / Path(file).name).classes == ()
    (tmp_path / "manifest.json").write_text('{"manifest": "of a web page"}')
    assert t2t.open(tmp_path / Path(file).name).classes == ()


def test_a_damaged_manifest_next_to_exported_files_is_an_error(class_shards, tmp_path):
    (file,) = t2t.open(f"{class_shards}/").export(tmp_path / "out", workers=1)
    path = tmp_path / "out" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"daisy", b"dasiy"))
    with pytest.raises(SchemaError, match=r"manifest\.json: the document is damaged: its checksum"):
        _ = t2t.open(file).classes


def test_a_mixture_of_different_names_has_no_names(class_shards, tmp_path):
    shutil.copytree(class_shards, tmp_path / "shards")
    (tmp_path / "shards" / "classes.json").write_bytes(document_of([ClassNames(("a", "b", "c"), ("train-{}.tar",))]))
    assert t2t.mix([t2t.open(f"{class_shards}/"), t2t.open(f"{tmp_path}/shards/")]).classes == ()
