"""An export from its beginning, or from where it was, to its end: it composes what stands in this room."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xxhash import xxh3_128_hexdigest

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ExportError, OptionError, Tar2TFError
from ais_tar2tf.export.boundaries import Bounds
from ais_tar2tf.export.manifest import Manifest, SourceObject, SplitEntry, classes_of
from ais_tar2tf.export.observed import Observed
from ais_tar2tf.export.parts import SplitWriter, Syncer
from ais_tar2tf.export.places import Destination, place_of
from ais_tar2tf.export.pool import WorkerPool, portable
from ais_tar2tf.export.portions import PREFIX, Portion, Share, Staging, plan_key
from ais_tar2tf.export.publish import Output, Publisher, WorkOutput
from ais_tar2tf.export.shard_units import Event, Job, ShardRead, read_shards
from ais_tar2tf.export.sources import Sources, check_same, objects_of
from ais_tar2tf.export.there import finished
from ais_tar2tf.export.work import Identified, Place, SourceShard, WorkFolder
from ais_tar2tf.options import Read, Writing
from ais_tar2tf.progress import Progress
from ais_tar2tf.schema import Schema
from ais_tar2tf.stores import Identity, TokenSource, check_access, split_url

__all__ = ["EXISTS", "Target", "cores", "entries_of", "export_events", "export_shards"]

EXISTS = ("resume", "replace", "error")

_Events = Callable[[WorkFolder, Sequence[Place]], Iterator[Event]]
"""From the work folder, and where each split goes on, to what is written."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is written, and where."""

    out: str
    kind: str
    name: str
    splits: Sequence[str]
    bounds: Bounds
    align: str = "stream"
    exists: str = "resume"
    resumable: bool = True
    schema: Schema | None = None  # of what is written, where it was said
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])  # names by label's feature
    index_files: bool = False
    plan: dict[str, Any] = field(default_factory=dict[str, Any])
    read: Read = field(default_factory=Read)  # how documents that are there already are read
    endpoint: str | None = None
    token: TokenSource | None = None
    share: Share | None = None  # what is written waits beside the others' for `finish`
    staged: bool = False  # what is published was written by shares

    def __post_init__(self) -> None:
        if not self.out:
            raise OptionError("out is empty: name a folder or a URL; '.' is the current folder")
        check_access(self.out, endpoint=self.endpoint, token=self.token)

    def place(self) -> Destination:
        return place_of(self.out, read=self.read, endpoint=self.endpoint, token=self.token)

    def work(self, *, start_over: bool) -> WorkFolder:
        """Open the work folder. Behind a URL it stands in the user's cache, and is nobody else's."""
        private = split_url(self.out)[0] != "file"
        return WorkFolder(self.work_path(), self.plan, start_over=start_over, private=private)

    def work_path(self) -> Path:
        """In the folder itself, so that files are renamed, not copied; of a URL, in the user's cache."""
        splits, share = "+".join(self.splits), "" if self.share is None else self._share_name
        scheme, _, name = split_url(self.out)
        if scheme == "file":
            return Path(name, f"{PREFIX}{splits}", f".work-{share}") if share else Path(name, f".export-{splits}")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        key = f"{self.out} {splits} {share}" if share else f"{self.out} {splits}"
        return cache / "ais_tar2tf" / "exports" / xxh3_128_hexdigest(key.encode())

    @property
    def is_item(self) -> bool:
        """Whether what is written is one work item, which knows nothing of the whole."""
        return self.share is not None and bool(self.share.name)

    @functools.cached_property
    def _share_name(self) -> str:
        """A work item may be at work twice, so each has its own folder; a host of a job array finds its own again."""
        assert self.share is not None
        return f"{self.share.label}-{secrets.token_hex(8)}" if self.is_item else self.share.label

    def publisher(self, place: Destination) -> Publisher:
        return Publisher(place, self.kind, self.name, self.splits, self.index_files)


def cores() -> int:
    """Of those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def export_shards(
    target: Target,
    job: Job,
    names: Sequence[str],
    account: Account,
    progress: Progress,
    *,
    workers: int | None = None,
    writing: Writing | None = None,
) -> list[str]:
    """Every record of the shards `names`, or of this host's share of them; gives the files written."""
    writing = writing or Writing()
    if target.share is not None:
        names = target.share.chosen(names)
    wanted = min(len(names), cores() if workers is None else workers)
    moved = portable(job) if wanted > 1 else None
    if moved is None and wanted > 1 and workers is not None:
        raise ExportError(
            "this export can't go to worker processes: the store, or a function, lives in this process only "
            "(memory://, a lambda, a function of the main script); take workers=1, or a function of a module"
        )

    def events(work: WorkFolder, done: Sequence[Place]) -> Iterator[Event]:
        if moved is None:
            yield from read_shards(job, names, done)
            return
        with WorkerPool(moved, names, done, wanted, work.path, writing) as pool:
            yield from pool.events()

    return export_events(target, events, account, progress, sources=Sources(job.shards.store, names))


def export_events(
    target: Target,
    events: _Events,
    account: Account,
    progress: Progress,
    *,
    sources: Sources | None = None,
) -> list[str]:
    """What the events bring, as files of `target`; gives their names."""
    try:
        place = target.place()
        manifest = None
        if not target.is_item:  # of which there are thousands
            manifest = finished(target, place, sources)
            if manifest is None:
                place.check()
        if manifest is None and target.share is not None:
            return _export_portion(target, place, events, account, progress, sources)
        if manifest is None:
            manifest = _export(target, place, events, account, progress, sources)
        return [place.url(file.name) for split in target.splits for file in manifest.splits[split].files]
    except OSError as error:
        if isinstance(error, Tar2TFError):
            raise
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        advice = ": a file is in the way; out is a folder, or a URL" if is_file else ""
        raise ExportError(f"{target.out}: writing failed ({error.strerror or error}){advice}") from error


def _export(
    target: Target,
    place: Destination,
    events: _Events,
    account: Account,
    progress: Progress,
    sources: Sources | None,
) -> Manifest:
    with _filled(target, events, account, progress, sources) as work:
        output = WorkOutput(work)
        return target.publisher(place).publish(output, entries_of(target, output))


@contextlib.contextmanager
def _filled(
    target: Target, events: _Events, account: Account, progress: Progress, sources: Sources | None
) -> Generator[WorkFolder]:
    """The work folder with every file finished."""
    work = target.work(start_over=target.exists == "replace" or not target.resumable)
    try:
        if not work.complete:
            if sources is not None:
                sources.check(objects_of(work.shards.values()), target.out)
            _write(target, work, events, account, progress)
        yield work
    finally:
        work.close()


def _export_portion(
    target: Target,
    place: Destination,
    events: _Events,
    account: Account,
    progress: Progress,
    sources: Sources | None,
) -> list[str]:
    """This share, left beside the others until `finish`; one that is there and whole is kept."""
    assert target.share is not None
    staging, key = Staging.of(place, target.splits), plan_key(target.plan)
    staging.claim()
    staging.make_room(target.share, key, replace=target.exists == "replace")
    there = staging.find_whole(f"{target.share.label}.{key}")
    if there is None:
        with _filled(target, events, account, progress, sources) as work:
            there = staging.add(work, _portion_of(target, target.share, work), index=target.index_files)
            work.remove()
    elif target.exists == "error":
        raise ExportError(f"{staging.url()}: this part is there already; exists='replace' writes it anew")
    elif sources is not None:
        sources.check(objects_of(there.shards), target.out)
    return staging.urls(there)


def _portion_of(target: Target, share: Share, work: WorkFolder) -> Portion:
    shards = tuple(work.shards[at] for at in sorted(work.shards))
    portion = Portion(share.label, tuple(target.splits), target.plan, target.schema, tuple(work.files), shards)
    return portion.moved(share.number)


def _write(
    target: Target,
    work: WorkFolder,
    events: _Events,
    account: Account,
    progress: Progress,
) -> None:
    done = [work.place_of(split) for split in target.splits]
    begun = {file.end[0]: file.identity for file in work.files}
    syncer = Syncer(work)
    writers = [SplitWriter(split, target.kind, target.bounds, work, syncer) for split in target.splits]
    coming = events(work, done)
    try:
        with progress:
            for event in coming:
                if isinstance(event, ShardRead):
                    _shard_read(event, work, account)
                    if target.align == "shard":
                        _close_all(writers)
                    progress.shard()
                    continue
                _check_begun(event.identity, begun.get(event.at), target)
                writers[event.split].add(event)
                progress.add(len(event.sizes), sum(event.sizes))
            _close_all(writers)
            syncer.finish()
        work.all_finished()
    finally:
        if hasattr(coming, "close"):
            coming.close()  # type: ignore[attr-defined]  # a generator: its workers end now
        for writer in writers:
            writer.abandon()
        syncer.close()


def _close_all(writers: Sequence[SplitWriter]) -> None:
    for writer in writers:
        writer.close_file()


def _check_begun(found: Identified, known: Identified | None, target: Target) -> None:
    if known is None:
        return
    before, now = Identity(*known), Identity(*found)
    check_same(before, now, "a shard that was read in part", target.out)
    if not before.is_proved_by(now):
        raise ExportError(
            f"a shard was read in part for {target.out}, and its store states no strong ETag, version or checksum: "
            "whether it changed cannot be told; exists='replace' reads everything again"
        )


def _shard_read(event: ShardRead, work: WorkFolder, account: Account) -> None:
    account.merge(event.stats)
    work.shard_finished(
        SourceShard(
            at=event.at,
            url=event.url,
            identity=event.identity,
            records=event.stats.records_read,
            ignored=event.stats.ignored,
            skipped=dict(event.stats.skipped),
            observed=[each.to_json() for each in event.observed],
        )
    )


def entries_of(target: Target, output: Output) -> dict[str, SplitEntry]:
    """What the manifest says of each split, but for its files."""
    shards = [output.shards[at] for at in sorted(output.shards)]
    skipped: Counter[str] = Counter()
    for shard in shards:
        skipped.update(shard.skipped)
    sources = tuple(SourceObject(shard.url, *shard.identity) for shard in shards if shard.url)
    entries: dict[str, SplitEntry] = {}
    for at, split in enumerate(target.splits):
        observed = Observed()
        for shard in shards:
            observed.add(Observed.from_json(shard.observed[at]))
        ignored = sum(shard.ignored for shard in shards)
        schema = observed.schema() if target.schema is None else replace(target.schema, records=observed.records)
        entries[split] = SplitEntry(
            (), schema, target.plan, sources, dict(skipped), ignored, classes_of(target.classes)
        )
    return entries
