"""Selecting members in the cluster reads fewer bytes, and returns the same records as reading whole shards."""

from __future__ import annotations

import contextlib
import io
import random
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.errors import (
    DuplicateKey,
    MissingField,
    ObjectChanged,
    StoreError,
    StrayMember,
    Tar2TFError,
    TransportError,
)
from ais_tar2tf.options import Limits
from ais_tar2tf.records import Selection, members_pattern, splitter
from ais_tar2tf.source import Source
from ais_tar2tf.stores import Identity, ObjectInfo
from ais_tar2tf.stores.ais import AisStore, ShardMembers
from ais_tar2tf.streams.arguments import read_options
from ais_tar2tf.streams.in_cluster.store import decide
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name

LARGE = bytes(100_000)


@pytest.fixture(scope="module")
def extraction_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[t2t.serve]:
    with t2t.serve(tmp_path_factory.mktemp("extraction")) as server:
        yield server


@pytest.fixture(params=["extraction_server", pytest.param("real", marks=pytest.mark.servers("aistore"))])
def endpoint(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("extraction_server" if request.param == "extraction_server" else "aistore").url


class Bucket:
    def __init__(self, endpoint: str) -> None:
        self.name = new_name()
        self.endpoint = endpoint
        self.store = AisStore(self.name, read_options(), endpoint=endpoint)
        self.store.create()

    def open(self, names: str = "t-{0..2}.tar", **options: Any) -> Source:
        return t2t.open(f"ais://{self.name}/{names}", endpoint=self.endpoint, **options)


@pytest.fixture
def bucket(endpoint: str) -> Iterator[Bucket]:
    found = Bucket(endpoint)
    yield found
    found.store.close()


def fill(bucket: Bucket, shards: int = 3) -> None:
    for number in range(shards):
        fields = {"bin": LARGE, "cls": b"%d" % number, "json": b"{}", "seg.PNG": b"s" * number}
        bucket.store.put(f"t-{number}.tar", made.labelled(f"n{number}", 9, lambda _, f=fields: f))


@pytest.mark.parametrize("grouping", ["first-dot", "last-dot"])
@pytest.mark.parametrize("fields", [("cls",), ("json", "cls"), ("class=nothing;cls", "seg.png?"), ("png?", "cls?")])
def test_selection_gives_the_same_records_from_fewer_bytes(
    bucket: Bucket, grouping: str, fields: tuple[str, ...]
) -> None:
    fill(bucket)
    with bucket.open(grouping=grouping) as src:
        try:
            whole = src.select(*fields, in_cluster=False)
            expected: Any = list(whole.records())
        except Tar2TFError as error:
            expected = str(error)
        chosen = src.select(*fields)
        before = src.stats.bytes
        try:
            found: Any = list(chosen.records())
        except Tar2TFError as error:
            found = str(error)
        assert found == expected
        if isinstance(expected, list):
            assert (chosen.extracted.shards, chosen.extracted.whole_shards) == (3, 0)
            assert src.stats.bytes - before == chosen.extracted.member_bytes < before / 20
            assert chosen.extracted.listed_bytes < chosen.extracted.whole_bytes / 20
            assert src.stats.records_emitted == 2 * len(expected)


def test_selection_can_be_forced_and_forbidden(bucket: Bucket) -> None:
    fill(bucket)
    with bucket.open() as src:
        for how, fields, shards in ((True, ("bin", "cls"), 3), (None, ("bin", "cls"), 0), (False, ("cls",), 0)):
            chosen = src.select(*fields, in_cluster=how)
            assert [sorted(each) for each in chosen.records()] == [sorted(["__key__", "__shard__", *fields])] * 27
            assert chosen.extracted.shards == shards
    with pytest.raises(StoreError, match="needs shards in AIStore"):
        t2t.open("memory://none/a.tar").select("cls", in_cluster=True)


def test_compressed_shards_and_tars_of_other_kinds(bucket: Bucket) -> None:
    rows = [
        (f"deep/{'x' * 120}/{number}é", {"bin": random.Random(number).randbytes(9_000), "cls": b"7"})
        for number in range(9)
    ]
    for number, kind in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        bucket.store.put(f"t-{number}.tar", made.tar(rows, tar_format=kind))
    bucket.store.put("t-0.tar.gz", made.gzipped(made.tar(rows, tar_format=tarfile.GNU_FORMAT)))
    for names in ("t-{0..1}.tar", "t-0.tar.gz"):
        with bucket.open(names) as src:
            expected = list(src.select("cls", in_cluster=False).records())
            chosen = src.select("cls")
            assert list(chosen.records()) == expected
            assert chosen.extracted.shards == len(list(src.shards))


# Shards with irregular content are read whole.


def tar_of(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            data = LARGE if name.endswith("bin") else name.encode()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("a.bin", "a.cls", "b.bin"), MissingField),
        (("a.bin", "a.cls", "stray", "b.bin", "b.cls"), StrayMember),
        (("a.bin", "a.cls", "a.cls"), Tar2TFError),
        (("a.cls", "a.bin", "b.bin", "b.cls", "a.json"), DuplicateKey),
    ],
)
def test_errors_are_those_of_reading_whole_shards(
    bucket: Bucket, names: tuple[str, ...], kind: type[Exception]
) -> None:
    bucket.store.put("t-0.tar", tar_of(*names))
    with bucket.open("t-0.tar", on_error="skip-record") as src:
        fields = ("cls", "json?") if "a.json" in names else ("cls",)
        expected = list(src.select(*fields, in_cluster=False).records())
        skipped = dict(src.stats.skipped)
        assert list(src.select(*fields, in_cluster=True).records()) == expected
        assert {name: count // 2 for name, count in src.stats.skipped.items()} == skipped
    with bucket.open("t-0.tar") as src, pytest.raises(kind):
        list(src.select(*fields).records())


def test_records_without_a_selected_field_are_still_records(bucket: Bucket) -> None:
    bucket.store.put("t-0.tar", tar_of("a.bin", "a.cls", "b.bin", "c.bin", "c.cls"))
    with bucket.open("t-0.tar") as src:
        chosen = src.select("cls?", in_cluster=True)
        assert [each["__key__"] for each in chosen.records()] == ["a", "b", "c"]
        assert chosen.extracted.whole_shards == 0
        assert chosen.extracted.shards == 0  # the first shard decides for all of them


def test_a_link_with_the_name_of_a_field_is_an_error(bucket: Bucket) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("a.cls", "b.cls"):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (tarfile.SYMTYPE, "a.cls") if name == "b.cls" else (tarfile.REGTYPE, "")
            archive.addfile(info, io.BytesIO())
    bucket.store.put("t-0.tar", buffer.getvalue())
    with bucket.open("t-0.tar") as src, pytest.raises(StoreError, match="in_cluster=False"):
        list(src.select("cls", in_cluster=True).records())


def test_a_function_as_grouping_and_too_many_members_are_read_whole(bucket: Bucket) -> None:
    bucket.store.put("t-0.tar", made.labelled("n", 3, lambda _: {"bin": LARGE, "cls": b"1"}))
    with bucket.open("t-0.tar", grouping=splitter("first-dot")) as src:
        chosen = src.select("cls", in_cluster=True)
        assert (len(list(chosen.records())), chosen.extracted.shards) == (3, 0)
    count = 10_001  # more than a page of AIStore's listing, which loses the rest
    bucket.store.put("t-1.tar", made.labelled("n", count, lambda _: {"cls": b"1"}))
    with bucket.open("t-1.tar") as src:
        chosen = src.select("cls", in_cluster=True)
        assert (sum(1 for _ in chosen.records()), chosen.extracted.shards) == (count, 0)


def test_a_shard_that_is_replaced_while_it_is_read_is_an_error(bucket: Bucket) -> None:
    """A shard is replaced between the listing of its members and the end of its body."""
    fill(bucket, 1)
    with bucket.open("t-0.tar") as src:
        selected = src.select("cls")
        shards = selected.opened.with_members
        body = shards.store.open("t-0.tar")
        bucket.store.put("t-0.tar", made.labelled("other", 9, lambda _: {"bin": LARGE, "cls": b"9"}))
        with pytest.raises(ObjectChanged, match="replaced while members of it were read"):
            drain(body)
        body.close()


def drain(body: Any) -> None:
    buffer = memoryview(bytearray(1 << 20))
    while body.readinto(buffer):
        pass


# Datasets, checkpoints, retries


def test_a_shard_that_is_replaced_by_one_to_be_read_whole(bucket: Bucket) -> None:
    """The number of records in the old listing does not count for the new shard, of which much is selected."""
    fill(bucket)
    with bucket.open() as src:
        chosen = src.select("cls")
        assert len(list(chosen.records())) == 27
        bucket.store.put("t-1.tar", made.labelled("new", 4, lambda _: {"cls": b"7"}))
        found = [record["__key__"] for record in chosen.records()]
        assert [key for key in found if key.startswith("new")] == [f"new/{n:06d}" for n in range(4)]
        assert len(found) == 22
        assert (chosen.extracted.shards, chosen.extracted.whole_shards) == (3, 1)
        fill(bucket)
        assert len(list(chosen.records())) == 27


def test_a_dataset_and_its_checkpoint(bucket: Bucket, tmp_path: Path) -> None:
    fill(bucket)

    def dataset(in_cluster: bool | None) -> tuple[Source, Any]:
        chosen = bucket.open(limits=Limits(chunk_records=4)).select("cls", in_cluster=in_cluster)
        return chosen, chosen.dataset()

    whole = [record["__key__"] for record in dataset(False)[1].as_numpy_iterator()]
    source, chosen = dataset(None)
    iterator = iter(chosen)
    keys = [next(iterator)["__key__"].numpy() for _ in range(10)]
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    assert source.extracted.shards > 0
    again = iter(dataset(None)[1])
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert [*keys, *(record["__key__"].numpy() for record in again)] == whole
    other = iter(dataset(False)[1])
    tf.train.Checkpoint(iterator=other).restore(saved)
    with pytest.raises(ObjectChanged, match="replaced"):  # the records are at other offsets
        list(other)


def test_shuffled_and_indexed_datasets_are_read_whole_unless_forced(bucket: Bucket) -> None:
    fill(bucket)
    with bucket.open() as src:
        chosen = src.select("cls")
        shuffled = [each["__key__"] for each in chosen.dataset(shuffle=True, seed=1).as_numpy_iterator()]
        assert chosen.extracted.shards == 0
        forced = src.select("cls", in_cluster=True)
        again = [each["__key__"] for each in forced.dataset(shuffle=True, seed=1).as_numpy_iterator()]
        assert forced.extracted.shards == 3
        assert sorted(again) == sorted(shuffled)
    t2t.index(f"ais://{bucket.name}/t-{{0..2}}.tar", endpoint=bucket.endpoint)
    with bucket.open() as src:
        chosen = src.select("cls")
        assert len(list(chosen.dataset())) == len(chosen) == 27
        assert chosen.extracted.shards == 0
        assert chosen[13]["cls"] == b"1"
        assert len(list(chosen.records())) == 27
        assert chosen.extracted.shards == 3


# Pure


@given(
    data=st.data(),
    grouping=st.sampled_from(["first-dot", "last-dot"]),
    fields=st.lists(st.sampled_from(["jpg", "cls", "seg.png", "png", "a+b", "j(s)"]), min_size=1, unique=True),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_the_pattern_matches_the_selected_members_and_few_others(data: Any, grouping: str, fields: list[str]) -> None:
    """Test the pattern with Python's `re`. Go's regexp has the same syntax, as far as the pattern uses it."""
    import re

    selection = Selection(fields)
    pattern = members_pattern(grouping, sorted(selection.sources))
    assert pattern is not None
    part = st.text("aB.-é", min_size=0, max_size=4)
    folder, key = data.draw(st.sampled_from(["", "d/", "d.e/", "/", "./"])), data.draw(part)
    name = f"{folder}{key}.{data.draw(st.sampled_from([*fields, *(each.upper() for each in fields), 'txt', 'xjpg']))}"
    split = splitter(grouping)(name)
    wanted = split is not None and split[1] in selection.sources
    found = re.search(pattern, name) is not None
    assert found or not wanted
    if grouping == "first-dot":
        assert found == wanted


def listed(size: int, *members: tuple[str, int]) -> ShardMembers:
    return ShardMembers(ObjectInfo("s.tar", size, Identity()), list(members), 100 * len(members))


@pytest.mark.parametrize(
    ("inside", "fields", "members"),
    [
        (listed(1_000_000, ("a.cls", 1), ("a.jpg", 900_000)), ["cls"], True),
        (listed(1_000_000, ("a.cls", 1), ("a.jpg", 900_000)), ["cls", "jpg?"], False),  # no bytes are saved
        (listed(1_000_000, ("a.cls", 1), ("b.jpg", 900_000)), ["cls"], False),  # record b has no such field
        (listed(1_000_000, ("a.cls", 1), ("b.jpg", 900_000)), ["cls?"], False),  # record b would be lost
        (listed(1_000_000, ("a.cls", 1), ("a.CLS", 1)), ["cls"], False),  # the same field twice
        (listed(1_000_000, ("a.cls", 1), ("README", 1)), ["cls"], False),  # a member without a record
        (listed(1_000_000, ("a.cls", 1), ("._a.cls", 1)), ["cls"], True),  # a file that macOS adds, which is no data
        (listed(1_000_000), ["cls"], False),
    ],
)
def test_which_shards_are_read_by_members(inside: ShardMembers, fields: list[str], members: bool) -> None:
    choice = decide(inside, Selection(fields), "first-dot")
    assert choice.members is members
    if members:
        assert (choice.records, choice.size) == (1, 2048)


def test_after_a_failed_listing_shards_are_read_whole(extraction_server: t2t.serve, monkeypatch: Any) -> None:
    bucket = Bucket(extraction_server.url)
    fill(bucket)
    calls: list[str] = []

    def refused(self: AisStore, name: str) -> ShardMembers:
        calls.append(name)
        raise StoreError("no listing for you", url=name)

    monkeypatch.setattr(AisStore, "list_members", refused)
    with bucket.open() as src:
        chosen = src.select("cls")
        assert len(list(chosen.records())) == 27
        assert (calls, chosen.extracted.shards) == (["t-0.tar"], 0)
    bucket.store.close()


def failing(monkeypatch: Any, times: int, fault: type[StoreError] | None = TransportError) -> list[str]:
    """Make the first listings of members fail, and return a list to which the listed names are added.

    If `fault` is None, these listings raise no error, but may be incomplete.
    """
    whole, calls = AisStore.list_members, []

    def listed_members(self: AisStore, name: str) -> ShardMembers | None:
        calls.append(name)
        if len(calls) > times:
            return whole(self, name)
        if fault is None:
            return None
        raise fault("no listing for now", url=name)

    monkeypatch.setattr(AisStore, "list_members", listed_members)
    return calls


@pytest.mark.parametrize("how", [None, True])
def test_a_temporary_fault_does_not_end_the_selection(
    extraction_server: t2t.serve, monkeypatch: Any, how: bool | None
) -> None:
    bucket = Bucket(extraction_server.url)
    fill(bucket)
    calls = failing(monkeypatch, 1)
    with bucket.open() as src:
        chosen = src.select("cls", in_cluster=how)
        assert len(list(chosen.records())) == 27
        assert (chosen.extracted.shards, chosen.extracted.whole_shards) == (2, 1)
    assert calls == ["t-0.tar", "t-0.tar", "t-1.tar", "t-2.tar"]
    bucket.store.close()


def test_lasting_faults_end_the_selection(extraction_server: t2t.serve, monkeypatch: Any) -> None:
    bucket = Bucket(extraction_server.url)
    fill(bucket, 6)
    calls = failing(monkeypatch, 100)
    with bucket.open("t-{0..5}.tar") as src:
        chosen = src.select("cls")
        assert len(list(chosen.records())) == 54
        assert (calls, chosen.extracted.shards) == (["t-0.tar"] * 3, 0)
    bucket.store.close()


@pytest.mark.parametrize("fault", [TransportError, StoreError, None])
@pytest.mark.parametrize("name", ["t-0.tar", "t-1.tar"])
def test_a_shard_that_was_opened_whole_is_resumed_whole(
    extraction_server: t2t.serve, monkeypatch: Any, name: str, fault: type[StoreError] | None
) -> None:
    """The listing fails, the whole shard is opened, and its body breaks off. Then the listing works again."""
    bucket = Bucket(extraction_server.url)
    fill(bucket)
    with bucket.open() as src:
        store = src.select("cls").opened.with_members.store
        if name != "t-0.tar":
            store.open("t-0.tar").close()
        failing(monkeypatch, 1, fault)
        for start in (0, 1000):
            with contextlib.closing(store.open(name, start)) as body:
                assert (body.start, body.info.size) == (start, bucket.store.head(name).size)
    bucket.store.close()


def test_a_broken_body_is_resumed_with_the_same_members(extraction_server: t2t.serve, monkeypatch: Any) -> None:
    bucket = Bucket(extraction_server.url)
    fill(bucket)
    whole = AisStore.open_members
    broken = threading.Event()

    class Breaking:
        def __init__(self, body: Any) -> None:
            self.body, self.info, self.start, self.stop, self.left = body, body.info, 0, None, 700

        def readinto(self, buffer: memoryview) -> int:
            if self.left <= 0 and not broken.is_set():
                broken.set()
                raise TransportError("broken off", url="x")
            count = self.body.readinto(buffer if broken.is_set() else buffer[: max(1, self.left)])
            self.left -= count
            return count

        def close(self) -> None:
            self.body.close()

    def opened(self: AisStore, *arguments: Any, **options: Any) -> Any:
        body = whole(self, *arguments, **options)
        return body if broken.is_set() else Breaking(body)

    with bucket.open() as src:
        expected = list(src.select("cls", in_cluster=False).records())
        monkeypatch.setattr(AisStore, "open_members", opened)
        assert list(src.select("cls").records()) == expected
        assert broken.is_set()
        assert src.stats.resumes == 1
    bucket.store.close()
