"""The native step finds the same members and records as pure Python, stays within its block, and can be left out."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.base.allocation import aligned_array, aligned_bytes
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.fetch import buffers, ranges, receiver
from ais_tar2tf.fetch import files as fetch_files
from ais_tar2tf.native import build, engine, gather, library
from ais_tar2tf.native.operation import cut_library
from ais_tar2tf.options import Limits, Read
from ais_tar2tf.records import BlockTable, Grouper, Records, Selection
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.datasets.shares import open_stream
from ais_tar2tf.streams.order import Plan, Position
from ais_tar2tf.streams.reader import ReadSession, Shards
from ais_tar2tf.tfdata.columns import BLOCKS, packed
from tests.support import shards as made
from tests.support import tar_mutations as mutations
from tests.support.tar_members import ENGINES, members_of, needs_native

NATIVE = Path(library.__file__).parent
HARNESS = Path(__file__).with_name("harness.c")
COMPILER = shutil.which("gcc")
NO_FILES = np.empty((0, 10), np.int64)


def test_the_native_step_runs_where_there_is_a_compiler() -> None:
    if COMPILER and sys.platform == "linux" and os.environ.get("AIS_TAR2TF_NATIVE") != "0":
        assert engine().name == "native", engine().why
        assert t2t.options.Limits is Limits
        assert cut_library() is not None


# Members and records


Found = tuple[list[dict[str, object]], list[int], list[int], list[int], dict[str, int], str]


def records_of(
    data: bytes,
    engine_name: str,
    step: int,
    *,
    grouping: str = "first-dot",
    fields: list[str] | None = None,
    most_again: int = 0,
) -> Found:
    """Return records, their offsets, sizes and extents, the skips, and the error, as one engine reads them.

    The tar is read in blocks of `step` bytes. The last `most_again` bytes of a block can be read again with the next.
    """
    account, limits = Account("skip-record"), Limits(fields=20)
    os.environ["AIS_TAR2TF_NATIVE"] = "0" if engine_name == "python" else "1"
    grouper = Grouper(
        "shard",
        account,
        limits,
        grouping=grouping,
        selection=None if fields is None else Selection(fields),
        in_blocks=engine_name == "blocks",
    )
    archive, found = ShardArchive("shard", limits), ([], [], [], [])
    error = ""
    batches: Iterator = iter(())

    def all_batches() -> Iterator:
        for begin in range(0, len(data) + step, step):
            last = begin >= len(data)
            block = data[min(begin, len(data)) - archive.again : begin + step]
            for members in archive.feed(block, 0 if last else min(most_again, len(block))):
                yield grouper.add(members)
        archive.finish()
        yield grouper.finish(archive.end)

    try:
        for batch in (batches := all_batches()):
            found[0].extend(batch.records)
            for column, values in zip(found[1:], (batch.offsets, batch.sizes, batch.extents), strict=True):
                column.extend(values)
    except Tar2TFError as caught:
        error = f"{type(caught).__name__}: {caught}"
    del batches
    return (*found, dict(account.stats.skipped), error)


NAMES = st.one_of(
    st.from_regex(r"[a-c]{1,2}(/[a-c]{1,2})?\.(jpg|cls|JPG|seg\.png|db|txt)", fullmatch=True),
    st.sampled_from(
        ["a", "b/", "._a.jpg", ".DS_Store", "a.", ".jpg", "ä.jpg", "a.jpg/", "x/.cls", "a..b", "a\x00b.x"]
    ),
    st.text("ab./_", min_size=1, max_size=9),
)


@given(st.data())
def test_any_names_are_grouped_alike(data: st.DataObject) -> None:
    before = os.environ.get("AIS_TAR2TF_NATIVE")
    try:
        width = data.draw(st.integers(1, 3))
        keys = data.draw(st.lists(st.text("abc/.", min_size=1, max_size=4), max_size=12))
        regular = [f"{key}.{end}" for key in keys for end in ("jpg", "cls", "a.b")[:width]]
        names = [*regular, *data.draw(st.lists(NAMES, max_size=6))]
        if data.draw(st.booleans()):
            data.draw(st.randoms(use_true_random=False)).shuffle(names)
        out = io.BytesIO()
        tar_format = data.draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
        with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
            for number, name in enumerate(names):
                member = tarfile.TarInfo(name)
                member.size, member.mtime = number % 700, number + (0.5 if tar_format == tarfile.PAX_FORMAT else 0)
                archive.addfile(member, io.BytesIO(bytes([number % 256]) * member.size))
        step = data.draw(st.sampled_from([1 << 20, 4096, 1300]))
        grouping = data.draw(st.sampled_from(["first-dot", "last-dot"]))
        fields = data.draw(st.sampled_from([None, ["jpg"], ["cls?", "x=jpg?"], []]))
        most_again = data.draw(st.sampled_from([0, 1500, 5000, 1 << 20]))
        python = records_of(out.getvalue(), "python", step, grouping=grouping, fields=fields)
        for name in ("native", "blocks"):
            found = records_of(out.getvalue(), name, step, grouping=grouping, fields=fields, most_again=most_again)
            assert found == python
    finally:
        os.environ.pop("AIS_TAR2TF_NATIVE") if before is None else os.environ.update(AIS_TAR2TF_NATIVE=before)


@needs_native
@pytest.mark.parametrize("seed", range(4))
def test_mutated_archives_are_read_alike(seed: int) -> None:
    chance = random.Random(seed)
    for data in mutations.mutations(1_500, 1_000 + seed):
        step = chance.choice([len(data) or 1, 512, 700, 5_000])
        expected = members_of(data, "careful", step)
        assert members_of(data, "native", step) == expected
        assert members_of(data, "table", step) == expected


@needs_native
@pytest.mark.parametrize("seed", range(2))
def test_records_of_mutated_archives_are_alike(seed: int, use: Callable[[str], None]) -> None:
    use("native")
    chance = random.Random(seed)
    for data in mutations.mutations(600, 3_000 + seed):
        step = chance.choice([len(data) or 1, 512, 1_300, 5_000])
        expected = records_of(data, "python", step)
        for name in ("native", "blocks"):
            assert records_of(data, name, step, most_again=chance.choice([0, 2_000, 1 << 20])) == expected


@needs_native
def test_members_of_an_incomplete_record_come_again(use: Callable[[str], None], monkeypatch) -> None:
    """All records but those in odd places are found at once, and no body is put together of two blocks."""
    use("native")
    content = {f"{n:04d}": {"jpg": random.Random(n).randbytes(900), "cls": b"%d" % n} for n in range(500)}
    data = made.tar(content.items())
    whole = records_of(data, "blocks", len(data))
    single: list[str] = []
    complete = Grouper._complete
    monkeypatch.setattr(
        Grouper, "_complete", lambda self, *rest: (single.append(self._key), complete(self, *rest))[1]
    )
    assert records_of(data, "blocks", 20_000, most_again=10_000) == whole
    assert single == ["0499"]  # the last record, which the end mark follows
    assert {row["__key__"]: {"jpg": row["jpg"], "cls": row["cls"]} for row in whole[0]} == content


@pytest.mark.full
@needs_native
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10))
def test_many_mutated_archives_are_read_alike(seed: int) -> None:
    for data in mutations.mutations(100_000, 5_000 + seed):
        assert members_of(data, "native", len(data) or 1) == members_of(data, "careful", len(data) or 1)


def test_every_record_is_whole_while_blocks_are_used_again(tmp_path: Path, use: Callable[[str], None]) -> None:
    """Compare all fields with tarfile, over more blocks than are in memory at once, and with large prefetches."""
    chance = random.Random(1)
    sizes = [chance.choice([0, 10, 22, 23, 2_000, 70_000]) for _ in range(3_000)]
    content = {f"{n:06d}": {"bin": chance.randbytes(size), "cls": b"%d" % n} for n, size in enumerate(sizes)}
    (tmp_path / "a.tar").write_bytes(made.tar(content.items()))
    for name in ENGINES:
        use(name)
        source = t2t.open(tmp_path / "a.tar")
        assert source.stats.engine == engine().name
        for options in ({}, {"shuffle": True, "seed": 1}, {"shuffle": t2t.options.Shuffle(window=50, seed=3)}):
            rows = list(source.dataset(**options).prefetch(2_000))
            found = {r["__key__"].numpy().decode(): (r["bin"].numpy(), r["cls"].numpy()) for r in rows}
            assert found == {key: (fields["bin"], fields["cls"]) for key, fields in content.items()}
            assert {r["__shard__"].numpy().decode() for r in rows} == {str(tmp_path / "a.tar")}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small shards have many blocks."""
    for module in (receiver, buffers):
        monkeypatch.setattr(module, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(buffers, "_FULL_SIZE", ranges.HEADROOM + 20_000)
    monkeypatch.setattr(receiver, "_FIRST_BLOCK", 3_000)
    for name, size in (("_MAX_BLOCK", 20_000), ("_MIN_BLOCK", 20_000), ("_FIRST_BLOCK", 3_000)):
        monkeypatch.setattr(fetch_files, name, size)


def mixed_shard(seed: int) -> bytes:
    """Return a tar of records of many sizes; some have another field, or stand after a directory."""
    chance = random.Random(seed)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(250):
            if chance.random() < 0.02:
                folder = tarfile.TarInfo(f"folder{number}")
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
            for field in ("jpg", "cls", "txt")[: 3 if chance.random() < 0.03 else 2]:
                member = tarfile.TarInfo(f"{seed}/{number:04d}.{field}")
                member.size = chance.choice([0, 10, 600, 3_000, 9_000, 45_000 if chance.random() < 0.1 else 1])
                archive.addfile(member, io.BytesIO(chance.randbytes(member.size)))
    return out.getvalue()


@needs_native
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("where", ["memory", "files"])
@pytest.mark.parametrize("fields", [None, ["cls"], ["txt?", "jpg"]])
def test_positions_are_those_of_pure_python(
    tmp_path: Path, memory: MemoryStore, use: Callable[[str], None], where: str, fields: list[str] | None
) -> None:
    """After each chunk, both engines have the same position, and each continues where the other stopped."""
    for number in range(2):
        memory.put(f"{number}.tar", mixed_shard(number))
        (tmp_path / f"{number}.tar").write_bytes(mixed_shard(number))
    store = memory if where == "memory" else FileStore(str(tmp_path))
    plan, selection = Plan(2, None), None if fields is None else Selection(fields)

    def rest_from(position: Position, *, in_blocks: bool) -> list[tuple[str, list[dict[str, object]]]]:
        shards = Shards(store, ["0.tar", "1.tar"], Read(), selection=selection, in_blocks=in_blocks)
        account = Account()
        stream, found = open_stream(ReadSession(shards), plan, position, account), []
        while chunk := stream.next_chunk(7, full=True):
            found.append((stream.position.to_text(), list(chunk)))
        stream.close()
        if position == begin:
            # How much of a file is skipped depends on the engine.
            read = account.stats.bytes if fields is None or where == "memory" else 0
            counts.append((read, account.stats.ignored, account.stats.shards))
        return found

    begin, counts = plan.begin(0, 3, 1), []
    use("python")
    expected = rest_from(begin, in_blocks=False)
    use("native")
    assert rest_from(begin, in_blocks=True) == expected
    assert rest_from(begin, in_blocks=False) == expected
    assert len({tuple(each) for each in counts}) == 1
    for number in range(0, len(expected), 17):
        position = Position.from_text(expected[number][0])
        assert rest_from(position, in_blocks=True) == expected[number + 1 :]


@needs_native
@pytest.mark.parametrize("blocks", [1, 3, 4, 5, 9])
def test_all_values_reach_the_operation(blocks: int) -> None:
    """A chunk may have values in more blocks than the operation takes, and columns that are not in blocks."""
    chance, names = random.Random(blocks), ("__key__", "a", "b", "extra")
    records, expected = Records(), list[dict[str, object]]()
    for _ in range(blocks):
        rows = [{"__key__": f"k{n}", "a": chance.randbytes(40_000 - n), "b": b"%d" % n} for n in range(5)]
        records.extend(Records.from_columns(BlockTable.of({name: [row[name] for row in rows] for name in rows[0]})))
        expected += rows
    table = records[2:].block_table
    assert table is not None
    values = packed(table.with_columns({"extra": [b"e" * n for n in range(len(expected) - 2)]}), names)
    *given, files, (starts, sizes) = values
    assert len(given) == BLOCKS
    is_read, columns = cut_library().ais_tar2tf_cut(given, files, starts, sizes, F=len(names))
    assert is_read
    for name, column in zip(names[:3], columns, strict=False):
        texts = [row[name].encode() if name == "__key__" else row[name] for row in expected[2:]]  # type: ignore[attr-defined]
        assert column.numpy().tolist() == texts
    assert columns[3].numpy().tolist() == [b"e" * n for n in range(len(expected) - 2)]


def test_an_array_for_tensorflow_is_aligned() -> None:
    whole = aligned_bytes(1_000)
    whole[:] = np.arange(1_000) % 256
    for begin in (0, 1, 63, 64, 700):
        array, shift = aligned_array(whole.data[begin:900])
        assert array.ctypes.data % 64 == 0
        assert array[shift:].tolist() == whole[begin:900].tolist()
    assert aligned_array(memoryview(b"abc"))[0].tobytes()[-3:] == b"abc"


@needs_native
def test_a_checkpoint_of_one_engine_is_continued_by_the_other(tmp_path: Path, use: Callable[[str], None]) -> None:
    for number in range(3):
        (tmp_path / f"{number}.tar").write_bytes(made.labelled(f"s{number}", 400))

    def dataset() -> tf.data.Dataset:
        source = t2t.open(f"{tmp_path}/{{0..2}}.tar", limits=Limits(chunk_records=50))
        return source.dataset(lambda r: r["__key__"], shuffle=True, seed=5)

    orders: dict[str, list[bytes]] = {}
    for name in ENGINES:
        use(name)
        orders[name] = [key.numpy() for key in dataset()]
        iterator = iter(dataset())
        assert [next(iterator).numpy() for _ in range(333)] == orders[name][:333]
        tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / name))
    assert orders["native"] == orders["python"]
    for saved, other in (ENGINES, ENGINES[::-1]):
        use(other)
        iterator = iter(dataset())
        tf.train.Checkpoint(iterator=iterator).read(str(tmp_path / saved)).expect_partial()
        assert [key.numpy() for key in iterator] == orders[saved][333:]


# The operation


@needs_native
def test_the_operation_cuts_fields_of_all_sizes() -> None:
    data = [np.frombuffer(random.Random(n).randbytes(300), np.uint8) for n in range(3)]
    joined, ends = b"".join(each.tobytes() for each in data), (300, 600, 900)
    chosen = [
        (start, size)
        for start in (0, 1, 299, 300, 301, 599, 600, 877, 878, 900)
        for size in (0, 1, 21, 22, 23, 24, 299, 300)
        if start + size <= next((end for end in ends if start < end), 900)
    ]
    starts, sizes = (np.array([column, column]) for column in zip(*chosen, strict=True))
    is_read, (first, second) = cut_library().ais_tar2tf_cut(data, NO_FILES, starts, sizes, F=2)
    assert is_read
    assert first.numpy().tolist() == [joined[start : start + size] for start, size in chosen]
    assert second.numpy().tolist() == first.numpy().tolist()
    assert tf.strings.length(first).numpy().tolist() == [size for _, size in chosen]
    assert cut_library().ais_tar2tf_cut(data, NO_FILES, starts[:1, :0], sizes[:1, :0], F=1)[1][0].shape == (0,)


@needs_native
@pytest.mark.parametrize(
    ("start", "size"),
    [
        (-1, 1),
        (0, -1),
        (99, 2),
        (200, 1),
        (201, 0),
        (0, 101),
        (1 << 62, 1 << 62),
        (-(1 << 63), 1),
        (100, (1 << 63) - 1),
    ],
)
def test_the_operation_refuses_ranges_outside_of_a_block(start: int, size: int) -> None:
    blocks = [np.zeros(100, np.uint8), np.zeros(100, np.uint8)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="a field is outside of its block"):
        cut_library().ais_tar2tf_cut(blocks, NO_FILES, np.array([[start]]), np.array([[size]]), F=1)


@needs_native
def test_the_operation_refuses_other_shapes() -> None:
    block, two = np.zeros(10, np.uint8), np.zeros((2, 1), np.int64)
    for starts, sizes, fields in ((two, two, 1), (two, two[:1], 2), (two[0], two[0], 1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="a row for each field"):
            cut_library().ais_tar2tf_cut([block], NO_FILES, starts, sizes, F=fields)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a vector of bytes"):
        cut_library().ais_tar2tf_cut([np.zeros((2, 2), np.uint8)], NO_FILES, two, two, F=2)
    for files in (NO_FILES[0:0, :9], NO_FILES.reshape(-1), np.zeros((1, 11), np.int64)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="a row of 10 numbers"):
            cut_library().ais_tar2tf_cut([block], files, two, two, F=2)
    for size in (-1, 2**63 - 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="an impossible size"):
            cut_library().ais_tar2tf_cut([block], np.array([[0, 0, 0, size, 0, 0, 0, 0, 0, 0]]), two, two, F=2)


@needs_native
def test_gather_refuses_ranges_outside_of_a_block() -> None:
    block, out = np.arange(100, dtype=np.uint8), np.empty(10, np.uint8)
    gather(block, np.array([5, 90]), np.array([4, 6]), out)
    assert out.tolist() == [*range(5, 9), *range(90, 96)]
    for starts, sizes in (([95], [6]), ([-1], [1]), ([0], [-1]), ([0], [11])):
        with pytest.raises(AssertionError, match="range"):
            gather(block, np.array(starts), np.array(sizes), out)


# Building, and doing without


def test_pure_python_on_request(use: Callable[[str], None]) -> None:
    use("python")
    assert engine() == library.Engine("python", "AIS_TAR2TF_NATIVE=0")
    assert library.tar_library() is None
    assert cut_library() is None


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_libraries_are_built_anew_and_loaded(tmp_path: Path) -> None:
    built = build.build(tmp_path)
    assert [path.name for path in built] == ["tar.so", "cut.so"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.so", "tar.so"]
    dynamic = subprocess.run(["readelf", "-d", str(built[1])], capture_output=True, text=True, check=True).stdout
    assert "libtensorflow_framework.so.2" in dynamic


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_a_failed_build_is_a_warning(tmp_path: Path, compiler: str) -> None:
    script = (
        "import sys; from ais_tar2tf.native import build; sys.exit(bool(build.try_to_build(build.Path(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "lib")],
        env={**os.environ, "CC": compiler, "AIS_TAR2TF_NATIVE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "warning: ais_tar2tf runs in pure Python" in done.stderr
    assert compiler in done.stderr


@pytest.mark.parametrize("content", [None, b"no library"])
def test_a_missing_or_damaged_library_leaves_pure_python(tmp_path: Path, monkeypatch, content: bytes | None) -> None:
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setenv("AIS_TAR2TF_NATIVE", "1")
    if content is not None:
        (tmp_path / library.TAR_LIBRARY).write_bytes(content)
    library.load.cache_clear()
    try:
        assert engine().name == "python"
        assert ("was not built" if content is None else "cannot be loaded") in engine().why
        memory = made.labelled("a", 5)
        assert len(members_of(memory, "auto", 700)[0]) == len(members_of(memory, "careful", 700)[0]) > 0
    finally:
        library.load.cache_clear()


def built_harness(folder: Path, *flags: str) -> Path:
    """Compile the harness into a folder. Skip the test if the compiler lacks the sanitizers that `flags` name."""
    program = folder / "harness"
    sources = [str(HARNESS), *(str(NATIVE / name) for name in build.LIBRARIES[library.TAR_LIBRARY])]
    command = [str(COMPILER), "-g", "-O1", "-std=c11", f"-I{NATIVE}", *flags, *sources, "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in built.stderr and "asan" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    return program


def damaged_archives(folder: Path, count: int) -> list[str]:
    """Write good, odd and damaged archives, and return their paths."""
    paths: list[str] = []
    for number, data in enumerate([*mutations.mutations(count, 77), made.labelled("s", 300)]):
        paths.append(str(folder / f"{number}.tar"))
        Path(paths[-1]).write_bytes(data)
    return paths


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_the_functions_stay_within_their_memory(tmp_path: Path) -> None:
    """Run them under the sanitizers."""
    program = built_harness(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover")
    command = [str(program), *damaged_archives(tmp_path, 800)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(COMPILER is None or shutil.which("valgrind") is None, reason="there is no valgrind")
def test_the_functions_read_no_memory_that_is_not_set(tmp_path: Path) -> None:
    """Run them under valgrind, which also notices bytes that are read before they are written."""
    command = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", str(built_harness(tmp_path))]
    done = subprocess.run(
        [*command, *damaged_archives(tmp_path, 60)], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_the_operation_stays_within_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it in TensorFlow, under the sanitizers."""
    monkeypatch.setenv("CC", f"{COMPILER} -g -fsanitize=address,undefined -fno-sanitize-recover=undefined")
    library = next(path for path in build.build(tmp_path) if path.name == "cut.so")
    runtimes = [_file_of_compiler("libasan.so"), _file_of_compiler("libubsan.so")]
    if not all(Path(runtime).is_absolute() for runtime in runtimes):
        pytest.skip("the compiler has no sanitizers")
    monkeypatch.setenv("LD_PRELOAD", " ".join(runtimes))
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # TensorFlow frees little at exit
    command = [sys.executable, "-m", "tests.native.cut_inputs", str(library), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]


def _file_of_compiler(name: str) -> str:
    command = [str(COMPILER), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
