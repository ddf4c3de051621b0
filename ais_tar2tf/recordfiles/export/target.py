"""The target of an export: which files the export writes, and where it writes them.

This module must not write files. It opens the destination, the work folder and the publisher, and these write files.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_128_hexdigest

from ais_tar2tf.errors import OptionError
from ais_tar2tf.options import Read
from ais_tar2tf.recordfiles.export.boundaries import Bounds
from ais_tar2tf.recordfiles.export.destinations import Destination, open_destination
from ais_tar2tf.recordfiles.export.journal import WorkFolder
from ais_tar2tf.recordfiles.export.publish import Publisher
from ais_tar2tf.recordfiles.export.staging import PREFIX, Share
from ais_tar2tf.stores import TokenSource, check_access, split_url
from ais_tar2tf.values.schema import Schema

__all__ = ["EXISTS", "ExportTarget"]

EXISTS = ("resume", "replace", "error")
"""The values of the option `exists`, which says what to do if the destination already has files of an export."""


@dataclass(frozen=True, kw_only=True)
class ExportTarget:
    """The target of one export: which files the export writes, and where it writes them.

    Many fields are options of `Source.export`. `ExportOptions` describes these fields.
    """

    out: str  # the output folder or its URL
    format: str
    name: str
    splits: Sequence[str]
    bounds: Bounds
    align: str = "stream"
    exists: str = "resume"
    resumable: bool = True  # whether an interrupted export can be continued
    schema: Schema | None = None
    """The schema of the written records. None: the schema is derived from statistics of these records."""
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """For each feature that holds the numbers of classes: the names of the classes, in the order of the numbers."""
    index_files: bool = False
    plan: dict[str, Any] = field(default_factory=dict[str, Any])
    """All options and sources on which the files' content depends.

    An interrupted export is continued only if its journal states the same plan.
    """
    read: Read = field(default_factory=Read)  # options for reading documents of earlier exports
    endpoint: str | None = None
    token: TokenSource | None = None
    share: Share | None = None
    """The input shards of one host or one work item, or None for all input shards.

    The files of a share are kept in a staging folder until the files of all shares are published together.
    """
    staged: bool = False  # True if the files to publish are in a staging folder already, as in `t2t.finish`

    def __post_init__(self) -> None:
        if not self.out:
            raise OptionError("out is empty: name a folder or a URL; '.' is the current folder")
        check_access(self.out, endpoint=self.endpoint, token=self.token)

    def destination(self) -> Destination:
        """Open the output folder or URL."""
        return open_destination(self.out, read=self.read, endpoint=self.endpoint, token=self.token)

    def publisher(self, destination: Destination) -> Publisher:
        """Return the publisher, which moves the finished files of all `splits` to a destination."""
        return Publisher(destination, self.format, self.name, self.splits, self.index_files)

    def work(self, *, start_over: bool) -> WorkFolder:
        """Open the work folder, where the files are written before they are published.

        If `out` is a URL, a new work folder can be read only by its owner. If `out` is a folder, a new work folder
        has the permissions that new folders usually have.

        Args:
            start_over: Whether to delete the files of an interrupted run. If False, that run is continued.
        """
        private = split_url(self.out)[0] != "file"
        return WorkFolder(self.work_path(), self.plan, start_over=start_over, private=private)

    def work_path(self) -> Path:
        """Return the path of the work folder.

        If `out` is a folder, the work folder lies below `out`, because files can then be published by renaming
        instead of copying. If `out` is a URL, the work folder lies in the user's cache folder.
        """
        splits, share = "+".join(self.splits), "" if self.share is None else self._share_name
        scheme, _, name = split_url(self.out)
        if scheme == "file":
            return Path(name, f"{PREFIX}{splits}", f".work-{share}") if share else Path(name, f".export-{splits}")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        key = f"{self.out} {splits} {share}" if share else f"{self.out} {splits}"
        return cache / "ais_tar2tf" / "exports" / xxh3_128_hexdigest(key.encode())

    @property
    def is_work_item(self) -> bool:
        """Whether the target is that of one work item of a pipeline. A pipeline may have thousands of work items."""
        return self.share is not None and bool(self.share.name)

    @functools.cached_property
    def _share_name(self) -> str:
        """The part of the work folder's path that names the share.

        A pipeline may run the same work item twice at the same time, so each run of a work item has a new work
        folder. A host of a job array has the same work folder in each run, so that a run continues an earlier one.
        """
        assert self.share is not None
        return f"{self.share.label}-{secrets.token_hex(8)}" if self.is_work_item else self.share.label
