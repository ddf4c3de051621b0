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
    RecordError,
    SchemaError,
    ShardNotFound,
    StoreError,
    Tar2TFError,
    TemplateError,
    TransportError,
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
    (TemplateError, USAGE),
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
)

_REMEDIES: tuple[tuple[type[Tar2TFError], str], ...] = (
    (TemplateError, "quote the template, as 'train-{000..146}.tar': the shell expands braces by itself"),
    (ShardNotFound, "see what is there: ais-tar2tf ls {parent}"),
    (AccessDenied, "see what is seen of the credentials: ais-tar2tf doctor {parent}"),
    (TransportError, "see where it fails: ais-tar2tf doctor {parent}"),
    (ArchiveError, "see everything that is wrong: ais-tar2tf inspect {parent}"),
    (RecordError, "see everything that is wrong: ais-tar2tf inspect {parent}"),
)


def code_of(error: BaseException) -> int:
    """The exit code that an error means.

    >>> code_of(ShardNotFound("there is no such file", url="a.tar"))
    3
    """
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, ExportError) and isinstance(error.__cause__, PermissionError):
        return ACCESS
    return FAILED


def remedy_for(error: BaseException) -> str | None:
    """What to do next; None where the error's own text says it."""
    if "exists='replace'" in str(error):
        return "on the command line that is: --exists replace"
    where = getattr(error, "url", None) or getattr(error, "shard", None) or ""
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return remedy.format(parent=_parent(str(where)))
    return None


def _parent(url: str) -> str:
    head, separator, _ = url.rpartition("/")
    return head + separator if separator else "."
