"""Readers of other libraries than webdataset. Each is used as its documentation advises.

If a peer is not installed, its line prints the reason instead of figures. The extra `bench` installs all of them.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.benchmarks.writers import Drain, scratch

__all__ = ["PARALLEL", "PEERS", "PEERS_WITHOUT_TENSORFLOW", "STREAMS", "records_of"]

STREAMS = (1, 2, 4, 8)
"""Numbers of connections, for the curve over them."""

_BATCH = 128
_PICTURES = 32  # images in a batch
_SIZE = (224, 224)
_STREAMS = 4
_RECORD_BUFFER = 8 * 1024 * 1024
_GRAIN_TOGETHER = 512  # small records in each call of grain; more records are not faster, nor as many large ones
_GRAIN_LARGE = 16_384

PARALLEL = (1, 2, 4)
"""Numbers of concurrent calls of the mapping, for the curve over them."""


# Records in Python


def hugging_face(urls: list[str], records: int) -> Drain:
    """Stream tar shards with `datasets`. Fields stay bytes, because the other readers do not decode them either."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets

    datasets.disable_progress_bars()

    def drain() -> int:
        stream = datasets.load_dataset("webdataset", data_files={"train": urls}, split="train", streaming=True)
        plain = stream.cast_column("jpg", datasets.Image(decode=False))
        return sum(1 for record in plain if record["jpg"]["bytes"])

    return drain


def spdl_http(urls: list[str], records: int) -> Drain:
    """Read tars with the C++ reader of SPDL, and group members by ten lines of Python."""
    from urllib.request import urlopen

    return lambda: sum(1 for url in urls for record in _spdl_records(urlopen(url)) if record["jpg"])  # noqa: S310


def spdl_files(paths: list[str], records: int) -> Drain:
    return lambda: sum(1 for path in paths for record in _spdl_records(Path(path).open("rb")) if record["jpg"])


def _spdl_records(source: Any) -> Iterator[dict[str, Any]]:
    import spdl.io

    record: dict[str, Any] = {}
    for name, content in spdl.io.iter_tarfile(source):
        key, _, field = name.partition(".")
        if record.get("__key__") != key:
            if record:
                yield record
            record = {"__key__": key}
        record[field] = content
    if record:
        yield record


def aistore_sdk(urls: list[str], records: int) -> Drain:
    """Read objects with AIStore's official client as a file, and the file with tarfile as a stream."""
    from aistore import Client

    def drain() -> int:
        return sum(1 for url in urls for record in _sdk_records(Client, url) if record["jpg"])

    return drain


def _sdk_records(client: Any, url: str) -> Iterator[dict[str, bytes]]:
    parts = urlsplit(url)
    bucket, name = parts.path.removeprefix("/v1/objects/").split("/", 1)
    reader = client(f"{parts.scheme}://{parts.netloc}").bucket(bucket).object(name).get_reader()
    with reader.as_file() as file, tarfile.open(fileobj=file, mode="r|") as tar:
        yield from records_of(tar)


def records_of(tar: tarfile.TarFile) -> Iterator[dict[str, bytes]]:
    """Yield the records that tarfile reads: consecutive members with one key."""
    record: dict[str, bytes] = {}
    for member in tar:
        key, _, field = member.name.partition(".")
        if record and record["__key__"] != key.encode():
            yield record
            record = {}
        file = tar.extractfile(member)
        assert file is not None
        record["__key__"] = key.encode()
        record[field] = file.read()
    if record:
        yield record


def grain_array_record(paths: list[str], records: int) -> Drain:
    """Read ArrayRecord files with grain's data source, in order, many records in each call, as bytes without parsing.

    This is the fastest way we found. `MapDataset` and `IterDataset` read one record at a time, which takes 20 times
    as long for 2 KB (with 0, 1, 2 or 16 threads and buffers up to 500; the default is slowest).
    """
    import grain

    files = _array_records(paths)
    source = grain.sources.ArrayRecordDataSource(files)
    size = sum(Path(file).stat().st_size for file in files) // records
    together = _GRAIN_TOGETHER if size < _GRAIN_LARGE else _GRAIN_TOGETHER // 4

    def drain() -> int:
        begins = range(0, len(source), together)
        batches = (source.__getitems__(range(at, min(at + together, len(source)))) for at in begins)
        return sum(1 for batch in batches for record in batch if record)

    return drain


def _array_records(paths: list[str]) -> list[str]:
    import ais_tar2tf as t2t

    out = Path(paths[0]).with_name(f"{Path(paths[0]).stem}-{len(paths)}-array-record")
    return [str(each) for each in t2t.open(paths).export(out, format="array_record", workers=1, progress=False)]


# Bytes without records


def curl_streams(urls: list[str], records: int) -> Drain:
    """Download with curl, several transfers at a time. curl does not count records, so `records` is returned."""
    outputs = [part for url in urls for part in ("-o", "/dev/null", url)]
    command = ["curl", "-s", "-f", "-L", "--parallel", "--parallel-max", str(_STREAMS), *outputs]

    def drain() -> int:
        subprocess.run(command, check=True)
        return records

    return drain


def tar_extract(paths: list[str], records: int) -> Drain:
    """Unpack the shards with `tar -x` into memory. Reading the files is not included."""

    def drain() -> int:
        with scratch() as folder:
            for path in paths:
                subprocess.run(["tar", "-x", "-f", path, "-C", str(folder)], check=True)
        return records

    return drain


def copy(paths: list[str], records: int) -> Drain:
    """Copy the shards into memory with `cp`: the minimum time to write the bytes once."""

    def drain() -> int:
        with scratch() as folder:
            subprocess.run(["cp", *paths, str(folder)], check=True)
        return records

    return drain


# Batches


def dali(paths: list[str], records: int) -> Drain:
    """Read local webdataset shards with DALI on the CPU, mapped into memory."""
    from nvidia.dali import fn, pipeline_def

    @pipeline_def(batch_size=_BATCH, num_threads=os.cpu_count() or 1, device_id=None)
    def fields() -> Any:
        return tuple(fn.readers.webdataset(paths=paths, ext=["jpg", "cls"], missing_component_behavior="error"))

    pipeline = fields()
    pipeline.build()

    def drain() -> int:
        for _ in range(-(-records // _BATCH)):
            pipeline.run()
        return records

    return drain


def tfrecord_batches(paths: list[str], records: int) -> Drain:
    """Batch TFRecords first and parse whole batches, the fastest way in TensorFlow's guide."""
    import tensorflow as tf

    spec = {name: tf.io.FixedLenFeature((), tf.string) for name in ("key", "jpg", "cls")}
    dataset = tf.data.TFRecordDataset(paths, buffer_size=_RECORD_BUFFER).batch(_BATCH)
    dataset = dataset.map(lambda texts: tf.io.parse_example(texts, spec), num_parallel_calls=tf.data.AUTOTUNE)
    return _drained(dataset.prefetch(tf.data.AUTOTUNE), records)


def ours_batches(urls: list[str], records: int) -> Drain:
    import ais_tar2tf as t2t

    fields = ("__key__", "jpg", "cls")
    chosen = t2t.open(urls).dataset(lambda record: {name: record[name] for name in fields}, batch=_BATCH)
    return _drained(chosen, records)


def _drained(dataset: Any, records: int) -> Drain:
    """Read all batches. `skip` reads all but the last one in C++."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False  # as for all readers in readers.py
    batches = -(-records // _BATCH)
    dataset = dataset.with_options(options)

    def drain() -> int:
        (last,) = list(dataset.skip(batches - 1))
        return (batches - 1) * _BATCH + int(last["jpg"].shape[0])

    return drain


# Images: decoded, resized to 224 × 224, batched


def ours_pictures(urls: list[str], records: int) -> Drain:
    return _pictures(urls, None)


def pictures_in_parallel(calls: int) -> Callable[[list[str], int], Drain]:
    """Return our reader with this many concurrent calls of the mapping."""
    return lambda urls, _: _pictures(urls, calls)


def _pictures(urls: list[str], parallel: int | None) -> Drain:
    import ais_tar2tf as t2t

    source = t2t.open(urls)
    return _all_batches(
        source.dataset(
            lambda record: _picture(record["jpg"], record["cls"]),
            batch=_PICTURES,
            parallel=parallel,
        )
    )


def ours_pictures_scaled(urls: list[str], records: int) -> Drain:
    """Decode images with JPEG's own scaling, which `at_least` allows."""
    import ais_tar2tf as t2t

    decode = t2t.ops.Decode("jpg", channels=3, at_least=_SIZE)

    def small(record: Any) -> Any:
        return _resized(decode(record)["jpg"]), _label(record["cls"])

    return _all_batches(t2t.open(urls).dataset(small, batch=_PICTURES))


def tfrecord_pictures(paths: list[str], records: int) -> Drain:
    """Decode images in TensorFlow's own pipeline over local files, with a call for each core.

    AUTOTUNE would start slower.
    """
    import tensorflow as tf

    spec = {name: tf.io.FixedLenFeature((), tf.string) for name in ("jpg", "cls")}

    def parse(text: Any) -> Any:
        example = tf.io.parse_single_example(text, spec)
        return _picture(example["jpg"], example["cls"])

    dataset = tf.data.TFRecordDataset(paths, buffer_size=_RECORD_BUFFER).map(parse, os.cpu_count())
    return _all_batches(dataset.batch(_PICTURES).prefetch(tf.data.AUTOTUNE))


def old_client_pictures(urls: list[str], records: int) -> Drain:
    """Decode images as the previous client did: in a generator, one record after another."""
    import tensorflow as tf

    from tests.benchmarks.readers import old_client_records

    def generate() -> Iterator[Any]:
        for record in old_client_records(urls):
            yield _picture(record["jpg"], record["cls"])

    spec = (tf.TensorSpec((*_SIZE, 3), tf.float32), tf.TensorSpec((), tf.int32))
    return _all_batches(tf.data.Dataset.from_generator(generate, output_signature=spec).batch(_PICTURES))


def _picture(encoded: Any, label: Any) -> Any:
    import tensorflow as tf

    return _resized(tf.io.decode_jpeg(encoded, channels=3)), _label(label)


def _resized(pixels: Any) -> Any:
    import tensorflow as tf

    return tf.ensure_shape(tf.image.resize(pixels, _SIZE), (*_SIZE, 3))


def _label(label: Any) -> Any:
    import tensorflow as tf

    return tf.strings.to_number(label, tf.int32)


def _all_batches(dataset: Any) -> Drain:
    return lambda: sum(int(labels.shape[0]) for _, labels in dataset)


# One small field of large records


def selection(*fields: str, indexed: bool = False) -> Callable[[list[str], int], Drain]:
    def reader(urls: list[str], records: int) -> Drain:
        import ais_tar2tf as t2t

        folder = tempfile.TemporaryDirectory(prefix="t2t-benchmarks-")  # removed when the reader is garbage collected
        if indexed:
            t2t.index(urls, out=f"{folder.name}/index.t2t", progress=False)

        def drain() -> int:
            with t2t.open(urls, index=f"{folder.name}/index.t2t" if indexed else False) as source:
                return sum(1 for record in source.select(*fields).records() if record["cls"])

        return drain

    return reader


def streams(connections: int) -> Callable[[list[str], int], Drain]:
    """Return our reader with this many connections."""

    def reader(urls: list[str], records: int) -> Drain:
        import ais_tar2tf as t2t

        def drain() -> int:
            with t2t.open(urls, connections=connections) as source:
                return sum(1 for record in source.records() if record["jpg"])

        return drain

    return reader


def _in_python(reader: Callable[[list[str], int], Drain]) -> Callable[[list[str], int], Drain]:
    """Let a reader of ours read without the native step."""

    def read(urls: list[str], records: int) -> Drain:
        os.environ["AIS_TAR2TF_NATIVE"] = "0"
        return reader(urls, records)

    return read


PEERS = {
    "hugging-face": hugging_face,
    "aistore-sdk": aistore_sdk,
    "spdl": spdl_http,
    "spdl-files": spdl_files,
    "grain": grain_array_record,
    "curl-streams": curl_streams,
    "tar-x": tar_extract,
    "cp": copy,
    "dali": dali,
    "tfrecord-batches": tfrecord_batches,
    "ours-batches": ours_batches,
    "ours-batches-files": ours_batches,
    "ours-batches-python": _in_python(ours_batches),
    "ours-batches-files-python": _in_python(ours_batches),
    "ours-pictures": ours_pictures,
    "ours-pictures-scaled": ours_pictures_scaled,
    **{f"ours-pictures-{calls}": pictures_in_parallel(calls) for calls in PARALLEL},
    "tfrecord-pictures": tfrecord_pictures,
    "old-client-pictures": old_client_pictures,
    "ours-selected": selection("cls"),
    "ours-selected-indexed": selection("cls", indexed=True),
    "ours-unselected": selection("cls", "jpg"),
    **{f"ours-streams-{count}": streams(count) for count in STREAMS},
}

PEERS_WITHOUT_TENSORFLOW = frozenset(
    {
        "hugging-face",
        "aistore-sdk",
        "spdl",
        "spdl-files",
        "grain",
        "curl-streams",
        "tar-x",
        "cp",
        "dali",
        "ours-selected",
        "ours-selected-indexed",
        "ours-unselected",
        *(f"ours-streams-{count}" for count in STREAMS),
    }
)
"""Readers for which TensorFlow is not imported, because it would only slow them."""
