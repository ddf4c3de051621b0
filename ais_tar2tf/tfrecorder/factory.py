"""From a CSV of examples to train, eval and test files, and from files to a tf.data.Dataset.

<save_directory_path>/{train,eval[,test]}/{0,1,…}.tfr    and examples.csv, the rows of `to_csv_row`
<save_directory_path>/tfrecord_files_config.txt          what was written, and the fields
<save_directory_path>/log.txt                            what became of the rows
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import ExportError, OptionError, OptionTypeError, SchemaError
from ais_tar2tf.export.boundaries import DEFAULT_SIZE
from ais_tar2tf.export.payloads import PayloadFiles, Publication
from ais_tar2tf.export.places import Destination, Folder, place_of
from ais_tar2tf.export.work import FinishedFile
from ais_tar2tf.stores import split_url
from ais_tar2tf.tfrecorder.config import CONFIG, Stated, config_text, stated_in
from ais_tar2tf.tfrecorder.helpers.fields import FieldType, Shape
from ais_tar2tf.tfrecorder.helpers.marshaller import Example
from ais_tar2tf.tfrecorder.making import Making, make_all
from ais_tar2tf.tfrecorder.rows import SPLITS, Row, assigned, count_rows, rows_of, shares_of, shuffled

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
    """Every row of a CSV file becomes an example, and goes to train, eval or test; gives each split's files.

    `examples_class` and `examples_filepath` are other names of `example_class` and `examples_list_filepath`.
    A ratio such as 0.8 or [0.8, 0.2] gives train and eval, [0.7, 0.2, 0.1] test, too: exactly, drawn by
    `examples_seed`, which also decides the order. `examples_workers` processes make and load examples, else this
    one does. All other arguments go to `from_csv_row`, `load` and `split`. What an earlier run wrote is replaced.
    """
    made_of = _either("example_class", example_class, "examples_class", examples_class)
    listed = os.fspath(
        _either("examples_list_filepath", examples_list_filepath, "examples_filepath", examples_filepath)
    )
    fields = made_of.tfrecordable_fields()
    if not fields:
        raise SchemaError(f"{made_of.__name__} declares no field: decorate what is to be written with @tfrecordable")
    shares = shares_of(examples_train_eval_test_ratio)
    making = Making(made_of, listed, kwargs, examples_log_in_csv_file)
    drawn = assigned(count_rows(listed), shares, examples_seed)
    rows = zip(shuffled(rows_of(listed), examples_seed), drawn, strict=True)
    with PayloadFiles(save_directory_path, tuple(shares), size=examples_tfrecord_file_max_size_in_bytes) as files:
        counts, seen = _write(files, making, rows, tuple(shares), examples_workers)
        written = files.finish()
        sections = _sections(making, shares, examples_seed, written)
        config = config_text(fields, seen.common(fields), sections)
        published = files.publish(_publication(files, making, config, counts, written))
    return {split: _of_split(published, written, split) for split in shares}


def _either(name: str, given: Any, other: str, also: Any) -> Any:
    if (given is None) == (also is None):
        raise OptionTypeError(f"say {name}, or {other}, which means the same")
    return also if given is None else given


def _write(
    files: PayloadFiles, making: Making, rows: Iterator[tuple[Row, int]], splits: Sequence[str], workers: int | None
) -> tuple[Counter[str], _Shapes]:
    """Every row into its split's files and list; gives how many rows became how many records, and their shapes."""
    counts: Counter[str] = Counter()
    seen = _Shapes()
    with ExitStack() as stack:
        lists = [stack.enter_context(files.side_file(split).open("w", newline="")) for split in splits]
        writers = [csv.writer(each) for each in lists]
        for made, at in make_all(making, rows, workers):
            counts["rows"] += 1
            counts["ignored rows"] += made.ignored
            counts[f"{splits[at]} records"] += len(made.payloads)
            seen.add(made.shapes)
            for payload in made.payloads:
                files.add(splits[at], payload)
            writers[at].writerows(made.csv_rows)
    return counts, seen


class _Shapes:
    """The shapes that arrays have in all records, as long as it is one for each."""

    def __init__(self) -> None:
        self._shapes: list[Shape | None] | None = None

    def add(self, found: Iterable[Sequence[Shape | None]]) -> None:
        for shapes in found:
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
    making: Making, shares: Mapping[str, float], seed: int, written: Mapping[str, Sequence[FinishedFile]]
) -> dict[str, dict[str, Any]]:
    """What the configuration file says beside the fields."""
    name = f"{making.example_class.__module__}.{making.example_class.__qualname__}"
    examples = {"class": name, "source": making.source, "seed": seed}
    splits = {
        split: {
            "ratio": round(share, 6),
            "files": len(written[split]),
            "records": sum(file.records for file in written[split]),
            "bytes": sum(file.bytes for file in written[split]),
        }
        for split, share in shares.items()
    }
    return {"examples": examples, **splits}


def _publication(
    files: PayloadFiles,
    making: Making,
    config: bytes,
    counts: Mapping[str, int],
    written: Mapping[str, Sequence[FinishedFile]],
) -> Publication:
    lists = {f"{split}/{EXAMPLES}": files.side_file(split) for split in written} if making.log_rows else {}
    log = "".join(f"{what}: {count}\n" for what, count in counts.items())
    return Publication(
        names=_file_name,
        meanwhile=lambda: {CONFIG: None},
        side_files=lists,
        documents=lambda: {LOG: f"{making.source}\n{log}".encode(), CONFIG: config},
        stale=list(_written_before(files.place)),
    )


def _file_name(split: str, number: int, _total: int) -> str:
    return f"{split}/{number}{EXTENSION}"


def _written_before(place: Destination) -> Iterator[str]:
    for split in SPLITS:
        folder = place_of(place.url(split))
        for name in folder.names(""):
            if name == EXAMPLES or _number(name) is not None:
                yield f"{split}/{name}"


def _of_split(published: Iterable[str], written: Mapping[str, Sequence[FinishedFile]], split: str) -> list[str]:
    begin = sum(len(written[each]) for each in list(written)[: list(written).index(split)])
    return list(published)[begin : begin + len(written[split])]


def _number(name: str) -> int | None:
    digits = name.removesuffix(EXTENSION)
    return int(digits) if name.endswith(EXTENSION) and digits.isascii() and digits.isdigit() else None


def get_tfrecord_filepaths(dirpath: str | os.PathLike[str]) -> list[str]:
    """The record files of a folder or below a URL, in the order of their numbers."""
    folder = place_of(dirpath)
    if isinstance(folder, Folder) and not folder.path.is_dir():
        raise ExportError(f"{folder.path}: there is no such folder")
    found = sorted((number, name) for name in folder.names("") if (number := _number(name)) is not None)
    if not found:
        raise ExportError(f"{os.fspath(dirpath)}: there are no files 0{EXTENSION}, 1{EXTENSION}, … in it")
    return [folder.url(name) for _, name in found]


def generate_dataset(
    tfrecord_filepaths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    example_class: type[Example] | None = None,
    *,
    with_shapes: bool = False,
    examples_class: type[Example] | None = None,
) -> tf.data.Dataset[Any]:
    """A tf.data.Dataset of tuples, one value a field, in the order of their declaration, from paths or URLs.

    Arrays are flat unless `with_shapes`. Without a class the fields are those that stand beside the files.
    """
    given = [tfrecord_filepaths] if isinstance(tfrecord_filepaths, str | os.PathLike) else tfrecord_filepaths
    paths = [os.fspath(path) for path in given]
    if not paths:
        raise OptionError("tfrecord_filepaths names no file")
    cls = example_class or examples_class
    stated = [_stated(folder) for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths)]
    if cls is None and stated[0] is None:
        raise SchemaError(f"{paths[0]}: there is no {CONFIG} beside it or above, so pass example_class")
    fields = cls.tfrecordable_fields() if cls is not None else stated[0].fields if stated[0] else {}
    from ais_tar2tf.tfrecorder.reading import read_examples  # TensorFlow only here

    return read_examples(paths, fields, stated, with_shapes=with_shapes)


def _stated(folder: str) -> Stated | None:
    """What stands above a folder of record files, or in it."""
    for where in (f"{folder or '.'}/..", folder or ".") if split_url(folder)[0] == "file" else _of_url(folder):
        place = place_of(where)
        data = place.read(CONFIG)
        if data is not None:
            return stated_in(data, where=place.url(CONFIG))
    return None


def _of_url(folder: str) -> list[str]:
    scheme, bucket, name = split_url(folder)
    above = [f"{scheme}://{bucket}/{name.rpartition('/')[0]}"] if name else []
    return [*above, folder]
