"""tf.data service over exported files, with dispatcher and workers in this process and in others."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import ExportError
from tests.support.record_folders import ROOT, source

COUNTS = [30, 13, 40, 1, 25]
KEYS = sorted(f"n{shard}/{number:06d}" for shard, count in enumerate(COUNTS) for number in range(count))


@pytest.fixture(scope="module")
def exported_folder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("exported")
    t2t.open(source(folder / "in", COUNTS)).export(folder / "out", shard_records=10, workers=1)
    return str(folder / "out")


@pytest.fixture(scope="module")
def here():
    """Start a dispatcher and two workers in this process."""
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    workers = [service.WorkerServer(service.WorkerConfig(dispatcher_address=address)) for _ in range(2)]
    yield dispatcher.target
    for worker in workers:
        worker._stop()
    dispatcher._stop()


def keys(dataset) -> list[str]:
    return sorted(each["__key__"].numpy().decode() for each in dataset)


def test_each_record_is_read_once(exported_folder, here):
    for shuffle in (None, 20):
        dataset = t2t.cluster.service.dataset(here, exported_folder, shuffle=shuffle, seed=1 if shuffle else None)
        assert dataset.cardinality().numpy() == len(KEYS)
        assert keys(dataset) == KEYS


def test_mapped_and_batched_by_the_workers(exported_folder, here):
    dataset = t2t.cluster.service.dataset(
        here, exported_folder, map=lambda record: tf.strings.length(record["jpg"]), batch=8
    )
    sizes = sorted(int(each) for batch in dataset for each in batch)
    assert sizes == sorted(len(record["jpg"]) for record in t2t.load(exported_folder))


def test_every_worker_reads_everything(exported_folder, here):
    assert keys(t2t.cluster.service.dataset(here, exported_folder, sharing="off")) == sorted(2 * KEYS)


def test_files_that_workers_cannot_read_are_refused(exported_folder, here, tmp_path):
    template = source(tmp_path / "in", [3])
    t2t.open(template).export(tmp_path / "tar", format="tar", workers=1)
    t2t.open(template).export("memory://service/out", workers=1)
    for place in (tmp_path / "tar", "memory://service/out"):
        with pytest.raises(ExportError, match="TFRecord files in a folder"):
            t2t.cluster.service.dataset(here, place)
    with pytest.raises(ValueError, match="sharing"):
        t2t.cluster.service.dataset(here, exported_folder, sharing="some")


@pytest.mark.full
def test_dispatcher_and_two_workers_in_processes_of_their_own(exported_folder):
    processes = []

    def start(*arguments: str) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "ais_tar2tf.cluster.service", *arguments],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        processes.append(process)
        return process.stdout.readline().strip()

    try:
        target = start("dispatcher")
        for _ in range(2):
            start("worker", "--dispatcher", target.partition("://")[2])
        assert keys(t2t.cluster.service.dataset(target, exported_folder)) == KEYS
        assert keys(t2t.cluster.service.dataset(target, exported_folder, sharing="off")) == sorted(2 * KEYS)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)
            process.stdout.close()
    assert [process.returncode for process in processes] == [0, 0, 0]
