"""`remote_exec`: a cluster's ETL gives the same results as the local mapping. The embedded server calls the ETL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ais_tar2tf as t2t
from ais_tar2tf.cluster.etl import Transformer, running, start, stop
from ais_tar2tf.errors import SchemaError, StoreError
from ais_tar2tf.ops import Convert, Decode, Rename, Resize, SelectDict, SelectJSON, SelectList
from tests.support import shards as made

CONVERSIONS = [
    Rename(image="jpg;png"),
    Decode("image", channels=3),
    Resize("image", (8, 9)),
    Convert("cls", "int32"),
]
SELECTIONS = [
    SelectDict({"picture": "image", "more": SelectList([SelectJSON("json", "id", dtype="int64"), "__key__"])}),
    "cls",
    "txt",
]
PATH = {"conversions": CONVERSIONS, "selections": [SelectDict({"image": "image", "label": "cls"})]}


def to_example(record: dict[str, Any]) -> dict[str, Any]:
    return {"key": record["__key__"], "size": len(record["jpg"])}


def fields(number: int) -> dict[str, bytes]:
    said = b'{"id": %d}' % number
    return {"jpg": made.image(number), "cls": b" %d" % number, "json": said, "txt": b"text %d" % number}


@pytest.fixture(scope="module")
def transformer_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[t2t.serve]:
    """A server with an ETL for each definition that the tests below use."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "b").mkdir()
    for shard in range(3):
        (folder / "b" / f"train-{shard}.tar").write_bytes(made.labelled(f"n{shard}", 5, fields))
    definitions = [
        t2t.AisDataset("b", "any", conversions=CONVERSIONS, selections=SELECTIONS).transformer().definition,
        t2t.AisDataset("b", "any", **PATH).transformer(files=True).definition,
        Transformer(record_to_example=to_example).definition,
        Transformer().definition,
    ]
    services = [Transformer.of(definition).serve() for definition in definitions]
    names = {each.name: service.url for each, service in zip(definitions, services, strict=True)}
    with t2t.serve(folder, transformers=names) as server:
        yield server
    for service in services:
        service.close()


def alike(ours: Any, theirs: Any) -> None:
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = tuple(ours.values()), tuple(theirs.values())
    if isinstance(ours, tuple):
        for mine, other in zip(ours, theirs, strict=True):
            alike(mine, other)
        return
    assert ours.dtype == theirs.dtype if hasattr(ours, "dtype") else type(ours) is type(theirs)
    np.testing.assert_array_equal(ours, theirs)


def test_a_remote_dataset_equals_the_local_one(transformer_cluster: t2t.serve) -> None:
    with t2t.AisDataset("b", transformer_cluster.url, conversions=CONVERSIONS, selections=SELECTIONS) as ais:
        here = list(ais.load("train-{0..2}.tar", remote_exec=False).as_numpy_iterator())
        assert ais.executed == "here: remote_exec=False"
        for wanted in (True, None):
            there = list(ais.load("train-{0..2}.tar", remote_exec=wanted).as_numpy_iterator())
            assert ais.executed.startswith("in the cluster: by the ETL 't2t-")
            assert len(there) == len(here) == 15
            for ours, theirs in zip(here, there, strict=True):
                alike(ours, theirs)
    assert any("etl_name=" in each.query for each in transformer_cluster.requests)


@pytest.mark.parametrize("how", ["ops", "function", "default"])
@pytest.mark.parametrize("options", [{}, {"max_shard_size": 3_000}])
def test_remote_files_have_the_same_bytes_as_local_ones(
    transformer_cluster: t2t.serve, tmp_path: Path, how: str, options: dict[str, Any]
) -> None:
    function = to_example if how == "function" else None
    with t2t.AisDataset("b", transformer_cluster.url, **(PATH if how == "ops" else {})) as ais:
        files: dict[bool, list[bytes]] = {}
        for remote in (False, True):
            path = str(tmp_path / f"{remote}-{{}}.record")
            written = ais.load(
                "train-{0..2}.tar", path=path, record_to_example=function, remote_exec=remote, **options
            )
            assert ais.executed.startswith("in the cluster" if remote else "here")
            files[remote] = [Path(each).read_bytes() for each in written]
    assert files[False] == files[True]


@pytest.mark.parametrize(
    ("made_with", "asked_for", "why"),
    [
        ({"conversions": [lambda record: record], "selections": ["cls"]}, {}, "nothing is pickled"),
        ({"selections": ["nothing-runs-this"]}, {}, "no ETL 't2t-"),
        ({}, {}, "selections say what comes back"),
        ({"selections": ["cls"], "on_error": "skip-record"}, {}, "on_error='raise'"),
        ({}, {"path": "x", "record_to_example": lambda record: record}, "no function of a module"),
    ],
)
def test_unsupported_remote_work_is_done_locally_or_refused(
    transformer_cluster: t2t.serve, tmp_path: Path, made_with: Any, asked_for: Any, why: str
) -> None:
    with t2t.AisDataset("b", transformer_cluster.url, **made_with) as ais:
        with pytest.raises((SchemaError, StoreError), match=why):
            ais.load("train-0.tar", remote_exec=True, **asked_for)
        choice = ais._execution_place(None, asked_for.get("record_to_example"), files="path" in asked_for)
        assert choice.etl is None
        assert ais.executed.startswith("here: ")


def test_an_error_in_the_cluster_names_the_record(transformer_cluster: t2t.serve, tmp_path: Path) -> None:
    folder = Path(tmp_path / "b")
    folder.mkdir()
    (folder / "bad.tar").write_bytes(made.tar([("r/0", {"jpg": b"no picture", "cls": b"1"})]))
    with (
        Transformer().serve() as service,
        t2t.serve(tmp_path, transformers={Transformer().name: service.url}) as own,
        t2t.AisDataset("b", own.url) as ais,
        pytest.raises(StoreError, match="record 'r/0'"),
    ):
        ais.load("bad.tar", path=tmp_path / "x", remote_exec=True)
    assert not (tmp_path / "x").exists()


@pytest.mark.servers("aistore")
def test_a_real_cluster_without_etls_is_an_error(aistore: Any, transformer_cluster: t2t.serve) -> None:
    assert running(aistore.url) is None
    with pytest.raises(StoreError, match="-tags=etl and to run on Kubernetes"):
        start(Transformer().spec(image="x"), aistore.url)
    assert Transformer().name in (running(transformer_cluster.url) or [])
    with pytest.raises(StoreError):
        stop("nothing", transformer_cluster.url)
