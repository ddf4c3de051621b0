"""A cluster that can sort: what the cluster package will rest on is there."""

from __future__ import annotations

import pytest
import requests

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.source import read_options
from ais_tar2tf.stores.ais import AisStore
from places import new_name
from tests.servers.aistore import AIStore
from tests.servers.process import wait_until

pytestmark = [pytest.mark.full, pytest.mark.servers("dsort")]


def test_shards_are_sorted_into_others(aistore_dsort: AIStore) -> None:
    bucket = new_name()
    store = AisStore(bucket, read_options(), endpoint=aistore_dsort.url)
    store.create()
    for number in range(4):
        store.put(f"in-{number}.tar", made.labelled(f"n{number}", 10))
    store.close()
    asked = {
        "input_bck": {"name": bucket, "provider": "ais"},
        "output_bck": {"name": bucket, "provider": "ais"},
        "input_format": {"template": "in-{0..3}"},
        "output_format": "out-{0..7}",
        "input_extension": ".tar",
        "output_extension": ".tar",
        "output_shard_size": "10KB",
        "algorithm": {"kind": "alphanumeric", "decreasing": False},
        "dsorter_type": "dsort_general",
    }
    answer = requests.post(f"{aistore_dsort.url}/v1/sort", json=asked, timeout=20)
    assert answer.ok, answer.text
    job = answer.text.strip().strip('"')

    def finished() -> bool:
        jobs = requests.get(f"{aistore_dsort.url}/v1/sort", timeout=10).json()
        found = next(each for each in jobs if each["id"] == job)
        assert not found.get("aborted"), found
        return not found["finish_time"].startswith("0001-")

    wait_until(finished, "the sort ends")
    with t2t.open(f"ais://{bucket}/out-*.tar", endpoint=aistore_dsort.url) as src:
        keys = [record["__key__"] for record in src.records()]
    assert keys == [f"n{number}/{at:06d}" for number in range(4) for at in range(10)]
