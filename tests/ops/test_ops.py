"""Ops give equal results on plain records and in graphs, name faulty records, and survive JSON."""

from __future__ import annotations

import io
import json
import pickle

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ais_tar2tf import AisDataset, errors, ops
from ais_tar2tf.ops import (
    Convert,
    Decode,
    Func,
    Pipeline,
    Rename,
    Resize,
    Rotate,
    Select,
    SelectDict,
    SelectJSON,
    SelectList,
)
from ais_tar2tf.tfdata.mappings.mapping import GraphMapping
from ais_tar2tf.tfdata.mappings.traced_record import KnownFields
from ais_tar2tf.tfdata.mappings.tracing import prepare
from tests.support import shards as made
from tests.support.shards import npy

JSON = json.dumps({"id": 7, "name": "é", "boxes": [[1, 2], [3, 4]], "deep": {"x": [0.5]}}).encode()
RECORD = {
    "__key__": "n/1",
    "__shard__": "s.tar",
    "jpg": made.image(1),
    "png": made.image(2, "PNG"),
    "cls": b" 7\n",
    "txt": "é".encode(),
    "json": JSON,
    "npy": npy(np.arange(6, dtype="f4").reshape(2, 3)),
}


def in_graph(pipeline, record=RECORD):
    """Return the result of an op on a record in a dataset's graph."""
    names = tuple(record)
    fields = KnownFields(tuple(names), selected=True)
    mapping = prepare(tf.autograph.experimental.do_not_convert(pipeline.__call__), fields, record)
    assert isinstance(mapping, GraphMapping)
    dataset = tf.data.Dataset.from_tensors({name: tf.constant(value) for name, value in record.items()})
    (found,) = dataset.map(mapping)
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), found)


def plainly(value):
    """Encode text as bytes, as in a tensor."""
    return value.encode() if isinstance(value, str) else value


def assert_equal(plain, graph):
    plain, graph = tf.nest.flatten(plain), tf.nest.flatten(graph)
    assert len(plain) == len(graph)
    for one, other in zip(plain, graph, strict=True):
        np.testing.assert_array_equal(plainly(one), plainly(other))
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype


NAME, DEEP = SelectJSON("json", "name", "string"), SelectJSON("json", ("deep", "x", 0), "float32")
TO_INT = Convert("cls", "int32")

PIPELINES = {
    "decoded image": Pipeline([Decode("jpg")], ["jpg"]),
    "decoded label": Pipeline([Decode("cls")], ["cls"]),
    "decoded word": Pipeline([Decode("txt", vocabulary=["a", "é"])], ["txt"]),
    "decoded text": Pipeline([Decode("txt")], ["txt"]),
    "decoded array": Pipeline([Decode("npy", dtype="float32")], ["npy"]),
    "floats": Pipeline([Decode("jpg"), Convert("jpg", "float32")], ["jpg"]),
    "back to bytes": Pipeline([Decode("jpg"), Convert("jpg", tf.float32), Convert("jpg", np.uint8)], ["jpg"]),
    "a number": Pipeline([Convert("cls", tf.int32)], ["cls"]),
    "a cast number": Pipeline([Decode("cls"), Convert("cls", "float32")], ["cls"]),
    "resized": Pipeline([Decode("jpg"), Resize("jpg", (11, 7))], ["jpg"]),
    "rotated": Pipeline([Decode("jpg"), Rotate("jpg", 33)], ["jpg"]),
    "rotated floats": Pipeline([Decode("jpg"), Convert("jpg", "float32"), Rotate("jpg", -90)], ["jpg"]),
    "renamed": Pipeline([Rename(image="jpg;png"), Decode("image")], ["image"]),
    "renamed the second": Pipeline([Rename(image="gif;png"), Decode("image")], ["image"]),
    "renamed twice": Pipeline([Rename(a="jpg"), Rename(b="a", c="cls"), Decode("b")], ["b", "c"]),
    "exchanged": Pipeline([Rename(jpg="png", png="jpg"), Decode("jpg")], ["jpg", "png"]),
    "renamed behind": Pipeline([Decode("jpg"), Rename(x="jpg", y="cls")], ["x", "y"]),
    "a function": Pipeline([Decode("jpg"), Func(lambda r: {**r, "jpg": r["jpg"][:5]})], ["jpg"]),
    "names": Pipeline([], ["__key__", "cls", "__shard__"]),
    "JSON": Pipeline([], [SelectJSON("json", "id", "int64"), SelectJSON("json", ["boxes", 1], "int32", (2,))]),
    "JSON text": Pipeline([], [NAME, DEEP]),
    "a list": Pipeline([Decode("cls")], [SelectList(["cls", SelectList(["txt", Select("cls")])])]),
    "a dict": Pipeline([Decode("cls")], [SelectDict({"a": "cls", "b": ["txt"], "c": {"d": "cls"}})]),
    "all": Pipeline(
        [Rename(image="jpg;png"), Decode("image"), Resize("image", (8, 8)), Rotate("image", 180), TO_INT],
        ["image", SelectDict({"label": "cls", "id": SelectJSON("json", "id", "int64")})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_plain_records_and_graphs_give_the_same(name):
    pipeline = PIPELINES[name]
    assert_equal(pipeline(dict(RECORD)), in_graph(pipeline))


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "a function"])
def test_json_and_pickle_both_ways(name):
    pipeline = PIPELINES[name]
    said = json.loads(json.dumps(pipeline.to_json()))
    again = Pipeline.from_json(said)
    assert again.conversions == pipeline.conversions
    assert again.selections == pipeline.selections
    assert_equal(again(dict(RECORD)), pipeline(dict(RECORD)))
    assert pickle.loads(pickle.dumps(pipeline.conversions)) == pipeline.conversions  # noqa: S301  # made here


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Convert("cls", tf.string), "string"),
        (Convert("cls", "string"), "string"),
        (Convert("cls", tf.bfloat16), "bfloat16"),
        (Convert("cls", int), "int64"),
        (Decode("cls", dtype=tf.int32), "int32"),
        (SelectJSON("json", "id", np.float32), "float32"),
        (SelectJSON("json", "id", str), "string"),
    ],
)
def test_types_have_one_name_however_they_are_written(op, said):
    assert op.dtype == said
    assert ops.from_json(json.loads(json.dumps(ops.to_json([op])))) == [op]
    with pytest.raises(errors.SchemaError, match="there is no type 'nothing': say one, as"):
        type(op)(op.field, dtype="nothing", **({"path": "id"} if isinstance(op, SelectJSON) else {}))


NUMBERS = [
    (b"300", "uint8"),
    (b"-1", "uint16"),
    (b"-1", "uint64"),
    (b"40000", "int16"),
    (b"3000000000", "int32"),
    (b"4294967296", "uint32"),
    (b"0.1", "uint8"),
    (b"1_000", "int32"),
    ("٣".encode(), "int32"),
    (b"cat", "uint8"),
]


@pytest.mark.parametrize(("written", "dtype"), NUMBERS)
def test_a_number_beyond_its_type_is_an_error_in_python_and_in_graphs(written, dtype):
    for op in (Decode("cls", "number", dtype=dtype), Convert("cls", dtype)):
        record = {"__key__": "k", "__shard__": "s", "cls": written}
        with pytest.raises(errors.MappingError, match="record 'k'"):
            op(record)
        with pytest.raises(tf.errors.InvalidArgumentError):
            in_graph(Pipeline([op], ["cls"]), record)


@pytest.mark.parametrize(
    ("written", "dtype"),
    [
        (b"-128", "int8"),
        (b"18446744073709551615", "uint64"),
        (b"0.1", "float32"),
        (b"0.1", "float16"),
        (b"nan", "float32"),
    ],
)
def test_a_number_is_as_exact_as_its_type_in_python_and_in_graphs(written, dtype):
    for op in (Decode("cls", "number", dtype=dtype), Convert("cls", dtype)):
        record = {"__key__": "k", "__shard__": "s", "cls": written}
        np.testing.assert_equal(float(op(record)["cls"]), float(in_graph(Pipeline([op], ["cls"]), record)))


def test_func_has_no_json():
    with pytest.raises(errors.SchemaError, match="Func cannot be written"):
        ops.to_json([Func(dict)])


def test_records_are_not_changed():
    record = dict(RECORD)
    for pipeline in PIPELINES.values():
        pipeline(record)
    assert record == RECORD


# Comparisons with TensorFlow and Pillow


def test_resize_and_convert_are_tensorflows():
    image = tf.io.decode_jpeg(RECORD["jpg"])
    ours = Pipeline([Decode("jpg"), Resize("jpg", (50, 20))], ["jpg"])(RECORD)
    np.testing.assert_array_equal(ours, tf.image.resize(image, (50, 20)))
    ours = Pipeline([Decode("jpg"), Convert("jpg", "float32")], ["jpg"])(RECORD)
    np.testing.assert_array_equal(ours, tf.image.convert_image_dtype(image, tf.float32))


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (6, 10)])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270, -90, 360, 450])
def test_quarter_turns_are_exact_and_counter_clockwise(size, degrees):
    pixels = np.random.RandomState(0).randint(0, 255, (*size, 3), np.uint8)
    found = Rotate("x", degrees)({"x": pixels})["x"]
    if size[0] == size[1] or degrees % 180 == 0:
        np.testing.assert_array_equal(found, np.rot90(pixels, degrees // 90))
    assert found.shape == pixels.shape


@given(st.floats(-360, 360), st.sampled_from([(16, 16), (11, 24)]))
@settings(max_examples=25, deadline=None)
def test_any_angle_turns_as_pillow_does(degrees, size):
    row, column = np.mgrid[: size[0], : size[1]]
    smooth = (40 + 80 * np.sin(row / 5) ** 2 + 80 * np.cos(column / 6) ** 2).astype(np.float32)
    ours = Rotate("x", degrees)({"x": smooth[..., None]})["x"][..., 0]
    theirs = np.asarray(Image.fromarray(smooth).rotate(degrees, Image.Resampling.BILINEAR))
    inside = np.hypot(row - (size[0] - 1) / 2, column - (size[1] - 1) / 2) < min(size) / 2 - 2
    np.testing.assert_allclose(ours[inside], theirs[inside], atol=1.5)


# Errors

WRONG = {
    "missing": (Pipeline([Decode("gif")]), errors.MissingField, "field 'gif' is missing"),
    "missing in a rename": (Pipeline([Rename(x="a;b")]), errors.MissingField, "field 'a or b' is missing"),
    "missing in a selection": (Pipeline([], ["x"]), errors.MissingField, "field 'x' is missing"),
    "renamed away": (Pipeline([Rename(x="jpg"), Decode("jpg")]), errors.MissingField, "field 'jpg' is missing"),
    "no image": (Pipeline([Decode("txt", "image")]), errors.MappingError, r"Decode\('txt'\) failed"),
    "no number": (Pipeline([Convert("txt", "int32")]), errors.MappingError, r"Convert\('txt'\) failed"),
    "no label": (Pipeline([Rename(cls="txt"), Decode("cls")]), errors.MappingError, "is not a number"),
    "no such word": (Pipeline([Decode("cls", vocabulary=["a"])]), errors.MappingError, "not in its vocabulary"),
    "no such key": (Pipeline([], [SelectJSON("json", ["deep", "y"])]), errors.MappingError, r"no \['deep'\]\['y'\]"),
    "no JSON": (Pipeline([], [SelectJSON("txt", "id")]), errors.MappingError, "SelectJSON"),
    "a function's": (Pipeline([Func(lambda _: 1 / 0)]), errors.MappingError, "ZeroDivisionError"),
    "no record": (Pipeline([Func(lambda _: 1)]), errors.MappingError, "a record is expected"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_record(case):
    pipeline, error, text = WRONG[case]
    with pytest.raises(error, match=text) as caught:
        pipeline(dict(RECORD))
    assert (caught.value.shard, caught.value.key) == ("s.tar", "n/1")


@pytest.mark.parametrize("case", ["missing", "missing in a rename", "missing in a selection", "renamed away"])
def test_missing_fields_are_found_when_a_graph_is_made(case):
    pipeline, error, text = WRONG[case]
    with pytest.raises(error, match=text):
        in_graph(pipeline)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Decode("x", "pickle"), lambda: Resize("x", (0, 3)), lambda: Rename(), lambda: Rename(a=""),
        lambda: Pipeline(["x"]), lambda: Pipeline([], [3]), lambda: ops.from_json([{"op": "Func"}]),
        lambda: ops.from_json([{"op": "Resize"}]), lambda: ops.from_json([{"op": "Rename"}]),
    ],
)  # fmt: skip
def test_invalid_ops(make):
    with pytest.raises(errors.SchemaError):
        make()


@pytest.mark.parametrize(
    "op", [3, None, "Select", [], {}, {"op": [1]}, {"op": None}, {"op": "SelectList", "items": [3]}]
)
def test_values_that_describe_no_op(op):
    with pytest.raises(errors.SchemaError, match=r"this is no op|there is no op"):
        ops.from_json([op])
    with pytest.raises(errors.SchemaError, match=r"this is no op|there is no op"):
        Pipeline.from_json({"conversions": [], "selections": [op]})


@pytest.mark.parametrize("said", [{}, [], None, {"conversions": []}, {"conversions": 3, "selections": []}])
def test_values_that_describe_no_pipeline(said):
    with pytest.raises(errors.SchemaError, match="this is no pipeline"):
        Pipeline.from_json(said)


# Ops that the reader does


def test_a_first_rename_is_done_by_the_reader():
    pipeline = PIPELINES["all"]
    wants, rest = pipeline.pushed_down
    assert wants == ("cls", "image=jpg;png", "json")
    assert len(rest.conversions) == len(pipeline.conversions) - 1
    assert PIPELINES["decoded image"].pushed_down[0] == ("jpg",)
    assert PIPELINES["a function"].pushed_down[0] is None
    assert PIPELINES["renamed behind"].pushed_down[0] == ("cls", "jpg")
    assert Pipeline([Decode("jpg")]).pushed_down[0] is None


@pytest.fixture(scope="module")
def mixed_server(tmp_path_factory):
    """A server with shards whose records have a jpg or a png, alternately."""
    import ais_tar2tf as t2t

    folder = tmp_path_factory.mktemp("mixed")
    (folder / "b").mkdir()
    for number in range(3):
        shard = made.tar(
            (f"n{number}/{at}", {"png" if at % 2 else "jpg": made.image(at, "PNG" if at % 2 else "JPEG"),
                                 "cls": b"%d" % at, "json": b'{"id": %d}' % at})
            for at in range(4)
        )  # fmt: skip
        (folder / "b" / f"train-{number}.tar").write_bytes(shard)
    with t2t.serve(folder) as server:
        yield server


def test_conversions_and_selections_of_a_dataset(mixed_server):
    client = AisDataset(
        "b",
        mixed_server.url,
        conversions=[
            Rename(image="jpg;png"),
            Decode("image", channels=3),
            Resize("image", (8, 9)),
            Convert("cls", tf.int32),
        ],
        selections=["image", "cls", SelectJSON("json", "id", "int64")],
    )
    dataset = client.load("train-{0..2}.tar")
    found = list(dataset)
    assert dataset.element_spec[0].shape == (8, 9, 3)
    assert [int(label) for _, label, _ in found] == list(range(4)) * 3
    assert [int(number) for *_, number in found] == list(range(4)) * 3
    wanted = tf.image.resize(tf.io.decode_image(made.image(1, "PNG")), (8, 9))
    np.testing.assert_array_equal(found[1][0], wanted)
    assert len(list(client.load_from_tar("train-0.tar").batch(2))) == 2
    client.stop()


def _photograph(height: int, width: int, image_format: str = "JPEG") -> bytes:
    """Return an image as smooth as a photograph, so that two ways of scaling can be compared."""
    rows, columns = np.mgrid[0:height, 0:width] / 40.0
    pixels = np.stack([np.sin(rows), np.cos(columns), np.sin(rows + columns)], axis=-1) * 100 + 128
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, image_format, quality=95)
    return file.getvalue()


@pytest.mark.parametrize(
    ("size", "at_least", "wanted"),
    [
        ((480, 640), (224, 224), (240, 320)),
        ((480, 640), (241, 100), (480, 640)),
        ((480, 640), (60, 80), (60, 80)),
        ((481, 641), (241, 321), (241, 321)),  # an odd size is rounded up
        ((100, 100), (224, 224), (100, 100)),
    ],
)
def test_a_jpeg_is_scaled_during_decoding_if_allowed(size, at_least, wanted):
    op = Decode("jpg", channels=3, at_least=at_least)
    assert ops.from_json(ops.to_json([op])) == [op]
    record = {"jpg": _photograph(*size)}
    plain = op(record)["jpg"]
    in_graph = tf.function(lambda data: op({"jpg": data})["jpg"])(tf.constant(record["jpg"]))
    assert plain.shape == (*wanted, 3)
    np.testing.assert_array_equal(plain, in_graph)
    whole = tf.io.decode_jpeg(record["jpg"], channels=3)
    both = [tf.image.resize(tf.cast(pixels, tf.float32), (50, 60), antialias=True) for pixels in (plain, whole)]
    assert float(tf.reduce_mean(tf.abs(both[0] - both[1]))) < 1.5  # of 256


def test_a_graph_with_branches_is_no_randomness():
    """TensorFlow numbers the functions of branches and keeps them in no order, which is no randomness."""
    op = Decode("jpg", channels=3, at_least=(8, 8))
    for _ in range(5):
        prepared = prepare(
            lambda record: op(record)["jpg"],
            KnownFields(("jpg", "__key__"), selected=True),
            {"jpg": _photograph(16, 16)},
        )
        assert isinstance(prepared, GraphMapping)


def test_other_images_are_not_scaled_while_they_are_decoded():
    record = {"png": _photograph(80, 90, "PNG")}
    assert Decode("png", at_least=(8, 9))(record)["png"].shape == (80, 90, 3)


def test_functions_that_are_no_graphs_need_types(mixed_server):
    client = AisDataset("b", mixed_server.url, selections=[SelectJSON("json", "id")])
    with pytest.raises(errors.SchemaError, match="output_types"):
        client.load("train-0.tar")
    dataset = client.load("train-0.tar", output_types=tf.int32, output_shapes=())
    assert [int(each) for each in dataset] == [0, 1, 2, 3]
    client.stop()


def test_one_selection_gives_its_value_and_functions_get_converted_records(imagenet):
    client = AisDataset("imagenet", imagenet.url, conversions=[Convert("cls", "int32")], selections=["cls"])
    labels = [int(each) for each in client.load("train-1.tar.gz")]
    assert labels == [number % 10 for number in range(16, 32)]
    pairs = client.load_from_tar("train-1.tar.gz", record_to_pair=lambda record: (record["cls"] + 1, record["cls"]))
    assert [int(one) for one, _ in pairs] == [label + 1 for label in labels]
    client.stop()


def test_shards_in_another_order(mixed_server):
    with AisDataset("b", mixed_server.url, selections=["__key__"]) as client:
        dataset = client.load("train-{0..2}.tar", shuffle_tar=True)
        orders = {tuple(key.numpy().decode() for key in dataset) for _ in range(12)}
        whole = {key for order in orders for key in order}
        assert len(orders) > 1
        assert len(whole) == 12
        for order in orders:  # the order of shards changes, the order of records in a shard does not
            assert [[key for key in order if key.startswith(f"n{n}/")] for n in range(3)] == [
                [f"n{n}/{at}" for at in range(4)] for n in range(3)
            ]


def test_record_files_of_a_pipeline(mixed_server, tmp_path):
    from ais_tar2tf.values import features

    selections = [SelectDict({"label": "cls", "id": SelectJSON("json", "id")})]
    with AisDataset("b", mixed_server.url, conversions=[Convert("cls", "int32")], selections=selections) as client:
        (written,) = client.load("train-{0..2}.tar", path=str(tmp_path / "x.record"))
        rows = [features.decode(data.numpy()) for data in tf.data.TFRecordDataset(written)]
        assert [int(row["label"][0]) for row in rows] == list(range(4)) * 3
        client.load("train-0.tar", path=str(tmp_path / "y"), record_to_example=lambda r: {"x": int(r["cls"]) * 2})
        rows = [features.decode(data.numpy()) for data in tf.data.TFRecordDataset(str(tmp_path / "y"))]
        assert [int(row["x"][0]) for row in rows] == [0, 2, 4, 6]
        shuffled = client.load("train-{0..2}.tar", path=str(tmp_path / "z"), shuffle_tar=True)
        assert len(list(tf.data.TFRecordDataset(shuffled))) == 12


def test_remote_execution_needs_a_cluster_with_etls(mixed_server):
    with AisDataset("b", mixed_server.url, selections=["cls"]) as client:
        with pytest.raises(errors.StoreError, match="this cluster has no ETLs"):
            client.load("train-0.tar", remote_exec=True)
        assert len(list(client.load("train-0.tar"))) == 4
        assert client.executed.startswith("here: ")
        assert "no ETLs" in client.executed
