"""What is in an export's place already: an export that is finished, or files of others, which stay as they are."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from ais_tar2tf.errors import ExportError
from ais_tar2tf.escaping import one_line
from ais_tar2tf.export.alone import alone
from ais_tar2tf.export.manifest import Manifest
from ais_tar2tf.export.metadata import METADATA, labels_name
from ais_tar2tf.export.places import Destination
from ais_tar2tf.export.publish import read_manifest
from ais_tar2tf.export.sources import Sources
from ais_tar2tf.signed_urls import shown_url

if TYPE_CHECKING:
    from ais_tar2tf.export.run import Target

__all__ = ["finished"]

_log = logging.getLogger("ais_tar2tf")


def finished(target: Target, place: Destination, sources: Sources | None) -> Manifest | None:
    """The manifest, if all of this was done before. Raises where something else is there that is to stay."""
    manifest = read_manifest(place)
    if target.exists == "replace":
        _check_same_place(target, manifest)
        _warn_of_others(target, place, manifest)
        return None
    there = [] if manifest is None else [split for split in target.splits if split in manifest.splits]
    if target.exists == "error" and (there or (target.resumable and target.work_path().exists())):
        raise ExportError(f"{target.out}: there is an export already; exists='replace' writes it anew")
    if target.exists == "error" and manifest is None and target.share is None and not target.staged:
        # Of shares, other splits may be published at the same time, and stand there before their manifest does.
        other = _other_file(target, place)
        if other is not None:
            raise ExportError(f"{place.url(other)}: something else is there, which exists='error' refuses")
    if manifest is None or not there:
        _check_same_place(target, manifest)
        _check_strangers(target, place, manifest)
        _warn_of_others(target, place, manifest)
        return None
    if any(manifest.splits[split].plan != target.plan for split in there) or len(there) < len(target.splits):
        raise ExportError(
            f"{target.out}: another export's {', '.join(there)} is there, of other sources or options; "
            "exists='replace' writes it anew"
        )
    for file in (file for split in there for file in manifest.splits[split].files):
        if place.size(file.name) != file.bytes:
            raise ExportError(f"{place.url(file.name)}: not as the manifest says; exists='replace' writes it anew")
    if sources is not None:
        sources.check(manifest.splits[there[0]].sources, target.out)
    with contextlib.suppress(OSError):
        _leftover(target)
    return manifest


def _other_file(target: Target, place: Destination) -> str | None:
    """Return the name of a file that no export wrote, if there is one; hidden files do not count."""
    ours = (".", f"{target.name}-")
    return next((each for each in place.names("") if not each.startswith(ours) and each not in METADATA), None)


def _warn_of_others(target: Target, place: Destination, manifest: Manifest | None) -> None:
    """Say when a folder that no export wrote to holds other files: whoever reads the folder then reads both."""
    other = _other_file(target, place) if manifest is None else None
    if other is not None:
        _log.warning(
            "%s holds other files, as %s; they stay. An empty folder keeps record files apart from them",
            shown_url(target.out),
            one_line(other),
        )


def _leftover(target: Target) -> None:
    """The work folder of an export that was killed just behind its end."""
    if target.work_path().exists():
        work = target.work(start_over=True)
        work.remove()
        work.close()


def _check_same_place(target: Target, manifest: Manifest | None) -> None:
    """Splits that stay beside the new ones share format and name with them."""
    if manifest is None or not manifest.splits.keys() - set(target.splits):
        return
    ours = (target.kind, target.name, target.index_files)
    theirs = (manifest.format, manifest.name, manifest.index_files)
    if ours != theirs:
        raise ExportError(
            f"{target.out}: other splits are there, written as (format, name, idx) {theirs}, not {ours}; "
            "choose another place"
        )


def _check_strangers(target: Target, place: Destination, manifest: Manifest | None) -> None:
    """Refuse to write over files that another program, or an export that is not known here, may need."""
    if target.share is not None or target.staged or target.work_path().exists():
        return
    strangers = target.publisher(place).strangers(set())
    if manifest is None and not strangers:
        strangers = _foreign_metadata(target, place)
    if strangers:
        raise ExportError(
            f"{place.url(strangers[0])}: a file of that kind is there, and no manifest knows it; "
            "exists='replace' takes it away"
        )


def _foreign_metadata(target: Target, place: Destination) -> list[str]:
    """Return documents for TFDS that no export of ours wrote. One that publishes now writes its manifest last."""
    documents = (*METADATA, *map(labels_name, target.classes))
    found = [name for name in documents if place.size(name) is not None]
    if not found:
        return []
    with alone(place):
        return found if read_manifest(place) is None else []
