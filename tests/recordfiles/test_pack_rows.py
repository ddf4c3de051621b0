"""t2t.pack of CSV files and of rows: files stay below their root, values round-trip through webdataset's decoder."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas
import pytest
import tensorflow as tf
import webdataset
from PIL import Image
from webdataset import autodecode, writer

import ais_tar2tf as t2t
from ais_tar2tf.base.csv_files import RowReader, csv_rows
from ais_tar2tf.errors import MissingDependency, SchemaError, ShardNotFound, UnclearLayout, UnsafeName
from tests.support import shards as made


def read(urls):
    return [
        {name: value for name, value in record.items() if name != "__shard__"} for record in t2t.iter_records(urls)
    ]


def table(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}.png").write_bytes(b"%d" % number)


# CSV files


@pytest.mark.parametrize(
    "name",
    ["/etc/hostname", "../secret.png", "images/../../secret.png", "link.png", "folder/secret.png"],
)
def test_a_csv_file_publishes_nothing_outside_of_its_folder(tmp_path, name):
    images(tmp_path / "in" / "images", 1)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "in" / "link.png").symlink_to("../secret.png")
    (tmp_path / "in" / "folder").symlink_to("..")
    path = table(tmp_path / "in" / "list.csv", "filename", "images/0.png", name)
    with pytest.raises(UnsafeName, match=r"list\.csv, row 2|leads out of"):
        t2t.pack(path, f"{tmp_path}/out/x.tar")
    assert not (tmp_path / "out").exists()


def test_files_outside_of_the_folder_can_be_allowed(tmp_path):
    images(tmp_path / "images", 2)
    path = table(tmp_path / "in" / "list.csv", "filename", "0.png", f"{tmp_path}/images/1.png", "./link.png")
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "images" / "0.png")
    urls = t2t.pack(path, f"{tmp_path}/x.tar", root=tmp_path / "images")
    assert [(record["__key__"], record["png"]) for record in read(urls)] == [("0", b"0"), ("1", b"1"), ("link", b"0")]
    (tmp_path / "images" / "link.png").unlink()
    (tmp_path / "images" / "link.png").symlink_to(path)
    with pytest.raises(UnsafeName, match="follow_links=True"):
        t2t.pack(path, f"{tmp_path}/y.tar", root=tmp_path / "images")
    followed = t2t.pack(path, f"{tmp_path}/y.tar", root=tmp_path / "images", follow_links=True)
    assert read(followed)[2]["png"] == path.read_bytes()


def test_words_as_labels_get_numbers_and_numbers_are_kept(tmp_path):
    images(tmp_path / "in", 4)
    path = table(tmp_path / "in" / "words.csv", "filename,label", "0.png,cat", "1.png,ant", "2.png,cat", "3.png,10")
    urls = t2t.pack(path, f"{tmp_path}/words.tar")
    assert urls.classes == t2t.open(f"{tmp_path}/words.tar").classes == ("10", "ant", "cat")
    assert [record["cls"] for record in read(urls)] == [b"2", b"1", b"2", b"0"]
    assert urls.by_class == {"10": 1, "ant": 1, "cat": 2}
    path = table(tmp_path / "in" / "numbers.csv", "filename,label", "0.png,7", "1.png,-0.5", "2.png,1e3")
    urls = t2t.pack(path, f"{tmp_path}/numbers.tar")
    assert urls.classes == ()
    assert [record["cls"] for record in read(urls)] == [b"7", b"-0.5", b"1e3"]


@pytest.mark.parametrize(
    ("lines", "error", "told"),
    [
        (["filename,label", "0.png,"], SchemaError, r"row 1: there is no label"),
        (["filename,label", "0.png,a", "0.png,b"], SchemaError, r"row 2: the key '0' came before"),
        (["filename,label", "0.png"], SchemaError, r"row 1: there are more or fewer values"),
        (["filename", "none.png"], ShardNotFound, r"none\.png: row 1 of .*list\.csv names it"),
        (["filename"], ShardNotFound, "there is nothing to pack"),
        (["filename,label,cls", "0.png,a,1"], SchemaError, "'label' and 'cls' would both be the field 'cls'"),
        (["filename,A b,a-b,a_b", "0.png,1,2,3"], SchemaError, "'a b' and 'a_b' would both be the field 'a_b'"),
        (["filename,png", "0.png,1"], SchemaError, "row 1: the file and a column would both be the field 'png'"),
        (["filename", "cat.0.png", "cat.1.png"], UnclearLayout, r"row 1: .*--grouping last-dot"),
    ],
)
def test_rows_that_cannot_be_packed_are_named_before_anything_is_written(tmp_path, lines, error, told):
    images(tmp_path / "in", 1)
    for number in range(2):
        (tmp_path / "in" / f"cat.{number}.png").write_bytes(b"x")
    with pytest.raises(error, match=told):
        t2t.pack(table(tmp_path / "in" / "list.csv", *lines), f"{tmp_path}/out/x.tar")
    assert not (tmp_path / "out").exists()


def test_a_column_without_a_name_as_pandas_writes_it(tmp_path):
    images(tmp_path / "in", 2)
    frame = pandas.DataFrame({"filename": ["0.png", "1.png"], "label": ["b", "a"]})
    frame.to_csv(tmp_path / "in" / "list.csv")
    found = read(t2t.pack(tmp_path / "in" / "list.csv", f"{tmp_path}/x.tar"))
    assert found == [
        {"__key__": "0", "png": b"0", "cls": b"1", "column_0": b"0"},
        {"__key__": "1", "png": b"1", "cls": b"0", "column_0": b"1"},
    ]


def test_dots_in_the_names_of_a_csv_file(tmp_path):
    images(tmp_path / "in", 0)
    for number in range(2):
        (tmp_path / "in" / f"cat.{number}.png").write_bytes(b"%d" % number)
    path = table(tmp_path / "in" / "list.csv", "filename", "cat.0.png", "cat.1.png")
    urls = t2t.pack(path, f"{tmp_path}/x.tar", grouping="last-dot")
    assert read(urls) == [{"__key__": "cat_0", "png": b"0"}, {"__key__": "cat_1", "png": b"1"}]


def test_a_csv_file_can_be_shuffled(tmp_path):
    images(tmp_path / "in", 60)
    lines = [f'{number}.png,{number // 30},"a\nb {number}"' for number in range(60)]
    path = table(tmp_path / "in" / "list.csv", "filename,label,note", *lines)
    in_order = read(t2t.pack(path, f"{tmp_path}/x.tar"))
    assert [record["cls"] for record in in_order] == [b"0"] * 30 + [b"1"] * 30
    shuffled = read(t2t.pack(path, f"{tmp_path}/y.tar", shuffle=5))
    assert shuffled != in_order
    assert sorted(map(str, shuffled)) == sorted(map(str, in_order))
    assert 3 < Counter(record["cls"] for record in shuffled[:20])[b"0"] < 17


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_rows_are_read_again_by_their_offsets(tmp_path, seed, ending):
    """Compare with the csv module, which reads the whole file."""
    draw = random.Random(seed)
    cells = ["a", "", "ü€😀", 'say "hi"', f"two{ending}lines", "a,b", " ", "\ufeff"]
    rows = [[draw.choice(cells) for _ in range(3)] + ["end"] for _ in range(draw.randint(1, 40))]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ending).writerows(rows)
    path = tmp_path / "list.csv"
    mark = draw.choice([b"", b"\xef\xbb\xbf"])
    path.write_bytes(mark + text.getvalue().encode())
    with path.open(encoding="utf-8-sig", newline="") as file:
        expected = list(csv.reader(file, strict=True))
    placed = list(csv_rows(path))
    assert [row.cells for row in placed] == expected
    assert [row.cells for row in csv_rows(path)] == expected
    draw.shuffle(placed)
    with RowReader(path) as reader:
        for row in placed:
            assert reader.cells_at(row.offset) == row.cells


# Rows of the user, compared with webdataset's writer and decoder


PIXELS = np.add.outer(np.add.outer(np.arange(0, 60, 10), np.arange(0, 80, 10)), [0, 5, 10]).astype(np.uint8)
PICTURE = Image.fromarray(PIXELS)
VALUES = {
    "txt": "wört",
    "text": "x",
    "transcript": "y",
    "html": "<p>",
    "cls": 7,
    "cls2": 8,
    "index": 9,
    "inx": 10,
    "id": 11,
    "json": {"a": [1, 2.5, None, "ü"]},
    "jsn": [1, {"b": True}],
    "npy": np.arange(6, dtype=np.float32).reshape(2, 3),
    "npz": {"x": np.arange(3), "y": np.eye(2)},
    "mp": {"a": [1, 2], "b": "x"},
    "msg": [1, 2],
    "depth.npy": np.ones((2, 2), np.int16),
    "meta.json": {"k": 1},
    "png": PICTURE,
    "mask.png": PIXELS[:, :, 0],
    "ppm": PIXELS,
    "jpg": PICTURE,
    "jpeg": PIXELS,
    "float.png": PIXELS / 255,
    "tif": PICTURE,
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_values_come_back_through_webdataset(tmp_path):
    (url,) = t2t.pack([{"__key__": "a", **VALUES}], f"{tmp_path}/x.tar")
    (sample,) = webdataset.WebDataset(url, shardshuffle=False).decode("pil", "rgb8")
    for name, value in VALUES.items():
        found = sample[name]
        if isinstance(found, Image.Image):
            expected = np.asarray(value)
            expected = (expected * 255).astype(np.uint8) if expected.dtype.kind == "f" else expected
            expected = np.repeat(expected[:, :, None], 3, axis=2) if expected.ndim == 2 else expected
            close = 12 if name in ("jpg", "jpeg") else 0
            assert np.abs(np.asarray(found).astype(int) - expected).max() <= close, name
        elif isinstance(value, np.ndarray):
            assert found.dtype == value.dtype
            assert np.array_equal(found, value)
        elif name == "npz":
            assert found.keys() == value.keys()
            assert all(np.array_equal(found[each], value[each]) for each in value)
        elif name == "html":
            assert found in (value, value.encode())
        else:
            assert found == value, name


@pytest.mark.parametrize("name", ["txt", "cls", "npy", "json", "png", "jpg", "ppm", "mp", "float.png"])
def test_bytes_are_those_of_webdataset_s_writer(tmp_path, name):
    (url,) = t2t.pack([{"__key__": "a", name: VALUES[name]}], f"{tmp_path}/x.tar")
    theirs = writer.encode_based_on_extension1(VALUES[name], name, writer.default_handlers)
    if name == "json":
        assert json.loads(read(url)[0][name]) == json.loads(theirs)
    else:
        assert read(url)[0][name] == theirs


def test_values_come_back_through_our_own_decoding(tmp_path):
    (url,) = t2t.pack([{"__key__": "a", **VALUES}], f"{tmp_path}/x.tar")
    (record,) = t2t.open(url).select("npy", "cls", "json", "png", "npz", "mp", "txt").records(decode=True)
    assert (record["cls"], record["json"], record["mp"], record["txt"]) == (7, VALUES["json"], VALUES["mp"], "wört")
    assert np.array_equal(record["npy"], VALUES["npy"])
    assert np.array_equal(record["png"], PIXELS)
    assert np.array_equal(record["npz"]["y"], np.eye(2))


def test_further_values_that_can_be_packed(tmp_path):
    row = {
        "jpg": b"as it is", "x": 3, "y": 2.5, "flag": True, "words": "x", "boxes": [[1, 2], [3, 4]],
        "one.cls": np.int64(5), "tensor.npy": tf.range(3), "scalar.cls": tf.constant(4),
        "string.txt": tf.constant("s"),
        "list.npy": [1, 2], "said.json": '{"a": 1}', "array.json": {"a": np.arange(2), "b": np.float32(0.5)},
        "packed.json.gz": {"a": 1}, "as.gz": b"bytes stay",
    }  # fmt: skip
    (record,) = read(t2t.pack([row], f"{tmp_path}/x.tar"))
    assert (record["jpg"], record["as.gz"]) == (b"as it is", b"bytes stay")
    assert [record[name] for name in ("x", "y", "flag", "words", "one.cls", "scalar.cls", "string.txt")] == [
        b"3", b"2.5", b"1", b"x", b"5", b"4", b"s",
    ]  # fmt: skip
    assert json.loads(record["boxes"]) == [[1, 2], [3, 4]]
    assert json.loads(record["array.json"]) == {"a": [0, 1], "b": 0.5}
    assert json.loads(gzip.decompress(record["packed.json.gz"])) == {"a": 1}
    for name, expected in (("tensor.npy", [0, 1, 2]), ("list.npy", [1, 2])):
        assert autodecode.npy_loads(record[name]).tolist() == expected


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("pyd", {"a": 1}, r"dict has no form as pyd; give another extension"),
        ("pickle", [1], "pickles run code"),
        ("pth", np.arange(2), "pickles run code"),
        ("npy", np.array([object()]), "array of numbers: Python's objects would have to be pickled"),
        ("npy", {"a": 1}, "dict has no form as npy; give an array"),
        ("npz", np.arange(2), r"array of int64 \(2,\) has no form as npz; give a dict of arrays"),
        ("jpg", "photos/1.jpg", r"str has no form as jpg; give a PIL image.*read_bytes"),
        ("jpg", np.zeros((2, 2, 5), np.uint8), r"array of uint8 \(2, 2, 5\) has no form as jpg"),
        ("jpg", np.full((2, 2), 7.0), "floats 0 to 1"),
        ("jpg", Image.new("RGBA", (2, 2)), "Image has no such form.*RGBA"),
        ("pgm", PICTURE, r"image\.convert\('L'\)"),
        ("txt", {"a": 1}, "dict has no form as txt; give text"),
        ("txt", None, "NoneType has no form as txt"),
        ("x", object(), "object has no form as x"),
        ("x", np.arange(3), "name the field npy"),
        ("json", object(), "object"),
        ("json", "no json", "give JSON text"),
        ("wav", np.zeros(3), "give the bytes of such a file"),
        ("cls", [1, 2], "list has no form as cls"),
    ],
)
def test_values_that_cannot_be_packed_are_an_error_that_names_all(name, value, told, tmp_path):
    with pytest.raises(SchemaError, match=rf"record 'k7', field '{name}': .*{told}"):
        t2t.pack([{"__key__": "k7", name: value}], f"{tmp_path}/x.tar")
    assert not (tmp_path / "x.tar").exists()


def test_pillow_is_needed_for_images_only(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingDependency, match=r"ais_tar2tf\[card\]"):
        t2t.pack([{"png": PIXELS}], f"{tmp_path}/x.tar")
    assert len(read(t2t.pack([{"npy": PIXELS, "png": b"encoded"}], f"{tmp_path}/x.tar"))) == 1


def test_dots_in_keys_of_rows(tmp_path):
    rows = [{"__key__": f"v1.{number}", "txt": "x"} for number in range(3)]
    with pytest.raises(SchemaError, match="--grouping last-dot"):
        t2t.pack(rows, f"{tmp_path}/x.tar")
    assert [record["__key__"] for record in read(t2t.pack(rows, f"{tmp_path}/x.tar", grouping="last-dot"))] == [
        "v1_0", "v1_1", "v1_2",
    ]  # fmt: skip


def test_a_source_is_packed_again(tmp_path):
    (tmp_path / "a.tar").write_bytes(made.labelled("n", 5))
    assert read(t2t.pack(t2t.open(f"{tmp_path}/a.tar"), f"{tmp_path}/b.tar")) == read(f"{tmp_path}/a.tar")
