"""`t2t.finish`: publish the staged parts of all hosts of a job array as one export.

A part is the output of one host. This module must not read input shards or encode records.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.export.boundaries import Bounds
from ais_tar2tf.recordfiles.export.destinations import Destination
from ais_tar2tf.recordfiles.export.journal import FinishedFile
from ais_tar2tf.recordfiles.export.manifest import MANIFEST, Manifest
from ais_tar2tf.recordfiles.export.os_errors import raise_export_errors
from ais_tar2tf.recordfiles.export.publish import read_manifest
from ais_tar2tf.recordfiles.export.run import split_entries
from ais_tar2tf.recordfiles.export.staging import PREFIX, StagedOutput, StagedPart, Staging
from ais_tar2tf.recordfiles.export.target import ExportTarget
from ais_tar2tf.recordfiles.formats import find_format
from ais_tar2tf.stores import TokenSource

__all__ = ["finish", "publication_target", "publish_parts"]


@known_options
def finish(
    out: str | os.PathLike[str],
    *,
    split: str | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> list[str]:
    """Publish the files that all hosts of a job array have exported.

    Each host i of n must have run `export(out, shard=(i, n), align="shard", …)` with the same options. The
    published files are the same, byte for byte, as if one host had run `export(out, align="shard", …)`. A second call
    of `finish` changes nothing.

    Args:
        out: The folder or URL to which the hosts exported.
        split: The split to publish. If None, all splits are published.
        endpoint: The address of the store, if the URL does not name it.
        token: A token for the store, or a function that returns one.

    Returns:
        The paths or URLs of the published files.

    Raises:
        PartMissing: Some hosts have not finished. The error names the hosts that have to run again.
        ExportError: There is nothing to publish, or publishing failed.

    Example:
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
    with raise_export_errors(where, "publishing failed"):
        return _finish(where, split, endpoint, token)


def _finish(out: str, split: str | None, endpoint: str | None, token: TokenSource | None) -> list[str]:
    base = publication_target(out, endpoint, token)
    destination = base.destination()
    waiting = [each for each in destination.folders(PREFIX) if split in (None, *each.removeprefix(PREFIX).split("+"))]
    for folder in waiting:
        staging = Staging(destination, folder)
        staging.claim()
        if not staging.clear_finished():
            parts = staging.hosts()
            publish_parts(_target_for(parts[0], base), destination, staging, parts)
    manifest = read_manifest(destination)
    if manifest is None or (split is not None and not waiting and split not in manifest.splits):
        raise ExportError(
            f"{destination.url(MANIFEST)}: there is nothing to finish, and nothing finished; "
            "run export(…, shard=(i, n)) on every host"
        )
    published = [name for name in sorted(manifest.splits) if split in (None, name)] or sorted(manifest.splits)
    return [destination.url(file.name) for name in published for file in manifest.splits[name].files]


def publication_target(out: str, endpoint: str | None, token: TokenSource | None) -> ExportTarget:
    """Return a target that states only the destination. The staged parts state all other options."""
    return ExportTarget(
        out=out, format="", name="", splits=(), bounds=Bounds(), staged=True, endpoint=endpoint, token=token
    )


def _target_for(part: StagedPart, base: ExportTarget) -> ExportTarget:
    """Return the target `base`, completed with the options that a part states."""
    return replace(
        base,
        format=part.plan["format"],
        name=part.plan["name"],
        splits=part.splits,
        align="shard",
        schema=part.schema,
        classes=part.plan.get("classes", {}),
        index_files=part.plan["idx"],
        plan=part.plan,
    )


def publish_parts(
    target: ExportTarget, destination: Destination, staging: Staging, parts: Sequence[StagedPart]
) -> Manifest:
    """Publish all parts and delete the staging folder; return the manifest."""
    output = StagedOutput(staging, parts)
    expected = target.plan["shards"]
    if len(output.shards) != expected or any(at >= expected for at in output.shards):
        raise ExportError(f"{staging.url()}: the parts hold other shards than were asked for; export them again")
    totals = {split: sum(file.split == split for file in output.files) for split in target.splits}

    record_format = find_format(target.format)

    def final(file: FinishedFile) -> str:
        return record_format.file_name(target.name, file.split, file.number, totals[file.split])

    incomplete = staging.parts_with_missing_files(output, final)
    if incomplete:
        raise staging.missing_error(incomplete, len(parts))
    return target.publisher(destination).publish(output, split_entries(target, output))
