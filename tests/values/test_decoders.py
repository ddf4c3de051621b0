"""Decoding gives the same values in Python and in graphs, runs no code, and its errors name record and field."""

from __future__ import annotations

import io
import json
import pickle
import wave
import zipfile

import msgpack
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import ais_tar2tf as t2t
from ais_tar2tf import errors
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.values.decoders import Decoder
from ais_tar2tf.values.schema import Field, Schema, infer
from tests.support import shards as made
from tests.support.shards import npy

h5py = pytest.importorskip("h5py")

COUNT = 6
WORDS = ["cat", "dog", "owl"]


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def wav(samples):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.asarray(samples, "<i2").tobytes())
    return buffer.getvalue()


def hdf5(fill):
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        fill(file)
    return buffer.getvalue()


def plain_hdf5(file):
    file["a"] = np.arange(3)
    file["group/b"] = np.ones((2, 2), "f4")
    file.attrs["category"] = "TOR"


def fields(number):
    return {
        "jpg": made.image(number),
        "seg.png": made.image(number, "PNG"),
        "cls": b"%d\n" % number,
        "txt": f"é {number}".encode(),
        "json": json.dumps({"id": number}).encode(),
        "mp": msgpack.packb({"id": number, 3: b"\xff"}),
        "npy": npy(np.full((number, 3), number, "f4")),
        "npz": npz(a=np.arange(number)),
        "wav": wav([0, 16384, -16384]),
        "h5": hdf5(plain_hdf5),
        "word": WORDS[number % 3].encode(),
        "bin": b"\x00\xff%d" % number,
    }


@pytest.fixture(scope="module")
def decoded_source():
    MemoryStore("decoders").put("a.tar", made.tar((f"n/{number}", fields(number)) for number in range(COUNT)))
    return t2t.open("memory://decoders/a.tar")


def test_decode_true_decodes_by_names_and_a_sample(decoded_source):
    found = list(decoded_source.records(decode=True))
    assert len(found) == COUNT
    for number, record in enumerate(found):
        accurate = tf.io.decode_jpeg(made.image(number), dct_method="INTEGER_ACCURATE")
        np.testing.assert_array_equal(record["jpg"], accurate)
        np.testing.assert_array_equal(record["seg.png"], tf.io.decode_png(made.image(number, "PNG")))
        assert record["cls"] == number
        assert record["txt"] == f"é {number}"
        assert record["json"] == {"id": number}
        assert record["mp"] == {"id": number, 3: b"\xff"}
        np.testing.assert_array_equal(record["npy"], np.full((number, 3), number, "f4"))
        np.testing.assert_array_equal(record["npz"]["a"], np.arange(number))
        np.testing.assert_array_equal(record["wav"], [[0], [0.5], [-0.5]])
        assert record["h5"]["a"].tolist() == [0, 1, 2]
        assert record["h5"]["group/b"].tolist() == [[1, 1], [1, 1]]
        assert record["h5"]["@category"] == "TOR"
        assert record["word"] == WORDS[number % 3].encode()  # the extension is unknown
        assert record["bin"] == b"\x00\xff%d" % number
    assert decoded_source.stats.records_read == decoded_source.stats.records_emitted


def test_a_dataset_gives_the_same(decoded_source):
    plain = list(decoded_source.records(decode=True))
    dataset = decoded_source.dataset(decode=True)
    spec = dataset.element_spec
    assert spec["jpg"].dtype == tf.uint8
    assert spec["jpg"].shape.as_list() == [None, None, 3]  # later sizes may differ from those of the sample
    assert (spec["cls"].dtype, spec["npy"].dtype, spec["json"].dtype) == (tf.int64, tf.float32, tf.string)
    for record, element in zip(plain, dataset, strict=True):
        for name in ("seg.png", "cls", "npy", "wav"):
            np.testing.assert_array_equal(element[name].numpy(), record[name])
        assert (
            np.abs(element["jpg"].numpy().astype(int) - record["jpg"]).mean() < 1.5
        )  # TensorFlow's faster transform
        assert element["txt"].numpy().decode() == record["txt"]
        assert json.loads(element["json"].numpy()) == record["json"]  # no tensor type, so the bytes are unchanged


@pytest.mark.parametrize("how", [True, {"jpg": "image", "cls": "int32"}, {"jpg": True, "cls": True}], ids=str)
def test_a_network_for_images_is_built_from_the_element_spec(decoded_source, how):
    """A Conv2D needs to know the number of channels; a training runs."""
    chosen = decoded_source.select("jpg", "cls")
    train = chosen.dataset(lambda record: (record["jpg"] / 255, record["cls"]), decode=how, batch=3, repeat=2)
    assert train.element_spec[0].shape.as_list() == [None, None, None, 3]
    model = tf.keras.Sequential(
        [tf.keras.layers.Conv2D(4, 3), tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(COUNT)]
    )
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(train, verbose=0)
    assert model.layers[0].kernel.shape[2] == 3


def _png(mode):
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 9, 3), 120, np.uint8)).convert(mode).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("later", ["L", "RGBA", "P", "LA"])
def test_images_after_a_sample_of_colours_become_colours(later):
    images = {number: _png("RGB" if number < 70 else later) for number in range(72)}
    MemoryStore("decoders").put("m.tar", made.tar((f"{number:03}", {"png": images[number]}) for number in images))
    with t2t.open("memory://decoders/m.tar") as src:
        plain = [record["png"] for record in src.records(decode=True)]
        in_graph = list(src.dataset(decode=True).as_numpy_iterator())
    assert {image.shape for image in plain} == {(8, 9, 3)}
    for one, other in zip(plain, in_graph, strict=True):
        np.testing.assert_array_equal(one, other["png"])


def test_images_after_a_sample_of_another_kind_are_named():
    rows = ((f"{number:03}", {"png": _png("L" if number < 70 else "RGB")}) for number in range(72))
    MemoryStore("decoders").put("g.tar", made.tar(rows))
    with t2t.open("memory://decoders/g.tar") as src:
        assert src.dataset(decode=True).element_spec["png"].shape.as_list() == [None, None, 1]
        with pytest.raises(errors.MappingError, match="070"):
            list(src.dataset(decode=True))
        any_channels = {"png": Field("png", "uint8", (None, None, None), "image")}
        assert {element["png"].shape[2] for element in src.dataset(decode=any_channels)} == {1, 3}


def _depths(shard, depths):
    images = [io.BytesIO() for _ in depths]
    for image, depth in zip(images, depths, strict=True):
        Image.fromarray(np.full((8, 9), 100, depth)).save(image, "PNG")
    rows = ((f"{number:03}", {"png": image.getvalue()}) for number, image in enumerate(images))
    MemoryStore("decoders").put(shard, made.tar(rows))
    return t2t.open(f"memory://decoders/{shard}")


@pytest.mark.parametrize("read", ["records", "dataset"])
def test_images_of_two_depths_are_reported_once_with_advice(caplog, read):
    with _depths(f"{read}.tar", ["uint8", "uint8", "uint16", "uint16"]) as src:
        for _ in range(2):
            assert next(iter(getattr(src, read)(decode=True)))["png"].dtype == "uint16"
        (text,) = caplog.messages
        assert f"{read}.tar, record '002': field 'png' has 16 bits" in text
        advised = eval(text.rpartition("say decode=")[2], {"src": src, "t2t": t2t})  # noqa: S307  # our own text
        image = np.asarray(next(iter(getattr(src, read)(decode=advised)))["png"])
    assert (image.dtype, image.max()) == ("uint8", 100)


@pytest.mark.parametrize("depth", ["uint8", "uint16"])
def test_images_of_one_depth_cause_no_warning(caplog, depth):
    with _depths(f"{depth}.tar", [depth, depth]) as src:
        assert next(iter(src.records(decode=True)))["png"].dtype == depth
    assert not caplog.messages


def test_a_map_gets_tensors(decoded_source):
    def pair(record):
        return tf.image.resize(record["jpg"], (4, 4)), record["cls"]

    dataset = decoded_source.select("jpg", "cls").dataset(pair, decode=True, batch=3)
    assert [labels.numpy().tolist() for _, labels in dataset] == [[0, 1, 2], [3, 4, 5]]


def test_a_python_map_gets_values(decoded_source):
    dataset = decoded_source.dataset(
        lambda record: record["json"]["id"] * 2, decode={"json": "json"}, output_types=tf.int64, output_shapes=()
    )
    assert [int(each) for each in dataset] == [2 * number for number in range(COUNT)]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"cls": "number"}, list(range(COUNT))),
        ({"cls": tf.float32}, [float(number) for number in range(COUNT)]),
        ({"cls": "int32"}, list(range(COUNT))),
        ({"cls": [str(number) for number in range(COUNT, -1, -1)]}, list(range(COUNT, 0, -1))),
        ({"cls": True}, list(range(COUNT))),
        ({"cls": Field("cls", "int64", (), "text")}, list(range(COUNT))),
        ({"word": WORDS}, [0, 1, 2, 0, 1, 2]),
        ({"npy": "npy"}, None),
        ({"jpg": "image"}, None),
    ],
)
def test_decode_obeys_a_dict_of_options(decoded_source, how, wanted):
    (name,) = how
    plain = [record[name] for record in decoded_source.records(decode=how)]
    in_graph = [element[name].numpy() for element in decoded_source.dataset(decode=how)]
    if wanted is not None:
        assert plain == wanted
        assert in_graph == wanted
    for one, other in zip(plain, in_graph, strict=True):
        exact = (
            name != "jpg"
        )  # plain JPEGs are Pillow's: tests/values/test_pillow.py says how near TensorFlow's they are
        np.testing.assert_array_equal(one if exact else np.shape(one), other if exact else other.shape)


def test_decode_by_bytes_text_json_and_function(decoded_source):
    first = next(
        decoded_source.records(decode={"cls": "text", "txt": "bytes", "jpg": len, "json": None, "word": "text"})
    )
    assert (first["cls"], first["txt"]) == ("0\n", "é 0".encode())
    assert first["jpg"] == len(made.image(0))
    assert first["json"] == b'{"id": 0}'
    assert first["word"] == "cat"


def test_a_schema_decodes_all_fields(decoded_source):
    rows = [{"word": fields(number)["word"], "cls": fields(number)["cls"]} for number in range(COUNT)]
    schema = Schema((*infer(rows), Field("jpg", "uint8", (30, 40, 3), "image", format="jpeg"))).with_field(
        Field("word", "string", (), "text", vocabulary=tuple(WORDS))
    )
    narrow = decoded_source.select("word", "cls", "jpg")
    plain = list(narrow.records(decode=schema))
    assert [record["word"] for record in plain] == [0, 1, 2, 0, 1, 2]
    dataset = narrow.dataset(decode=schema)
    assert dataset.element_spec["jpg"].shape == (30, 40, 3)
    assert [int(element["word"]) for element in dataset] == [0, 1, 2, 0, 1, 2]


def test_the_vocabulary_that_inference_finds_numbers_the_labels():
    words = [b"owl", b"cat", b"dog", b"cat"]
    MemoryStore("words").put("a.tar", made.tar((f"{at}", {"cls": word}) for at, word in enumerate(words)))
    source = t2t.open("memory://words/a.tar")
    schema = infer(source.records())
    assert schema["cls"].vocabulary == ("cat", "dog", "owl")
    assert [int(each["cls"]) for each in source.dataset(decode=schema)] == [2, 0, 1, 0]
    assert [record["cls"] for record in source.records(decode=True)] == ["owl", "cat", "dog", "cat"]


@pytest.mark.parametrize("how", [Schema((Field("cls", "int64"),)), {"cls": Field("cls", "int64")}])
def test_a_label_that_is_not_the_number_of_its_schema_is_an_error(how):
    records = [(f"{at}", {"cls": b"cat" if at == 5 else b"%d" % at}) for at in range(8)]
    MemoryStore("numbers").put("a.tar", made.tar(records))
    source, patient = (t2t.open("memory://numbers/a.tar", on_error=each) for each in ("raise", "skip-record"))
    with pytest.raises(errors.MappingError, match=r"record '5': field 'cls' did not decode as number: .*'cat' is"):
        list(source.records(decode=how))
    assert (source.stats.records_read, source.stats.records_emitted, source.stats.skipped) == (5, 5, {})
    assert [record["cls"] for record in patient.records(decode=how)] == [0, 1, 2, 3, 4, 6, 7]
    with pytest.raises(errors.MappingError, match="record '5'"):
        list(source.dataset(decode=how))
    assert [int(element["cls"]) for element in patient.dataset(decode=how)] == [0, 1, 2, 3, 4, 6, 7]
    assert (patient.stats.records_read, patient.stats.records_emitted) == (16, 14)
    assert patient.stats.skipped == {"MappingError": 2}


@pytest.mark.parametrize(("kind", "name"), [("TIFF", "TIFF"), ("JPEG2000", "JPEG 2000"), ("PPM", "PPM")])
def test_an_image_that_tensorflow_does_not_decode_is_named(kind, name):
    MemoryStore("foreign").put("a.tar", made.tar([("0", {"img": made.image(1, kind), "cls": b"1"})]))
    source = t2t.open("memory://foreign/a.tar")
    told = f"record '0': .*; field 'img' is a {name} image: convert it to PNG or JPEG, or decode it by a mapping"
    for read in (
        lambda: source.records(decode={"img": "image"}),
        lambda: source.dataset(decode={"img": "image"}),
        lambda: source.dataset(lambda record: tf.io.decode_image(record["img"])),
    ):
        with pytest.raises(errors.MappingError, match=told):
            list(read())


BAD = [
    ("cls", "number", b"cat", "'cat' is not a number; if these are words, name all of them"),
    ("cls", "int32", b"1.5", "is not a number"),
    ("cls", ["a"], b"b", "label 'b' is not in its vocabulary"),
    ("jpg", "image", b"no image", "Unknown image file format"),
    ("npy", "npy", b"\x93NUMPY", "no .npy file"),
    ("npy", "npy", npy(np.zeros(100))[:-1], "is cut"),
]


@pytest.mark.parametrize(("name", "how", "data", "text"), BAD)
def test_errors_name_record_and_field(name, how, data, text):
    good = {"cls": b"1", "jpg": made.image(1), "npy": npy(np.zeros(2)), "a": b"x"}
    good["cls"] = b"a" if isinstance(how, list) else b"1"
    records = [("good", good), ("bad/1", {**good, name: data}), ("later", good)]
    MemoryStore("bad").put("a.tar", made.tar(records))
    with pytest.raises(errors.MappingError, match=text) as caught:
        list(t2t.open("memory://bad/a.tar").records(decode={name: how}))
    assert f"memory://bad/a.tar, record 'bad/1': field {name!r} did not decode as" in str(caught.value)
    patient = t2t.open("memory://bad/a.tar", on_error="skip-record")
    assert [record["__key__"] for record in patient.records(decode={name: how})] == ["good", "later"]
    assert patient.stats.skipped == {"MappingError": 1}
    if name != "npy":
        source = t2t.open("memory://bad/a.tar").select(name, "a")
        with pytest.raises(Exception, match="record 'bad/1'"):
            list(source.dataset(decode={name: how}))


@pytest.mark.parametrize(
    ("decode", "text"),
    [
        ({"nothing": "image"}, "names field 'nothing'"),
        ({"jpg": "pickle"}, "is decoded as one of"),
        ({"json": "json"}, "no tensor form"),
        ({"cls": []}, "needs its vocabulary"),
        ({"cls": "complex64"}, "text is no complex64"),
        ({"cls": 3}, "'cls'"),
    ],
)
def test_options_that_a_dataset_cannot_decode_are_refused(decoded_source, decode, text):
    with pytest.raises(errors.SchemaError, match=text):
        decoded_source.dataset(decode=decode)


def test_no_code_in_the_data_is_run():
    bomb = npy(np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="Python objects, which would be unpickled"):
        Decoder("npy")(bomb)
    with pytest.raises(ValueError, match="Python objects, which would be unpickled"):
        Decoder("npz")(npz(a=np.array([{}], dtype=object)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(5_000_000) * 2)
    grown = buffer.getvalue()
    with pytest.raises(ValueError):  # noqa: PT011  # whichever of the two it finds first
        Decoder("npz")(grown)
    with pytest.raises(Exception, match=r"unpack|extra|Unpack"):
        Decoder("msgpack")(pickle.dumps({"a": 1}))


def outside(kind):
    def fill(file):
        if kind == "external link":
            file["x"] = h5py.ExternalLink("/etc/passwd", "/a")
        elif kind == "soft link":
            file["x"] = h5py.SoftLink("/a")
        elif kind == "external data":
            file.create_dataset("x", (4,), "u1", external=[("/etc/passwd", 0, 4)])
        else:
            layout = h5py.VirtualLayout(shape=(4,), dtype="u1")
            layout[:] = h5py.VirtualSource("/etc/passwd", "a", shape=(4,))
            file.create_virtual_dataset("x", layout)

    return fill


@pytest.mark.parametrize("kind", ["external link", "soft link", "external data", "virtual data"])
def test_hdf5_does_not_leave_its_file(kind):
    with pytest.raises(ValueError, match=r"link|another file"):
        Decoder("hdf5")(hdf5(outside(kind)))


def test_errors_of_classic_netcdf_and_flac_give_advice():
    with pytest.raises(ValueError, match="nccopy"):
        Decoder("netcdf")(b"CDF\x01" + bytes(100))
    with pytest.raises(ValueError, match="WAV, not FLAC"):
        Decoder("audio")(b"fLaC" + bytes(100))


def test_a_schema_of_a_sample_states_that(decoded_source):
    said = str(decoded_source.schema)
    assert said.startswith("12 fields, from a sample: the first ")
    assert "uint8 (30, 40, 3)" in said
    assert decoded_source.select("cls").schema.names == ["cls"]


def test_the_sample_does_not_depend_on_blocks(tmp_path):
    """The sample does not depend on the size of the first blocks, which differ between files and servers."""
    (tmp_path / "b").mkdir()
    shard = made.labelled("n", 100, lambda number: {"bin": bytes(10_000), "cls": b"%d" % number})
    (tmp_path / "b" / "a.tar").write_bytes(shard)
    with t2t.serve(tmp_path) as server:
        sources = [t2t.open(f"{tmp_path}/b/a.tar"), t2t.open("ais://b/a.tar", endpoint=server.url)]
        assert [source.schema.records for source in sources] == [64, 64]
        assert str(sources[0].schema) == str(sources[1].schema)


def test_a_bad_record_in_the_sample_is_an_error_or_skipped():
    MemoryStore("html").put(
        "a.tar", made.tar([("a", {"jpg": b"<html>"}), *((key, {"jpg": made.image(1)}) for key in "bcd")])
    )
    with pytest.raises(errors.SchemaError, match="record 'a': field 'jpg' is string"):
        _ = t2t.open("memory://html/a.tar").schema
    assert t2t.open("memory://html/a.tar", on_error="skip-record").schema["jpg"].encoding == "image"
