"""t2t.pack of folders: records, classes, splits and ignored files, compared with Keras and os.walk."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.sealed import CHECKSUM
from ais_tar2tf.errors import (
    AccessDenied,
    ExportError,
    OptionError,
    SchemaError,
    ShardNotFound,
    StoreError,
    TemplateError,
    UnclearLayout,
)
from ais_tar2tf.recordfiles.packing.confined_folder import ConfinedFolder
from ais_tar2tf.recordfiles.packing.left_out import Reason
from tests.support import shards as made
from tests.support.command_line import run
from tests.support.kinds_of_stores import new_name


def fill(root: Path, *names: str, data: bytes | None = None) -> Path:
    """Write files of these names with `data`, or with different images."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.image(number % 50) if data is None else data)
    return root


def classes(root: Path, *names: str, each: int = 3) -> Path:
    return fill(root, *(f"{name}/{number}.jpg" for name in names for number in range(each)))


def read(urls, **options):
    return [
        {name: value for name, value in record.items() if name != "__shard__"}
        for record in t2t.iter_records(urls, **options)
    ]


def labels(urls) -> dict[str, int]:
    return {record["__key__"]: int(record["cls"]) for record in read(urls)}


def stem(name: str) -> str:
    return name[: name.rindex(".")]


def found_below(root: Path) -> int:
    """Return the number of files that os.walk finds. Each hidden folder counts as one."""
    count = 0
    for _, folders, files in os.walk(root):
        count += len(files) + sum(folder.startswith(".") for folder in folders)
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
    return count


# Classes, compared with Keras


def keras_labels(root: Path) -> tuple[list[str], dict[str, int]]:
    """Return Keras's class names, and its label of each file by its path below `root`."""
    dataset = keras.utils.image_dataset_from_directory(
        root, batch_size=None, shuffle=False, image_size=(8, 8), verbose=False
    )
    numbers = [int(label) for _, label in dataset.as_numpy_iterator()]
    names = [os.path.relpath(path, root) for path in dataset.file_paths]
    return dataset.class_names, dict(zip(names, numbers, strict=True))


def test_labels_are_those_of_keras(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee", "Zebra", "élan", "10", "9", "n01", each=2)
    fill(root, "bee/deep/er/7.png", "ant/UPPER.JPG", "n01/a b.jpeg")
    (root / "empty").mkdir()
    urls = t2t.pack(root, f"{tmp_path}/out/train-{{:03d}}.tar", shard_records=7)
    names, expected = keras_labels(root)
    assert list(urls.classes) == names
    assert labels(urls) == {stem(name): label for name, label in expected.items()}
    assert urls.by_class == dict.fromkeys(names, 0) | Counter(names[label] for label in expected.values())


def test_a_dataset_of_packed_shards_has_keras_labels(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee", "cat", each=20)
    fill(root, ".DS_Store", "bee/Thumbs.db", "classes.txt", data=b"x")
    t2t.pack(root, f"{tmp_path}/out/train-{{:03d}}.tar", shard_records=25)
    source = t2t.open(f"{tmp_path}/out/")
    pairs = source.dataset(lambda record: (record["__key__"], tf.strings.to_number(record["cls"], tf.int32)))
    found = {key.numpy().decode(): int(label) for key, label in pairs}
    _, expected = keras_labels(root)
    assert found == {stem(name): label for name, label in expected.items()}
    assert source.classes == ("ant", "bee", "cat")


FOREIGN = {
    ".DS_Store": Reason.HIDDEN,
    "._0.jpg": Reason.HIDDEN,
    "Thumbs.db": Reason.HIDDEN,
    "desktop.ini": Reason.HIDDEN,
    "README.md": Reason.DOCUMENT,
    "readme.dataset.txt": Reason.DOCUMENT,
    "LICENSE": Reason.DOCUMENT,
    "classes.txt": Reason.DOCUMENT,
    "checksums": Reason.NO_EXTENSION,
}


@pytest.mark.parametrize("where", ["", "ant/", "bee/deep/"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_changes_no_label_and_is_counted(tmp_path, where, name):
    root = classes(tmp_path / "in", "ant", "bee")
    plain = labels(t2t.pack(root, f"{tmp_path}/plain.tar"))
    fill(root, where + name, data=b"\0\0\0")
    urls = t2t.pack(root, f"{tmp_path}/foreign.tar")
    assert labels(urls) == plain
    assert (urls.records, urls.files) == (6, 6)
    assert dict(urls.left_out.counts) == {FOREIGN[name]: 1}
    assert urls.left_out.examples == {FOREIGN[name]: [where + name]}


def test_every_file_is_packed_or_left_out(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee", "cat")
    fill(root, "cover.jpg", "ant/notes.csv", "ant/0.json", ".git/config", ".git/HEAD", "bee/.cache/x.jpg", "cat/x")
    fill(root, "cat/broken.jpg", data=b"")
    os.mkfifo(root / "bee" / "pipe.jpg")
    urls = t2t.pack(root, f"{tmp_path}/out.tar")
    assert dict(urls.left_out.counts) == {
        Reason.HIDDEN: 2, Reason.NO_EXTENSION: 1, Reason.SPECIAL: 1,
        Reason.OUTSIDE: 1, Reason.UNACCOMPANIED: 1, Reason.EMPTY: 1,
    }  # fmt: skip
    assert urls.files + urls.left_out.count == found_below(root)
    assert urls.records == 9
    assert {key: set(record) for key, record in ((r["__key__"], r) for r in read(urls))}["ant/0"] == {
        "__key__", "cls", "json", "jpg",
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_every_file_of_any_folder_is_accounted_for(tmp_path, seed):
    """A random folder is refused, or each of its files is in a shard or counted with a reason."""
    draw = random.Random(seed)
    stems = ["1", "2", "a b", "ü", ".hidden", "README", "x.y", "x"]
    endings = [".jpg", ".JPG", ".png", ".txt", ".json", "", ".", ".tar.gz", ".seg.png"]
    folders = ["", "ant", "ant/deep", "bee", ".git", "train", "bee/.x", "__MACOSX"]
    chosen = draw.sample(folders, draw.randint(1, 4))
    names = {
        f"{draw.choice(chosen)}/{draw.choice(stems)}{draw.choice(endings)}".lstrip("/")
        for _ in range(draw.randint(1, 25))
    }
    for name in names:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.write_bytes(name.encode())
    found = {path.read_bytes() for path in (tmp_path / "in").rglob("*") if path.is_file()}
    try:
        urls = t2t.pack(tmp_path / "in", f"{tmp_path}/out/{{}}.tar", labels=draw.choice(["auto", None]))
    except (UnclearLayout, ShardNotFound):
        assert not (tmp_path / "out").exists()
        return
    packed = {
        value for record in read(list(urls)) for name, value in record.items() if name not in ("__key__", "cls")
    }
    assert packed <= found
    assert len(packed) == urls.files
    walked = sum(1 for name in found if not any(p.startswith((".", "__M")) for p in name.decode().split("/")[:-1]))
    hidden_folders = {
        folder
        for name in found
        for folder in [next((p for p in name.decode().split("/")[:-1] if p.startswith((".", "__M"))), "")]
        if folder
    }
    assert urls.files + urls.left_out.count == walked + len(hidden_folders)


def test_the_first_batches_have_all_classes(tmp_path):
    root = classes(tmp_path / "in", *(f"class-{number}" for number in range(10)), each=40)
    urls = t2t.pack(root, f"{tmp_path}/train-{{}}.tar", shard_records=100)
    first = [int(record["cls"]) for record in read(urls)][:100]
    assert set(first) == set(range(10))
    assert max(Counter(first).values()) < 25
    assert urls.seed == 0


def test_the_order_is_a_function_of_the_seed(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee", each=30)

    def order(name: str, **options):
        return [record["__key__"] for record in read(t2t.pack(root, f"{tmp_path}/{name}.tar", **options))]

    by_default, again, seeded = order("a"), order("b", shuffle=0), order("c", shuffle=7)
    names = order("d", shuffle=False)
    assert by_default == again == order("e", shuffle=True)
    assert seeded != by_default
    assert seeded == order("f", shuffle=7)
    assert sorted(seeded) == sorted(names) == sorted(by_default)
    assert names == sorted(names, key=lambda key: f"{key}.")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_a_folder_without_classes_keeps_its_order_by_default(tmp_path):
    root = fill(tmp_path / "in", *(f"{number:02d}.jpg" for number in range(40)))
    urls = t2t.pack(root, f"{tmp_path}/a.tar")
    keys = [record["__key__"] for record in read(urls)]
    assert keys == sorted(keys)
    assert (urls.seed, urls.classes) == (None, ())
    shuffled = [record["__key__"] for record in read(t2t.pack(root, f"{tmp_path}/b.tar", shuffle=3))]
    assert shuffled != keys
    assert sorted(shuffled) == keys


def test_other_kinds_of_files_have_classes_too(tmp_path):
    fill(tmp_path / "text", "neg/0.txt", "pos/0.txt", "pos/1.txt", data=b"words")
    fill(tmp_path / "sound", "no/0.wav", "yes/0.wav", "yes/1.wav", data=b"RIFF")
    assert labels(t2t.pack(tmp_path / "text", f"{tmp_path}/t.tar")) == {"neg/0": 0, "pos/0": 1, "pos/1": 1}
    assert labels(t2t.pack(tmp_path / "sound", f"{tmp_path}/s.tar")) == {"no/0": 0, "yes/0": 1, "yes/1": 1}


def test_records_that_have_labels_keep_them(tmp_path):
    root = fill(tmp_path / "in", "a/1.jpg", "b/1.jpg")
    fill(root, "a/1.cls", "b/1.cls", data=b"7")
    assert labels(t2t.pack(root, f"{tmp_path}/x.tar")) == {"a/1": 7, "b/1": 7}
    with pytest.raises(UnclearLayout, match="is a label, and so is the folder"):
        t2t.pack(root, f"{tmp_path}/y.tar", labels="folders")


# Splits


def split_folder(root: Path) -> Path:
    classes(root / "Train", "ant", "bee", "cat", each=4)
    classes(root / "val", "ant", "cat", each=2)
    fill(root / "test", "0.jpg", "1.jpg")
    fill(root, "sample_submission.csv", data=b"id\n")
    return root


def test_split_folders_are_splits_with_one_numbering(tmp_path):
    urls = t2t.pack(split_folder(tmp_path / "in"), f"{tmp_path}/{{split}}-{{:03d}}.tar", shard_records=5)
    assert {split: [Path(url).name for url in found] for split, found in urls.splits.items()} == {
        "test": ["test-000.tar"],
        "train": ["train-000.tar", "train-001.tar", "train-002.tar"],
        "val": ["val-000.tar"],
    }
    assert sorted(urls) == sorted(url for found in urls.splits.values() for url in found)
    assert urls.classes == ("ant", "bee", "cat")
    assert labels(urls.splits["val"]) == {"ant/0": 0, "ant/1": 0, "cat/0": 2, "cat/1": 2}
    assert Counter(labels(urls.splits["train"]).values()) == {0: 4, 1: 4, 2: 4}
    assert all("cls" not in record for record in read(urls.splits["test"]))
    assert dict(urls.left_out.counts) == {Reason.OUTSIDE: 1}
    assert t2t.open(f"{tmp_path}/val-*.tar").classes == ("ant", "bee", "cat")
    assert t2t.open(f"{tmp_path}/test-*.tar").classes == ()


def test_splits_in_folders_of_their_own(tmp_path):
    urls = t2t.pack(split_folder(tmp_path / "in"), f"{tmp_path}/out/{{split}}/{{:03d}}.tar")
    assert urls.classes_files == [f"{tmp_path}/out/{split}/classes.json" for split in ("train", "val")]
    both = t2t.open([f"{tmp_path}/out/train/", f"{tmp_path}/out/val/"])
    assert both.classes == ("ant", "bee", "cat")
    assert sum(1 for _ in both.records()) == 16


def test_splits_without_a_placeholder_are_refused_with_a_suggestion(tmp_path):
    root = split_folder(tmp_path / "in")
    with pytest.raises(TemplateError, match=r"test, train, val.*take '.*/\{split\}-\{:03d\}\.tar'"):
        t2t.pack(root, f"{tmp_path}/out/shard-{{:03d}}.tar")
    done = run("pack", root, tmp_path / "out/shard-{:03d}.tar")
    assert done.exit_code == 2
    assert f"take '{tmp_path}/out/{{split}}-{{:03d}}.tar'" in done.stderr
    assert not (tmp_path / "out").exists()
    with pytest.raises(TemplateError, match="no folder named train"):
        t2t.pack(root / "val", f"{tmp_path}/{{split}}-{{}}.tar")


def test_one_split_needs_no_placeholder(tmp_path):
    root = classes(tmp_path / "in" / "train", "ant", "bee")
    assert labels(t2t.pack(root.parent, f"{tmp_path}/x.tar")) == labels(t2t.pack(root, f"{tmp_path}/y.tar"))


@pytest.mark.parametrize("name", ["train", "TRAIN", "Validation", "valid", "dev", "testing", "test1", "val2017"])
def test_names_of_splits(tmp_path, name):
    root = classes(tmp_path / "in" / name, "ant", "bee", each=1)
    urls = t2t.pack(root.parent, f"{tmp_path}/{{split}}.tar")
    assert [Path(url).name for url in urls] == [f"{name.lower()}.tar"]
    assert labels(urls) == {"ant/0": 0, "bee/0": 1}


def test_classes_that_are_named_like_splits(tmp_path):
    root = classes(tmp_path / "in", "dev", "ops", "test")
    with pytest.raises(UnclearLayout, match=r"'dev', 'test' could be splits, 'ops' could not.*--no-splits"):
        t2t.pack(root, f"{tmp_path}/x.tar")
    assert t2t.pack(root, f"{tmp_path}/x.tar", splits=False).classes == ("dev", "ops", "test")
    with pytest.raises(UnclearLayout, match="finds no folder named train"):
        t2t.pack(root / "ops", f"{tmp_path}/y.tar", splits=True)


# Ambiguous folders are refused, and the error names the option that decides


def kaggle(root: Path) -> Path:
    return fill(root, *(f"{name}.{number}.jpg" for name in ("cat", "dog") for number in range(40)))


@pytest.mark.parametrize("folder", ["", "all/"])
def test_kaggle_s_names_are_refused_and_then_packed_one_by_one(tmp_path, folder):
    kaggle(tmp_path / "in" / folder)
    with pytest.raises(UnclearLayout, match=r"two fields of one record 'cat'.*--grouping last-dot"):
        t2t.pack(tmp_path / "in", f"{tmp_path}/x.tar")
    done = run("pack", tmp_path / "in", tmp_path / "x.tar")
    assert (done.exit_code, "--grouping last-dot" in done.stderr) == (2, True)
    assert not (tmp_path / "x.tar").exists()
    assert run("pack", tmp_path / "in", tmp_path / "x.tar", "--grouping", "last-dot").exit_code == 0
    for grouping in ("first-dot", "last-dot"):  # readers need no special option
        records = read(f"{tmp_path}/x.tar", grouping=grouping)
        assert len(records) == 80
        assert all(set(record) - {"cls"} == {"__key__", "jpg"} for record in records)
        assert {record["__key__"] for record in records} == {
            f"{folder}{name}_{number}" for name in ("cat", "dog") for number in range(40)
        }
    inspected = json.loads(run("inspect", tmp_path / "x.tar", "--grouping", "last-dot", "--json").stdout)
    assert inspected["records"] == 80


@pytest.mark.parametrize(
    "names",
    [
        ["Screen 10.30.00.png", "Screen 10.31.00.png"],
        ["v1..jpg", "v2..jpg"],
        [f"{chr(97 + number)}.name{chr(97 + number)}.jpg" for number in range(20)],
    ],
    ids=["screenshots", "two dots", "many"],
)
def test_other_names_with_dots(tmp_path, names):
    root = fill(tmp_path / "in", *names)
    with pytest.raises(UnclearLayout, match="--grouping last-dot"):
        t2t.pack(root, f"{tmp_path}/x.tar")
    assert t2t.pack(root, f"{tmp_path}/x.tar", grouping="last-dot").records == len(names)


def test_fields_of_several_parts_are_not_ambiguous(tmp_path):
    root = fill(tmp_path / "in", *(f"{number}.{field}" for number in range(30) for field in ("jpg", "seg.png")))
    assert {tuple(record) for record in read(t2t.pack(root, f"{tmp_path}/x.tar"))} == {("__key__", "jpg", "seg.png")}


@pytest.mark.parametrize(
    "names",
    [
        ["a.jpg", "a.edited.jpg"],
        ["a.jpg", "a.edited.png"],
        ["a.edited.jpg", "a.edited.json"],
        ["john.doe.jpg", "john.smith.jpg"],
        ["john.mask.png"],
    ],
)
def test_images_of_a_class_that_would_be_fields_of_one_record(tmp_path, names):
    root = fill(classes(tmp_path / "in", "ant", "bee"), *(f"ant/{name}" for name in names))
    with pytest.raises(UnclearLayout, match=r"in/ant: .*--grouping last-dot.*--grouping first-dot"):
        t2t.pack(root, f"{tmp_path}/x.tar")
    pictures = sum(not name.endswith("json") for name in names)
    assert t2t.pack(root, f"{tmp_path}/x.tar", grouping="last-dot").records == 6 + pictures
    assert t2t.pack(root, f"{tmp_path}/y.tar", grouping="first-dot").records == 7


@pytest.mark.parametrize("beside", ["seg.png", "mask.jpg", "SEG.PNG", "json", "caption.txt"])
def test_parts_of_an_image_in_a_class_folder_are_not_ambiguous(tmp_path, beside):
    root = fill(classes(tmp_path / "in", "ant", "bee"), f"ant/1.{beside}")
    assert t2t.pack(root, f"{tmp_path}/x.tar").records == 6
    assert sum(beside.lower() in record for record in read(f"{tmp_path}/x.tar")) == 1


@pytest.mark.parametrize("names", [("a.b.jpg", "a_b.jpg"), ("a.b.jpg", "a_b.json"), ("a.JPG", "a.jpg")])
def test_names_that_would_become_equal_are_refused(tmp_path, names):
    with pytest.raises(UnclearLayout, match="rename one"):
        t2t.pack(fill(tmp_path / "in", *names), f"{tmp_path}/x.tar", grouping="last-dot")


def test_two_images_of_one_name_in_a_class_folder(tmp_path):
    root = fill(classes(tmp_path / "in", "ant", "bee"), "ant/0.png")
    with pytest.raises(UnclearLayout, match=r"'0\.jpg' and '0\.png' would be one record with two images"):
        t2t.pack(root, f"{tmp_path}/x.tar")
    assert t2t.pack(root, f"{tmp_path}/x.tar", grouping="first-dot").records == 6


def test_two_images_of_one_dotted_name_in_a_class_folder(tmp_path):
    root = fill(classes(tmp_path / "in", "ant", "bee"), "ant/a.b.jpg", "ant/a.b.png")
    with pytest.raises(UnclearLayout, match=r"'a\.b\.jpg' and 'a\.b\.png' would be one record with two images"):
        t2t.pack(root, f"{tmp_path}/x.tar", grouping="last-dot")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["images/0.jpg", "labels/0.txt"], "'images', 'labels' usually hold parts of records"),
        (["images/0.jpg", "masks/0.png"], "usually hold parts of records"),
        (["ant/0.jpg", "bee/0.jpg", "scripts/0.py"], "there is no image in 'scripts'"),
        (
            ["flowers/rose/0.jpg", "flowers/tulip/0.jpg"],
            r"everything lies in one folder, 'flowers'.*pack .*/flowers ",
        ),
        (["ant/0.jpg", "1.jpg", "2.jpg"], "2 files lie outside of the class folders, 1 within"),
    ],
)
def test_folders_that_could_mean_several_things(tmp_path, names, told):
    root = fill(tmp_path / "in", *names)
    with pytest.raises(UnclearLayout, match=rf"{told}.*--labels none"):
        t2t.pack(root, f"{tmp_path}/x.tar")
    without = t2t.pack(root, f"{tmp_path}/x.tar", labels=None)
    assert (without.classes, without.files) == ((), len(names))
    if "outside" not in told:
        folders = sorted({name.partition("/")[0] for name in names})
        assert list(t2t.pack(root, f"{tmp_path}/y.tar", labels="folders").classes) == folders


def test_images_that_tensorflow_cannot_decode_are_reported(tmp_path, caplog):
    root = fill(tmp_path / "in", "ant/0.tif", "ant/1.TIF", "bee/0.jpg", data=made.image(1, "TIFF"))
    told = ".tif images: 2; TensorFlow does not decode them: convert them to .png or .jpg and pack them again"
    assert "TensorFlow" not in str(t2t.pack(classes(tmp_path / "jpgs", "ant"), tmp_path / "jpg.tar", progress=False))
    assert "TensorFlow" not in caplog.text
    t2t.pack(root, tmp_path / "s.tar", progress=False)
    assert told in caplog.text
    (tmp_path / "t.csv").write_text("filename,label\nin/ant/0.tif,7\nin/ant/1.TIF,8\nin/bee/0.jpg,9\n")
    caplog.clear()
    t2t.pack(tmp_path / "t.csv", tmp_path / "c.tar", progress=False)
    assert told in caplog.text
    rehearsed = run("pack", root, tmp_path / "new-{}.tar", "--dry-run")
    assert "TensorFlow does not decode" in " ".join(rehearsed.output.split())


def test_cut_images_are_packed_counted_and_reported(tmp_path, caplog):
    root = classes(tmp_path / "in", "ant", "bee")
    assert t2t.pack(root, tmp_path / "whole.tar", progress=False).cut_images == 0
    assert not caplog.text
    cut = root / "ant" / "1.jpg"
    cut.write_bytes(cut.read_bytes()[:-40])
    packed = t2t.pack(root, tmp_path / "s.tar", progress=False)
    assert (packed.records, packed.cut_images) == (6, 1)
    assert "images that are cut: 1 (ant/1.jpg); they do not decode" in caplog.text
    done = run("pack", root, tmp_path / "t.tar")
    assert done.exit_code == 0
    assert "images that are cut: 1 (ant/1.jpg)" in " ".join(done.output.split())


def test_a_class_without_files_keeps_its_number_and_is_reported(tmp_path, caplog):
    root = classes(tmp_path / "in", "ant", "cat")
    fill(root, "bee/README.md", data=b"x")
    urls = t2t.pack(root, f"{tmp_path}/x.tar")
    assert urls.classes == ("ant", "bee", "cat")
    assert urls.by_class == {"ant": 3, "bee": 0, "cat": 3}
    assert "no files of 'bee'" in caplog.text
    assert "warning: no files of 'bee'" in run("pack", root, tmp_path / "y.tar").stderr


def test_classes_in_a_given_order(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee", each=1)
    urls = t2t.pack(root, f"{tmp_path}/x.tar", classes=["cat", "bee", "ant"])
    assert labels(urls) == {"ant/0": 2, "bee/0": 1}
    assert t2t.open(f"{tmp_path}/x.tar").classes == ("cat", "bee", "ant")
    with pytest.raises(UnclearLayout, match="'bee', which is not among the given classes"):
        t2t.pack(root, f"{tmp_path}/y.tar", classes=["ant"])


# Nothing to pack


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "there is nothing to pack"),
        (["a", "b"], "files without an extension: 2"),
        ([".DS_Store"], "hidden or system files: 1"),
        (["ant/README.md"], "documents about the data: 1"),
    ],
)
def test_nothing_to_pack_is_an_error(tmp_path, names, told):
    root = fill(tmp_path / "in", *names, data=b"x")
    root.mkdir(exist_ok=True)
    with pytest.raises(ShardNotFound, match=told):
        t2t.pack(root, f"{tmp_path}/out/x.tar")
    for options in ((), ("--dry-run",)):
        done = run("pack", root, tmp_path / "out/x.tar", *options)
        assert (done.exit_code, told in done.stderr) == (3, True)
    assert not (tmp_path / "out").exists()


def test_no_rows_are_an_error_before_anything_is_made(tmp_path):
    with pytest.raises(ShardNotFound, match="no row came"):
        t2t.pack([], f"{tmp_path}/out/x.tar", create=True)
    assert not (tmp_path / "out").exists()


def test_an_unreadable_folder_is_named(tmp_path, monkeypatch):
    root = classes(tmp_path / "in", "ant", "bee")
    scandir = os.scandir

    def refused(path):
        if str(path).endswith("bee"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(AccessDenied, match="in/bee"):
        t2t.pack(root, f"{tmp_path}/x.tar")


@pytest.mark.parametrize(
    "options",
    [
        {"labels": "auto", "splits": True, "source": "rows"},
        {"shuffle": True, "source": "rows"},
        {"root": ".", "source": "folder"},
        {"grouping": "dots", "source": "folder"},
        {"labels": "some", "source": "folder"},
        {"classes": "ant", "source": "folder"},
        {"classes": ["a", "a"], "source": "folder"},
        {"shuffle": "yes", "source": "folder"},
        {"exists": "never", "source": "folder"},
        {"shard_size": "9Q", "source": "folder"},
    ],
    ids=str,
)
def test_options_that_are_invalid_or_have_no_effect(tmp_path, options):
    source = options.pop("source")
    given = [{"txt": "x"}] if source == "rows" else classes(tmp_path / "in", "ant", "bee")
    with pytest.raises(OptionError):
        t2t.pack(given, f"{tmp_path}/x.tar", **options)
    assert not (tmp_path / "x.tar").exists()


# Links


def test_links_never_leave_the_folder_by_default(tmp_path):
    secret = fill(tmp_path / "secret", "0.jpg", "1.jpg")
    root = classes(tmp_path / "in", "ant", "bee", each=1)
    (root / "ant" / "out.jpg").symlink_to(secret / "0.jpg")
    (root / "ant" / "in.jpg").symlink_to("../bee/0.jpg")
    (root / "ant" / "gone.jpg").symlink_to("nowhere.jpg")
    (root / "bee" / "more").symlink_to(secret)
    (root / "bee" / "self").symlink_to(root / "bee")
    urls = t2t.pack(root, f"{tmp_path}/x.tar")
    assert labels(urls) == {"ant/0": 0, "ant/in": 0, "bee/0": 1}
    assert dict(urls.left_out.counts) == {Reason.LINK: 3, Reason.BROKEN_LINK: 1}
    followed = t2t.pack(root, f"{tmp_path}/y.tar", follow_links=True)
    assert labels(followed) == {
        "ant/0": 0, "ant/in": 0, "ant/out": 0, "bee/0": 1, "bee/more/0": 1, "bee/more/1": 1,
    }  # fmt: skip
    assert run("pack", root, tmp_path / "z.tar", "--follow-links").exit_code == 0
    assert (tmp_path / "z.tar").read_bytes() == (tmp_path / "y.tar").read_bytes()


def test_a_class_that_is_a_link_is_refused_unless_links_are_followed(tmp_path):
    classes(tmp_path, "elsewhere")
    root = classes(tmp_path / "in", "ant", "bee")
    (root / "cat").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnclearLayout, match=r"'cat' is a link to a folder.*--follow-links"):
        t2t.pack(root, f"{tmp_path}/x.tar")
    urls = t2t.pack(root, f"{tmp_path}/x.tar", follow_links=True)
    names, expected = keras_labels(root)
    assert list(urls.classes) == names
    assert labels(urls) == {stem(name): label for name, label in expected.items()}


def test_the_folder_itself_may_be_a_link(tmp_path):
    classes(tmp_path / "in", "ant", "bee")
    (tmp_path / "link").symlink_to("in")
    assert t2t.pack(tmp_path / "link", f"{tmp_path}/x.tar").records == 6


def test_a_file_that_becomes_a_link_while_it_is_packed_is_not_followed(tmp_path, monkeypatch):
    """Files may be replaced between the listing of the folder and their reading."""
    from ais_tar2tf.recordfiles.packing import packer

    fill(tmp_path, "secret.jpg")
    root = classes(tmp_path / "in", "ant", "bee", each=1)
    plan_pack = packer.plan_pack

    def plan_and_replace(*arguments, **options):
        plan = plan_pack(*arguments, **options)
        (root / "bee" / "0.jpg").unlink()
        (root / "bee" / "0.jpg").symlink_to(tmp_path / "secret.jpg")
        return plan

    monkeypatch.setattr(packer, "plan_pack", plan_and_replace)
    with pytest.raises(t2t.errors.UnsafeName, match="leads out of"):
        t2t.pack(root, f"{tmp_path}/x.tar")


def test_a_file_that_becomes_a_pipe_is_missing(tmp_path):
    """The folder was listed when the pipe was a file. Opening and reading a pipe must not wait for a writer."""
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(ShardNotFound, match="no such file"):
        ConfinedFolder(tmp_path).read("a.jpg", 100)


@pytest.mark.parametrize("size", [5, 100, 101])
def test_a_file_that_grows_while_it_is_read_obeys_the_limit(tmp_path, monkeypatch, size):
    path, fstat = tmp_path / "a.jpg", os.fstat
    path.write_bytes(b"a" * 5)

    def stat_and_grow(descriptor):
        status = fstat(descriptor)
        path.write_bytes(b"a" * size)
        return status

    monkeypatch.setattr(os, "fstat", stat_and_grow)
    if size <= 100:
        assert ConfinedFolder(tmp_path).read("a.jpg", 100) == b"a" * size
    else:
        with pytest.raises(StoreError, match=r"more than Limits\.member_bytes, 100"):
            ConfinedFolder(tmp_path).read("a.jpg", 100)


# classes.json


_PLACES = ["file", "memory", "ais"]
_SERVED = [pytest.param(each, marks=pytest.mark.servers(each)) for each in ("aistore", "minio")]


@pytest.fixture(params=[*_PLACES, *_SERVED])
def pack_target(request, tmp_path, monkeypatch):
    if request.param == "file":
        yield f"{tmp_path}/out"
    elif request.param == "memory":
        yield f"memory://{tmp_path.name}"
    elif request.param == "aistore":
        monkeypatch.setenv("AIS_ENDPOINT", request.getfixturevalue("aistore").url)
        yield f"ais://{new_name()}"
    elif request.param == "minio":
        for name, value in request.getfixturevalue("minio").environment.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{new_name()}"
    else:
        (tmp_path / "root").mkdir()
        with t2t.serve(tmp_path / "root") as server:
            monkeypatch.setenv("AIS_ENDPOINT", server.url)
            yield "ais://pets"


def test_class_names_are_next_to_the_shards_in_any_store(pack_target, tmp_path):
    root = classes(tmp_path / "in", "bee", "ant", each=5)
    urls = t2t.pack(root, f"{pack_target}/train-{{:02d}}.tar", shard_records=4, create=True)
    assert urls.classes_files == [f"{pack_target}/classes.json"]
    assert t2t.open(f"{pack_target}/train-{{00..02}}.tar").classes == ("ant", "bee")
    assert t2t.open(f"{pack_target}/**").classes == ("ant", "bee")  # classes.json is no shard
    assert sum(1 for _ in t2t.open(f"{pack_target}/**").records()) == 10
    inspected = run("inspect", f"{pack_target}/train-*.tar")
    assert "classes  2: ant 0, bee 1" in inspected.stdout, inspected.stderr
    assert json.loads(run("inspect", f"{pack_target}/", "--json").stdout)["classes"] == {"cls": {"ant": 0, "bee": 1}}
    assert run("card", f"{pack_target}/train-*.tar", "-o", tmp_path / "card.html").exit_code == 0
    page = (tmp_path / "card.html").read_text(encoding="utf-8")
    assert page.count("0 ant") >= 5
    assert page.count("1 bee") >= 5


def test_the_content_of_classes_json(tmp_path):
    root = classes(tmp_path / "in", "ant", "bê<e", each=1)
    t2t.pack(root, f"{tmp_path}/out/train-{{:02d}}.tar")
    document = json.loads((tmp_path / "out/classes.json").read_text(encoding="utf-8"))
    assert document.pop(CHECKSUM).startswith("xxh3-128:")
    assert document == {
        "version": 1,
        "classes": [{"shards": ["train-{:02d}.tar"], "field": "cls", "numbers": {"ant": 0, "bê<e": 1}}],
    }
    assert run("card", tmp_path / "out/train-00.tar", "-o", tmp_path / "card.html").exit_code == 0
    assert "bê&lt;e" in (tmp_path / "card.html").read_text(encoding="utf-8")


def test_a_damaged_classes_json_is_an_error_that_names_it(tmp_path):
    t2t.pack(classes(tmp_path / "in", "ant", "bee"), f"{tmp_path}/x.tar")
    file = tmp_path / "classes.json"
    good = file.read_bytes()
    for damaged in (good.replace(b'"ant"', b'"bat"'), good[:-20]):
        file.write_bytes(damaged)
        with pytest.raises(SchemaError, match=r"classes\.json: the document is damaged"):
            t2t.open(f"{tmp_path}/x.tar").classes  # noqa: B018
        done = run("inspect", tmp_path / "x.tar")
        assert (done.exit_code, "classes.json" in done.stdout) == (6, True)
    file.write_bytes(b'["a", "b"]')  # a file of another program, which is ignored
    assert t2t.open(f"{tmp_path}/x.tar").classes == ()
    with pytest.raises(ExportError, match="pack did not write it"):
        t2t.pack(tmp_path / "in", f"{tmp_path}/x.tar", exists="replace")
    assert file.read_bytes() == b'["a", "b"]'


def test_classes_json_applies_only_to_its_shards(tmp_path):
    t2t.pack([{"__key__": "a", "cls": 0}], f"{tmp_path}/other.tar")
    t2t.pack(classes(tmp_path / "in", "ant", "bee"), f"{tmp_path}/train-{{}}.tar")
    assert t2t.open(f"{tmp_path}/other.tar").classes == ()
    assert t2t.open([f"{tmp_path}/train-0.tar", f"{tmp_path}/other.tar"]).classes == ()


def test_shards_of_one_folder_have_one_numbering(tmp_path):
    t2t.pack(classes(tmp_path / "a", "ant", "bee", "cat"), f"{tmp_path}/out/train-{{}}.tar")
    fewer = t2t.pack(classes(tmp_path / "b", "ant", "cat"), f"{tmp_path}/out/val-{{}}.tar")
    assert Counter(labels(fewer).values()) == {0: 3, 2: 3}  # as in the shards of the same folder
    assert fewer.classes == ("ant", "bee", "cat")
    more = classes(tmp_path / "c", "ant", "dog")
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    with pytest.raises(ExportError, match=r"classes\.json.*one number would mean two things"):
        t2t.pack(more, f"{tmp_path}/out/test-{{}}.tar")
    with pytest.raises(ExportError, match="one number would mean two things"):
        t2t.pack(more, f"{tmp_path}/out/val-{{}}.tar", exists="replace")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
    unrelated = t2t.pack(more, f"{tmp_path}/out/pets-{{}}.tar")  # a different data set, because of its name
    assert [t2t.open(each).classes for each in (*unrelated, *fewer)] == [("ant", "dog"), ("ant", "bee", "cat")]
    assert t2t.open(f"{tmp_path}/out/").classes == ()
    t2t.pack(tmp_path / "b", f"{tmp_path}/other/val-{{}}.tar")
    replaced = t2t.pack(more, f"{tmp_path}/other/val-{{}}.tar", exists="replace")
    assert t2t.open(f"{tmp_path}/other/").classes == replaced.classes == ("ant", "dog")


def test_shards_that_lose_their_labels_lose_their_class_names(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee")
    t2t.pack(root, f"{tmp_path}/a-{{}}.tar")
    t2t.pack(root, f"{tmp_path}/b-{{}}.tar")
    t2t.pack(root, f"{tmp_path}/a-{{}}.tar", exists="replace", labels=None)
    assert t2t.open(f"{tmp_path}/a-0.tar").classes == ()
    assert t2t.open(f"{tmp_path}/b-0.tar").classes == ("ant", "bee")
    t2t.pack(root, f"{tmp_path}/b-{{}}.tar", exists="replace", labels=None)
    assert not (tmp_path / "classes.json").exists()


def test_labels_beyond_the_class_names_are_errors(tmp_path):
    t2t.pack(classes(tmp_path / "in", "ant", "bee"), f"{tmp_path}/x.tar")
    shard = made.tar([("a", {"cls": b"1"}), ("b", {"cls": b"2"})])
    (tmp_path / "x.tar").write_bytes(shard)
    done = run("inspect", tmp_path / "x.tar")
    assert (done.exit_code, "names for 2 classes" in done.stdout) == (6, True)


# Messages


def test_the_command_line_reports_its_decisions(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee")
    fill(root, ".DS_Store", data=b"x")
    dry = run("pack", root, tmp_path / "x-{}.tar", "--dry-run")
    size = sum(path.stat().st_size for path in root.rglob("*.jpg"))
    assert dry.stdout == f"would pack 6 records ({size / 1000:.1f} kB) into {tmp_path}/x-{{}}.tar\n"
    for told in ("0  ant  (3 records)", "1  bee  (3 records)", "seed 0", "--no-shuffle", "(.DS_Store)"):
        assert told in dry.stderr
    assert not (tmp_path / "x-0.tar").exists()
    document = json.loads(run("pack", root, tmp_path / "x-{}.tar", "--dry-run", "--json").stdout)
    assert (document["records"], document["classes"], document["records_by_class"], document["seed"]) == (
        6, {"ant": 0, "bee": 1}, {"ant": 3, "bee": 3}, 0,
    )  # fmt: skip
    assert document["left_out"] == {Reason.HIDDEN: {"count": 1, "first": [".DS_Store"]}}
    done = json.loads(run("pack", root, tmp_path / "x-{}.tar", "--json", "--no-shuffle").stdout)
    assert done["shards"] == [f"{tmp_path}/x-0.tar"]
    assert {name: done[name] for name in ("records", "bytes", "files", "left_out", "classes", "seed")} == {
        **{name: document[name] for name in ("records", "bytes", "files", "left_out", "classes")}, "seed": None,
    }  # fmt: skip
    assert run("pack", root, tmp_path / "y.tar", "--shuffle", "1", "--no-shuffle").exit_code == 2
    assert run("pack", root, tmp_path / "y.tar", "--labels", "perhaps").exit_code == 2


def test_put_leaves_out_what_pack_leaves_out(tmp_path):
    fill(tmp_path, "secret.tar", data=b"secret")
    root = fill(tmp_path / "in", "a.tar", ".DS_Store", ".git/x", "deep/b.tar", "README.md", data=b"x")
    (root / "link.tar").symlink_to(tmp_path / "secret.tar")
    (root / "inner.tar").symlink_to("a.tar")
    done = run("put", root, "memory://put-left")
    assert [url.rpartition("put-left/")[2] for url in done.stdout.split()] == [
        "README.md", "a.tar", "deep/b.tar", "inner.tar",
    ]  # fmt: skip
    assert "links out of the folder: 1 (link.tar)" in done.stderr
    assert "memory://put-left/link.tar" in run("put", root, "memory://put-left", "--follow-links").stdout


# Memory


def test_ten_thousand_files_need_little_memory(tmp_path):
    """Only names are kept in memory, about 50 bytes each, and no content."""
    data = bytes(2_000)
    for name in ("ant", "bee", "cat", "dog"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for number in range(2_500):
            (tmp_path / "in" / name / f"picture-{number:05d}.jpg").write_bytes(data)
    t2t.pack(classes(tmp_path / "warm", "a", "b"), f"{tmp_path}/warm.tar")
    tracemalloc.start()
    urls = t2t.pack(tmp_path / "in", f"{tmp_path}/out/train-{{:03d}}.tar", shard_size="5MB")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert urls.records == 10_000
    assert peak < 12_000_000  # for 20 MB of files; most of it is a shard that is read back
    assert np.unique([Counter(labels(url).values())[0] // 100 for url in urls]).size <= 3


# Output folders and progress


@pytest.mark.parametrize("template", ["train-{:03d}.tar", "shards/train-{:03d}.tar"])
def test_shards_inside_the_folder_are_not_packed_again(tmp_path, monkeypatch, template):
    fill(tmp_path, *(f"{number}.jpg" for number in range(5)))
    monkeypatch.chdir(tmp_path)
    first = read(t2t.pack(".", template))
    urls = t2t.pack(tmp_path, template, exists="replace")
    assert read(urls) == first
    assert dict(urls.left_out.counts) == {Reason.OWN: 1}
    other = t2t.pack(tmp_path, f"{tmp_path}/elsewhere/train-{{:03d}}.tar")  # now the shards are ordinary files
    assert other.files == 6


def test_progress_is_shown(tmp_path, capsys):
    root = classes(tmp_path / "in", "ant", "bee")
    t2t.pack(root, f"{tmp_path}/x.tar", progress=True)
    told = capsys.readouterr().err
    assert "looking at files: 6 files" in told
    assert "pack: 6 records" in told
    t2t.pack(root, f"{tmp_path}/y.tar")
    assert capsys.readouterr().err == ""


# Labels of files next to those of folders


def test_a_stray_label_changes_no_class(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee")
    plain = labels(t2t.pack(root, f"{tmp_path}/x.tar"))
    fill(root, "Main.class", "ant/notes.label", "bee/other.cls", data=b"7")
    urls = t2t.pack(root, f"{tmp_path}/y.tar")
    assert labels(urls) == plain
    assert dict(urls.left_out.counts) == {Reason.OUTSIDE: 1, Reason.UNACCOMPANIED: 2}
    fill(root, "bee/1.cls", data=b"7")
    with pytest.raises(UnclearLayout, match=r"bee: '1\.cls' is a label, and so is the folder"):
        t2t.pack(root, f"{tmp_path}/z.tar")


def test_a_split_without_packed_files_is_reported(tmp_path):
    root = classes(tmp_path / "in" / "train", "ant", "bee").parent
    fill(root, "val/ant/0.jpg", "val/bee/0.jpg", data=b"")
    done = run("pack", root, tmp_path / "{split}.tar")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path}/train.tar\n")
    assert "warning: the split 'val' has no records" in done.stderr


@pytest.mark.parametrize(("source", "url"), [(None, "x.tar"), (5, "x.tar"), ("in", 5), ("in", None), ("in", ["x"])])
def test_arguments_of_other_types(tmp_path, monkeypatch, source, url):
    classes(tmp_path / "in", "ant", "bee")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="not"):
        t2t.pack(source, url)


@pytest.mark.parametrize(
    ("template", "right"),
    [
        ("train-%06d.tar", "'train-{:06d}.tar'"),
        ("train-%d.tar", "'train-{}.tar'"),
        ("train-{000..146}.tar", "'train-{:03d}.tar'"),
        ("train-{0-9}.tar", "'train-{}.tar'"),
        ("train-{.tar", "'train-{:05d}"),
        ("shards", "'shards/train-{:05d}.tar'"),
        ("here", "'here/train-{:05d}.tar'"),
        ("here/", "'here/train-{:05d}.tar'"),
    ],
)
def test_invalid_templates_are_refused_with_a_suggestion(tmp_path, monkeypatch, template, right):
    classes(tmp_path / "in", "ant", "bee")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TemplateError) as caught:
        t2t.pack("in", template)
    assert right in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "in"]


def test_one_name_for_several_shards_is_refused_before_anything_is_written(tmp_path):
    root = classes(tmp_path / "in", "ant", "bee")
    for options in ({"shard_records": 5}, {"shard_size": 5_000}):
        with pytest.raises(ExportError, match="where a number goes"):
            t2t.pack(root, f"{tmp_path}/out/x.tar", **options)
    assert not (tmp_path / "out").exists()
