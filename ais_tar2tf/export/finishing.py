"""t2t.finish: the portions that hosts of a job array left become one export, as one host would have written it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.export.boundaries import Bounds
from ais_tar2tf.export.formats import file_name
from ais_tar2tf.export.manifest import MANIFEST, Manifest
from ais_tar2tf.export.places import Destination
from ais_tar2tf.export.portions import PREFIX, Portion, PortionOutput, Staging
from ais_tar2tf.export.publish import read_manifest
from ais_tar2tf.export.run import Target, entries_of
from ais_tar2tf.export.work import FinishedFile
from ais_tar2tf.locations import location_text
from ais_tar2tf.nearest import known_options
from ais_tar2tf.stores import TokenSource

__all__ = ["finish", "publish_portions", "publishing"]


@known_options
def finish(
    out: str | os.PathLike[str],
    *,
    split: str | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> list[str]:
    """Publish what every host of a job array has left under `out`, a folder or a URL; gives the files.

    Each host ran `export(out, shard=(i, n), align="shard", …)` with the same options. The result is byte for byte
    what `export(out, align="shard", …)` by one host gives. Run again it changes nothing. `PartMissing` names the
    hosts that have to run again. `split`: which, where several wait there; all of them when left out.

    >>> import ais_tar2tf as t2t
    >>> records = [{"__key__": key, "txt": key} for key in "abc"]
    >>> t2t.pack(records, "memory://jobs/{}.tar", shard_records=1, create=True)
    ['memory://jobs/0.tar', 'memory://jobs/1.tar', 'memory://jobs/2.tar']
    >>> for host in range(2):
    ...     _ = t2t.open("memory://jobs/{0..2}.tar").export("memory://jobs/out", shard=(host, 2), align="shard")
    >>> [file.rpartition("/")[2] for file in t2t.finish("memory://jobs/out")][-1]
    'dataset-train.tfrecord-00002-of-00003'
    """
    where = location_text(out)
    try:
        return _finish(where, split, endpoint, token)
    except OSError as error:
        if isinstance(error, Tar2TFError):
            raise
        raise ExportError(f"{where}: publishing failed ({error.strerror or error})") from error


def _finish(out: str, split: str | None, endpoint: str | None, token: TokenSource | None) -> list[str]:
    anywhere = publishing(out, endpoint, token)
    place = anywhere.place()
    waiting = [each for each in place.folders(PREFIX) if split in (None, *each.removeprefix(PREFIX).split("+"))]
    for folder in waiting:
        staging = Staging(place, folder)
        staging.claim()
        if not staging.sweep():
            portions = staging.hosts()
            publish_portions(_target_of(portions[0], anywhere), place, staging, portions)
    manifest = read_manifest(place)
    if manifest is None or (split is not None and not waiting and split not in manifest.splits):
        raise ExportError(
            f"{place.url(MANIFEST)}: there is nothing to finish, and nothing finished; run export(…, shard=(i, n)) "
            "on every host"
        )
    published = [name for name in sorted(manifest.splits) if split in (None, name)] or sorted(manifest.splits)
    return [place.url(file.name) for name in published for file in manifest.splits[name].files]


def publishing(out: str, endpoint: str | None, token: TokenSource | None) -> Target:
    """A place, and nothing yet of what goes there."""
    return Target(out=out, kind="", name="", splits=(), bounds=Bounds(), staged=True, endpoint=endpoint, token=token)


def _target_of(portion: Portion, anywhere: Target) -> Target:
    return replace(
        anywhere,
        kind=portion.plan["format"],
        name=portion.plan["name"],
        splits=portion.splits,
        align="shard",
        schema=portion.schema,
        classes=portion.plan.get("classes", {}),
        index_files=portion.plan["idx"],
        plan=portion.plan,
    )


def publish_portions(target: Target, place: Destination, staging: Staging, portions: Sequence[Portion]) -> Manifest:
    """All portions under final names, the manifest last, and nothing of the staging left."""
    output = PortionOutput(staging, portions)
    asked = target.plan["shards"]
    if len(output.shards) != asked or any(at >= asked for at in output.shards):
        raise ExportError(f"{staging.url()}: the parts hold other shards than were asked for; export them again")
    totals = {split: sum(file.split == split for file in output.files) for split in target.splits}

    def final(file: FinishedFile) -> str:
        return file_name(target.name, file.split, target.kind, file.number, totals[file.split])

    gone = staging.vanished(output, final)
    if gone:
        raise staging.missing(gone, len(portions))
    return target.publisher(place).publish(output, entries_of(target, output))
