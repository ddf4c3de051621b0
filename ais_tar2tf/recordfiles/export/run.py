"""The run of an export: writes record files, and then publishes them, or stages them if they are one host's share.

A run continues where an interrupted run of the same export ended. This module must not read shards or write files by
itself: `shard_output.py` and `pool.py` read, `writers.py` writes, `publish.py` and `staging.py` move the files. An
*event* and a *resume point* are explained in `shard_output.py` and `journal.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from ais_tar2tf.base.monitoring.progress import Progress
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ExportError
from ais_tar2tf.options import Writing
from ais_tar2tf.recordfiles.export.destinations import Destination
from ais_tar2tf.recordfiles.export.journal import IdentityTuple, ResumePoint, SourceShard, WorkFolder
from ais_tar2tf.recordfiles.export.manifest import Manifest, SourceObject, SplitEntry, frozen_classes
from ais_tar2tf.recordfiles.export.occupied import find_finished
from ais_tar2tf.recordfiles.export.os_errors import raise_export_errors
from ais_tar2tf.recordfiles.export.pool import WorkerPool, portable
from ais_tar2tf.recordfiles.export.publish import Output, WorkOutput
from ais_tar2tf.recordfiles.export.shard_output import Event, ExportJob, ShardRead, read_shards
from ais_tar2tf.recordfiles.export.sources import Sources, check_same, source_objects
from ais_tar2tf.recordfiles.export.split_statistics import SplitStatistics
from ais_tar2tf.recordfiles.export.staging import Share, StagedPart, Staging, plan_key
from ais_tar2tf.recordfiles.export.target import ExportTarget
from ais_tar2tf.recordfiles.export.writers import SplitWriters
from ais_tar2tf.recordfiles.formats import find_format
from ais_tar2tf.stores import Identity

__all__ = ["cores", "export_events", "export_shards", "split_entries"]

EventSource = Callable[[WorkFolder, Sequence[ResumePoint]], Generator[Event]]
"""A function of the work folder and the resume point of each split; yields the events from these points on."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def export_shards(
    target: ExportTarget,
    job: ExportJob,
    names: Sequence[str],
    account: Account,
    progress: Progress,
    *,
    workers: int | None = None,
    writing: Writing | None = None,
) -> list[str]:
    """Export every record of the shards `names`, or of the target's share of them.

    Args:
        target: The files to write, and their destination.
        job: How to read and encode records.
        names: All shards of the export.
        account: Counts the records that are read and skipped.
        progress: The progress bar.
        workers: The number of worker processes. None: as many as there are cores, or no worker process if the job
            cannot be sent to another process.
        writing: The bounds of the disk space for the workers' segment files.

    Returns:
        The paths or URLs of the published files; of the staged files if the target is a share.
    """
    writing = writing or Writing()
    if target.share is not None:
        names = target.share.chosen(names)
    wanted = min(len(names), cores() if workers is None else workers)
    portable_job = portable(job) if wanted > 1 else None
    if portable_job is None and wanted > 1 and workers is not None:
        raise ExportError(
            "this export can't go to worker processes: the store, or a function, lives in this process only "
            "(memory://, a lambda, a function of the main script); take workers=1, or a function of a module"
        )

    def events(work: WorkFolder, resume_at: Sequence[ResumePoint]) -> Generator[Event]:
        if portable_job is None:
            yield from read_shards(job, names, resume_at)
            return
        with WorkerPool(portable_job, names, resume_at, wanted, work.path, writing) as pool:
            yield from pool.events()

    return export_events(target, events, account, progress, sources=Sources(job.shards.store, names))


def export_events(
    target: ExportTarget,
    events: EventSource,
    account: Account,
    progress: Progress,
    *,
    sources: Sources | None = None,
) -> list[str]:
    """Write the records of `events` into the files of `target`; return the paths or URLs of the files.

    If the export is finished already, its files are kept, unless `target.exists` forbids this. If `sources` is given,
    it is an error if a shard has changed since an earlier run read it. Every OSError becomes an `ExportError`.
    """
    with raise_export_errors(target.out, in_the_way=": a file is in the way; out is a folder, or a URL"):
        return _ExportRun(target, events, account, progress, sources).run()


@dataclass(frozen=True)
class _ExportRun:
    """One run of an export. The fields are the arguments of `export_events`."""

    target: ExportTarget
    events: EventSource
    account: Account
    progress: Progress
    sources: Sources | None

    def run(self) -> list[str]:
        """Run the export and return the paths or URLs of its files."""
        target, destination, manifest = self.target, self.target.destination(), None
        if not target.is_work_item:  # a pipeline with thousands of work items makes this check only once
            manifest = find_finished(target, destination, self.sources)
            if manifest is None:
                destination.check()
        if manifest is None and target.share is not None:
            return self._stage(target.share, destination)
        if manifest is None:
            manifest = self._publish(destination)
        return [destination.url(file.name) for split in target.splits for file in manifest.splits[split].files]

    def _publish(self, destination: Destination) -> Manifest:
        """Write and publish all files; return the manifest."""
        with self._completed_work() as work:
            output = WorkOutput(work, find_format(self.target.format))
            return self.target.publisher(destination).publish(output, split_entries(self.target, output))

    def _stage(self, share: Share, destination: Destination) -> list[str]:
        """Export one share into the staging folder; return the paths or URLs of the staged files.

        If all files of the share are staged already, keep them, unless `target.exists` forbids this.
        """
        target = self.target
        staging, key = Staging.for_splits(destination, target.splits), plan_key(target.plan)
        staging.claim()
        staging.prepare(share, key, replace=target.exists == "replace")
        staged = staging.find_complete(f"{share.label}.{key}")
        if staged is None:
            with self._completed_work() as work:
                shards = tuple(work.shards[at] for at in sorted(work.shards))
                label, splits, files = share.label, tuple(target.splits), tuple(work.files)
                part = StagedPart(label, splits, target.plan, target.schema, files, shards).renumbered(share.number)
                staged = staging.add(work, part, index=target.index_files)
                work.remove()
        elif target.exists == "error":
            raise ExportError(f"{staging.url()}: this part is there already; exists='replace' writes it anew")
        elif self.sources is not None:
            self.sources.check(source_objects(staged.shards), target.out)
        return staging.urls(staged)

    @contextlib.contextmanager
    def _completed_work(self) -> Generator[WorkFolder]:
        """Write all files, or only the missing files of an interrupted run. Then yield the work folder."""
        target = self.target
        work = target.work(start_over=target.exists == "replace" or not target.resumable)
        try:
            if not work.complete:
                if self.sources is not None:
                    self.sources.check(source_objects(work.shards.values()), target.out)
                self._write_files(work)
            yield work
        finally:
            work.close()

    def _write_files(self, work: WorkFolder) -> None:
        """Write the files that the work folder lacks. Its journal records each finished shard and file."""
        target, progress = self.target, self.progress
        resume_at = [work.resume_point(split) for split in target.splits]
        partly_read = {file.end[0]: file.identity for file in work.files}
        with SplitWriters(target.splits, find_format(target.format), target.bounds, work) as writers:
            with contextlib.closing(self.events(work, resume_at)) as event_stream, progress:
                for event in event_stream:
                    if isinstance(event, ShardRead):
                        _record_shard(event, work, self.account)
                        if target.align == "shard":
                            writers.close_files()
                        progress.add_shard()
                        continue
                    _check_unchanged(event.identity, partly_read.get(event.at), target)
                    writers.add(event)
                    progress.add(len(event.sizes), sum(event.sizes))
                writers.finish()
            work.all_finished()


def _check_unchanged(found: IdentityTuple, before_resume: IdentityTuple | None, target: ExportTarget) -> None:
    """Raise `ExportError` unless a shard certainly has the same content as in the interrupted run.

    `found` is the identity of the shard now, and `before_resume` its identity in the interrupted run. If
    `before_resume` is None, the interrupted run has read no part of the shard, and there is nothing to check.
    """
    if before_resume is None:
        return
    before, now = Identity(*before_resume), Identity(*found)
    check_same(before, now, "a shard that was read in part", target.out)
    if not before.is_proved_by(now):
        raise ExportError(
            f"a shard was read in part for {target.out}, and its store states no strong ETag, version or checksum: "
            "whether it changed cannot be told; exists='replace' reads everything again"
        )


def _record_shard(event: ShardRead, work: WorkFolder, account: Account) -> None:
    account.merge(event.stats)
    work.shard_finished(
        SourceShard(
            at=event.at,
            url=event.url,
            identity=event.identity,
            records=event.stats.records_read,
            ignored=event.stats.ignored,
            skipped=dict(event.stats.skipped),
            observed=[each.to_json() for each in event.statistics],
        )
    )


def split_entries(target: ExportTarget, output: Output) -> dict[str, SplitEntry]:
    """Return the entry in the manifest for each split. The entries do not list files yet: `publish` adds them."""
    shards = [output.shards[at] for at in sorted(output.shards)]
    ignored = sum(shard.ignored for shard in shards)
    skipped: Counter[str] = Counter()
    for shard in shards:
        skipped.update(shard.skipped)
    sources = tuple(SourceObject(shard.url, *shard.identity) for shard in shards if shard.url)
    entries: dict[str, SplitEntry] = {}
    for at, split in enumerate(target.splits):
        statistics = SplitStatistics()
        for shard in shards:
            statistics.add(SplitStatistics.from_json(shard.observed[at]))
        schema = statistics.schema() if target.schema is None else replace(target.schema, records=statistics.records)
        entries[split] = SplitEntry(
            (), schema, target.plan, sources, dict(skipped), ignored, frozen_classes(target.classes)
        )
    return entries
