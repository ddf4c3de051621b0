"""The readers, ours and the peers': functions from shards to a function that reads all records and counts them.

Only reading is measured, not building a reader, because users build a dataset and its graph once (our dataset reads a
first record meanwhile). Every peer reads as its documentation advises, or in a faster way that a comment describes.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.benchmarks import tornet
from tests.benchmarks.codec import CODECS
from tests.benchmarks.peers import PEERS, PEERS_WITHOUT_TENSORFLOW, records_of

__all__ = ["READERS", "WITHOUT_TENSORFLOW", "Drain", "Reader"]

Drain = Callable[[], int]
"""Reads everything and returns the number of records."""

Reader = Callable[[list[str], int], Drain]
"""Takes URLs of shards (paths for local readers) and their number of records."""

_FIELDS = ("__key__", "jpg", "cls")

_RECORD_BUFFER = 8 * 1024 * 1024  # read-ahead of TFRecord files that TensorFlow's performance guide advises
_READ = 1024 * 1024


# Plain records


def ours_records(urls: list[str], records: int) -> int:
    import ais_tar2tf as t2t

    with t2t.open(urls) as source:
        return _count(source.records())


def ours_records_python(urls: list[str], records: int) -> int:
    """Read without the native step."""
    os.environ["AIS_TAR2TF_NATIVE"] = "0"
    return ours_records(urls, records)


def webdataset_records(urls: list[str], records: int) -> int:
    return _count(_webdataset(urls))


def _webdataset(urls: list[str]) -> Any:
    """Read through a pipe from curl, as webdataset's README does. Its HTTP reader does the same without a shell."""
    import webdataset

    return webdataset.WebDataset([f"pipe:curl -s -L {url}" for url in urls], shardshuffle=False)


def old_client_records(urls: list[str]) -> Iterator[dict[str, bytes]]:
    """Read as the previous client did: download a whole shard, then open it with tarfile."""
    import requests

    for url in urls:
        content = requests.get(url, timeout=60).content
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            yield from records_of(tar)


def curl(urls: list[str], records: int) -> int:
    """Download with one curl, shard by shard. curl does not count records, so `records` is returned unchecked."""
    outputs = [part for url in urls for part in ("-o", "/dev/null", url)]
    subprocess.run(["curl", "-s", "-f", "-L", *outputs], check=True)
    return records


def isal_alone(paths: list[str], records: int) -> int:
    """Decompress the same bytes from local files with isal, without parsing them."""
    from isal import igzip

    for path in paths:
        with igzip.open(path) as stream:
            while stream.read(_READ):
                pass
    return records


def zstd_alone(paths: list[str], records: int) -> int:
    """Decompress the same bytes from local files with zstd."""
    from backports import zstd

    for path in paths:
        with zstd.open(path) as stream:
            while stream.read(_READ):
                pass
    return records


def lz4_alone(paths: list[str], records: int) -> int:
    """Decompress the same bytes from local files with lz4."""
    import lz4.frame

    for path in paths:
        with lz4.frame.open(path) as stream:
            while stream.read(_READ):
                pass
    return records


def our_decoder(paths: list[str], records: int) -> int:
    """Decompress with our decoder alone, in blocks of the size that a store returns."""
    from ais_tar2tf.archive.decompression import FrameDecoder
    from ais_tar2tf.archive.sniff import FormatSniffer
    from ais_tar2tf.options import Limits

    buffer = memoryview(bytearray(2 * _READ))
    for path in paths:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            count = file.readinto(buffer)
            kind, _ = FormatSniffer(path).feed(buffer[:count])
            decoder = FrameDecoder(path, Limits(), kind)
            while count:
                for _ in decoder.feed(buffer[:count]):
                    pass
                count = file.readinto(buffer)
        decoder.finish()
    return records


# Into tf.data: single records, each a dict of bytes. `skip` reads all but the last record in C++, and none of these
# datasets has a shortcut for it. So neither a Python loop nor the copies of a batch are measured.


def ours_dataset(urls: list[str], records: int) -> Drain:
    import ais_tar2tf as t2t

    dataset = t2t.open(urls).dataset(lambda record: {name: record[name] for name in _FIELDS})
    return lambda: _drain(dataset, records)


def ours_shuffled(urls: list[str], records: int) -> Drain:
    """Read in shuffled order: four shards at once, a window of 2,048 records."""
    import ais_tar2tf as t2t

    chosen = t2t.open(urls).dataset(lambda record: {name: record[name] for name in _FIELDS}, shuffle=True, seed=1)
    return lambda: _drain(chosen, records)


def webdataset_dataset(urls: list[str], records: int) -> Drain:
    dataset = _from_generator(_webdataset(urls))
    return lambda: _drain(dataset, records)


def old_client_dataset(urls: list[str], records: int) -> Drain:
    dataset = _from_generator(old_client_records(urls))
    return lambda: _drain(dataset, records)


def _from_generator(records: Iterable[dict[str, Any]]) -> Any:
    import tensorflow as tf

    spec = {name: tf.TensorSpec((), tf.string) for name in _FIELDS}
    return tf.data.Dataset.from_generator(
        lambda: ({name: record[name] for name in _FIELDS} for record in records), output_signature=spec
    )


def tfrecord_single(paths: list[str], records: int) -> Drain:
    dataset = _parsed(paths, parallel=False)
    return lambda: _drain(dataset, records)


def tfrecord_single_parallel(paths: list[str], records: int) -> Drain:
    dataset = _parsed(paths, parallel=True)
    return lambda: _drain(dataset, records)


def _parsed(paths: list[str], *, parallel: bool) -> Any:
    """Parse record by record. Parallel calls are faster for 100 KB, but slower for 2 KB."""
    import tensorflow as tf

    spec = {name: tf.io.FixedLenFeature((), tf.string) for name in ("key", "jpg", "cls")}
    records = tf.data.TFRecordDataset(paths, buffer_size=_RECORD_BUFFER)
    calls = tf.data.AUTOTUNE if parallel else None
    return records.map(lambda text: tf.io.parse_single_example(text, spec), num_parallel_calls=calls).prefetch(
        tf.data.AUTOTUNE
    )


def _drain(dataset: Any, records: int) -> int:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = (
        False  # for all readers, as in our datasets, because its thread can delay the end of an iterator
    )
    dataset = dataset.with_options(options)
    return records - 1 + len(list(dataset.skip(records - 1)))


def _count(records: Iterable[Any]) -> int:
    count = 0
    for record in records:
        if record["jpg"]:
            count += 1
    return count


def _unprepared(reader: Callable[[list[str], int], int]) -> Reader:
    """Wrap a reader that has nothing to prepare."""
    return lambda urls, records: lambda: reader(urls, records)


READERS: dict[str, Reader] = {
    "ours-records": _unprepared(ours_records),
    "ours-files": _unprepared(ours_records),
    "ours-records-python": _unprepared(ours_records_python),
    "ours-files-python": _unprepared(ours_records_python),
    "ours-dataset": ours_dataset,
    "ours-shuffled": ours_shuffled,
    "webdataset-records": _unprepared(webdataset_records),
    "webdataset-dataset": webdataset_dataset,
    "old-client-dataset": old_client_dataset,
    "tfrecord-single": tfrecord_single,
    "tfrecord-single-parallel": tfrecord_single_parallel,
    "curl": _unprepared(curl),
    "isal": _unprepared(isal_alone),
    "zstd": _unprepared(zstd_alone),
    "lz4": _unprepared(lz4_alone),
    "our-decoder": _unprepared(our_decoder),
    **CODECS,
    **PEERS,
    **tornet.READERS,
}

WITHOUT_TENSORFLOW = PEERS_WITHOUT_TENSORFLOW | frozenset(
    {
        "ours-records",
        "ours-records-python",
        "ours-files",
        "ours-files-python",
        "webdataset-records",
        "curl",
        "isal",
        "zstd",
        "lz4",
        "our-decoder",
        "ours-export",
        "ours-export-2",
        "tornet-xarray",
        "tornet-random",
        "tornet-build-1",
        "tornet-build-2",
    }
)
