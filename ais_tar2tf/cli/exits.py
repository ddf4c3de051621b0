"""What became of a command, as a number: the table of errors → exit codes, and what to try next. No I/O.

0 done · 1 anything not below · 2 usage · 3 not found · 4 access · 5 network · 6 corrupt data · 7 done in part
"""

from __future__ import annotations

from ais_tar2tf.errors import (
    AccessDenied,
    ArchiveError,
    ChecksumMismatch,
    ExportError,
    MappingError,
    ObjectChanged,
    OptionError,
    RecordError,
    SchemaError,
    ShardNotFound,
    StoreError,
    Tar2TFError,
    TemplateError,
    TransportError,
    UnclearLayout,
    UnsafeName,
)

__all__ = [
    "ACCESS",
    "CORRUPT",
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "NETWORK",
    "NOT_FOUND",
    "PART",
    "USAGE",
    "code_of",
    "remedy_for",
]

DONE, FAILED, USAGE, NOT_FOUND, ACCESS, NETWORK, CORRUPT, PART = range(8)
INTERRUPTED = 130  # what shells expect of Ctrl-C; a command that leaves something to go on with says PART

_CODES: tuple[tuple[type[Tar2TFError], int], ...] = (
    (OptionError, USAGE),
    (TemplateError, USAGE),
    (UnclearLayout, USAGE),
    (ShardNotFound, NOT_FOUND),
    (AccessDenied, ACCESS),
    (TransportError, NETWORK),
    (ObjectChanged, CORRUPT),
    (ChecksumMismatch, CORRUPT),
    (StoreError, USAGE),  # the store cannot do what was asked: an unknown scheme, no endpoint, no listing
    (ArchiveError, CORRUPT),
    (RecordError, CORRUPT),
    (MappingError, CORRUPT),
    (SchemaError, CORRUPT),
    (UnsafeName, CORRUPT),
)

_REMEDIES: tuple[tuple[type[Tar2TFError], str], ...] = (
    (TemplateError, "quote the template, as 'train-{000..146}.tar': the shell expands braces by itself"),
    (ShardNotFound, "see what is there: ais-tar2tf ls {parent}"),
    (AccessDenied, "see what is seen of the credentials: ais-tar2tf doctor {parent}"),
    (TransportError, "see where it fails: ais-tar2tf doctor {parent}"),
    (ArchiveError, "see everything that is wrong: ais-tar2tf inspect {parent}"),
    (RecordError, "see everything that is wrong: ais-tar2tf inspect {parent}"),
)


_BY_TEXT = (
    ("exists='replace'", "on the command line that is: --exists replace (of pack: --replace)"),
    ("the template is empty", "name the shards: 'train-{000..146}.tar', a folder/, or a glob"),
    ("no name for the shards", "say it, and where a number goes: 'ais://bucket/train-{:05d}.tar'"),
    (
        "says where their names go",
        "the same command with that template, or a split alone: ais-tar2tf pack DIR/train URL",
    ),
    ("the number of a shard that is written goes in", "the same command with that template, quoted"),
    ("there is nothing to pack", "a record's files have an extension, as 1.jpg: see ais-tar2tf pack --help"),
    ("nothing to finish", "run on every host: ais-tar2tf convert URL OUT --shard I/N"),
    ("say out=", "on the command line that is: --out PLACE"),
    ("no endpoint", "--endpoint http://host:51080, or export AIS_ENDPOINT=…; without a cluster: ais-tar2tf demo"),
)


def code_of(error: BaseException) -> int:
    """The exit code that an error means.

    >>> code_of(ShardNotFound("there is no such file", url="a.tar"))
    3
    """
    if _is_of_this_machine(error):
        return FAILED
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, ExportError) and isinstance(error.__cause__, PermissionError):
        return ACCESS
    return FAILED


def _is_of_this_machine(error: BaseException) -> bool:
    """Whether a store is a file system that failed: a full disk, a folder that may not be written."""
    return type(error) is StoreError and isinstance(error.__cause__, OSError)


def remedy_for(error: BaseException, endpoint: object = None) -> str | None:
    """What to do next; None where the error's own text says it. An `endpoint` that was given is given again."""
    for text, remedy in _BY_TEXT:
        if text in str(error):
            return remedy
    where = str(getattr(error, "url", None) or getattr(error, "shard", None) or "")
    if _is_of_this_machine(error):
        return "mend that, or choose another place; the same command then goes on"
    if isinstance(error, AccessDenied) and "://" not in where:
        return f"see who may read and write it: ls -ld {where}"
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            parent = _parent(where) if isinstance(error, ShardNotFound) else _folder(where)
            told = remedy.replace("{parent}", parent)  # no format(): templates in remedies have braces of their own
            return f"{told} --endpoint {endpoint}" if endpoint and parent.startswith("ais://") else told
    return None


def _folder(url: str) -> str:
    head, separator, _ = url.rpartition("/")
    return head + separator if separator else "."


def _parent(url: str) -> str:
    """Where to look for what is not there: of a folder the one above, of a bucket the list of buckets.

    >>> _parent("ais://b/train/0.tar"), _parent("ais://b/train/"), _parent("ais://b/"), _parent("none/")
    ('ais://b/train/', 'ais://b/', 'ais://', '.')
    """
    return _folder(url.rstrip("/")) if url.endswith("/") and not url.endswith("://") else _folder(url)
