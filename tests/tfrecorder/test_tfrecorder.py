"""TFRecorder: the document's samples, the eight types, splits by ratio, and fixed defects of the original."""

from __future__ import annotations

import configparser
import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import ais_tar2tf as t2t
from ais_tar2tf.errors import ExportError, MappingError, SchemaError
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.tfrecorder import factory as tf_factory
from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
from ais_tar2tf.tfrecorder.helpers.marshaller import Example, IgnoreExampleException

generate = tf_factory.generate_and_save_train_eval_test_tfrecords_files


class ToyExample(Example):
    """The document's class, put together from its pieces."""

    def __init__(self, name, label):
        super(ToyExample, self).__init__()  # noqa: UP008  # as the document has it
        self.name = name
        self._label = label  # this is an int, so we assign it when instantiating
        self._data = None  # this is a float array, so we defer loading

    # CAUTION: the attributes must be declared in the same order than expected when parsing in tf.Dataset
    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self):
        return self._label

    @label.setter
    def label(self, val):
        self._label = val

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self):
        return self._data

    @data.setter
    def data(self, val):
        self._data = val

    def load(self, src_data_dirpath=None, normalize=False, **kwargs):  # noqa: ARG002
        """
        Loads the data in memory, and possibly pre-process it.
        """
        data = np.load(os.path.join(src_data_dirpath, "%s.npy" % self.name))  # noqa: PTH118, UP031

        if normalize:
            data /= np.max(data)

        self.data = data

    def split(self, chunk_size_in_bins=5, **kwargs):  # noqa: ARG002
        """
        Splits this example data into chunks, and create one ToyExample object per chunk.

        Returns:
            examples: list, of ToyExample objects.

        """
        # The document reads `self.src_data`, which is never set, and omits the chunk's label.
        src_data = self.data

        chunked_examples = []
        for i in range(0, src_data.shape[0], chunk_size_in_bins):
            chunked_example = ToyExample("%s_%d" % (self.name, i), self._label)  # noqa: UP031
            chunked_example.data = src_data[i : i + chunk_size_in_bins]
            chunked_examples.append(chunked_example)

        return chunked_examples

    @staticmethod
    def from_csv_row(row, **kwargs):  # noqa: ARG004
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self):
        """
        This is used to write in a csv file a single row that should be enough to recreate this Example afterward.
        """
        return [self.name, self._label]


class Number(Example):
    """A minimal example. `value` is the row's only cell."""

    def __init__(self, value: int) -> None:
        self.value = value

    @tfrecordable(dtype=Example.Field.TYPE_INT64)
    def x(self):
        return self.value

    @staticmethod
    def from_csv_row(row, **_):
        return Number(int(row[0]))

    def to_csv_row(self):
        return [self.value]


def listed(folder: Path, count: int) -> Path:
    path = folder / "numbers.csv"
    path.write_text("".join(f"{number}\n" for number in range(count)))
    return path


def numbers_in(folder: Path) -> list[int]:
    dataset = tf_factory.generate_dataset(tf_factory.get_tfrecord_filepaths(folder), Number)
    return [int(x) for (x,) in dataset]


@pytest.fixture
def toys(tmp_path) -> Path:
    """Write 10 arrays of 10 numbers, and a CSV that lists them."""
    (tmp_path / "data").mkdir()
    rows = []
    for number in range(10):
        np.save(tmp_path / "data" / f"toy{number}.npy", np.arange(10, dtype=np.float32) + number + 1)
        rows.append(f"toy{number},{number}\n")
    (tmp_path / "toys.csv").write_text("".join(rows))
    return tmp_path


@pytest.mark.parametrize(
    "spelling", [("example_class", "examples_list_filepath"), ("examples_class", "examples_filepath")]
)
def test_the_documents_samples(toys, spelling):
    cls, path = spelling
    tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        save_directory_path=str(toys / "saved"),
        **{cls: ToyExample, path: str(toys / "toys.csv")},
        src_data_dirpath=str(toys / "data"),
        normalize=True,
        chunk_size_in_bins=5,
    )

    tfrecord_filepaths = tf_factory.get_tfrecord_filepaths(dirpath=str(toys / "saved" / "train"))
    dataset = tf_factory.generate_dataset(tfrecord_filepaths)
    seen = []
    for l in dataset:  # noqa: E741  # the document's name
        label, data = l
        seen.append((int(label), data.numpy().tolist()))

    assert len(seen) == 16  # two chunks of each of eight examples
    for at, (label, data) in enumerate(seen):
        whole = (np.arange(10, dtype=np.float32) + label + 1) / np.float32(label + 10)
        assert data == whole[(at % 2) * 5 :][:5].tolist()
    assert dataset.element_spec == (tf.TensorSpec((), tf.int32), tf.TensorSpec((5,), tf.float32))

    with (toys / "saved" / "train" / "examples.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [int(row[1]) for row in rows] == [label for label, _ in seen]
    assert [row[0].split("_")[1] for row in rows] == ["0", "5"] * 8
    files = sorted(str(path.relative_to(toys / "saved")) for path in (toys / "saved").rglob("*") if path.is_file())
    assert files == [
        "eval/0.tfr",
        "eval/examples.csv",
        "log.txt",
        "tfrecord_files_config.txt",
        "train/0.tfr",
        "train/examples.csv",
    ]
    config = configparser.ConfigParser()
    config.read(toys / "saved" / "tfrecord_files_config.txt")
    assert dict(config["fields"]) == {"label": "TYPE_INT32", "data": "TYPE_ARRAY_FLOAT32"}
    assert config["train"]["records"] == "16"


class Everything(Example):
    values: dict = {}  # noqa: RUF012  # set by the test

    @tfrecordable(dtype=Example.Field.TYPE_BOOL)
    def a_bool(self):
        return self.values["a_bool"]

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def an_int32(self):
        return self.values["an_int32"]

    @tfrecordable(dtype=Example.Field.TYPE_INT64)
    def an_int64(self):
        return self.values["an_int64"]

    @tfrecordable(dtype=Example.Field.TYPE_FLOAT)
    def a_float(self):
        return self.values["a_float"]

    @tfrecordable(dtype=Example.Field.TYPE_DOUBLE)
    def a_double(self):
        return self.values["a_double"]

    @tfrecordable(dtype=Example.Field.TYPE_STRING)
    def a_string(self):
        return self.values["a_string"]

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
    def integers(self):
        return self.values["integers"]

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def floats(self):
        return self.values["floats"]

    @staticmethod
    def from_csv_row(_row, **_):
        return Everything()


def _shaped(dtype):
    return arrays.arrays(dtype, arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))


@settings(max_examples=10, deadline=None)
@given(
    values=st.fixed_dictionaries(
        {
            "a_bool": st.booleans(),
            "an_int32": st.integers(-(2**31), 2**31 - 1),
            "an_int64": st.integers(-(2**63), 2**63 - 1),
            "a_float": st.floats(width=32, allow_nan=False),
            "a_double": st.floats(allow_nan=False),
            "a_string": st.text() | st.binary(),
            "integers": _shaped(np.int32),
            "floats": _shaped(np.float32),
        }
    )
)
def test_all_eight_types_are_read_back_exactly(values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    (folder / "one.csv").write_text("x\n")
    Everything.values = values
    generate(folder / "out", Everything, folder / "one.csv", 1.0)
    (path,) = tf_factory.get_tfrecord_filepaths(folder / "out" / "train")
    (found,) = tf_factory.generate_dataset([path], Everything, with_shapes=True)
    for field, got in zip(Everything.tfrecordable_fields(), found, strict=True):
        wanted = values[field]
        got = got.numpy()
        if field == "a_string":
            assert got == (wanted.encode("utf-8", "surrogateescape") if isinstance(wanted, str) else wanted)
        else:
            np.testing.assert_array_equal(got, wanted)
    flat = next(iter(tf_factory.generate_dataset([path])))
    np.testing.assert_array_equal(flat[6], values["integers"].reshape(-1))
    assert [each.dtype.name for each in flat] == [
        "bool", "int32", "int64", "float32", "float64", "string", "int32", "float32",
    ]  # fmt: skip


def test_files_have_the_wire_types_of_the_original_tfrecorder(tmp_path):
    """Files have the wire types of the original TFRecorder, and files without our documents are read."""
    Everything.values = {
        "a_bool": True, "an_int32": -1, "an_int64": 2**40, "a_float": 0.5, "a_double": 0.1, "a_string": "ü",
        "integers": np.array([[1, 2]], np.int32), "floats": np.array([0.5], np.float32),
    }  # fmt: skip
    (tmp_path / "one.csv").write_text("x\n")
    generate(tmp_path / "out", Everything, tmp_path / "one.csv", 1.0)
    (payload,) = tf.data.TFRecordDataset([str(tmp_path / "out" / "train" / "0.tfr")])
    feature = tf.train.Example.FromString(payload.numpy()).features.feature
    assert feature["a_bool"].int64_list.value == [1]
    assert feature["an_int64"].int64_list.value == [2**40]
    assert feature["a_double"].float_list.value == [np.float32(0.1)]
    assert feature["a_string"].bytes_list.value == ["ü".encode()]
    assert feature["integers"].bytes_list.value == [np.array([1, 2], np.int32).tobytes()]

    old = tf.train.Example(
        features=tf.train.Features(feature={k: v for k, v in feature.items() if "/" not in k})
    ).SerializeToString()
    with tf.io.TFRecordWriter(str(tmp_path / "0.tfr")) as writer:
        writer.write(old)
    (found,) = tf_factory.generate_dataset([str(tmp_path / "0.tfr")], Everything, with_shapes=True)
    assert found[4] == np.float64(np.float32(0.1))
    assert found[6].numpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("ratio", "counts"),
    [
        (0.8, {"train": 80, "eval": 20}),
        ([0.75], {"train": 75, "eval": 25}),
        ([0.6, 0.4], {"train": 60, "eval": 40}),
        ([0.7, 0.2, 0.1], {"train": 70, "eval": 20, "test": 10}),
    ],
)
def test_ratios_give_exact_shares(tmp_path, ratio, counts):
    """A fixed defect of the original: [.7, .2, .1] was rejected, because its sum is not exactly 1."""
    made = generate(tmp_path / "out", Number, listed(tmp_path, 100), ratio)
    assert list(made) == list(counts)
    found = {split: numbers_in(tmp_path / "out" / split) for split in counts}
    assert {split: len(each) for split, each in found.items()} == counts
    assert sorted(x for each in found.values() for x in each) == list(range(100))


@pytest.mark.parametrize("ratio", [1.2, [0.5, 0.4], [0.5, 0.6, -0.1], [0.25] * 4, []])
def test_ratios_that_do_not_add_up(tmp_path, ratio):
    with pytest.raises(ValueError, match="add up to 1"):
        generate(tmp_path / "out", Number, listed(tmp_path, 3), ratio)


def test_not_repeated_the_shuffle_is_seeded(tmp_path):
    path = listed(tmp_path, 50)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate(tmp_path / name, Number, path, examples_seed=seed)
    a, b, c = (numbers_in(tmp_path / name / "train") for name in "abc")
    assert a == b
    assert a != c
    assert a != sorted(a)
    assert set(a) != set(c)


def test_not_repeated_the_size_limit_holds_and_files_are_in_numeric_order(tmp_path):
    made = generate(
        tmp_path / "out", Number, listed(tmp_path, 500), 1.0, examples_tfrecord_file_max_size_in_bytes=1_000
    )
    assert len(made["train"]) > 11
    assert max(Path(path).stat().st_size for path in made["train"]) <= 1_000
    found = tf_factory.get_tfrecord_filepaths(tmp_path / "out" / "train")
    assert found == made["train"]
    assert [Path(path).name for path in found] == [f"{number}.tfr" for number in range(len(found))]
    assert sorted(numbers_in(tmp_path / "out" / "train")) == list(range(500))


def test_not_repeated_a_second_run_leaves_no_stale_file(tmp_path):
    generate(
        tmp_path / "out", Number, listed(tmp_path, 500), [0.5, 0.3, 0.2], examples_tfrecord_file_max_size_in_bytes=999
    )
    generate(tmp_path / "out", Number, listed(tmp_path, 10), examples_log_in_csv_file=False)
    files = sorted(
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    )
    assert files == ["eval/0.tfr", "log.txt", "tfrecord_files_config.txt", "train/0.tfr"]
    assert sorted(numbers_in(tmp_path / "out" / "train") + numbers_in(tmp_path / "out" / "eval")) == list(range(10))


def test_not_repeated_fields_of_a_subclass_do_not_leak_into_its_parent():
    class More(Number):
        @tfrecordable(dtype=Example.Field.TYPE_STRING)
        def name(self):
            return "n"

    class Less(More):
        x = None

    class Other(Number):
        @tfrecordable(dtype=Example.Field.TYPE_BOOL)
        def flag(self):
            return True

    assert list(Number.tfrecordable_fields()) == ["x"]
    assert list(More.tfrecordable_fields()) == ["x", "name"]
    assert list(Less.tfrecordable_fields()) == ["name"]
    assert list(Other.tfrecordable_fields()) == ["x", "flag"]


def test_not_repeated_later_assignments_count():
    toy = ToyExample("a", 1)
    toy.data = np.zeros(2, np.float32)
    first = toy.serialize()
    toy.label, toy.data = 2, np.ones(2, np.float32)
    second = tf.train.Example.FromString(toy.serialize()).features.feature
    assert tf.train.Example.FromString(first).features.feature["label"].int64_list.value == [1]
    assert second["label"].int64_list.value == [2]
    assert second["data"].bytes_list.value == [np.ones(2, np.float32).tobytes()]


def test_not_repeated_float_data_in_an_int_array_is_an_error(tmp_path):
    class Wrong(Number):
        @tfrecordable(dtype=Example.Field.TYPE_ARRAY_INT32)
        def data(self):
            return np.array([0.5])

        @staticmethod
        def from_csv_row(row, **_):
            return Wrong(int(row[0]))

    with pytest.raises(
        MappingError, match=r"numbers\.csv, record 'row 1': .*field 'data' is declared TYPE_ARRAY_INT32"
    ):
        generate(tmp_path / "out", Wrong, listed(tmp_path, 1))


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        (Example.Field.TYPE_INT32, 2**31, "int32"),
        (Example.Field.TYPE_INT64, 1.5, "int64"),
        (Example.Field.TYPE_STRING, 7, "string"),
        (Example.Field.TYPE_DOUBLE, "x", "TYPE_DOUBLE"),
        (Example.Field.TYPE_BOOL, None, "is None: assign it"),
        (Example.Field.TYPE_ARRAY_INT32, [2**40], "integers that do not fit"),
        (Example.Field.TYPE_ARRAY_FLOAT32, ["a"], "TYPE_ARRAY_FLOAT32"),
        (
            Example.Field.TYPE_ARRAY_FLOAT32,
            [[1], [2, 3]],
            "'field' is declared TYPE_ARRAY_FLOAT32, and its value is no",
        ),
        (Example.Field.TYPE_ARRAY_FLOAT32, [1e300], r"'field': 1e\+300 does not fit into a float32"),
    ],
)
def test_values_of_another_type_are_named(dtype, value, message):
    class Odd(Example):
        @tfrecordable(dtype=dtype)
        def field(self):
            return value

    with pytest.raises(SchemaError, match=message):
        Odd().serialize()


def test_not_repeated_booleans_are_written(tmp_path):
    Everything.values = {
        "a_bool": np.True_, "an_int32": 1, "an_int64": 2, "a_float": 0.5, "a_double": 0.25, "a_string": "s",
        "integers": np.zeros((2, 2), np.int32), "floats": np.zeros(3, np.float32),
    }  # fmt: skip
    assert b"a_bool" in Everything().serialize()


def test_examples_may_be_ignored_and_arguments_go_everywhere(tmp_path):
    seen = set()

    class Picky(Number):
        @staticmethod
        def from_csv_row(row, **kwargs):
            seen.add(("row", kwargs["extra"]))
            return Picky(int(row[0]))

        def load(self, **kwargs):
            seen.add(("load", kwargs["extra"]))
            if self.value % 2:
                raise IgnoreExampleException

        def split(self, **kwargs):
            seen.add(("split", kwargs["extra"]))
            return super().split(**kwargs)

        def release(self):
            seen.add("released")

    generate(tmp_path / "out", Picky, listed(tmp_path, 10), 1.0, extra=7)
    assert sorted(numbers_in(tmp_path / "out" / "train")) == [0, 2, 4, 6, 8]
    assert seen == {("row", 7), ("load", 7), ("split", 7), "released"}
    assert "ignored rows: 5" in (tmp_path / "out" / "log.txt").read_text()


def test_chunks_are_not_loaded_again_and_memory_is_released(toys):
    toy = ToyExample("a", 1)
    toy.data = np.zeros(3)
    toy.release()
    assert toy.data is None
    assert toy.label == 1


def test_workers_give_the_same_files(toys):
    options = {"src_data_dirpath": str(toys / "data"), "chunk_size_in_bins": 3}
    for name, workers in (("one", None), ("two", 2)):
        generate(toys / name, ToyExample, toys / "toys.csv", examples_workers=workers, **options)
    for split in ("train", "eval"):
        for name in ("0.tfr", "examples.csv"):
            assert (toys / "one" / split / name).read_bytes() == (toys / "two" / split / name).read_bytes()


def test_bad_rows_are_named(tmp_path):
    class Pair(Number):
        @staticmethod
        def from_csv_row(row, **_):
            return Pair(int(row[1]))

    (tmp_path / "pairs.csv").write_text("a,1\n\nb\n")
    with pytest.raises(MappingError, match=r"pairs\.csv, record 'row 3': Pair failed: IndexError.*it has 1 columns"):
        generate(tmp_path / "out", Pair, tmp_path / "pairs.csv")
    assert not (tmp_path / "out" / "train").exists()
    with pytest.raises(TypeError, match="say example_class, or examples_class"):
        generate(tmp_path / "out", examples_filepath=tmp_path / "pairs.csv")
    with pytest.raises(SchemaError, match="declares no field"):
        generate(tmp_path / "out", Example, tmp_path / "pairs.csv")
    with pytest.raises(TypeError, match=r"dtype is one of Example\.Field\.TYPE_BOOL"):
        tfrecordable(dtype="int")
    with pytest.raises(ExportError, match="there is no such folder"):
        tf_factory.get_tfrecord_filepaths(dirpath=tmp_path / "nowhere")
    with pytest.raises(ExportError, match=r"there are no files 0\.tfr"):
        tf_factory.get_tfrecord_filepaths(dirpath=tmp_path)
    with pytest.raises(SchemaError, match="pass example_class"):
        tf_factory.generate_dataset([str(tmp_path / "0.tfr")])


def test_csv_files_of_spreadsheets_and_malformed_ones(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_bytes(b"\xef\xbb\xbf0\r\n1\r\n")
    made = generate(tmp_path / "out", Number, rows, 1.0)["train"]
    assert sorted(int(x) for (x,) in tf_factory.generate_dataset(made)) == [0, 1]
    far = b"1\n" * 5_000  # more than the decoder reads at once
    for data, line in (
        (b"0\n\xe9\n", 2),
        (b"0\n" + far + b"\xe9\n", 5_002),
        (b'0\n1\n"2"3\n', 3),
        (b'0\n"1\n2\n', 3),
    ):
        rows.write_bytes(data)
        with pytest.raises(SchemaError, match=rf"rows\.csv, line {line}: this is no CSV"):
            generate(tmp_path / "out", Number, rows)


LONG = """
import resource, sys
from ais_tar2tf.tfrecorder import factory
from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
from ais_tar2tf.tfrecorder.helpers.marshaller import Example

class Number(Example):
    def __init__(self, value):
        self.value = value
    @tfrecordable(dtype=Example.Field.TYPE_INT64)
    def x(self):
        return self.value
    @staticmethod
    def from_csv_row(row, **_):
        return Number(int(row[0]))
    def to_csv_row(self):
        return [self.value]

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
factory.generate_and_save_train_eval_test_tfrecords_files(sys.argv[1], Number, sys.argv[2], 0.9)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    "rows", [100_000, pytest.param(3_000_000, marks=[pytest.mark.full, pytest.mark.timeout(1800)])]
)
def test_long_lists_need_constant_memory(tmp_path, rows):
    """The peak of memory grows by at most one byte for each row, plus a window and a megabyte of records."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", LONG, str(tmp_path / "out"), str(listed(tmp_path, rows))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert int(done.stdout) < 64 * 1024 + rows // 1024  # kilobytes
    config = configparser.ConfigParser()
    config.read(tmp_path / "out" / "tfrecord_files_config.txt")
    assert int(config["train"]["records"]) == rows * 9 // 10


def test_files_are_written_to_a_store(tmp_path):
    made = generate("memory://tfrecorder/out", Number, listed(tmp_path, 10))
    assert made == {
        "train": ["memory://tfrecorder/out/train/0.tfr"],
        "eval": ["memory://tfrecorder/out/eval/0.tfr"],
    }
    assert MemoryStore("tfrecorder").head("out/train/examples.csv").size


class Grid(Example):
    """An array with the row's two sizes, filled with consecutive numbers."""

    def __init__(self, rows: int, columns: int) -> None:
        self.grid_ = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def grid(self):
        return self.grid_

    @tfrecordable(dtype=Example.Field.TYPE_DOUBLE)
    def total(self):
        return self.grid_.sum(dtype=np.float64)

    @staticmethod
    def from_csv_row(row, **_):
        return Grid(int(row[0]), int(row[1]))


def grids(folder: Path, sizes: list[tuple[int, int]]) -> list[str]:
    folder.mkdir()
    (folder / "sizes.csv").write_text("".join(f"{rows},{columns}\n" for rows, columns in sizes))
    return generate(folder / "out", Grid, folder / "sizes.csv", 1.0)["train"]


def test_arrays_of_one_shape_have_a_static_shape(tmp_path):
    """What all records have in common stands beside them, and lets many be read at once."""
    same = grids(tmp_path / "same", [(2, 3)] * 5)
    mixed = grids(tmp_path / "mixed", [(2, 3), (3, 2), (1, 4)])
    config = configparser.ConfigParser()
    config.read(tmp_path / "same" / "out" / "tfrecord_files_config.txt")
    assert dict(config["shapes"]) == {"grid": "2 3"}
    for cls in (Grid, None):
        flat, shaped = (tf_factory.generate_dataset(same, cls, with_shapes=each) for each in (False, True))
        assert (flat.element_spec[0].shape, shaped.element_spec[0].shape) == ((6,), (2, 3))
        assert [grid.numpy().tolist() for grid, _ in flat] == [list(range(6))] * 5
        assert all((grid.numpy() == np.arange(6).reshape(2, 3)).all() and total == 15 for grid, total in shaped)
    both = tf_factory.generate_dataset([*same, *mixed], Grid, with_shapes=True)
    assert both.element_spec[0].shape.rank is None
    shapes = [tuple(grid.shape) for grid, _ in both]
    assert shapes[:5] == [(2, 3)] * 5
    assert sorted(shapes[5:]) == [(1, 4), (2, 3), (3, 2)]
    assert [len(grid) for grid, _ in tf_factory.generate_dataset(grids(tmp_path / "none", [(0, 3)] * 3))] == [0] * 3


@pytest.mark.parametrize("scheme", ["memory", "ais", "http"])
def test_files_are_read_from_a_store(tmp_path, monkeypatch, scheme):
    buckets = tmp_path / "buckets"
    (buckets / "records").mkdir(parents=True)
    with t2t.serve(buckets) as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        where = "memory://records-to-read/out" if scheme == "memory" else "ais://records/out"
        made = generate(where, Number, listed(tmp_path, 300), examples_tfrecord_file_max_size_in_bytes=2_000)
        assert len(made["train"]) > 2
        paths = made["train"]
        if scheme == "http":
            paths = [f"{server.url}/v1/objects/records/{path.removeprefix('ais://records/')}" for path in paths]
        else:
            assert tf_factory.get_tfrecord_filepaths(f"{where}/train") == paths
        wanted = [int(row) for row in _csv_of(where, buckets)]
        for cls in (Number, None):
            assert [int(x) for (x,) in tf_factory.generate_dataset(paths, cls)] == wanted
    with pytest.raises(ExportError, match=r"memory://nothing/here: there are no files 0\.tfr"):
        tf_factory.get_tfrecord_filepaths("memory://nothing/here")


def _csv_of(where: str, buckets: Path) -> list[str]:
    """Return the rows of the train split's examples.csv."""
    if where.startswith("memory"):
        body = MemoryStore("records-to-read").open("out/train/examples.csv", 0, None)
        buffer = bytearray(100_000)
        return bytes(buffer[: body.readinto(memoryview(buffer))]).decode().split()
    return (buckets / "records" / "out" / "train" / "examples.csv").read_text().split()
