"""A short program for every documented call. Its asserts check the result; each program runs in a new process.

`first_process.DEFINITIONS` defines names such as `t2t`, `tf` and `pair`. The bucket `little` has five shards, four of
them named `train-…`. Each shard has three records with the fields `jpg` and `cls`. The buckets are in `folder/`.
"""

from __future__ import annotations

TRAINING = {
    "load_from_tar": """
count = 0
for image, label in t2t.AisDataset("little", "http://localhost:51080").load_from_tar("train-{0..3}.tar"):
    assert image.shape == (224, 224, 3) and label.dtype == "int32"
    count += 1
assert count == 12
""",
    "load_from_tar shuffled and batched": """
with t2t.AisDataset("little", "http://localhost:51080") as ais:
    batches = list(ais.load_from_tar("train-{0..3}.tar").shuffle().batch(5))
assert [len(label) for _, label in batches] == [5, 5, 2]
""",
    "load_from_tar with a function": """
ais = t2t.AisDataset("little", "http://localhost:51080", token="secret", provider="ais")
found = list(ais.load_from_tar("train-{0..3}.tar", record_to_pair=lambda r: (r["jpg"], r["cls"])))
assert len(found) == 12
ais.stop()
""",
    "load_from_tar with Python": """
import numpy as np
def pair(record):
    return np.frombuffer(record["jpg"][:4], np.uint8), int(record["cls"])
ais = t2t.AisDataset("little")
dataset = ais.load_from_tar(
    "train-{0..3}.tar", record_to_pair=pair, output_types=("uint8", "int32"), output_shapes=((4,), ())
)
assert sorted(int(label) for _, label in dataset) == sorted([0, 1, 2] * 4)
""",
    "load_from_tar into a file": """
files = t2t.AisDataset("little").load_from_tar("train-{0..3}.tar", path="train.record")
assert files == ["train.record"]
dataset = tf.data.TFRecordDataset(files).map(t2t.default_record_parser)
assert [image.shape for image, _ in dataset] == [(224, 224, 3)] * 12
""",
    "load": """
ais = t2t.AisDataset("little", selections=["jpg", "cls"])
assert len(list(ais.load("train-{0..3}.tar"))) == 12
assert ais.executed.startswith("here")
""",
    "load into files": """
ais = t2t.AisDataset("little")
files = ais.load("train-{0..3}.tar", path="train-{}.record", max_shard_size="10KB", record_to_example=lambda r: r)
assert len(files) > 1
""",
    "load with conversions": """
from ais_tar2tf.ops import Convert, Decode, Rename, Resize, Rotate
conversions = [
    Rename(image="jpg;png"), Decode("image", channels=3), Resize("image", (8, 8)), Rotate("image", 90),
    Convert("cls", "int32"),
]
ais = t2t.AisDataset("little", conversions=conversions, selections=["image", "cls"])
(image, label), *_ = ais.load("train-{0..3}.tar", num_workers=2, shuffle_tar=True, remote_exec=False)
assert image.shape == (8, 8, 3) and label.dtype == "int32"
""",
    "source": """
assert len(list(t2t.AisDataset("little").source("train-{0..3}.tar").records())) == 12
""",
    "dataset": """
(first, *_) = t2t.open("ais://little/train-{0..3}.tar").dataset()
assert first["__key__"] == b"train-0/000000" and set(first) == {"jpg", "cls", "__key__", "__shard__"}
""",
    "dataset with every option": """
src = t2t.open("ais://little/train-{0..3}.tar", connections=1)
shuffle = t2t.options.Shuffle(window=6, shards=2)
dataset = src.dataset(pair, shuffle=shuffle, seed=7, batch=2, drop_remainder=True, repeat=2, shard=(0, 2), parallel=2)
assert [image.shape for image, _ in dataset] == [(2, 16, 16, 3)] * 6
""",
    "decoded dataset": """
src = t2t.open("ais://little/train-{0..3}.tar")
(first, *_) = src.select("jpg", "cls").dataset(decode=True, start_at=3)
assert first["jpg"].shape == (30, 40, 3) and first["__key__"] == b"train-1/000000"
""",
    "dataset and its checkpoint": """
dataset = t2t.open("ais://little/train-{0..3}.tar").dataset(shuffle=True, seed=1).batch(2)
iterator = iter(dataset)
next(iterator)
path = tf.train.Checkpoint(iterator=iterator).save("checkpoint/")
rest = [batch["__key__"].numpy().tolist() for batch in iterator]
again = iter(dataset)
tf.train.Checkpoint(iterator=again).restore(path)
assert [batch["__key__"].numpy().tolist() for batch in again] == rest
""",
    "dataset in a global order": """
t2t.index("ais://little/train-{0..3}.tar")
dataset = t2t.open("ais://little/train-{0..3}.tar").dataset(shuffle="global", seed=7)
assert len({record["__key__"].numpy() for record in dataset}) == len(dataset) == 12
""",
    "dataset of an export": """
t2t.open("ais://little/train-{0..3}.tar").export("out/", workers=1)
dataset = t2t.load("out/").dataset("train", shuffle=True, seed=1, batch=4)
assert len(dataset) == 3
""",
    "mix and its dataset": """
src, other = (t2t.open(f"ais://little/train-{n}.tar") for n in "01")
dataset = t2t.mix([src, other], weights=[3, 1], seed=0, at_end="drop").dataset(pair, batch=2)
assert sum(len(label) for _, label in dataset) == 6
""",
    "Resume": """
train = t2t.open("ais://little/train-{0..3}.tar").dataset(pair, shuffle=True, seed=7, batch=2)
resume = t2t.Resume(train, "backup", every=2)
model.fit(train, epochs=2, verbose=0, callbacks=[resume])
""",
    "Watch": """
messages = []
src = t2t.open("ais://little/train-{0..3}.tar")
model.fit(src.dataset(pair, batch=2), verbose=0, callbacks=[t2t.Watch(src, say=messages.append)])
assert len(messages) == 1
""",
    "write_dataset": """
files = t2t.write_dataset(tf.data.Dataset.range(9), "out/", split="train", shard_records=5)
assert len(files) == 2 and [record["value"] for record in t2t.load("out/").records()] == list(range(9))
""",
    "parsing.parser": """
src = t2t.open("ais://little/train-{0..3}.tar")
schema = t2t.schema.infer(src.records())
examples = [schema.encode(record) for record in src.records()]
parsed = tf.data.Dataset.from_tensor_slices(examples).map(t2t.parsing.parser(schema))
assert len(list(parsed)) == 12
t2t.parsing.parse(schema, examples[0]), t2t.parsing.parse_spec(schema), t2t.parsing.element_spec(schema)
t2t.parsing.restore(schema, tf.io.parse_single_example(examples[0], t2t.parsing.parse_spec(schema)))
""",
    "parsing.tfds_features": """
schema = t2t.schema.infer([{"__key__": "a", "txt": b"x"}])
assert "txt" in t2t.parsing.tfds_features(schema)
""",
    "features of TensorFlow": """
from ais_tar2tf.values.features import bytes_feature, float_feature, float_feature_array, int64_feature
feature = {"a": bytes_feature(b"x"), "b": int64_feature(True), "c": float_feature(1), "d": float_feature_array([1])}
tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
""",
    "features.tf_serialize_example": """
data = tf.data.Dataset.from_tensors((tf.constant(b"x"), tf.constant(3)))
(one,) = data.map(t2t.features.tf_serialize_example)
assert one.numpy() == t2t.features.serialize_example(b"x", 3)
""",
    "default_record_to_pair": """
(record, *_) = t2t.open("ais://little/train-0.tar").records()
image, label = t2t.default_record_to_pair(record)
assert image.shape == (224, 224, 3)
""",
    "datum": """
from ais_tar2tf import datum
configs = datum.configs.TFRWriteConfigs(splits={"train": {}})
datum.export.export_to_tfrecord("folder/little/train-{0..3}.tar", "records/", datum.problem.IMAGE_CLF, configs)
dataset = datum.load("records/", datum.configs.DatasetConfigs(batch_size_train=4)).train_fn("train", shuffle=False)
assert next(iter(dataset))["image"].shape[0] == 4
""",
    "compat": """
import ais_tar2tf.compat
import datum
from tfrecorder.helpers.marshaller import Example
assert datum.problem.IMAGE_CLF and Example.Field.TYPE_INT32
""",
    "tfds.builder": """
made = t2t.tfds.builder("little", "ais://little", splits={"train": "train-{0..3}.tar"}, data_dir="tfds/")
made.download_and_prepare()
assert len(made.as_data_source("train")) == len(made.as_dataset("train")) == 12
""",
    "tornet.stream": """
files = t2t.tornet.pack("tornet/", "folder/radar", shards=2)
samples = t2t.tornet.stream([each for each in files if "test-2015" in each], shuffle=True)
inputs, label = next(iter(samples.map(t2t.tornet.pair(tilt_last=True)).batch(1)))
assert label.shape[0] == 1
""",
    "cluster.service": """
import threading
from ais_tar2tf.cluster import service
t2t.open("ais://little/train-{0..3}.tar").export("out/", workers=1)
dispatcher = tf.data.experimental.service.DispatchServer()
at = dispatcher.target.partition("://")[2]
worker = tf.data.experimental.service.WorkerServer(
    tf.data.experimental.service.WorkerConfig(dispatcher_address=at)
)
assert len(list(service.dataset(dispatcher.target, "out/"))) == 12
""",
}
"""Programs that use TensorFlow."""

PLAIN = {
    "open and records": """
src = t2t.open(["ais://little/train-0.tar", "ais://little/train-{1..3}.tar"], on_error="skip-record")
records = list(src.select("jpg", "cls?").records())
assert [record["__key__"] for record in records][::11] == ["train-0/000000", "train-3/000002"]
assert src.stats.records_emitted == 12 and src.bottleneck and len(list(src.shards)) == 4
src.close()
""",
    "open a prefix, a folder, a glob": """
assert len(list(t2t.open("folder/little/").shards)) == 5
assert len(list(t2t.open("ais://little/train-*.tar").shards)) == 4
""",
    "schema": """
schema = t2t.open("ais://little/train-{0..3}.tar").schema
assert "jpg" in str(schema) and [field.name for field in schema]
""",
    "decoded records": """
(first, *_) = t2t.open("ais://little/train-0.tar").records(decode={"cls": "int64"})
assert first["cls"] == 0
""",
    "iter_records": """
options = t2t.options
found = t2t.iter_records(
    "ais://little/train-{0..3}.tar", fields=["cls"], grouping="last-dot", on_error="raise",
    limits=options.Limits(template=10), retry=options.Retry(attempts=2), timeouts=options.Timeouts(idle=5),
)
assert len(list(found)) == 12
""",
    "export": """
src = t2t.open("ais://little/train-{0..3}.tar")
src.export("a/", format="tfrecord", name="little", split="train", shard_size="1MB", workers=1)
src.export("b/", format="array_record", shard_records=5, workers=1)
src.export("c/", format="tar", align="shard", exists="replace", workers=1)
src.export("d/", splits={"train": 0.8, "val": 0.2}, workers=2)
for out in "abcd":
    loaded = t2t.load(f"{out}/")
    assert len(loaded) == 12 and loaded.verify().records == 12
    assert sum(loaded.splits.values()) == 12 and len(list(loaded.records())) == 12 and loaded.files("train")
    if loaded.manifest.format != "tar":
        assert loaded[-1]["__key__"] and len(loaded[1:3]) == 2
        assert len(list(loaded.split("train[:50%]"))) == len(loaded.split("train")) // 2
""",
    "export by two hosts": """
for host in range(2):
    t2t.open("ais://little/train-{0..3}.tar").export("out/", shard=(host, 2), align="shard", workers=1)
assert t2t.finish("out/") and len(t2t.load("out/")) == 12
""",
    "pack a folder": """
from pathlib import Path
for name in ("a", "b"):
    Path("photos").mkdir(exist_ok=True)
    Path(f"photos/{name}.txt").write_text(name)
    Path(f"photos/{name}.json").write_text("{}")
(url,) = t2t.pack("photos/", "ais://packed/train-{}.tar", create=True, shard_size="100MB")
assert [record["txt"] for record in t2t.open(url).records()] == [b"a", b"b"]
""",
    "pack folders of classes": """
from pathlib import Path
image = next(t2t.open("ais://little/train-0.tar").records())["jpg"]
for name in ("cat", "dog"):
    Path(f"pets/{name}").mkdir(parents=True)
    Path(f"pets/{name}/1.jpg").write_bytes(image)
t2t.pack("pets/", "ais://packed/train-{:05d}.tar", create=True)
src = t2t.open("ais://packed/train-*.tar")
assert src.classes == ("cat", "dog")
assert {record["__key__"]: record["cls"] for record in src.records()} == {"cat/1": b"0", "dog/1": b"1"}
""",
    "pack records": """
rows = ({"__key__": f"{n:03d}", "txt": "hello", "cls": b"1"} for n in range(9))
urls = t2t.pack(rows, "ais://packed/train-{:05d}.tar", create=True, shard_records=5)
assert len(urls) == 2 and urls[0].endswith("train-00000.tar")
""",
    "index": """
index = t2t.index("ais://little/train-{0..3}.tar")
assert index.records == 12
src = t2t.open("ais://little/train-{0..3}.tar")
assert len(src) == 12 and src[7]["__key__"] == "train-2/000001"
assert src[-1]["__key__"] == "train-3/000002" and len(src[1:3]) == 2
t2t.index("ais://little/train-{0..3}.tar", "indexes/index.t2t")
assert len(t2t.open("ais://little/train-{0..3}.tar", index="indexes/index.t2t")) == 12
""",
    "cache in a folder": """
for _ in range(2):
    src = t2t.open("ais://little/train-{0..3}.tar", cache="cache/")
    assert len(list(src.records())) == 12
""",
    "cache in memory": """
src = t2t.open("ais://little/train-{0..3}.tar", cache="memory")
assert len(list(src.records())) == len(list(src.records())) == 12
src = t2t.open("ais://little/train-{0..3}.tar", cache=t2t.options.Cache("memory", max_bytes=1000000))
""",
    "mix": """
src, other = (t2t.open(f"ais://little/train-{n}.tar") for n in "01")
mixture = t2t.mix([src, other], weights=[3, 1], seed=0, at_end="repeat")
assert len(list(mixture.select("cls").records())) >= 6 and mixture.bottleneck is not None
mixture.close()
""",
    "select in the cluster": """
src = t2t.open("ais://little/train-{0..3}.tar").select("cls", in_cluster=True)
assert len(list(src.records())) == 12 and src.extracted
""",
    "default_record_to_example": """
(record, *_) = t2t.open("ais://little/train-0.tar").records()
example = t2t.default_record_to_example(record)
assert example["height"] == 30 if isinstance(example, dict) else example
""",
    "features": """
data = t2t.features.encode({"a": [1, 2], "b": b"x", "c": 0.5})
assert t2t.features.decode(data)["b"] == [b"x"]
""",
    "ops": """
from ais_tar2tf import ops
pipeline = ops.Pipeline([ops.Rename(label="cls"), ops.Func(lambda r: {**r, "n": 1})], ["label", "n"])
assert pipeline({"cls": b"3"}) == (b"3", 1)
chosen = ops.SelectDict({"a": ops.SelectJSON("json", "x"), "b": ops.SelectList(["cls", ops.Select("cls")])})
assert chosen({"json": b'{"x": 5}', "cls": b"1"}) == {"a": 5, "b": [b"1", b"1"]}
assert ops.from_json(ops.to_json([ops.Rename(a="b")]))
""",
    "schema.infer": """
schema = t2t.schema.infer([{"__key__": "a", "cls": b"1"}])
assert t2t.schema.Schema.from_json(schema.to_json()) == schema and schema.to_text()
assert schema.decode(schema.encode({"__key__": "b", "cls": b"2"}))["cls"] == b"2"
inference = t2t.schema.Inference()
inference.add({"__key__": "a", "x": 1})
assert inference.schema.with_field(t2t.schema.Field("x", "int64"))
""",
    "arrays": """
import io, numpy as np
file = io.BytesIO()
np.save(file, np.arange(3))
record = t2t.arrays.decode_record({"__key__": "a", "x.npy": file.getvalue()})
assert record["x.npy"].tolist() == t2t.arrays.decode_array("x.npy", file.getvalue()).tolist() == [0, 1, 2]
""",
    "serve": """
with t2t.serve("folder", port=0) as server:
    assert server.url.startswith("http://127.0.0.1:")
    assert len(list(t2t.open("ais://bucket/train-0.tar", endpoint=server.url).records())) == 2
""",
    "errors": """
try:
    list(t2t.open("ais://little/train-9.tar").records())
except t2t.errors.Tar2TFError as error:
    assert isinstance(error, t2t.errors.ShardNotFound) and isinstance(error, FileNotFoundError)
    assert error.url == "ais://little/train-9.tar"
else:
    raise SystemExit("no error")
""",
    "hosts": """
import os
os.environ |= {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
assert t2t.hosts() == (1, 2)
""",
    "openmetrics": """
src = t2t.open("ais://little/train-0.tar")
list(src.records())
assert "records" in t2t.openmetrics(src.stats)
""",
    "cluster.shuffle": """
urls = t2t.cluster.shuffle(
    "ais://little/train-{0..3}.tar", "ais://little/new-{0..9}.tar", shard_size="64MB", seed=0, local=True
)
assert len(list(t2t.open(urls).records())) == 12
""",
    "cluster.etl": """
import requests
from pathlib import Path
from ais_tar2tf.cluster import etl
transformer = etl.Transformer(selections={"label": "cls"}, output="tfrecord")
with transformer.serve(port=0) as service:
    while requests.get(service.url + "/health", timeout=20).status_code == 503:  # until it is ready
        pass
    answer = requests.put(service.url, Path("folder/little/train-0.tar").read_bytes(), timeout=20)
assert answer.status_code == 200 and b"label" in answer.content
""",
    "tfrecorder": """
from ais_tar2tf.tfrecorder import factory as tf_factory
from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
from ais_tar2tf.tfrecorder.helpers.marshaller import Example, IgnoreExampleException
class Toy(Example):
    def __init__(self, label):
        super().__init__()
        self._label = label
    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self):
        return self._label
    @classmethod
    def from_csv_row(cls, row, **_):
        return cls(int(row[0]))
    def to_csv_row(self):
        return [str(self._label)]
from pathlib import Path
Path("toys.csv").write_text("".join(f"{n}\\n" for n in range(10)))
tf_factory.generate_and_save_train_eval_test_tfrecords_files(
    "toys/", example_class=Toy, examples_list_filepath="toys.csv", examples_train_eval_test_ratio=[0.5, 0.3, 0.2]
)
assert tf_factory.get_tfrecord_filepaths(dirpath="toys/train")
""",
    "tornet": """
t2t.tornet.build("tornet/", "tfds/", file_format="array_record")
assert t2t.tornet.data_source("test-2015", data_dir="tfds/")[0]["DBZ"].shape
""",
}
"""Programs that run without TensorFlow."""
