"""An Apache Beam pipeline that converts shards into record files.

Each shard is a work item, which writes its files to the export's staging folder and returns a description of them. A
last item numbers the files and publishes them under their final names. An item that runs twice writes the same bytes,
and a pipeline that runs again resumes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xxhash import xxh3_128_hexdigest

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.urls.locations import Location, location_text
from ais_tar2tf.base.urls.templates import escape
from ais_tar2tf.errors import ExportError, MissingDependency, OptionError
from ais_tar2tf.recordfiles.export.finishing import publication_target, publish_parts
from ais_tar2tf.recordfiles.export.manifest import Manifest
from ais_tar2tf.recordfiles.export.occupied import find_finished
from ais_tar2tf.recordfiles.export.request import ExportOptions, build_target, export_source
from ais_tar2tf.recordfiles.export.sources import Sources
from ais_tar2tf.recordfiles.export.staging import Share, StagedPart, Staging, plan_key
from ais_tar2tf.recordfiles.export.target import ExportTarget
from ais_tar2tf.source import Source, open_source
from ais_tar2tf.streams.listing import natural_order
from ais_tar2tf.streams.reader import Shards

try:
    import apache_beam as beam  # pyright: ignore[reportMissingImports]  # installed in another environment
except ImportError:
    beam: Any = None

__all__ = ["ConvertShards", "run_pipeline"]


def __dir__() -> list[str]:
    return sorted(__all__)


_Transform: Any = object if beam is None else beam.PTransform
_Function: Any = object if beam is None else beam.DoFn
_SET_BY_PIPELINE = frozenset(
    {"workers", "progress", "writing", "shard"}
)  # options of an export that a user of a pipeline may not set
_OUR_ERROR = re.compile(r"^(?:\w+: )?ais_tar2tf\.errors\.(\w+: .*?)(?: \[while running .*)?$", re.MULTILINE)

Element = Location | tuple[int, Location]
"""An element of the input: a shard's URL or path, or a pair of its number in the export and its URL."""


class ConvertShards(_Transform):
    """A PTransform that converts shards into record files under `out`. It outputs the URLs of the files.

    The elements are URLs, or pairs (number, URL). The shards are sorted by number, or without numbers by name (`s-2`
    before `s-10`). Files and manifest are byte for byte those of `open(urls).export(out, align="shard", …)`.

    Args:
        out: The folder or URL to write to.
        source: Options of `t2t.open`, by name.
        export: Options of `Source.export`, except `workers`, `progress`, `writing` and `shard`.

    Raises:
        MissingDependency: Apache Beam is not installed.
        OptionError: An option is not valid, or is set by the pipeline itself.

    Example:
        shards = list(t2t.open("ais://imagenet/train-{000..146}.tar").shards)
        p | beam.Create(shards) | ConvertShards("s3://out/imagenet")
    """

    def __init__(
        self, out: str | os.PathLike[str], *, source: Mapping[str, Any] | None = None, **export: Any
    ) -> None:
        if beam is None:
            raise MissingDependency("apache-beam", extra="beam")
        super().__init__()
        self._work = BeamWork(location_text(out), dict(source or {}), export)

    def is_finished(self, urls: Sequence[str]) -> bool:
        """Return whether `out` holds the finished export of exactly these shards.

        Raises:
            ExportError: `out` holds another export.
        """
        return self._work.is_finished(urls)

    def expand(self, input_or_inputs: Any) -> Any:
        work = self._work
        cleared = input_or_inputs.pipeline | "Begin" >> beam.Create([None]) | "Clear" >> beam.Map(work.clear_finished)
        return (
            input_or_inputs
            | "Spread" >> beam.Reshuffle()
            | "Convert" >> beam.ParDo(ConvertShard(work), beam.pvalue.AsSingleton(cleared))
            | "Gather" >> beam.combiners.ToList()
            | "Publish" >> beam.FlatMap(work.publish)
        )


class ConvertShard(_Function):
    """A DoFn that converts a shard. It yields the shard and the description of its files."""

    def __init__(self, work: BeamWork) -> None:
        super().__init__()
        self._work = work

    def process(self, element: Element, cleared: None) -> Iterator[tuple[Element, bytes]]:
        del cleared  # a side input, which makes Beam run `clear_finished` first
        yield element, self._work.convert(element)


class BeamWork:
    """The functions of the pipeline's steps, with their options. Beam pickles an instance for its workers."""

    def __init__(self, out: str, source: dict[str, Any], export: dict[str, Any]) -> None:
        forbidden = sorted(_SET_BY_PIPELINE & export.keys())
        if forbidden:
            raise OptionError(f"{', '.join(forbidden)}: the runner of a pipeline sets this; leave it out")
        self._out = out
        self._source = source
        self._export: dict[str, Any] = {"align": "shard", **export}
        self._options()

    def _options(self, share: Share | None = None) -> ExportOptions:
        export = dict(self._export)
        if share is not None and export.get("exists") == "error":
            export["exists"] = "resume"  # a retried item finds the files of its first run
        return ExportOptions(**export, shard=share or Share(name="any"), workers=1, progress=False)

    def _open(self, urls: Sequence[str]) -> Source:
        return open_source([escape(url) for url in urls], index=False, **self._source)

    def _target(self, source: Source, share: Share | None = None) -> tuple[Shards, ExportTarget]:
        return build_target(source.opened.shards, source.on_error, self._out, self._options(share))

    def is_finished(self, urls: Sequence[str]) -> bool:
        with self._open(urls) as source:
            shards, target = self._target(source)
            sources = Sources(shards.store, shards.names)
            return find_finished(replace(target, share=None, staged=True), target.destination(), sources) is not None

    def clear_finished(self, _: None = None) -> None:
        """Remove the staging files of an earlier pipeline that was killed after it published them."""
        options = self._options()
        target = publication_target(self._out, options.endpoint, options.token)
        Staging.for_splits(target.destination(), options.route.names).clear_finished()

    def convert(self, element: Element) -> bytes:
        """Write the record files of a shard to the staging folder, and return the JSON text that describes them."""
        url = _url(element)
        share = Share(name=xxh3_128_hexdigest(url.encode("utf-8", "surrogateescape")))
        with self._open([url]) as source:
            shards, target = self._target(source, share)
            export_source(shards, source.on_error, Account(source.on_error), self._out, self._options(share))
        staging = Staging.for_splits(target.destination(), target.splits)
        (part,) = staging.read([f"{share.label}.{plan_key(target.plan)}"])
        return part.to_json()

    def publish(self, converted: Sequence[tuple[Element, bytes]]) -> list[str]:
        """Give all record files their final names, in the order of the shards, and return the URLs of the files."""
        ordered = sorted(converted, key=lambda pair: _sort_key(pair[0]))
        urls = [_url(element) for element, _ in ordered]
        if len(set(urls)) < len(urls):
            raise ExportError(f"{self._out}: a shard is in the input twice")
        with self._open(urls) as source:
            shards, target = self._target(source)
            manifest = self._publish(shards, replace(target, share=None, staged=True), [data for _, data in ordered])
        destination = target.destination()
        return [destination.url(file.name) for split in target.splits for file in manifest.splits[split].files]

    def _publish(self, shards: Shards, target: ExportTarget, descriptions: Sequence[bytes]) -> Manifest:
        destination = target.destination()
        staging = Staging.for_splits(destination, target.splits)
        manifest = find_finished(target, destination, Sources(shards.store, shards.names))
        if manifest is not None:
            staging.remove()
            return manifest
        parts = [
            StagedPart.from_json(data, where=staging.url()).renumbered(lambda _, at=at: at)
            for at, data in enumerate(descriptions)
        ]
        return publish_parts(target, destination, staging, parts)


def _url(element: Element) -> str:
    return location_text(element[1] if isinstance(element, tuple) else element)


def _sort_key(element: Element) -> tuple[Any, ...]:
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
    """Convert shards in a pipeline of its own. A finished export is left unchanged.

    For "DirectRunner", Beam's in-process runner is used: Beam itself would try Prism, which downloads a program.

    Args:
        urls: The shards.
        out: The folder or URL to write to.
        runner: The name of a Beam runner, as "DirectRunner" or "DataflowRunner".
        options: The runner's options, as `--direct_num_workers=2`.
        source: Options of `t2t.open`, by name.
        export: Options of `Source.export`.

    Raises:
        ExportError: `out` holds another export, or the pipeline failed.
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
    except Exception as error:  # each runner raises its own errors, which quote ours as text
        raise ExportError(f"{out}: the pipeline failed: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the part of a runner's error that quotes an error of ais_tar2tf, or the whole text if there is none."""
    found = _OUR_ERROR.search(str(error))
    return found[1] if found else str(error)
