"""Grouping rules compared with webdataset's, selection, and statistics of members that belong to no record."""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from webdataset.tariterators import base_plus_ext

import ais_tar2tf as t2t
from ais_tar2tf.archive import ListedMembers
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import (
    ArchiveError,
    DuplicateField,
    DuplicateKey,
    LimitExceeded,
    MissingField,
    RecordError,
    ShardNotFound,
    StrayMember,
    Tar2TFError,
    TruncatedArchive,
)
from ais_tar2tf.options import Limits
from ais_tar2tf.records import Grouper, Record, Records, Selection, Want, splitter
from ais_tar2tf.records.block_table import BlockTable
from ais_tar2tf.records.keys import KeySet, decode_joined
from ais_tar2tf.source import Source
from ais_tar2tf.stores.memory import MemoryStore

_buckets = itertools.count()


def tar_of(members: Iterable[tuple[str, bytes]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return made.getvalue()


def opened(*shards: Iterable[tuple[str, bytes]] | bytes | None, **options: Any) -> Source:
    """Open shards s-0.tar, s-1.tar, … in memory. None stands for a missing shard."""
    bucket = f"records-{next(_buckets)}"
    store = MemoryStore(bucket)
    store.create()
    for number, shard in enumerate(shards):
        if shard is not None:
            store.put(f"s-{number}.tar", shard if isinstance(shard, bytes) else tar_of(shard))
    return t2t.open(f"memory://{bucket}/s-{{0..{len(shards) - 1}}}.tar", **options)


def simple(first: int, count: int) -> list[tuple[str, bytes]]:
    """Return the members of records with a jpg and a cls."""
    return [(f"{at:04d}.{ext}", b"%d" % at) for at in range(first, first + count) for ext in ("jpg", "cls")]


def keys(records: Iterable[Record]) -> list[str]:
    return [record["__key__"] for record in records]


def names(first: int, count: int) -> list[str]:
    return [f"{at:04d}" for at in range(first, first + count)]


def read_until_error(source: Source) -> tuple[list[Record], Exception | None]:
    found: list[Record] = []
    try:
        found.extend(source.records())
    except Exception as error:  # noqa: BLE001  # whatever it is, the test looks at it
        return found, error
    return found, None


def assert_balanced(source: Source) -> None:
    stats = source.stats
    assert stats.records_read == stats.records_emitted + sum(stats.skipped.values())


# --- the rules ------------------------------------------------------------------------------------------------


def as_webdataset(name: str) -> tuple[str, str] | None:
    """Apply webdataset's rule, except for three kinds of names that only we refuse."""
    key, field = base_plus_ext(name)
    if key is None or not field:  # `a.` has no extension
        return None
    if key.endswith("/"):  # `a/.hidden`: no record is called `a/`
        return None
    return key, field.lower()


@settings(max_examples=1000, deadline=None)
@given(name=st.lists(st.text(alphabet="ab.É_ ", max_size=6), min_size=1, max_size=4).map("/".join))
@example(name="a/b.seg.PNG")
@example(name="v1.0/b.jpg")
@example(name=".bashrc")
@example(name="a/.hidden.jpg")
@example(name="a/b")
@example(name="a.d/b")
@example(name="b.")
@example(name="./b.jpg")
@example(name="../b.jpg")
@example(name="a..jpg")
@example(name="")
def test_first_dot_is_webdatasets_rule(name: str) -> None:
    parts = splitter("first-dot")(name)
    assert (parts if parts and parts[1] else None) == as_webdataset(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b.jpg", ("a/b", "jpg")),
        ("a/b.seg.PNG", ("a/b.seg", "png")),
        ("v1.0/b.jpg", ("v1.0/b", "jpg")),
        ("v1.0/b", None),
        ("b", None),
        (".bashrc", None),
        ("a/.bashrc", None),
        ("a/.x.jpg", ("a/.x", "jpg")),
        ("a/._x.jpg", None),
        ("._x.jpg", None),
        ("a.d/", None),
    ],
)
def test_last_dot(name: str, expected: tuple[str, str] | None) -> None:
    assert splitter("last-dot")(name) == expected


@given(
    key=st.text("ab/", min_size=1, max_size=8).filter(lambda key: not key.endswith("/")),
    field=st.text("xyz", min_size=1),
)
def test_the_rules_agree_on_one_dot(key: str, field: str) -> None:
    name = f"{key}.{field}"
    assert splitter("first-dot")(name) == splitter("last-dot")(name) == (key, field)


def test_unknown_rule() -> None:
    with pytest.raises(ValueError, match="first-dot, last-dot or a callable, not 'middle-dot'"):
        splitter("middle-dot")


def test_members_that_are_no_fields_are_ignored_and_counted() -> None:
    """Files of macOS and directories are ignored. Keys keep their folders, and extensions ignore case."""
    members = [("d/._a.jpg", b"mac"), ("d/a.JPG", b"1"), ("._b", b""), ("d/a.seg.PNG", b"2"), ("d/._a.cls", b"mac")]
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("d/link.jpg")
            info.type = kind
            tar.addfile(info)
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    for grouping, expected in (
        ("first-dot", [{"__key__": "d/a", "jpg": b"1", "seg.png": b"2"}]),
        ("last-dot", [{"__key__": "d/a", "jpg": b"1"}, {"__key__": "d/a.seg", "png": b"2"}]),
    ):
        source = opened(made.getvalue(), grouping=grouping)
        assert [{k: v for k, v in r.items() if k != "__shard__"} for r in source.records()] == expected
        assert source.stats.ignored == 7
        assert_balanced(source)


def test_a_users_grouping() -> None:
    """A user's grouping returns None to ignore a member, which is counted. It gets no directories."""

    def by_folder(name: str) -> tuple[str, str] | None:
        folder, _, rest = name.rpartition("/")
        assert rest
        return (folder, rest) if rest != "README" else None

    v7_directory = bytearray(tar_of([("r3/", b"")])[:512])
    v7_directory[156] = 0
    v7_directory[148:156] = b" " * 8
    v7_directory[148:156] = b"%06o\0 " % sum(v7_directory)
    data = bytes(v7_directory) + tar_of(
        [("r1/img.jpg", b"1"), ("r1/README", b"?"), ("r1/label", b"2"), ("r2/label", b"3")]
    )
    source = opened(data, grouping=by_folder)
    records = list(source.records())
    assert [(r["__key__"], r.get("img.jpg"), r["label"]) for r in records] == [("r1", b"1", b"2"), ("r2", None, b"3")]
    assert source.stats.ignored == 2
    assert_balanced(source)


def test_a_record_names_its_shard() -> None:
    source = opened(simple(0, 1), simple(1, 1))
    assert [record["__shard__"] for record in source.records()] == list(source.shards)


# --- selection ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("jpg", Want("jpg", ("jpg",))),
        ("JPG", Want("jpg", ("jpg",))),
        ("cls?", Want("cls", ("cls",), optional=True)),
        ("jpg;png", Want("jpg", ("jpg", "png"))),
        ("jpg;png?", Want("jpg", ("jpg", "png"), optional=True)),
        ("Image=JPG;png", Want("Image", ("jpg", "png"))),
        ("image=jpg?", Want("image", ("jpg",), optional=True)),
        ("seg.png", Want("seg.png", ("seg.png",))),
    ],
)
def test_selected_fields(text: str, want: Want) -> None:
    assert Want.parse(text) == want


@pytest.mark.parametrize("text", ["", "?", "=", "a=", "=a", ";", "a;", ";a", "a;;b", "a=;b", "=?"])
def test_invalid_selected_fields(text: str) -> None:
    with pytest.raises(ValueError, match="a field is asked for as"):
        Want.parse(text)


def test_a_field_selected_twice() -> None:
    for fields in (["jpg", "jpg"], ["jpg", "JPG"], ["a=jpg", "a=png"]):
        with pytest.raises(ValueError, match="selected twice"):
            Selection(fields)


def test_selection() -> None:
    members = [
        ("a.jpg", b"1"),
        ("a.cls", b"2"),
        ("b.png", b"3"),
        ("b.json", b"{}"),
        ("b.cls", b"4"),
        ("c.png", b"5"),
        ("c.jpg", b"6"),
    ]
    source = opened(members).select("image=jpg;png", "cls?")
    assert [(r["__key__"], r["image"], r.get("cls")) for r in source.records()] == [
        ("a", b"1", b"2"),
        ("b", b"3", b"4"),
        ("c", b"6", None),
    ]
    assert [sorted(record) for record in source.records()][1] == ["__key__", "__shard__", "cls", "image"]
    assert_balanced(source)


class _Watched(bytes):
    """Bytes that record which parts of them were copied."""

    taken: list[slice]

    def __getitem__(self, key: Any) -> Any:
        self.taken.append(key)
        return super().__getitem__(key)


def test_unselected_fields_are_not_copied() -> None:
    data = _Watched(b"j" * 100 + b"c" * 10 + b"J" * 100 + b"C" * 10)
    data.taken = []
    grouper = Grouper("s", Account(), Limits(record_bytes=50), selection=Selection(["cls"]))
    batch = grouper.add(
        ListedMembers(
            ["a.jpg", "a.cls", "b.jpg", "b.cls"], [0, 1, 2, 3], [0, 100, 110, 210], [100, 10, 100, 10], data
        )
    )
    records = [*batch.records, *grouper.finish().records]
    assert [record["cls"] for record in records] == [b"c" * 10, b"C" * 10]
    assert data.taken == [slice(100, 110), slice(210, 220)]
    assert [grouper.wants(name) for name in ("a.jpg", "a.cls", "x/y.CLS", "a", "._a.cls")] == [
        False,
        True,
        True,
        False,
        False,
    ]


# --- faults ---------------------------------------------------------------------------------------------------

MIDDLE: dict[str, tuple[list[tuple[str, bytes]], type[RecordError], str]] = {
    "field twice": (
        [("x.jpg", b"1"), ("x.cls", b"1"), ("x.JPG", b"2")],
        DuplicateField,
        "field 'jpg' is there twice",
    ),
    "unselected field twice": (
        [("x.jpg", b"1"), ("x.cls", b""), ("x.t", b""), ("x.t", b"")],
        DuplicateField,
        "'t' is there twice",
    ),
    "key again": ([("0000.jpg", b"1"), ("0000.cls", b"2")], DuplicateKey, "comes back after other records"),
    "field missing": (
        [("x.jpg", b"1"), ("x.txt", b"2")],
        MissingField,
        r"'cls' is missing \(there are: jpg, txt\).*'cls\?'",
    ),
    "no field there": ([("x.txt", b"1")], MissingField, r"'jpg' is missing \(there are: txt\)"),
    "no extension": ([("d/LICENSE", b"1")], StrayMember, "member 'd/LICENSE' has no extension"),
    "hidden": ([("d/.hidden", b"1")], StrayMember, "member 'd/.hidden' has no extension"),
    "nothing behind the dot": ([("x.", b"1")], StrayMember, "member 'x.' has no extension"),
}
FAULTS = pytest.mark.parametrize(("middle", "kind", "text"), MIDDLE.values(), ids=MIDDLE)


def with_fault(middle: list[tuple[str, bytes]], **options: Any) -> Source:
    """Return three shards of five records, with a fault after the second record of the middle one."""
    shard = simple(0, 2) + middle + simple(2, 3)
    return opened(simple(100, 5), shard, simple(200, 5), fields=["jpg", "cls"], **options)


WHOLE = names(100, 5) + names(0, 5) + names(200, 5)


@FAULTS
def test_faults_are_errors(middle: list[tuple[str, bytes]], kind: type[RecordError], text: str) -> None:
    """By default, a fault is an error, which comes after the records before it."""
    source = with_fault(middle)
    found, error = read_until_error(source)
    assert type(error) is kind
    assert error.shard == list(source.shards)[1]
    assert error.key in (middle[0][0].split(".")[0], middle[0][0])
    with pytest.raises(kind, match=text):
        list(source.records())
    kept_back = 1 if kind is StrayMember else 0  # a record that may still grow is not given yet
    assert keys(found) == WHOLE[: 7 - kept_back]
    assert_balanced(source)


def noting(seen: list[Tar2TFError]) -> Callable[[Tar2TFError], bool]:
    """An `on_error` that records each error and skips the record."""

    def skip(error: Tar2TFError) -> bool:
        seen.append(error)
        return True

    return skip


@FAULTS
@pytest.mark.parametrize("on_error", ["skip-record", "skip-shard", "callable"])
def test_faults_can_be_skipped(
    middle: list[tuple[str, bytes]], kind: type[RecordError], text: str, on_error: str
) -> None:
    """A faulty record is skipped, also with skip-shard, and counted by its reason."""
    seen: list[Tar2TFError] = []
    source = with_fault(middle, on_error=noting(seen) if on_error == "callable" else on_error)
    assert keys(source.records()) == WHOLE
    assert source.stats.skipped == {kind.__name__: 1}
    assert source.stats.records_read == 16
    assert_balanced(source)
    assert [type(error) for error in seen] == ([kind] if on_error == "callable" else [])


@FAULTS
def test_a_callable_may_stop(middle: list[tuple[str, bytes]], kind: type[RecordError], text: str) -> None:
    class StopHereError(Exception):
        pass

    def stop(error: Tar2TFError) -> None:
        raise StopHereError from error

    found, error = read_until_error(with_fault(middle, on_error=stop))
    assert isinstance(error, StopHereError)
    assert type(error.__cause__) is kind
    assert keys(found) == WHOLE[: len(found)]


def test_a_missing_field_is_an_error_that_lists_the_fields() -> None:
    with pytest.raises(MissingField, match=r"'jpg or png' is missing \(there are: cls, txt\); select .*\?' if"):
        list(opened([("a.txt", b""), ("a.cls", b"")], fields=["image=jpg;png"]).records())


@pytest.mark.parametrize("field", ["jpg", "jpg;png", "image=jpg", "image=jpg;png"])
def test_the_advice_for_a_missing_field_asks_for_the_same_field(field: str) -> None:
    with pytest.raises(MissingField, match=rf"select '{field}\?' if it may be absent"):
        list(opened([("a.txt", b""), ("a.cls", b"")], fields=[field]).records())


def test_on_error_is_checked() -> None:
    with pytest.raises(
        ValueError, match="on_error is one of raise, skip-record, skip-shard or a callable, not 'ignore'"
    ):
        opened(simple(0, 1), on_error="ignore")


def test_every_member_is_accounted_for() -> None:
    twice = [("q.jpg", b""), ("q.jpg", b""), ("q.cls", b"")]
    members = [*simple(0, 3), ("LICENSE", b""), ("._x", b""), ("0001.txt", b""), *twice]
    source = opened(members, fields=["jpg", "cls"], on_error="skip-record")
    assert keys(source.records()) == names(0, 3)
    assert source.stats.skipped == {"StrayMember": 1, "DuplicateKey": 1, "DuplicateField": 1}
    assert source.stats.ignored == 1
    assert (source.stats.records_read, source.stats.records_emitted) == (6, 3)
    assert_balanced(source)


# --- skipped shards -------------------------------------------------------------------------------------------


def _truncated() -> bytes:
    data = tar_of(simple(0, 20))
    return data[: 21 * 1024 + 700]  # inside the second member of the eleventh record


def _corrupt() -> bytes:
    data = bytearray(tar_of(simple(0, 20)))
    data[20 * 1024 + 3] ^= 1
    return bytes(data)


def _zero_block() -> bytes:
    data = bytearray(tar_of(simple(0, 20)))
    data[20 * 1024 : 20 * 1024 + 512] = bytes(512)
    return bytes(data)


BAD_SHARDS: dict[str, tuple[Callable[[], bytes | None], type[Tar2TFError], Sequence[int]]] = {
    "truncated": (_truncated, TruncatedArchive, (10,)),
    "corrupt": (_corrupt, ArchiveError, (9, 10)),  # the tenth record might still have grown
    "early end mark": (_zero_block, ArchiveError, (9, 10)),
    "empty": (lambda: b"", TruncatedArchive, (0,)),
    "missing": (lambda: None, ShardNotFound, (0,)),
    "no tar": (lambda: b"<html>" * 200, ArchiveError, (0,)),
}
BAD = pytest.mark.parametrize(("make", "kind", "before"), BAD_SHARDS.values(), ids=BAD_SHARDS)


@BAD
@pytest.mark.parametrize("on_error", ["skip-shard", "callable"])
def test_a_bad_shard_can_be_skipped(
    make: Callable[[], bytes | None], kind: type[Tar2TFError], before: Sequence[int], on_error: str
) -> None:
    """Records before the fault and all other shards are read. The skipped shard is counted once."""
    seen: list[Tar2TFError] = []
    source = opened(
        simple(100, 5), make(), simple(200, 5), on_error=noting(seen) if on_error == "callable" else on_error
    )
    found = keys(source.records())
    assert found in [names(100, 5) + names(0, count) + names(200, 5) for count in before]
    assert sum(source.stats.skipped.values()) == 1
    assert source.stats.records_read == len(found) + 1
    assert source.stats.shards == 3
    assert_balanced(source)
    assert all(isinstance(error, kind) for error in seen)


@BAD
@pytest.mark.parametrize("on_error", ["raise", "skip-record"])
def test_a_bad_shard_is_an_error(
    make: Callable[[], bytes | None], kind: type[Tar2TFError], before: Sequence[int], on_error: str
) -> None:
    source = opened(simple(100, 5), make(), simple(200, 5), on_error=on_error)
    found, error = read_until_error(source)
    assert isinstance(error, kind)
    assert "s-1.tar" in str(error)
    assert keys(found) in [names(100, 5) + names(0, count) for count in before]
    assert_balanced(source)


# --- limits ---------------------------------------------------------------------------------------------------


def _big_record() -> list[tuple[str, bytes]]:
    return [*simple(0, 3), ("x.a", b"1" * 60), ("x.b", b"2" * 60), *simple(3, 2)]


def _many_fields() -> list[tuple[str, bytes]]:
    return [*simple(0, 3), *((f"x.f{at}", b"") for at in range(6)), *simple(3, 2)]


@pytest.mark.parametrize(
    ("limits", "members", "field"),
    [
        (Limits(record_bytes=119), _big_record(), "record_bytes"),
        (Limits(fields=5), _many_fields(), "fields"),
        (Limits(keys=3), simple(0, 6), "keys"),
    ],
)
def test_limits(limits: Limits, members: list[tuple[str, bytes]], field: str) -> None:
    source = opened(members, simple(100, 2), limits=limits)
    found, error = read_until_error(source)
    assert isinstance(error, LimitExceeded)
    assert f"Limits.{field}" in str(error)
    assert keys(found) == names(0, 3)
    assert error.offset in (
        6 * 1024,
        7 * 1024,
    )  # the offset of the record's first member, or of the member above the limit
    source = opened(members, simple(100, 2), limits=limits, on_error="skip-shard")
    assert keys(source.records()) == names(0, 3) + names(100, 2)
    assert source.stats.skipped == {"LimitExceeded": 1}
    assert_balanced(source)


def test_limits_that_are_just_reached() -> None:
    limits = Limits(record_bytes=120, fields=6, keys=6)
    for members in (_big_record(), _many_fields(), simple(0, 6)):
        assert len(list(opened(members, limits=limits).records())) == 6


def test_one_key_with_endless_fields() -> None:
    """Fields are counted while a record grows, selected or not, instead of at its end."""
    for selection in (None, Selection(["jpg"])):
        grouper = Grouper("s", Account(), Limits(fields=100), selection=selection)
        fifty = (
            [ListedMembers([f"x.{n}-{at}" for at in range(50)], [0] * 50, [0] * 50, [0] * 50, b"")] for n in range(3)
        )
        for _ in range(2):
            grouper.add(*next(fifty))
        with pytest.raises(LimitExceeded, match=r"Limits\.fields"):
            grouper.add(*next(fifty))


def test_a_failure_comes_after_the_records_before_it() -> None:
    """The position is that of the failed record, so that resuming neither skips nor repeats a record."""
    grouper = Grouper("s", Account(), Limits(keys=2))
    batch = grouper.add(
        ListedMembers([f"{at}.x" for at in range(5)], [at * 1024 for at in range(5)], [0] * 5, [0] * 5, b"")
    )
    assert keys(batch.records) == ["0", "1"]
    assert grouper.pending_offset == 2048
    for go_on in (lambda: grouper.add(ListedMembers([], [], [], [], b"")), grouper.finish):
        with pytest.raises(LimitExceeded):
            go_on()


@given(st.lists(st.tuples(st.lists(st.sampled_from(["", "a", "b", "c/1", "c/2", "\udcff", "é"])), st.booleans())))
def test_keys_are_a_set(steps: list[tuple[list[str], bool]]) -> None:
    """The set of keys behaves like a set for any order of keys, added one by one or many at a time."""
    keys, model = KeySet(), set[str]()
    for added, ordered in steps:
        if ordered:
            added = sorted(set(added))
        are_new = len(set(added)) == len(added) and model.isdisjoint(added)
        if ordered and added and "".join(added).isascii():
            joined = "".join(f"{key}\0" for key in added).encode()
            assert decode_joined(joined) == added
            assert keys.add_ascending(joined, len(added)) == are_new
        else:
            assert keys.add_all(added) == are_new
        if are_new:
            model.update(added)
        assert len(keys) == len(model)
        assert not any(keys.add(key) for key in model)
    assert keys.add("z")
    assert keys.add("y")
    assert not keys.add_all(["z", "y"])


_RECORDS = st.lists(
    st.sampled_from([("__key__", "a"), ("__key__", "a", "b"), ("__key__", "b", "a")]).flatmap(
        lambda names: st.fixed_dictionaries(dict.fromkeys(names, st.binary(max_size=3)))
    ),
    max_size=6,
)


@given(st.lists(_RECORDS, max_size=4), st.integers(0, 12), st.integers(0, 12), st.integers(1, 3), st.randoms())
def test_records_are_a_sequence_however_they_are_kept(
    parts: list[list[Record]], begin: int, end: int, step: int, random: Random
) -> None:
    """Records in columns, in blocks, and single records are equal, with their fields in the same order."""
    records, model = Records(), list[Record]()
    for part in parts:
        if random.random() < 0.3 and part and len({tuple(record) for record in part}) == 1:
            columns = {name: [record[name] for record in part] for name in part[0]}
            records.extend(Records.from_columns(BlockTable.of(columns)))
        elif len(part) % 2:
            records.extend(Records(part))
        else:
            one_by_one = Records()
            for record in part:
                one_by_one.append(record)
            records.extend(one_by_one)
        model += part
    assert [list(each.items()) for each in records] == [list(each.items()) for each in model]
    assert len(records) == len(model)
    assert [records[at] for at in range(len(model))] == model
    step = 1 if records.block_table else step
    assert [*records[begin:end:step]] == model[begin:end:step]
    assert [*records.column("a", b"")] == [record.get("a", b"") for record in model]
    order = random.sample(range(len(model)), len(model))
    assert [*records.permuted(order)] == [model[at] for at in order]
    left = [*model[:begin], *model[begin:][max(0, end - begin) :]]
    assert [*records.take_out(begin, end)] == model[begin:end]
    assert len(records) == len(model)
    if begin <= end:
        assert [records[at] for at in range(len(model)) if not begin <= at < end] == left


# Reserved names

RESERVED = ["__key__", "__shard__", "__KEY__"]


@pytest.mark.parametrize("grouping", ["first-dot", "last-dot", lambda name: tuple(name.split("."))])
@pytest.mark.parametrize("field", RESERVED)
@pytest.mark.parametrize("count", [1, 50])
def test_a_member_cannot_replace_a_records_key_or_shard(field: str, grouping: Any, count: int) -> None:
    """This holds for records in columns as for single ones; formerly, 46 of 50 records had one key."""
    members = [
        (f"r{number}.{each}", b"%d" % number if each == "jpg" else b"same")
        for number in range(count)
        for each in ("jpg", field)
    ]
    if callable(grouping) and field == "__KEY__":  # a function chooses the field names itself
        return
    with opened(members, grouping=grouping, on_error="skip-record") as source:
        records = list(source.records())
    assert [(record["__key__"], record["jpg"]) for record in records] == [
        (f"r{number}", b"%d" % number) for number in range(count)
    ]
    assert all(record["__shard__"].endswith("/s-0.tar") for record in records)
    assert source.stats.skipped == {"StrayMember": count}
    with opened(members, grouping=grouping) as source, pytest.raises(StrayMember, match="would replace the record's"):
        list(source.records())


@pytest.mark.parametrize("field", ["__key__", "__shard__"])
def test_a_selection_cannot_replace_a_records_key_or_shard(field: str) -> None:
    for wanted in (field, f"{field}=jpg", f"{field}?"):
        with pytest.raises(ValueError, match="come with every record"):
            Selection([wanted])
    with opened([("a.jpg", b"1"), (f"a.{field}", b"2")]) as source:
        assert [record["jpg"] for record in source.select("jpg").records()] == [b"1"]


# Memory of keys


def long_names(count: int, length: int) -> bytes:
    """Return a tar with ascending keys and PAX headers."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(count):
            info = tarfile.TarInfo(f"{number:08d}{'k' * length}.cls")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"1"))
    return made.getvalue()


def test_the_bytes_of_keys_are_bounded() -> None:
    shard = gzip.compress(long_names(300, 40_000), 9)
    assert len(shard) < 200_000
    with opened(shard, limits=Limits(key_bytes=4_000_000)) as source, pytest.raises(LimitExceeded, match="key_bytes"):
        list(source.records())
    with opened(shard) as source:
        assert len(list(source.records())) == 300


def test_long_keys_are_remembered_in_little_memory() -> None:
    keys = KeySet()
    tracemalloc.start()
    try:
        for number in range(2_000):
            assert keys.add(f"{number:08d}" + "k" * 20_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 << 20  # the keys together have 40 MB
    assert not keys.add(f"{7:08d}" + "k" * 20_000)
    assert not keys.add(f"{1_999:08d}" + "k" * 20_000)
    assert (len(keys), keys.size) == (2_000, 2_000 * 20_008)
