"""The builder with which TFDS (TensorFlow Datasets) writes the records of shards, in the order of the shards.

The features of the TFDS data set come from a schema: the types of the records' fields.

The builder must not collect records in memory. It streams records from the shards into its files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from ais_tar2tf.base.monitoring.progress import Progress, progress_for
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.recordfiles.export.boundaries import Bounds, FillLevel
from ais_tar2tf.records import Record
from ais_tar2tf.source import Source
from ais_tar2tf.tfds.random_access import RandomAccess
from ais_tar2tf.tfds.record_writer import FORMATS, record_writer
from ais_tar2tf.tfds.stored_features import stored_features
from ais_tar2tf.values.parse_specs import tfds_features
from ais_tar2tf.values.schema import Inference, Schema

# Loaded as an untyped module, because the type hints of TFDS do not match its behaviour.
tfds: Any = importlib.import_module("tensorflow_datasets")

__all__ = ["ShardsBuilder"]


class ShardsBuilder(  # pyright: ignore[reportGeneralTypeIssues]
    RandomAccess,
    skip_registration=True,  # pyright: ignore[reportCallIssue]  # a keyword argument that TFDS defines
):
    """A TFDS data set with one source for each split.

    Args:
        sources: The source of each split.
        schema: The types of the fields. If None, they are inferred from the first records of each source.
        sample: The number of records of each source from which the schema is inferred. None: all records.
        prepare: A function that takes a record of a source and returns the record to write.
        bounds: The bounds of each file: its size, its number of records, or both.
        supervised_keys: The fields that TFDS returns as (input, label) with `as_supervised=True`.
        progress: Whether to show progress. None: only where a user sees it.
        **kwargs: The arguments of TFDS's own builder.
    """

    VERSION = tfds.core.Version("1.0.0")

    def __init__(
        self,
        *,
        sources: Mapping[str, Source],
        schema: Schema | None,
        sample: int | None,
        prepare: Callable[[Record], Mapping[str, Any]] | None,
        bounds: Bounds,
        supervised_keys: tuple[str, str] | None,
        progress: bool | None,
        **kwargs: Any,
    ) -> None:
        self._sources = sources
        self._schema = schema
        self._sample = sample
        self._prepare = prepare
        self._bounds = bounds
        self._supervised_keys = supervised_keys
        self._progress = progress
        super().__init__(**kwargs)

    @property
    def schema(self) -> Schema:
        """The schema of the records. Unless a schema was given, the first use infers it from a sample."""
        if self._schema is None:
            inference = Inference()
            for source in self._sources.values():
                for record in islice(self._records(source), self._sample):
                    inference.add(record)
            if not len(inference.schema):
                raise SchemaError(f"{self.name}: there are no records, so their fields are not known")
            self._schema = inference.schema
        return self._schema

    def _records(self, source: Source) -> Iterator[Mapping[str, Any]]:
        for record in source.records():
            yield record if self._prepare is None else self._prepare(record)

    def _info(self) -> Any:
        features: Any = stored_features(Path(self._data_dir)) or tfds_features(self.schema)
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"Records of {', '.join(repr(source) for source in self._sources.values())}.",
            features=features,
            supervised_keys=self._supervised_keys,
            disable_shuffling=True,  # records keep the order of the shards
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:  # noqa: ARG002  # there is nothing to download
        return {split: self._generate_examples(source) for split, source in self._sources.items()}

    def _generate_examples(self, source: Source) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for record in self._records(source):
            yield record["__key__"], {name: record[name] for name in self.schema.names}

    def _generate_splits(self, dl_manager: Any, download_config: Any) -> list[Any]:  # noqa: ARG002
        file_format = self.info.file_format.value
        if file_format not in FORMATS:
            raise SchemaError(f"file_format {file_format!r} is none of {', '.join(FORMATS)}")
        shards = sum(len(list(source.shards)) for source in self._sources.values())
        with progress_for(self.name, shards, self._progress) as progress:
            max_records = download_config.max_examples_per_split
            return [self._write(split, source, max_records, progress) for split, source in self._sources.items()]

    def _write(self, split: str, source: Source, max_records: int | None, progress: Progress) -> Any:
        """Write the files of one split, then rename them. Their final names contain the number of files."""
        folder = Path(self._data_dir)
        with _SplitWriter(folder, split, self.info.file_format.value, self._bounds) as writer:
            shards_before, opened_before = progress.shards, source.stats.shards
            for record in islice(self._records(source), max_records):
                payload = self.schema.encode(record)
                writer.add(payload)
                finished = source.stats.shards - opened_before - 1  # the last shard is still being read
                progress.add_shard(max(shards_before + finished - progress.shards, 0))
                progress.add(1, len(payload))
            progress.add_shard(shards_before + len(list(source.shards)) - progress.shards)
        template = self._get_filename_template(split)
        for unnamed, path in zip(writer.paths, template.sharded_filepaths(len(writer.paths)), strict=True):
            unnamed.replace(folder / path.name)
        return tfds.core.SplitInfo(
            name=split, shard_lengths=writer.lengths, num_bytes=writer.bytes, filename_template=template
        )


class _SplitWriter:
    """A writer of the files of one split. It gives them hidden names, and its caller renames them at the end."""

    def __init__(self, folder: Path, split: str, file_format: str, bounds: Bounds) -> None:
        self._folder = folder
        self._split = split
        self._format = file_format
        self._level = FillLevel(bounds)
        self._open = ExitStack()
        self._write_payload: Callable[[bytes], None] | None = None
        self.paths: list[Path] = []
        self.lengths: list[int] = []
        self.bytes: int = 0

    def __enter__(self) -> _SplitWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, payload: bytes) -> None:
        if self._write_payload is None or not self._level.fill([len(payload)]):
            self._write_payload = self._next_file()
            self._level.fill([len(payload)])
        self._write_payload(payload)
        self.lengths[-1] += 1
        self.bytes += len(payload)

    def _next_file(self) -> Callable[[bytes], None]:
        self._open.close()
        self._level.begin_next_file()
        self.paths.append(self._folder / f".{self._split}.{len(self.paths)}")
        self.lengths.append(0)
        return self._open.enter_context(record_writer(self.paths[-1], self._format, compressed=True))
