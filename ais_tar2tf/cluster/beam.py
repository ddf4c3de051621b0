"""Shards → record files as an Apache Beam pipeline: each shard a work item, then one that numbers and publishes.

Every item leaves its finished files and their description beside the final ones, as a host of a job array does: one
that is tried again, or is at work twice, leaves the same bytes, and a pipeline that is run again goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xxhash import xxh3_128_hexdigest

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ExportError, MissingDependency, OptionError
from ais_tar2tf.export.finishing import publish_portions, publishing
from ais_tar2tf.export.manifest import Manifest
from ais_tar2tf.export.portions import Portion, Share, Staging, plan_key
from ais_tar2tf.export.request import ExportOptions, export_source, target_of
from ais_tar2tf.export.run import Target
from ais_tar2tf.export.sources import Sources
from ais_tar2tf.export.there import finished
from ais_tar2tf.listing import natural_order
from ais_tar2tf.locations import Location, location_text
from ais_tar2tf.reader import Shards
from ais_tar2tf.source import Source, open_source
from ais_tar2tf.templates import escape

try:
    import apache_beam as beam  # pyright: ignore[reportMissingImports]  # it has an environment of its own
except ImportError:
    beam: Any = None

__all__ = ["ConvertShards", "run_pipeline"]


def __dir__() -> list[str]:
    return sorted(__all__)


_Transform: Any = object if beam is None else beam.PTransform
_Function: Any = object if beam is None else beam.DoFn
_HERE = frozenset({"workers", "progress", "writing", "shard"})  # what an item decides by itself
_OURS = re.compile(r"^(?:\w+: )?ais_tar2tf\.errors\.(\w+: .*?)(?: \[while running .*)?$", re.MULTILINE)

Named = Location | tuple[int, Location]
"""A shard's URL or path, or its number in the export and its URL."""


class ConvertShards(_Transform):
    """A PCollection of shard URLs → record files under `out`; gives the files.

    `export` is what `Source.export` takes, `source` what `open` takes. Elements are URLs, which are put in the order
    of their names with numbers in them compared as numbers, or pairs (number, URL) in that order. Files and manifest
    are byte for byte those of `open(urls).export(out, align="shard", …)`.

    p | beam.Create(list(t2t.open("ais://imagenet/train-{000..146}.tar").shards)) | ConvertShards("s3://out/imagenet")
    """

    def __init__(
        self, out: str | os.PathLike[str], *, source: Mapping[str, Any] | None = None, **export: Any
    ) -> None:
        if beam is None:
            raise MissingDependency("apache-beam", extra="beam")
        super().__init__()
        self._work = _Work(location_text(out), dict(source or {}), export)

    def is_finished(self, urls: Sequence[str]) -> bool:
        """Whether all of these shards were exported so before; raises where something else is there."""
        return self._work.is_finished(urls)

    def expand(self, input_or_inputs: Any) -> Any:
        work = self._work
        begun = input_or_inputs.pipeline | "Begin" >> beam.Create([None]) | "MakeRoom" >> beam.Map(work.make_room)
        return (
            input_or_inputs
            | "Spread" >> beam.Reshuffle()
            | "Convert" >> beam.ParDo(_Convert(work), beam.pvalue.AsSingleton(begun))
            | "Gather" >> beam.combiners.ToList()
            | "Publish" >> beam.FlatMap(work.publish)
        )


class _Convert(_Function):
    """A shard → its portion."""

    def __init__(self, work: _Work) -> None:
        super().__init__()
        self._work = work

    def process(self, element: Named, begun: None) -> Iterator[tuple[Named, bytes]]:
        del begun  # that it is there says that there is room
        yield element, self._work.convert(element)


class _Work:
    """What the steps do; it survives pickling."""

    def __init__(self, out: str, source: dict[str, Any], export: dict[str, Any]) -> None:
        wrong = sorted(_HERE & export.keys())
        if wrong:
            raise OptionError(f"{', '.join(wrong)}: in a pipeline its runner decides that")
        self._out = out
        self._source = source
        self._export: dict[str, Any] = {"align": "shard", **export}
        self._options()

    def _options(self, share: Share | None = None) -> ExportOptions:
        export = dict(self._export)
        if share is not None and export.get("exists") == "error":
            export["exists"] = "resume"  # an item that is tried again finds its own part
        return ExportOptions(**export, shard=share or Share(name="any"), workers=1, progress=False)

    def _open(self, urls: Sequence[str]) -> Source:
        return open_source([escape(url) for url in urls], index=False, **self._source)

    def _target(self, source: Source, share: Share | None = None) -> tuple[Shards, Target]:
        return target_of(source.as_shards, source.on_error, self._out, self._options(share))

    def is_finished(self, urls: Sequence[str]) -> bool:
        with self._open(urls) as source:
            shards, target = self._target(source)
            sources = Sources(shards.store, shards.names)
            return finished(replace(target, share=None, staged=True), target.place(), sources) is not None

    def make_room(self, nothing: None) -> None:
        """Take away what an earlier pipeline published, and was killed before it was gone."""
        del nothing
        options = self._options()
        target = publishing(self._out, options.endpoint, options.token)
        Staging.of(target.place(), options.route.names).sweep()

    def convert(self, element: Named) -> bytes:
        """Leaves the shard's portion in the staging folder; gives its description."""
        url = _url(element)
        share = Share(name=xxh3_128_hexdigest(url.encode("utf-8", "surrogateescape")))
        with self._open([url]) as source:
            shards, target = self._target(source, share)
            export_source(shards, source.on_error, Account(source.on_error), self._out, self._options(share))
        staging = Staging.of(target.place(), target.splits)
        (portion,) = staging.read([f"{share.label}.{plan_key(target.plan)}"])
        return portion.to_json()

    def publish(self, converted: Sequence[tuple[Named, bytes]]) -> list[str]:
        """All portions, in order, under final names."""
        ordered = sorted(converted, key=lambda pair: _order(pair[0]))
        urls = [_url(element) for element, _ in ordered]
        if len(set(urls)) < len(urls):
            raise ExportError(f"{self._out}: a shard was named twice")
        with self._open(urls) as source:
            shards, target = self._target(source)
            manifest = self._published(
                shards, replace(target, share=None, staged=True), [data for _, data in ordered]
            )
        place = target.place()
        return [place.url(file.name) for split in target.splits for file in manifest.splits[split].files]

    def _published(self, shards: Shards, target: Target, described: Sequence[bytes]) -> Manifest:
        place = target.place()
        staging = Staging.of(place, target.splits)
        manifest = finished(target, place, Sources(shards.store, shards.names))
        if manifest is not None:
            staging.remove()
            return manifest
        portions = [
            Portion.from_json(data, where=staging.url()).moved(lambda _, at=at: at)
            for at, data in enumerate(described)
        ]
        return publish_portions(target, place, staging, portions)


def _url(element: Named) -> str:
    return location_text(element[1] if isinstance(element, tuple) else element)


def _order(element: Named) -> tuple[Any, ...]:
    """By the number that was given, else as people count: `s-2` before `s-10`."""
    return (element[0],) if isinstance(element, tuple) else natural_order(location_text(element))


def run_pipeline(
    urls: Sequence[str],
    out: str,
    *,
    runner: str,
    options: Sequence[str] = (),
    source: Mapping[str, Any] | None = None,
    **export: Any,
) -> None:
    """Convert shards by a pipeline of its own; `options` are the runner's, as `--direct_num_workers=2`.

    What is finished already is kept, as by `Source.export`, and another export's files are refused at once.
    Beam's DirectRunner would try Prism first, which downloads a program: its in-process runner is taken instead.
    """
    transform = ConvertShards(out, source=source, **export)
    if transform.is_finished(urls):
        return
    from apache_beam.options.pipeline_options import PipelineOptions  # pyright: ignore[reportMissingImports]
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner  # pyright: ignore[reportMissingImports]

    chosen: Any = FnApiRunner() if runner == "DirectRunner" else runner
    pipeline: Any = beam.Pipeline(runner=chosen, options=PipelineOptions([*options]))
    try:
        with pipeline:
            _ = pipeline | beam.Create(list(enumerate(urls)), reshuffle=False) | transform
    except Exception as error:  # each runner raises errors of its own, with ours as text
        raise ExportError(f"{out}: the pipeline failed: {_told(error)}") from error


def _told(error: Exception) -> str:
    """What one of our errors said where it was raised; else all that a runner says."""
    found = _OURS.search(str(error))
    return found[1] if found else str(error)
