"""What became of a command, as a number: the table of errors → exit codes. No I/O.

0 done · 1 anything not below · 2 usage · 3 not found · 4 access · 5 network · 6 corrupt data · 7 done in part
"""

from __future__ import annotations

import ssl

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


def code_of(error: BaseException) -> int:
    """The exit code that an error means.

    >>> code_of(ShardNotFound("there is no such file", url="a.tar"))
    3
    """
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError) and cause.library == "SSL":  # not those that read certificates and keys
        return NETWORK
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
