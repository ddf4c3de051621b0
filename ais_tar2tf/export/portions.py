"""Portions of an export: what one of many writers leaves beside the final files, for `finish` to publish.

OUT/.parts-train/
    00003-of-00016.PLAN.train-00000.part      a finished file, with `.idx` behind it DALI's index
    00003-of-00016.PLAN.json                  what the files hold, written last: with it the portion is whole
    finished                                  all is published, and this folder is about to go
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from xxhash import xxh3_64_hexdigest

from ais_tar2tf.documents import document_bytes, parse_document
from ais_tar2tf.errors import ExportError, PartMissing
from ais_tar2tf.export.formats import FORMATS
from ais_tar2tf.export.manifest import CLASSES, NAME, SCHEMA
from ais_tar2tf.export.places import Destination
from ais_tar2tf.export.publish import index_of
from ais_tar2tf.export.splits import SPLIT_NAME
from ais_tar2tf.export.work import FILE, SHARD, SPLIT, WORK, FinishedFile, SourceShard, WorkFolder
from ais_tar2tf.options import Limits
from ais_tar2tf.owned import Layout
from ais_tar2tf.schema import Schema
from ais_tar2tf.structure import Mismatch, anything, boolean, fields, keyed, listed, matching, maybe, one_of, whole

__all__ = ["PREFIX", "Portion", "PortionOutput", "Share", "Staging", "plan_key"]

PREFIX = ".parts-"
_DONE = "finished"
_READ_AT_ONCE = 8
_DESCRIPTION = re.compile(r"(?P<host>\d{5,})-of-(?P<of>\d{5,})\.(?P<key>[0-9a-f]{16})\.json")
_LABEL = r"(\d{5,}-of-\d{5,}|[0-9a-f]{32})"
_PARTS = Layout(
    re.compile(rf"{_DONE}|{_LABEL}\.[0-9a-f]{{16}}\.(json|{SPLIT_NAME}-\d{{5,}}\.part(\.idx)?)"),
    folders=((re.compile(rf"\.work-{_LABEL}(-[0-9a-f]{{16}})?"), WORK),),
)
"""What stands in a folder of portions; nothing else in it is ever deleted."""
_SHOWN = 8  # hosts that an error names; the attribute has all


@dataclass(frozen=True)
class Share:
    """Every `of`-th input shard from the `host`-th on.

    >>> Share(3, 16).label, Share(3, 16).number(2)
    ('00003-of-00016', 35)
    """

    host: int = 0
    of: int = 1
    name: str = ""
    """Of a work item, which may be at work twice at once; hosts of a job array have none."""

    @property
    def label(self) -> str:
        return self.name or f"{self.host:05d}-of-{self.of:05d}"

    def number(self, at: int) -> int:
        """In the whole export, of the `at`-th shard of this share."""
        return self.host + self.of * at

    def chosen(self, names: Sequence[str]) -> Sequence[str]:
        return [names[at] for at in range(self.host, len(names), self.of)]


def plan_key(plan: dict[str, Any]) -> str:
    """Portions of one plan have one key."""
    return xxh3_64_hexdigest(json.dumps(plan, sort_keys=True).encode())


@dataclass(frozen=True)
class Portion:
    """What one host, or one work item, has finished; shards are numbered as in the whole export."""

    label: str
    splits: tuple[str, ...]
    plan: dict[str, Any]
    schema: Schema | None
    files: tuple[FinishedFile, ...]
    shards: tuple[SourceShard, ...]

    @property
    def base(self) -> str:
        return f"{self.label}.{plan_key(self.plan)}"

    def part(self, file: FinishedFile) -> str:
        """The name that a finished file has in the staging folder."""
        return f"{self.base}.{file.part}"

    def moved(self, number: Callable[[int], int]) -> Portion:
        """With other numbers for its shards."""
        files = tuple(replace(file, end=(number(file.end[0]), file.end[1])) for file in self.files)
        return replace(self, files=files, shards=tuple(replace(each, at=number(each.at)) for each in self.shards))

    def to_json(self) -> bytes:
        schema = None if self.schema is None else self.schema.to_json()
        return document_bytes({**asdict(replace(self, schema=None)), "schema": schema}, indent=None)

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> Portion:
        """Return the portion that a document describes; `where` is its file or URL, for errors."""
        return parse_document(data, _described, where=where, fail=ExportError)


_PLAN = fields(
    {
        "format": one_of(*FORMATS),
        "name": matching(NAME, "a name of letters, digits and '_'"),
        "idx": boolean,
        "shards": whole(),
    },
    {"classes": CLASSES},
)
_PORTION = fields(
    {
        "label": matching(re.compile(_LABEL), "the number of a host or a work item"),
        "splits": listed(SPLIT),
        "plan": keyed(anything),
        "schema": maybe(SCHEMA),
        "files": listed(FILE),
        "shards": listed(SHARD),
    }
)


def _described(value: Any) -> Portion:
    """The portion, whose files are of its splits, and whose shards say something of each of them."""
    found = _PORTION(value)
    _PLAN(found["plan"])
    splits = tuple(found["splits"])
    for file in found["files"]:
        if file.split not in splits:
            raise Mismatch(f"a file of one of the splits {splits} is expected", file.split)
    for shard in found["shards"]:
        if len(shard.observed) != len(splits):
            raise Mismatch(f"something about each of {len(splits)} splits is expected", shard.observed)
    return Portion(
        found["label"], splits, found["plan"], found["schema"], tuple(found["files"]), tuple(found["shards"])
    )


class Staging:
    """The folder of portions in the place where all is to be published."""

    def __init__(self, place: Destination, folder: str) -> None:
        self._place = place
        self.folder: str = folder

    @classmethod
    def of(cls, place: Destination, splits: Sequence[str]) -> Staging:
        return cls(place, PREFIX + "+".join(splits))

    def url(self, name: str = "") -> str:
        return self._place.url(self._path(name) if name else self.folder)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def find_whole(self, base: str) -> Portion | None:
        """A portion that is described, and whose files are here as described."""
        portion = self.find(base)
        if portion is None:
            return None
        sizes = [self._place.size(self._path(portion.part(file))) for file in portion.files]
        return portion if sizes == [file.bytes for file in portion.files] else None

    def find(self, base: str) -> Portion | None:
        """A portion that is described."""
        name = self._path(f"{base}.json")
        data = self._place.read(name)
        if data is None:
            return None
        portion = Portion.from_json(data, where=self._place.url(name))
        if portion.base != base:
            raise ExportError(
                f"{self._place.url(name)}: the document is damaged: it describes another part, {portion.base}"
            )
        return portion

    def claim(self) -> None:
        """Make the folder ours; raise where another one has its name."""
        self._place.claim(self.folder, _PARTS)

    def make_room(self, share: Share, key: str, *, replace: bool) -> None:
        """Before a share begins: what another plan, or another number of hosts, left goes, or is an error."""
        if self._place.size(self._path(_DONE)) is not None:
            raise ExportError(
                f"{self.url()}: an export was finished here, and killed just then: t2t.finish(…) clears it"
            )
        if share.name:
            if replace:
                self._place.delete(self._path(f"{share.label}.{key}.json"))
            return
        for name in list(self._place.names(self._path(""))):
            base = name.removeprefix(self._path(""))
            found = _DESCRIPTION.fullmatch(base)
            other = found is not None and (int(found["of"]) != share.of or found["key"] != key)
            if other and not replace:
                raise ExportError(
                    f"{self._place.url(name)}: a part of another plan, or of another number of hosts, is there; "
                    "exists='replace' takes it away"
                )
            if _PARTS.files.fullmatch(base) and (other or (replace and base.startswith(f"{share.label}."))):
                self._place.delete(name)

    def sweep(self) -> bool:
        """Take away what was published and killed before its end; True when there was such."""
        if self._place.size(self._path(_DONE)) is None:
            return False
        self._place.delete_folder(self.folder, _PARTS)
        return True

    def add(self, work: WorkFolder, portion: Portion, *, index: bool) -> Portion:
        """The finished files of a work folder, and the description behind them."""
        for file in portion.files:
            part, name = work.path / file.part, self._path(portion.part(file))
            if not part.exists():
                continue  # it was taken before this was killed
            if index:
                beside = part.with_suffix(".idx")
                beside.write_bytes(index_of(part))
                self._place.take(beside, f"{name}.idx")
            self._place.take(part, name)
        self._place.settle(self.folder)
        self._place.take(work.write("description", portion.to_json()), self._path(f"{portion.base}.json"))
        self._place.settle(self.folder)
        return portion

    def urls(self, portion: Portion) -> list[str]:
        return [self.url(portion.part(file)) for file in portion.files]

    def hosts(self) -> list[Portion]:
        """The portions of all hosts of a job array."""
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
            raise self.missing(missing, of)
        return list(self.read(f"{Share(host, of).label}.{key}" for host in range(of)))

    def _names(self) -> Iterator[str]:
        return (name.removeprefix(self._path("")) for name in self._place.names(self._path("")))

    def read(self, bases: Iterable[str]) -> Iterator[Portion]:
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            for base, portion in zip(bases := list(bases), pool.map(self.find, bases), strict=True):
                if portion is None:
                    raise ExportError(f"{self.url(base)}.json: it vanished; run what wrote it again")
                yield portion

    def missing(self, hosts: Sequence[int], of: int) -> PartMissing:
        shown = ", ".join(f"shard=({host}, {of})" for host in hosts[:_SHOWN])
        more = f" and {len(hosts) - _SHOWN:,} more" if len(hosts) > _SHOWN else ""
        return PartMissing(
            f"{self.url()}: {len(hosts):,} of {of:,} hosts have left no whole part; run again: {shown}{more}",
            hosts=hosts,
            of=of,
        )

    def vanished(self, output: PortionOutput, final: Callable[[FinishedFile], str]) -> list[int]:
        """The portions of which a file is neither here nor, by a `finish` that was killed, under its final name."""
        sizes = self._place.sizes(self.folder)
        gone: set[int] = set()
        for file in output.files:
            at, part = output.origins[file.split, file.number]
            if sizes.get(self._path(part)) != file.bytes and self._place.size(final(file)) != file.bytes:
                gone.add(at)
        return sorted(gone)

    def remove(self) -> None:
        """All is published."""
        if self._place.folders(self.folder):
            self._place.write(self._path(_DONE), b"")
            self._place.delete_folder(self.folder, _PARTS)


class PortionOutput:
    """All portions as one output: the files of each split in the order of the input shards, numbered anew."""

    def __init__(self, staging: Staging, portions: Sequence[Portion]) -> None:
        self._staging = staging
        self.shards: dict[int, SourceShard] = {shard.at: shard for each in portions for shard in each.shards}
        self.files: list[FinishedFile] = []
        self.origins: dict[tuple[str, int], tuple[int, str]] = {}
        """(split, number) → which portion, and the file's name in the staging folder."""
        ordered = sorted(
            ((file, at, each.part(file)) for at, each in enumerate(portions) for file in each.files),
            key=lambda found: (found[0].split, found[0].end[0], found[0].number),
        )
        counts: dict[str, int] = {}
        for file, at, part in ordered:
            number = counts.get(file.split, 0)
            counts[file.split] = number + 1
            self.files.append(replace(file, number=number))
            self.origins[file.split, number] = (at, part)

    def take(self, file: FinishedFile, name: str, place: Destination, *, index: bool) -> bool:
        origin = f"{self._staging.folder}/{self.origins[file.split, file.number][1]}"
        if place.size(origin) is None:
            return False
        if index and place.size(f"{origin}.idx") is not None:
            place.move(f"{origin}.idx", f"{name}.idx")
        place.move(origin, name)
        return True

    def remove(self) -> None:
        self._staging.remove()
