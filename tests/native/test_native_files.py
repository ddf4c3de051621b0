"""Large members of local tars are read from the file, with the same results as in pure Python."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.archive import Members, TarReader, tar
from ais_tar2tf.base import file_bytes
from ais_tar2tf.base.file_bytes import FileBytes, raise_unread
from ais_tar2tf.errors import ObjectChanged, Tar2TFError, TransportError
from ais_tar2tf.fetch import files as fetch_files
from ais_tar2tf.native.operation import cut_library
from ais_tar2tf.options import MIB, Limits
from ais_tar2tf.tfdata.liveness import free_unused
from tests.support import shards as made
from tests.support import tar_mutations as mutations
from tests.support.tar_members import ENGINES, Found, members_of, members_read, needs_native

KB = 1000
_MOST_PREFETCHED = 5
pytestmark = needs_native


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of members that each walk of a file finds."""
    found: list[int] = []
    walk = TarReader.walk

    def noting(reader: TarReader, *arguments: object) -> object:
        members = walk(reader, *arguments)  # type: ignore[arg-type]
        if members is not None:
            found.append(members.total)
        return members

    monkeypatch.setattr(TarReader, "walk", noting)
    return found


@pytest.fixture
def any_size_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make small members count as large, so that small archives reach all cases."""
    monkeypatch.setattr(tar, "_LARGE_BODY", 1)


def large(count: int, size: int = 100 * KB, name: str = "s") -> dict[str, dict[str, bytes]]:
    chance = random.Random(name)
    return {f"{name}{n:04d}": {"jpg": chance.randbytes(size), "cls": b"%d" % n} for n in range(count)}


def written(path: Path, content: dict[str, dict[str, bytes]]) -> Path:
    path.write_bytes(made.tar(content.items()))
    return path


def rows_of(dataset: Iterable[dict[str, tf.Tensor]]) -> Iterator[tuple[bytes, bytes, bytes]]:
    for batch in dataset:
        yield from zip(*(batch[name].numpy().tolist() for name in ("__key__", "jpg", "cls")), strict=True)


# The same members and records


def members_in_file(path: Path, step: int) -> Found:
    """Read a tar from its file where that is possible, and otherwise in blocks of `step` bytes."""
    data, reader = FileBytes(path, "shard"), TarReader("shard", Limits(), headers="native")

    def groups() -> Iterator[Members]:
        while reader.position < len(data):
            reader._in_file = True  # as after large members
            members = reader.walk(data, len(data), 5_000)
            at = reader.position
            if members is None:
                yield from reader.feed(data[at : min(at + step, len(data))])
            else:
                yield members

    return members_read(reader, groups())


@pytest.mark.usefixtures("any_size_is_large")
@pytest.mark.parametrize("seed", range(4))
def test_mutated_archives_are_read_alike_from_files(seed: int, tmp_path: Path, walks: list[int]) -> None:
    chance, path = random.Random(seed), tmp_path / "a.tar"
    for data in mutations.mutations(700, 3_000 + seed):
        path.write_bytes(data)
        assert members_in_file(path, chance.choice([512, 700, 5_000])) == members_of(data, "careful", len(data) or 1)
    assert sum(walks) > 200


@settings(max_examples=40)
@given(st.data())
def test_any_members_are_read_alike_from_files(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _compare_engines(data, Path(folder, "a.tar"))


def _compare_engines(data: st.DataObject, path: Path) -> None:
    out = io.BytesIO()
    tar_format = data.draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for number in range(data.draw(st.integers(1, 12))):
            if data.draw(st.integers(0, 5)) == 0:
                folder = tarfile.TarInfo(f"folder{number}")
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
            for field in data.draw(st.sampled_from([("jpg", "cls"), ("jpg",), ("cls", "jpg"), ("x", "jpg", "cls")])):
                name = "n" * data.draw(st.sampled_from([1, 1, 1, 99, 180])) + f"/{number:04d}.{field}"
                if tar_format == tarfile.USTAR_FORMAT:
                    name = name[-100:]
                member = tarfile.TarInfo(name)
                member.size = data.draw(st.sampled_from([0, 1, 600, 33 * KB, 120 * KB, 300 * KB]))
                member.mtime = number + (0.5 if tar_format == tarfile.PAX_FORMAT else 0)
                archive.addfile(member, io.BytesIO(random.Random(number).randbytes(member.size)))
    cut = data.draw(st.sampled_from([None, None, 100 * KB, 300 * KB]))
    path.write_bytes(out.getvalue()[:cut])
    fields = data.draw(st.sampled_from([None, ("jpg", "cls?"), ("cls?",), ("x?", "big=jpg?")]))
    results = []
    for name in ENGINES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIS_TAR2TF_NATIVE", "0" if name == "python" else "1")
            patch.setattr(fetch_files, "_MIN_BLOCK", 250 * KB)
            source = t2t.open(path, on_error="skip-record", limits=Limits(read_ahead_bytes=MIB))
            source = source if fields is None else source.select(*fields)
            error = ""
            found = []
            try:
                found += source.records()
            except Tar2TFError as caught:
                error = f"{type(caught).__name__}: {caught}"
            stats = source.stats
            results.append((found, error, stats.records_read, dict(stats.skipped), stats.ignored))
    assert results[0] == results[1]


@pytest.mark.parametrize("share", [(0, 1), (1, 3)])
def test_datasets_have_the_same_records_in_both_engines(
    tmp_path: Path, use: Callable[[str], None], walks: list[int], share: tuple[int, int]
) -> None:
    content = [large(90, name=f"s{number}") for number in range(2)]
    for number, records in enumerate(content):
        written(tmp_path / f"{number}.tar", records)
    expected = [
        (key.encode(), fields["jpg"], fields["cls"]) for records in content for key, fields in records.items()
    ]
    found = {}
    for name in ENGINES:
        use(name)
        source = t2t.open(f"{tmp_path}/{{0..1}}.tar")
        found[name] = list(rows_of(source.dataset(batch=32, shard=share)))
        assert bool(walks) is (name == "native")
        walks.clear()
    assert found["native"] == found["python"]
    if share == (0, 1):
        assert found["native"] == expected


def test_a_checkpoint_of_one_engine_is_continued_by_the_other(tmp_path: Path, use: Callable[[str], None]) -> None:
    content = large(150)
    expected = [key.encode() for key in content]
    written(tmp_path / "a.tar", content)

    def keys() -> Iterator[tf.Tensor]:
        return iter(t2t.open(tmp_path / "a.tar").dataset(lambda r: (r["__key__"], r["jpg"])))

    for saved, other in (ENGINES, ENGINES[::-1]):
        use(saved)
        iterator = keys()
        assert [next(iterator)[0].numpy() for _ in range(77)] == expected[:77]
        tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
        use(other)
        iterator = keys()
        tf.train.Checkpoint(iterator=iterator).read(str(tmp_path / "saved")).expect_partial()
        rest = [(key.numpy().decode(), jpg.numpy()) for key, jpg in iterator]
        assert rest == [(key, fields["jpg"]) for key, fields in [*content.items()][77:]]


def test_an_index_has_the_same_places_in_both_engines(tmp_path: Path, use: Callable[[str], None]) -> None:
    written(tmp_path / "a.tar", large(60))
    found = []
    for name in ENGINES:
        use(name)
        t2t.index(tmp_path / "a.tar", out=tmp_path / name)
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1]


def test_unselected_fields_are_not_read(tmp_path: Path) -> None:
    written(tmp_path / "a.tar", large(60, 1000 * KB))
    source = t2t.open(tmp_path / "a.tar").select("cls")
    before = _bytes_read()
    assert [int(record["cls"]) for record in source.records()] == list(range(60))
    assert _bytes_read() - before < 2_000 * KB
    assert 60 < source.stats.bytes < 200 * KB
    before = _bytes_read()
    assert sum(int(batch["cls"].shape[0]) for batch in source.dataset(batch=10)) == 60
    assert _bytes_read() - before < 4_000 * KB


def _bytes_read() -> int:
    """Return how many bytes this process has read by system calls."""
    return int(Path("/proc/self/io").read_text().split()[1])


# Files that change


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def _cut(path: Path) -> None:
    os.truncate(path, 10 * 1000 * KB)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(35 * 1000 * KB)
        file.write(b"other bytes")


@pytest.mark.parametrize("change", [_append, _cut, _overwrite])
@pytest.mark.parametrize("name", ENGINES)
def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, use: Callable[[str], None], change: Callable[[Path], None], name: str
) -> None:
    use(name)
    path = written(tmp_path / "a.tar", large(400))
    found = iter(t2t.open(path).dataset(batch=2))
    for _ in range(3):
        next(found)
    change(path)
    with pytest.raises(ObjectChanged, match=r"a\.tar: the file was written to while it was read"):
        for _ in found:
            pass


@pytest.mark.parametrize("change", [_append, _cut, _overwrite])
@pytest.mark.parametrize("name", ENGINES)
def test_a_file_that_changes_is_not_the_fault_of_a_mapping(
    tmp_path: Path, use: Callable[[str], None], change: Callable[[Path], None], name: str
) -> None:
    use(name)

    def number(record: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.strings.to_number(record["cls"]) + tf.cast(tf.strings.length(record["jpg"]), tf.float32)

    for options in ({}, {"batch": 2}, {"batch": 2, "drop_remainder": True}):
        path = written(tmp_path / "a.tar", large(400))
        found = iter(t2t.open(path).dataset(number, **options))
        next(found)
        change(path)
        with pytest.raises(ObjectChanged, match=r"a\.tar: the file was written to while it was read"):
            for _ in found:
                pass


@pytest.mark.parametrize("options", [{}, {"batch": 2}])
def test_what_tensorflow_could_not_read_is_not_the_fault_of_a_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, int]
) -> None:
    """Give TensorFlow another state of the file, so that it reads nothing. Python finds the file unchanged."""
    path = written(tmp_path / "a.tar", large(120))
    numbers = FileBytes.numbers.fget
    assert numbers is not None
    another = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    dataset = t2t.open(path).dataset(lambda record: tf.strings.to_number(record["cls"]), **options)
    monkeypatch.setattr(FileBytes, "numbers", property(lambda file: numbers(file) + another))
    with pytest.raises(TransportError, match=r"a\.tar: reading failed"):
        list(dataset)


def test_nothing_is_lost_after_a_failed_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[str], None]
) -> None:
    """A program that catches the error goes on with the chunk that failed, and so does a checkpoint saved then."""
    use("native")
    content = large(400)
    dataset = t2t.open(written(tmp_path / "a.tar", content)).dataset(batch=5)
    iterator = iter(dataset)
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    found = [next(iterator)]

    def read_on() -> None:
        for batch in iterator:
            found.append(batch)

    numbers = FileBytes.numbers.fget
    assert numbers is not None
    another = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    with monkeypatch.context() as patched:
        patched.setattr(FileBytes, "numbers", property(lambda file: numbers(file) + another))
        with pytest.raises(TransportError, match=r"a\.tar: reading failed"):
            read_on()
        for _ in range(2):
            with pytest.raises(TransportError, match=r"a\.tar: reading failed"):
                next(iterator)
        path = checkpoint.write(str(tmp_path / "checkpoint"))
    before = list(rows_of(found))
    assert len(before) < 400
    expected = [(key.encode(), fields["jpg"], fields["cls"]) for key, fields in content.items()]
    assert before + rows_after_errors(iterator) == expected
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).read(path).assert_consumed()
    assert before + rows_after_errors(again) == expected


def rows_after_errors(iterator: Iterator[dict[str, tf.Tensor]]) -> list[tuple[bytes, bytes, bytes]]:
    """Return the other rows of an iterator. Its first elements may be errors that tf.data has prefetched."""
    for _ in range(_MOST_PREFETCHED):
        with contextlib.suppress(TransportError):
            return [*rows_of([next(iterator)]), *rows_of(iterator)]
    raise AssertionError("the iterator has more errors than tf.data prefetches")


def test_a_changed_file_is_noticed_though_no_field_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tar", large(400))
    found = iter(t2t.open(path).select("cls?").records())
    next(found)
    _overwrite(path)
    with pytest.raises(ObjectChanged, match=r"a\.tar: the file was written to"):
        list(found)


@pytest.mark.parametrize("name", ENGINES)
def test_a_file_that_is_replaced_is_read_to_its_end(tmp_path: Path, use: Callable[[str], None], name: str) -> None:
    use(name)
    path = written(tmp_path / "a.tar", content := large(200))
    found = rows_of(t2t.open(path).dataset(batch=1))
    keys = [next(found)[0] for _ in range(3)]
    written(tmp_path / "b.tar", large(200, name="other")).replace(path)
    assert keys + [key for key, _, _ in found] == [key.encode() for key in content]


def test_files_are_open_only_as_long_as_they_are_used(tmp_path: Path) -> None:
    for number in range(8):
        written(tmp_path / f"{number}.tar", large(30, name=f"s{number}"))
    dataset = t2t.open(f"{tmp_path}/{{0..7}}.tar").dataset(batch=8)
    assert len(list(rows_of(dataset))) == 240
    gc.collect()
    free_unused()
    assert not _open_tars(tmp_path)
    iterator = rows_of(dataset)
    for _ in range(100):
        next(iterator)
    assert len(_open_tars(tmp_path)) < 7


def _open_tars(folder: Path) -> list[str]:
    paths = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            paths.append(str(each.readlink()))
        except FileNotFoundError:  # the folder that is listed
            continue
    return [path for path in paths if path.startswith(str(folder))]


def test_shards_are_skipped_alike(tmp_path: Path, use: Callable[[str], None]) -> None:
    for number in range(3):
        written(tmp_path / f"{number}.tar", large(50, name=f"s{number}"))
    os.truncate(tmp_path / "1.tar", 2_000 * KB)
    found = []
    for name in ENGINES:
        use(name)
        source = t2t.open(f"{tmp_path}/{{0..2}}.tar", on_error="skip-shard")
        keys = [key for key, _, _ in rows_of(source.dataset(batch=4))]
        found.append((keys, source.stats.records_read, dict(source.stats.skipped)))
    assert found[0] == found[1]
    assert found[0][2] == {"TruncatedArchive": 1}


# The operation


def _cut_all(file: FileBytes, starts: list[int], sizes: list[int]) -> tuple[bool, list[bytes]]:
    is_read, (field,) = cut_library().ais_tar2tf_cut(
        [np.frombuffer(b"block", np.uint8)], file.numbers[None], np.array([starts]), np.array([sizes]), F=1
    )
    return bool(is_read), field.numpy().tolist()


def test_the_operation_reads_from_files(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(300 * KB)
    (tmp_path / "a").write_bytes(content)
    file = FileBytes(tmp_path / "a", "a")
    places = [(0, 5), (1, 3), (5, 0), (5, 22), (6, 23), (1_005, 200 * KB), (5 + 300 * KB, 0), (5, 300 * KB)]
    expected = [(b"block" + content)[start : start + size] for start, size in places]
    assert _cut_all(file, *map(list, zip(*places, strict=True))) == (True, expected)
    for start, size in ((4, 2), (5, 300 * KB + 1), (-1, 1), (6 + 300 * KB, 0), (5, -1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="outside of its block"):
            _cut_all(file, [start], [size])


def test_the_operation_notices_changed_files(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def is_read_after(change: Callable[[], object]) -> bool:
        path.unlink(missing_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, ns=(1, 1))
        file = FileBytes(path, "a")
        assert _cut_all(file, [5], [100]) == (True, [bytes(100)])
        change()
        is_read = _cut_all(file, [5], [100])[0]
        try:
            file.check()
        except ObjectChanged:
            assert not is_read
            with pytest.raises(ObjectChanged, match="a: the file was written to"):
                raise_unread(file.numbers[:1])
        else:
            assert is_read
            with pytest.raises(TransportError, match="a: reading failed"):
                raise_unread(file.numbers[:1])
        return is_read

    def overwrite() -> None:
        path.write_bytes(b"x" * 100)
        os.utime(path, ns=(1, 1))

    assert not is_read_after(lambda: path.write_bytes(b"x" * 100))
    assert not is_read_after(overwrite)  # only `status_changed` shows it
    assert not is_read_after(lambda: os.truncate(path, 50))
    assert not is_read_after(lambda: os.utime(path, ns=(2, 2)))
    assert is_read_after(lambda: path.chmod(0o600))
    assert is_read_after(lambda: os.link(path, tmp_path / f"b{random.random()}"))
    assert is_read_after(path.unlink)


def test_a_closed_descriptor_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    (tmp_path / "b").write_bytes(bytes(100))
    numbers = FileBytes(tmp_path / "a", "a").numbers  # nobody keeps the file open
    starts, sizes = np.array([[1]]), np.array([[100]])
    blocks = [np.zeros(1, np.uint8)]
    assert not cut_library().ais_tar2tf_cut(blocks, numbers[None], starts, sizes, F=1)[0]
    reused = FileBytes(tmp_path / "b", "b")
    assert reused.numbers[0] == numbers[0]
    assert not cut_library().ais_tar2tf_cut(blocks, numbers[None], starts, sizes, F=1)[0]


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(content := random.Random(1).randbytes(1_000))
    file, pread = FileBytes(tmp_path / "a", "a"), os.pread
    monkeypatch.setattr(file_bytes.os, "pread", lambda descriptor, size, at: pread(descriptor, min(size, 7), at))
    preadv = os.preadv
    monkeypatch.setattr(file_bytes.os, "preadv", lambda descriptor, views, at: preadv(descriptor, [views[0][:7]], at))
    assert file[3:900] == content[3:900]
    with pytest.raises(TransportError, match="it ended 1 bytes early"):
        file[990:1001]


def test_blocks_are_used_for_small_members(tmp_path: Path, walks: list[int]) -> None:
    written(tmp_path / "a.tar", large(500, 10 * KB))
    assert len(list(t2t.open(tmp_path / "a.tar").records())) == 500
    assert not walks


@pytest.mark.usefixtures("any_size_is_large")
def test_a_member_that_begins_in_a_block_is_read_from_its_header_on(tmp_path: Path, walks: list[int]) -> None:
    assert fetch_files._FIRST_BLOCK < 40 * KB  # the first block ends within the first member
    written(tmp_path / "a.tar", content := large(3, 40 * KB))
    found = {record["__key__"]: record["jpg"] for record in t2t.open(tmp_path / "a.tar").records()}
    assert found == {key: fields["jpg"] for key, fields in content.items()}
    assert sum(walks) == 6
