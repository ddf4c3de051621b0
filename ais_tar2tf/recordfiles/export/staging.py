"""The staging folder of an export: keeps the finished files of many hosts until they are published together.

A *part* is the output of one host of a job array, or of one work item of a Beam pipeline. It consists of record files
and a description, which is written last. A part without a description is incomplete and is ignored. `publish.py`
decides which files are published, and under which names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from xxhash import xxh3_64_hexdigest

from ais_tar2tf.base.documents import structure as expect
from ais_tar2tf.base.documents.folders import Layout
from ais_tar2tf.base.documents.sealed import document_bytes, parse_document
from ais_tar2tf.base.documents.structure import Mismatch
from ais_tar2tf.errors import ExportError, PartMissing
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.export.destinations import Destination
from ais_tar2tf.recordfiles.export.journal import FILE, SHARD, SPLIT, WORK, FinishedFile, SourceShard, WorkFolder
from ais_tar2tf.recordfiles.export.manifest import CLASSES, NAME, SCHEMA
from ais_tar2tf.recordfiles.export.publish import Output
from ais_tar2tf.recordfiles.export.splits import SPLIT_NAME
from ais_tar2tf.recordfiles.formats import FORMATS, find_format
from ais_tar2tf.values.schema import Schema

__all__ = ["PREFIX", "Share", "StagedOutput", "StagedPart", "Staging", "plan_key"]

PREFIX = ".parts-"
_FINISHED = "finished"
_CONCURRENT_READS = 8  # descriptions that are read at the same time
_DESCRIPTION = re.compile(r"(?P<host>\d{5,})-of-(?P<of>\d{5,})\.(?P<key>[0-9a-f]{16})\.json")
_LABEL = r"(\d{5,}-of-\d{5,}|[0-9a-f]{32})"
_LAYOUT = Layout(
    re.compile(rf"{_FINISHED}|{_LABEL}\.[0-9a-f]{{16}}\.(json|{SPLIT_NAME}-\d{{5,}}\.part(\.idx)?)"),
    folders=((re.compile(rf"\.work-{_LABEL}(-[0-9a-f]{{16}})?"), WORK),),
)
"""The files of a staging folder; nothing else in it is ever deleted."""
_NAMED_HOSTS = 8  # hosts that the text of an error names; the attribute `hosts` of the error lists all


@dataclass(frozen=True)
class Share:
    """The input shards of one host: every `hosts`-th shard, from number `host` on.

    >>> Share(3, 16).label, Share(3, 16).number(2)
    ('00003-of-00016', 35)
    """

    host: int = 0
    hosts: int = 1
    name: str = ""
    """The name of a work item of a pipeline; "" for a host of a job array."""

    @property
    def label(self) -> str:
        """The name of the share in the names of its files."""
        return self.name or f"{self.host:05d}-of-{self.hosts:05d}"

    def number(self, at: int) -> int:
        """Return the number that shard `at` of this share has in the whole export."""
        return self.host + self.hosts * at

    def chosen(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the share's shards, given the names of all shards of the export."""
        return [names[at] for at in range(self.host, len(names), self.hosts)]


def plan_key(plan: dict[str, Any]) -> str:
    """Return a hash of a plan, the options and sources of an export. Parts with different plans are never mixed."""
    return xxh3_64_hexdigest(json.dumps(plan, sort_keys=True).encode())


@dataclass(frozen=True)
class StagedPart:
    """The description of a part. Its shards have the numbers that they have in the whole export."""

    label: str
    splits: tuple[str, ...]
    plan: dict[str, Any]
    schema: Schema | None
    files: tuple[FinishedFile, ...]
    shards: tuple[SourceShard, ...]

    @property
    def base(self) -> str:
        """The beginning of the names of all files of the part."""
        return f"{self.label}.{plan_key(self.plan)}"

    def staged_name(self, file: FinishedFile) -> str:
        """Return the name of a finished file in the staging folder."""
        return f"{self.base}.{file.part}"

    def renumbered(self, number: Callable[[int], int]) -> StagedPart:
        """Return the part with new numbers of shards: shard `at` becomes `number(at)`."""
        files = tuple(replace(file, end=(number(file.end[0]), file.end[1])) for file in self.files)
        return replace(self, files=files, shards=tuple(replace(each, at=number(each.at)) for each in self.shards))

    def to_json(self) -> bytes:
        """Return the description as a document."""
        schema = None if self.schema is None else self.schema.to_json()
        return document_bytes({**asdict(replace(self, schema=None)), "schema": schema}, indent=None)

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> StagedPart:
        """Parse a description; `where` is the file or URL of the description, for errors."""
        return parse_document(data, _checked_part, where=where, fail=ExportError)


_PLAN = expect.fields(
    {
        "format": expect.one_of(*FORMATS),
        "name": expect.matching(NAME, "a name of letters, digits and '_'"),
        "idx": expect.boolean,
        "shards": expect.whole(),
    },
    {"classes": CLASSES},
)
_PART = expect.fields(
    {
        "label": expect.matching(re.compile(_LABEL), "the number of a host or a work item"),
        "splits": expect.listed(SPLIT),
        "plan": expect.keyed(expect.anything),
        "schema": expect.maybe(SCHEMA),
        "files": expect.listed(FILE),
        "shards": expect.listed(SHARD),
    }
)


def _checked_part(value: Any) -> StagedPart:
    """Return the part that a parsed description states.

    Check that its files belong to its splits, and that each of its shards has statistics of every split.
    """
    found = _PART(value)
    _PLAN(found["plan"])
    splits = tuple(found["splits"])
    for file in found["files"]:
        if file.split not in splits:
            raise Mismatch(f"a file of one of the splits {splits} is expected", file.split)
    for shard in found["shards"]:
        if len(shard.observed) != len(splits):
            raise Mismatch(f"something about each of {len(splits)} splits is expected", shard.observed)
    return StagedPart(
        found["label"], splits, found["plan"], found["schema"], tuple(found["files"]), tuple(found["shards"])
    )


class Staging:
    """The staging folder at the destination of an export."""

    def __init__(self, destination: Destination, folder: str) -> None:
        self._destination = destination
        self.folder: str = folder

    @classmethod
    def for_splits(cls, destination: Destination, splits: Sequence[str]) -> Staging:
        """Return the staging folder of an export with these splits."""
        return cls(destination, PREFIX + "+".join(splits))

    def url(self, name: str = "") -> str:
        """Return the path or URL of a file in the folder, or of the folder itself."""
        return self._destination.url(self._path(name) if name else self.folder)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def find_complete(self, base: str) -> StagedPart | None:
        """Return a part; None if its description is missing, or a file is missing or has another size."""
        part = self.find(base)
        if part is None:
            return None
        sizes = [self._destination.size(self._path(part.staged_name(file))) for file in part.files]
        return part if sizes == [file.bytes for file in part.files] else None

    def find(self, base: str) -> StagedPart | None:
        """Return the part whose files have names that begin with `base`; None if the part has no description."""
        data, url = self._destination.read(self._path(f"{base}.json")), self.url(f"{base}.json")
        if data is None:
            return None
        part = StagedPart.from_json(data, where=url)
        if part.base != base:
            raise ExportError(f"{url}: the document is damaged: it describes another part, {part.base}")
        return part

    def claim(self) -> None:
        """Create the folder if it does not exist. Raise `ExportError` if the folder belongs to another program."""
        self._destination.claim(self.folder, _LAYOUT)

    def prepare(self, share: Share, key: str, *, replace: bool) -> None:
        """Prepare the folder for the part of a share, whose plan has the hash `key`.

        With `replace`, delete the earlier part of the share. For a host of a job array, delete also all parts of
        another plan or number of hosts.

        Raises:
            ExportError: An earlier export was published, but its staging folder was not deleted. Or, without
                `replace`, the folder has parts of another plan or number of hosts.
        """
        if self._destination.size(self._path(_FINISHED)) is not None:
            raise ExportError(
                f"{self.url()}: an export was finished here, and killed just then: t2t.finish(…) clears it"
            )
        if share.name:
            if replace:
                self._destination.delete(self._path(f"{share.label}.{key}.json"))
            return
        for name in list(self._names()):
            found = _DESCRIPTION.fullmatch(name)
            other = found is not None and (int(found["of"]) != share.hosts or found["key"] != key)
            if other and not replace:
                raise ExportError(
                    f"{self.url(name)}: a part of another plan, or of another number of hosts, is "
                    "there; exists='replace' takes it away"
                )
            if _LAYOUT.files.fullmatch(name) and (other or (replace and name.startswith(f"{share.label}."))):
                self._destination.delete(self._path(name))

    def clear_finished(self) -> bool:
        """Delete the folder if all its parts are published already. Return whether the folder was deleted."""
        if self._destination.size(self._path(_FINISHED)) is None:
            return False
        self._destination.delete_folder(self.folder, _LAYOUT)
        return True

    def add(self, work: WorkFolder, part: StagedPart, *, index: bool) -> StagedPart:
        """Move the finished files of a work folder into this folder, and then write the description of the part."""
        for file in part.files:
            path, name = work.path / file.part, self._path(part.staged_name(file))
            if not path.exists():
                continue  # an earlier run was killed after it had moved the file
            if index:
                index_path = path.with_suffix(".idx")
                index_path.write_bytes(find_format(part.plan["format"]).index_of(path))
                self._destination.move_in(index_path, f"{name}.idx")
            self._destination.move_in(path, name)
        self._destination.sync(self.folder)
        self._destination.move_in(work.write("description", part.to_json()), self._path(f"{part.base}.json"))
        self._destination.sync(self.folder)
        return part

    def urls(self, part: StagedPart) -> list[str]:
        """Return the paths or URLs of the record files of a part."""
        return [self.url(part.staged_name(file)) for file in part.files]

    def hosts(self) -> list[StagedPart]:
        """Return the parts of all hosts of a job array.

        Raises:
            PartMissing: Some hosts have no complete part.
            ExportError: There are no parts, or parts of several plans or numbers of hosts.
        """
        found = [found for name in self._names() if (found := _DESCRIPTION.fullmatch(name))]
        if not found:
            raise ExportError(
                f"{self.url()}: no host of a job array has ended yet; run export(…, shard=(i, n)) on each"
            )
        kinds = sorted({(int(each["of"]), each["key"]) for each in found})
        if len(kinds) > 1:
            raise ExportError(
                f"{self.url()}: parts of {len(kinds)} different plans or numbers of hosts are there; run every host "
                "again with the same options and exists='replace'"
            )
        ((of, key),) = kinds
        if of > Limits().template:
            raise ExportError(f"{self.url()}: a part of {of:,} hosts is there, more than there may be shards")
        missing = sorted(set(range(of)) - {int(each["host"]) for each in found})
        if missing:
            raise self.missing_error(missing, of)
        return list(self.read(f"{Share(host, of).label}.{key}" for host in range(of)))

    def _names(self) -> Iterator[str]:
        """Yield the names of the files in the folder."""
        return (name.removeprefix(self._path("")) for name in self._destination.names(self._path("")))

    def read(self, bases: Iterable[str]) -> Iterator[StagedPart]:
        """Yield the parts with these base names. Several descriptions are read at once."""
        with ThreadPoolExecutor(_CONCURRENT_READS) as pool:
            for base, part in zip(bases := list(bases), pool.map(self.find, bases), strict=True):
                if part is None:
                    raise ExportError(f"{self.url(base)}.json: it vanished; run what wrote it again")
                yield part

    def missing_error(self, hosts: Sequence[int], of: int) -> PartMissing:
        """Return the error for hosts that have no complete part."""
        shown = ", ".join(f"shard=({host}, {of})" for host in hosts[:_NAMED_HOSTS])
        more = f" and {len(hosts) - _NAMED_HOSTS:,} more" if len(hosts) > _NAMED_HOSTS else ""
        return PartMissing(
            f"{self.url()}: {len(hosts):,} of {of:,} hosts have left no whole part; run again: {shown}{more}",
            hosts=hosts,
            of=of,
        )

    def parts_with_missing_files(self, output: StagedOutput, final: Callable[[FinishedFile], str]) -> list[int]:
        """Return the numbers of the parts that lack a file, or have a file of another size.

        A file is in this folder, or already has its final name if an earlier `finish` was killed. `final` returns the
        final name of a file.
        """
        sizes = self._destination.sizes(self.folder)
        incomplete: set[int] = set()
        for file in output.files:
            at, part = output.origins[file.split, file.number]
            if sizes.get(self._path(part)) != file.bytes and self._destination.size(final(file)) != file.bytes:
                incomplete.add(at)
        return sorted(incomplete)

    def remove(self) -> None:
        """Delete the folder after all files are published."""
        if self._destination.folders(self.folder):
            # A run that finds this file knows that all parts are published, even if this deletion is interrupted.
            self._destination.write(self._path(_FINISHED), b"")
            self._destination.delete_folder(self.folder, _LAYOUT)


class StagedOutput(Output):
    """All parts as one `Output`. The files of each split are numbered in the order of the input shards."""

    def __init__(self, staging: Staging, parts: Sequence[StagedPart]) -> None:
        self._staging = staging
        self.shards: dict[int, SourceShard] = {shard.at: shard for each in parts for shard in each.shards}
        self.files: list[FinishedFile] = []
        self.origins: dict[tuple[str, int], tuple[int, str]] = {}
        """From (split, number of a file) to the number of its part and its name in the staging folder."""
        ordered = sorted(
            ((file, at, each.staged_name(file)) for at, each in enumerate(parts) for file in each.files),
            key=lambda found: (found[0].split, found[0].end[0], found[0].number),
        )
        counts: dict[str, int] = {}
        for file, at, staged_name in ordered:
            number = counts.get(file.split, 0)
            counts[file.split] = number + 1
            self.files.append(replace(file, number=number))
            self.origins[file.split, number] = (at, staged_name)

    def publish_file(self, file: FinishedFile, name: str, destination: Destination, *, index: bool) -> bool:
        origin = f"{self._staging.folder}/{self.origins[file.split, file.number][1]}"
        if destination.size(origin) is None:
            return False
        if index and destination.size(f"{origin}.idx") is not None:
            destination.move(f"{origin}.idx", f"{name}.idx")
        destination.move(origin, name)
        return True

    def remove(self) -> None:
        self._staging.remove()
