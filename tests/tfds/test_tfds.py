"""Any shards as a TFDS data set, compared with TFDS's own readers, and used by grain."""

from __future__ import annotations

import io
import json
import pickle
import re
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.sealed import read_file
from ais_tar2tf.base.monitoring.progress import Progress
from ais_tar2tf.errors import ArchiveError, MissingDependency, OptionError, SchemaError, ShardNotFound
from ais_tar2tf.tfds import shards_builder, stored_features
from tests.support import shards as made
from tests.support.tornet_data import run

FORMATS = ("tfrecord", "array_record")
SPLITS = {"train": "train-{0..1}.tar", "test": ["test-0.tar"]}


def _record(number: int) -> dict[str, Any]:
    array = io.BytesIO()
    np.save(array, np.full((3, 2), number, "float32"))
    return {
        "__key__": f"folder/{number:03d}",
        "npy": array.getvalue(),
        "jpg": made.image(number),
        "cls": str(number % 3),
        "json": json.dumps({"number": number}),
    }


@pytest.fixture(scope="module")
def split_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Serve train-0 and train-1 with eight records each, and test-0 with four, by the embedded server."""
    folder = tmp_path_factory.mktemp("buckets")
    (folder / "little").mkdir()
    for name, numbers in {"train-0": range(8), "train-1": range(8, 16), "test-0": range(16, 20)}.items():
        t2t.pack([_record(number) for number in numbers], f"{folder}/little/{name}.tar")
    with t2t.serve(folder) as server:
        yield server


def _builder(bucket: Any, folder: Path, **options: Any) -> Any:
    given = {"splits": SPLITS, "data_dir": folder, "endpoint": bucket.url, "progress": False, **options}
    return t2t.tfds.builder("little", "ais://little", **given)


@pytest.fixture(scope="module", params=FORMATS)
def prepared(split_server: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    options = {"file_format": request.param, "map": t2t.arrays.decode_record, "shard_records": 5}
    builder = _builder(split_server, folder, **options)
    builder.download_and_prepare()
    return builder


def _numbers(samples: Any) -> list[int]:
    return [int(sample["npy"][0, 0]) for sample in samples]


def test_features_come_from_the_schema(prepared: Any) -> None:
    features = prepared.info.features
    assert (features["npy"].shape, features["npy"].np_dtype) == ((3, 2), np.float32)
    assert isinstance(features["jpg"], tfds.features.Image)
    assert set(features) == {"npy", "jpg", "cls", "json"}


def test_records_keep_their_order_and_values(prepared: Any) -> None:
    train = prepared.as_data_source("train")
    assert _numbers(train) == list(range(16))
    sample = train[5]
    np.testing.assert_array_equal(sample["npy"], np.full((3, 2), 5, "float32"))
    assert sample["cls"] == b"2"
    assert json.loads(sample["json"]) == {"number": 5}
    assert _numbers(prepared.as_data_source("test")) == list(range(16, 20))
    assert {name: info.shard_lengths for name, info in prepared.info.splits.items()} == {
        "test": [4], "train": [5, 5, 5, 1]
    }  # fmt: skip


def test_images_are_decoded_as_tensorflow_decodes_them(prepared: Any) -> None:
    import tensorflow as tf

    sample, encoded = prepared.as_data_source("train")[3], _record(3)["jpg"]
    ours = tf.io.decode_image(encoded).numpy().astype(int)
    assert sample["jpg"].shape == ours.shape
    assert abs(sample["jpg"].astype(int) - ours).max() <= 4  # JPEG decoders differ slightly
    (first, *_) = tfds.as_numpy(prepared.as_dataset(split="train"))
    assert first["jpg"].shape == ours.shape


def test_random_access_from_the_end_and_by_slices(prepared: Any) -> None:
    train = prepared.as_data_source("train")
    assert _numbers([train[-1], train[-16]]) == [15, 0]
    for part in (slice(3, 9), slice(None, None, 4), slice(-3, None), slice(None, None, -1), slice(20, None)):
        assert _numbers(train[part]) == list(range(16))[part]
    assert _numbers(prepared.as_data_source("train[4:6]+test[-1:]")) == [4, 5, 19]
    assert {name: len(source) for name, source in prepared.as_data_source().items()} == {"test": 4, "train": 16}
    assert [len(each) for each in prepared.as_data_source(["train", "test"])] == [16, 4]
    with pytest.raises(IndexError):
        train[16]


def test_tensorflow_reads_the_same(prepared: Any) -> None:
    assert _numbers(tfds.as_numpy(prepared.as_dataset(split="train"))) == list(range(16))
    assert _numbers(tfds.as_numpy(prepared.as_dataset(split="train[10:12]"))) == [10, 11]


def test_a_read_config_applies_to_both_formats(prepared: Any) -> None:
    """TFDS itself reads the TFRecord files."""

    def dataset(*, shuffle_files: bool = False, **options: Any) -> Any:
        common = {"try_autocache": False, "enable_ordering_guard": False, "interleave_cycle_length": 1}
        config = tfds.ReadConfig(**common, **options)
        return prepared.as_dataset(split="train", read_config=config, shuffle_files=shuffle_files)

    def numbers(found: Any) -> list[int]:
        return _numbers(tfds.as_numpy(found))

    orders = [numbers(dataset(shuffle_files=True, shuffle_seed=seed)) for seed in (1, 1, 2, 3, 4)]
    assert orders[0] == orders[1]
    assert len(set(map(tuple, orders))) > 1
    assert all(sorted(order) == list(range(16)) for order in orders)
    fixed = dataset(shuffle_files=True, shuffle_reshuffle_each_iteration=False)
    assert numbers(fixed) == numbers(fixed)
    endless = dataset(repeat_filenames=True, assert_cardinality=False)
    assert numbers(endless.take(40)) == [number % 16 for number in range(40)]
    hosts = [numbers(dataset(input_context=tf.distribute.InputContext(2, number))) for number in range(2)]
    assert sorted(hosts[0] + hosts[1]) == list(range(16))
    assert all(hosts)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    assert dataset(options=options).options().threading.private_threadpool_size == 3


def test_every_epoch_is_shuffled_anew_unless_the_order_is_fixed(prepared: Any) -> None:
    """TFDS caches small datasets, but none whose order changes. The order of one TFRecord file never changes."""

    def epochs(**options: Any) -> list[list[int]]:
        config = tfds.ReadConfig(shuffle_seed=1, enable_ordering_guard=False, interleave_cycle_length=1, **options)
        dataset = prepared.as_dataset(split="test", read_config=config, shuffle_files=True)
        return [_numbers(tfds.as_numpy(dataset)) for _ in range(8)]

    assert prepared.info.splits["test"].num_shards == 1
    changes = prepared.info.file_format.value == "array_record"
    assert (len(set(map(tuple, epochs()))) > 1) == changes
    assert len(set(map(tuple, epochs(shuffle_reshuffle_each_iteration=False)))) == 1


def test_settings_without_effect_on_array_records_are_refused(prepared: Any) -> None:
    if prepared.info.file_format.value == "array_record":
        with pytest.raises(OptionError, match=r"ReadConfig\.add_tfds_id has no effect .* file_format='tfrecord'"):
            prepared.as_dataset(split="train", read_config=tfds.ReadConfig(add_tfds_id=True))


def test_tfds_reads_the_files_without_this_package(prepared: Any) -> None:
    stock = tfds.builder_from_directory(prepared.data_dir)
    if prepared.info.file_format.value == "array_record":
        assert _numbers(stock.as_data_source("train")) == list(range(16))
    else:
        assert _numbers(tfds.as_numpy(stock.as_dataset(split="train"))) == list(range(16))


def test_another_file_format_is_refused_as_by_tfds(prepared: Any) -> None:
    own, stock = prepared.info.file_format, tfds.builder_from_directory(prepared.data_dir)
    for same in (own, own.value):
        assert _numbers(prepared.as_data_source("train", file_format=same)) == list(range(16))
    for other in {"array_record", "tfrecord", "parquet", "nonsense"} - {own.value}:
        with pytest.raises((ValueError, NotImplementedError)) as theirs:
            stock.as_data_source("train", file_format=other)
        with pytest.raises(theirs.type) as ours:
            prepared.as_data_source("train", file_format=other)
        assert str(ours.value) == str(theirs.value)


def test_grain_on_top(prepared: Any) -> None:
    train = prepared.as_data_source("train")
    dataset = grain.MapDataset.source(train).map(lambda sample: sample["npy"][0, 0])
    assert [int(value) for value in dataset] == list(range(16))
    batches = list(dataset.shuffle(seed=1).batch(4))
    assert [batch.shape for batch in batches] == [(4,)] * 4
    assert sorted(int(value) for batch in batches for value in batch) == list(range(16))
    assert [int(value) for value in dataset[2:5]] == [2, 3, 4]
    read = list(grain.MapDataset.source(train[::2]).to_iter_dataset(grain.ReadOptions(num_threads=2)))
    assert _numbers(read) == list(range(0, 16, 2))


def test_a_source_survives_pickling(prepared: Any) -> None:
    train = prepared.as_data_source("train")
    train[0]
    assert _numbers(pickle.loads(pickle.dumps(train[2:6]))) == [2, 3, 4, 5]  # noqa: S301  # our own


def test_a_prepared_data_set_needs_no_server(prepared: Any, split_server: Any) -> None:
    folder = Path(prepared.data_dir).parents[1]
    again = t2t.tfds.builder(
        "little", "ais://little", splits=SPLITS, data_dir=folder, file_format=prepared.info.file_format.value,
        endpoint="http://127.0.0.1:9",
    )  # fmt: skip
    again.download_and_prepare()
    assert _numbers(again.as_data_source("test")) == [16, 17, 18, 19]


def test_files_that_are_not_decoded_are_bytes(split_server: Any, tmp_path: Path) -> None:
    builder = _builder(split_server, tmp_path, fields=["npy", "cls"], supervised_keys=("npy", "cls"))
    builder.download_and_prepare()
    assert set(builder.info.features) == {"npy", "cls"}
    assert builder.as_data_source("train")[1]["npy"] == _record(1)["npy"]
    array, label = next(iter(tfds.as_numpy(builder.as_dataset(split="test", as_supervised=True))))
    assert (array, label) == (_record(16)["npy"], b"1")


def test_one_template_is_the_split_train(tmp_path: Path) -> None:
    t2t.pack([{"__key__": "a", "txt": "hello"}], "memory://one/a.tar", create=True, exists="replace")
    builder = t2t.tfds.builder("one", "memory://one/a.tar", data_dir=tmp_path, progress=False)
    builder.download_and_prepare()
    assert [dict(each) for each in builder.as_data_source("train")] == [{"txt": b"hello"}]


def test_progress_counts_the_shards(split_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Progress("little", 3, None)
    monkeypatch.setattr(shards_builder, "progress_for", lambda _, total, *__: shown if total == 3 else None)
    seen: list[int] = []

    def note(record: Any) -> Any:
        seen.append(shown.shards)
        return {"__key__": record["__key__"], "cls": record["cls"]}

    _builder(split_server, tmp_path, map=note, sample=4).download_and_prepare()
    assert (shown.records, shown.shards) == (20, 3)
    assert set(seen) == {0, 1, 2}


def test_a_record_that_does_not_fit_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    records = [{"__key__": f"k{n}", "cls": "1", **({} if n == 7 else {"txt": "a"})} for n in range(9)]
    t2t.pack(records, "memory://misfit/a.tar", create=True, exists="replace")
    builder = t2t.tfds.builder("misfit", "memory://misfit/a.tar", data_dir=tmp_path, sample=5, progress=False)
    with pytest.raises(SchemaError, match=r"memory://misfit/a.tar, record 'k7': field 'txt' is missing"):
        builder.download_and_prepare()
    assert not (tmp_path / "misfit" / "1.0.0").exists()
    whole = t2t.tfds.builder("misfit", "memory://misfit/a.tar", data_dir=tmp_path, sample=None, progress=False)
    assert whole.schema["txt"].optional


@pytest.mark.parametrize("file_format", FORMATS)
def test_images_of_two_formats_are_refused_with_a_working_remedy(tmp_path: Path, file_format: str) -> None:
    """TFDS does not support optional images."""
    name = f"memory://pets-{file_format}/a.tar"
    images = [made.image(n, "PNG" if n % 2 else "JPEG") for n in range(6)]
    kinds = [{"__key__": f"{n}", "png" if n % 2 else "jpg": image, "cls": str(n)} for n, image in enumerate(images)]
    t2t.pack(kinds, name, create=True, exists="replace")
    told = {"data_dir": tmp_path, "file_format": file_format, "progress": False}
    with pytest.raises(SchemaError, match=r"'jpg' .*absent in some records.*fields=\['image=jpg;png', 'cls'\]"):
        t2t.tfds.builder("pets", name, **told).download_and_prepare()
    assert not list(tmp_path.glob("pets/*"))
    builder = t2t.tfds.builder("pets", name, fields=["image=jpg;png", "cls"], **told)
    builder.download_and_prepare()
    assert [each["image"] for each in tfds.as_numpy(builder.as_dataset("train"))] == images
    assert [each["image"] for each in builder.as_data_source("train")] == images


@pytest.mark.parametrize("file_format", FORMATS)
def test_texts_and_numbers_that_some_records_lack_are_sequences(tmp_path: Path, file_format: str) -> None:
    name = f"memory://rare-{file_format}/a.tar"
    records = [{"__key__": f"{n}", "cls": str(n)} | ({"txt": f"t{n}"} if n % 2 else {}) for n in range(4)]
    t2t.pack(records, name, create=True, exists="replace")

    def number(record: Any) -> dict[str, Any]:
        return {**record, **({"id": int(record["cls"])} if int(record["cls"]) % 2 else {})}

    told = {"data_dir": tmp_path, "file_format": file_format, "progress": False, "map": number}
    builder = t2t.tfds.builder("rare", name, **told)
    builder.download_and_prepare()
    streamed = [
        (sample["txt"].tolist(), sample["id"].tolist()) for sample in tfds.as_numpy(builder.as_dataset("train"))
    ]
    assert streamed == [([], []), ([b"t1"], [1]), ([], []), ([b"t3"], [3])]
    at_random = builder.as_data_source("train")
    assert [at_random[n]["txt"].tolist() for n in (1, 3)] == [[b"t1"], [b"t3"]]
    assert at_random[0]["txt"] is None


def test_options_are_checked(split_server: Any, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="say where the shards are"):
        t2t.tfds.builder("nothing")
    with pytest.raises(SchemaError, match="one URL, to which their templates are appended"):
        t2t.tfds.builder("two", ["a", "b"], splits={"train": "c"})
    with pytest.raises(SchemaError, match="file_format 'riegeli' is none of tfrecord, array_record"):
        _builder(split_server, tmp_path, file_format="riegeli").download_and_prepare()
    with pytest.raises(ShardNotFound, match="'little' is not built here: call download_and_prepare"):
        _builder(split_server, tmp_path).as_data_source("train")
    t2t.pack([{"__key__": "a", "txt": "b"}], "memory://empty/a.tar", create=True, exists="replace")
    with pytest.raises(SchemaError, match="there are no records"):
        t2t.tfds.builder("empty", "memory://empty/a.tar", data_dir=tmp_path, map=lambda _: {})


def test_a_damaged_record_file_is_an_error_with_its_place(split_server: Any, tmp_path: Path) -> None:
    builder = _builder(split_server, tmp_path, file_format="tfrecord")
    builder.download_and_prepare()
    (path,) = Path(builder.data_dir).glob("little-test*")
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match=f"{re.escape(str(path))}, offset 0: the checksum of a record is wrong"):
        builder.as_data_source("test")[0]
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError, match="the checksum of a record's length is wrong"):
        builder.as_data_source("test")[1]
    path.write_bytes(path.read_bytes()[:7])
    with pytest.raises(ArchiveError, match="the file ends within a record's header"):
        builder.as_data_source("test")[1]


@pytest.mark.parametrize(
    "document",
    [
        b'{"pythonClassName": "planted.Feature", "tensor": {}}',
        b'{"python_class_name": "planted.Feature", "tensor": {}}',
        b'{"type": "planted.Feature", "content": {}}',
        b'{"type": "tensorflow_datasets.core.features.scalar.Scalar", "content": "", "proto_cls": "planted.Feature"}',
        b'{"pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict", "featuresDict":'
        b' {"features": {"a": {"sequence": {"feature": {"pythonClassName": "planted.Feature"}}}}}}',
        b'{"pythonClassName": "tensorflow_datasets.core.features.nothing.Nothing"}',
        b'{"pythonClassName": ["tensorflow_datasets"]}',
        b"[1]",
        b"{" * 100_000,
        b"\xff",
    ],
)
def test_a_features_file_imports_nothing_and_is_refused(
    split_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: bytes
) -> None:
    """A features file cannot import a module, not even one of the working folder."""
    planted = tmp_path / "planted.py"
    planted.write_text("import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = tmp_path / "data" / "little" / "1.0.0"
    data.mkdir(parents=True)
    (data / "features.json").write_bytes(document)
    with pytest.raises(SchemaError, match=r"features\.json: "):
        _ = _builder(split_server, tmp_path / "data").info
    assert not planted.with_suffix(".ran").exists()


def test_a_features_file_that_is_too_large_is_refused_without_the_name_of_an_option(tmp_path: Path) -> None:
    with (tmp_path / "features.json").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(SchemaError, match=r"features\.json: the document has over 16,777,216 bytes$"):
        stored_features.stored_features(tmp_path)


def test_a_features_file_that_is_replaced_after_its_check_is_not_read(
    prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "features.json"
    path.write_bytes((Path(prepared.data_dir) / "features.json").read_bytes())
    (tmp_path / "hostile_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))

    def read(*args: Any, **options: Any) -> bytes:
        data = read_file(*args, **options)
        path.write_text('{"pythonClassName": "hostile_module.Feature"}')
        return data

    monkeypatch.setattr(stored_features, "read_file", read)
    found = stored_features.stored_features(tmp_path)
    assert found is not None
    assert found.to_json() == prepared.info.features.to_json()


def test_a_missing_package_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['tensorflow_datasets'] = None\nimport ais_tar2tf as t2t\nt2t.tfds.builder('a', 'b')"
    )
    with pytest.raises(AssertionError, match=r"pip install 'ais_tar2tf\[tfds\]'"):
        run(script, env={})
    assert issubclass(MissingDependency, ImportError)
