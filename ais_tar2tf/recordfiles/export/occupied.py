"""Checks of a destination before an export: for a finished export, and for files that must not be overwritten."""

from __future__ import annotations

import contextlib
import logging

from ais_tar2tf.base.escaping import one_line
from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.export.destinations import Destination
from ais_tar2tf.recordfiles.export.fingerprints import is_same_plan
from ais_tar2tf.recordfiles.export.locking import exclusive
from ais_tar2tf.recordfiles.export.manifest import Manifest
from ais_tar2tf.recordfiles.export.metadata import METADATA, labels_name
from ais_tar2tf.recordfiles.export.publish import read_manifest
from ais_tar2tf.recordfiles.export.sources import Sources
from ais_tar2tf.recordfiles.export.target import ExportTarget

__all__ = ["find_finished"]

_log = logging.getLogger("ais_tar2tf")


def find_finished(target: ExportTarget, destination: Destination, sources: Sources | None) -> Manifest | None:
    """Return the manifest if exactly this export is finished already; None if it has to run.

    Raises:
        ExportError: The option `exists` forbids to overwrite another export, an unknown file, or (with "error") any
            file that exists.
    """
    manifest = read_manifest(destination)
    if target.exists == "replace":
        _check_compatible(target, manifest)
        _warn_of_others(target, destination, manifest)
        return None
    published = [] if manifest is None else [split for split in target.splits if split in manifest.splits]
    if target.exists == "error" and (published or (target.resumable and target.work_path().exists())):
        raise ExportError(f"{target.out}: there is an export already; exists='replace' writes it anew")
    if target.exists == "error" and manifest is None and target.share is None and not target.staged:
        # Not for shares: other splits may be published at this moment, and their manifest comes last.
        other = _other_file(target, destination)
        if other is not None:
            raise ExportError(f"{destination.url(other)}: something else is there, which exists='error' refuses")
    if manifest is None or not published:
        _check_compatible(target, manifest)
        _check_unknown_files(target, destination, manifest)
        _warn_of_others(target, destination, manifest)
        return None
    same = all(is_same_plan(manifest.splits[split].plan, target.plan) for split in published)
    if not same or len(published) < len(target.splits):
        raise ExportError(
            f"{target.out}: another export's {', '.join(published)} is there, of other sources or options; "
            "exists='replace' writes it anew"
        )
    for file in (file for split in published for file in manifest.splits[split].files):
        if destination.size(file.name) != file.bytes:
            raise ExportError(
                f"{destination.url(file.name)}: not as the manifest says; exists='replace' writes it anew"
            )
    if sources is not None:
        sources.check(manifest.splits[published[0]].sources, target.out)
    with contextlib.suppress(OSError):
        _remove_work_folder(target)
    return manifest


def _other_file(target: ExportTarget, destination: Destination) -> str | None:
    """Return the name of a file that no export wrote; None if there is no such file. Hidden files are ignored."""
    ours = (".", f"{target.name}-")
    return next((each for each in destination.names("") if not each.startswith(ours) and each not in METADATA), None)


def _warn_of_others(target: ExportTarget, destination: Destination, manifest: Manifest | None) -> None:
    """Warn about files of other programs, because a reader of the whole folder would read them, too."""
    other = _other_file(target, destination) if manifest is None else None
    if other is not None:
        _log.warning(
            "%s holds other files, as %s; they stay. An empty folder keeps record files apart from them",
            shown_url(target.out),
            one_line(other),
        )


def _remove_work_folder(target: ExportTarget) -> None:
    """Delete the work folder of an export that was killed right after it was published."""
    if target.work_path().exists():
        work = target.work(start_over=True)
        work.remove()
        work.close()


def _check_compatible(target: ExportTarget, manifest: Manifest | None) -> None:
    """Raise `ExportError` if splits that are not replaced have another format, name or index option."""
    if manifest is None or not manifest.splits.keys() - set(target.splits):
        return
    ours = (target.format, target.name, target.index_files)
    theirs = (manifest.format, manifest.name, manifest.index_files)
    if ours != theirs:
        raise ExportError(
            f"{target.out}: other splits are there, written as (format, name, idx) {theirs}, not {ours}; "
            "choose another place"
        )


def _check_unknown_files(target: ExportTarget, destination: Destination, manifest: Manifest | None) -> None:
    """Raise `ExportError` if files have names of this export, but no manifest lists them: somebody may need them."""
    if target.share is not None or target.staged or target.work_path().exists():
        return
    unknown_files = target.publisher(destination).existing_files()
    if manifest is None and not unknown_files:
        unknown_files = _foreign_metadata(target, destination)
    if unknown_files:
        raise ExportError(
            f"{destination.url(unknown_files[0])}: this file exists, and no manifest lists it; "
            "exists='replace' takes it away"
        )


def _foreign_metadata(target: ExportTarget, destination: Destination) -> list[str]:
    """Return documents for TFDS that no export wrote.

    Another process may be publishing now, and it writes these documents before its manifest. So this function waits
    for the lock before it decides.
    """
    documents = (*METADATA, *map(labels_name, target.classes))
    found = [name for name in documents if destination.size(name) is not None]
    if not found:
        return []
    with exclusive(destination):
        return found if read_manifest(destination) is None else []
