"""TFRecorder's factory: writes train, eval and test files from a CSV of examples, and reads them as a dataset.

<save_directory_path>/{train,eval[,test]}/{0,1,…}.tfr    with examples.csv, the rows of `to_csv_row`
<save_directory_path>/tfrecord_files_config.txt          the fields, and the contents of the files
<save_directory_path>/log.txt                            the numbers of rows and records
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.csv_files import CsvRow, csv_rows
from ais_tar2tf.errors import ExportError, OptionError, OptionTypeError, SchemaError
from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE
from ais_tar2tf.recordfiles.export.destinations import Destination, FolderDestination, open_destination
from ais_tar2tf.recordfiles.export.journal import FinishedFile
from ais_tar2tf.recordfiles.export.payloads import PayloadFiles, Publication
from ais_tar2tf.stores import split_url
from ais_tar2tf.tfrecorder.config import CONFIG, StoredConfig, config_text, parse_config
from ais_tar2tf.tfrecorder.helpers.fields import FieldType, Shape
from ais_tar2tf.tfrecorder.helpers.marshaller import Example
from ais_tar2tf.tfrecorder.making import ExampleRecipe, make_records
from ais_tar2tf.tfrecorder.rows import SPLITS, assign_splits, shuffled, split_ratios

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "generate_and_save_train_eval_test_tfrecords_files",
    "generate_dataset",
    "get_tfrecord_filepaths",
]


def __dir__() -> list[str]:
    return sorted(__all__)


EXTENSION = ".tfr"
LOG = "log.txt"
EXAMPLES = "examples.csv"


def generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path: str | os.PathLike[str],
    example_class: type[Example] | None = None,
    examples_list_filepath: str | os.PathLike[str] | None = None,
    examples_train_eval_test_ratio: float | Sequence[float] = 0.8,
    examples_tfrecord_file_max_size_in_bytes: int | str = DEFAULT_SIZE,
    examples_log_in_csv_file: bool = True,
    *,
    examples_class: type[Example] | None = None,
    examples_filepath: str | os.PathLike[str] | None = None,
    examples_seed: int = 0,
    examples_workers: int | None = None,
    **kwargs: Any,
) -> dict[str, list[str]]:
    """Write every row of a CSV file as an example into train, eval or test files.

    Files of an earlier run are replaced.

    Args:
        save_directory_path: The folder or URL of the files.
        example_class: A subclass of `Example`.
        examples_list_filepath: The CSV file.
        examples_train_eval_test_ratio: The exact ratio of each split. 0.8 or [0.8, 0.2] gives train and eval, [0.7,
            0.2, 0.1] adds test.
        examples_tfrecord_file_max_size_in_bytes: The largest size of a file, in bytes or as text such as "100MB".
        examples_log_in_csv_file: Whether to write examples.csv for each split.
        examples_class: Another name of `example_class`.
        examples_filepath: Another name of `examples_list_filepath`.
        examples_seed: The seed of the order and of the splits.
        examples_workers: The number of processes that create and load examples; None uses only this process.
        **kwargs: Arguments for `from_csv_row`, `load` and `split` of the class.

    Returns:
        The paths or URLs of the files of each split.

    Raises:
        OptionTypeError: Both names of an argument are given, or none.
        SchemaError: The class declares no field, or the CSV file is malformed.
        MappingError: A method of the class failed. The error names the row.
    """
    cls: type[Example] = _either("example_class", example_class, "examples_class", examples_class)
    source = os.fspath(
        _either("examples_list_filepath", examples_list_filepath, "examples_filepath", examples_filepath)
    )
    fields = cls.tfrecordable_fields()
    if not fields:
        raise SchemaError(f"{cls.__name__} declares no field: decorate what is to be written with @tfrecordable")
    ratios = split_ratios(examples_train_eval_test_ratio)
    recipe = ExampleRecipe(cls, source, kwargs, examples_log_in_csv_file)
    splits = assign_splits(sum(1 for _ in csv_rows(source)), ratios, examples_seed)
    rows = zip(shuffled(csv_rows(source), examples_seed), splits, strict=True)
    with PayloadFiles(save_directory_path, tuple(ratios), size=examples_tfrecord_file_max_size_in_bytes) as files:
        counts, shapes = _write(files, recipe, rows, tuple(ratios), examples_workers)
        written = files.finish()
        sections = _sections(recipe, ratios, examples_seed, written)
        config = config_text(fields, shapes.common(fields), sections)
        published = iter(files.publish(_publication(files, recipe, config, counts, written)))
    return {split: list(islice(published, len(written[split]))) for split in ratios}


def _either(name: str, value: Any, other: str, other_value: Any) -> Any:
    if (value is None) == (other_value is None):
        raise OptionTypeError(f"say {name}, or {other}, which means the same")
    return other_value if value is None else value


def _write(
    files: PayloadFiles,
    recipe: ExampleRecipe,
    rows: Iterator[tuple[CsvRow, int]],
    splits: Sequence[str],
    workers: int | None,
) -> tuple[Counter[str], _CommonShapes]:
    """Write every row into the files of its split; return the counts of rows and records, and the shapes."""
    counts: Counter[str] = Counter()
    shapes = _CommonShapes()
    with ExitStack() as stack:
        lists = [stack.enter_context(files.side_file(split).open("w", newline="")) for split in splits]
        writers = [csv.writer(each) for each in lists]
        for result, number in make_records(recipe, rows, workers):
            counts["rows"] += 1
            counts["ignored rows"] += result.ignored
            counts[f"{splits[number]} records"] += len(result.payloads)
            shapes.add(result.shapes)
            for payload in result.payloads:
                files.add(splits[number], payload)
            writers[number].writerows(result.csv_rows)
    return counts, shapes


class _CommonShapes:
    """The shapes of arrays, for each array that has one shape in all records."""

    def __init__(self) -> None:
        self._shapes: list[Shape | None] | None = None

    def add(self, combinations: Iterable[Sequence[Shape | None]]) -> None:
        for shapes in combinations:
            if self._shapes is None:
                self._shapes = list(shapes)
            elif self._shapes != shapes:
                self._shapes = [
                    one if one == other else None for one, other in zip(self._shapes, shapes, strict=True)
                ]

    def common(self, fields: Mapping[str, FieldType]) -> dict[str, Shape]:
        arrays = [name for name, kind in fields.items() if kind.is_array]
        return {name: shape for name, shape in zip(arrays, self._shapes or (), strict=False) if shape is not None}


def _sections(
    recipe: ExampleRecipe, ratios: Mapping[str, float], seed: int, written: Mapping[str, Sequence[FinishedFile]]
) -> dict[str, dict[str, Any]]:
    """Return the sections of the configuration file except those of fields and shapes."""
    name = f"{recipe.example_class.__module__}.{recipe.example_class.__qualname__}"
    examples = {"class": name, "source": recipe.source, "seed": seed}
    splits = {
        split: {
            "ratio": round(ratio, 6),
            "files": len(written[split]),
            "records": sum(file.records for file in written[split]),
            "bytes": sum(file.bytes for file in written[split]),
        }
        for split, ratio in ratios.items()
    }
    return {"examples": examples, **splits}


def _publication(
    files: PayloadFiles,
    recipe: ExampleRecipe,
    config: bytes,
    counts: Mapping[str, int],
    written: Mapping[str, Sequence[FinishedFile]],
) -> Publication:
    lists = {f"{split}/{EXAMPLES}": files.side_file(split) for split in written} if recipe.log_rows else {}
    log = "".join(f"{counted}: {count}\n" for counted, count in counts.items())
    return Publication(
        names=_file_name,
        interim_documents=lambda: {CONFIG: None},
        side_files=lists,
        documents=lambda: {LOG: f"{recipe.source}\n{log}".encode(), CONFIG: config},
        stale=list(_stale_files(files.destination)),
    )


def _file_name(split: str, number: int, _total: int) -> str:
    return f"{split}/{number}{EXTENSION}"


def _stale_files(destination: Destination) -> Iterator[str]:
    for split in SPLITS:
        for name in open_destination(destination.url(split)).names(""):
            if name == EXAMPLES or _number(name) is not None:
                yield f"{split}/{name}"


def _number(name: str) -> int | None:
    digits = name.removesuffix(EXTENSION)
    return int(digits) if name.endswith(EXTENSION) and digits.isascii() and digits.isdigit() else None


def get_tfrecord_filepaths(dirpath: str | os.PathLike[str]) -> list[str]:
    """Return the record files of a folder, in the order of their numbers.

    Args:
        dirpath: A folder, or a URL.

    Raises:
        ExportError: There is no such folder, or it has no record files.
    """
    folder = open_destination(dirpath)
    if isinstance(folder, FolderDestination) and not folder.path.is_dir():
        raise ExportError(f"{folder.path}: there is no such folder")
    numbered = sorted((number, name) for name in folder.names("") if (number := _number(name)) is not None)
    if not numbered:
        raise ExportError(f"{os.fspath(dirpath)}: there are no files 0{EXTENSION}, 1{EXTENSION}, … in it")
    return [folder.url(name) for _, name in numbered]


def generate_dataset(
    tfrecord_filepaths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    example_class: type[Example] | None = None,
    *,
    with_shapes: bool = False,
    examples_class: type[Example] | None = None,
) -> tf.data.Dataset[Any]:
    """Return a dataset of tuples with one value for each field, in the order of declaration.

    Args:
        tfrecord_filepaths: The paths or URLs of record files.
        example_class: The class of the examples. By default, the fields are read from the configuration next to the
            files.
        with_shapes: Whether arrays get their shapes; otherwise they are flat.
        examples_class: Another name of `example_class`.

    Returns:
        A tf.data.Dataset.

    Raises:
        OptionError: `tfrecord_filepaths` is empty.
        SchemaError: No class is given, and there is no configuration.
    """
    value = [tfrecord_filepaths] if isinstance(tfrecord_filepaths, str | os.PathLike) else tfrecord_filepaths
    paths = [os.fspath(path) for path in value]
    if not paths:
        raise OptionError("tfrecord_filepaths names no file")
    cls = example_class or examples_class
    configs = [_stored_config(folder) for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths)]
    if cls is None and configs[0] is None:
        raise SchemaError(f"{paths[0]}: there is no {CONFIG} next to it or above, so pass example_class")
    fields = cls.tfrecordable_fields() if cls is not None else configs[0].fields if configs[0] else {}
    from ais_tar2tf.tfrecorder.reading import read_examples  # imports TensorFlow

    return read_examples(paths, fields, configs, with_shapes=with_shapes)


def _stored_config(folder: str) -> StoredConfig | None:
    """Return the configuration in the folder above record files, or in their own folder."""
    scheme, bucket, name = split_url(folder)
    if scheme == "file":
        folders = [f"{folder or '.'}/..", folder or "."]
    else:
        folders = [f"{scheme}://{bucket}/{name.rpartition('/')[0]}", folder] if name else [folder]
    for destination in map(open_destination, folders):
        data = destination.read(CONFIG)
        if data is not None:
            return parse_config(data, where=destination.url(CONFIG))
    return None
